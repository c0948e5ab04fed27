"""Checks that a test's stand-in for a part of RocketBox is like the part: a difference would hide faults of the
callers."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from typing import Any

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def differences(stand_in: object, real: type, own: frozenset[str] = frozenset()) -> list[str]:
    """Sentences on what the stand-in offers and the part does not; empty when a caller cannot tell them apart.

    stand_in: an instance, so that its attributes count. own: what is for tests only, on top of the part. Every other
    public name must be one of the part's, and every method must take what the part's takes and nothing else: the same
    parameters, by name, in order, required alike.
    """
    found = []
    known = names_of(real)
    for name in sorted({*dir(type(stand_in)), *vars(stand_in)}):
        if name.startswith("_") or name in own:
            continue
        if name not in known:
            found.append(f"{real.__name__} has no {name}")
            continue
        ours, theirs = getattr(stand_in, name), getattr(real, name, None)
        if callable(ours) and inspect.isroutine(theirs):
            static = isinstance(inspect.getattr_static(real, name), staticmethod)
            one, other = _parameters(ours), _parameters(theirs)[0 if static else 1 :]
            if one != other:
                found.append(f"{real.__name__}.{name} takes ({', '.join(other)}), the stand-in ({', '.join(one)})")
    return found


@cache
def names_of(cls: type) -> frozenset[str]:
    """Public and other names of a class, and of what its constructor sets."""
    found = set(dir(cls))
    for base in cls.__mro__[:-1]:
        found |= set(vars(base).get("__annotations__", ()))
        if "__init__" in vars(base):
            tree = ast.parse(textwrap.dedent(inspect.getsource(vars(base)["__init__"])))
            found |= {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            }
    return frozenset(found)


def _parameters(function: Any) -> list[str]:
    """The parameters as text, without their types; those with a default are marked."""
    return [
        f"{'' if one.kind in _POSITIONAL else one.kind.name + ' '}{one.name}{'' if one.default is one.empty else '='}"
        for one in inspect.signature(function).parameters.values()
    ]


def methods_of(node: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The public methods that a class writes down itself."""
    return {
        item.name: item
        for item in node.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and not item.name.startswith("_")
    }


def written_differences(node: ast.ClassDef, real: type) -> list[str]:
    """Like `differences`, for a class that is only read, and for those of its methods that the part has too."""
    found = []
    for name, method in methods_of(node).items():
        theirs = getattr(real, name, None)
        if not inspect.isroutine(theirs) or any(ast.unparse(one) == "property" for one in method.decorator_list):
            continue
        static = isinstance(inspect.getattr_static(real, name), staticmethod)
        one, other = _written_parameters(method)[1:], _parameters(theirs)[0 if static else 1 :]
        if one != other:
            found.append(f"{real.__name__}.{name} takes ({', '.join(other)}), {node.name} ({', '.join(one)})")
    return found


def _written_parameters(method: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Like `_parameters`, for a function that is only read."""
    arguments = method.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    found = [one.arg + ("" if at < required else "=") for at, one in enumerate(positional)]
    if arguments.vararg:
        found.append(f"VAR_POSITIONAL {arguments.vararg.arg}")
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(f"KEYWORD_ONLY {one.arg}" + ("" if default is None else "="))
    if arguments.kwarg:
        found.append(f"VAR_KEYWORD {arguments.kwarg.arg}")
    return found
