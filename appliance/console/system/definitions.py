"""Definitions: topics, their schemas, groups, users and alert rules as one YAML text, to export, and to import after a
preview.

The order of the text is fixed, so that two texts can be compared line by line. It contains no passwords, no tokens and
no addresses of channels. An import creates what is missing and changes what differs; it deletes nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _

from ... import runtime
from ...engine.admin_settings import GROUP_SETTINGS, TOPIC_SETTINGS
from ...engine.cursors import whole
from ...engine.errors import AdminError, InvalidInput, NotFound, StartError, Unavailable
from ...engine.plain_text import plain
from ..alerts.acts import save_rule
from ..alerts.forms import RuleForm
from ..alerts.models import AlertChannel, AlertRule
from ..audit.log import audit
from ..models import User
from ..users import user_acts
from .plain_yaml import LONGEST_BYTES, LONGEST_VALUE, load

logger = logging.getLogger(__name__)

VERSION = 1
MOST_ENTRIES = 5000
#: Most characters of all schemas that are exported: the whole text must be one that can be imported.
_SCHEMA_CHARS = LONGEST_BYTES // 2
#: A schema is a list of pieces, each short enough for a value.
_PIECE_CHARS = LONGEST_VALUE // 2
_USER_FIELDS = (*user_acts.RIGHTS, "active")
_RULE_FIELDS = ("figure", "pattern", "above", "for_minutes", "severity", "again_after_minutes", "active", "channels")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z", re.ASCII)
_NO_ASCII = re.compile(r"[^ -~]")
#: YAML's words for booleans and null: names like them have to be quoted.
_WORDS = frozenset("y n yes no on off true false null none".split())


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that changes. None: not there."""

    field: str
    before: object
    after: object


@dataclass(slots=True)
class Item:
    """One entry of a text. section: a key of _PLANNERS. act: "create", "change", "same" or "refused"; after the import
    "done" or "failed". why: the reason for "refused" and "failed", as people read it."""

    section: str
    name: str
    act: str
    differences: list[Difference] = field(default_factory=list)
    why: str = ""
    run: Callable[[], None] | None = None


# --- out


def export() -> str:
    """Return the definitions of everything as one text."""
    sections: dict[str, dict[str, dict[str, Any]]] = {
        "topics": dict(_topics()),
        "schemas": {},
        "groups": dict(_groups()),
        "users": {user.username: _user_facts(user) for user in User.objects.all()},
        "alert_rules": {rule.name: _rule_facts(rule) for rule in AlertRule.objects.prefetch_related("channels")},
    }
    sections["schemas"], left_out = _schemas(sorted(sections["topics"]))
    lines = [f"# RocketBox {runtime.window().system().version}", f"rocketbox: {VERSION}"]
    lines += left_out
    for section, things in sections.items():
        lines.append(f"{section}:" if things else f"{section}: {{}}")
        for name in sorted(things):
            lines.append(f"  {_key(name)}:")
            lines += [f"    {one}: {_value(value)}" for one, value in sorted(things[name].items())]
    return "\n".join(lines) + "\n"


def _key(text: str) -> str:
    return text if _PLAIN.match(text) and text.lower() not in _WORDS else _value(text)


