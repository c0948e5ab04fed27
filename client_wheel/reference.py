"""Writes docs/python-reference.md from the docstrings of the Python client: `python -m client_wheel.reference`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "python-reference.md"
_HEAD = """# Python client: reference

Made from the docstrings by `python -m client_wheel.reference`. [python.md](python.md) is the page to begin with. Names
are imported from `rocketbox`, or in RocketBox's own tree from `appliance.client`. Times are seconds, sizes bytes.
"""
_AIO = """
## asyncio

`from rocketbox import aio`. Classes, methods and arguments are the same; what waits is awaited. What differs:
"""
#: What a client for threads makes of the type variables of both clients.
_MADE = {"ProducerT": "Producer", "PullT": "PullConsumer", "PushT": "PushConsumer", "ReaderT": "Reader"}


def page() -> str:
    """Return the page as Markdown."""
    import appliance.client as client
    from appliance.client import aio, allocation, packing
    from appliance.client.admin import Admin

    names = [name for name in client.__all__ if inspect.isclass(getattr(client, name))]
    errors = [name for name in names if issubclass(getattr(client, name), BaseException)]
    others = sorted((name for name in names if name not in errors), key=_order)
    parts = [_HEAD, "\n## Classes\n"]
    parts += [_of_class(name, getattr(client, name)) for name in others]
    parts.append(_of_class("Admin", Admin))
    parts.append(_of_class("SendOptions", packing.SendOptions))
    parts.append("\n## Functions\n")
    parts.append(_of_function("once", client.once))
    parts.append("\n## Rules of sharing queues: `allocation`\n")
    parts.append(f"{_text(allocation)}\n")
    parts += [_of_function(f"allocation.{name}", getattr(allocation, name)) for name in allocation.__all__[1:]]
    parts.append("\n## Errors\n")
    parts += [_of_class(name, getattr(client, name)) for name in errors]
    parts.append(_AIO)
    parts += [_of_class(f"aio.{name}", getattr(aio, name), own_only=True) for name in aio.__all__]
    return "".join(parts)


def _order(name: str) -> tuple[int, str]:
    first = ("Client", "Producer", "PushConsumer", "PullConsumer", "Reader", "TransactionalProducer", "Transaction")
    return (first.index(name) if name in first else len(first), name)


def _of_class(name: str, cls: type, own_only: bool = False) -> str:
    bases = [base.__name__ for base in cls.__bases__ if base.__name__ in ("ClientError", "SendError", "RequestRefused")]
    lines = [f"\n### {name}\n\n"]
    if bases:
        lines.append(f"A `{bases[0]}`.\n\n")
    is_made_by_others = _text(cls).startswith("Made by ") or hasattr(cls, "__total__")
    if not own_only and not is_made_by_others:
        lines.append(f"```python\n{_call(name, cls)}\n```\n\n")
    lines.append(f"{_text(cls)}\n")
    members = list(_members(cls, own_only))
    if members and isinstance(members[0][1], property):
        lines.append("\n")
    for member, found in members:
        if isinstance(found, property):
            lines.append(f"- **`{member}`**: {_one_line(found.fget)}\n")
        else:
            waits = "await " if inspect.iscoroutinefunction(found) else ""
            lines.append(f"\n```python\n{waits}{_call(member, found)}\n```\n\n{_text(found)}\n")
    return "".join(lines)


def _of_function(name: str, function: Any) -> str:
    return f"\n```python\n{_call(name, function)}\n```\n\n{_text(function)}\n"


def _members(cls: type, own_only: bool) -> Iterator[tuple[str, Any]]:
    """Yield what users call, properties first, in the order of the source. own_only: only with a docstring here."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("appliance.client") and not (own_only and base is not cls):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    shown = [
        (name, value)
        for name, value in found.items()
        if (isinstance(value, property) and value.fget.__doc__) or (inspect.isfunction(value) and value.__doc__)
    ]
    # Acts, and what speaks of the client's end, are for other parts of the package.
    shown = [one for one in shown if not str(getattr(one[1], "__annotations__", {}).get("return")).startswith("Acts[")]
    shown = [one for one in shown if not re.search(r"client's end\b|by the client's clock", one[1].__doc__ or "")]
    yield from sorted(shown, key=lambda one: not isinstance(one[1], property))


def _call(name: str, function: Any) -> str:
    """Return the call as it is written: each argument on a line of its own if it does not fit one."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return name
    texts = []
    stars = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not stars:
            texts.append("*")
            stars = True
        text = str(parameter.replace(annotation=parameter.empty))
        if parameter.annotation is not parameter.empty:
            annotation = inspect.formatannotation(parameter.annotation).strip("'")
            bare, equals, default = text.partition("=")
            text = f"{bare}: {annotation}" + (f" = {_default(parameter, default)}" if equals else "")
        texts.append(text)
    back = "" if inspect.isclass(function) or signature.return_annotation is signature.empty else (
        f" -> {_MADE.get(str(signature.return_annotation), signature.return_annotation)}"
    )  # fmt: skip
    line = f"{name}({', '.join(texts)}){back}"
    if len(line) <= 110:
        return line
    inside = ",\n    ".join(texts)
    return f"{name}(\n    {inside},\n){back}"


def _default(parameter: inspect.Parameter, shown: str) -> str:
    if inspect.isfunction(parameter.default):
        return parameter.default.__name__
    shown = re.sub(r"<Signals\.(\w+): \d+>", r"\1", shown)
    return "…" if parameter.default is dataclasses._HAS_DEFAULT_FACTORY else shown  # type: ignore[attr-defined]


def _text(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    if dataclasses.is_dataclass(thing) and text.startswith(f"{thing.__name__}("):
        return ""
    # What is indented in a docstring is code.
    blocks = []
    for block in text.split("\n\n"):
        is_code = all(line.startswith("    ") for line in block.splitlines())
        blocks.append(f"```python\n{textwrap.dedent(block)}\n```" if is_code and block else block)
    return "\n\n".join(blocks)


def _one_line(thing: Any) -> str:
    return " ".join(_text(thing).split())


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")
