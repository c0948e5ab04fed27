"""Plots of reports: SVG files from RocketBox's own runs. A page shows one only if it contains nothing but drawing.

If a file has an element or attribute that is not listed here, the whole file is refused, so that a mistake shows. The
page gets a text that is written anew from the parsed elements, never the file's bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from django.utils.safestring import SafeString, mark_safe

if TYPE_CHECKING:
    from xml.etree import ElementTree

#: A plot of 40 groups and 24 hours has 150 KB.
LONGEST_BYTES = 2 << 20
DEEPEST = 32
_SPACE = "{http://www.w3.org/2000/svg}"
_ELEMENTS = frozenset(
    ("svg", "g", "rect", "line", "path", "polyline", "polygon", "circle", "text", "tspan", "title", "desc")
)
_ATTRIBUTES = frozenset(
    (
        *("viewBox", "class", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry", "width", "height"),
        *("points", "d", "dx", "dy", "transform", "text-anchor", "dominant-baseline", "preserveAspectRatio"),
        *("vector-effect", "role", "aria-label", "aria-hidden"),
    )
)
_VALUE = re.compile(r"[\w .,()#%+:/-]*\Z")
_WORDS = ("aria-label",)
_DECLARATION = re.compile(rb"\A\s*<\?xml [^<>?]*\?>")
_CLASS = re.compile(r'class="([^"]*)"')


class NoDrawing(ValueError):
    """The file is not a plot that a page may show; the text gives the reason."""


def markup(data: bytes, title: str) -> SafeString:
    """Return the plot as markup for a page. title: its name for screen readers. Raises NoDrawing."""
    return mark_safe("".join(_written(_parsed(data), {"role": "img", "aria-label": title})))


def file(data: bytes) -> bytes:
    """Return the plot as an SVG file. Raises NoDrawing."""
    inner = "".join(_written(_parsed(data), {"xmlns": _SPACE[1:-1]}))
    return inner.encode()


def classes(drawn: str) -> set[str]:
    """Return the names of the classes in a plot, for its legend."""
    return {name for found in _CLASS.findall(drawn) for name in found.split()}


def _parsed(data: bytes) -> ElementTree.Element:
    from xml.etree import ElementTree  # half a MB, and few servers show plots soon after the start

    if len(data) > LONGEST_BYTES:
        raise NoDrawing(f"it has {len(data)} bytes")
    plain = _DECLARATION.sub(b"", data)
    # No document types, entities, comments or instructions: nothing that makes a parser do more than read elements.
    if b"<!" in plain or b"<?" in plain:
        raise NoDrawing("it has more than elements in it")
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise NoDrawing(str(error)) from None
    if root.tag.removeprefix(_SPACE) != "svg":
        raise NoDrawing(f"it is a {root.tag}")
    return root


def _written(one: ElementTree.Element, more: dict[str, str], depth: int = 0) -> Iterator[str]:
    if depth > DEEPEST:
        raise NoDrawing("its elements are too deep in each other")
    name = one.tag.removeprefix(_SPACE) if isinstance(one.tag, str) else ""
    if name not in _ELEMENTS:
        raise NoDrawing(f"it has an element {name[:40]}")
    given = dict(one.attrib)
    yield f"<{name}"
    for key, value in (given | more).items():
        if key in given and key not in _ATTRIBUTES:
            raise NoDrawing(f"it has an attribute {key[:40]}")
        if key in given and key not in _WORDS and not _VALUE.match(value):
            raise NoDrawing(f"it has a strange {key}")
        yield f' {key}="{escape(value)}"'
    yield ">"
    yield escape(one.text or "", quote=False)
    for inner in one:
        yield from _written(inner, {}, depth + 1)
        yield escape(inner.tail or "", quote=False)
    yield f"</{name}>"
