// First in <head>: sets the theme before anything is painted, and tells the style sheet that scripts run.
(function () {
  "use strict";
  var root = document.documentElement;
  var dark = window.matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try { return localStorage.getItem("muster-theme") || "auto"; } catch (error) { return "auto"; }
  }

  function apply(choice) {
    var shown = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
    root.dataset.themeChoice = choice;
    if (root.dataset.theme === shown) return;
    root.dataset.theme = shown;
    document.dispatchEvent(new CustomEvent("muster:theme"));
  }

  root.classList.add("js");
  apply(stored());
  dark.addEventListener("change", function () { apply(stored()); });
  window.addEventListener("storage", function () { apply(stored()); });
  window.musterTheme = {
    choose: function (choice) {
      try { localStorage.setItem("muster-theme", choice); } catch (error) { /* private mode: for this page only */ }
      apply(choice);
    }
  };
})();
