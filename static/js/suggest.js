// The editor of a kernel: opens at the line it was called for; Tab indents, and Escape then Tab leaves.
"use strict";

(() => {
  const form = document.querySelector("form.suggest");
  if (!form) return;
  const text = form.elements.text;
  const line = Number(form.dataset.line);
  let leaving = false;

  if (line > 1) {
    const lines = text.value.split("\n");
    const start = lines.slice(0, line - 1).join("\n").length + 1;
    text.focus();
    text.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    text.scrollTop = (line - 4) * parseFloat(getComputedStyle(text).lineHeight);
  }
  text.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { leaving = true; return; }
    if (event.key === "Tab" && !event.shiftKey && !leaving) {
      event.preventDefault();
      text.setRangeText("    ", text.selectionStart, text.selectionEnd, "end");
    }
    leaving = false;
  });
})();
