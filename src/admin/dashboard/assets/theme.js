// The theme, applied before the first paint: a classic script in the head, because modules run after the page is parsed. The
// choice is kept in this browser; without one, the theme is that of the system.

(() => {
  const KEY = "signpost-theme";
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      const value = localStorage.getItem(KEY);
      return value === "light" || value === "dark" ? value : "system";
    } catch {
      // The browser blocks storage.
      return "system";
    }
  }

  function apply(choice) {
    const isDark = choice === "dark" || (choice === "system" && prefersDark.matches);
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
  }

  let choice = chosen();
  apply(choice);
  prefersDark.addEventListener("change", () => apply(choice));
  // Another tab of this browser changed the theme.
  addEventListener("storage", ({ key }) => key === KEY && apply((choice = chosen())));

  window.signpostTheme = {
    get: () => choice,
    set(wanted) {
      choice = wanted;
      try {
        if (wanted === "system") localStorage.removeItem(KEY);
        else localStorage.setItem(KEY, wanted);
      } catch {
        // The choice lasts until the page is closed.
      }
      apply(choice);
    },
  };
})();
