// Help while a comment is written: names after an @, and a preview. Without this script both are simply missing.
"use strict";

(() => {
  const root = document.querySelector("[data-people]");
  if (!root) return;
  const people = root.dataset.people.split(" ").filter(Boolean);
  const list = document.createElement("ul");
  list.className = "mention-list";
  list.id = "mention-list";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "People");
  let area = null, chosen = 0;

  const typed = (box) => /(?:^|[\s(])@([\w.+-]*)$/.exec(box.value.slice(0, box.selectionStart));

  function close() {
    list.remove();
    area?.removeAttribute("aria-activedescendant");
    area = null;
  }

  function show(box) {
    const found = typed(box);
    const names = found ? people.filter((name) => name.toLowerCase().startsWith(found[1].toLowerCase())).slice(0, 8) : [];
    if (!names.length) { close(); return; }
    area = box;
    chosen = Math.min(chosen, names.length - 1);
    list.replaceChildren(...names.map((name, at) => {
      const one = document.createElement("li");
      one.id = `mention-${at}`;
      one.setAttribute("role", "option");
      one.setAttribute("aria-selected", String(at === chosen));
      one.textContent = `@${name}`;
      one.addEventListener("mousedown", (event) => { event.preventDefault(); take(name); });
      return one;
    }));
    box.after(list);
    box.setAttribute("aria-activedescendant", `mention-${chosen}`);
  }

  function take(name) {
    const box = area, found = typed(box), end = box.selectionStart, start = end - found[1].length;
    box.setRangeText(`${name} `, start, end, "end");
    close();
    box.focus();
  }

  root.addEventListener("input", (event) => {
    if (event.target.matches("textarea")) { chosen = 0; show(event.target); }
  });
  // Before the composer's own keys: Escape closes the list first.
  root.addEventListener("keydown", (event) => {
    if (!area || event.target !== area) return;
    const names = [...list.children];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) chosen = (chosen + step + names.length) % names.length;
    else if (event.key === "Enter" || event.key === "Tab") take(names[chosen].textContent.slice(1));
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (step) show(area);
  }, true);
  root.addEventListener("focusout", () => setTimeout(() => { if (area && document.activeElement !== area) close(); }));

  // The marked lines as a block to be changed: what stands in it can be built and measured in their place.
  for (const button of root.querySelectorAll("form.say [data-suggestion]")) {
    const { side, first, last, body } = button.closest("form").elements;
    if (!first) continue;
    button.hidden = false;
    button.addEventListener("click", () => {
      const lines = [];
      for (let line = Number(first.value); line && line <= Number(last.value); line++) {
        const cell = document.getElementById(`${side.value === "old" ? "o" : "n"}${line}`)?.nextElementSibling;
        if (!cell?.matches(".line")) return;
        lines.push([...cell.childNodes].filter((one) => !one.matches?.(".moved-link")).map((one) => one.textContent).join(""));
      }
      if (!lines.length) { body.focus(); return; }
      body.setRangeText(`${body.value && !body.value.endsWith("\n") ? "\n" : ""}\`\`\`suggestion\n${lines.join("\n")}\n\`\`\`\n`, body.value.length, body.value.length, "end");
      body.focus();
    });
  }

  for (const button of root.querySelectorAll("[data-preview]:not(#diff)")) {
    const form = button.closest("form"), place = form.querySelector("[data-preview-place]");
    button.hidden = false;
    button.addEventListener("click", async () => {
      if (!place.hidden) { place.hidden = true; button.textContent = "Preview"; return; }
      const fields = new FormData();
      fields.set("body", form.elements.body.value);
      const headers = { "X-CSRFToken": form.elements.csrfmiddlewaretoken.value };
      const answer = await fetch(root.dataset.preview, { method: "POST", body: fields, headers });
      place.innerHTML = answer.ok ? (await answer.text()) || "Nothing to preview." : "The preview could not be loaded.";
      place.hidden = false;
      button.textContent = "Hide preview";
    });
  }
})();
