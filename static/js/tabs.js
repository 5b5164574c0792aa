// Tabs over parts of a page. Without this script the links lead to the parts, which then all show. The address keeps
// the open tab, and a link to something inside a closed part opens it.
"use strict";

(() => {
  for (const bar of document.querySelectorAll("[data-tabs]")) {
    const links = [...bar.querySelectorAll("a[href^='#']")];
    const panels = links.map((link) => document.getElementById(link.hash.slice(1)));

    function open(chosen) {
      links.forEach((link, at) => {
        if (at === chosen) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
        panels[at].hidden = at !== chosen;
      });
      // Charts that were drawn while hidden have no width.
      window.dispatchEvent(new Event("resize"));
    }

    function follow() {
      const target = location.hash && document.getElementById(location.hash.slice(1).split("-L")[0]);
      const at = target ? panels.findIndex((panel) => panel.contains(target)) : -1;
      if (at < 0) return;
      open(at);
      if (target !== panels[at]) target.scrollIntoView({ block: "center" });
    }

    bar.addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#']");
      if (!link) return;
      event.preventDefault();
      history.replaceState(null, "", link.hash);
      open(links.indexOf(link));
    });
    open(0);
    follow();
    window.addEventListener("hashchange", follow);
  }
})();
