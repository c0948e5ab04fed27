"""Messages: sent, found, dead, waiting for their time, and in transactions."""

from __future__ import annotations

from ..users.roles import ADMIN, OPERATOR, VIEWER
from .row import FORM, GROUP, LIST, PAGE, REPLAY, SEND, SETTINGS, TIMES, UPLOAD, WORD, Act, Also, Call

_LETTERS = "filter.topic=origin-topic filter.key=key filter.retries=retries:int filter.replayed=replayed:no|yes|again"
_READER = VIEWER.with_grants("may_read_bodies")
_EXPORTER = VIEWER.with_grants("may_read_bodies", "may_export")

ROWS: tuple[Act | Also, ...] = (
    Act("messages.views.messages", "messages/", VIEWER, curl=None, calls=[
        Call("GET topics/<topic>/messages", "message list TOPIC", "Messages of a topic, by time.",
             query=f"{TIMES} queue_id=queue:int filter newest_first:bool body_chars:int {PAGE}",
             columns="stored_at_ms queue_id queue_offset tags keys body_bytes unique_id glance?", lists=True)]),
    Act("live.tail_views.message_tail", "messages/tail/", VIEWER, curl=None, calls=[
        Call("GET topics/<topic>/tail", "message tail TOPIC",
             "Messages as they are stored, until Ctrl-C; no group is made and no offset committed.",
             query="tags key expression one_in:int body_chars:int limit:int",
             columns="stored_at_ms queue_id queue_offset tags keys body_bytes unique_id glance", follows=True)]),
    Act("messages.search_views.search", "search/", VIEWER, curl="q!", calls=[
        Call("GET search", "message search TEXT", "Find messages by id, key or topic/queue/offset.",
             query=f"topic {TIMES} copies:bool body_chars:int {PAGE}", fixed="q={text}",
             columns="message.stored_at_ms for_topic state failed_tries dead_letter_of message.tags message.keys "
                     "message.unique_id message message.glance?", lists=True, own_names=True)]),
    Act("messages.message_views.message", "messages/<str:ref>/", VIEWER, curl=None, calls=[
        Call("GET messages/<path:ref>", "message show REF", "What happened to a message, and who has it.",
             own_names=True)]),
    Act("messages.message_views.message_content", "messages/<str:ref>/content/", _READER, curl=None, calls=[
        Call("GET messages/<path:ref>/body", "message body REF", "A message's body.", query="max_bytes:int",
             own_names=True)]),
    Act("messages.message_views.message_raw", "messages/<str:ref>/raw/", _READER, curl=None, calls=[
        Call("GET messages/<path:ref>/record", "message record REF", "The record as it is stored, with a dump.",
             query="dump_bytes:int", own_names=True)]),
    Act("messages.message_views.message_download", "messages/<str:ref>/download/", _EXPORTER),
    Act("messages.run_views.message_run", "messages/<str:ref>/run/", OPERATOR, takes=FORM, calls=[
        Call("POST messages/<path:ref>/deliveries", "message run REF", "Have one client of a group handle it now.",
             takes=SETTINGS, body="group client_id=client", dry_run=True, ask_first=True, own_names=True)]),
    Act("messages.send_views.send_message", "messages/send/", OPERATOR, takes=SEND, master=True, calls=[
        Call("POST topics/<topic>/messages", "message send TOPIC",
             "Send a message; its body is --text, the file --file, or standard input.", takes=SEND,
             body="tags keys=key:list properties=property:pairs queue_id=queue:int delay_level:int "
                  "deliver_at_ms=at:time half_of sharding_key", shape="message")]),
    # With bodies it needs the two grants as well; the view and the kind of job check them.
    Act("messages.job_views.message_export", "messages/export/", VIEWER, takes=FORM, calls=[
        Call("POST topics/<topic>/exports", "message export TOPIC",
             "Write messages to a file, as a job; --wait, then `job fetch`.", takes=SETTINGS,
             body="from_ms=from:time to_ms=to:time queue_id=queue:int filter format:ndjson|csv bodies:bool",
             waits="job")]),
    Act("messages.job_views.message_import", "messages/import/", OPERATOR, takes=UPLOAD + FORM, master=True, calls=[
        Call("POST topics/<topic>/imports", "message import TOPIC",
             "Send the messages of an NDJSON file (--file, or standard input), as a job.", takes=UPLOAD,
             query="rate:int", dry_run=True, shape="lines", waits="job")]),
    Act("messages.copy_views.message_copy", "messages/copy/", OPERATOR, takes=FORM, master=True, calls=[
        Call("POST topics/<topic>/copies", "message copy TOPIC",
             "Copy its messages to another topic (--to), as a job; the originals stay.", takes=SETTINGS,
             body="to from_ms=from:time to_ms=until:time queue_id=queue:int filter rate:int", dry_run=True,
             waits="job")]),
    # --- dead letters
    Act("dead_letters.views.dead_letter_groups", "dead-letters/", VIEWER, names=LIST, curl="q sort", calls=[
        Call("GET dead-letters", "dlq list", "Groups that have dead letters.", query=f"q sort {PAGE}",
             columns="group count oldest_at_ms newest_at_ms expires_not_before_at_ms job", lists=True)]),
    Act("dead_letters.views.dead_letters", "dead-letters/<name:name>/", VIEWER, names=GROUP, calls=[
        Call("GET groups/<group>/dead-letters", "dlq show GROUP", "A group's dead letters.",
             query=f"{TIMES} origin_topic retries:int key replayed body_chars:int {PAGE}",
             columns="message.stored_at_ms origin_topic message.tags message.keys times_replayed "
                     "expires_not_before_at_ms message.unique_id message message.glance?", lists=True)]),
    Act("dead_letters.replay_views.replay_create", "dead-letters/<name:name>/replay/", OPERATOR,
        takes=FORM, names=GROUP, master=True, calls=[
        Call("POST groups/<group>/replays", "dlq replay GROUP", "Send dead letters again; they stay where they are.",
             takes=SEND,
             body=f"target:group|original|topic topic from_ms=from:time to_ms=to:time {_LETTERS} rate:int "
                  "max_replays:int",
             dry_run=True, ask_first=True, waits="replay")]),
    Also("dead_letters", [
        Call("GET groups/<group>/dead-letters/summary", "dlq summary GROUP", "Where and when they died.")]),
    Also("dead_letter_groups", [
        Call("GET dead-letters/expiring", "dlq expiring", "Those that may be deleted soon.", query="hours:int")]),
    Act("dead_letters.archive_views.archive_create", "dead-letters/<name:name>/archive/", _EXPORTER, takes=FORM, calls=[
        Call("POST groups/<group>/dead-letters/archives", "dlq archive GROUP",
             "Write dead letters to a file, as a job; --wait, then `job fetch`.", takes=SEND,
             body=f"from_ms=from:time to_ms=to:time {_LETTERS} format:ndjson|csv", waits="job")]),
    Also("dead_letter_groups", [
        Call("GET replays", "dlq replays", "Replays, newest first.", query="group",
             columns="id group state replayed total by created_at_ms")]),
    Act("dead_letters.replay_views.replay", "replays/<str:job>/", VIEWER, names=REPLAY, calls=[
        Call("GET replays/<job>", "dlq replay-show JOB", "One replay."),
        Call("GET replays/<job>/results", "dlq results JOB", "What became of each dead letter.", query=f"result {PAGE}",
             columns="number queue_id queue_offset result why died_again origin_topic keys unique_id", lists=True)]),
    Act("dead_letters.replay_views.replay_progress", "replays/<str:job>/progress/", VIEWER, names=REPLAY),
    Act("dead_letters.replay_views.replay_results_file", "replays/<str:job>/results/", VIEWER, names=REPLAY),
    Act("dead_letters.replay_views.replay_act", "replays/<str:job>/act/",
        OPERATOR, takes=FORM, posts=True, names=REPLAY, master=True, calls=[
        Call("POST replays/<job>/<act>", "dlq pause JOB", "Pause a replay.", takes=WORD),
        Call("POST replays/<job>/<act>", "dlq resume JOB", "Have a replay go on.", takes=WORD),
        Call("POST replays/<job>/<act>", "dlq cancel JOB", "End a replay for good.", takes=WORD)]),
    # --- messages that wait
    Act("waiting.delayed_views.delayed", "delayed/", VIEWER, curl="q", calls=[
        Call("GET delayed", "delayed list", "Messages that wait for their time.",
             query=f"topic group level:int retries:bool q {TIMES} {PAGE}",
             columns="due_at_ms level queue_offset topic group keys unique_id", lists=True, own_names=True)]),
    Act("waiting.delayed_views.delayed_act", "delayed/act/", OPERATOR, takes=FORM, master=True, calls=[
        Call("POST delayed/acts", "delayed deliver PLACE", "Deliver now what waits at LEVEL/OFFSET.", takes=FORM,
             fixed="action=deliver_now", dry_run=True, ask_first=True, shape="waiting", own_names=True),
        Call("POST delayed/acts", "delayed cancel PLACE", "Drop what waits at LEVEL/OFFSET.", takes=FORM,
             fixed="action=drop", dry_run=True, ask_first=True, shape="waiting", own_names=True),
        Call("POST delayed/acts", "delayed to-dead-letters PLACE", "Make what waits at LEVEL/OFFSET a dead letter.",
             takes=FORM, fixed="action=to_dead_letters", dry_run=True, ask_first=True, shape="waiting",
             own_names=True)]),
    Act("waiting.delayed_views.delayed_done", "delayed/done/", OPERATOR),
    Also("delayed", [
        Call("GET delayed/histogram", "delayed histogram", "How many are due when.",
             query="bucket_ms:int buckets:int begin_ms=begin:time topic group level:int retries:bool",
             own_names=True)]),
    Act("waiting.retry_views.group_retries", "groups/<name:name>/retries/", VIEWER, names=GROUP, calls=[
        Call("GET groups/<group>/retries", "retry list GROUP", "What a group tries again, by step of its ladder.",
             columns="level delay_ms waiting next_due_at_ms")]),
    Act("waiting.retry_views.group_retries_act", "groups/<name:name>/retries/act/", OPERATOR,
        takes=FORM, names=GROUP, master=True, calls=[
        Call("POST groups/<group>/retries/acts", "retry deliver GROUP PLACE",
             "Try again now what waits at LEVEL/OFFSET.", takes=SEND, fixed="action=deliver_now", dry_run=True,
             ask_first=True, shape="waiting"),
        Call("POST groups/<group>/retries/acts", "retry drop GROUP PLACE", "Drop what waits at LEVEL/OFFSET.",
             takes=SEND, fixed="action=drop", dry_run=True, ask_first=True, shape="waiting"),
        Call("POST groups/<group>/retries/acts", "retry to-dead-letters GROUP PLACE",
             "Make what waits at LEVEL/OFFSET a dead letter.", takes=SEND, fixed="action=to_dead_letters", dry_run=True,
             ask_first=True, shape="waiting")]),
    Act("waiting.retry_views.group_retries_done", "groups/<name:name>/retries/done/", OPERATOR, names=GROUP),
    # --- transactions
    Act("transactions.views.transactions", "transactions/", VIEWER, calls=[
        Call("GET transactions", "transaction count", "How many are open, and how others ended."),
        Call("GET transactions/open", "transaction list", "Transactions that are open.",
             query=f"topic group key {PAGE}",
             columns="half_offset age_ms checks waits_for_producer message.tags message.keys message.unique_id message",
             lists=True, own_names=True),
        Call("GET transactions/discarded", "transaction discarded", "Transactions nobody decided.",
             query=f"topic group key {PAGE}",
             columns="queue_offset checks why resumed_as message.tags message.keys message.unique_id message",
             lists=True, own_names=True),
        Call("GET transactions/resolved", "transaction resolved", "How transactions ended.",
             query=f"topic group key how by from:time {PAGE}",
             columns="half_offset ended_at_ms how by age_ms checks message.tags message.keys message.unique_id message",
             lists=True, own_names=True)]),
    Act("transactions.views.transaction_check", "transactions/check/", OPERATOR, takes=FORM, master=True, calls=[
        Call("POST transactions/checks", "transaction check", "Ask the producers now.", takes=FORM,
             body="topic group key limit:int", dry_run=True, own_names=True)]),
    Act("transactions.views.transaction_decide", "transactions/decide/",
        ADMIN, takes=FORM, confirms=True, master=True, calls=[
        Call("POST transactions/decisions", "transaction commit HALF_OFFSET", "Commit an open transaction.",
             takes=SETTINGS, body="reason", fixed="action=commit", dry_run=True, ask_first=True, shape="half",
             own_names=True),
        Call("POST transactions/decisions", "transaction rollback HALF_OFFSET", "Roll an open transaction back.",
             takes=SETTINGS, body="reason", fixed="action=roll_back", dry_run=True, ask_first=True, shape="half",
             own_names=True)]),
    Act("transactions.views.transaction_done", "transactions/done/", OPERATOR),
    Act("transactions.views.transaction_resume", "transactions/<str:ref>/resume/",
        OPERATOR, takes=FORM, master=True, calls=[
        Call("POST transactions/resumes", "transaction resume REF", "Make a discarded transaction an open one.",
             takes=SETTINGS, body="reason", fixed="ref={ref}")]),
)  # fmt: skip
