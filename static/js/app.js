// The frame: theme menu, keyboard, copy buttons, times in the reader's words. Pages read fine without it.
(function () {
  "use strict";
  const GO = { r: "readiness", u: "runs", c: "checkpoints", d: "drills", p: "plans", n: "nodes", t: "tiers", a: "alerts" };
  let pending = "";

  function editable(target) {
    return target.closest("input, select, textarea, [contenteditable]") !== null;
  }

  function go(key) {
    const link = document.querySelector(`[data-go="${GO[key]}"]`);
    if (link) link.click();
  }

  function rows() { return Array.from(document.querySelectorAll("tr[data-row]")); }

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.getAttribute("aria-selected") === "true");
    const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
    all.forEach((row) => row.removeAttribute("aria-selected"));
    next.setAttribute("aria-selected", "true");
    next.scrollIntoView({ block: "nearest" });
  }

  function open() {
    const row = document.querySelector("tr[data-row][aria-selected='true']");
    const link = row && row.querySelector("a[href]");
    if (link) link.click();
    return Boolean(link);
  }

  function search(event) {
    const field = document.querySelector("[data-search]");
    if (!field) return;
    event.preventDefault();
    field.focus();
    field.select();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.open = false; });
    if (editable(event.target)) return;
    if (pending === "g" && GO[event.key]) { pending = ""; go(event.key); return; }
    pending = event.key === "g" ? "g" : "";
    if (event.key === "/") search(event);
    if (event.key === "j") move(1);
    if (event.key === "k") move(-1);
    if (event.key === "Enter" && event.target === document.body && open()) event.preventDefault();
    if (event.key === "?") document.getElementById("help")?.showModal();
  });

  document.addEventListener("click", (event) => {
    document.querySelectorAll("details.menu[open]").forEach((menu) => {
      if (!menu.contains(event.target)) menu.open = false;
    });
    const choice = event.target.closest("[data-theme-choice]:not(html)");
    if (choice) window.musterTheme.choose(choice.dataset.themeChoice);
    if (event.target.closest("[data-theme-toggle]")) {
      window.musterTheme.choose(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    }
    if (event.target.closest("[data-help]")) document.getElementById("help")?.showModal();
    const copy = event.target.closest("[data-copy]");
    if (copy) copyText(copy);
  });

  async function copyText(button) {
    const text = document.getElementById(button.dataset.copy)?.textContent.trim() || "";
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch (error) {
      button.textContent = "Select and copy by hand";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }

  // Fields that belong to one choice of another field show with it; without scripts all show, under their headings.
  function showByChoice() {
    document.querySelectorAll("[data-when]").forEach((part) => {
      const chosen = part.closest("form").elements.namedItem(part.dataset.when);
      const shown = part.dataset.is.split(" ").includes(chosen.value);
      part.hidden = !shown;
      if (part.matches("fieldset")) part.disabled = !shown;
      else part.querySelectorAll("input, select").forEach((field) => { field.disabled = !shown; });
    });
  }
  document.addEventListener("change", (event) => { if (event.target.matches("select")) showByChoice(); });
  showByChoice();

  // A select or a filter marked so submits its form at once; without scripts its button does.
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });
})();