def _value(value: Any) -> str:
    """Return a value as YAML in ASCII. It is JSON, but for characters behind U+FFFF: YAML does not put the two halves
    of JSON's escape together."""
    return _NO_ASCII.sub(_escaped, json.dumps(value, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def _topics() -> Iterator[tuple[str, dict[str, Any]]]:
    admin = runtime.window()
    for row in whole(lambda page, size: admin.topics.page(page=page, page_size=size)).rows:
        try:
            yield row.name, dict(admin.topics.settings(row.name).values)
        except NotFound:  # deleted meanwhile
            continue


def _schemas(topics: list[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return (topic -> schema, remarks on schemas that are left out)."""
    schemas, room = runtime.window().schemas, _SCHEMA_CHARS
    found: dict[str, dict[str, Any]] = {}
    left_out = []
    for topic in topics:
        try:
            schema = schemas.find(topic)
        except Unavailable as error:
            remark = f"# left out: schemas. {_value(str(error))}"
            if remark in left_out:
                break  # it is the file, which would be read for each topic
            left_out.append(remark)
            continue
        if schema is None:
            continue
        text = schema.data.decode() if schema.is_text else base64.b64encode(schema.data).decode()
        facts: dict[str, Any] = {"kind": schema.kind}
        if schema.message:
            facts["message"] = schema.message
        if not schema.is_text and text:
            facts["encoding"] = "base64"
        if text:
            facts["schema"] = [text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS)]
        size = len(_value(facts.get("schema")))
        if size > room:
            left_out.append(f"# left out, for the size of all schemas: the schema of {_key(topic)}")
        else:
            found[topic] = facts
            room -= size
    return found, left_out


def _groups() -> Iterator[tuple[str, dict[str, Any]]]:
    admin = runtime.window()
    for row in whole(lambda page, size: admin.groups.page(page=page, page_size=size)).rows:
        try:
            settings = admin.groups.detail(row.name, queues=False).settings
        except NotFound:
            continue
        if settings is not None:
            yield row.name, dict(settings.values)


def _user_facts(user: User) -> dict[str, Any]:
    return {name: getattr(user, name) for name in user_acts.RIGHTS} | {"active": user.is_active}


def _rule_facts(rule: AlertRule) -> dict[str, Any]:
    facts = {name: getattr(rule, name) for name in _RULE_FIELDS if name not in ("active", "channels")}
    return facts | {"active": rule.is_active, "channels": sorted(channel.name for channel in rule.channels.all())}


# --- in


def parse(text: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return section -> name -> fields of a text. Raises InvalidInput for any other text."""
    found = load(text)
    if not isinstance(found, dict) or found.pop("rocketbox", None) != VERSION:
        sentence = _("Definitions begin with “rocketbox: %(version)d”.") % {"version": VERSION}
        raise InvalidInput("text", sentence)
    sections: dict[str, dict[str, dict[str, Any]]] = {}
    for section, things in found.items():
        if section not in _PLANNERS:
            raise InvalidInput("text", _("There is no section “%(name)s”.") % {"name": str(section)[:100]})
        sections[section] = _section(section, things or {})
    if sum(map(len, sections.values())) > MOST_ENTRIES:
        raise InvalidInput("text", _("These are more than %(count)d.") % {"count": MOST_ENTRIES})
    return sections


def _section(section: str, things: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(things, dict):
        raise InvalidInput("text", _("“%(name)s” holds names with their settings below.") % {"name": section})
    found = {}
    for name, fields in things.items():
        fields = {} if fields is None else fields
        if not isinstance(name, str) or not isinstance(fields, dict) or not all(map(_is_plain, fields.items())):
            sentence = _("“%(name)s” in “%(section)s” is no name with settings below.")
            raise InvalidInput("text", sentence % {"name": str(name)[:100], "section": section})
        found[name] = fields
    return found


def _is_plain(pair: tuple[Any, Any]) -> bool:
    key, value = pair
    if isinstance(value, list):
        return isinstance(key, str) and all(isinstance(one, str) for one in value)
    return isinstance(key, str) and isinstance(value, str | int | float | bool)


def plan(request: HttpRequest, text: str) -> list[Item]:
    """Return what an import would do, section by section. Raises InvalidInput."""
    return _planned(request, parse(text))


def _planned(request: HttpRequest, found: dict[str, dict[str, dict[str, Any]]]) -> list[Item]:
    items = []
    for section, planner in _PLANNERS.items():
        for name in sorted(found.get(section, {})):
            try:
                items.append(planner(request, name, found[section][name]))
            except (
                *(AdminError, user_acts.Refused, user_acts.ExceedsCaller),
                *(ValidationError, TypeError, ValueError),
            ) as error:
                items.append(Item(section, name, "refused", why=_why(error)))
    return items


def apply(request: HttpRequest, text: str) -> list[Item]:
    """Import the text, one entry after the other. An entry that is refused meanwhile fails with a reason, and the
    others go on."""
    items = plan(request, text)
    _carry_out(request, items)
    return items


def _carry_out(request: HttpRequest, items: list[Item]) -> None:
    for item in items:
        if item.run is None:
            continue
        try:
            item.run()
            item.act = "done"
        except (AdminError, user_acts.Refused, user_acts.ExceedsCaller, ValidationError) as error:
            item.act, item.why = "failed", _why(error)
    counts = {act: sum(item.act == act for item in items) for act in ("done", "failed", "refused", "same")}
    audit(request, "definitions.import", "", None, counts, "failed" if counts["failed"] else "done")


class AtStart:
    """Who imports definitions at the start, as the audit log names it."""

    username = label = "definitions"
    kind = "start"


#: Refusals of one start that are logged.
_REFUSALS_LOGGED = 20


def take_at_start(path: Path) -> None:
    """Import the topics, schemas, groups and alert rules of a file. What is refused is logged and stays as it is. Users
    are left out: without an administrator they could not get the link that they set a password with.

    Raises StartError if the file cannot be read or does not hold definitions.
    """
    try:
        with path.open(encoding="utf-8") as file:
            found = parse(file.read(LONGEST_BYTES + 1))
    except OSError as error:
        raise StartError(f"The definitions {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise StartError(f"The definitions {path} are not UTF-8.") from None
    except InvalidInput as error:
        raise StartError(f"The definitions {path} are refused. {_why(error)}") from None
    request = HttpRequest()
    request.user = AtStart()
    users = found.pop("users", {})
    items = _planned(request, found)
    if any(item.run is not None for item in items):
        _carry_out(request, items)
    counts = Counter(item.act for item in items)
    told = " ".join(f"{act}={counts[act]}" for act in ("done", "same", "refused", "failed"))
    logger.info("definitions: taken from %s %s", path, told)
    if users:
        logger.warning("definitions: users are not made at the start: %d; import them in the console", len(users))
    for item in [item for item in items if item.act in ("refused", "failed")][:_REFUSALS_LOGGED]:
        logger.warning("definitions: %s %s: %s", item.section, plain(item.name), plain(item.why))


def _why(error: Exception) -> str:
    from ..pages.engine_pages import refusal_text

    if isinstance(error, ValidationError):
        return "; ".join(error.messages)
    return refusal_text(error) if isinstance(error, AdminError) else str(error)


def _known(fields: dict[str, Any], names: Any) -> None:
    for name in fields:
        if name not in names:
            raise ValueError(_("There is no setting %(name)s.") % {"name": name[:100]})


def _of_the_broker(section: str, name: str, change: Any, create: bool, act: Callable[[], Any]) -> Item:
    differences = [Difference(one.field, one.before, one.after) for one in change.differences]
    if change.blockers:
        from ..templatetags.pages import translated

        return Item(section, name, "refused", differences, " ".join(translated(one) for one in change.blockers))
    if not create and not differences:
        return Item(section, name, "same")

    def run() -> None:
        act()

    return Item(section, name, "create" if create else "change", differences, run=run)


def _audited(request: HttpRequest, action: str, act: Callable[[], Any]) -> Callable[[], None]:
    from ..pages.changes import before_and_after

    def run() -> None:
        change = act()
        before, after = before_and_after(change)
        audit(request, action, change.name, before, after)

    return run


def _plan_topic(request: HttpRequest, name: str, fields: dict[str, Any]) -> Item:
    admin, by = runtime.window(), request.user.label
    _known(fields, [one.name for one in TOPIC_SETTINGS])
    try:
        admin.topics.settings(name)
    except NotFound:
        change = admin.topic_commands.create(name, dry_run=True, by=by, **fields)
        act = lambda: admin.topic_commands.create(name, by=by, **fields)  # noqa: E731
        return _of_the_broker("topics", name, change, True, _audited(request, "topic.create", act))
    change = admin.topic_commands.edit(name, dry_run=True, by=by, **fields)
    act = lambda: admin.topic_commands.edit(name, revision=None, by=by, **fields)  # noqa: E731
    return _of_the_broker("topics", name, change, False, _audited(request, "topic.edit", act))


_SCHEMA_FIELDS = ("kind", "message", "encoding", "schema")


def _plan_schema(request: HttpRequest, name: str, fields: dict[str, Any]) -> Item:
    """Plan the schema of a topic, which an import may make just before."""
    schemas, by = runtime.window().schema_commands, request.user.label
    _known(fields, _SCHEMA_FIELDS)
    pieces = fields.get("schema", [])
    text = "".join(pieces) if isinstance(pieces, list) else str(pieces)
    try:
        data = base64.b64decode(text, validate=True) if fields.get("encoding") == "base64" else text.encode()
    except binascii.Error:
        raise ValueError(_("The schema is not base64.")) from None
    kind, message = str(fields.get("kind", "")), str(fields.get("message", ""))
    act = lambda: schemas.put(name, kind=kind, data=data, message=message, by=by)  # noqa: E731
    run = _audited(request, "topic.schema", act)
    try:
        runtime.window().topics.settings(name)
    except NotFound:
        return Item(
            "schemas", name, "create", [Difference("name", None, schemas.name_of(kind, data, message))], run=run
        )
    change = schemas.put(name, kind=kind, data=data, message=message, dry_run=True, by=by)
    return _of_the_broker("schemas", name, change, schemas.find(name) is None, run)


def _plan_group(request: HttpRequest, name: str, fields: dict[str, Any]) -> Item:
    admin, by = runtime.window(), request.user.label
    _known(fields, [one.name for one in GROUP_SETTINGS])
    try:
        present = admin.groups.detail(name, queues=False).settings
    except NotFound:
        present = None
    if present is None:
        change = admin.group_commands.create(name, dry_run=True, by=by, **fields)
        act = lambda: admin.group_commands.create(name, by=by, **fields)  # noqa: E731
        return _of_the_broker("groups", name, change, True, _audited(request, "group.create", act))
    change = admin.group_commands.edit(name, dry_run=True, by=by, **fields)
    act = lambda: admin.group_commands.edit(name, by=by, **fields)  # noqa: E731
    return _of_the_broker("groups", name, change, False, _audited(request, "group.edit", act))


def _differences(before: dict[str, Any], after: dict[str, Any]) -> list[Difference]:
    return [
        Difference(name, before.get(name), after[name]) for name in sorted(after) if before.get(name) != after[name]
    ]


def _plan_user(request: HttpRequest, name: str, fields: dict[str, Any]) -> Item:
    """Plan a user. A new one has no password yet: an administrator gives them a link to set one."""
    _known(fields, _USER_FIELDS)
    rights = {key: value for key, value in fields.items() if key != "active"}
    active = fields.get("active", True)
    if type(active) is not bool or any(type(rights.get(key, True)) is not bool for key in _BOOLEANS):
        raise ValueError(_("may_read_bodies, may_export and active are true or false."))
    present = User.objects.named(name)
    if present is None:
        person = User(username=name, **rights)
        user_acts.require_below(request.user, person)
        person.full_clean(exclude=["password"])

        def create() -> None:
            user_acts.create(request, person)
            if not active:
                user_acts.set_active(request, person.pk, False)

        return Item("users", name, "create", _differences({}, fields), run=create)
    differences = _differences(_user_facts(present), fields)
    if not differences:
        return Item("users", name, "same")
    user_acts.require_below(request.user, present)
    user_acts.require_not_more(request.user, rights)
    trial = User.objects.get(pk=present.pk)
    for key, value in rights.items():
        setattr(trial, key, value)
    trial.full_clean(exclude=["password", "username"])  # it may be one that is not given any more
    key = present.pk

    def change() -> None:
        user_acts.change(request, key, rights)
        if "active" in fields and active != User.objects.get(pk=key).is_active:
            user_acts.set_active(request, key, active)

    return Item("users", name, "change", differences, run=change)


_BOOLEANS = ("may_read_bodies", "may_export")


def _plan_rule(request: HttpRequest, name: str, fields: dict[str, Any]) -> Item:
    _known(fields, _RULE_FIELDS)
    present = AlertRule.objects.filter(name=name).first()
    before = {} if present is None else _rule_facts(present)
    wanted: dict[str, Any] = {"pattern": "*", "for_minutes": 5, "severity": "watch", "again_after_minutes": 0}
    wanted |= {"active": True, "channels": []} | before | fields
    channels = {channel.name: channel.pk for channel in AlertChannel.objects.all()}
    unknown = sorted(set(wanted["channels"]) - set(channels))
    if unknown:
        raise ValueError(_("There is no channel %(name)s; make it first.") % {"name": unknown[0][:100]})
    data = {key: value for key, value in wanted.items() if key not in ("active", "channels")}
    data |= {"name": name, "is_active": wanted["active"], "channels": [channels[one] for one in wanted["channels"]]}
    form = RuleForm(data, instance=present)
    if not form.is_valid():
        raise ValueError(" ".join(f"{key}: {' '.join(errors)}" for key, errors in form.errors.items()))
    differences = _differences(before, fields if present else wanted)
    if present is not None and not differences:
        return Item("alert_rules", name, "same")
    act = "create" if present is None else "change"
    return Item("alert_rules", name, act, differences, run=lambda: _save(request, form))


def _save(request: HttpRequest, form: RuleForm) -> None:
    form.clean()  # earlier entries have made rules since it was planned, and there are so many at most
    save_rule(request, form)


_PLANNERS: dict[str, Callable[[HttpRequest, str, dict[str, Any]], Item]] = {
    "topics": _plan_topic,
    "schemas": _plan_schema,
    "groups": _plan_group,
    "users": _plan_user,
    "alert_rules": _plan_rule,
}
