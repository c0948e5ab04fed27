"""The system: the running process, its checks, its configuration and its log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from ... import runtime
from ...engine.errors import Conflict, InvalidInput, Unavailable
from ..audit.log import audit, health_check
from ..pages.changes import before_and_after, failure_audited, is_final, is_submitted
from ..pages.engine_pages import refusal_text
from ..sign_in.identity import names_for
from ..sign_in.recent_login import is_recent, to_password

if TYPE_CHECKING:
    from ...engine.broker.deleted_unread import DeletedUnread
    from ..users.patterns import Names

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
LOG_LINES = 200
#: Rows of what was deleted unread.
MOST_LOST = 20


def system(request: HttpRequest) -> HttpResponse:
    """Show version, addresses, directories and process; with a broker also the retention of messages."""
    admin = runtime.window()
    context: dict[str, Any] = {"info": admin.system(), "tab": "about"}
    with contextlib.suppress(Unavailable):
        kept = admin.retention.snapshot()
        shares = [round(share * 100) for share in (kept.clean_share, kept.force_share, kept.refuse_share)]
        context |= {"kept": kept, "shares": shares, "lost": _lost(kept.deleted_unread, names_for(request.user))}
    return render(request, "system/about.html", context)


def _lost(rows: Iterable[DeletedUnread], names: Names) -> list[tuple[str, str, int, int]]:
    """Return (group, topic, messages, ms of the last deletion) of what was deleted unread, the most first. Rows that
    the broker summed up over all groups have no name."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for one in rows:
        if names.has_group(one.group) and names.has_topic(one.topic):
            messages, at_ms = found.get((one.group, one.topic), (0, 0))
            found[one.group, one.topic] = messages + one.messages, max(at_ms, one.at_ms)
    most = sorted(found.items(), key=lambda pair: (-pair[1][0], pair[0]))[:MOST_LOST]
    return [(*pair, *values) for pair, values in most]


def system_clean(request: HttpRequest) -> HttpResponse:
    """Delete expired messages now, at any hour."""
    what = request.POST.get("what", "log")
    with failure_audited(request, "system.clean", what):
        runtime.window().retention.clean(what, by=request.user.label)
    audit(request, "system.clean", what)
    messages.success(request, _("Expired messages are being deleted."))
    return HttpResponseRedirect(reverse("system"))


def system_checks(request: HttpRequest) -> HttpResponse:
    """Show every check of the engine, and that of the audit log's end, each with its finding."""
    checks = [*runtime.window().checks(), health_check()]
    return render(request, "system/checks.html", {"checks": checks, "tab": "checks"})


def system_config(request: HttpRequest) -> HttpResponse:
    """Show every option in force, and what it does; `q` for part of either, `changed` for those that differ from the
    default."""
    q = request.GET.get("q", "").strip()
    wanted = q.casefold()
    changed = request.GET.get("changed") == "yes"
    configuration = runtime.window().options.listing()
    from .option_texts import option_text  # first used here, as below

    told = [(option, option_text(option.name)) for option in configuration.options]
    options = [
        (option, text)
        for option, text in told
        if wanted in f"{option.name}\n{text}".casefold() and not (changed and option.value == option.default)
    ]
    context = {"options": options, "all": len(configuration.options), "q": q, "changed": changed, "tab": "config"}
    return render(request, "system/config.html", context)


def system_config_change(request: HttpRequest) -> HttpResponse:
    """Change the options that may change while the broker runs: a form, a preview, then the change."""
    admin = runtime.window()
    configuration = admin.options.listing()
    hot = [option for option in configuration.options if option.hot]
    posted = request.method == "POST"
    values = {option.name: request.POST.get(option.name, option.value) if posted else option.value for option in hot}
    context: dict[str, Any] = {"revision": request.POST.get("revision") or configuration.revision, "tab": "config"}
    status = 200
    if is_submitted(request):
        wanted = {option.name: values[option.name] for option in hot if values[option.name] != option.value}
        if "accessControl" in wanted and not is_recent(request):
            return to_password(request)
        try:
            with failure_audited(request, "config.change", ", ".join(wanted)):
                change = admin.option_commands.change(
                    wanted, revision=context["revision"], dry_run=not is_final(request), by=request.user.label
                )
        except InvalidInput as error:
            context |= {"wrong": error.field, "error": refusal_text(error)}
            status = 422
        except Conflict:
            context |= {"revision": configuration.revision, "changed": True}
            values = {option.name: option.value for option in hot}
            status = 409
        else:
            if is_final(request):
                before, after = before_and_after(change)
                audit(request, "config.change", ", ".join(after), before, after)
                messages.success(request, _("The change is in effect and survives a restart."))
                return HttpResponseRedirect(reverse("system_config"))
            context |= {
                "change": change,
                "values": values,
                "heading": _("Change the configuration?"),
                "apply": _("Apply"),
            }
            return render(request, "system/config_preview.html", context)
    from .option_texts import option_text

    context["options"] = [(option, values[option.name], option_text(option.name)) for option in hot]
    return render(request, "system/config_change.html", context, status=status)


def system_logs(request: HttpRequest) -> HttpResponse:
    """Show the newest lines of this process's log that match the filter, the newest first."""
    level = request.GET.get("level", "INFO")
    q = request.GET.get("q", "")
    lines = runtime.window().log.lines(level if level in LEVELS else "INFO", q, limit=LOG_LINES)
    levels = [(one, one) for one in LEVELS]
    context = {"lines": lines[::-1], "level": level, "levels": levels, "q": q, "limit": LOG_LINES, "tab": "logs"}
    return render(request, "system/logs.html", context)
