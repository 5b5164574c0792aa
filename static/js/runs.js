// The runs table: select all, and the bar with what can be done with the selected runs.
"use strict";

(() => {
  const bar = document.getElementById("ticked"), table = document.getElementById("runs-table");
  const boxes = () => [...table.querySelectorAll("input[name=run]")];
  const count = bar.querySelector("[data-count]");

  function show() {
    const all = boxes(), selected = all.filter((box) => box.checked).length;
    bar.hidden = !selected;
    count.textContent = `${selected} selected`;
    const every = table.querySelector("[data-select-all]");
    if (!every) return;
    every.hidden = false;
    every.checked = selected > 0 && selected === all.length;
    every.indeterminate = selected > 0 && selected < all.length;
  }

  table.addEventListener("change", ({ target }) => {
    if (target.matches("[data-select-all]")) for (const box of boxes()) box.checked = target.checked;
    show();
  });
  bar.addEventListener("click", ({ target }) => {
    if (!target.closest("[data-clear]")) return;
    for (const box of boxes()) box.checked = false;
    show();
  });
  // Filters change the address without a reload: a view is of what the table shows now.
  const address = document.querySelector("[data-address]");
  address.form.addEventListener("submit", () => { address.value = location.search.slice(1); });
  table.addEventListener("htmx:afterSettle", show);
  window.addEventListener("pageshow", show);
  show();
})();
