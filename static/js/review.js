// What others say while this page is read. States of threads change in place; new words are announced and shown when
// the reader asks for them, so that nothing moves under their eyes. (person.js announces new kernels the same way.)
"use strict";

(() => {
  const root = document.getElementById("diff");
  if (!root) return;
  const news = document.getElementById("news");
  let seq = Number(root.dataset.seq), failures = 0;
  const told = [];

  const LABELS = { open: ["Open", "tone-warn"], resolved: ["Resolved", "tone-good"], dropped: ["Dropped", "tone-muted"] };

  function say(words) {
    told.push(words);
    news.querySelector("span").textContent = told.slice(-3).join(" ");
    news.querySelector("a").href = location.href.replace(/#.*/, "");
    news.hidden = false;
  }

  function thread(payload) {
    const one = document.getElementById(`thread-${payload.thread}`);
    if (!one) return;
    const [label, tone] = LABELS[payload.state];
    const badge = one.querySelector("[data-state]");
    if (badge.textContent.trim() === label) return;
    badge.textContent = label;
    badge.className = `badge ${tone}`;
    one.classList.toggle("ended", payload.state !== "open");
    say(`${payload.by}: thread ${payload.state === "open" ? "reopened" : label.toLowerCase()}.`);
    renew(one.id);
  }

  // What can be done with a thread depends on its state. A reply that is being typed stays as it is.
  async function renew(id) {
    const answer = await fetch(location.href).catch(() => null);
    if (!answer?.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const moves = (where) => [...(where.getElementById(id)?.querySelectorAll("footer > form") ?? [])];
    const [old, fresh] = [moves(document), moves(page)];
    old.at(-1)?.after(...fresh);
    for (const form of old) form.remove();
    const count = document.querySelector("[data-open-threads]"), now = page.querySelector("[data-open-threads]");
    if (count && now) count.textContent = now.textContent;
  }

  const hear = {
    "review.published": (payload) => {
      const count = payload.comments === 1 ? "1 comment" : `${payload.comments} comments`;
      const verdict = payload.verdict === "comment" ? "" : payload.verdict === "approve" ? "approves, " : "requests changes, ";
      say(`${payload.by}: ${verdict}${count}${payload.number === null ? "" : ` on kernel #${payload.number}`}.`);
    },
    "review.thread": thread,
    "review.edited": (payload) => say(`${payload.by} edited a comment.`),
  };

  function connect() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${root.dataset.socket}?after=${seq}`);
    socket.addEventListener("open", () => { failures = 0; root.dataset.live = "1"; });
    socket.addEventListener("message", (event) => {
      const message = JSON.parse(event.data);
      for (const one of message.events ?? []) {
        if (one.seq <= seq) continue;
        seq = one.seq;
        hear[one.type]?.(one.payload);
      }
    });
    socket.addEventListener("close", (event) => {
      delete root.dataset.live;
      if (event.code >= 4400 && event.code < 4500) return;
      setTimeout(connect, Math.min(15000, 500 * 2 ** failures++) * (0.5 + Math.random() / 2));
    });
  }

  news.querySelector("a").addEventListener("click", (event) => { event.preventDefault(); location.reload(); });
  for (const button of root.querySelectorAll("[data-quote]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const box = button.closest(".thread").querySelector("details.reply");
      const text = box.querySelector("textarea");
      box.open = true;
      text.value += `${button.dataset.quote.split("\n").map((line) => `> ${line}`).join("\n")}\n\n`;
      text.focus();
    });
  }
  connect();
})();
