"""Needs, the states that need a person, as pages and the API show them: without muted ones, similar ones folded, each
with the page on which to act.

A need is muted for a time, with a reason, by its subject and not by its words: a group that is late stays muted when it
catches up and falls behind again. When the time is over, the need is shown again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from ... import runtime
from ...engine.errors import Conflict, InvalidInput, NotFound
from ...engine.lazy_dataclass import dataclass
from ..audit.log import audit
from ..models import Setting, now_ms
from ..reports.wanted import any_run
from ..users.access import allows

if TYPE_CHECKING:
    from ...engine.window.snapshots import Need

#: Name of the setting that stores the mutes.
_KEY = "muted-needs"
#: Most mutes at a time, and most characters of a reason.
MOST_MUTES = 500
REASON_LENGTH = 300
DAY_MS = 86_400_000
LONGEST_MS = 90 * DAY_MS
#: Up to this many similar needs are shown one by one. Of more only the first is, with the others folded below it.
ALIKE_SHOWN = 3

#: Views that take the need's name.
_OF_A_NAME = ("group", "group_diagnosis", "dead_letters", "topic_edit", "topic")
#: For each kind of act: (its needs' part of the key of a mute, what to do, the view that does it), and the codes of the
#: needs' sentences. The first is also for all codes that are not listed.
_CHECKS = ("check", _("Open checks"), "system_checks")
_OPEN_REPLICATION = _("Open replication")
_OF_CODES: tuple[tuple[tuple[str, str | Promise, str], str], ...] = (
    (
        _CHECKS,
        "io_ended store_broken disk_full disk_deletes disk_filling certificate_expired certificate_stays "
        "certificate_ends_soon certificate_refused",
    ),
    (("disk", _("Open checks"), "system_checks"), "disk_full_soon"),
    (("lag", _("Diagnose"), "group_diagnosis"), "stuck queues_stuck falls_behind"),
    (
        ("lag", _("Open group"), "group"),
        "catching_up nobody_consumes nobody_consumes_late consumption_is_off_behind",
    ),
    (("unread", _("Diagnose"), "group_diagnosis"), "deleted_unread_soon"),
    (("lost", _("Diagnose"), "group_diagnosis"), "deleted_unread"),
    (("lost", _("Open retention"), "system"), "deleted_unread_by_some"),
    (("client_ids", _("Diagnose"), "group_diagnosis"), "client_id_twice"),
    (("subscriptions", _("Compare"), "group"), "subscriptions_differ"),
    (("dead_letters", _("Open dead letters"), "dead_letters"), "dead_letters dead_letters_expire"),
    (("queues", _("Change queues"), "topic_edit"), "queues_unread queues_unreadable"),
    (("transactions", _("Inspect"), "transactions"), "transactions_without_producer transactions_undecided"),
    (("more", _("Open groups"), "groups"), "more_needs"),
    (("slave", _OPEN_REPLICATION, "replication"), "slave_gone slave_lags slave_lags_far slave_behind"),
    (
        ("check", _OPEN_REPLICATION, "replication"),
        "slave_alone slaves_behind slaves_missing set_no_leader set_fenced set_frozen set_store_short set_store_silent "
        "set_store_fails member_waits",
    ),
    (("copies", _OPEN_REPLICATION, "replication"), "set_one_copy set_too_few"),
    (
        ("member", _OPEN_REPLICATION, "replication"),
        "set_contradicts set_member_slow set_member_slow_kept set_member_lost set_member_lost_since",
    ),
    (("quarantine", _OPEN_REPLICATION, "replication"), "set_quarantined"),
    (("quotas", _("Open wire users"), "wire_users"), "users_at_quota"),
    (("in_clear", _("Open wire users"), "wire_users"), "supers_in_clear"),
    (("reports", _("Open reports"), "reports"), "reports_failed reports_late"),
)
_ACTS = {code: act for act, codes in _OF_CODES for code in codes.split()}
#: View -> the one shown instead to readers who may not change anything there.
_INSTEAD = {"topic_edit": "topic"}


@dataclass(frozen=True, slots=True)
class Mute:
    """A need that is not shown until then. sentence: what it said when it was muted."""

    # sentence: in English.

    id: int
    key: str
    sentence: str
    reason: str
    by: str
    at_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Told:
    """One need as a page shows it. verb, address: what to do and where; address is "" if the reader may not."""

    need: Need
    key: str
    verb: str | Promise
    address: str


@dataclass(frozen=True, slots=True)
class Folded:
    """Needs with the same sentence about several things: those that are shown, and those that are folded."""

    shown: list[Told]
    more: list[Told]


@dataclass(frozen=True, slots=True)
class Board:
    """All needs as one reader sees them. level: "ok", "warning" (something to watch) or "failed" (something to do)."""

    folded: list[Folded]
    count: int
    muted: list[Mute]
    level: str


def everything() -> list[Need]:
    """Return all needs, muted or not: those of the broker, the worst first, then those of the console's reports."""
    return [*runtime.window().overview.snapshot().needs, *of_reports()]


