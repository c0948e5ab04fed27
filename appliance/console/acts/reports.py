"""Reports of days, and alerts."""

from __future__ import annotations

from ..users.roles import ADMIN, OPERATOR, VIEWER
from .row import FORM, PAGE, SETTINGS, WORD, Act, Also, Call

_RULE = "figure pattern above:number for_minutes:int severity again_after_minutes:int on:bool channels=channel:list"

ROWS: tuple[Act | Also, ...] = (
    # --- alerts
    Act("alerts.views.alerts", "alerts/", VIEWER, calls=[
        Call("GET alerts", "alert list", "Alerts, newest first; --on: those that last.", query=f"on:bool {PAGE}",
             columns="id severity rule subject value above since_at_ms fired_at_ms ended_at_ms ended_by", lists=True)]),
    Act("alerts.views.alert", "alerts/<int:pk>/", VIEWER, calls=[
        Call("GET alerts/<int:alert_id>", "alert show ID", "One alert, and whom it told.")]),
    Act("alerts.views.alert_rules", "alerts/rules/", VIEWER, calls=[
        Call("GET alert-rules", "alert rules", "When somebody is told.",
             columns="id name figure pattern above for_minutes severity on channels alerts_on")]),
    Act("alerts.views.alert_rule", "alerts/rules/<int:pk>/", OPERATOR, takes=FORM, calls=[
        Call("GET alert-rules/<int:rule_id>", "alert rule ID", "One rule.")]),
    Act("alerts.views.alert_rule_create", "alerts/rules/new/", OPERATOR, takes=FORM, calls=[
        Call("POST alert-rules", "alert rule-create NAME",
             "Tell somebody: --figure lag_minutes --above 5 --channel NAME.", takes=SETTINGS, body=_RULE,
             fixed="name={name}", dry_run=True)]),
    Also("alert_rule", [
        Call("PUT alert-rules/<int:rule_id>", "alert rule-edit ID",
             "Put another in its place; what is not given is the default.", takes=SETTINGS, body=f"name {_RULE}")]),
    Act("alerts.views.alert_rule_delete", "alerts/rules/<int:pk>/delete/", OPERATOR, takes=FORM, calls=[
        Call("DELETE alert-rules/<int:rule_id>", "alert rule-delete ID", "Delete a rule.", takes=WORD)]),
    Act("alerts.views.alert_channels", "alerts/channels/", ADMIN, calls=[
        Call("GET alert-channels", "alert channels", "Where it is told.", columns="id name kind language rules")]),
    Act("alerts.views.alert_channel", "alerts/channels/<int:pk>/", ADMIN, takes=FORM, confirms=True, calls=[
        Call("GET alert-channels/<int:channel_id>", "alert channel ID", "One channel, without its secrets.")]),
    Act("alerts.views.alert_channel_create", "alerts/channels/new/", ADMIN, takes=FORM, confirms=True, calls=[
        Call("POST alert-channels", "alert channel-create",
             "Make one of the JSON in --file, or of standard input: name, kind, address, secret, mail.", takes=SETTINGS,
             shape="json")]),
    Also("alert_channel", [
        Call("PUT alert-channels/<int:channel_id>", "alert channel-edit ID", "Put another in its place, likewise.",
             takes=SETTINGS, shape="json")]),
    Act("alerts.views.alert_channel_delete", "alerts/channels/<int:pk>/delete/",
        ADMIN, takes=FORM, confirms=True, calls=[
        Call("DELETE alert-channels/<int:channel_id>", "alert channel-delete ID", "Delete a channel.", takes=WORD)]),
    Act("alerts.views.alert_channel_test", "alerts/channels/<int:pk>/test/", ADMIN, takes=FORM, posts=True, calls=[
        Call("POST alert-channels/<int:channel_id>/tests", "alert channel-test ID",
             "Tell it something, to see whether it arrives.", takes=WORD)]),
    Also("alerts", [
        Call("GET alert-silences", "alert silences", "Silences.", columns="id rule pattern until_at_ms by reason")]),
    Act("alerts.views.alert_silence_create", "alerts/silences/new/", OPERATOR, takes=FORM, calls=[
        Call("POST alert-silences", "alert silence", "Tell nobody for --hours: --reason, one --rule, or a --pattern.",
             takes=SETTINGS, body="rule pattern hours:number reason")]),
    Act("alerts.views.alert_silence_end", "alerts/silences/<int:pk>/end/", OPERATOR, takes=FORM, posts=True, calls=[
        Call("DELETE alert-silences/<int:silence_id>", "alert silence-end ID", "End a silence.", takes=WORD)]),
    # --- reports
    Act("reports.views.reports", "reports/", VIEWER, calls=[
        Call("GET reports", "report list", "The days of which there are reports, and which reports.")]),
    Act("reports.views.report", "reports/<str:day>/<str:report>/", VIEWER, calls=[
        Call("GET reports/days/<day>/<report>", "report show DAY REPORT", "One report: digest, failures, ..."),
        Call("GET reports/days/<day>/<report>/tables/<table>", "report table DAY REPORT TABLE",
             "One table of a report, as CSV on standard output.", raw=True)]),
    Act("reports.views.report_run_create", "reports/run/", OPERATOR, takes=FORM, posts=True, calls=[
        Call("POST reports/runs", "report run", "Make the reports of a day now: yesterday, today, or YYYY-MM-DD.",
             takes=SETTINGS, body="day", waits="report")]),
    Act("reports.views.report_runs", "reports/runs/", VIEWER, calls=[
        Call("GET reports/runs", "report runs", "Runs, newest first.", query=PAGE,
             columns="id day state engine started_at_ms ended_at_ms rows error", lists=True)]),
    Act("reports.views.report_run", "reports/runs/<str:run>/", VIEWER, calls=[
        Call("GET reports/runs/<run>", "report run-show RUN", "One run."),
        Call("GET reports/runs/<run>/log", "report log RUN", "What a run wrote.")]),
    Act("reports.views.report_run_progress", "reports/runs/<str:run>/progress/", VIEWER),
    Also("report", [
        Call("GET reports/days/<day>/<report>/plots/<plot>", "report plot DAY REPORT PLOT",
             "One plot, as SVG on standard output.", raw=True)]),
    Act("reports.views.report_run_cancel", "reports/runs/<str:run>/cancel/", OPERATOR, takes=FORM, posts=True, calls=[
        Call("POST reports/runs/<run>/cancel", "report cancel RUN", "End a run; the reports that there were stay.",
             takes=WORD)]),
    Act("reports.setting_views.report_settings", "reports/settings/", VIEWER, calls=[
        Call("GET reports/settings", "report settings", "How reports are made.")]),
    Act("reports.setting_views.report_settings_change", "reports/settings/change/", ADMIN, takes=FORM, calls=[
        Call("PATCH reports/settings", "report settings set", "Change how reports are made.", takes=FORM,
             body="on:bool at zone engine:auto|spark|python master driver_mib:int memory_mib:int timeout_min:int "
                  "keep_days:int limit_minutes:int limits:int_pairs digest_channels=digest_channel:list")]),
)  # fmt: skip
