// The family tree on a canvas: drag to move, wheel or pinch to zoom, arrow keys from kernel to kernel, Enter to open.
// Only what lies in the window is drawn, at most once a frame. Titles appear where there is room for them.
"use strict";

const COLUMN = 270, ROW = 26, RADIUS = 6, LABELS_FROM = 0.62, NEAR = 12, MARGIN = 40, TIP = 40;

class Lineage {
  constructor(box, tree) {
    Object.assign(this, { box, tree, scale: 1, left: 0, top: 0, chosen: -1 });
    this.canvas = box.querySelector("canvas");
    this.tip = box.querySelector(".lineage-tip");
    this.index = new Map(tree.number.map((number, n) => [number, n]));
    this.children = tree.number.map(() => []);
    tree.parents.forEach(([base], n) => { if (this.index.has(base)) this.children[this.index.get(base)].push(n); });
    this.listen();
    new ResizeObserver(() => this.resize()).observe(box);
    document.addEventListener("theme-changed", () => this.repaint());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
  }

  resize() {
    const first = !this.width;
    this.width = this.box.clientWidth;
    this.height = this.box.clientHeight;
    this.ratio = devicePixelRatio || 1;
    this.canvas.width = this.width * this.ratio;
    this.canvas.height = this.height * this.ratio;
    if (first) this.fit();
    this.paintSoon();
  }

  repaint() { this.colours = null; this.paintSoon(); }

  // Rows set the scale; generations spread over the width as long as that leaves them farther apart.
  get scaleX() { return Math.max(this.scale, this.leastX); }

  fit() {
    const { x, y } = this.tree;
    const room = this.height - 2 * MARGIN - TIP;
    const wide = x.reduce((a, b) => Math.max(a, b), 0) * COLUMN, high = y.reduce((a, b) => Math.max(a, b), 0) * ROW;
    this.leastX = Math.min(0.6, (this.width - 3 * MARGIN) / (wide || 1));
    this.scale = Math.min(1.1, (this.width - 3 * MARGIN) / (wide || 1), room / (high || 1));
    this.left = Math.max(MARGIN, (this.width - wide * this.scaleX) / 2 - MARGIN / 2);
    this.top = Math.max(MARGIN, (this.height - TIP - high * this.scale) / 2);
    this.paintSoon();
  }

  centre(n) {
    this.scale = Math.max(this.scale, 0.9);
    this.left = this.width / 2 - this.tree.x[n] * COLUMN * this.scaleX;
    this.top = this.height / 2 - this.tree.y[n] * ROW * this.scale;
    this.choose(n);
  }

  zoom(factor, atX = this.width / 2, atY = this.height / 2) {
    const before = this.scale, beforeX = this.scaleX;
    this.scale = Math.min(4, Math.max(0.01, this.scale * factor));
    this.left = atX - (atX - this.left) * this.scaleX / beforeX;
    this.top = atY - (atY - this.top) * this.scale / before;
    this.paintSoon();
  }

