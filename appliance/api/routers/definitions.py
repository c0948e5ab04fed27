"""Definitions: topics, groups, users and alert rules as one YAML text, for export and import."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import Field

from ...console.audit.log import audit
from ...console.system import definitions
from ...console.system.plain_yaml import LONGEST_BYTES
from .. import auth
from ..changes import DryRun
from ..schemas import MEDIA_TYPE, In, Out, Text

router = Router(tags=["system"])


class DefinitionsIn(In):
    """text: YAML, as GET .../file gives it."""

    text: Annotated[str, Field(min_length=1, max_length=LONGEST_BYTES)]


class FieldDifferenceOut(Out):
    """null: not there."""

    field: Text
    before: Any
    after: Any


class DefinitionOut(Out):
    """One thing of the text. act: create, change, same or refused; done or failed after it. why: of a refusal."""

    section: str
    name: Text
    act: str
    differences: list[FieldDifferenceOut]
    why: Text


class DefinitionsOut(Out):
    """The changes that were made, or would be."""

    items: list[DefinitionOut]
    dry_run: bool


@router.get("/system/definitions/file", response={200: bytes}, openapi_extra={MEDIA_TYPE: "application/yaml"})
def definitions_file(request: HttpRequest) -> HttpResponse:
    """Topics, groups, users and alert rules as YAML, in an order of its own; without any secret."""
    text = definitions.export()
    audit(request, "definitions.export")
    return HttpResponse(text, content_type="application/yaml; charset=utf-8")


@router.post("/system/definitions", response=DefinitionsOut)
def take_definitions(request: HttpRequest, body: DefinitionsIn, dry_run: DryRun) -> Any:
    """Create missing things and change different ones; nothing is deleted. Each thing has its result."""
    auth.require_recent_login(request)
    act = definitions.plan if dry_run else definitions.apply
    return {"items": act(request, body.text), "dry_run": dry_run}
