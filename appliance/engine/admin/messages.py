from __future__ import annotations

from typing import Any


class MessageViews:
    def __init__(self, broker: Any, index: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)
