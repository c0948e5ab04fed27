from .message_snapshots import BodyView


def view_body(body: bytes, sys_flag: int, max_bytes: int) -> BodyView:
    raise NotImplementedError
