/* Buttons that copy the text they stand beside. Without a script they are not there. */
(() => {
  "use strict";
  for (const button of document.querySelectorAll("button[data-copies]")) {
    const text = document.getElementById(button.dataset.copies);
    const label = button.textContent;
    if (!text) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const mark = () => {
        const range = document.createRange();
        range.selectNodeContents(text);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
      };
      try {
        await navigator.clipboard.writeText(text.textContent);
      } catch {
        /* Browsers give the clipboard to https and to this machine only. */
        mark();
        if (!document.execCommand("copy")) return;
      }
      button.textContent = button.dataset.done;
      setTimeout(() => { button.textContent = label; }, 2000);
    });
  }
})();
