/* Buttons that print the page. Without a script they are not there; the browser's own menu prints as well. */
(() => {
  "use strict";
  for (const button of document.querySelectorAll("button[data-prints]")) {
    button.hidden = false;
    button.addEventListener("click", () => window.print());
  }
})();
