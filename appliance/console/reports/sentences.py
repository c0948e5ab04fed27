"""The whole sentences of the reports in the reader's language: notes, failures of runs, and what is missing for Spark.

The English of the notes is here; that of the others is in `spark_reports`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from appliance.engine.translatable import Plural, ngettext_lazy
from spark_reports.run import choice, failures

from ..pages.words import in_readers_language
from .words import plainly

if TYPE_CHECKING:
    from spark_reports.machine import Missing

    from .records import RunRecord

NOTES: dict[str, str | Plural] = {
    "deleted_unread": ngettext_lazy(
        "Retention deleted %(messages)s message before it was read. The most affected is group %(group)s in "
        "topic %(topic)s with %(most)s, of %(pairs)s pairs of group and topic.",
        "Retention deleted %(messages)s messages before they were read. The most affected is group %(group)s "
        "in topic %(topic)s with %(most)s, of %(pairs)s pairs of group and topic.",
        "messages",
    ),
    "deleted_unread_by_one": ngettext_lazy(
        "Retention deleted %(messages)s message of topic %(topic)s before group %(group)s had read it.",
        "Retention deleted %(messages)s messages of topic %(topic)s before group %(group)s had read them.",
        "messages",
    ),
    "deleted_unread_by_some": ngettext_lazy(
        "Retention deleted %(messages)s message before it was read. It is no longer known which group lost it.",
        "Retention deleted %(messages)s messages before they were read. It is no longer known which groups lost them.",
        "messages",
    ),
    "deleted_soon": ngettext_lazy(
        "At the rates when this was made %(groups)s group loses messages: those of topic %(topic)s will be deleted in "
        "%(left)s, before %(group)s has read them.",
        "At the rates when this was made %(groups)s groups lose messages, %(group)s first: those of topic %(topic)s "
        "will be deleted in %(left)s, before it has read them.",
        "groups",
    ),
    "refused_sends": ngettext_lazy("%(count)s send was refused.", "%(count)s sends were refused."),
    "forced_deletions": ngettext_lazy(
        "The disk was too full: %(count)s log file was deleted before its retention was over.",
        "The disk was too full: %(count)s log files were deleted before their retention was over.",
    ),
    "role_changes": ngettext_lazy(
        "There was a fail-over: the broker's role changed %(count)s time.",
        "There were fail-overs: the broker's role changed %(count)s times.",
    ),
    "starts": ngettext_lazy("The broker was started %(count)s time.", "The broker was started %(count)s times."),
    "down": gettext_noop("The broker did not run for %(count)s."),
    "worst_dead_letters": ngettext_lazy(
        "%(count)s message of group %(group)s became a dead letter.",
        "%(count)s messages of group %(group)s became dead letters.",
    ),
    "worst_retries": ngettext_lazy(
        "Group %(group)s needed %(count)s retry.", "Group %(group)s needed %(count)s retries."
    ),
    "worst_over_limit": gettext_noop("Group %(group)s was further behind than its limit for %(count)s."),
    "worst_behind": gettext_noop("Group %(group)s was up to %(count)s behind."),
    "fewer_messages": ngettext_lazy(
        "Topic %(topic)s got %(count)s message, and %(before)s the day before.",
        "Topic %(topic)s got %(count)s messages, and %(before)s the day before.",
    ),
    "nothing_wrong": gettext_noop(
        "No message was deleted unread, no send was refused, no log file was deleted before its retention was over, "
        "and the broker ran the whole time."
    ),
    # Of days that older versions counted.
    "incidents": gettext_noop(
        "Sends that were refused: %(refused_sends)s. Log files deleted before their retention was over: "
        "%(forced_deletions)s. Starts of the broker: %(starts)s. Time that it did not run: %(down)s."
    ),
    "lost_not_in_times": ngettext_lazy(
        "Retention deleted %(messages)s message before it was read: it may be missing in these times and in the error "
        "budgets.",
        "Retention deleted %(messages)s messages before they were read: they may be missing in these times and in the "
        "error budgets.",
        "messages",
    ),
    "not_delivered": ngettext_lazy(
        "%(messages)s message was not delivered by midnight. Group %(group)s waits for the most, %(most)s. A "
        "percentile that lies among those that still wait is a dash.",
        "%(messages)s messages were not delivered by midnight. Group %(group)s waits for the most, %(most)s. A "
        "percentile that lies among those that still wait is a dash.",
        "messages",
    ),
    "unfinished_day": gettext_noop("The day was not over when this was made: it goes to %(until)s."),
    "made_late": gettext_noop(
        "This was made long after the day: the groups, their clients, the queues and the disk are as they were at "
        "%(until)s."
    ),
    "earlier_run": gettext_noop(
        "Some of what the day's figures are counted of is deleted by now; they are those of an earlier run."
    ),
    "no_day_before": gettext_noop(
        "There are no facts of the whole of %(day)s, the day before: nothing can be compared with it."
    ),
    "no_week_before": gettext_noop(
        "There are no facts of the whole of %(day)s, a week before: nothing can be compared with it."
    ),
    "days_missing": ngettext_lazy(
        "Of the last %(of)s days, %(days)s has no facts and is missing in the sums.",
        "Of the last %(of)s days, %(days)s have no facts and are missing in the sums.",
        "days",
    ),
    "lag_not_measured": gettext_noop("No group was measured that day: how far behind they were is not known."),
    "groups_left_out": gettext_noop("The plot shows the first %(shown)s of %(of)s groups of the table."),
    "gap": ngettext_lazy(
        "%(places)s part of the log was deleted or cut off before it was read, and is not in the figures; it "
        "begins in the log file %(first)s and has %(bytes)s.",
        "%(places)s parts of the log were deleted or cut off before they were read, and are not in the "
        "figures; the first is in the log file %(first)s, and they have %(bytes)s in all.",
        "places",
    ),
    "corrupt": ngettext_lazy(
        "%(places)s damaged place of the log was stepped over, and is not in the figures; it is in the log "
        "file %(first)s and has %(bytes)s.",
        "%(places)s damaged places of the log were stepped over, and are not in the figures; the first is in "
        "the log file %(first)s, and they have %(bytes)s in all.",
        "places",
    ),
    "deliveries_lost": ngettext_lazy(
        "The deliveries of %(count)s answer were not written down, as the broker was too busy. Delivery times "
        "are of the others.",
        "The deliveries of %(count)s answers were not written down, as the broker was too busy. Delivery times "
        "are of the others.",
    ),
    "deliveries_gap": ngettext_lazy(
        "Deliveries were not recorded for a while, %(count)s time. Delivery times are of the others.",
        "Deliveries were not recorded for a while, %(count)s times. Delivery times are of the others.",
    ),
    "deliveries_unknown": ngettext_lazy(
        "What %(count)s answer to consumers held cannot be told, as a filter chose it; it was for group "
        "%(first)s. Delivery times are of the others.",
        "What %(count)s answers to consumers held cannot be told, as a filter chose it; the first was for "
        "group %(first)s. Delivery times are of the others.",
    ),
    "deliveries_begin": gettext_noop(
        "What is kept of deliveries begins after the day's first message: earlier deliveries are not in the times."
    ),
    "objective": gettext_noop(
        "The error budget: of a hundred messages of a week %(percent)s are to be delivered within the group's limit. "
        "The others may take longer."
    ),
    "deliveries_not_measured": gettext_noop("No delivery of that day's messages is known."),
    "log_begins": gettext_noop(
        "The log began within the day when this was made: messages of before may have been deleted, and are not in the "
        "figures."
    ),
    "finding": ngettext_lazy(
        "Found while reading, in %(places)s place: %(kind)s. It is at %(first)s.",
        "Found while reading, in %(places)s places: %(kind)s. The first is at %(first)s.",
        "places",
    ),
    "expired_not_known": ngettext_lazy(
        "How many dead letters expired is not known for %(queues)s queue, as it was made, deleted or made anew "
        "between two runs.",
        "How many dead letters expired is not known for %(queues)s queues, as they were made, deleted or made "
        "anew between two runs.",
        "queues",
    ),
    "replayed_to_groups_only": gettext_noop(
        "Replayed counts dead letters sent again to their group, not those sent to a topic."
    ),
    "no_dead_letters": gettext_noop("There was no new dead letter that day."),
    "no_retries": gettext_noop("There was no retry that day."),
    "letters_kept": gettext_noop(
        "New dead letters are those of this day. Those kept are all that were there at %(until)s, of whichever day; "
        "they expire when retention deletes them."
    ),
    "last_deliveries": gettext_noop(
        "A message is delivered again after a restart or a rebalance, and to each consumer of a group that broadcasts. "
        "A dashed curve is of the last of these deliveries. A group without one has the same times for the first and "
        "the last."
    ),
    "percentiles_interpolated": gettext_noop(
        "Percentiles are right to within 10 %%; of days counted by older versions, to within 60 %%."
    ),
    "longer_than_the_last_bound": ngettext_lazy(
        "%(messages)s delivery took longer than %(ms)s. A percentile that lies among such is a dash.",
        "%(messages)s deliveries took longer than %(ms)s. A percentile that lies among them is a dash.",
        "messages",
    ),
    "nothing_stored": gettext_noop("Nothing was stored in the last 14 days."),
    "disk_not_measured": gettext_noop("The disk was not measured that day: when it is full cannot be said."),
    "full_now": gettext_noop(
        "The disk is above %(percent)s %% already: messages are deleted before their retention is over."
    ),
    "forecast_late": gettext_noop(
        "When the disk is full is not said here, as the disk was looked at long after the day."
    ),
    "forecast_needs_days": gettext_noop(
        "When the disk is full can be said once there are facts of %(need)s days; there are %(have)s. Until then the "
        "overview tells what the rate of the last ten minutes comes to."
    ),
    "full_on": gettext_noop(
        "At this rate the disk reaches %(percent)s %% on %(day)s; from then on messages are deleted before their "
        "retention is over."
    ),
    "never_full": gettext_noop("At this rate the disk is never full: retention deletes as much as comes."),
    "not_full_within": gettext_noop("At this rate the disk is not full within %(days)s days."),
    "overview_full_on": gettext_noop(
        "The overview said that the disk reaches its limit on %(day)s: it goes by the rate of the ten minutes before "
        "this was made. What is said here goes by the last %(days)s days."
    ),
    "overview_not_full": gettext_noop(
        "The overview did not say that the disk reaches its limit: it goes by the rate of the ten minutes before "
        "this was made. What is said here goes by the last %(days)s days."
    ),
    "topics_not_known_yet": ngettext_lazy(
        "Whether %(topics)s topic is unused is known once there are facts of %(need)s days; they begin on %(day)s.",
        "Whether %(topics)s topics are unused is known once there are facts of %(need)s days; they begin on %(day)s.",
        "topics",
    ),
    "groups_not_known_yet": gettext_noop(
        "Which groups are unused is known once there are facts of %(need)s days; they begin on %(day)s."
    ),
    "no_clients": gettext_noop("No consumer was connected when this was made."),
    "producers_left_out": ngettext_lazy(
        "%(messages)s message is of producers that are not listed, as there are too many of them.",
        "%(messages)s messages are of producers that are not listed, as there are too many of them.",
        "messages",
    ),
    "skew_meaning": gettext_noop(
        "A group has at most one consumer for each queue: where the largest queue has %(percent)s %% of the average or "
        "more, further consumers help little. Most often a sharding key is much more frequent than others."
    ),
    "skew_of_few": gettext_noop(
        "With fewer than %(messages)s messages for each queue the skew of a topic is a dash: chance alone makes queues "
        "uneven."
    ),
    "ids_sampled": gettext_noop(
        "Duplicates are estimated: one of %(one_in)s ids was looked at. If fewer than %(few)s of them are of a topic, "
        "its duplicates are a dash. How often a listed id occurred is exact."
    ),
    "keys_sampled": gettext_noop(
        "How often a key occurred is estimated: the keys of one of %(one_in)s messages were looked at."
    ),
}
#: Note that answers the digest's question with no.
WELL = "nothing_wrong"
#: Notes that answer it with yes: they come before the figures.
FIRST = frozenset(
    (
        *("corrupt", "deleted_unread", "deleted_unread_by_one", "deleted_unread_by_some", "refused_sends"),
        *("forced_deletions", "role_changes", "starts", "down", "incidents", "worst_dead_letters", "worst_retries"),
        *("worst_over_limit", "worst_behind", "fewer_messages", "deleted_soon"),
    )
)


def note(key: str, values: Mapping[str, str], numbers: Mapping[str, int] | None = None) -> str:
    """Return the sentence of a note; for an unknown note, its key and values made readable. numbers: those of the
    values that are numbers, to choose between singular and plural."""
    if key in NOTES:
        try:
            return in_readers_language(NOTES[key], Counter(numbers or {})) % values
        except KeyError:
            pass
    told = ", ".join(f"{plainly(name)}: {text}" for name, text in values.items())
    return f"{plainly(key)}: {told}" if told else plainly(key)


def failure(run: RunRecord) -> str:
    """Return the reason why a run failed, in the reader's language; "" if it did not fail."""
    return _filled(failures.SENTENCES, run.why, run.values, run.error)


def why_counted_by(run: RunRecord) -> str:
    """Return the reason why Spark or plain Python counted, in the reader's language; "" if that was not chosen."""
    key = str(run.inputs.get("why", ""))
    return _(choice.WHYS[key]) if key in choice.WHYS else plainly(key)


def missing(one: Missing) -> tuple[str, str]:
    """Return two sentences: what is missing, and how to mend that."""
    from spark_reports.machine import HOWS, WHATS

    return _filled(WHATS, one.code, one.args, one.what), _filled(HOWS, one.mend, one.args, one.how)


def _filled(table: Mapping[str, str], key: str, values: Mapping[str, Any], instead: str) -> str:
    try:
        return _(table[key]) % values
    except (KeyError, TypeError, ValueError):
        return instead
