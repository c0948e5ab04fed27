"""Reasons for which Spark or plain Python counts a day, each as words with a key, so that they can be translated."""

from __future__ import annotations

from appliance.engine.translatable import gettext_noop as _

#: key -> the words, which stand alone or behind "since".
WHYS = {
    "as_set": _("the settings say so"),
    "small": _("the day has less than 4 GiB of log, which plain Python counts as fast"),
    "large": _("the day has 4 GiB of log or more"),
    "not_installed": _("the day has 4 GiB of log or more, but Spark is not installed"),
    "no_room": _("the day has 4 GiB of log or more, but there is too little memory or disk for Spark"),
}
