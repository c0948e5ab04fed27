"""Forms of texts in requests: patterns, for programs that read the schema, and their words for people."""

from __future__ import annotations

TIME_OF_DAY = r"^([01]\d|2[0-3]):[0-5]\d$"
DAY = r"^(yesterday|today|\d{4}-\d\d-\d\d)$"
VISIBLE = r"^[!-~]+$"
#: Pattern -> the sentence behind the field's name, for a text that does not fit.
WORDS = {
    TIME_OF_DAY: "must be a time of the day as HH:MM, as 02:00",
    DAY: "must be today, yesterday, or a day as YYYY-MM-DD",
    VISIBLE: "must be letters, digits and signs without blanks",
}
