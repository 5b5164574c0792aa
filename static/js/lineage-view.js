// Draws the family tree on a canvas and moves it: drag, wheel and pinch through d3-zoom. Only what lies in the window
// is drawn, at most once a frame. Titles appear where there is room for them.
"use strict";

const COLUMN = 270, ROW = 26, RADIUS = 6, LABELS_FROM = 0.62, LABEL_GAP = 16, NEAR = 12, MARGIN = 40, TIP = 40, SCALES = [0.01, 4];

class LineageView {
  constructor(canvas, tree) {
    Object.assign(this, { canvas, tree, box: canvas.parentElement, scale: 1, left: 0, top: 0, chosen: -1 });
    this.index = new Map(tree.number.map((number, n) => [number, n]));
    this.listenToZoom();
    new ResizeObserver(() => this.resize()).observe(this.box);
    document.addEventListener("theme-changed", () => this.repaint());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
  }

  // Without d3-zoom the tree is shown whole, and keys still go through it.
  listenToZoom() {
    if (!window.d3?.zoom) return;
    this.transform = d3.zoomIdentity;
    this.zoom = d3.zoom().scaleExtent(SCALES).clickDistance(5).on("zoom", ({ transform }) => this.follow(transform));
    this.surface = d3.select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
  }

  // d3 has one scale for both axes. Across, ours is another (see scaleX), so the point that d3 left where it was is
  // worked out, and stays there on our axis too.
  follow({ x, y, k }) {
    const factor = k / this.transform.k, before = this.scaleX;
    this.scale = k;
    if (factor === 1) this.left += x - this.transform.x;
    else {
      const still = (x - factor * this.transform.x) / (1 - factor);
      this.left = still - (still - this.left) * this.scaleX / before;
    }
    this.top = y;
    this.transform = { x, y, k };
    this.paintSoon();
  }

  // Shows the tree there, and tells d3.
  place(scale, left, top) {
    if (this.zoom) this.surface.call(this.zoom.transform, d3.zoomIdentity.translate(left, top).scale(scale));
    Object.assign(this, { scale, left, top });
    this.paintSoon();
  }

  zoomBy(factor) { this.surface.call(this.zoom.scaleBy, factor); }

  // Rows set the scale; generations spread over the width as long as that leaves them farther apart.
  get scaleX() { return Math.max(this.scale, this.leastX); }

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

  fit() {
    const { x, y } = this.tree;
    const room = this.height - 2 * MARGIN - TIP, across = this.width - 3 * MARGIN;
    const wide = x.reduce((a, b) => Math.max(a, b), 0) * COLUMN, high = y.reduce((a, b) => Math.max(a, b), 0) * ROW;
    this.leastX = Math.min(0.6, across / (wide || 1));
    const scale = Math.max(SCALES[0], Math.min(1.1, across / (wide || 1), room / (high || 1)));
    const left = Math.max(MARGIN, (this.width - wide * Math.max(scale, this.leastX)) / 2 - MARGIN / 2);
    this.place(scale, left, Math.max(MARGIN, (this.height - TIP - high * scale) / 2));
  }

  centre(n) {
    const scale = Math.max(this.scale, 0.9), { x, y } = this.tree;
    this.place(scale, this.width / 2 - x[n] * COLUMN * scale, this.height / 2 - y[n] * ROW * scale);
  }

  placeX(n) { return this.left + this.tree.x[n] * COLUMN * this.scaleX; }
  placeY(n) { return this.top + this.tree.y[n] * ROW * this.scale; }

  nearest(x, y) {
    let found = -1, least = NEAR ** 2;
    for (let n = 0; n < this.tree.number.length; n++) {
      const far = (this.placeX(n) - x) ** 2 + (this.placeY(n) - y) ** 2;
      if (far < least) { least = far; found = n; }
    }
    return found;
  }

  choose(n) { this.chosen = n; this.paintSoon(); }

  repaint() { this.colours = null; this.paintSoon(); }

  paintSoon() { this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.paint(); }); }

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
    if (this.chosen < 0) return;
    this.ring(pen, this.placeX(this.chosen), this.placeY(this.chosen), radius + 5, this.colours.focus, 2.5);
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
    const { best } = this.tree, tone = this.tree.tone[n], wins = this.tree.wins[n], number = this.tree.number[n];
    pen.fillStyle = this.colours[tone];
    pen.beginPath();
    if (tone === "bad") pen.rect(x - radius * 0.8, y - radius * 0.8, radius * 1.6, radius * 1.6);
    else if (tone === "warn") {
      pen.moveTo(x, y - radius);
      pen.lineTo(x + radius, y + radius * 0.8);
      pen.lineTo(x - radius, y + radius * 0.8);
    } else pen.arc(x, y, number === best ? radius * 1.5 : radius, 0, 7);
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
    const { number, title, parents, wins, best } = this.tree;
    radius = radius * (number[n] === best ? 1.5 : 1) + (wins[n].length ? 3 : 0); // as far as node and ring reach
    this.write(pen, this.nameOf(n), x + radius + 4, y + 4, "left", this.colours.text);
    const parent = this.index.get(parents[n][0]);
    if (parent === undefined) return;
    const taken = this.placeX(parent) + 1.5 * RADIUS + 3 + 4 + pen.measureText(this.nameOf(parent)).width;
    const shown = this.fitted(pen, title[n], x - radius - 6 - taken - LABEL_GAP);
    if (shown) this.write(pen, shown, x - radius - 6, y + 4, "right", this.colours.muted);
  }

  nameOf(n) {
    const speedup = this.tree.speedup[n];
    return `#${this.tree.number[n]}${speedup ? ` ${speedup.toFixed(2)}×` : ""}`;
  }

  // As much of a text as fits, or nothing where that would be a few letters.
  fitted(pen, text, room) {
    if (pen.measureText(text).width <= room) return text;
    let length = Math.floor(room / pen.measureText("n").width);
    while (length >= 8 && pen.measureText(`${text.slice(0, length)}…`).width > room) length--;
    return length >= 8 ? `${text.slice(0, length)}…` : "";
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
}
