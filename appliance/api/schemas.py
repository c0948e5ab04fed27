"""Requests and answers of the API, as JSON. Most answers are values of the window as they are: their docstrings are the
descriptions, and metadata leaves fields out. An `Out` class stands where an answer has another shape.

Names are snake_case. Times end in `_at_ms` (milliseconds since 1970, UTC), spans in `_ms`, rates are per second. An
unknown value is null, and the field beside it that ends in `_why` gives the reason; 0 always means zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from ninja import Query, Schema
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import core_schema

from ..engine.window.process.system_snapshots import LogLine
from ..engine.window.sentences import Sentence
from .problems import clean
from .times import Moment

#: Key in `openapi_extra` for the media type of an operation whose answer is a file.
MEDIA_TYPE = "x-media-type"


def _printable(value: Any) -> Any:
    return clean(value) if isinstance(value, str) else value


# Text that a client of the broker chose.
Text = Annotated[str, BeforeValidator(_printable)]


class Out(BaseModel):
    """Read from a snapshot's attributes."""

    model_config = ConfigDict(from_attributes=True)


class OfTuple(Out):
    """Read from a tuple of its fields, too."""

    @model_validator(mode="before")
    @classmethod
    def _of_tuple(cls, value: Any) -> Any:
        return dict(zip(cls.model_fields, value, strict=True)) if isinstance(value, tuple) else value


class Asked(Schema):
    """Query parameters that belong together. An address has them one by one, and so has the description."""


class In(BaseModel):
    """A request body. Unknown fields and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


def not_given() -> Any:
    """The default of a field that may be left out but not be null."""
    return None


class SentenceOut(Out):
    """A sentence for people. code: stable, for programs. args: the values in the sentence."""

    code: str
    text: Text
    args: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _of_sentence(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return value
        args = {name: _printable(arg) for name, arg in value.args.items()}
        return {"code": value.code, "text": str(value), "args": args}


def _sentence_schema(_: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
    shape = handler.generate_schema(SentenceOut)
    said = core_schema.plain_serializer_function_ser_schema(SentenceOut.model_validate, return_schema=shape)
    return core_schema.no_info_before_validator_function(lambda value: value, shape, serialization=said)


# By this a sentence in a value of the window is answered as a SentenceOut; the engine knows no pydantic.
setattr(Sentence, "__get_pydantic_core_schema__", staticmethod(_sentence_schema))  # noqa: B010


class ProblemOut(BaseModel):
    """The reason why a request was not served (RFC 9457). type, code: stable. errors: the fields that are wrong."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    rocketmq_code: int | None = None
    hint: str | None = None
    errors: list[dict[str, str]] | None = None
    blockers: list[SentenceOut] | None = None


class PageOut(Out):
    """next_cursor: send it as `cursor` for the next page; null on the last page."""

    next_cursor: str | None


# --- who is asking


class MeOut(Out):
    """Who you are. kind: "user" or "token". topic_patterns, group_patterns: each of them has to fit a name that you
    access; none: every name."""

    kind: str
    username: str
    label: str
    role: str
    may_read_bodies: bool
    may_export: bool
    topic_patterns: list[str]
    group_patterns: list[str]


Pattern = Annotated[str, Field(min_length=1, max_length=255)]


class TokenIn(In):
    """A new token. role, grants: never more than your own. topic_pattern, group_pattern: shell patterns for the names
    it may access. expires_in_days: 90 when it is left out, as in the console's form; null: it never expires."""

    name: str = Field(min_length=1, max_length=64)
    role: Literal["viewer", "operator", "admin"] = "viewer"
    may_read_bodies: bool = False
    may_export: bool = False
    topic_pattern: Pattern = "*"
    group_pattern: Pattern = "*"
    expires_in_days: int | None = Field(default=90, ge=1, le=3650)


class TokenOut(Out):
    """A token without its secret. prefix: the secret's first characters."""

    id: int
    name: str
    owner: str
    prefix: str
    role: str
    may_read_bodies: bool
    may_export: bool
    topic_pattern: str
    group_pattern: str
    created_at_ms: int
    expires_at_ms: int | None
    last_used_at_ms: int | None
    revoked_at_ms: int | None

    @model_validator(mode="before")
    @classmethod
    def _of_row(cls, row: Any) -> Any:
        if isinstance(row, dict):
            return row
        return {name: getattr(row, name) for name in cls.model_fields if name not in ("owner", "secret")} | {
            "owner": row.owner.username,
            "secret": getattr(row, "secret", None),
        }


class NewTokenOut(TokenOut):
    """secret: shown only this once; save it now."""

    secret: str


class TokenPage(PageOut):
    items: list[TokenOut]


class UserRights(In):
    """What a user may do; what is left out stays as it is."""

    role: Literal["viewer", "operator", "admin"] = Field(default_factory=not_given)
    may_read_bodies: bool = Field(default_factory=not_given)
    may_export: bool = Field(default_factory=not_given)
    topic_pattern: Pattern = Field(default_factory=not_given)
    group_pattern: Pattern = Field(default_factory=not_given)


class UserIn(UserRights):
    """A new user. password: a first one, which they have to change; without it the answer has a link with which they
    set their own."""

    username: str = Field(min_length=1, max_length=64)
    password: str | None = Field(default=None, min_length=1, max_length=1024)


class UserPatch(UserRights):
    """active: false ends all sessions and tokens of the user at once."""

    active: bool = Field(default_factory=not_given)


