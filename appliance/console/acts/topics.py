"""Topics, consumer groups, and clients that are connected."""

from __future__ import annotations

from collections.abc import Iterable

from ...engine.admin_settings import GROUP_SETTINGS, NEW_TOPIC_SETTINGS, TOPIC_SETTINGS, Setting
from ..users.roles import ADMIN, OPERATOR, VIEWER
from .row import FORM, GROUP, LIST, PAGE, SCHEMA, SETTINGS, TOPIC, WORD, Act, Also, Call

_TYPES = {bool: ":bool", int: ":int", str: ""}


def _options(settings: Iterable[Setting]) -> str:
    return " ".join(
        f"{one.name}:{'|'.join(one.choices)}" if one.choices else f"{one.name}{_TYPES[type(one.default)]}"
        for one in settings
    )


_TOPIC, _NEW_TOPIC, _GROUP = map(_options, (TOPIC_SETTINGS, NEW_TOPIC_SETTINGS, GROUP_SETTINGS))
_MOVES = "topic queue_id before to now replays skips first_at_ms state note"
_CLEAN = "idle_hours:int q"

ROWS: tuple[Act | Also, ...] = (
    # --- topics
    Act("topics.views.topics", "topics/", VIEWER, names=LIST, curl="q kind sort", calls=[
        Call("GET topics", "topic list", "Topics.", query=f"q kind system:bool category sort {PAGE}",
             columns="name kind read_queues write_queues messages in_rate consumers bytes", lists=True)]),
    Act("topics.views.topic", "topics/<name:name>/", VIEWER, names=TOPIC, calls=[
        Call("GET topics/<topic>", "topic show NAME", "A topic's configuration.")]),
    Act("topics.views.topic_create", "create/topic/", OPERATOR, takes=FORM, master=True, calls=[
        Call("POST topics", "topic create NAME", "Create a topic.", takes=SETTINGS, body=_NEW_TOPIC,
             fixed="name={name}", dry_run=True, force=True, own_names=True)]),
    Act("topics.views.topic_edit", "topics/<name:name>/edit/", ADMIN, takes=FORM, names=TOPIC, master=True, calls=[
        Call("PATCH topics/<topic>", "topic edit NAME", "Change a topic's configuration.", takes=SETTINGS,
             body=_TOPIC, dry_run=True, force=True)]),
    Act("topics.views.topic_delete", "topics/<name:name>/delete/",
        ADMIN, takes=FORM, confirms=True, names=TOPIC, master=True, calls=[
        Call("DELETE topics/<topic>", "topic delete NAME", "Delete a topic and what nobody can read then.", takes=WORD,
             dry_run=True, force=True, ask_first=True)]),
    Act("topics.purge_views.topic_purge", "topics/<name:name>/purge/",
        ADMIN, takes=FORM, confirms=True, names=TOPIC, master=True,
        calls=[
        Call("POST topics/<topic>/purge", "topic purge NAME",
             "Show its messages no longer: all so far, or those stored before a time.", takes=WORD,
             body="before_ms=before:time", dry_run=True, force=True, ask_first=True)]),
    Act("topics.schema_views.topic_schema", "topics/<name:name>/schema/", OPERATOR, takes=SCHEMA, names=TOPIC,
        master=True, calls=[
        Call("PUT topics/<topic>/schema", "topic schema set NAME",
             "Show its bodies by this schema, from --file or standard input.", takes=SCHEMA,
             body="kind message", dry_run=True, shape="schema"),
        Call("DELETE topics/<topic>/schema", "topic schema remove NAME", "Show its bodies without a schema.",
             takes=WORD, dry_run=True)]),
    Act("topics.clean_up_views.clean_up", "clean-up/", ADMIN, takes=FORM, confirms=True, master=True, calls=[
        Call("POST clean-ups", "topic clean", "Delete topics that nobody uses: no messages, offsets, subscribers.",
             takes=SETTINGS, body=_CLEAN, fixed="kind=topics", dry_run=True, ask_first=True)]),
    Also("topic", [
        Call("GET topics/<topic>/queues", "topic queues NAME", "Offsets of its queues.",
             columns="queue_id messages min_offset max_offset bytes newest_at_ms"),
        Call("GET topics/<topic>/stats", "topic stats NAME", "Its rates and totals."),
        Call("GET topics/<topic>/schema", "topic schema show NAME", "The schema of its bodies."),
        Call("GET topics/<topic>/groups", "topic groups NAME", "Groups that consume it.",
             columns="group lag lag_ms clients"),
        Call("GET topics/<topic>/producers", "topic producers NAME", "Who sends to it."),
        Call("GET topics/<topic>/route", "topic route NAME", "What the name server tells clients.")]),
    # --- groups
    Act("groups.views.groups", "groups/", VIEWER, names=LIST, curl="q sort", calls=[
        Call("GET groups", "group list", "Consumer groups.", query=f"q system:bool online:bool sort {PAGE}",
             columns="name model clients topics lag lag_ms retries dead_letters", lists=True)]),
    Act("groups.group_views.group", "groups/<name:name>/", VIEWER, names=GROUP, calls=[
        Call("GET groups/<group>", "group show NAME", "A group: its settings, members and lag.")]),
    Act("groups.group_views.group_now", "groups/<name:name>/now/", VIEWER, names=GROUP),
    Act("groups.views.group_create", "create/group/", OPERATOR, takes=FORM, master=True, calls=[
        Call("POST groups", "group create NAME", "Create a group.", takes=SETTINGS, body=_GROUP, fixed="name={name}",
             dry_run=True, own_names=True)]),
    Act("groups.views.group_edit", "groups/<name:name>/edit/", ADMIN, takes=FORM, names=GROUP, master=True, calls=[
        Call("PATCH groups/<group>", "group edit NAME", "Change a group's settings.", takes=SETTINGS, body=_GROUP,
             dry_run=True)]),
    Act("groups.views.group_delete", "groups/<name:name>/delete/",
        ADMIN, takes=FORM, confirms=True, names=GROUP, master=True, calls=[
        Call("DELETE groups/<group>", "group delete NAME", "Delete a group.", takes=WORD, query="offsets:bool",
             dry_run=True, force=True, ask_first=True)]),
    Also("clean_up", [
        Call("POST clean-ups", "group clean",
             "Delete groups that were never used: no members, offsets, retries, letters.", takes=SETTINGS, body=_CLEAN,
             fixed="kind=groups", dry_run=True, ask_first=True),
        Call("POST clean-ups", "group clean-offsets", "Delete offsets whose topic or group is gone.", takes=SETTINGS,
             body=_CLEAN, fixed="kind=offsets", dry_run=True, ask_first=True)]),
    Also("group", [
        Call("GET groups/<group>/clients", "group clients NAME", "Its members.", columns="client_id address version"),
        Call("GET groups/<group>/progress", "group progress NAME", "Where it stands in each queue.",
             columns="topic queue_id committed max_offset lag")]),
    Act("groups.group_views.group_diagnosis", "groups/<name:name>/diagnosis/", VIEWER, names=GROUP, calls=[
        Call("GET groups/<group>/diagnosis", "group diagnosis NAME",
             "Why it is behind, with the message that holds up each queue that stands, and what to do about it.")]),
    # This one and its undoing check the topics, too.
    Act("groups.reset_views.group_reset", "groups/<name:name>/reset/",
        OPERATOR, takes=FORM, names=GROUP, master=True, calls=[
        Call("POST groups/<group>/offset-resets", "group reset NAME",
             "Move its offsets: to earliest, latest, a time, an offset, by a number of messages, or behind one "
             "(skip).", takes=FORM,
             body="to:earliest|latest|time|offset|shift|skip topics=topic:list queues=queue:ints at_ms=at:time "
                  "offset:int by:int",
             columns=_MOVES, dry_run=True, ask_first=True, shape="reset")]),
    Also("group", [
        Call("GET groups/<group>/queues", "group queues NAME",
             "Who holds each queue, what waits, what is with the client.", query=f"topic q sort {PAGE}",
             columns="topic queue_id committed max_offset lag lag_ms held_by in_flight next_offset", lists=True),
        Call("GET groups/<group>/pace", "group pace NAME", "Whether it keeps up: messages in and out a second.")]),
    Act("groups.act_views.group_pause", "groups/<name:name>/pause/",
        OPERATOR, takes=FORM, names=GROUP, master=True, calls=[
        Call("POST groups/<group>/pause", "group pause NAME",
             "Stop giving it messages, over restarts too, until resumed.", takes=WORD, dry_run=True, ask_first=True),
        Call("POST groups/<group>/resume", "group resume NAME", "Give a paused group messages again.", takes=WORD,
             dry_run=True)]),
    Act("groups.act_views.group_clone", "groups/<name:name>/clone/", OPERATOR, takes=FORM, master=True, calls=[
        Call("POST groups/<group>/clone", "group clone NAME TARGET",
             "Another group with its offsets, or its settings too.", takes=SETTINGS,
             body="offsets:bool settings:bool topic", fixed="target={target}", dry_run=True)]),
    Act("groups.client_views.client_ask", "clients/<name:client_id>/ask/", OPERATOR, takes=FORM, posts=True, calls=[
        Call("POST groups/<group>/clients/<path:client_id>/running-info", "group ask NAME CLIENT",
             "What a member says of itself; --stack: and where its threads are.", takes=WORD, query="stack:bool",
             columns="topic queue_id committed cached locked dropped last_pull_at_ms last_consume_at_ms")]),
    Act("groups.reset_views.group_reset_done", "groups/<name:name>/resets/<int:number>/", VIEWER, names=GROUP, calls=[
        Call("GET groups/<group>/offset-resets/<int:reset_id>", "group reset-show NAME ID",
             "One reset, queue by queue.", columns=_MOVES)]),
    Act("groups.reset_views.group_reset_progress", "groups/<name:name>/resets/<int:number>/progress/",
        VIEWER, names=GROUP),
    Act("groups.reset_views.group_resets", "groups/<name:name>/resets/", VIEWER, names=GROUP, calls=[
        Call("GET groups/<group>/offset-resets", "group resets NAME", "Its resets; each can be undone for a day.",
             columns="id at_ms by kind replays skips finished undo_until_at_ms undone_by")]),
    Act("groups.reset_views.group_reset_undo", "groups/<name:name>/resets/<int:number>/undo/", OPERATOR, takes=FORM,
        names=GROUP, master=True, calls=[
        Call("POST groups/<group>/offset-resets/<int:reset_id>/undo", "group undo NAME ID", "Take a reset back.",
             takes=WORD, columns=_MOVES, dry_run=True, ask_first=True)]),
    # --- clients
    Act("system.connect_views.connect", "connect/", VIEWER, curl="topic user tls language", calls=[
        Call("GET connect", "client programs", "Programs for each client, with this server's address in them.",
             query="topic user tls language", columns="key name needs prepare produce consume")]),
    Act("system.connect_views.connect_try", "connect/try/", OPERATOR,
        curl="client host tls topic group user address", calls=[
        Call("GET connect/trial", "client try CLIENT",
             "Try a connection as java, java4, go, python, cpp or python-cpp makes it, and say what is wrong.",
             query="host tls:bool topic group user address", fixed="client={client}",
             columns="level name sentence")]),
    Act("groups.client_views.clients", "clients/", VIEWER, curl="q role group sort", calls=[
        Call("GET clients", "client list", "Who is connected.", query=f"q role group sort {PAGE}",
             columns="client_id address language version producer_groups consumer_groups connected_ms", lists=True,
             own_names=True)]),
    Act("groups.client_views.client", "clients/<name:client_id>/", VIEWER, calls=[
        Call("GET clients/<path:client_id>", "client show CLIENT", "One client: its groups and queues.",
             columns="client_id address language version producer_groups consumer_groups connected_ms heartbeat_at_ms "
                     "parked_pulls", own_names=True)]),
)  # fmt: skip
