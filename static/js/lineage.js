// The family tree: click or Enter opens a kernel, arrow keys go from kernel to kernel. lineage-view.js draws it.
"use strict";

class Lineage {
  constructor(box, tree) {
    Object.assign(this, { box, tree, canvas: box.querySelector("canvas"), tip: box.querySelector(".lineage-tip") });
    this.view = new LineageView(this.canvas, tree);
    this.index = this.view.index;
    this.children = tree.number.map(() => []);
    tree.parents.forEach(([base], n) => { if (this.index.has(base)) this.children[this.index.get(base)].push(n); });
    this.listen();
  }

  get chosen() { return this.view.chosen; }

  listen() {
    this.canvas.addEventListener("pointermove", (event) => { if (!event.buttons) this.point(event); });
    this.canvas.addEventListener("click", (event) => this.open(this.view.nearest(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    const tools = document.querySelector("[data-lineage-tools]");
    tools.hidden = !this.view.zoom;
    tools.addEventListener("click", ({ target }) => {
      if (target.dataset.zoom) this.view.zoomBy(Number(target.dataset.zoom));
      else if ("fit" in target.dataset) this.view.fit();
      else if ("best" in target.dataset && this.index.has(this.tree.best)) this.show(this.index.get(this.tree.best));
    });
  }

  point(event) {
    const n = this.view.nearest(event.offsetX, event.offsetY);
    this.canvas.style.cursor = n < 0 ? "grab" : "pointer";
    this.choose(n);
  }

  key(event) {
    if (event.key === "Enter") this.open(this.chosen);
    else if (event.key === "0") this.view.fit();
    else if (this.view.zoom && "+=".includes(event.key)) this.view.zoomBy(1.3);
    else if (this.view.zoom && event.key === "-") this.view.zoomBy(1 / 1.3);
    else this.walk(event);
  }

  walk(event) {
    const step = {
      ArrowLeft: () => this.index.get(this.tree.parents[this.chosen]?.[0]),
      ArrowRight: () => this.children[this.chosen]?.[0],
      ArrowUp: () => this.sibling(-1),
      ArrowDown: () => this.sibling(1),
      Home: () => 0,
    }[event.key];
    if (!step) return;
    event.preventDefault();
    const n = this.chosen < 0 ? 0 : step();
    if (n !== undefined) this.show(n);
  }

  show(n) {
    this.view.centre(n);
    this.choose(n);
  }

  choose(n) {
    if (n === this.chosen) return;
    this.view.choose(n);
    this.tip.hidden = n < 0;
    if (n >= 0) this.tip.textContent = this.describe(n);
  }

  describe(n) {
    const t = this.tree;
    const from = t.parents[n].length ? `from #${t.parents[n].join(" and #")}` : "a beginning";
    const speed = t.speedup[n] ? `, ${t.speedup[n].toFixed(2)}× over the baseline` : "";
    const gain = t.gain[n] ? `, ${t.gain[n].toFixed(2)}× over its parent` : "";
    const wins = t.wins[n].length ? `; fastest in ${t.wins[n].join(", ")}` : "";
    return `#${t.number[n]}, ${from}: ${t.title[n] || "no hypothesis"}. ${t.outcome[n]}${speed}${gain}${wins}`;
  }

  open(n) { if (n >= 0) location.href = `${this.box.dataset.kernel}${this.tree.number[n]}/`; }

  // The neighbour in the same generation, across families.
  sibling(way) {
    const { x, y } = this.tree, here = y[this.chosen];
    let found, least = Infinity;
    for (let n = 0; n < x.length; n++) {
      const far = (y[n] - here) * way;
      if (x[n] === x[this.chosen] && far > 0 && far < least) { least = far; found = n; }
    }
    return found;
  }
}

document.addEventListener("DOMContentLoaded", async () => {
  const box = document.querySelector("[data-lineage]");
  if (!box) return;
  try {
    const answer = await fetch(box.dataset.lineage, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(answer.status);
    box.lineage = new Lineage(box, await answer.json());
  } catch {
    box.querySelector(".lineage-tip").hidden = false;
    box.querySelector(".lineage-tip").textContent = "The tree could not be loaded; the tables show the same.";
  }
});
