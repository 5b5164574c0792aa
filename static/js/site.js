// Every page: the choice of appearance without a reload, menus that close, and forms that are sent once.
"use strict";

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.matches("[data-theme-form]") && event.submitter) {
    event.preventDefault();
    chooseTheme(form, event.submitter);
  } else if (form.method === "post") {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "1";
  }
});

// A page that comes back from the browser's cache may be sent again.
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

// On a narrow screen a line of tabs is scrolled to the current one.
for (const current of document.querySelectorAll(":is(.page-tabs, .tabs) > [aria-current]")) {
  const line = current.parentElement;
  line.scrollLeft = current.offsetLeft - line.offsetLeft - (line.clientWidth - current.offsetWidth) / 2;
}

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

async function chooseTheme(form, button) {
  const body = new FormData(form);
  body.set("theme", button.value);
  await fetch(form.action, { method: "POST", body, redirect: "manual" });
  document.documentElement.dataset.theme = button.value;
  for (const other of form.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
  document.dispatchEvent(new CustomEvent("theme-changed"));
}

// A function that acts at once, then at most every so often, and never forgets the last call.
function atMostEvery(pause_ms, action) {
  let timer = null, last = 0;
  return () => {
    if (timer) return;
    timer = setTimeout(() => { timer = null; last = Date.now(); action(); }, Math.max(0, last + pause_ms - Date.now()));
  };
}