def of_reports() -> list[Need]:
    """Return the needs of the reports. Their code is loaded if there was ever a run."""
    if not any_run():
        return []
    from ..reports.needs import report_needs

    return report_needs()


def key_of(need: Need) -> str:
    """Return the key of a need for mutes: the problem, and the kind and name of the thing that has it."""
    return f"{_act_of(need)[0]}:{need.kind}:{need.name}"


def _act_of(need: Need) -> tuple[str, str | Promise, str]:
    return _ACTS.get(need.sentence.code, _CHECKS)


def board(needs: Iterable[Need], user: Any) -> Board:
    """Return the board that this user sees."""
    muted = active()
    keys = {one.key for one in muted}
    told = [_told(need, user) for need in needs]
    told = [one for one in told if one.key not in keys]
    folded = []
    for _code, alike in groupby(told, lambda one: (one.need.level, one.need.sentence.code)):
        these = list(alike)
        cut = len(these) if len(these) <= ALIKE_SHOWN else 1
        folded.append(Folded(these[:cut], these[cut:]))
    levels = {one.need.level for one in told}
    level = "failed" if levels & {"act", "stuck"} else "warning" if levels else "ok"
    return Board(folded, len(told), muted, level)


def _told(need: Need, user: Any) -> Told:
    _about, verb, view = _act_of(need)
    if not allows(user, view):
        view = _INSTEAD.get(view, view)
    address = _address(view, need.name) if allows(user, view) else ""
    return Told(need, key_of(need), verb, address)


def page_of(code: str, name: str) -> str:
    """Return the path of the page on which to act on a need with this sentence; "" for none."""
    return _address(_ACTS.get(code, _CHECKS)[2], name)


def _address(view: str, name: str) -> str:
    try:
        return reverse(view, args=[name] if view in _OF_A_NAME else [])
    except NoReverseMatch:
        return ""


# --- mutes


def active() -> list[Mute]:
    """Return the present mutes, those that end first at the front."""
    now = now_ms()
    return sorted((one for one in _all() if one.until_ms > now), key=lambda one: one.until_ms)


def _all() -> list[Mute]:
    kept: Any = Setting.objects.filter(key=_KEY).values_list("value", flat=True).first()
    return [Mute(**one) for one in (kept or {}).get("mutes", ())]


def _keep(mutes: Iterable[Mute], last_id: int) -> None:
    rows = [{name: getattr(one, name) for name in Mute.__dataclass_fields__} for one in mutes]
    Setting.objects.update_or_create(key=_KEY, defaults={"value": {"mutes": rows, "last_id": last_id}})


def _last_id() -> int:
    kept: Any = Setting.objects.filter(key=_KEY).values_list("value", flat=True).first()
    return int((kept or {}).get("last_id", 0))


def find(needs: Iterable[Need], key: str) -> Need:
    """Return the need with this key. Raises NotFound if there is no such need now."""
    for need in needs:
        if key_of(need) == key:
            return need
    raise NotFound("need", key)


def check(reason: str, until_ms: int) -> str:
    """Return the reason as it is stored. Raises InvalidInput (reason, until)."""
    reason = reason.strip()
    if not reason:
        raise InvalidInput("reason", _text_of(_("Say why: others will wonder.")))
    if len(reason) > REASON_LENGTH:
        raise InvalidInput("reason", _text_of(_("The reason is too long.")))
    if not now_ms() < until_ms <= now_ms() + LONGEST_MS:
        raise InvalidInput("until", _text_of(_("A need can be muted for up to 90 days.")))
    return reason


def mute(request: HttpRequest, need: Need, reason: str, until_ms: int) -> Mute:
    """Mute a need until `until_ms`; replaces an earlier mute of it. Raises InvalidInput, and Conflict if too many needs
    are muted."""
    reason = check(reason, until_ms)
    user: Any = request.user
    with transaction.atomic():
        now, key = now_ms(), key_of(need)
        number = _last_id() + 1
        others = [one for one in _all() if one.key != key and one.until_ms > now]
        if len(others) >= MOST_MUTES:
            raise Conflict(_text_of(_("Too many needs are muted already.")))
        made = Mute(number, key, str(need.sentence), reason, str(user.label), now, until_ms)
        _keep([*others, made], number)
        audit(request, "need.mute", key, None, {"reason": reason, "until_ms": until_ms, "sentence": made.sentence})
    return made


def unmute(request: HttpRequest, number: int) -> Mute:
    """End a mute. Raises NotFound."""
    with transaction.atomic():
        found = next((one for one in active() if one.id == number), None)
        if found is None:
            raise NotFound("mute", str(number))
        _keep([one for one in active() if one.id != number], _last_id())
        audit(request, "need.unmute", found.key, {"reason": found.reason, "until_ms": found.until_ms}, None)
    return found


def _text_of(text: Promise | str) -> str:
    return str(text)
