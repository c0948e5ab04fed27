"""Finds the parts of a page that do not fit the width of its window."""

from __future__ import annotations

from playwright.sync_api import Page

#: An id of up to this many characters has to stand on one line.
WHOLE_ID = 36

_MEASURE = """async ([phone, wholeId]) => {
  // A frame after the next: what answers the change of size has been run.
  for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
  const found = [];
  const shown = one => one.checkVisibility({ contentVisibilityAuto: true }) && one.getBoundingClientRect().width > 0;
  const said = one => one.textContent.trim().slice(0, 60);
  if (document.documentElement.scrollWidth > innerWidth) found.push('the page is wider than its window');

  for (const axes of document.querySelectorAll('main .axes, main svg:not(.axes svg)')) {
    const room = axes.getBoundingClientRect();
    const edge = axes.matches('.axes') ? 16 : 1;  // the padding of the panel around it
    for (const label of [...axes.querySelectorAll('text, .ys span')].filter(shown)) {
      const place = label.getBoundingClientRect();
      if (place.left < room.left - edge || place.right > room.right + edge) found.push('label cut: ' + said(label));
      if (label.matches('text') && place.height < 10) found.push('label too small: ' + said(label));
    }
    const times = [...axes.querySelectorAll('.xs text')].filter(shown).map(one => one.getBoundingClientRect());
    times.forEach((place, at) => {
      if (at && place.left < times[at - 1].right) found.push('labels touch');
    });
  }

  for (const one of document.querySelectorAll('main *')) {
    const style = getComputedStyle(one);
    if (style.overflowX === 'visible' || one.scrollWidth <= one.clientWidth + 1 || !shown(one)) continue;
    if (one.closest('.visually-hidden, .legend') || style.opacity === '0') continue;
    if (style.textOverflow === 'ellipsis') continue;
    const name = [one.tagName, ...one.classList].join('.') + ' of ' + said(one.querySelector('th, text') || one);
    if (style.overflowX !== 'auto') found.push('cut off: ' + name);
    else if (one.matches('.table') && !phone) found.push('scrolls on a desk: ' + name);
    else if (one.matches('.table') && one.querySelector('table.cards')) found.push('cards that scroll: ' + name);
    else if (phone && !one.matches('pre, textarea') && !style.backgroundImage.includes('gradient'))
      found.push('scrolls without a sign of it: ' + name);
  }

  for (const head of [...document.querySelectorAll('main th')].filter(shown)) {
    const words = head.innerText.trim();
    if (head.querySelector('.visually-hidden')) continue;
    const range = document.createRange();
    range.selectNodeContents(head);
    const lines = [...range.getClientRects()].filter(one => one.width).map(one => one.bottom);
    const broken = Math.max(...lines) - Math.min(...lines) > 8;
    if (broken && /^\\p{Script=Han}+$/u.test(words)) found.push('word broken: ' + words);
  }

  for (const tab of [...document.querySelectorAll('.tabs .on')].filter(shown)) {
    const room = tab.closest('.tabs').getBoundingClientRect();
    const place = tab.getBoundingClientRect();
    const seen = place.left >= room.left - 1 && place.right <= room.right + 1;
    if (!seen) found.push('the chosen tab is not seen: ' + said(tab));
  }

  for (const cell of [...document.querySelectorAll('td.id > a, td.id > code')].filter(shown)) {
    const id = cell.querySelector('[title]')?.title || cell.title || cell.innerText;
    if (id.length > wholeId) continue;
    const range = document.createRange();
    range.selectNodeContents(cell);
    const lines = [...range.getClientRects()].filter(one => one.width).map(one => one.bottom);
    if (Math.max(...lines) - Math.min(...lines) > 8) found.push('id broken: ' + id);
    if (phone && cell.closest('table.cards') && cell.innerText.trim() !== id) found.push('id not whole: ' + id);
  }
  return found;
}"""


def unfit(page: Page) -> list[str]:
    """Return the parts of the page that are cut off, broken, too small, or that scroll unexpectedly."""
    size = page.viewport_size
    assert size is not None
    found: list[str] = page.evaluate(_MEASURE, [size["width"] <= 560, WHOLE_ID])
    return found
