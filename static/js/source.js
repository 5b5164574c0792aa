// Line permalinks: a click marks a line, shift-click a range (#L3-L9); an address with a range is marked on arrival.
"use strict";

(() => {
  const box = document.querySelector("[data-source]");
  if (!box) return;

  function mark() {
    const range = /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash);
    for (const line of box.querySelectorAll(".marked")) line.classList.remove("marked");
    if (!range) return;
    const first = Number(range[1]), last = Number(range[2] ?? range[1]);
    for (let number = Math.min(first, last); number <= Math.max(first, last); number++) {
      const line = document.getElementById(`L${number}`);
      if (!line) break;
      line.classList.add("marked");
    }
    if (range[2]) document.getElementById(`L${Math.min(first, last)}`)?.scrollIntoView({ block: "center" });
  }

  box.addEventListener("click", (event) => {
    const link = event.target.closest("li > a");
    const from = /^#L(\d+)/.exec(location.hash);
    if (!link || !event.shiftKey || !from) return;
    event.preventDefault();
    const to = Number(link.hash.slice(2));
    history.replaceState(null, "", `#L${Math.min(from[1], to)}-L${Math.max(from[1], to)}`);
    mark();
  });
  window.addEventListener("hashchange", mark);
  mark();
})();
