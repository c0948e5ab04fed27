/* "/" and Ctrl-K (Command-K) lead to the search box of the page. */
(() => {
  "use strict";
  const box = document.getElementById("search");
  if (!box) return;
  const writes = (target) => target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
  document.addEventListener("keydown", (event) => {
    const slash = event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !writes(event.target);
    const letter = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    if (!slash && !letter) return;
    event.preventDefault();
    box.focus();
    box.select();
  });
})();
