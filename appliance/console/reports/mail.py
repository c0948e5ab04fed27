"""The digest as HTML, for mail: one page without links into it, pictures or scripts. Programs for mail show
no SVG, so trends are drawn as cells with a background."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import unescape

from django.utils.html import format_html, format_html_join, strip_tags
from django.utils.safestring import SafeString, mark_safe

from .shown import Shown, Table, Tile

#: Most rows of a table in a mail.
MOST_ROWS = 20
#: Height of the columns of a trend, and their colour.
BAR_PX, BAR = 24, "#c2410c"
_FONT = "font-family: sans-serif; font-size: 14px; line-height: 1.5"
_CELL = "padding: 2px 14px 2px 0; text-align: left; vertical-align: top"


def page(found: Shown, title: str, link: str) -> str:
    """Return the page. link: of the report, "" for none."""
    rows = ((tile.title, tile.value, _bars(tile), behind(tile.where, tile.before)) for tile in found.tiles)
    tables = [one.table for one in found.sections if one.table is not None and one.table.rows]
    # The worst comes first: what was lost, what happened, and then which groups were bad and got worse.
    tables.sort(key=lambda table: table.key in ("worst", "worsened"))
    body = [
        format_html('<h2 style="font-size: 18px">{}</h2>', title),
        format_html('<p style="color: #166534"><b>{}</b></p>', found.well) if found.well else "",
        format_html_join("", '<p style="color: #a00000"><b>{}</b></p>', ((one,) for one in found.first)),
        _table([], rows),
        *(_section(table) for table in tables),
        format_html_join("", "<p>{}</p>", ((one,) for one in found.notes)),
        format_html('<p><a href="{0}">{0}</a></p>', link) if link else "",
    ]
    return format_html(
        '<!doctype html><html><body style="{}">{}</body></html>',
        _FONT,
        format_html_join("\n", "{}", ((b,) for b in body)),
    )


def _bars(tile: Tile) -> SafeString | str:
    """Draw the values of the last days as columns; "" for fewer than two. A day without a value has an outline."""
    if sum(share is not None for share in tile.shares) < 2:
        return ""
    columns = format_html_join(
        "",
        '<td style="padding: 0 1px; vertical-align: bottom">'
        '<div style="width: 8px; height: {}px; {}; font-size: 0; line-height: 0"></div></td>',
        (
            (BAR_PX, "border: 1px dashed #999999")
            if share is None
            else (2 + share * BAR_PX // 100, f"background: {BAR}")
            for share in tile.shares
        ),
    )
    return format_html(
        '<table role="img" aria-label="{}" title="{}" style="border-collapse: collapse"><tr>{}</tr></table>',
        tile.trend, tile.trend, columns,
    )  # fmt: skip


def behind(where: Iterable[SafeString | str], before: str) -> str:
    """Return what stands behind a tile's value: its subject, and the value of the day before."""
    return ", ".join(part for part in (*map(plain, where), before) if part)


def plain(text: SafeString | str) -> str:
    """Return a text without markup, if it has any: plain strings are left alone, since they may look like markup."""
    return unescape(strip_tags(text)).strip() if isinstance(text, SafeString) else text


def _section(table: Table) -> SafeString:
    rows = ([plain(cell.text) for cell in row.cells] for row in table.rows[:MOST_ROWS])
    head = format_html('<h3 style="font-size: 15px">{}</h3>', table.title)
    return head + _table([title for title, _css in table.columns], rows)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> SafeString:
    head = format_html_join("", '<th style="' + _CELL + '">{}</th>', ((one,) for one in titles))
    lines = [format_html_join("", '<td style="' + _CELL + '">{}</td>', ((one,) for one in row)) for row in rows]
    return format_html(
        '<table style="border-collapse: collapse">{}{}</table>',
        format_html("<tr>{}</tr>", head) if titles else mark_safe(""),
        format_html_join("", "<tr>{}</tr>", ((line,) for line in lines)),
    )
