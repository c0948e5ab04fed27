"""Tags for what many pages have alike: tables, panels, facts, filters. They are built in, so no template loads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from django import template
from django.template.base import FilterExpression, Parser, Token, kwarg_re, render_value_in_context
from django.template.defaulttags import ForNode
from django.template.loader_tags import BLOCK_CONTEXT_KEY
from django.urls import reverse
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from ..pages.template_tags import thousands
from .pages import word

register = template.Library()

#: The word before a header -> what stands around its text.
_HEADERS = {
    "": ("<th>", "</th>"),
    "num": ('<th class="num">', "</th>"),
    "hidden": ('<th><span class="visually-hidden">', "</span></th>"),
}
#: A header with its attributes and content; tags in it, of which a hidden one is read out only.
_HEADER = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_HIDDEN = re.compile(r'<span class="visually-hidden">.*?</span>', re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
#: The begin of a row, or of a cell with its attributes.
_CELL = re.compile(r"<(tr|td|th)\b([^>]*)>")
#: Classes of tables that are no cards on a phone: lines of a log, counts whose columns are hours.
_NO_CARDS = {"log", "hours"}


def _labelled(heads: str, rows: str) -> str:
    """Return the rows, whose cells name their columns in `data-label`: not those of the first column, whose header
    stands above the cards, and of columns that have no name to see."""
    labels = [_TAG.sub("", _HIDDEN.sub("", head)).strip().replace('"', "&quot;") for head in _HEADER.findall(heads)]
    column: Iterator[str] = iter(())

    def cell(found: re.Match[str]) -> str:
        nonlocal column
        kind, attributes = found.groups()
        if kind == "tr":
            column = iter(("", *labels[1:]))
            return found[0]
        label = "" if "colspan=" in attributes else next(column, "")
        return f'<{kind}{attributes} data-label="{label}">' if label and "data-label=" not in attributes else found[0]

    return _CELL.sub(cell, rows)


class EmptyRowNode(template.Node):
    """The row of a table that has no other, as wide as the table. why: what it says."""

    child_nodelists = ("why",)

    def __init__(self, why: template.NodeList) -> None:
        self.why = why

    def render(self, context: template.Context) -> SafeString:
        return empty_row(self.why.render(context), context["columns"])


class TableNode(template.Node):
    """A table in a frame that scrolls sideways; on a phone each row is a card. Its cells find the labels of its columns
    in `labels`. A table that does not use them gets the class `flow`, and its cells are given their labels."""

    child_nodelists = ("heads", "rows")

    def __init__(self, classes: list[str], focus: str, heads: template.NodeList, rows: template.NodeList) -> None:
        self.classes = classes
        self.focus = focus
        self.heads = heads
        self.rows = rows

    def render(self, context: template.Context) -> SafeString:
        classes = self.classes
        with context.push(labels={}):
            heads = self.heads.render(context)
            context["columns"] = heads.count("<th")
            rows = self.rows.render(context)
        if not {"cards", *_NO_CARDS} & set(classes):
            # Headers by which a reader sorts stay above the cards.
            classes = [*classes, "cards", "flow", *([] if "<a " in heads else ["titled"])]
            rows = _labelled(heads, rows)
        return mark_safe(
            f'<div class="table"{self.focus}><table class="{" ".join(classes)}"><thead><tr>{heads}</tr></thead>\n'
            f"<tbody>{rows}</tbody></table></div>"
        )


@register.tag
def table(parser: Parser, token: Token) -> TableNode:
    """`{% table "classes" scrolls %}` headers `{% rows one in all %}` its row `{% empty %}` why there is none
    `{% endtable %}`; with `{% rows %}` alone the rows are as they stand there. scrolls: by keys, too, for a table
    that has nothing else to focus. On a phone it becomes cards. The class `cards` is for a table that labels and places
    its cells itself; `log` and `hours` are for tables that stay as they are."""
    _name, *words = token.split_contents()
    classes = [one for word in words if word != "scrolls" for one in word[1:-1].split()]
    focus = ' tabindex="0"' if "scrolls" in words else ""
    heads = parser.parse(("rows",))
    _rows, *loop = parser.next_token().split_contents()
    rows = parser.parse(("empty", "endtable"))
    empty = template.NodeList()
    if parser.next_token().contents == "empty":
        empty.append(EmptyRowNode(parser.parse(("endtable",))))
        parser.delete_first_token()
    if loop:
        *names, _in, each = loop
        values = parser.compile_filter(each)
        rows = template.NodeList([ForNode([name.strip(",") for name in names], values, False, rows, empty)])
    return TableNode(classes, focus, heads, rows)


class HeaderNode(template.Node):
    """Headers of columns. labels: (the kind of header, the column's key or "", its text)."""

    def __init__(self, labels: list[tuple[str, str, FilterExpression]]) -> None:
        self.labels = labels

    def render(self, context: template.Context) -> SafeString:
        texts = []
        for kind, key, label in self.labels:
            before, behind = _HEADERS[kind]
            text = render_value_in_context(label.resolve(context), context)
            if key:
                context["labels"][key] = text
            texts += [before, text, behind]
        return mark_safe("".join(texts))


@register.tag
def th(parser: Parser, token: Token) -> HeaderNode:
    """`{% th _("Group") num lag=_("Behind") hidden _("Actions") %}`: headers of columns. num: of figures; hidden: only
    read out. Cells find a label that has a key as `labels.KEY`."""
    bits = iter(token.split_contents()[1:])
    labels = []
    for bit in bits:
        kind = bit if bit in _HEADERS else ""
        key, label = kwarg_re.fullmatch(next(bits) if kind else bit).groups()
        labels.append((kind, key or "", parser.compile_filter(label)))
    return HeaderNode(labels)


@register.simple_tag(takes_context=True)
def sort_header(context: template.Context, key: str, label: str, kind: str = "") -> SafeString:
    """Return a column's <th> with a link that sorts by it. Its cells find the label as `labels.KEY`. kind "num": the
    column has figures; the largest come first."""
    context["labels"][key] = text = conditional_escape(label)
    request = context["request"]
    present = context["sort"]
    down = present == f"-{key}"
    here = present.lstrip("-") == key
    query = request.GET.copy()
    query.pop("page", None)
    query.pop("format", None)
    first = f"-{key}" if kind == "num" else key
    query["sort"] = (key if down else f"-{key}") if here else first
    return format_html(
        '<th{}{}><a href="?{}">{}</a></th>',
        format_html(' class="{}"', kind) if kind else "",
        format_html(' aria-sort="{}"', "descending" if down else "ascending") if here else "",
        query.urlencode(),
        text,
    )


@register.simple_tag(takes_context=True)
def block_again(context: template.Context, name: str) -> SafeString:
    """Return what a block of the page renders, at a second place."""
    return context.render_context[BLOCK_CONTEXT_KEY].get_block(name).nodelist.render(context)


@register.simple_block_tag
def empty_row(content: SafeString, columns: int) -> SafeString:
    """Return the row of a table that has no other: the block says why."""
    return format_html('<tr><td colspan="{}" class="soft">{}</td></tr>', columns, content)


@register.simple_block_tag
def panel(content: SafeString, title: str, css: str = "", id: str = "", body: bool = False) -> SafeString:
    """Return a panel with a title. body: the block has text, which keeps a distance from the edges."""
    return format_html(
        '<section class="panel{}"{}><header><h2>{}</h2></header>\n{}</section>',
        f" {css}" if css else "",
        format_html(' id="{}"', id) if id else "",
        title,
        format_html('<div class="body">{}</div>', content) if body else content,
    )


@register.simple_block_tag
def form_panel(content: SafeString, novalidate: bool = False) -> SafeString:
    """Return a narrow panel with a form that is posted to its own page. novalidate: only the server checks it."""
    return format_html(
        '<section class="panel narrow"><form class="body" method="post"{}>{}</form></section>',
        mark_safe(" novalidate" if novalidate else ""),
        content,
    )


@register.simple_tag(takes_context=True)
def action(
    context: template.Context, label: str, view: str, *names: object, css: str = "", query: str = ""
) -> SafeString | str:
    """Return a button that leads to a view; "" for users who may not open it."""
    if not context["can"][view]:
        return ""
    address = reverse(view, args=names) + (f"?{query}" if query else "")
    return format_html('<a class="btn{}" href="{}">{}</a>', f" {css}" if css else "", address, label)


@register.simple_tag(takes_context=True)
def tab(
    context: template.Context,
    name: str,
    label: str,
    view: str,
    *names: object,
    query: str = "",
    count: int | None = None,
) -> SafeString:
    """Return a link to a part of a page; the one whose name is the page's `tab` is marked. count: shown behind it."""
    return format_html(
        '<a href="{}"{}>{}{}</a>',
        reverse(view, args=names) + (f"?{query}" if query else ""),
        mark_safe(' class="on" aria-current="page"' if context["tab"] == name else ""),
        label,
        "" if count is None else format_html(" <b>{}</b>", thousands(count)),
    )


@register.simple_tag(takes_context=True)
def fact(context: template.Context, name: object, value: object, code: bool = False) -> SafeString:
    """Return an entry of a list of facts. code: its value is a name of programs."""
    shown = render_value_in_context(value, context)
    return format_html(
        "<dt>{}</dt>\n<dd>{}</dd>",
        render_value_in_context(name, context),
        format_html("<code>{}</code>", shown) if code else shown,
    )


@register.simple_tag
def buttons(label: str, view: str, *names: object, css: str = "go") -> SafeString:
    """Return the button of a form, and "Cancel", which leads to a view."""
    return format_html(
        '<div class="actions"><button class="btn {}">{}</button>\n<a class="btn" href="{}">{}</a></div>',
        css,
        label,
        reverse(view, args=names),
        _("Cancel"),
    )


@register.simple_block_tag
def filters(content: SafeString, sort: str | None = None) -> SafeString:
    """Return the form that narrows a list; the block has its fields. sort: the order, which stays."""
    return format_html(
        '<form class="filter" method="get" role="search" aria-label="{0}">{1}{2}'
        '<button class="btn">{0}</button></form>',
        _("Filter"),
        content,
        "" if sort is None else format_html('<input type="hidden" name="sort" value="{}">\n', sort),
    )


@register.simple_tag
def text_field(name: str, label: str, value: object, css: str = "", **attributes: object) -> SafeString:
    """Return a filter's field for text. css: the class of its <div>; attributes: more of its <input>'s."""
    return format_html(
        '<div{0}><label for="{1}">{2}</label>\n<input id="{1}" name="{1}" value="{3}"{4} autocomplete="off"></div>',
        format_html(' class="{}"', css) if css else "",
        name,
        label,
        value,
        format_html_join("", ' {}="{}"', attributes.items()),
    )


@register.simple_tag
def search_field(label: str, value: object) -> SafeString:
    """Return a filter's field for a part of a name."""
    return text_field("q", label, value, type="search")


@register.simple_tag
def choice_field(
    name: str,
    label: str,
    chosen: object,
    *choices: Any,
    words: Sequence[str] = (),
    any: str = "",
) -> SafeString:
    """Return a filter's field with a choice. choices: values and their texts in turn, or one list of pairs; words:
    values instead whose texts are `WORDS`; any: the text for all of them."""
    if words:
        choices = ([(value, word(value)) for value in words],)
    pairs = choices[0] if len(choices) == 1 else zip(choices[::2], choices[1::2], strict=True)
    return format_html(
        '<div><label for="{0}">{1}</label>\n<select id="{0}" name="{0}">{2}{3}</select></div>',
        name,
        label,
        format_html('<option value="">{}</option>', any) if any else "",
        format_html_join(
            "\n",
            '<option value="{}"{}>{}</option>',
            ((value, mark_safe(" selected" if value == chosen else ""), text) for value, text in pairs),
        ),
    )


@register.simple_tag
def check_field(name: str, label: str, checked: object) -> SafeString:
    """Return a filter's box."""
    return format_html(
        '<label class="check"><input type="checkbox" name="{}" value="yes"{}> {}</label>',
        name,
        mark_safe(" checked" if checked else ""),
        label,
    )


@register.simple_tag
def chip(value: str, **tones: str) -> SafeString:
    """Return the word of a value as a chip. tones: the tone -> values that have it, with spaces between them."""
    tone = next((f" {tone}" for tone, values in tones.items() if value in values.split()), "")
    return format_html('<span class="chip{}">{}</span>', tone, word(value))


@register.simple_tag
def chip_if(holds: object, label: str, other: str, yes: str = "good", no: str = "bad") -> SafeString:
    """Return one of two labels as a chip. yes, no: their tones."""
    return format_html('<span class="chip {}">{}</span>', *((yes, label) if holds else (no, other)))


@register.simple_tag
def tick(unique_id: str | None, *place: object) -> SafeString:
    """Return the cell with the box that picks one message of a list, by its place and, if it is short, its id."""
    short = unique_id if unique_id and len(unique_id) <= 64 else ""
    return format_html(
        '<td class="tick"><input type="checkbox" name="pick" value="{}" aria-label="{} {}"></td>',
        "-".join(map(str, (*place, short))),
        _("Choose"),
        Truncator(place[-1] if unique_id is None else unique_id).chars(66),
    )
