from __future__ import annotations

from typing import Any


class Commands:
    def __init__(self, *args: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)
