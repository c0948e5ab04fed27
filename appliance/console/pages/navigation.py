"""The menu. Entries whose page does not exist, or that the user may not see, are left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from ..users.access import allows


@dataclass(frozen=True, slots=True)
class Entry:
    """view: name of the URL. covers: beginnings of the names of further views that count as this entry's pages. below:
    shown as a sub-entry of the one before."""

    view: str
    label: str | Promise
    covers: tuple[str, ...] = ()
    below: bool = False


ENTRIES = (
    Entry("overview", _("Overview"), ("need",)),
    Entry("broker_history", _("History"), below=True),
    Entry("messages", _("Messages"), ("message",)),
    Entry("search", _("Search"), below=True),
    Entry("message_tail", _("Live tail"), below=True),
    Entry("send_message", _("Send a message"), below=True),
    Entry("topics", _("Topics"), ("topic",)),
    Entry("groups", _("Consumer groups"), ("group",)),
    Entry("dead_letter_groups", _("Dead letters"), ("dead_letter", "replay", "archive_")),
    Entry("delayed", _("Delayed messages"), ("delayed_",)),
    Entry("transactions", _("Transactions"), ("transaction_",)),
    Entry("clients", _("Clients"), ("client",)),
    Entry("connect", _("Connect a client"), ("connect_",), below=True),
    Entry("reports", _("Reports"), ("report",)),
    Entry("alerts", _("Alerts"), ("alert",)),
    Entry("jobs", _("Jobs"), ("job",)),
    Entry("system", _("System"), ("system_", "backup", "definitions", "support_")),
    Entry("replication", _("Replication"), ("replication_", "set_switch", "set_adopt", "quarantine"), below=True),
    Entry("users", _("Users"), ("user",), below=True),
    Entry("wire_users", _("Wire users"), ("wire_user", "wire_access", "wire_refusals", "wire_import"), below=True),
    Entry("tokens", _("API tokens"), ("token",), below=True),
    Entry("audit", _("Audit log"), ("audit_",), below=True),
    Entry("api_docs", _("API"), below=True),
)


def menu(user: Any, current_view: str) -> list[dict[str, object]]:
    """Return the entries for this user: address, label, on (True for the one of the current page), below, view."""
    shown = []
    exact = {entry.view for entry in ENTRIES}
    for entry in ENTRIES:
        if not allows(user, entry.view):
            continue
        try:
            address = reverse(entry.view)
        except NoReverseMatch:
            continue
        on = current_view == entry.view or (
            current_view not in exact and current_view.startswith(entry.covers or ("\0",))
        )
        shown.append({"address": address, "label": entry.label, "on": on, "below": entry.below, "view": entry.view})
    return shown