  paintSoon() { this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.paint(); }); }

  placeX(n) { return this.left + this.tree.x[n] * COLUMN * this.scaleX; }
  placeY(n) { return this.top + this.tree.y[n] * ROW * this.scale; }

  paint() {
    const pen = this.canvas.getContext("2d"), tree = this.tree;
    this.colours ??= this.readColours();
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    this.edges(pen, false);
    this.edges(pen, true);
    const radius = Math.max(1.5, RADIUS * Math.min(1, this.scale * 1.4));
    const labels = this.scale >= LABELS_FROM;
    pen.font = `12px ${this.colours.font}`;
    for (let n = 0; n < tree.number.length; n++) {
      const x = this.placeX(n), y = this.placeY(n);
      if (x < -COLUMN * this.scaleX || x > this.width + 20 || y < -20 || y > this.height + 20) continue;
      this.node(pen, n, x, y, radius);
      if (labels) this.label(pen, n, x, y, radius);
    }
    if (this.chosen >= 0) this.ring(pen, this.placeX(this.chosen), this.placeY(this.chosen), radius + 5, this.colours.focus, 2.5);
  }

  edges(pen, onPath) {
    const { tree } = this;
    pen.strokeStyle = onPath ? this.colours.accent : this.colours.edge;
    pen.lineWidth = onPath ? 3 : 1;
    pen.beginPath();
    for (let n = 0; n < tree.number.length; n++) {
      const from = this.index.get(tree.parents[n][0]);
      if (from === undefined || Boolean(tree.path[n]) !== onPath) continue;
      const x0 = this.placeX(from), y0 = this.placeY(from), x1 = this.placeX(n), y1 = this.placeY(n);
      if (x1 < 0 || x0 > this.width || Math.max(y0, y1) < 0 || Math.min(y0, y1) > this.height) continue;
      const middle = (x0 + x1) / 2;
      pen.moveTo(x0, y0);
      pen.bezierCurveTo(middle, y0, middle, y1, x1, y1);
    }
    pen.stroke();
  }

  // Shape says the outcome too: a disc is accepted, a square failed, a triangle needs a look.
  node(pen, n, x, y, radius) {
    const { tone, wins, number, best } = { ...this.tree, tone: this.tree.tone[n], wins: this.tree.wins[n], number: this.tree.number[n] };
    pen.fillStyle = this.colours[tone];
    pen.beginPath();
    if (tone === "bad") pen.rect(x - radius * 0.8, y - radius * 0.8, radius * 1.6, radius * 1.6);
    else if (tone === "warn") { pen.moveTo(x, y - radius); pen.lineTo(x + radius, y + radius * 0.8); pen.lineTo(x - radius, y + radius * 0.8); }
    else pen.arc(x, y, number === best ? radius * 1.5 : radius, 0, 7);
    pen.fill();
    if (wins.length) this.ring(pen, x, y, radius + 3, this.colours.good, 1.5);
  }

  ring(pen, x, y, radius, colour, width) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 7);
    pen.stroke();
  }

  // Beside the node its number; on the edge that leads to it, the hypothesis.
  label(pen, n, x, y, radius) {
    const { number, title, speedup, wins, best } = this.tree;
    radius *= number[n] === best ? 1.5 : 1; // as far as the node and its ring reach
    if (wins[n].length) radius += 3;
    this.write(pen, `#${number[n]}${speedup[n] ? ` ${speedup[n].toFixed(2)}×` : ""}`, x + radius + 4, y + 4, "left", this.colours.text);
    const room = Math.floor((COLUMN * this.scaleX - 110) / 6.5);
    if (!this.tree.parents[n].length || room < 8) return;
    const shown = title[n].length > room ? `${title[n].slice(0, room - 1)}…` : title[n];
    this.write(pen, shown, x - radius - 6, y + 4, "right", this.colours.muted);
  }

  // Text over lines: they give way around it.
  write(pen, text, x, y, align, colour) {
    const wide = pen.measureText(text).width;
    pen.textAlign = align;
    pen.fillStyle = this.colours.ground;
    pen.fillRect(align === "left" ? x - 2 : x - wide - 2, y - 11, wide + 4, 14);
    pen.fillStyle = colour;
    pen.fillText(text, x, y);
  }

  readColours() {
    const style = getComputedStyle(this.box);
    const probe = this.box.appendChild(document.createElement("i"));
    const read = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
    const names = ["good", "bad", "warn", "muted", "text", "accent", "edge", "focus", "live", "ground"];
    const found = Object.fromEntries(names.map((name) => [name, read(name)]));
    probe.remove();
    return { ...found, font: style.fontFamily };
  }

  nearest(x, y) {
    let found = -1, least = NEAR ** 2;
    for (let n = 0; n < this.tree.number.length; n++) {
      const far = (this.placeX(n) - x) ** 2 + (this.placeY(n) - y) ** 2;
      if (far < least) { least = far; found = n; }
    }
    return found;
  }

  choose(n) {
    if (n === this.chosen) return;
    this.chosen = n;
    this.tip.hidden = n < 0;
    if (n >= 0) this.tip.textContent = this.describe(n);
    this.paintSoon();
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

  listen() {
    const { canvas } = this, held = new Map();
    let moved = 0, spread = 0;
    const at = (event) => [event.offsetX, event.offsetY];
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), ...at(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => { held.set(event.pointerId, at(event)); moved = 0; spread = 0; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) { const n = this.nearest(...at(event)); canvas.style.cursor = n < 0 ? "grab" : "pointer"; this.choose(n); return; }
      const [x, y] = at(event);
      held.set(event.pointerId, [x, y]);
      if (held.size === 2) {
        const [[ax, ay], [bx, by]] = held.values(), now = Math.hypot(ax - bx, ay - by);
        if (spread) this.zoom(now / spread, (ax + bx) / 2, (ay + by) / 2);
        spread = now;
        return;
      }
      moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
      this.left += x - before[0];
      this.top += y - before[1];
      this.paintSoon();
    });
    const release = (event) => {
      if (event.type === "pointerup" && held.size === 1 && moved < 5) this.open(this.nearest(...at(event)));
      held.delete(event.pointerId);
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("keydown", (event) => this.key(event));
    const tools = document.querySelector("[data-lineage-tools]");
    tools.hidden = false;
    tools.addEventListener("click", ({ target }) => {
      if (target.dataset.zoom) this.zoom(Number(target.dataset.zoom));
      else if ("fit" in target.dataset) this.fit();
      else if ("best" in target.dataset && this.index.has(this.tree.best)) this.centre(this.index.get(this.tree.best));
    });
  }

  key(event) {
    const step = { ArrowLeft: () => this.index.get(this.tree.parents[this.chosen]?.[0]), ArrowRight: () => this.children[this.chosen]?.[0],
      ArrowUp: () => this.sibling(-1), ArrowDown: () => this.sibling(1), Home: () => 0 }[event.key];
    if (event.key === "Enter") this.open(this.chosen);
    else if (event.key === "+" || event.key === "=") this.zoom(1.3);
    else if (event.key === "-") this.zoom(1 / 1.3);
    else if (event.key === "0") this.fit();
    else if (step) { event.preventDefault(); const n = this.chosen < 0 ? 0 : step(); if (n !== undefined) this.centre(n); }
  }

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
    box.querySelector(".lineage-tip").textContent = "The tree could not be loaded; the tables hold the same.";
  }
});
