"""Takes secrets out of texts that leave the house: those that are known, and whatever looks like one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

OUT = "[left-out]"
#: Characters that are looked through at a time: one call keeps the interpreter from all other threads.
_AT_ONCE = 8192
_NEXT_LINE = re.compile(r"\n(?=\d)")
#: Shorter ones stand in every second word.
_SHORTEST = 5

_NAME = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential|cookie|auth)"
)
SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
# Strangers write into the log: each pattern takes time in proportion to the text, so a run of letters is looked at
# from its beginning only, and none of it is given back.
_PATTERNS = (
    # what a query says
    (re.compile(r"(https?://(?:(?!https?://)[^\s\"'?#])*+)[?#][^\s\"']+"), rf"\1?{OUT}"),
    # user:password@ of an address
    (re.compile(r"((?<![\w+.-])[\w+.-]++://)[^/\s@\"']++@"), rf"\1{OUT}@"),
    (re.compile(r"\brbx_[A-Za-z0-9_-]{4,}"), OUT),
    (re.compile(r"\b(Bearer|Basic|Digest)\s+[A-Za-z0-9._~+/=-]{4,}", re.IGNORECASE), rf"\1 {OUT}"),
    (re.compile(rf"((?<![\w.-])(?=[\w.-]*?{_NAME})[\w.-]++[\"']?\s*+(?:[=:]|\bis\b)\s*+)(\"[^\"]*\"|'[^']*'|[^\s,;)\]}}]+)", re.IGNORECASE), rf"\1{OUT}"),  # noqa: E501
    # keys of messages, which are customers' order numbers and names
    (re.compile(r"(\b(?:keys?|unique_key|uniq_key|KEYS|UNIQ_KEY|body)[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|\[[^\]]*\]|[^\s,;)\]}]+)"), rf"\1{OUT}"),  # noqa: E501
    (re.compile(r"-----BEGIN [A-Z ]++-----(?:(?!-----BEGIN ).)*?-----END [A-Z ]++-----", re.DOTALL), OUT),
    (re.compile(r"\b(?:pbkdf2_sha256|argon2\w*|bcrypt\w*|scrypt|md5)\$[^\s\"']+"), OUT),
    (re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"), OUT),
    (re.compile(r"(/setup/)[A-Za-z0-9_-]{8,}"), rf"\1{OUT}"),
)  # fmt: skip


class Scrubber:
    """Knows the secrets of one installation."""

    def __init__(self, secrets: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        """names: of people, which are taken out where they stand alone."""
        known = sorted({one for one in secrets if len(one) >= _SHORTEST}, key=len, reverse=True)
        parts = [re.escape(one) for one in known]
        parts += [rf"(?<![\w.@+-]){re.escape(one)}(?![\w.@+-])" for one in sorted(set(names), key=len, reverse=True)]
        self._known = re.compile("|".join(parts)) if parts else None

    def text(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(OUT, text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def long_text(self, text: str) -> str:
        """The same of a log, whose lines begin with a number: some lines at a time, so that others get their turns."""
        done, at = [], 0
        while at < len(text):
            end = _NEXT_LINE.search(text, at + _AT_ONCE)
            until = len(text) if end is None else end.start()
            done.append(self.text(text[at:until]))
            at = until
        return "".join(done)

    def value(self, value: Any, name: str = "") -> Any:
        """JSON without secrets: what a secret's name stands at, and what looks like one."""
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(one, str(key)) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one, name) for one in value]
        if isinstance(value, str):
            return OUT if value and SECRET_NAME.search(name) else self.text(value)
        return value


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Of the environment."""
    return [value for name, value in environ.items() if SECRET_NAME.search(name)]
