"""Sends the digest to alert channels: queued with the alerts' notices, and sent and tried again as those are."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import override

from ...engine.errors import InvalidInput, NotFound
from ..alerts.chat import Notice
from ..alerts.models import AlertChannel, AlertDelivery
from ..alerts.teller import teller
from ..audit.log import audit
from ..models import now_ms
from . import mail, published, shown, words
from .document_files import DamagedReport
from .report_settings import settings

logger = logging.getLogger(__name__)

EVENT = "digest"
#: Most rows of each table in a notice.
NAMED = 5


def tell(day: str) -> int:
    """Queue a day's digest for the channels in the settings, unless they had it already; return how many."""
    channels = AlertChannel.objects.filter(name__in=settings().digest_channels)
    told = AlertDelivery.objects.filter(event=EVENT, notice__subject=day).values_list("channel_id", flat=True)
    return _put(day, [channel for channel in channels if channel.pk not in set(told)])


def send_digest(request: HttpRequest, day: str) -> int:
    """Queue a day's digest for all channels in the settings, even if they had it; return how many. Raises NotFound if
    the day has no digest, InvalidInput if no channel is chosen."""
    if published.document(day, "digest") is None:
        raise NotFound("report", f"digest of {day}")
    channels = list(AlertChannel.objects.filter(name__in=settings().digest_channels))
    if not channels:
        raise InvalidInput("digest_channels", _("Choose a channel first."))
    count = _put(day, channels)
    audit(request, "reports.send_digest", day, None, {"channels": sorted(channel.name for channel in channels)})
    return count


@transaction.atomic
def _put(day: str, channels: Iterable[AlertChannel]) -> int:
    try:
        found = published.document(day, "digest")
    except DamagedReport as error:
        logger.error("reports: the digest of %s cannot be sent: %s", day, error)
        return 0
    if found is None:
        return 0
    count, at_ms = 0, now_ms()
    for channel in channels:
        try:
            notice = notice_of(found, channel.language, as_page=channel.kind == AlertChannel.Kind.MAIL)
        except shown.Damaged as error:
            logger.error("reports: the digest of %s cannot be sent: %s", day, error)
            return count
        AlertDelivery.objects.create(
            channel=channel, channel_name=channel.name, event=EVENT, notice=asdict(notice), created_at_ms=at_ms,
            next_try_ms=at_ms,
        )  # fmt: skip
        count += 1
    return count


def notice_of(document: dict[str, Any], language: str, *, as_page: bool = False) -> Notice:
    """Return the notice of a digest: its tiles, the groups that got worse, and its notes. as_page: also as HTML. Raises
    shown.Damaged."""
    told = teller()
    with override(language):
        found = shown.document(document, lambda view: False, with_plots=False)
        title = f"[{told.installation}] {words.title('digest')}: {found.day_words}"
        first = [found.well] if found.well else found.first
        lines = [*first, *[""] * bool(first), *(_line(tile) for tile in found.tiles)]
        tables = {one.table.key: one.table for one in found.sections if one.table and one.table.rows}
        unread = tables.get("deleted_unread")
        if unread and len(unread.rows) > 1:  # else the first line says all
            told_of = [line for row in unread.rows if (line := _unread_row(row))][:NAMED]
            lines[len(first) : len(first)] = ["", f"{unread.title}:", *told_of]
        for table in (tables[key] for key in ("worst", "worsened") if key in tables):
            lines += ["", f"{table.title}:"]
            lines += [_row(row, compared=table.key == "worsened") for row in table.rows[:NAMED]]
        if found.notes:
            lines += ["", *found.notes]
        link = told.base + reverse("report", args=[found.day, "digest"]) if told.base else ""
        html = mail.page(found, title, link) if as_page else ""
    begin = datetime.fromtimestamp(found.t0_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return Notice(
        event=EVENT, alert=None, rule="", figure="", subject=found.day, value=None, above=0, severity="watch",
        since=begin.replace("+00:00", "Z"), ended=None, installation=told.installation, title=title,
        text="\n".join(lines), link=link, figures=document.get("figures"), html=html,
    )  # fmt: skip


def _line(tile: shown.Tile) -> str:
    behind = mail.behind(tile.where, tile.before)
    return f"{tile.title}: {tile.value}" + (f" ({behind})" if behind else "")


def _unread_row(row: shown.Row) -> str:
    """Return a row as a line: "- clicks, events: 144 192"; "" for what the broker summed up over all groups."""
    group, topic, messages = [mail.plain(cell.text) for cell in row.cells[:3]]
    return "" if group == "—" else f"- {group}, {topic}: {messages}"


def _row(row: shown.Row, compared: bool) -> str:
    """Return a row as a line: "- shipping, time over its limit: 0 → 82 min". compared: with the day before."""
    *names, now = [mail.plain(cell.text) for cell in row.cells]
    before = f"{names.pop()} → " if compared else ""
    return f"- {', '.join(one for one in names if one not in ('', '—'))}: {before}{now}"
