// A diff under the hands of its reader: marked lines and their addresses, keys, and the form for a comment where it
// belongs. Without this script line numbers are links, folded rows are links, and the form stands at the end.
"use strict";

(() => {
  const root = document.getElementById("diff");
  const table = root?.querySelector("table.diff");
  if (!table) return;
  const form = root.querySelector("form.say");
  const keyboard = document.getElementById("keyboard");
  const SEQUENCE_MS = 1000;
  let cursor = null;

  const range = (hash) => /^#([on])(\d+)(?:-[on](\d+))?$/.exec(hash);
  const cell = (side, line) => document.getElementById(side + line);

  function mark() {
    for (const old of table.querySelectorAll(".marked")) old.classList.remove("marked");
    const found = range(location.hash);
    if (!found) return;
    const first = Number(found[2]), last = Number(found[3] ?? found[2]);
    for (let line = Math.min(first, last); line <= Math.max(first, last); line++) cell(found[1], line)?.classList.add("marked");
    hint(found[1], Math.min(first, last), Math.max(first, last));
  }

  // Folded away, or on a page that shows another part: ask for a page that has the line.
  function reveal() {
    const found = range(location.hash);
    if (!found || cell(found[1], found[2])) return;
    const address = new URL(location.href);
    if (address.searchParams.get("line") === found[1] + found[2]) return;
    address.searchParams.set("line", found[1] + found[2]);
    location.replace(address);
  }

  function hint(side, first, last) {
    if (!form) return;
    form.elements.side.value = side === "o" ? "old" : "new";
    form.elements.first.value = first;
    form.elements.last.value = last;
    let button = document.querySelector(".mark-hint");
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.className = "button primary mark-hint";
      button.addEventListener("click", comment);
      document.body.append(button);
    }
    button.textContent = first === last ? `Comment on line ${first}` : `Comment on lines ${first}–${last}`;
  }

  // The form moves under the marked lines.
  function comment() {
    if (!form) return;
    const side = form.elements.side.value === "old" ? "o" : "n";
    const row = cell(side, form.elements.last.value)?.closest("tr");
    if (row) {
      let place = document.getElementById("say-here");
      if (!place) {
        place = document.createElement("tr");
        place.id = "say-here";
        place.className = "said";
        place.append(document.createElement("td"));
        place.firstChild.colSpan = table.dataset.view === "split" ? 4 : 3;
      }
      row.after(place);
      place.firstChild.append(form);
    }
    document.querySelector(".mark-hint")?.remove();
    form.scrollIntoView({ block: "center" });
    form.elements.body.focus({ preventScroll: true });
  }

  table.addEventListener("click", (event) => {
    const link = event.target.closest(".num > a");
    const from = range(location.hash);
    if (!link || !event.shiftKey || !from || link.hash[1] !== from[1]) return;
    event.preventDefault();
    const to = Number(link.hash.slice(2)), start = Number(from[2]);
    history.replaceState(null, "", `#${from[1]}${Math.min(start, to)}-${from[1]}${Math.max(start, to)}`);
    mark();
  });

  const rows = () => [...table.querySelectorAll("tr[data-row]")];
  const isChange = (row) => row && !row.classList.contains("equal");

  function go(row) {
    if (!row) return;
    cursor?.classList.remove("cursor");
    cursor = row;
    row.classList.add("cursor");
    row.scrollIntoView({ block: "center" });
    row.querySelector(".num[id] a")?.focus({ preventScroll: true });
  }

  function step(by) {
    const all = rows(), at = cursor ? all.indexOf(cursor) : all.findIndex((row) => row.getBoundingClientRect().top > 100) - by;
    go(all[Math.max(0, Math.min(all.length - 1, at + by))]);
  }

  // The first row of the next or previous run of changed rows.
  function change(by) {
    const all = rows();
    let at = cursor ? all.indexOf(cursor) : by > 0 ? -1 : all.length;
    for (at += by; at >= 0 && at < all.length; at += by) {
      if (isChange(all[at]) && !isChange(all[at - 1])) return go(all[at]);
    }
  }

  function thread() {
    const all = [...root.querySelectorAll(".thread")];
    const at = all.findIndex((one) => one.contains(document.activeElement));
    const next = all[(at + 1) % all.length];
    if (!next) return;
    next.tabIndex = -1;
    next.focus();
    next.scrollIntoView({ block: "center" });
  }

  function reply() {
    const near = document.activeElement.closest(".thread") ?? [...root.querySelectorAll(".thread")].find((one) => {
      const box = one.getBoundingClientRect();
      return box.top >= 0 && box.bottom <= innerHeight;
    });
    const box = near?.querySelector("details.reply");
    if (box) {
      box.open = true;
      box.querySelector("textarea").focus();
    } else {
      document.querySelector("#review textarea")?.focus();
    }
  }

  const actions = {
    j: () => step(1), k: () => step(-1), n: () => change(1), p: () => change(-1), t: thread, c: comment, r: reply,
    "[": () => root.querySelector("a[rel=prev]")?.click(), "]": () => root.querySelector("a[rel=next]")?.click(),
  };
  // The site's own keys come first: g and a letter go elsewhere, and keys without Ctrl can be switched off.
  let prefix = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    const inSequence = Date.now() - prefix < SEQUENCE_MS;
    prefix = event.key === "g" ? Date.now() : 0;
    const action = actions[event.key];
    if (!action || inSequence || !keyboard.querySelector("[data-single-keys]").checked) return;
    event.preventDefault();
    action();
  });
  keyboard.querySelector("table").prepend(document.getElementById("page-keys").content);
  const button = document.getElementById("keys-button");
  button.hidden = false;
  button.addEventListener("click", () => keyboard.showModal());

  window.addEventListener("hashchange", () => { mark(); reveal(); });
  mark();
  reveal();
})();
