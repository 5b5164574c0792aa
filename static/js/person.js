// Every page of somebody who is signed in: unread notifications in the header, who else looks at this page, and a
// banner when the run has a new kernel. The page itself is never moved under its reader.
"use strict";

const PERSON_FIRST_MS = 1000, PERSON_MOST_MS = 60000, PERSON_ANSWER_MS = 10000;

class Person {
  constructor(bell) {
    this.bell = bell;
    this.place = document.querySelector("[data-at-run]");
    this.failures = 0;
    this.leaving = false;
    addEventListener("beforeunload", () => { this.leaving = true; });
    this.connect();
  }

  connect() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const at = new URLSearchParams();
    if (this.place) at.set("run", this.place.dataset.atRun);
    if (this.place?.dataset.atKernel) at.set("kernel", this.place.dataset.atKernel);
    const socket = new WebSocket(`${scheme}://${location.host}/ws/me/?${at}`);
    socket.addEventListener("open", () => { this.failures = 0; });
    socket.addEventListener("message", (event) => this.hear(event.data));
    socket.addEventListener("close", (event) => this.closed(event.code));
  }

  // A closed door stays closed: what this page shows is not this person's any more. A form on its way is waited for:
  // a changed password closes this door too, and its answer brings the new session.
  closed(code) {
    if (code === 4401 || code === 4404) { setTimeout(() => location.reload(), this.leaving ? PERSON_ANSWER_MS : 0); return; }
    const longest = Math.min(PERSON_MOST_MS, PERSON_FIRST_MS * 2 ** this.failures++);
    setTimeout(() => this.connect(), longest * (0.5 + Math.random() / 2));
  }

  hear(text) {
    let message;
    try { message = JSON.parse(text); } catch { return; }
    if (message.kind === "unread") this.showUnread(message.count);
    else if (message.kind === "here") this.showHere(message.people);
    else if (message.kind === "generation") this.showGeneration(message);
  }

  showUnread(count) {
    const number = this.bell.querySelector("b");
    number.textContent = count > 99 ? "99+" : String(count);
    number.hidden = count === 0;
    this.bell.setAttribute("aria-label", count ? `Notifications, ${count} unread` : "Notifications");
  }

  showHere(people) {
    const box = document.getElementById("here");
    if (!box) return;
    const others = people.filter((name) => name !== this.bell.dataset.me);
    box.textContent = others.length ? `Also here: ${others.join(", ")}` : "";
  }

  showGeneration({ number, title }) {
    const banner = document.getElementById("generation");
    if (!banner) return;
    banner.hidden = false;
    banner.querySelector("[data-text]").textContent = `Kernel #${number} has arrived${title ? `: ${title}` : ""}.`;
    const link = banner.querySelector("a");
    link.href = link.dataset.base.replace("/0/", `/${number}/`);
  }
}

document.addEventListener("DOMContentLoaded", () => {
  const bell = document.querySelector("[data-me]");
  if (bell) new Person(bell);
});
