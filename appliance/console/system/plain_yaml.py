"""YAML texts that people give: nothing in them is executed, and none expands."""

from __future__ import annotations

import re
from typing import Any

from django.utils.translation import gettext as _

from ...engine.errors import InvalidInput

LONGEST_BYTES = 1 << 20
#: Most characters of one name or value: a number with a million digits would take minutes to parse.
LONGEST_VALUE = 4096
#: Tags of what is no text, by how it is written.
_NOT_TEXT = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "timestamp")}
#: What PyYAML quotes of the text; single letters stay, and names of its own, as <stream end>.
_QUOTED = re.compile(r"""(?P<kept>'.'|'<[a-z ]+>')|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")


def load(text: str, *, as_written: bool = False) -> Any:
    """Return what a text says. Raises InvalidInput (text) for one that is no YAML, is too long, or has aliases. No tag
    in it is executed. as_written: numbers, times, yes and no are texts."""
    import yaml

    if len(text.encode("utf-8", "surrogatepass")) > LONGEST_BYTES:
        raise InvalidInput("text", _("This text is longer than it may be."))

    class Loader(yaml.SafeLoader):
        """A loader without aliases: a few lines of them can expand to millions."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not used here")
            return super().compose_node(parent, index)

        def compose_scalar_node(self, anchor: Any) -> Any:
            node = super().compose_scalar_node(anchor)
            if len(node.value) > LONGEST_VALUE:
                raise yaml.YAMLError(f"a value has more than {LONGEST_VALUE} characters")
            node.value.encode()  # raises for half of a surrogate pair, which an escape may give: it cannot be stored
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [self.construct_object(key, deep=True) for key, _value in node.value]
            if len({str(key) for key in keys}) != len(keys):
                raise yaml.YAMLError("a name stands there twice")
            return super().construct_mapping(node, deep)

    if as_written:
        Loader.yaml_implicit_resolvers = {
            letter: [(tag, pattern) for tag, pattern in known if tag not in _NOT_TEXT]
            for letter, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
    try:
        found = yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError, LookupError) as error:
        # If a value does not fit its tag, as in !!bool foo, PyYAML raises errors of many kinds.
        raise InvalidInput("text", _("This is no YAML: %(why)s") % {"why": _why(error)}) from None
    return found


def _why(error: Exception) -> str:
    """Return what is wrong, without what PyYAML quotes, its lines and its values: there may be a secret in them."""
    import yaml

    if not isinstance(error, yaml.YAMLError):
        return "a value does not fit its type"
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    why = _QUOTED.sub(lambda found: found["kept"] or "…", str(error) if problem is None else problem)[:300]
    return f"{why} ({mark.line + 1}:{mark.column + 1})" if mark else why
