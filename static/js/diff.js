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
    aim(found[1], Math.min(first, last), Math.max(first, last));
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

  function aim(side, first, last) {
    if (!form) return;
    form.elements.side.value = side === "o" ? "old" : "new";
    form.elements.first.value = first;
    form.elements.last.value = last;
  }

  // Marking never moves the page: the address changes without a jump below the sticky bar.
  function choose(side, from, to) {
    const first = Math.min(from, to), last = Math.max(from, to);
    history.replaceState(null, "", `#${side}${first}${last > first ? `-${side}${last}` : ""}`);
    mark();
  }

  // The form moves under the marked lines.
  const home = form?.parentElement;
  const title = form?.querySelector(`label[for="${form.elements.body.id}"]`);
  function comment() {
    if (!form) return;
    const side = form.elements.side.value === "old" ? "o" : "n";
    const row = cell(side, form.elements.last.value)?.closest("tr");
    if (row) {
      let place = document.getElementById("say-here");
      if (!place) {
        place = document.createElement("tr");
        place.id = "say-here";
        place.append(document.createElement("td"));
        place.firstChild.colSpan = table.dataset.view === "split" ? 4 : 3;
      }
      place.className = `said ${form.elements.side.value}`;
      row.after(place);
      place.firstChild.append(form);
      const first = form.elements.first.value, last = form.elements.last.value;
      title.textContent = first === last ? `Comment on line ${last}` : `Comment on lines ${first}–${last}`;
    }
    const box = form.getBoundingClientRect();
    if (box.top < 150 || box.bottom > innerHeight) form.scrollIntoView({ block: "center" });
    form.elements.body.focus({ preventScroll: true });
  }

  // What was typed stays in the form; only its place and the mark are given up.
  function cancel() {
    if (!form) return;
    const row = document.getElementById("say-here")?.previousElementSibling;
    home.append(form);
    title.textContent = "Comment";
    document.getElementById("say-here")?.remove();
    history.replaceState(null, "", location.pathname + location.search);
    mark();
    row?.querySelector(".num[id] a")?.focus({ preventScroll: true });
  }
  const stop = form?.querySelector("[data-cancel]");
  if (stop) {
    stop.hidden = false;
    stop.addEventListener("click", cancel);
  }
  form?.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.defaultPrevented) { event.preventDefault(); cancel(); }
  });

  table.addEventListener("click", (event) => {
    const link = event.target.closest(".num > a");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const from = range(location.hash), side = link.hash[1], to = Number(link.hash.slice(2));
    choose(side, event.shiftKey && from && from[1] === side ? Number(from[2]) : to, to);
  });

  // From diff-plus.js: lines were chosen with the pointer.
  table.addEventListener("choose-lines", ({ detail }) => {
    if (detail.to) choose(detail.side, detail.from, detail.to);
    else comment();
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
