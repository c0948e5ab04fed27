/* Times: the browser's own calendar beside each field that takes one as text, and the browser's zone where one is asked. */
(() => {
  "use strict";
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
  for (const field of document.querySelectorAll("input[data-offer-zone]")) if (!field.value) field.value = zone;
  if (!("showPicker" in HTMLInputElement.prototype)) return;
  for (const field of document.querySelectorAll("input[data-calendar]")) {
    const around = document.createElement("span");
    around.className = "timed";
    field.replaceWith(around);
    const calendar = Object.assign(document.createElement("input"), { type: "datetime-local", step: 1, tabIndex: -1 });
    calendar.setAttribute("aria-hidden", "true");
    const button = Object.assign(document.createElement("button"), { type: "button", title: field.dataset.calendar });
    button.setAttribute("aria-label", field.dataset.calendar);
    around.append(field, calendar, button);
    button.addEventListener("click", () => {
      if (/^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?$/.test(field.value.trim())) calendar.value = field.value.trim().replace(" ", "T");
      calendar.showPicker();
    });
    calendar.addEventListener("change", () => {
      field.value = calendar.value.replace("T", " ");
      field.dispatchEvent(new Event("change", { bubbles: true }));
    });
  }
})();
