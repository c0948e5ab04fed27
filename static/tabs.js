/* A row of tabs that is wider than a phone shows the chosen tab: at first, and after the phone was turned. */
(() => {
  "use strict";
  const show = () => {
    for (const tab of document.querySelectorAll(".tabs .on")) {
      const row = tab.closest(".tabs");
      const [room, place] = [row.getBoundingClientRect(), tab.getBoundingClientRect()];
      row.scrollLeft += place.left - room.left - (room.width - place.width) / 2;
    }
  };
  show();
  addEventListener("resize", show);
})();
