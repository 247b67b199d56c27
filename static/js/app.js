// The frame: theme menu, keyboard, copy buttons, times in the reader's zone. Pages read fine without it.
(function () {
  "use strict";
  const GO = {
    r: "readiness", u: "runs", c: "checkpoints", d: "drills", p: "plans", n: "nodes", t: "tiers", a: "alerts",
    l: "clusters", s: "audits", i: "incidents", m: "transfers", w: "analysis",
  };
  let pending = "";

  function editable(target) {
    return target.closest("input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable]") !== null;
  }

  function go(key) {
    const link = document.querySelector(`[data-go="${GO[key]}"]`);
    if (link) link.click();
  }

  // -- rows ------------------------------------------------------------------------------------------------------------
  function rows() { return Array.from(document.querySelectorAll("tr[data-row]")); }

  function selected() { return document.querySelector("tr[data-row][aria-selected='true']"); }

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(selected());
    const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
    all.forEach((row) => row.removeAttribute("aria-selected"));
    next.setAttribute("aria-selected", "true");
    next.scrollIntoView({ block: "nearest" });
  }

  function open() {
    const link = selected()?.querySelector("a[href]");
    if (link) link.click();
    return Boolean(link);
  }

  function tick() {
    const box = selected()?.querySelector("input[type=checkbox][data-tick]");
    if (!box) return;
    box.checked = !box.checked;
    box.dispatchEvent(new Event("change", { bubbles: true }));
  }

  function search(event) {
    const field = document.querySelector("[data-search]");
    if (!field) return;
    event.preventDefault();
    field.focus();
    field.select();
  }

  // -- the switcher ----------------------------------------------------------------------------------------------------
  const switcher = document.getElementById("switcher");
  let asked = null;

  function openSwitcher() {
    if (!switcher || document.querySelector("dialog[open]")) return;
    switcher.showModal();
    const field = switcher.querySelector("input");
    field.value = "";
    field.focus();
    find("");
  }

  async function find(text) {
    asked?.abort();
    const mine = asked = new AbortController();
    const found = switcher.querySelector("[data-found]");
    try {
      const answer = await fetch(`${switcher.dataset.url}?q=${encodeURIComponent(text)}`, { signal: mine.signal, headers: { "HX-Request": "true" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const body = await answer.text();
      if (mine === asked) found.innerHTML = body;
    } catch (error) {
      if (error.name !== "AbortError") found.textContent = "Nothing could be looked up; try again.";
    }
  }

  function stepThrough(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const stops = [switcher.querySelector("input"), ...switcher.querySelectorAll("[data-found] a")];
    const at = stops.indexOf(document.activeElement);
    const next = stops[Math.min(stops.length - 1, Math.max(0, at + (event.key === "ArrowDown" ? 1 : -1)))];
    event.preventDefault();
    next.focus();
  }

  if (switcher) {
    let later = 0;
    switcher.addEventListener("input", (event) => {
      clearTimeout(later);
      later = setTimeout(find, 150, event.target.value);
    });
    switcher.addEventListener("keydown", stepThrough);
    switcher.querySelector("form").addEventListener("submit", (event) => {
      const first = switcher.querySelector("[data-found] a");
      if (first && switcher.querySelector("input").value) { event.preventDefault(); first.click(); }
    });
  }

  // -- keys and clicks -------------------------------------------------------------------------------------------------
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k" && switcher) {
      event.preventDefault();
      openSwitcher();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.open = false; });
    if (editable(event.target) || document.querySelector("dialog[open]")) return;
    if (pending === "g" && GO[event.key]) { pending = ""; go(event.key); return; }
    pending = event.key === "g" ? "g" : "";
    if (event.key === "/") search(event);
    if (event.key === "j") move(1);
    if (event.key === "k") move(-1);
    if (event.key === "x") tick();
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
    const opener = event.target.closest("[data-switcher]");
    if (opener && switcher) { event.preventDefault(); openSwitcher(); }
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

  // -- time zones ------------------------------------------------------------------------------------------------------
  // The server writes the times; it learns here which zone the browser is in.
  function tellZone() {
    const root = document.documentElement;
    const here = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
    const told = document.cookie.split("; ").includes(`muster-browser-tz=${here}`);
    document.cookie = `muster-browser-tz=${here}; path=/; max-age=31536000; samesite=lax`;
    if (root.dataset.zoneChoice === "browser" && root.dataset.zone !== here && !told) window.location.reload();
  }
  tellZone();

  document.getElementById("tz")?.addEventListener("focus", (event) => {
    const names = document.getElementById("tz-names");
    if (names.childElementCount || !Intl.supportedValuesOf) return;
    Intl.supportedValuesOf("timeZone").forEach((name) => names.append(new Option(name, name)));
  });

  // -- what is ticked --------------------------------------------------------------------------------------------------
  function countTicks() {
    const boxes = Array.from(document.querySelectorAll("[data-tick]"));
    const ticked = boxes.filter((box) => box.checked).length;
    document.querySelectorAll("[data-ticked]").forEach((shown) => { shown.textContent = String(ticked); });
    const all = document.querySelector("[data-tick-all]");
    if (!all) return;
    all.checked = ticked > 0 && ticked === boxes.length;
    all.indeterminate = ticked > 0 && ticked < boxes.length;
  }
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-tick-all]")) {
      document.querySelectorAll("[data-tick]").forEach((box) => { box.checked = event.target.checked; });
    }
    if (event.target.matches("[data-tick], [data-tick-all]")) countTicks();
  });
  countTicks();

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
