// Rounds of calls stay open or folded as the reader left them: when the page loads its list again, and for the session.
"use strict";

(() => {
  const boxes = () => [...document.querySelectorAll("[data-fold]")];
  const name = (box) => `fold.${box.dataset.fold}`;
  let before = new Map();

  function restore() {
    for (const box of boxes()) {
      const kept = sessionStorage.getItem(name(box)) ?? before.get(name(box));
      if (kept) box.checked = kept === "open";
    }
  }

  const state = (box) => (box.checked ? "open" : "folded");
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-fold]")) sessionStorage.setItem(name(event.target), state(event.target));
  });
  // A round that is open because it was the latest stays open under the eyes of whoever reads it.
  document.addEventListener("htmx:beforeSwap", () => { before = new Map(boxes().map((box) => [name(box), state(box)])); });
  document.addEventListener("htmx:afterSwap", restore);
  document.addEventListener("DOMContentLoaded", restore);
})();
