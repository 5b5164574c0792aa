// Ctrl-K: go to a page, or find something. Single-key shortcuts (?, / and g with a letter) can be turned off.
"use strict";

(() => {
  const palette = document.getElementById("palette"), keyboard = document.getElementById("keyboard");
  if (!palette) return;
  const input = palette.querySelector("input"), list = palette.querySelector("ul");
  const single = keyboard.querySelector("[data-single-keys]");
  const TYPING_MS = 150, SEQUENCE_MS = 1200;
  let timer, asked = 0, prefix = 0;

  single.checked = localStorage.getItem("single-keys") !== "off";
  single.addEventListener("change", () => localStorage.setItem("single-keys", single.checked ? "on" : "off"));

  const pages = () => [...palette.querySelectorAll("[data-does]"), ...keyboard.querySelectorAll("[data-go]"), ...document.querySelectorAll("main .crumbs a, [data-palette]")]
    .map((link) => ({ title: link.textContent.trim(), where: place(link.dataset), url: link.href, words: `${link.textContent} ${link.dataset.does ?? ""}`.toLowerCase() }));
  const place = ({ go, does }) => (go ? `g ${go}` : does ? "action" : "on this page");

  function show(entries) {
    list.replaceChildren(...entries.map((entry, n) => {
      const item = document.createElement("li"), note = document.createElement("small");
      item.id = `palette-${n}`;
      item.role = "option";
      item.dataset.url = entry.url;
      item.append(entry.title, note);
      note.textContent = entry.where;
      return item;
    }));
    choose(0);
  }

  function choose(n) {
    const items = list.children;
    if (!items.length) { input.removeAttribute("aria-activedescendant"); return; }
    const at = (n + items.length) % items.length;
    for (const [index, item] of [...items].entries()) item.setAttribute("aria-selected", String(index === at));
    input.setAttribute("aria-activedescendant", items[at].id);
    items[at].scrollIntoView({ block: "nearest" });
  }

  const chosen = () => [...list.children].findIndex((item) => item.getAttribute("aria-selected") === "true");

  function look() {
    const text = input.value.trim(), wanted = text.toLowerCase();
    const known = pages().filter(({ words }) => wanted.split(/\s+/).every((word) => words.includes(word)));
    const run = /^#?(\d{1,9})$/.exec(text);
    if (run) known.unshift({ title: `Run ${run[1]}`, where: "by its number", url: `/runs/${run[1]}/` });
    const all = { title: `Search for “${text}”`, where: "everything", url: `${palette.dataset.page}?q=${encodeURIComponent(text)}` };
    show(text ? [...known, all] : known);
    clearTimeout(timer);
    if (text.length > 1) timer = setTimeout(() => find(text, known, all), TYPING_MS);
  }

  async function find(text, known, all) {
    const turn = ++asked;
    const answer = await fetch(`${palette.dataset.search}?limit=4&q=${encodeURIComponent(text)}`).catch(() => null);
    if (!answer?.ok || turn !== asked || input.value.trim() !== text) return;
    const hits = (await answer.json()).map(({ title, where, kind, url }) => ({ title, where: `${kind} · ${where}`, url }));
    const before = chosen();
    show([...known, ...hits, all]);
    choose(before);
  }

  function open(dialog) {
    if (dialog.open) return;
    dialog.showModal();
    if (dialog === palette) { input.select(); look(); }
  }

  input.addEventListener("input", look);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen() + 1);
    else if (event.key === "ArrowUp") choose(chosen() - 1);
    else if (event.key === "Escape") palette.close(); // or the first one would only empty the field
    else if (event.key === "Enter" && list.children[chosen()]) location.href = list.children[chosen()].dataset.url;
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", ({ target }) => { const item = target.closest("li"); if (item) location.href = item.dataset.url; });
  for (const dialog of [palette, keyboard]) dialog.addEventListener("click", ({ target }) => { if (target === dialog) dialog.close(); });

  // Without this script the button is a link to the search page.
  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || !event.target.closest("[data-open-palette]")) return;
    event.preventDefault();
    open(palette);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      open(palette);
    } else if (single.checked && !event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target)) plain(event);
  });

  function plain(event) {
    const inSequence = Date.now() - prefix < SEQUENCE_MS;
    prefix = 0;
    if (inSequence) keyboard.querySelector(`[data-go="${CSS.escape(event.key)}"]`)?.click();
    else if (event.key === "g") prefix = Date.now();
    else if (event.key === "?") open(keyboard);
    else if (event.key === "/") { event.preventDefault(); open(palette); }
  }

  function typing(element) { return element.closest("input, textarea, select, dialog[open], [contenteditable]"); }
})();
