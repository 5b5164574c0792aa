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

// One line per point of every trace, with the values that plotly has unpacked. A heat map's z is a row for each y.
function table(traces) {
  const lines = [["trace", "label", "x", "y", "z"]];
  for (const { name, text, x = [], y = [], z } of traces) {
    if (z?.[0]?.length !== undefined) {
      y.forEach((up, row) => x.forEach((across, column) => lines.push([name ?? "", "", across, up, z[row][column] ?? ""])));
      continue;
    }
    for (let n = 0; n < Math.max(x.length, y.length); n++) {
      const label = Array.isArray(text) ? text[n] : "";
      if (x[n] === null && y[n] === null) continue;
      lines.push([name ?? "", label ?? "", x[n] ?? "", y[n] ?? "", Array.isArray(z) ? z[n] ?? "" : ""]);
    }
  }
  return lines.map((line) => line.map(cell).join(",")).join("\n") + "\n";
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
