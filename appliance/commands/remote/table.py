"""The table of commands, one line each. A test compares their options with the API's description.

A field is `name`, `name:type` or `name=option:type`: `name` is the API's, the option is `--name` with dashes unless
another one is given. Types: text (without one), int, bool (`--x`, `--no-x`), time, list (may be repeated), ints, pairs
(`--x key=value`), int_pairs (`--x key=12`), number. A dot in a name leads into a nested object.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """One command.

    words: as "topic edit NAME"; capitals are arguments. asks: method and path below /api/v1, with {arguments}. query,
    body: fields. fixed: fields of the body that the command itself sets, as "action=commit". columns: of a list, those
    shown without --json; a dot leads into a nested object. lists: the answer has items and a cursor. ask_first: its
    effect is shown, and has to be confirmed, before it is done. shape: the function in `shapes.py` that makes the body.
    waits: a job that --wait waits for.
    """

    words: str
    asks: str
    says: str
    query: str = ""
    body: str = ""
    fixed: str = ""
    columns: str = ""
    lists: bool = False
    dry_run: bool = False
    force: bool = False
    ask_first: bool = False
    shape: str = ""
    waits: str = ""
    raw: bool = False

    @property
    def noun(self) -> str:
        return self.words.split()[0]

    @property
    def name(self) -> str:
        return " ".join(word for word in self.words.split() if not word.isupper())

    @property
    def arguments(self) -> list[str]:
        return [word.lower() for word in self.words.split() if word.isupper()]


_PAGE = "limit:int cursor"
_TIMES = "from:time to:time"
_TOPIC = "kind read_queues:int write_queues:int readable:bool writable:bool order:bool"
_RIGHTS = "role may_read_bodies:bool may_export:bool topic_pattern group_pattern"
_MOVES = "topic queue_id before to now replays skips first_at_ms state note"
_LETTERS = "filter.topic=origin-topic filter.key=key filter.retries=retries:int filter.replayed=replayed"
_RULE = "figure pattern above:number for_minutes:int severity again_after_minutes:int on:bool channels=channel:list"
_CLEAN = "idle_hours:int q"
_GROUP = (
    "consume_enable:bool consume_broadcast_enable:bool consume_message_orderly:bool retry_queue_nums:int "
    "retry_max_times:int"
)

VERBS = (
    # --- topics
    Verb("topic list", "GET /topics", "Topics.", f"q kind system:bool category sort {_PAGE}", lists=True,
         columns="name kind read_queues write_queues messages in_rate consumers bytes"),
    Verb("topic show NAME", "GET /topics/{name}", "A topic's configuration."),
    Verb("topic create NAME", "POST /topics", "Create a topic.", body=_TOPIC, fixed="name={name}", dry_run=True,
         force=True),
    Verb("topic edit NAME", "PATCH /topics/{name}", "Change a topic's configuration.",
         body=f"{_TOPIC} reserve_hours:int", dry_run=True, force=True),
    Verb("topic delete NAME", "DELETE /topics/{name}", "Delete a topic and what nobody can read then.", dry_run=True,
         force=True, ask_first=True),
    Verb("topic clean", "POST /clean-ups", "Delete topics that nobody uses: no messages, offsets, subscribers.",
         body=_CLEAN, fixed="kind=topics", dry_run=True, ask_first=True),
    Verb("topic queues NAME", "GET /topics/{name}/queues", "Offsets of its queues.",
         columns="queue_id messages min_offset max_offset bytes newest_at_ms"),
    Verb("topic stats NAME", "GET /topics/{name}/stats", "Its rates and totals."),
    Verb("topic groups NAME", "GET /topics/{name}/groups", "Groups that consume it.",
         columns="group lag lag_ms clients"),
    Verb("topic producers NAME", "GET /topics/{name}/producers", "Who sends to it."),
    Verb("topic route NAME", "GET /topics/{name}/route", "What the name server tells clients."),
    # --- groups
    Verb("group list", "GET /groups", "Consumer groups.", f"q system:bool online:bool sort {_PAGE}", lists=True,
         columns="name model clients topics lag lag_ms retries dead_letters"),
    Verb("group show NAME", "GET /groups/{name}", "A group: its settings, members and lag."),
    Verb("group create NAME", "POST /groups", "Create a group.", body=_GROUP, fixed="name={name}", dry_run=True),
    Verb("group edit NAME", "PATCH /groups/{name}", "Change a group's settings.", body=_GROUP, dry_run=True),
    Verb("group delete NAME", "DELETE /groups/{name}", "Delete a group.", query="offsets:bool", dry_run=True,
         force=True, ask_first=True),
    Verb("group clean", "POST /clean-ups", "Delete groups that were never used: no members, offsets, retries, letters.",
         body=_CLEAN, fixed="kind=groups", dry_run=True, ask_first=True),
    Verb("group clean-offsets", "POST /clean-ups", "Delete offsets whose topic or group is gone.", body=_CLEAN,
         fixed="kind=offsets", dry_run=True, ask_first=True),
    Verb("group clients NAME", "GET /groups/{name}/clients", "Its members.", columns="client_id address version"),
    Verb("group progress NAME", "GET /groups/{name}/progress", "Where it stands in each queue.",
         columns="topic queue_id committed max_offset lag"),
    Verb("group diagnosis NAME", "GET /groups/{name}/diagnosis",
         "Why it is behind, with the message that holds up each queue that stands, and what to do about it."),
    Verb("group reset NAME", "POST /groups/{name}/offset-resets",
         "Move its offsets: to earliest, latest, a time, an offset, by a number of messages, or behind one (skip).",
         body="to topics=topic:list queues=queue:ints at_ms=at:time offset:int by:int", dry_run=True, ask_first=True,
         columns=_MOVES),
    Verb("group queues NAME", "GET /groups/{name}/queues", "Who holds each queue, what waits, what is with the client.",
         f"topic q sort {_PAGE}", lists=True,
         columns="topic queue_id committed max_offset lag lag_ms held_by in_flight next_offset"),
    Verb("group pace NAME", "GET /groups/{name}/pace", "Whether it keeps up: messages in and out a second."),
    Verb("group pause NAME", "POST /groups/{name}/pause", "Stop giving it messages, over restarts too, until resumed.",
         dry_run=True, ask_first=True),
    Verb("group resume NAME", "POST /groups/{name}/resume", "Give a paused group messages again.", dry_run=True),
    Verb("group clone NAME TARGET", "POST /groups/{name}/clone", "Another group with its offsets, or its settings too.",
         body="offsets:bool settings:bool topic", fixed="target={target}", dry_run=True),
    Verb("group ask NAME CLIENT", "POST /groups/{name}/clients/{client}/running-info",
         "What a member says of itself; --stack: and where its threads are.", query="stack:bool"),
    Verb("group reset-show NAME ID", "GET /groups/{name}/offset-resets/{id}", "One reset, queue by queue.",
         columns=_MOVES),
    Verb("group resets NAME", "GET /groups/{name}/offset-resets", "Its resets; each can be undone for a day.",
         columns="id at_ms by kind replays skips finished undo_until_at_ms undone_by"),
    Verb("group undo NAME ID", "POST /groups/{name}/offset-resets/{id}/undo", "Take a reset back.", dry_run=True,
         ask_first=True, columns=_MOVES),
    # --- clients
    Verb("client list", "GET /clients", "Who is connected.", f"q role group sort {_PAGE}", lists=True,
         columns="client_id address language version producer_groups consumer_groups connected_ms"),
    Verb("client show CLIENT", "GET /clients/{client}", "One client: its groups and queues."),
    # --- messages
    Verb("message list TOPIC", "GET /topics/{topic}/messages", "Messages of a topic, by time.",
         f"{_TIMES} queue_id=queue:int filter newest_first:bool {_PAGE}", lists=True,
         columns="stored_at_ms queue_id queue_offset tags keys body_bytes unique_id"),
    Verb("message search TEXT", "GET /search", "Find messages by id, key or topic/queue/offset.",
         f"topic {_TIMES} copies:bool {_PAGE}", fixed="q={text}", lists=True,
         columns="message.stored_at_ms for_topic state failed_tries dead_letter_of message.tags message.keys "
                 "message.unique_id message"),
    Verb("message show REF", "GET /messages/{ref}", "What happened to a message, and who has it."),
    Verb("message body REF", "GET /messages/{ref}/body", "A message's body.", "max_bytes:int"),
    Verb("message record REF", "GET /messages/{ref}/record", "The record as it is stored, with a dump.",
         "dump_bytes:int"),
    Verb("message run REF", "POST /messages/{ref}/deliveries", "Have one client of a group handle it now.",
         body="group client_id=client", dry_run=True, ask_first=True),
    Verb("message send TOPIC", "POST /topics/{topic}/messages",
         "Send a message; its body is --text, the file --file, or standard input.",
         body="tags keys=key:list properties=property:pairs queue_id=queue:int delay_level:int deliver_at_ms=at:time "
         "half_of sharding_key",
         shape="message"),
    Verb("message export TOPIC", "POST /topics/{topic}/exports",
         "Write messages to a file, as a job; --wait, then `job fetch`.",
         body="from_ms=from:time to_ms=to:time queue_id=queue:int filter format bodies:bool", waits="job"),
    Verb("message import TOPIC", "POST /topics/{topic}/imports",
         "Send the messages of an NDJSON file (--file, or standard input), as a job.", query="rate:int", dry_run=True,
         shape="lines", waits="job"),
    # --- dead letters
    Verb("dlq list", "GET /dead-letters", "Groups that have dead letters.", f"q sort {_PAGE}", lists=True,
         columns="group count oldest_at_ms newest_at_ms expires_not_before_at_ms job"),
    Verb("dlq show GROUP", "GET /groups/{group}/dead-letters", "A group's dead letters.",
         f"{_TIMES} origin_topic retries:int key replayed {_PAGE}",
         lists=True,
         columns="message.stored_at_ms origin_topic message.tags message.keys times_replayed expires_not_before_at_ms "
                 "message.unique_id message"),
    Verb("dlq replay GROUP", "POST /groups/{group}/replays", "Send dead letters again; they stay where they are.",
         body=f"target topic from_ms=from:time to_ms=to:time {_LETTERS} rate:int max_replays:int", dry_run=True,
         ask_first=True, waits="replay"),
    Verb("dlq summary GROUP", "GET /groups/{group}/dead-letters/summary", "Where and when they died."),
    Verb("dlq expiring", "GET /dead-letters/expiring", "Those that may be deleted soon.", "hours:int"),
    Verb("dlq archive GROUP", "POST /groups/{group}/dead-letters/archives",
         "Write dead letters to a file, as a job; --wait, then `job fetch`.",
         body=f"from_ms=from:time to_ms=to:time {_LETTERS} format", waits="job"),
    Verb("dlq replays", "GET /replays", "Replays, newest first.", "group",
         columns="id group state replayed total by created_at_ms"),
    Verb("dlq replay-show JOB", "GET /replays/{job}", "One replay."),
    Verb("dlq results JOB", "GET /replays/{job}/results", "What became of each dead letter.", f"result {_PAGE}",
         lists=True, columns="number queue_id queue_offset result why died_again origin_topic keys unique_id"),
    Verb("dlq pause JOB", "POST /replays/{job}/pause", "Pause a replay."),
    Verb("dlq resume JOB", "POST /replays/{job}/resume", "Have a replay go on."),
    Verb("dlq cancel JOB", "POST /replays/{job}/cancel", "End a replay for good."),
    # --- what waits
    Verb("delayed list", "GET /delayed", "Messages that wait for their time.",
         f"topic group level:int retries:bool q {_TIMES} {_PAGE}", lists=True,
         columns="due_at_ms level queue_offset topic group keys unique_id"),
    Verb("delayed deliver PLACE", "POST /delayed/acts", "Deliver now what waits at LEVEL/OFFSET.",
         fixed="action=deliver_now", shape="waiting", dry_run=True, ask_first=True),
    Verb("delayed cancel PLACE", "POST /delayed/acts", "Drop what waits at LEVEL/OFFSET.", fixed="action=drop",
         shape="waiting", dry_run=True, ask_first=True),
    Verb("delayed to-dead-letters PLACE", "POST /delayed/acts", "Make what waits at LEVEL/OFFSET a dead letter.",
         fixed="action=to_dead_letters", shape="waiting", dry_run=True, ask_first=True),
    Verb("delayed histogram", "GET /delayed/histogram", "How many are due when.",
         "bucket_ms:int buckets:int begin_ms=begin:time topic group level:int retries:bool"),
    Verb("retry list GROUP", "GET /groups/{group}/retries", "What a group tries again, by step of its ladder.",
         columns="level delay_ms waiting next_due_at_ms"),
    Verb("retry deliver GROUP PLACE", "POST /groups/{group}/retries/acts", "Try again now what waits at LEVEL/OFFSET.",
         fixed="action=deliver_now", shape="waiting", dry_run=True, ask_first=True),
    Verb("retry drop GROUP PLACE", "POST /groups/{group}/retries/acts", "Drop what waits at LEVEL/OFFSET.",
         fixed="action=drop", shape="waiting", dry_run=True, ask_first=True),
    Verb("retry to-dead-letters GROUP PLACE", "POST /groups/{group}/retries/acts",
         "Make what waits at LEVEL/OFFSET a dead letter.", fixed="action=to_dead_letters", shape="waiting",
         dry_run=True, ask_first=True),
    # --- transactions
    Verb("transaction count", "GET /transactions", "How many are open, and how others ended."),
    Verb("transaction list", "GET /transactions/open", "Transactions that are open.", f"topic group key {_PAGE}",
         lists=True,
         columns="half_offset age_ms checks waits_for_producer message.tags message.keys message.unique_id message"),
    Verb("transaction discarded", "GET /transactions/discarded", "Transactions nobody decided.",
         f"topic group key {_PAGE}", lists=True,
         columns="queue_offset checks why resumed_as message.tags message.keys message.unique_id message"),
    Verb("transaction resolved", "GET /transactions/resolved", "How transactions ended.",
         f"topic group key how by from:time {_PAGE}", lists=True,
         columns="half_offset ended_at_ms how by age_ms checks message.tags message.keys message.unique_id message"),
    # --- who needs somebody, and who is told
    Verb("need list", "GET /needs", "What needs somebody, the worst first.",
         columns="level kind name sentence key muted"),
    Verb("need mutes", "GET /needs/mutes", "What is muted, until when.", columns="id until_ms by reason sentence"),
    Verb("need mute KEY", "POST /needs/mutes", "Mute a need, by the key that the list shows: --until, --reason.",
         body="reason until_ms=until:time", fixed="key={key}"),
    Verb("need unmute ID", "DELETE /needs/mutes/{id}", "End a mute."),
    Verb("alert list", "GET /alerts", "Alerts, newest first; --on: those that last.", f"on:bool {_PAGE}", lists=True,
         columns="id severity rule subject value above since_at_ms fired_at_ms ended_at_ms ended_by"),
    Verb("alert show ID", "GET /alerts/{id}", "One alert, and whom it told."),
    Verb("alert rules", "GET /alert-rules", "When somebody is told.",
         columns="id name figure pattern above for_minutes severity on channels alerts_on"),
    Verb("alert rule ID", "GET /alert-rules/{id}", "One rule."),
    Verb("alert rule-create NAME", "POST /alert-rules", "Tell somebody: --figure lag_minutes --above 5 --channel NAME.",
         body=_RULE, fixed="name={name}", dry_run=True),
    Verb("alert rule-edit ID", "PUT /alert-rules/{id}", "Put another in its place; what is not given is the default.",
         body=f"name {_RULE}"),
    Verb("alert rule-delete ID", "DELETE /alert-rules/{id}", "Delete a rule."),
    Verb("alert channels", "GET /alert-channels", "Where it is told.", columns="id name kind language rules"),
    Verb("alert channel ID", "GET /alert-channels/{id}", "One channel, without its secrets."),
    Verb("alert channel-create", "POST /alert-channels",
         "Make one of the JSON in --file, or of standard input: name, kind, address, secret, mail.", shape="json"),
    Verb("alert channel-edit ID", "PUT /alert-channels/{id}", "Put another in its place, likewise.", shape="json"),
    Verb("alert channel-delete ID", "DELETE /alert-channels/{id}", "Delete a channel."),
    Verb("alert channel-test ID", "POST /alert-channels/{id}/tests", "Tell it something, to see whether it arrives."),
    Verb("alert silences", "GET /alert-silences", "Silences.", columns="id rule pattern until_at_ms by reason"),
    Verb("alert silence", "POST /alert-silences", "Tell nobody for --hours: --reason, one --rule, or a --pattern.",
         body="rule pattern hours:number reason"),
    Verb("alert silence-end ID", "DELETE /alert-silences/{id}", "End a silence."),
    Verb("audit list", "GET /audit", "Who changed what, newest first.",
         f"{_TIMES} action actor target kind result {_PAGE}", lists=True,
         columns="id at_ms actor action target result address"),
    Verb("transaction check", "POST /transactions/checks", "Ask the producers now.",
         body="topic group key limit:int", dry_run=True),
    Verb("transaction commit HALF_OFFSET", "POST /transactions/decisions", "Commit an open transaction.",
         body="reason", fixed="action=commit", shape="half", dry_run=True, ask_first=True),
    Verb("transaction rollback HALF_OFFSET", "POST /transactions/decisions", "Roll an open transaction back.",
         body="reason", fixed="action=roll_back", shape="half", dry_run=True, ask_first=True),
    Verb("transaction resume REF", "POST /transactions/resumes", "Make a discarded transaction an open one.",
         body="reason", fixed="ref={ref}"),
    # --- reports
    Verb("report list", "GET /reports", "The days of which there are reports, and which reports."),
    Verb("report show DAY REPORT", "GET /reports/days/{day}/{report}", "One report: digest, failures, ..."),
    Verb("report table DAY REPORT TABLE", "GET /reports/days/{day}/{report}/tables/{table}",
         "One table of a report, as CSV on standard output.", raw=True),
    Verb("report run", "POST /reports/runs", "Make the reports of a day now: yesterday, today, or YYYY-MM-DD.",
         body="day", waits="report"),
    Verb("report runs", "GET /reports/runs", "Runs, newest first.", _PAGE, lists=True,
         columns="id day state engine started_at_ms ended_at_ms rows error"),
    Verb("report run-show RUN", "GET /reports/runs/{run}", "One run."),
    Verb("report log RUN", "GET /reports/runs/{run}/log", "What a run wrote."),
    Verb("report plot DAY REPORT PLOT", "GET /reports/days/{day}/{report}/plots/{plot}",
         "One plot, as SVG on standard output.", raw=True),
    Verb("report cancel RUN", "POST /reports/runs/{run}/cancel", "End a run; the reports that there were stay."),
    Verb("report settings", "GET /reports/settings", "How reports are made."),
    Verb("report settings set", "PATCH /reports/settings", "Change how reports are made.",
         body="on:bool at zone engine master driver_mib:int memory_mib:int timeout_min:int keep_days:int "
              "limit_minutes:int limits:int_pairs digest_channels=digest_channel:list"),
    # --- the set of brokers
    Verb("ha replication", "GET /replication", "Masters and slaves, and how far each is."),
    Verb("ha quarantine NAME", "GET /replication/quarantine/{name}", "Messages that a switch cut off.",
         "offset:int limit:int"),
    Verb("ha quarantine-send NAME", "POST /replication/quarantine/{name}/sends", "Send them again, as a job.",
         waits="job"),
    Verb("ha status", "GET /replication/set", "The set of brokers: who leads, who is in sync, how far behind.",
         columns="addr is_here slot role in_sync lag_bytes lag_ms slow_ms last_epoch log_begin log_end "
                 "heard_at_ms differs "
                 "uuid"),
    Verb("ha switch", "POST /replication/set/switch",
         "Have another member lead, on the leader: --to UUID or SLOT, or the nearest.", body="to", dry_run=True,
         ask_first=True),
    Verb("ha adopt UUID", "POST /replication/set/adopt",
         "Have this member lead although nobody can vouch for its log; --confirm the set's name.", body="confirm",
         fixed="uuid={uuid}", dry_run=True, ask_first=True),
    # --- users and tokens
    Verb("user list", "GET /users", "Who may sign in.", f"q role state sort {_PAGE}", lists=True,
         columns="username role active topic_pattern group_pattern last_sign_in_at_ms"),
    Verb("user show NAME", "GET /users/{name}", "One user."),
    Verb("user create NAME", "POST /users", "Create a user; the answer has a link to set a password.", body=_RIGHTS,
         fixed="username={name}"),
    Verb("user edit NAME", "PATCH /users/{name}", "Change role, rights and patterns.", body=_RIGHTS),
    Verb("user disable NAME", "PATCH /users/{name}", "End all sessions and tokens of a user.", fixed="active=false"),
    Verb("user enable NAME", "PATCH /users/{name}", "Let a user sign in again.", fixed="active=true"),
    Verb("user sessions NAME", "GET /users/{name}/sessions", "Where a user is signed in.",
         columns="id address way since_at_ms seen_at_ms agent"),
    Verb("user end-sessions NAME", "DELETE /users/{name}/sessions", "End all sessions, or one: --session ID.",
         query="session"),
    Verb("user second-factor-off NAME", "DELETE /users/{name}/second-factor", "For who has lost the phone."),
    Verb("user second-factor-rule", "GET /system/second-factor", "Which roles need a second factor."),
    Verb("user second-factor-rule set", "PUT /system/second-factor", "Which roles need one: --role, or none.",
         body="roles=role:list"),
    Verb("wire-user list", "GET /wire-users", "Users of the wire, who sign requests to the broker.",
         f"q sort {_PAGE}", lists=True, columns="name user_type enabled secrets"),
    Verb("wire-user show NAME", "GET /wire-users/{name}", "One user of the wire, with its entries."),
    Verb("wire-user create NAME", "POST /wire-users", "Make one; its secret is shown once. --type Normal or Super.",
         body="user_type=type", fixed="name={name}", dry_run=True),
    Verb("wire-user enable NAME", "POST /wire-users/{name}/acts/enable", "Take its requests again.", dry_run=True),
    Verb("wire-user disable NAME", "POST /wire-users/{name}/acts/disable",
         "Disconnect its clients and refuse them; secrets and entries stay.", dry_run=True, ask_first=True),
    Verb("wire-user make-super NAME", "POST /wire-users/{name}/acts/make-super", "Let it do everything.", dry_run=True,
         ask_first=True),
    Verb("wire-user make-normal NAME", "POST /wire-users/{name}/acts/make-normal", "Let it do what its entries allow.",
         dry_run=True, ask_first=True),
    Verb("wire-user rotate NAME", "POST /wire-users/{name}/acts/rotate",
         "Make a new secret, shown once; the present one stays good.", dry_run=True),
    Verb("wire-user end-old-secret NAME", "POST /wire-users/{name}/acts/end-old-secret",
         "Refuse the older secret; its clients are disconnected.", dry_run=True, ask_first=True),
    Verb("wire-user delete NAME", "DELETE /wire-users/{name}", "Delete it with its secrets and entries.", dry_run=True,
         ask_first=True),
    Verb("policy list USER", "GET /wire-users/{user}/entries", "What a user of the wire may do.",
         columns="policy resource decision actions sources"),
    Verb("policy add USER RESOURCE", "POST /wire-users/{user}/entries",
         "Add an entry, as Topic:orders* --action Pub, or replace the one of this resource. --source: only from there.",
         body="actions=action:list sources=source:list decision policy", fixed="resource={resource}", dry_run=True),
    Verb("policy remove USER RESOURCE", "DELETE /wire-users/{user}/entries/{resource}", "Remove an entry.",
         query="policy", dry_run=True, ask_first=True),
    Verb("policy who RESOURCE", "GET /wire-access", "Who may do something on one, as Topic:orders.",
         f"sort {_PAGE}", fixed="resource={resource}", lists=True, columns="user user_type actions some"),
    Verb("policy refusals", "GET /wire-refusals", "What was refused, or in report mode would be, and still is.",
         f"q sort {_PAGE}", lists=True, columns="user resource actions reason count last_at_ms address"),
    Verb("policy check USER", "GET /wire-users/{user}/decision",
         "Whether it may: --action Pub --resource Topic:orders --address 10.0.0.5, and which entry decides.",
         "action resource address"),
    Verb("token list", "GET /tokens", "API tokens.", _PAGE, lists=True,
         columns="id name owner role topic_pattern group_pattern expires_at_ms revoked_at_ms"),
    Verb("token create NAME", "POST /tokens", "Create a token; its secret is shown once.",
         body=f"{_RIGHTS} expires_in_days:int", fixed="name={name}"),
    Verb("token disable ID", "DELETE /tokens/{id}", "Revoke a token."),
    # --- the server
    Verb("system show", "GET /system", "Version, addresses, directories, memory, disk."),
    Verb("system now", "GET /broker", "Rates, connections, the disk, who is behind: the overview."),
    Verb("system checks", "GET /system/checks", "What is wrong with this installation.", columns="level name sentence"),
    Verb("system metrics", "GET /metrics", "Figures that have a history.", columns="name unit"),
    Verb("system history METRIC", "GET /metrics/series", "A figure over time.",
         f"{_TIMES} step:int points:int seconds:int topic group", fixed="metric={metric}"),
    Verb("system retention", "GET /system/retention", "What is kept, and what goes next."),
    Verb("system clean", "POST /system/retention/clean", "Delete now what has expired.", query="what"),
    Verb("system bundle", "GET /system/bundle/file", "For support: a zip without secrets, on standard output.",
         raw=True),
    Verb("system bundle-contents", "GET /system/bundle", "What would be in it."),
    Verb("system backups", "GET /system/backups", "Backups.", columns="name bytes made_at_ms"),
    Verb("system backup", "POST /system/backups", "Make a backup, as a job.", waits="job"),
    Verb("system backup-check NAME", "POST /system/backups/{name}/checks", "Whether a backup is whole, as a job.",
         waits="job"),
    Verb("system backup-fetch NAME", "GET /system/backups/{name}/file", "A backup, on standard output.", raw=True),
    Verb("system backup-schedule", "PUT /system/backups/schedule", "Every so many hours (0: never), keep so many.",
         body="every_hours:int keep:int"),
    # --- settings and jobs
    Verb("config show", "GET /system/config", "Options in force.",
         columns="section name value default hot changed_here"),
    Verb("config set NAME VALUE", "PATCH /system/config", "Change an option of the running server.", shape="option",
         dry_run=True),
    Verb("config unset NAME", "PATCH /system/config", "Go back to what was configured.", shape="option", dry_run=True),
    Verb("config definitions export", "GET /system/definitions/file",
         "Topics, groups, users and alert rules as YAML, on standard output.", raw=True),
    Verb("config definitions import FILE", "POST /system/definitions",
         "Make what is missing and change what differs; - for standard input.", shape="definitions", dry_run=True),
    Verb("job list", "GET /jobs", "Long acts.", f"kind state {_PAGE}", lists=True,
         columns="id kind target state done total who created_at_ms"),
    Verb("job show JOB", "GET /jobs/{job}", "One job."),
    Verb("job wait JOB", "GET /jobs/{job}", "Wait until a job has ended.", waits="job"),
    Verb("job cancel JOB", "POST /jobs/{job}/cancel", "End a job at its next step."),
    Verb("job fetch JOB FILE", "GET /jobs/{job}/files/{file}", "A file of a job, on standard output.", raw=True),
)  # fmt: skip

NOUNS = tuple(dict.fromkeys(verb.noun for verb in VERBS))
