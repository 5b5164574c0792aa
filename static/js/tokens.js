// What the agents are writing, as it comes: one pane a call, the newest first. Text is thrown away with the page; the
// answers are stored with their calls.
"use strict";

(() => {
  const KEPT_CHARACTERS = 6000, KEPT_PANES = 4;
  const box = document.getElementById("tokens");
  if (!box) return;
  const panes = new Map();

  function open(call, role) {
    box.querySelector(".idle")?.remove();
    // The box is closed while nobody writes, unless the reader has decided otherwise.
    if (!localStorage.getItem("open.agents")) document.getElementById("agents").open = true;
    const pane = document.createElement("article");
    pane.className = "pane";
    pane.innerHTML = '<header><b></b><span class="badge tone-live">writing</span></header><pre tabindex="0"></pre>';
    pane.querySelector("b").textContent = role;
    pane.text = pane.querySelector("pre");
    pane.next = 0;
    box.prepend(pane);
    panes.set(call, pane);
    for (const [old, shown] of panes) {
      if (panes.size <= KEPT_PANES) break;
      shown.remove();
      panes.delete(old);
    }
    return pane;
  }

  // `start` is where the piece begins in the whole answer: a piece that came twice is left out, a lost one is marked.
  function take({ call, role, start, text }) {
    const pane = panes.get(call) ?? open(call, role);
    if (start < pane.next) return;
    const node = pane.text;
    const follows = node.scrollHeight - node.scrollTop - node.clientHeight < 24;
    const gap = start > pane.next ? "…" : "";
    node.textContent = (node.textContent + gap + text).slice(-KEPT_CHARACTERS);
    pane.next = start + text.length;
    if (follows) node.scrollTop = node.scrollHeight;
  }

  function end(call, state) {
    const pane = panes.get(call);
    if (!pane) return;
    pane.classList.add("done");
    const badge = pane.querySelector(".badge");
    badge.className = "badge tone-muted";
    badge.textContent = state;
  }

  document.addEventListener("run-passing", ({ detail }) => { if (detail.what === "token") take(detail); });
  // A tool call stands in its pane as a line of its own, and so does its result.
  function tell(call, role, line) {
    const node = (panes.get(call) ?? open(call, role)).text;
    node.textContent = `${node.textContent}\n${line}\n`.slice(-KEPT_CHARACTERS);
    node.scrollTop = node.scrollHeight;
  }

  document.addEventListener("run-event", ({ detail: { type, payload } }) => {
    if (type === "call.ended") end(payload.call, payload.state);
    else if (type === "tool.called") tell(payload.call, payload.role, `→ ${payload.tool}`);
    else if (type === "tool.ended") tell(payload.call, payload.role, `← ${payload.tool}: ${payload.headline || payload.state}`);
  });
})();
