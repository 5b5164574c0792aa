// The live run page. The table of events is the truth and the socket only a signal: on every message the page asks
// for everything after the last event it holds, one question at a time, so nothing is missed and nothing doubled.
// Where sockets are blocked, it asks on a timer.
"use strict";

// After an answer the page rests a few times as long as it took: many pages at a busy run slow down, not the server.
const REST_LEAST_MS = 150, REST_MOST_MS = 5000, REST_TIMES = 4;
const RECONNECT_FIRST_MS = 500, RECONNECT_MOST_MS = 15000;
const POLL_MS = 4000, IDLE_POLL_MS = 30000, FEED_KEPT = 400, CHANGED_EVERY_MS = 1500;

class LiveRun {
  constructor(root) {
    this.root = root;
    this.feed = document.getElementById("feed");
    this.light = document.querySelector("[data-connection]");
    this.last = Number(this.feed.dataset.lastSeq);
    this.changed = atMostEvery(CHANGED_EVERY_MS, () => htmx.trigger(document.body, "run-changed"));
    this.logged = atMostEvery(CHANGED_EVERY_MS, () => htmx.trigger(document.body, "run-log"));
    this.failures = 0;
    this.connected = false;
    this.asking = this.wanted = false;
  }

  start() {
    this.feed.parentElement.scrollTop = this.feed.parentElement.scrollHeight;
    this.connect();
    this.tick();
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.ask(); });
  }

  connect() {
    this.show("Connecting…", "muted");
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${this.root.dataset.socket}?after=${this.last}`);
    socket.addEventListener("message", (event) => {
      if (!this.connected) this.welcome();
      this.hear(event.data);
    });
    socket.addEventListener("close", () => this.retry());
  }

  // The first message comes once the server tells this page of everything; an open socket alone hears of nothing yet.
  welcome() {
    this.failures = 0;
    this.connected = true;
    this.show("Live", "live");
    this.ask();
  }

  retry() {
    this.connected = false;
    this.show(this.failures > 1 ? "Polling" : "Reconnecting…", "warn");
    const longest = Math.min(RECONNECT_MOST_MS, RECONNECT_FIRST_MS * 2 ** this.failures++);
    setTimeout(() => this.connect(), longest * (0.5 + Math.random() / 2));
  }

  // Polls while there is no socket; with one, asks now and then in case a ring was lost.
  tick() {
    setTimeout(() => { this.ask(); this.tick(); }, this.connected ? IDLE_POLL_MS : POLL_MS);
  }

  hear(text) {
    let message;
    try { message = JSON.parse(text); } catch { return; }
    if (message.kind === "passing") this.pass(message);
    for (const event of message.events ?? []) tell("run-event", event);
    if ((message.seq ?? message.events?.at(-1)?.seq) > this.last) this.ask();
  }

  // News of the moment: a kernel entered another stage, a worker's log grew, or an agent is writing.
  pass(message) {
    if (message.what === "stage") this.askSoon();
    else if (message.what === "log") this.logged();
    tell("run-passing", message);
  }

  askSoon() {
    this.soon ??= setTimeout(() => { this.soon = undefined; this.ask(); }, 400);
  }

  async ask() {
    if (this.asking) { this.wanted = true; return; }
    this.asking = true;
    try {
      do {
        this.wanted = false;
        const began = performance.now();
        const isBehind = await this.take();
        if (!isBehind) await rest((performance.now() - began) * REST_TIMES);
      } while (this.wanted);
    } catch {
      if (!this.connected) this.show("Offline", "bad");
    } finally {
      this.asking = false;
    }
  }

  // True when there is more to take at once.
  async take() {
    const address = `${this.root.dataset.liveUrl}?after=${this.last}`;
    const answer = await fetch(address, { headers: { "HX-Request": "true" } });
    if (answer.redirected || answer.status === 404) { location.reload(); return false; }
    if (!answer.ok) throw new Error(answer.status);
    const part = new DOMParser().parseFromString(await answer.text(), "text/html");
    const feed = part.getElementById("feed");
    const fresh = [...feed.querySelectorAll("li[data-seq]")].filter((item) => Number(item.dataset.seq) > this.last);
    for (const box of part.querySelectorAll("[data-live-part]")) this.swap(box);
    if (!fresh.length) return false;
    this.feed.querySelector("[data-empty]")?.remove();
    this.append(fresh);
    this.last = Number(feed.dataset.lastSeq);
    this.changed();
    const isBehind = Number(feed.dataset.runSeq) > this.last;
    this.wanted ||= isBehind;
    return isBehind;
  }

  // The newest line stays in sight, unless the reader has scrolled up.
  append(lines) {
    const box = this.feed.parentElement;
    const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    this.feed.append(...lines);
    while (this.feed.children.length > FEED_KEPT) this.feed.firstElementChild.remove();
    if (follows) box.scrollTop = box.scrollHeight;
  }

  swap(fresh) {
    const old = document.getElementById(fresh.id);
    const key = fresh.dataset.key;
    if (!old || (key !== undefined && key === old.dataset.key)) return;
    if (key !== undefined) old.dataset.key = key;
    morph(old, fresh);
  }

  show(text, tone) {
    if (this.light.textContent === text) return;
    const badge = document.createElement("span");
    badge.className = `badge tone-${tone}`;
    badge.textContent = text;
    this.light.replaceChildren(badge);
  }
}

// Only what differs is replaced, so that a button is not taken from under a pointer or a focus. Without idiomorph that
// is the whole part.
function morph(old, fresh) {
  if (window.Idiomorph) Idiomorph.morph(old, fresh.innerHTML, { morphStyle: "innerHTML" });
  else if (fresh.innerHTML !== old.innerHTML) old.replaceChildren(...fresh.childNodes);
}

function rest(ms) {
  return new Promise((done) => { setTimeout(done, Math.min(REST_MOST_MS, Math.max(REST_LEAST_MS, ms))); });
}

function tell(name, detail) {
  document.dispatchEvent(new CustomEvent(name, { detail }));
}

// The feed's filter hides lines and loads nothing; the address keeps it.
function filterFeed() {
  const feed = document.getElementById("feed");
  document.querySelector("[data-feed-tabs]")?.addEventListener("click", (event) => {
    const link = event.target.closest("[data-only]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    feed.dataset.only = link.dataset.only;
    for (const other of link.parentElement.children) other.toggleAttribute("aria-current", false);
    link.setAttribute("aria-current", "true");
    history.replaceState(null, "", link.href);
    feed.parentElement.scrollTop = feed.parentElement.scrollHeight;
  });
}

// Boxes that the reader has opened or closed stay so on the next page.
function keepOpen() {
  for (const box of document.querySelectorAll("details[data-keep-open]")) {
    const key = `open.${box.dataset.keepOpen}`;
    const kept = localStorage.getItem(key);
    if (kept) box.open = kept === "1";
    // A click and not `toggle`, which a script's opening fires too. The box changes after it.
    box.querySelector("summary").addEventListener("click", () => localStorage.setItem(key, box.open ? "0" : "1"));
  }
}

document.addEventListener("DOMContentLoaded", () => {
  filterFeed();
  keepOpen();
  const root = document.getElementById("run");
  if (root) new LiveRun(root).start();
});
