/* The overview's live parts: one event stream, one frame a second. Everything it writes is text, never markup. */
(() => {
  "use strict";
  const live = document.getElementById("live");
  if (!live || !window.EventSource) return;
  const say = live.dataset;
  const state = document.getElementById("live-state");
  const thin = "\u202f";

  const thousands = (value) => {
    const [whole, rest] = String(value).split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, thin);
    return rest ? grouped + "." + rest : grouped;
  };
  const known = (value, show) => (value === null || value === undefined ? say.unknown : show(value));
  const rate = (value) => thousands(value < 10 ? Math.round(value * 10) / 10 : Math.round(value)) + " /s";
  const bytes = (value) => {
    let size = value;
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (size < 1024) return unit === "B" ? size + " B" : size.toFixed(1) + " " + unit;
      size /= 1024;
    }
    return size.toFixed(1) + " TiB";
  };
  const duration = (ms) => {
    const all = Math.floor(ms / 1000);
    const d = Math.floor(all / 86400), h = Math.floor(all / 3600) % 24, m = Math.floor(all / 60) % 60, s = all % 60;
    const form = d === 1 ? say.day : d ? say.days : all >= 3600 ? say.hours : all >= 60 ? say.minutes : say.seconds;
    return form.replace(/\{([dhms])\}/g, (_, unit) => ({ d, h, m, s })[unit]);
  };
  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const write = (target, text) => { if (target && target.textContent !== text) target.textContent = text; };
  const each = (name, show) => document.querySelectorAll("[data-" + name + "]").forEach((target) => show(target, target.dataset[name]));
  /* As converters.py writes names that would not survive in a path. */
  const segment = (name) => ({ "": "~3", ".": "~4", "..": "~5" })[name] ?? name.replace(/~/g, "~0").replace(/\//g, "~1").replace(/\\/g, "~2");
  const linkTo = (template, name) => template.replace("NAME", () => encodeURIComponent(segment(name)));

  /* What needs a person: the page's own part is fetched again when the frame tells of something else, so that what is
     muted, folded and linked is as the page had it. Focus and opened parts stay. */
  const needs = document.getElementById("needs-panel");
  const health = document.getElementById("health");
  let needsShown = null, fetching = false;
  const showNeeds = async (list) => {
    const now = JSON.stringify(list);
    if (now === needsShown || fetching) return;
    if (needsShown === null && !list.length) { needsShown = now; return; }
    fetching = true;
    try {
      const answer = await fetch(needs.dataset.url, { headers: { "X-Requested-With": "fetch" } });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const focused = needs.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      const opened = [...needs.querySelectorAll("details")].map((one) => one.open);
      needs.replaceChildren(...page.body.childNodes);
      needs.querySelectorAll("details").forEach((one, n) => { one.open = Boolean(opened[n]); });
      if (focused !== null) [...needs.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
      const level = document.getElementById("needs").dataset.level;
      write(health, say[level]);
      health.className = "chip " + { ok: "good", warning: "warn", failed: "bad" }[level];
      needsShown = now;
    } catch { /* the next frame tries again */ } finally { fetching = false; }
  };

  const behind = document.getElementById("behind");
  const showBehind = (list) => {
    if (behind.contains(document.activeElement)) return;
    const sparks = new Map([...behind.rows].filter((row) => row.cells.length > 3).map((row) => [row.cells[0].textContent.trim(), row.cells[3]]));
    behind.replaceChildren(...list.map((row) => {
      const line = element("tr"), first = element("td"), link = element("a", row.group);
      link.href = linkTo(behind.dataset.groupUrl, row.group);
      first.append(link);
      line.append(first, element("td", known(row.lag_ms, duration), "num"), element("td", known(row.lag, (lag) => (row.partial ? "≥ " : "") + thousands(lag)), "num"), sparks.get(row.group) || element("td"));
      return line;
    }));
    if (!list.length) {
      const line = element("tr"), cell = element("td", behind.dataset.none, "soft");
      cell.colSpan = 4;
      line.append(cell);
      behind.append(line);
    }
    const worst = document.getElementById("worst-name");
    write(document.getElementById("worst-time"), list.length ? known(list[0].lag_ms, duration) : say.nobody);
    write(worst, list.length ? worst.dataset.label + " " + list[0].group : worst.dataset.none);
  };

  /* The chart. Its colours are those of the page; the page's colours may change under it. */
  const place = document.getElementById("rates");
  const data = JSON.parse(place.dataset.history);
  let chart = null;
  const zone = document.body.dataset.zone || "Etc/UTC";
  const clocks = [{}, { second: "2-digit" }].map((more) => new Intl.DateTimeFormat("en-GB", { timeZone: zone, hour: "2-digit", minute: "2-digit", ...more }));
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const draw = () => {
    if (!window.uPlot) return;
    if (chart) chart.destroy();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    chart = new uPlot({
      width: place.clientWidth, height: 220, cursor: { drag: { x: false, y: false } }, legend: { live: true }, padding: [8, 12, 0, 0],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone),
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, Math.max(1, (high || 0) * 1.1)] } },
      axes: [{ ...axis, size: 32, space: 76, values: (_, ticks) => ticks.map((tick) => clocks[tick % 60 ? 1 : 0].format(tick * 1000)) }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => thousands(tick)) }],
      series: [{ label: place.dataset.time }, { label: place.dataset.in, stroke: colour("--accent"), width: 1.8, points: { show: false } }, { label: place.dataset.out, stroke: colour("--info"), width: 1.8, points: { show: false } }],
    }, data, place);
  };
  const addPoint = (frame, before) => {
    if (frame.at_ms === null || !before) return;
    const span = (frame.at_ms - before.at_ms) / 1000;
    const at = Math.floor(frame.at_ms / 1000);
    if (span <= 0 || at <= (data[0][data[0].length - 1] || 0)) return;
    data[0].push(at);
    data[1].push(Math.max(0, (frame.put_total - before.put_total) / span));
    data[2].push(Math.max(0, (frame.delivered_total - before.delivered_total) / span));
    while (data[0].length > 600) data.forEach((column) => column.shift());
    if (chart && !document.hidden) chart.setData(data);
  };

  let last = null;
  const show = (frame) => {
    each("rate", (target, name) => write(target, frame[name] === null ? say.unmeasured : rate(frame[name])));
    each("count", (target, name) => write(target, known(frame[name], thousands)));
    each("span", (target, name) => write(target, known(frame[name], duration)));
    each("bytes", (target, name) => write(target, known(frame[name], bytes)));
    showNeeds(frame.needs);
    showBehind(frame.behind);
    addPoint(frame, last);
    last = frame;
  };
  const tell = (text, className) => { write(state, text); state.className = "chip " + className; };

  let stream = null;
  const open = () => {
    if (stream) return;
    stream = new EventSource(say.url);
    stream.onmessage = (event) => { tell(state.dataset.live, "good"); show(JSON.parse(event.data)); };
    stream.onerror = () => tell(state.dataset.lost, "warn");
  };
  const close = () => { if (stream) { stream.close(); stream = null; last = null; tell(state.dataset.paused, ""); } };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("resize", () => chart && chart.setSize({ width: place.clientWidth, height: 220 }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  if (!document.hidden) open();
})();
