// The "+" beside the line under the pointer: a click comments on it, a drag to another line on all between. diff.js
// marks the lines and opens the form; keys and line numbers do the same without a pointer.
"use strict";

(() => {
  const table = document.querySelector("#diff table.diff");
  if (!table || !document.querySelector("#diff form.say")) return;
  const plus = document.createElement("button");
  plus.type = "button";
  plus.className = "add-comment";
  plus.textContent = "+";
  plus.tabIndex = -1;
  let start = null;

  const line = (spot) => Number(spot.id.slice(1));
  const tell = (detail) => table.dispatchEvent(new CustomEvent("choose-lines", { detail }));

  // The number's cell of the side that the pointer is on, else of the row's only side.
  function numbered(target) {
    const spot = target.closest("td"), before = spot?.previousElementSibling;
    if (!spot || spot.closest(".said, .gap")) return null;
    if (spot.matches(".num[id]")) return spot;
    return before?.matches(".num[id]") ? before : [...spot.parentElement.querySelectorAll(".num[id]")].pop() ?? null;
  }

  table.addEventListener("pointerover", (event) => {
    const spot = numbered(event.target);
    if (!spot || event.pointerType === "touch") return;
    if (!start) {
      plus.setAttribute("aria-label", `Comment on line ${line(spot)}`);
      spot.append(plus);
    } else if (spot.id[0] === start.id[0]) {
      tell({ side: start.id[0], from: line(start), to: line(spot) });
    }
  });
  plus.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    start = plus.parentElement;
    tell({ side: start.id[0], from: line(start), to: line(start) });
  });
  document.addEventListener("pointerup", () => {
    if (!start) return;
    start = null;
    tell({});
  });
})();
