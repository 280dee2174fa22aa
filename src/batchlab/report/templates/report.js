(() => {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures");
  const themes = read("themes");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const boxes = [...document.querySelectorAll(".plot")];
  const PAPER = { width: 660, height: 0.78 };
  const NARROW = 0.8; // of a plot's height on a phone

  // Colours are names in the figures; only keys that hold colours are looked at, so no label can be taken for one.
  const isColourKey = (key) => /color$|colorscale$/i.test(key);
  const themed = (node, theme, key) => {
    if (Array.isArray(node)) return node.map((inner) => themed(inner, theme, key));
    if (node !== null && typeof node === "object")
      return Object.fromEntries(Object.entries(node).map(([name, inner]) => [name, themed(inner, theme, name)]));
    return typeof node === "string" && isColourKey(key) && node in theme ? theme[node] : node;
  };

  // The same curves against steps or hours: each trace says what its tokens are divided by.
  const ways = document.getElementById("ways");
  const perUnit = { hours: 1, minutes: 60, seconds: 3600 };
  let way = "";
  const along = (figure) => {
    if (!way || !figure.data.some((trace) => trace.meta)) return figure;
    const unit = ways.dataset.time;
    const scale = way === "hours" ? perUnit[unit] : 1;
    const title = way === "hours" ? `${unit} of training at the measured speed` : "optimizer steps";
    return {
      data: figure.data.map((trace) => ({ ...trace, x: trace.x.map((x) => (x / trace.meta[way]) * scale) })),
      layout: {
        ...figure.layout,
        xaxis: { ...figure.layout.xaxis, title: { ...figure.layout.xaxis.title, text: title } },
        shapes: (figure.layout.shapes || []).filter((shape) => shape.xref === "paper"),
        uirevision: way,
      },
      height: figure.height,
    };
  };

  const config = {
    responsive: true,
    displaylogo: false,
    scrollZoom: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    // without a mouse the tool bar would cover the plot, and dragging must scroll the page
    displayModeBar: coarse ? false : "hover",
  };

  // Legends are part of the page: they wrap, print, and are reached by keyboard. An entry hides or shows its traces.
  const GLYPHS = {
    circle: "●", "circle-open": "○", square: "■", "square-open": "□", "square-x-open": "⊠", "square-dot": "▪",
    diamond: "◆", "diamond-open": "◇", "triangle-up": "▲", "triangle-up-open": "△", "triangle-down": "▼",
    "triangle-left": "◀", x: "✕", "x-thin-open": "×", cross: "✚", pentagon: "⬟", star: "★", "line-ew-open": "–",
    "hash-open": "#",
  };
  const hidden = {};
  const entryOf = (trace) => trace.legendgroup || trace.name;
  const shown = (box, trace) => (hidden[box.dataset.figure]?.has(entryOf(trace)) ? { visible: false } : {});
  const colourOf = (trace) => {
    const colour = trace.marker?.line?.width > 0 && /open/.test(trace.marker.symbol) ? trace.marker.line.color : null;
    return colour || trace.marker?.color || trace.line?.color;
  };
  const legend = (box, figure, data) => {
    const key = box.dataset.figure;
    const scroll = box.parentElement;
    let list = scroll.previousElementSibling;
    if (!list?.classList.contains("legend")) {
      list = document.createElement("ul");
      list.className = "legend";
      scroll.before(list);
    }
    const entries = data.filter((trace) => trace.name && trace.showlegend !== false && trace.type !== "heatmap");
    list.replaceChildren();
    if (entries.length < 2 && !entries.some((trace) => trace.x[0] === null)) return;
    const title = figure.layout.legend?.title?.text;
    if (title) list.append(Object.assign(document.createElement("li"), { className: "of", textContent: title }));
    for (const trace of entries) {
      const button = Object.assign(document.createElement("button"), { type: "button" });
      const glyph = Object.assign(document.createElement("span"), { className: "glyph" });
      const line = trace.type !== "bar" && (trace.mode || "").includes("lines");
      const mark = trace.type === "bar" ? "■" : (trace.mode || "").includes("markers") ? GLYPHS[trace.marker?.symbol] || "●" : "";
      glyph.textContent = line ? `─${mark}─` : mark;
      if (line && trace.line?.dash) glyph.textContent = `┄${mark}┄`;
      glyph.style.color = colourOf(trace);
      glyph.setAttribute("aria-hidden", "true");
      button.append(glyph, document.createElement("span"));
      button.lastChild.innerHTML = trace.name; // escaped where figures are made
      button.setAttribute("aria-pressed", String(!hidden[key]?.has(entryOf(trace))));
      button.addEventListener("click", () => {
        const set = (hidden[key] ||= new Set());
        if (!set.delete(entryOf(trace))) set.add(entryOf(trace));
        draw(scheme());
        [...list.querySelectorAll("button")][entries.indexOf(trace)]?.focus();
      });
      const item = document.createElement("li");
      item.append(button);
      list.append(item);
    }
  };

  const draw = (scheme, paper) => {
    for (const box of boxes) {
      if (!paper && box.clientWidth === 0) continue; // folded away: drawn when it is opened
      const figure = along(figures[box.dataset.figure]);
      const layout = themed(figure.layout, themes[scheme], "");
      if (coarse) layout.dragmode = false;
      layout.showlegend = false; // the page's own legend wraps and is never cut
      const share = paper ? PAPER.height : box.clientWidth < 480 ? NARROW : 1;
      layout.height = Math.round(figure.height * share);
      layout.autosize = !paper;
      if (paper) layout.width = PAPER.width;
      box.style.height = `${layout.height}px`;
      const data = themed(figure.data, themes[scheme], "").map((trace) => ({ ...trace, ...shown(box, trace) }));
      Plotly.react(box, data, layout, config);
      legend(box, figure, data);
      if (box.dataset.figure === "surface" && !box.dataset.clicks) {
        box.dataset.clicks = "on";
        box.on("plotly_click", (event) => openRuns(event.points[0].customdata));
      }
    }
    document.documentElement.dataset.plots = scheme;
  };

  const scheme = () => (dark.matches ? "dark" : "light");
  draw(scheme());
  dark.addEventListener("change", () => draw(scheme()));
  for (const fold of document.querySelectorAll("details"))
    fold.addEventListener("toggle", () => fold.open && fold.querySelector(".plot") && draw(scheme()));
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("details:not([open])")];
    for (const fold of unfolded) fold.open = true;
    draw("light", true);
  });
  addEventListener("afterprint", () => {
    for (const fold of unfolded) fold.open = false;
    draw(scheme());
  });

  // A number as its table shows it, so that rows sort by size: 1,024 · 3.0e-4 · 1.5 GiB · 2 min 05 s · 41 %.
  const FACTORS = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, k: 1e3, M: 1e6, B: 1e9, s: 1, min: 60, h: 3600 };
  const sizeOf = (text) => {
    const parts = [...text.replaceAll(",", "").replaceAll("−", "-").matchAll(/(-?\d[\d.]*(?:e-?\d+)?) ?([A-Za-z]*)/g)];
    if (!parts.length || !/^[-\d]/.test(text.replaceAll("−", "-"))) return null;
    const timed = /^(h|min|s)$/.test(parts[0][2]);
    return (timed ? parts : parts.slice(0, 1)).reduce((sum, [, value, unit]) => sum + value * (FACTORS[unit] || 1), 0);
  };
  const cellText = (row, column) => row.cells[column].firstChild?.textContent ?? "";
  const sift = (table) => {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: head.textContent });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const compare = (a, b) => {
          const [x, y] = [cellText(a, column), cellText(b, column)];
          const [m, n] = [sizeOf(x), sizeOf(y)];
          if (m === null || n === null) return (m === null) - (n === null) || (up ? 1 : -1) * x.localeCompare(y);
          return (up ? 1 : -1) * (m - n);
        };
        body.append(...rows.sort(compare));
      });
    });
    if (rows.length < 6) return;
    const box = Object.assign(document.createElement("input"), { type: "search", className: "filter" });
    box.placeholder = "filter: a word or number";
    box.setAttribute("aria-label", "Filter the rows");
    const said = Object.assign(document.createElement("span"), { className: "matches" });
    said.setAttribute("role", "status");
    table.parentElement.before(box, said);
    const filter = () => {
      const wanted = box.value.trim().toLowerCase();
      const exact = box.dataset.key || "";
      let matching = 0;
      for (const row of rows) {
        const texts = [...row.cells].map((cell) => cell.textContent.toLowerCase());
        const fits = exact ? row.dataset.key === exact : texts.some((text) => text.includes(wanted));
        row.hidden = !fits;
        matching += fits;
      }
      said.textContent = matching < rows.length ? `${matching} of ${rows.length}` : "";
    };
    box.addEventListener("input", () => { delete box.dataset.key; filter(); });
    table.show = (key) => {
      const [size, rate] = key.split("|");
      box.value = `batch ${size}, LR ${rate}`;
      box.dataset.key = key;
      filter();
    };
  };
  for (const table of document.querySelectorAll("table.sift")) sift(table);

  // From a cell of the surface, or of the table of cells, to its runs.
  const openRuns = (key) => {
    const fold = document.getElementById("runs");
    if (!key || !fold) return;
    fold.open = true;
    fold.querySelector("table").show?.(key);
    fold.scrollIntoView({ block: "nearest" });
    fold.querySelector("summary").focus({ preventScroll: true });
  };
  for (const link of document.querySelectorAll("[data-open]"))
    link.addEventListener("click", (event) => { event.preventDefault(); openRuns(link.dataset.open); });

  // A link to what is folded away opens it.
  const unfold = () => {
    const target = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();

  // The page of an unfinished study says how old it is, and looks for a newer one.
  const partial = document.querySelector("[data-written]");
  if (partial) {
    const age = document.getElementById("age");
    const say = () => {
      const seconds = Math.max(0, Date.now() / 1000 - Number(partial.dataset.written));
      const [value, unit] = seconds < 90 ? [seconds, "s"] : seconds < 5400 ? [seconds / 60, "min"] : [seconds / 3600, "h"];
      age.textContent = `Written ${Math.round(value)} ${unit} ago; this page reloads itself.`;
    };
    say();
    setInterval(say, 5000);
    const busy = () => document.querySelector("details.fold[open]") || document.querySelector("input:focus, button:focus");
    setInterval(() => { if (!document.hidden && !busy()) location.reload(); }, 30000);
  }

  if (ways) {
    ways.hidden = false;
    ways.addEventListener("change", (event) => {
      way = event.target.value;
      draw(scheme());
    });
  }

  const copy = document.getElementById("copy");
  if (copy) {
    copy.hidden = false;
    copy.addEventListener("click", () => {
      getSelection().selectAllChildren(document.getElementById("paste"));
      copy.textContent = document.execCommand("copy") ? "Copied" : "Selected";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
  }
})();
