"""Django's templates, but with contexts that are freed after the page is rendered.

A Django context and its dictionaries refer to each other. Old objects are never collected here (decision D10), so the
data of each page would stay for ever.
"""

from __future__ import annotations

from typing import Any

from django.template.backends.django import DjangoTemplates, Template, reraise
from django.template.context import make_context
from django.template.exceptions import TemplateDoesNotExist


class Page(Template):
    """A template as views use it. It clears the context after rendering."""

    def render(self, context: Any = None, request: Any = None) -> Any:
        made = make_context(context, request, autoescape=self.backend.engine.autoescape)
        try:
            return self.template.render(made)
        except TemplateDoesNotExist as error:
            reraise(error, self.backend)
        finally:
            made.dicts.clear()


class Templates(DjangoTemplates):
    """The backend of `settings.TEMPLATES`."""

    def from_string(self, template_code: str) -> Page:
        return Page(self.engine.from_string(template_code), self)

    def get_template(self, template_name: str) -> Page:
        try:
            return Page(self.engine.get_template(template_name), self)
        except TemplateDoesNotExist as error:
            reraise(error, self)
            raise
