"""report.html in a real browser: nothing fetched, nothing complained about, everything drawn, nothing cut off."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batchlab.analysis.findings import Findings
from batchlab.report.write import render_report

pytestmark = pytest.mark.slow

Study = Callable[[str], Findings]
SHOWN = ("whole", "snapshots", "partial", "failures", "ten sizes", "all diverged", "nothing trained")

# What a drawn plot must hold, counted in the page itself.
COUNT = """() => [...document.querySelectorAll('.plot')].map((box) => {
  const figure = JSON.parse(document.getElementById('figures').textContent)[box.dataset.figure];
  const visible = figure.data.filter((trace) => trace.type !== 'heatmap' && trace.x.some((x) => x !== null));
  return {
    key: box.dataset.figure,
    expected: visible.length,
    drawn: [...box.querySelectorAll('.scatterlayer .trace, .barlayer .trace')].filter(
      (trace) => trace.querySelector('path.point, path.js-line, .textpoint, .point path')).length,
    images: box.querySelectorAll('.heatmaplayer image').length,
    maps: figure.data.filter((trace) => trace.type === 'heatmap' && trace.z.flat().some((z) => z !== null)).length,
    ink: getComputedStyle(box.querySelector('.xtitle')).fill,
    wide: box.parentElement.scrollWidth > box.parentElement.clientWidth + 1,
    mayScroll: box.style.minWidth !== '',
  };
})"""
BOTTOMS = """() => ['#answer', '#figure-decision .plot'].map((one) => document.querySelector(one))
  .map((box) => box ? box.getBoundingClientRect().bottom : 0)"""
CUT = """() => [...document.querySelectorAll('.legend button, .legend li')].filter((entry) => {
  const inner = entry.getBoundingClientRect(), outer = entry.closest('figure').getBoundingClientRect();
  return inner.right > outer.right + 1 || entry.scrollWidth > entry.clientWidth + 1;
}).length"""
SCREENS, WORDS = 6, 1500
"""Of 1280 × 800, and on the page, before anything is unfolded. Numbers count as words, also those inside plots."""
READ = "() => document.body.innerText.split(/\\s+/).filter(Boolean).length"


def _unavailable(reason: str) -> None:
    """Skips; where CI is set a browser is required, so that the test cannot fade away there."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must run the browser test: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _unavailable("playwright is not installed")
    path = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
    if path is None:
        _unavailable("no chromium on PATH (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


class Visit:
    """One page opened from disk, with all that it complained about or asked for."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str) -> None:
        phone = width < 500
        self.context = browser.new_context(
            viewport={"width": width, "height": 844 if phone else 800},
            color_scheme=scheme,
            has_touch=phone,
            is_mobile=phone,
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.address = path.as_uri()
        self.page.goto(self.address)
        self.drawn()

    def drawn(self, scheme: str = "") -> None:
        """Waits for the plots (of a scheme). By selector: the page's policy lets no string be evaluated in it."""
        self.page.wait_for_selector(f"html[data-plots{f'={scheme}' if scheme else ''}]", state="attached")

    def close(self) -> None:
        self.context.close()


@pytest.fixture(scope="module")
def reports(study: Study, tmp_path_factory: pytest.TempPathFactory, plan: Any) -> dict[str, Path]:
    made = {}
    for state in SHOWN:
        folder = tmp_path_factory.mktemp("report")
        found = study(state)
        lines = "\n".join(f"setting_{i} = {i}" for i in range(14))
        rendered = render_report(found, plan(lines) if found.recommended else None, "", time.time() - 60)
        (folder / "report.html").write_text(rendered["report.html"], encoding="utf-8")
        made[state] = folder / "report.html"
    return made


def test_hostile_words_do_nothing(browser: Any, hostile: Findings, plan: Any, attack: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(render_report(hostile, plan(attack), attack)["report.html"], encoding="utf-8")
    visit = Visit(browser, tmp_path / "report.html", 390, "light")
    assert visit.page.evaluate("document.querySelectorAll('img, .plot a').length") == 0
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert visit.page.inner_text("#notes .notes") == attack  # a page with notes shows them
    assert visit.complaints == []  # an alert would wait for an answer and time out above; a blocked one is a complaint
    visit.close()


@pytest.mark.parametrize(
    ("shown", "width", "scheme"),
    [
        ("whole", 1280, "dark"),
        ("whole", 390, "light"),
        ("snapshots", 1280, "light"),
        ("snapshots", 390, "dark"),
        *((shown, width, scheme) for shown in SHOWN for width, scheme in ((1280, "light"), (390, "dark"))),
    ],
)
def test_page_is_quiet_whole_and_fits(
    browser: Any, reports: dict[str, Path], shown: str, width: int, scheme: str
) -> None:
    visit = Visit(browser, reports[shown], width, scheme)
    page = visit.page
    folded_height = page.evaluate("document.documentElement.scrollHeight")
    if width == 1280:
        assert folded_height <= SCREENS * 800
        assert page.evaluate(READ) <= WORDS
    unfold(page)
    plots = page.evaluate(COUNT)
    assert plots
    for plot in plots:
        assert plot["drawn"] == plot["expected"], plot
        assert plot["images"] == plot["maps"], plot
        assert not plot["wide"] or plot["mayScroll"], plot
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CUT) == 0
    assert max(page.evaluate(BOTTOMS)) <= (800 if width == 1280 else 844)
    assert visit.complaints == []
    # Plotly makes pictures of its own (data:, blob:); the file itself is all that is read
    assert [url for url in visit.requests if not url.startswith(("data:", "blob:"))] == [visit.address]
    visit.close()


def unfold(page: Any) -> None:
    """Opens all that is folded away; its plots are drawn then."""
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    undrawn = "[...document.querySelectorAll('.plot')].filter((box) => !box.querySelector('.main-svg')).length"
    for _ in range(100):
        if page.evaluate(undrawn) == 0:
            return
        page.wait_for_timeout(50)
    pytest.fail("plots that were unfolded are not drawn")


def test_a_click_on_a_cell_shows_its_runs_and_headings_sort(browser: Any, reports: dict[str, Path]) -> None:
    visit = Visit(browser, reports["whole"], 1280, "light")
    page = visit.page
    page.locator("#figure-surface .plot .nsewdrag").first.click(position={"x": 60, "y": 60})
    page.wait_for_selector("#runs[open]")
    shown = page.evaluate("[...document.querySelectorAll('#runs tbody tr:not([hidden])')].map((r) => r.dataset.key)")
    assert len(set(shown)) == 1
    assert page.input_value("#runs .filter") == f"batch {shown[0].replace('|', ', LR ')}"
    heads = page.locator("#results table.sift").first.locator("thead button")
    speed = next(i for i in range(heads.count()) if heads.nth(i).inner_text().startswith("tokens/s"))
    rates = f"[...document.querySelector('#results table').tBodies[0].rows].map((r) => r.cells[{speed}].textContent)"
    for press in (1, -1):
        heads.nth(speed).focus()
        page.keyboard.press("Enter")
        values = [float(text.replace(",", "")) for text in page.evaluate(rates)]
        assert values == sorted(values, reverse=press < 0)
    assert visit.complaints == []
    visit.close()


def test_an_entry_of_a_legend_hides_its_points(browser: Any, reports: dict[str, Path]) -> None:
    visit = Visit(browser, reports["whole"], 1280, "light")
    drawn = "document.querySelectorAll('#figure-decision .scatterlayer .trace').length"
    before = visit.page.evaluate(drawn)
    visit.page.locator("#figure-decision .legend button").first.click()
    assert visit.page.evaluate(drawn) < before
    assert visit.complaints == []
    visit.close()


def test_an_unfinished_report_says_how_old_it_is(browser: Any, reports: dict[str, Path]) -> None:
    visit = Visit(browser, reports["partial"], 390, "light")
    assert "ago; this page reloads itself" in visit.page.inner_text("#age")
    visit.close()


def test_plots_follow_a_change_of_scheme(browser: Any, reports: dict[str, Path]) -> None:
    visit = Visit(browser, reports["whole"], 1280, "light")
    unfold(visit.page)
    before = visit.page.evaluate(COUNT)
    visit.page.emulate_media(color_scheme="dark")
    visit.drawn("dark")
    after = visit.page.evaluate(COUNT)
    assert all(a["ink"] != b["ink"] for a, b in zip(after, before, strict=True))
    assert [a["drawn"] for a in after] == [b["drawn"] for b in before]
    assert visit.complaints == []
    visit.close()


def test_curves_are_drawn_against_steps_and_time_and_tokens_again(browser: Any, reports: dict[str, Path]) -> None:
    visit = Visit(browser, reports["snapshots"], 1280, "light")
    unfold(visit.page)
    axes, before = [], visit.page.evaluate(COUNT)
    for way in ("steps", "hours", ""):
        visit.page.check(f'#ways input[value="{way}"]')
        axes.append(visit.page.locator("#figure-same-steps .xtitle").text_content())
        assert [box["drawn"] for box in visit.page.evaluate(COUNT)] == [box["drawn"] for box in before]
    assert axes == ["optimizer steps", "seconds of training at the measured speed", "tokens seen"]
    assert visit.complaints == []
    visit.close()


def test_printing_is_light_and_comes_back(browser: Any, reports: dict[str, Path], tmp_path: Path) -> None:
    visit = Visit(browser, reports["whole"], 1280, "dark")
    visit.page.pdf(path=str(tmp_path / "report.pdf"), format="A4", print_background=True)
    assert (tmp_path / "report.pdf").stat().st_size > 20_000
    visit.drawn("dark")
    assert visit.complaints == []
    visit.close()


def test_copy_button_copies_the_block(browser: Any, reports: dict[str, Path]) -> None:
    visit = Visit(browser, reports["whole"], 1280, "light")
    visit.page.click(".paste summary")
    visit.page.click("#copy")
    selected = visit.page.evaluate("getSelection().toString()")
    assert selected.split("\n")[:2] == ["setting_0 = 0", "setting_1 = 1"]
    assert "setting_13 = 13" in selected
    assert visit.complaints == []
    visit.close()
