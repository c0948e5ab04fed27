"""Refuses query parameters that an operation does not have.

Otherwise `DELETE ...?dry-run=true` would delete: an unknown name did mean something to the person who wrote it.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse

from .errors import Refused

if TYPE_CHECKING:
    from ninja import NinjaAPI
    from ninja.operation import Operation

MOST_NAMED = 20


def install(api: NinjaAPI) -> None:
    """Have every operation refuse parameters that it does not have, before it looks at the rest."""
    for bound in api._get_bound_routers():
        for view in bound.path_operations.values():
            for operation in view.operations:
                _guard(operation)


def parameters_of(operation: Operation) -> list[str]:
    """Names that may stand behind the `?`."""
    return [
        name
        for model in operation.models
        if model.__ninja_param_source__ == "query"
        for name in model.__ninja_flatten_map__
    ]


def _guard(operation: Operation) -> None:
    known = parameters_of(operation)
    values = operation._get_values

    def guarded(request: HttpRequest, path_params: Any, temporal_response: HttpResponse) -> Any:
        unknown = [name for name in request.GET if name not in known]
        if unknown:
            raise refusal(unknown, known)
        return values(request, path_params, temporal_response)

    operation._get_values = guarded  # type: ignore[method-assign]


def refusal(unknown: list[str], known: list[str]) -> Refused:
    """Return the refusal of unknown parameters, with the names that were probably meant."""
    errors = [{"field": name[:100], "message": sentence(name, known)} for name in unknown[:MOST_NAMED]]
    return Refused("unknown_parameter", errors[0]["message"], errors=errors)


def sentence(name: str, known: list[str]) -> str:
    """Return a text like "There is no parameter dry-run: do you mean dry_run?"."""
    found = f"There is no parameter {name[:100]}"
    near = nearest(name, known)
    if near:
        return f"{found}: do you mean {near}?"
    return f"{found}. There are: {', '.join(known)}." if known else f"{found}. This operation has none."


def nearest(name: str, known: list[str]) -> str:
    """The known name that looks most like this one, "" when none does."""
    folded = {one.replace("_", "").lower(): one for one in known}
    close = get_close_matches(name.replace("_", "").replace("-", "").lower()[:100], folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else ""
