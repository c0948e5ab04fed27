"""Every error of the engine.

RocketBoxError
├── StartError            the engine cannot start; its text is the one sentence the operator reads
├── FrameError            a peer sent bytes that are no frame: refuse, then close that connection
├── RefusedRequest        a peer's request is wrong or not allowed: answer its code, keep the connection
├── StoreBroken           a write or a sync of the log failed: nothing may be appended until a restart
├── RemotingError         a call of ours to a peer failed
│   ├── ConnectError      no connection
│   └── CallTimeout       no answer in time
└── CorruptFile           a file of ours does not hold what its format promises
"""


class RocketBoxError(Exception):
    """The root of the tree above."""


class StartError(RocketBoxError):
    """The engine cannot start. `str(error)` is one complete sentence."""


class FrameError(RocketBoxError):
    """Bytes that are not a frame of the remoting protocol."""


class RefusedRequest(RocketBoxError):
    """A request answered with `code` (a RocketMQ response code) and `remark`."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class MessageTooLarge(RocketBoxError):
    """A record or batch that fits no commit log file."""


class StoreBroken(RocketBoxError):
    """The commit log refuses appends since a write or a sync failed."""


class RemotingError(RocketBoxError):
    """A call to a peer failed."""


class ConnectError(RemotingError):
    """The peer could not be reached, or the connection broke before the answer."""


class CallTimeout(RemotingError):
    """The peer did not answer within the call's limit."""


class CorruptFile(RocketBoxError):
    """A file does not hold what its format promises."""
