"""Tags for what many pages have alike: tables, headings. They are built in, so no template loads them."""

from __future__ import annotations

from django import template
from django.template.base import FilterExpression, Parser, Token, kwarg_re, render_value_in_context
from django.template.loader_tags import BLOCK_CONTEXT_KEY
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

register = template.Library()

#: The word before a header -> what stands around its text.
_HEADERS = {
    "": ("<th>", "</th>"),
    "num": ('<th class="num">', "</th>"),
    "hidden": ('<th><span class="visually-hidden">', "</span></th>"),
}


class TableNode(template.Node):
    """A table in a frame that scrolls sideways. Its cells find the labels of its columns in `labels`."""

    child_nodelists = ("heads", "rows")

    def __init__(self, opening: str, heads: template.NodeList, rows: template.NodeList) -> None:
        self.opening = opening
        self.heads = heads
        self.rows = rows

    def render(self, context: template.Context) -> SafeString:
        with context.push(labels={}):
            heads = self.heads.render(context)
            rows = self.rows.render(context)
        return mark_safe(f"{self.opening}<thead><tr>{heads}</tr></thead>\n<tbody>{rows}</tbody></table></div>")


@register.simple_tag(takes_context=True)
def block_again(context: template.Context, name: str) -> SafeString:
    """Return what a block of the page renders, at a second place."""
    return context.render_context[BLOCK_CONTEXT_KEY].get_block(name).nodelist.render(context)


@register.tag
def table(parser: Parser, token: Token) -> TableNode:
    """`{% table "classes" scrolls %}` headers `{% rows %}` rows `{% endtable %}`. scrolls: by keys, too, for a table
    that has nothing else to focus."""
    _name, *words = token.split_contents()
    css = "".join(f' class="{word[1:-1]}"' for word in words if word != "scrolls")
    focus = ' tabindex="0"' if "scrolls" in words else ""
    heads = parser.parse(("rows",))
    parser.delete_first_token()
    rows = parser.parse(("endtable",))
    parser.delete_first_token()
    return TableNode(f'<div class="table"{focus}><table{css}>', heads, rows)


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
    """`{% th _("Group") num lag=_("Behind") hidden _("Acts") %}`: headers of columns. num: of figures; hidden: only
    read out. Cells find a label that has a key as `labels.KEY`."""
    words = iter(token.split_contents()[1:])
    labels = []
    for word in words:
        kind = word if word in _HEADERS else ""
        key, label = kwarg_re.fullmatch(next(words) if kind else word).groups()  # type: ignore[union-attr]
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
