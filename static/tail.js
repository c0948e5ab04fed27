/* Live tail: a topic's new messages through a WebSocket. Everything it writes is text, never markup. */
(() => {
  "use strict";
  const place = document.getElementById("tail");
  if (!place || !window.WebSocket) return;
  const say = place.dataset;
  const rows = document.getElementById("tail-rows");
  const state = document.getElementById("tail-state");
  const pause = document.getElementById("tail-pause");
  const clear = document.getElementById("tail-clear");
  const MOST_ROWS = 300;
  const thin = "\u202f";
  const counts = { passed: 0, shown: 0, filtered: 0, left_out: 0, unread: 0, dropped: 0, held_back: 0 };
  let socket = null, paused = false, ended = false, attempts = 0, again = null, waiting = true, heard = 0;

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined && text !== null) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const tell = (text, className) => {
    if (state.textContent !== text) state.textContent = text;
    state.className = "chip " + (className || "");
  };
  const thousands = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, thin);
  const showCounts = () => {
    for (const target of place.querySelectorAll("[data-tail]")) {
      const text = thousands(counts[target.dataset.tail]);
      if (target.textContent !== text) target.textContent = text;
    }
  };
  const clock = new Intl.DateTimeFormat("en-GB", { timeZone: say.zone || "UTC", hour12: false, hour: "2-digit",
    minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
  const time = (at) => {
    const moment = new Date(at).toISOString();
    const made = element("time", clock.format(at));
    made.dateTime = moment;
    made.title = moment;
    return made;
  };
  const line = (row) => {
    const made = element("tr"), first = element("td"), link = element("a");
    link.href = say.messageUrl.replace("OFFSETID", () => encodeURIComponent(row.offset_id));
    link.append(time(row.stored_at_ms));
    first.append(link);
    const body = element("td", undefined, "long");
    if (row.glance === null) body.textContent = thousands(row.body_bytes);
    else if (!row.body_bytes) body.append(element("span", say.empty, "soft"));
    else body.append(element("code", row.glance + (row.cut ? "…" : ""), row.binary ? "faint" : ""));
    made.append(first, element("td", row.queue_id, "num"), element("td", thousands(row.queue_offset), "num"),
      element("td", row.tags || "", "clip"), element("td", row.keys.join(" "), "clip"), body);
    return made;
  };
  const showNothing = () => {
    const made = element("tr"), cell = element("td", say.waiting, "soft");
    cell.colSpan = 6;
    made.append(cell);
    rows.replaceChildren(made);
    waiting = true;
  };
  const show = (frame) => {
    for (const name of ["passed", "filtered", "left_out", "unread", "dropped", "held_back"]) counts[name] += frame[name] || 0;
    if (frame.rows && frame.rows.length) {
      counts.shown += frame.rows.length;
      if (waiting) { rows.replaceChildren(); waiting = false; }
      rows.prepend(...frame.rows.slice(-MOST_ROWS).map(line).reverse());
      while (rows.childElementCount > MOST_ROWS) rows.lastElementChild.remove();
    }
    showCounts();
  };

  const live = () => tell(paused ? say.paused : say.live, paused ? "warn" : "good");
  const words = { "gone": say.gone, "unavailable": say.unavailable, "signed-out": say.signedOut, "silent": say.silent,
    "too-many-yours": say.tooManyYours, "too-many-all": say.tooManyAll };
  const open = () => {
    if (socket || ended) return;
    clearTimeout(again);
    tell(say.connecting, "");
    const address = new URL(say.url, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const mine = socket = new WebSocket(address);
    mine.onmessage = (event) => {
      if (mine !== socket) return;
      heard = Date.now();
      const frame = JSON.parse(event.data);
      if (frame.began) { attempts = 0; live(); if (paused) mine.send("pause"); }
      else if (frame.beat) mine.send("here");
      else if (frame.end) { ended = true; tell(words[frame.end] || frame.end, "bad"); pause.hidden = true; }
      else show(frame);
    };
    mine.onclose = () => {
      if (mine !== socket) return;
      socket = null;
      if (ended || document.hidden) return;
      const seconds = Math.min(30, 2 ** attempts++);
      tell(say.lost.replace("{s}", seconds), "warn");
      again = setTimeout(open, seconds * 1000);
    };
  };
  const close = () => {
    clearTimeout(again);
    if (!socket) return;
    const mine = socket;
    socket = null;
    mine.close();
    tell(say.hidden, "warn");
  };

  pause.hidden = clear.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? say.goOn : say.pause;
    if (socket && socket.readyState === WebSocket.OPEN) { socket.send(paused ? "pause" : "go on"); live(); }
  });
  clear.addEventListener("click", () => {
    for (const name of Object.keys(counts)) counts[name] = 0;
    showCounts();
    showNothing();
  });
  /* A page that nobody sees takes nothing from the broker; after a minute it lets go. */
  let hiddenFor = null;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiddenFor);
    if (document.hidden) hiddenFor = setTimeout(close, 60_000);
    else if (!socket && !ended) open();
  });
  /* A connection that died without a word: no sign of life for three heartbeats. */
  setInterval(() => { if (socket && heard && Date.now() - heard > 50_000) socket.close(); }, 5_000);
  open();
})();
