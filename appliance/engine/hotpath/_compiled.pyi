"""For the type checker, which cannot read Cython: what `choice.py` asks of it. All else has the types of `pure.py`."""

from typing import Any

INTERFACE: int
SOURCES: int

def __getattr__(name: str) -> Any: ...
