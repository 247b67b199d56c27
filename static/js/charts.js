// Draws the figures that the server made. Colours arrive as CSS variables and take the theme's values here.
(function () {
  "use strict";
  const figures = new WeakMap();
  const STILL = window.matchMedia("(prefers-reduced-motion: reduce)");

  function inTheme(value, style) {
    if (typeof value === "string") {
      const name = /^var\((--[a-z0-9-]+)\)$/.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => inTheme(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, inTheme(item, style)]));
    }
    return value;
  }

  function narrowed(layout, width) {
    if (width > 520 || !layout.xaxis) return layout;
    layout.xaxis.nticks = width > 380 ? 4 : 2;
    return layout;
  }

  function draw(box) {
    const figure = figures.get(box);
    if (!figure || box.offsetParent === null) return;
    const shown = inTheme(figure, getComputedStyle(document.documentElement));
    Plotly.react(box, shown.data, narrowed(shown.layout, box.clientWidth),
      { displayModeBar: false, responsive: true, displaylogo: false, staticPlot: false, scrollZoom: false })
      .then(() => { box.dataset.drawn = "true"; });
  }

  async function load(box) {
    try {
      const answer = await fetch(box.dataset.chart, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
      const figure = await answer.json();
      if (STILL.matches) figure.layout.transition = { duration: 0 };
      figures.set(box, figure);
      draw(box);
    } catch (error) {
      box.textContent = `This chart could not be loaded; its numbers are in the table below. ${error.message}`;
      box.classList.add("panel", "mute");
    }
  }

  function all() { return document.querySelectorAll("[data-chart]"); }

  document.addEventListener("muster:theme", () => all().forEach(draw));
  document.addEventListener("muster:patched", () => all().forEach((box) => { if (!figures.has(box) || box.dataset.chartLive) load(box); }));
  document.addEventListener("DOMContentLoaded", () => all().forEach(load));
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-chart-do]");
    const box = button && document.getElementById(button.dataset.chartFor);
    if (!box || !box.dataset.drawn) return;
    if (button.dataset.chartDo === "reset") Plotly.relayout(box, { "xaxis.autorange": true, "yaxis.autorange": true }).then(() => load(box));
    if (button.dataset.chartDo === "log") {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      figures.get(box).layout.yaxis.type = on ? "log" : "linear";
      figures.get(box).layout.uirevision = `fixed ${on}`;
      draw(box);
    }
    if (button.dataset.chartDo === "save") Plotly.downloadImage(box, { format: "png", width: 1400, height: 620, filename: box.dataset.chartName || "muster" });
  });
})();