class UserOut(Out):
    """identity: "" for a user with a password here, else who vouches for them. must_change_password: they have a
    first password."""

    id: int
    username: str
    role: str
    may_read_bodies: bool
    may_export: bool
    topic_pattern: str
    group_pattern: str
    identity: str
    active: bool
    must_change_password: bool
    second_factor: bool
    created_at_ms: int
    last_sign_in_at_ms: int | None

    @model_validator(mode="before")
    @classmethod
    def _of_row(cls, row: Any) -> Any:
        if isinstance(row, dict):
            return row
        names = ("id", "username", "role", "may_read_bodies", "may_export", "topic_pattern", "group_pattern",
                 "identity", "must_change_password", "created_at_ms")  # fmt: skip
        seen = row.last_login
        return {name: getattr(row, name) for name in names} | {
            "active": row.is_active,
            "second_factor": row.has_second_factor,
            "last_sign_in_at_ms": None if seen is None else int(seen.timestamp() * 1000),
        }


class UserPage(PageOut):
    items: list[UserOut]
    total: int


class UserSecretOut(Out):
    """What is shown only this once. set_password_link: good once, until set_password_until_ms; null when a password was
    given. revoked_tokens: names of the tokens that ended."""

    user: UserOut
    set_password_link: str | None
    set_password_until_ms: int | None
    revoked_tokens: list[str]


class SessionOut(Out):
    """present: the caller's own. way: "password", "oidc", "proxy" or "set-up"."""

    id: int
    address: str
    agent: Text
    way: str
    since_at_ms: int
    seen_at_ms: int
    present: bool


class SessionList(Out):
    items: list[SessionOut]


class EndedOut(Out):
    """ended: how many sessions."""

    ended: int


class PasswordIn(In):
    """password: a new first one, which they have to change; without it the answer has a link."""

    password: str | None = Field(default=None, min_length=1, max_length=1024)


class SecondFactorRule(In):
    """roles: those that need a second factor."""

    roles: list[Literal["viewer", "operator", "admin"]] = Field(max_length=3)


class SecondFactorRuleOut(Out):
    roles: list[str]


class AuditOut(Out):
    """One action. before, after: what changed. result: done, refused or failed. digest: over it and the one before."""

    id: int
    at_ms: int
    actor: Text
    actor_kind: str
    address: str
    action: str
    target: Text
    before: Any
    after: Any
    result: str
    request_id: str
    digest: str


class AuditFilter(Asked):
    """Selects entries of the audit log."""

    q: str | None = Query(None, max_length=512, description="Part of the actor's, the action's or the target's name.")
    action: str | None = Query(None, max_length=64, description="Only this action, for example topic.create.")
    actor: str | None = Query(None, max_length=80)
    target: str | None = Query(None, max_length=512, description="Only this topic, group, option, ...")
    kind: str | None = Query(
        None,
        max_length=12,
        description="Only this kind of actor: user, token, ..., or wire (tools over RocketMQ's ports).",
    )
    result: str | None = Query(None, max_length=10)


class AuditPage(PageOut):
    items: list[AuditOut]


# --- the system


class CheckOut(Out):
    """level: ok, warning (degraded, or worth a look) or failed (someone must act)."""

    name: str
    level: str
    sentence: SentenceOut


class ChecksOut(Out):
    """worst: the worst level of all. items: the checks, or the steps of what was tried, in their order."""

    worst: str
    items: list[CheckOut]


class LogOut(Out):
    items: list[LogLine]


def worst_of(checks: Iterable[Any]) -> str:
    """Return the worst level of some checks."""
    return max((check.level for check in checks), key=("ok", "warning", "failed").index, default="ok")


class ProgramFileOut(Out):
    name: str
    text: str


class ProgramOut(Out):
    """A producer and a consumer for one client. needs: what has to be installed. shell: makes the files in a directory
    of their own, and runs `prepare` there, as `produce` and `consume` are."""

    key: str
    name: str
    needs: str
    files: list[ProgramFileOut]
    prepare: str
    produce: str
    consume: str
    shell: str


class ProgramsOut(Out):
    """broker, namesrv: addresses as clients are told; null for a role that does not run here. access: off, report or
    enforce. tls: disabled, permissive or enforcing."""

    broker: str | None
    namesrv: str | None
    access: str
    tls: str
    items: list[ProgramOut]


class CleanedOut(Out):
    """topics: those whose queues were deleted; log and queue files are deleted after the call returns."""

    what: str
    topics: list[str]


# Upstream's name of an option that can be changed at run time -> its value; null restores the configured one.
ConfigurationIn = dict[str, bool | int | str | None]


class NeedKeyOut(Out):
    """A need, with the key that mutes name. muted: the overview does not show it."""

    level: str
    kind: str
    name: Text
    sentence: SentenceOut
    key: Text
    muted: bool


class MuteIn(In):
    """key: of the need, as GET /needs tells it. until_ms: ms since 1970, at most 90 days ahead."""

    key: str = Field(max_length=1200)
    reason: str = Field(max_length=300)
    until_ms: Moment


class SeriesOut(Out):
    """Values at equal steps, oldest first; null: nothing was measured, or it was not known. times_at_ms: where each
    step begins. values: averages; lows and highs: of the same step. step_ms: how long it is."""

    name: str
    unit: str
    times_at_ms: list[int]
    values: list[float | None]
    step_ms: int = 1000
    lows: list[float | None] | None = None
    highs: list[float | None] | None = None


class MetricOut(Out):
    """A figure of which a history is kept. of: "broker", "topic" or "group"."""

    name: str
    of: str
    unit: str
