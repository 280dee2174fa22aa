"""The picture in README.md: the first screen of a report, as a person sees it at 1280 × 800.

`python docs/site/picture.py studies/quickstart` writes docs/report.png. It needs playwright and a chromium.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[1] / "report.png"


def main(study: Path) -> None:
    """Draw the report of `study`."""
    path = next(p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto((study.absolute() / "report.html").as_uri())
        page.wait_for_selector("html[data-plots]", state="attached")
        page.screenshot(path=str(PICTURE))
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
