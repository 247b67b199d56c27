// Live blocks: `data-live` names the URL of the very partial inside. Polls while the tab shows, patches only what
// changed, keeps open details, and says when the last answer is old. htmx fetches and swaps; this file only paces it.
(function () {
  "use strict";
  const state = new WeakMap();

  function interacting(block) {
    const active = document.activeElement;
    const selection = window.getSelection();
    const typing = active && block.contains(active) && active.matches("input, select, textarea");
    const selecting = selection && !selection.isCollapsed && block.contains(selection.anchorNode);
    return Boolean(typing || selecting);
  }

  function badge(block) { return document.querySelector(`[data-live-badge="${block.id}"]`); }

  function showAge(block) {
    const shown = badge(block);
    if (!shown) return;
    const own = state.get(block);
    const seconds = Math.round((Date.now() - own.at) / 1000);
    const late = seconds > 2 * period(block) + 2;  // two refreshes have brought nothing
    const paused = !own.lost && interacting(block) && Date.now() - own.asked >= period(block) * 1000;
    shown.classList.toggle("late", late && !paused);
    shown.textContent = paused ? "Paused while you type or select" : own.lost || (late ? `Not updated for ${seconds} s` : `Updated ${seconds < 2 ? "just now" : seconds + " s ago"}`);
  }

  function period(block) {
    const marker = block.querySelector("[data-live-seconds]");
    return marker ? Number(marker.dataset.liveSeconds) : 15;
  }

  function tick() {
    document.querySelectorAll("[data-live]").forEach((block) => {
      const own = state.get(block) || { at: Date.now(), asked: Date.now(), text: "", lost: "" };
      state.set(block, own);
      showAge(block);
      const due = Date.now() - own.asked >= period(block) * 1000;
      if (document.hidden || own.lost || !due || interacting(block) || period(block) === 0) return;
      own.asked = Date.now();
      htmx.ajax("GET", block.dataset.live, { source: block, target: block, swap: "innerHTML" }).catch(() => {});
    });
  }

  document.addEventListener("htmx:beforeSwap", (event) => {
    const block = event.detail.target;
    const own = state.get(block);
    if (!own) return;
    const code = event.detail.xhr.status;
    if (code === 401 || code === 403 || code === 404) own.lost = "No longer available; reload the page";
    if (code !== 200) return;
    own.at = Date.now();
    const text = event.detail.xhr.responseText;
    const before = own.text;
    own.text = text;
    own.open = Array.from(block.querySelectorAll("details[id][open]"), (item) => item.id);
    own.focus = block.contains(document.activeElement) ? document.activeElement.id : "";
    if (text === before || interacting(block)) event.detail.shouldSwap = false;
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    const own = state.get(event.detail.target);
    if (!own) return;
    own.open.forEach((id) => { const item = document.getElementById(id); if (item) item.open = true; });
    if (own.focus) document.getElementById(own.focus)?.focus({ preventScroll: true });
    event.detail.target.dispatchEvent(new CustomEvent("muster:patched", { bubbles: true }));
    // It has ended: the page around the block (its title, its buttons) speaks of something else now.
    if (period(event.detail.target) === 0) window.location.reload();
  });

  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
  document.addEventListener("DOMContentLoaded", () => { tick(); setInterval(tick, 1000); });
})();
