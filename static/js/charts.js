// Draws every [data-chart] with plotly: the figure comes as JSON from that address, its colours are names of the
// design system, resolved here. Redraws on a new appearance and, where [data-chart-live], on `run-changed`.
"use strict";

const NARROW_PX = 480, NAME_CHARACTERS = 14;

const probe = document.createElement("span");
probe.hidden = true;

function colour(name) {
  probe.style.color = name;
  return getComputedStyle(probe).color;
}

function resolve(value) {
  if (typeof value === "string") return value.startsWith("var(--") ? colour(value) : value;
  if (Array.isArray(value)) return value.map(resolve);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, resolve(part)]));
  }
  return value;
}

const CONFIG = {
  responsive: true,
  displaylogo: false,
  showSendToCloud: false,
  displayModeBar: false,
  doubleClick: "reset",
};

// In a narrow window names beside a chart would leave it no room: they are cut, and the list below has them in full.
function cutNames(data, layout) {
  const names = [...new Set(data.flatMap(({ y }) => (Array.isArray(y) ? y : [])))].filter((name) => typeof name === "string");
  if (!names.length) return;
  const cut = (name) => (name.length > NAME_CHARACTERS ? `${name.slice(0, NAME_CHARACTERS - 1)}…` : name);
  layout.yaxis = { ...layout.yaxis, tickmode: "array", tickvals: names, ticktext: names.map(cut) };
}

class Chart {
  constructor(box) {
    this.box = box;
    this.plot = box.querySelector(".chart-plot");
    this.axis = null;
    this.busy = this.again = false;
    box.addEventListener("click", (event) => this.#chooseAxis(event.target.closest("[data-axis]")));
  }

  async refresh() {
    if (!this.plot) return;
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    try {
      const address = new URL(this.box.dataset.chart, location.href);
      if (this.axis) address.searchParams.set("axis", this.axis);
      const answer = await fetch(address, { headers: { Accept: "application/json" } });
      if (answer.ok) { this.figure = await answer.json(); this.draw(); }
      else this.plot.dataset.state = "The figure could not be loaded.";
    } catch {
      if (!this.figure) this.plot.dataset.state = "The figure could not be loaded.";
    } finally {
      this.busy = false;
      if (this.again) { this.again = false; this.refresh(); }
    }
  }

  draw() {
    if (!this.figure) return;
    if (!this.figure.data.some((trace) => trace.x && count(trace.x))) {
      this.plot.dataset.state = this.plot.dataset.empty ?? "Nothing was timed.";
      return;
    }
    delete this.plot.dataset.state;
    const { data, layout } = resolve(this.figure);
    layout.font = { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("var(--text)") };
    layout.hoverlabel = {
      bgcolor: colour("var(--raised)"), bordercolor: colour("var(--edge)"), font: { color: colour("var(--text)") },
    };
    layout.autosize = true;
    if (this.plot.clientWidth < NARROW_PX) cutNames(data, layout);
    Plotly.react(this.plot, data, layout, CONFIG);
    if (!this.listening && this.box.dataset.chartClick) this.#followClicks();
  }

  #followClicks() {
    this.listening = true;
    this.plot.on("plotly_click", ({ points }) => {
      const number = points[0]?.customdata?.[0];
      if (Number.isInteger(number)) location.href = `${this.box.dataset.chartClick}${number}/`;
    });
  }

  #chooseAxis(button) {
    if (!button) return;
    this.axis = button.dataset.axis;
    for (const other of this.box.querySelectorAll("[data-axis]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    this.refresh();
  }
}

// plotly.py packs long numeric columns as base64: {dtype, bdata}
function count(column) {
  return Array.isArray(column) ? column.length : column.bdata ? column.bdata.length : 0;
}

document.addEventListener("DOMContentLoaded", () => {
  document.body.append(probe);
  const charts = [...document.querySelectorAll("[data-chart]")].map((box) => new Chart(box));
  const live = charts.filter((chart) => "chartLive" in chart.box.dataset);
  charts.forEach((chart) => chart.refresh());
  document.body.addEventListener("run-changed", () => live.forEach((chart) => chart.refresh()));
  const redraw = () => charts.forEach((chart) => chart.draw());
  document.addEventListener("theme-changed", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
});
