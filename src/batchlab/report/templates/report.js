(() => {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures");
  const themes = read("themes");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const boxes = [...document.querySelectorAll(".plot")];
  const PAPER = { width: 660, height: 0.78 };

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

  const draw = (scheme, paper) => {
    for (const box of boxes) {
      const figure = along(figures[box.dataset.figure]);
      const layout = themed(figure.layout, themes[scheme], "");
      if (coarse) layout.dragmode = false;
      if (box.clientWidth < 480) delete layout.legend.title; // its entries need the room
      layout.height = paper ? Math.round(figure.height * PAPER.height) : figure.height;
      layout.autosize = !paper;
      if (paper) layout.width = PAPER.width;
      box.style.height = `${layout.height}px`;
      Plotly.react(box, themed(figure.data, themes[scheme], ""), layout, config);
    }
    document.documentElement.dataset.plots = scheme;
  };

  const scheme = () => (dark.matches ? "dark" : "light");
  draw(scheme());
  dark.addEventListener("change", () => draw(scheme()));
  addEventListener("beforeprint", () => {
    draw("light", true);
    for (const box of document.querySelectorAll("details")) box.open = true;
  });
  addEventListener("afterprint", () => draw(scheme()));

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
