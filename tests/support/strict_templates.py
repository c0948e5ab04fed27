"""Templates that report names which do not exist. Django renders nothing for them, and the fault stays unseen.

Only attributes count (`row.parked_pulls`), not whole variables: a page may well be rendered without a notice or an
error that its template names.
"""

from __future__ import annotations

from collections.abc import Callable

from django.template.base import Variable, VariableDoesNotExist
from django.template.context import BaseContext

#: Holders that a template may ask for anything: a page's context, a value that is not known, a dict's optional keys.
_ASKED_FREELY = (BaseContext, type(None), str, dict)
_real = Variable._resolve_lookup


def watch(report: Callable[[str], None]) -> None:
    """Call `report` with a sentence for each attribute that a template asks of something that has no such."""

    def resolve(self: Variable, context: BaseContext) -> object:
        try:
            return _real(self, context)
        except VariableDoesNotExist as error:
            name, holder = error.params
            of_none = isinstance(holder, list | tuple) and name.isdigit()  # the first of none
            if not of_none and not isinstance(holder, _ASKED_FREELY):
                template = getattr(context, "template_name", None) or getattr(context, "template", None)
                where = getattr(template, "name", template)
                report(f"template {where}: {{{{ {self.var} }}}}: {type(holder).__name__} has no {name}")
            raise

    Variable._resolve_lookup = resolve


def unwatch() -> None:
    """Restore Django's own lookup."""
    Variable._resolve_lookup = _real
