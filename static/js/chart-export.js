// Every chart has a menu that saves it: PNG and SVG as they are drawn, CSV with the numbers behind the drawing.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("[data-chart]")) {
    const head = box.querySelector("header"), plot = box.querySelector(".chart-plot");
    if (head && plot) head.append(menuFor(plot, nameOf(box)));
  }
});

function menuFor(plot, name) {
  const menu = document.createElement("details");
  menu.className = "menu";
  menu.innerHTML = '<summary class="button quiet small" aria-label="Export chart">Export</summary><div class="menu-panel"></div>';
  for (const form of ["PNG", "SVG", "CSV"]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = form;
    button.addEventListener("click", () => {
      menu.open = false;
      if (!plot.data) return;
      if (form === "CSV") save(new Blob([table(plot.data)], { type: "text/csv" }), `${name}.csv`);
      else Plotly.downloadImage(plot, { format: form.toLowerCase(), filename: name, scale: form === "PNG" ? 2 : 1 });
    });
    menu.lastElementChild.append(button);
  }
  return menu;
}

function nameOf(box) {
  const title = box.querySelector("h2")?.textContent ?? "chart";
  return title.trim().toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
}

// One line per point of every trace, with the values that plotly has unpacked: lists or typed arrays.
function table(traces) {
  const lines = [["trace", "label", "x", "y", "low", "high", "z"]];
  for (const trace of traces) lines.push(...(trace.z?.[0]?.length ? cellsOf(trace) : pointsOf(trace)));
  return lines.map((line) => line.map(cell).join(",")).join("\n") + "\n";
}

function pointsOf({ name, text, x = [], y = [], z, error_x: across, error_y: up, customdata: kept }) {
  const lines = [], [error, middle] = up?.array ? [up, y] : [across, x];
  for (let n = 0; n < Math.max(x.length, y.length); n++) {
    if (x[n] === null && y[n] === null) continue;
    const label = (Array.isArray(text) ? text[n] : null) ?? (kept?.[n]?.[0] != null ? `#${kept[n][0]}` : "");
    const ends = error?.array ? [middle[n] - (error.arrayminus ?? error.array)[n], middle[n] + error.array[n]] : ["", ""];
    lines.push([name ?? "", label, x[n] ?? "", y[n] ?? "", ...ends, z?.[n] ?? ""]);
  }
  return lines;
}

// A heat map has one value for each pair of its x and y.
function cellsOf({ name, x, y, z }) {
  return Array.from(y, (up, row) => Array.from(x, (across, n) => [name ?? "", "", across, up, "", "", z[row][n] ?? ""])).flat();
}

// A leading sign would make a spreadsheet run the cell as a formula; numbers keep theirs.
function cell(value) {
  const text = typeof value === "number" ? String(value) : String(value).replace(/^[=+\-@\t\r]/, "'$&");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
