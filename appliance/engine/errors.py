"""All errors of the engine.

RocketBoxError
├── StartError            the engine cannot start, or a command cannot run; its text is a sentence for the operator
├── FrameError            a peer sent bytes that are not a frame: refuse, then close that connection
│   └── HeaderTextError   a whole frame, with a text in its header that is not UTF-8: refuse that request
├── RefusedRequest        a peer's request is wrong or not allowed: answer its code, keep the connection
├── MessageTooLarge       a message or batch does not fit a file of the commit log
├── StoreBroken           a write or a sync of the log failed: nothing is appended until a restart
├── QueueBroken           a queue's files are being rebuilt from the log: try again later
├── RemotingError         a call from here to a peer failed
│   ├── ConnectError      no connection, or it broke before the answer
│   └── CallTimeout       no answer in time
├── SqlError              a filter expression is not SQL92 (filter/sql92): where, and why
├── CorruptFile           a file does not match its format
└── AdminError            a request to the window cannot be done; the text is for people
    ├── NotFound          there is no such topic, group, message ...
    ├── InvalidInput      a value is wrong; `field` names it
    ├── Conflict          it exists already, or was changed since it was read (another revision)
    ├── Blocked           it would lose something, named in `blockers`; force does it anyway
    └── Unavailable       not now: no broker runs here, the log is read-only, too much at once
"""


class RocketBoxError(Exception):
    """The root of the tree above."""


class StartError(RocketBoxError):
    """The engine cannot start, or a command cannot run. `str(error)` is one complete sentence."""


class FrameError(RocketBoxError):
    """A peer sent bytes that are not a frame of the remoting protocol."""


class HeaderTextError(FrameError):
    """A frame is whole, and a text in its header is not UTF-8."""


class RefusedRequest(RocketBoxError):
    """A request answered with `code` (a RocketMQ response code) and `remark`."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class MessageTooLarge(RocketBoxError):
    """A message or batch does not fit a file of the commit log."""


class StoreBroken(RocketBoxError):
    """The commit log takes no appends: a write or a sync has failed."""


class QueueBroken(RocketBoxError):
    """A queue's files are being rebuilt from the log."""


class RemotingError(RocketBoxError):
    """A call from here to a peer failed."""


class ConnectError(RemotingError):
    """The peer could not be reached, or the connection broke before the answer."""


class CallTimeout(RemotingError):
    """The peer did not answer in time."""


class CorruptFile(RocketBoxError):
    """A file does not match its format."""


class AdminError(RocketBoxError):
    """A request to the window cannot be done. Nothing was changed, unless a subclass documents otherwise.

    reason: a `window.sentences.Sentence`, which a page can show in another language, or plain English text; `sentence`
    is the former, or None. rocketmq_code: the response code a tool gets for it.
    """

    rocketmq_code: int = 1

    def __init__(self, reason: object) -> None:
        super().__init__(str(reason))
        self.sentence = None if isinstance(reason, str) else reason


class NotFound(AdminError):
    """There is no such thing. kind: "topic", "group", "message", "option", "queue", "reset", "wire_user". name: as the
    caller gave it."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"There is no {kind.replace('_', ' ')} {name}.")
        self.kind = kind
        self.name = name
        self.rocketmq_code = {"topic": 17, "group": 26, "message": 22}.get(kind, 1)


class InvalidInput(AdminError):
    """One value of the input is wrong. field: the argument, setting or option; "" when the broker refused the whole."""

    def __init__(self, field: str, reason: object, rocketmq_code: int = 29) -> None:
        super().__init__(reason)
        self.field = field
        self.rocketmq_code = rocketmq_code


class Conflict(AdminError):
    """It exists already, or was changed since the caller read it."""


class Blocked(AdminError):
    """A change that would lose something. blockers: `Sentence`s that name it. change: the preview they belong to."""

    def __init__(self, reason: object, blockers: tuple[object, ...], change: object) -> None:
        super().__init__(reason)
        self.blockers = blockers
        self.change = change


class Unavailable(AdminError):
    """It cannot be done now. After a time-out it may have been done nevertheless; the text mentions that."""

    rocketmq_code = 14
