"""Texts and errors for answers: names of codes, and advice about them. PURE."""

from __future__ import annotations

from ..errors import BadAnswer, BrokerAway, ClientError, NotPermitted, RequestRefused, RequestTimeout
from ..wire import RemotingCommand, ResponseCode
from .steps import CallFailed

_NAMES = {code: name for name, code in vars(ResponseCode).items() if isinstance(code, int)}

_ADVICE = {
    1: "The broker's log says more.",
    2: "The broker is busy; try again later.",
    3: "The server does not know this request: is it a broker, and new enough?",
    13: "The broker does not take such a message: look at its size, its properties, and the names.",
    14: "The broker cannot write: its disk may be full, or its role may forbid it. Look at its health and its log.",
    16: "Look at the permission (perm) of the topic and the broker, and at its access control: with it a client has "
    "credentials=Credentials(user, secret), and that user the permission.",
    17: "The topic does not exist there: create it, as by `rocketbox topic create`, or let brokers make topics "
    "(autoCreateTopicEnable).",
    26: "The group does not exist there: create it, or let brokers make groups (autoCreateSubscriptionGroup).",
    29: "Look at the names and the queue.",
}


def code_text(code: int) -> str:
    """Return a code as text: "code 16, NO_PERMISSION"."""
    name = _NAMES.get(code)
    return f"code {code}, {name}" if name else f"code {code}"


def advice(code: int, remark: str = "") -> str:
    """Return a sentence with a blank before it, or "". Brokers of 4.9 answer a bad signature with code 1."""
    found = _ADVICE.get(16 if "AclException" in remark else code)
    return f" {found}" if found else ""


def refusal(answer: RemotingCommand, who: str, what: str, then: str = "") -> RequestRefused:
    """Return the error for an answer whose code is none of those that `what` expects. then: a sentence to add, with a
    blank before it."""
    remark = answer.remark or ""
    kind = NotPermitted if answer.code == ResponseCode.NO_PERMISSION else RequestRefused
    text = f"{who} refused {what} with {code_text(answer.code)}: {remark[:500]}.{advice(answer.code, remark)}{then}"
    return kind(text, answer.code, remark)


def failure(failed: CallFailed, who: str, what: str, then: str = "") -> ClientError:
    """Return the error for a request, other than a send, that has no answer. then: as for `refusal`."""
    if failed.kind == "timeout":
        return RequestTimeout(f"{who} did not answer {what} in time.{then}")
    if failed.kind == "broken":
        return BadAnswer(f"{who} {failed.why}. Is that a broker's address?{then}")
    return BrokerAway(
        f"{who} cannot be reached for {what}: {failed.why}. Is the broker running, at that address?{then}"
    )


def number(answer: RemotingCommand, field: str, who: str) -> int:
    """Return a number of an answer's header, of 64 bits and not negative. Raises BadAnswer."""
    text = answer.ext_fields.get(field, "")
    if text.isascii() and text.isdigit() and len(text) < 20 and (found := int(text)) < 1 << 63:
        return found
    raise BadAnswer(f"{who} answered without a proper {field}: {text[:64]!r}.")
