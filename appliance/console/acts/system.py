"""The server: its health, figures, replication, options, backups and jobs."""

from __future__ import annotations

from ..users.roles import ADMIN, EVERYONE, LOCAL_OR_VIEWER, OPERATOR, VIEWER
from .row import DEFINITIONS, FORM, OWN, PAGE, SETTINGS, TIMES, WORD, Act, Also, Call

ROWS: tuple[Act | Also, ...] = (
    # --- for programs, and the files of pages
    Act("health.probe_views.healthz", "healthz", EVERYONE, names=OWN),
    Act("health.probe_views.readyz", "readyz", EVERYONE, names=OWN),
    Act("health.metrics_views.metrics", "metrics", LOCAL_OR_VIEWER),
    Act("serving.static_view.static_file", "static/<path:name>", EVERYONE, names=OWN),
    Act("openapi", None, VIEWER, names=OWN),
    Act("api_docs", None, VIEWER, names=OWN),
    # Clients and brokers without credentials ask where the name servers are; see `api.nsaddr`.
    Act("nsaddr", None, EVERYONE),
    Act("nsaddr_unit", None, EVERYONE),
    # --- what needs attention
    Act("health.need_views.needs", "needs/", VIEWER, calls=[
        Call("GET needs", "need list", "What needs somebody, the worst first.",
             columns="level kind name muted key sentence", own_names=True),
        Call("GET needs/mutes", "need mutes", "What is muted, until when.", columns="id until_ms by reason sentence",
             own_names=True)]),
    Act("health.need_views.needs_panel", "needs/panel/", VIEWER),
    Act("health.need_views.need_mute", "needs/mute/", OPERATOR, takes=FORM, calls=[
        Call("POST needs/mutes", "need mute KEY", "Mute a need, by the key that the list shows: --until, --reason.",
             takes=SETTINGS, body="reason until_ms=until:time", fixed="key={key}", own_names=True)]),
    Act("health.need_views.need_unmute", "needs/<int:number>/unmute/", OPERATOR, takes=FORM, posts=True, calls=[
        Call("DELETE needs/mutes/<int:mute_id>", "need unmute ID", "End a mute.", takes=WORD, own_names=True)]),
    # --- the set of brokers
    Act("system.replication_views.replication", "replication/", VIEWER, calls=[
        Call("GET replication", "ha replication", "Masters and slaves, and how far each is.",
             columns="address behind_bytes behind_ms in_sync bytes_per_s connected_ms heard_ms member",
             own_names=True)]),
    Act("system.replication_views.replication_now", "replication/now/", VIEWER),
    Act("system.replication_views.quarantine", "replication/quarantine/<str:name>/", VIEWER, calls=[
        Call("GET replication/quarantine/<name>", "ha quarantine NAME", "Messages that a switch cut off.",
             query="offset:int limit:int",
             columns="offset topic queue_id queue_offset tags keys unique_key size store_time_ms")]),
    Act("system.replication_views.quarantine_send", "replication/quarantine/<str:name>/send/",
        OPERATOR, takes=FORM, posts=True, calls=[
        Call("POST replication/quarantine/<name>/sends", "ha quarantine-send NAME", "Send them again, as a job.",
             takes=WORD, waits="job")]),
    Also("replication", [
        Call("GET replication/set", "ha status", "The set of brokers: who leads, who is in sync, how far behind.",
             columns="addr is_here slot role in_sync lag_bytes lag_ms slow_ms last_epoch log_begin log_end heard_at_ms "
                     "differs uuid", own_names=True)]),
    Act("system.replication_views.set_switch", "replication/switch/", ADMIN, takes=FORM, confirms=True, calls=[
        Call("POST replication/set/switch", "ha switch",
             "Have another member lead, on the leader: --to UUID or SLOT, or the nearest.", takes=SETTINGS, body="to",
             dry_run=True, ask_first=True)]),
    Act("system.replication_views.set_adopt", "replication/adopt/", ADMIN, takes=FORM, confirms=True, calls=[
        Call("POST replication/set/adopt", "ha adopt UUID",
             "Have this member lead although nobody can vouch for its log; --confirm the set's name.", takes=SETTINGS,
             body="confirm", fixed="uuid={uuid}", dry_run=True, ask_first=True)]),
    # --- the server
    Act("system.views.system", "system/", VIEWER, calls=[
        Call("GET system", "system show", "Version, addresses, directories, memory, disk.", own_names=True)]),
    Act("health.overview_views.overview", "", VIEWER, calls=[
        Call("GET broker", "system now", "Rates, connections, the disk, who is behind: the overview.",
             own_names=True)]),
    Act("health.overview_views.overview_live", "live/", VIEWER),
    Act("system.views.system_checks", "system/checks/", VIEWER, calls=[
        Call("GET system/checks", "system checks", "What is wrong with this installation.",
             columns="level name sentence", own_names=True)]),
    Act("history.views.broker_history", "history/", VIEWER, calls=[
        Call("GET metrics", "system metrics", "Figures that have a history.", columns="name unit", own_names=True),
        Call("GET metrics/series", "system history METRIC", "A figure over time.",
             query=f"{TIMES} step:int points:int seconds:int topic group", fixed="metric={metric}", own_names=True)]),
    Act("history.views.topic_history", "topics/<name:name>/history/", VIEWER),
    Act("history.views.group_history", "groups/<name:name>/history/", VIEWER),
    Also("system", [
        Call("GET system/retention", "system retention", "What is kept, and what goes next.", own_names=True)]),
    Act("system.views.system_clean", "system/clean/", ADMIN, takes=FORM, posts=True, confirms=True, calls=[
        Call("POST system/retention/clean", "system clean", "Delete now what has expired.", takes=WORD, query="what")]),
    Act("system.views.system_logs", "system/log/", OPERATOR, curl="level q", calls=[
        Call("GET system/log", "system log", "The newest lines of the server's log.",
             query="level q after:int limit:int",
             columns="at_ms level logger text")]),
    Act("system.support_views.support_bundle_file", "system/bundle/file/", ADMIN, curl=None, calls=[
        Call("GET system/bundle/file", "system bundle", "For support: a zip without secrets, on standard output.",
             raw=True)]),
    Act("system.support_views.support_bundle", "system/bundle/", ADMIN, calls=[
        Call("GET system/bundle", "system bundle-contents", "What would be in it.")]),
    Act("backups.views.backups", "system/backups/", ADMIN, takes=FORM, calls=[
        Call("GET system/backups", "system backups", "Backups.", columns="name bytes made_at_ms")]),
    Act("backups.views.backup_create", "system/backups/now/", ADMIN, takes=FORM, posts=True, calls=[
        Call("POST system/backups", "system backup", "Make a backup, as a job.", takes=WORD, waits="job")]),
    Act("backups.views.backup_check", "system/backups/<str:name>/check/", ADMIN, takes=FORM, posts=True, calls=[
        Call("POST system/backups/<name>/checks", "system backup-check NAME", "Whether a backup is whole, as a job.",
             takes=WORD, waits="job")]),
    Act("backups.views.backup_download", "system/backups/<str:name>/download/",
        ADMIN.with_grants("may_read_bodies", "may_export"), confirms=True, curl=None, calls=[
        Call("GET system/backups/<name>/file", "system backup-fetch NAME", "A backup, on standard output.", raw=True)]),
    Also("backups", [
        Call("PUT system/backups/schedule", "system backup-schedule", "Every so many hours (0: never), keep so many.",
             takes=WORD, body="every_hours:int keep:int")]),
    Act("system.views.system_config", "system/config/", VIEWER, calls=[
        Call("GET system/config", "config show", "Options in force.",
             columns="section name value default hot changed_here", own_names=True)]),
    Act("system.views.system_config_change", "system/config/change/", ADMIN, takes=FORM, calls=[
        Call("PATCH system/config", "config set NAME VALUE", "Change an option of the running server.", takes=SETTINGS,
             dry_run=True, shape="option"),
        Call("PATCH system/config", "config unset NAME", "Go back to what was configured.", takes=SETTINGS,
             dry_run=True, shape="option")]),
    Act("system.definition_views.definitions_file", "system/definitions/file/", ADMIN, curl=None, calls=[
        Call("GET system/definitions/file", "config definitions export",
             "Topics, schemas, groups, users and alert rules as YAML, on standard output.", raw=True)]),
    Act("system.definition_views.definitions", "system/definitions/", ADMIN, takes=DEFINITIONS, confirms=True, calls=[
        Call("POST system/definitions", "config definitions import FILE",
             "Make what is missing and change what differs; - for standard input.", takes=DEFINITIONS, dry_run=True,
             shape="definitions")]),
    # --- jobs; the kind of a job decides who may see it and who may cancel it
    Act("jobs.views.jobs", "jobs/", VIEWER, curl="kind state", calls=[
        Call("GET jobs", "job list", "Long acts.", query=f"kind state {PAGE}",
             columns="id kind target state done total who created_at_ms", lists=True, own_names=True)]),
    Act("jobs.views.job", "jobs/<str:job>/", VIEWER, calls=[
        Call("GET jobs/<job>", "job show JOB", "One job.", own_names=True),
        Call("GET jobs/<job>", "job wait JOB", "Wait until a job has ended.", waits="job", own_names=True)]),
    Act("jobs.views.job_progress", "jobs/<str:job>/progress/", VIEWER),
    Act("jobs.views.job_cancel", "jobs/<str:job>/cancel/", VIEWER, takes=FORM, posts=True, calls=[
        Call("POST jobs/<job>/cancel", "job cancel JOB", "End a job at its next step.", takes=WORD, own_names=True)]),
    Act("jobs.views.job_file", "jobs/<str:job>/files/<str:name>/", VIEWER, curl=None, calls=[
        Call("GET jobs/<job>/files/<name>", "job fetch JOB FILE", "A file of a job, on standard output.", raw=True,
             own_names=True)]),
)  # fmt: skip
