"""The one place at which errors leave for Spark: a sentence meant for the user goes without a traceback.

Spark's Python processes send the text of an exception to the driver, which puts its own words before it. By default
that text is a traceback with the sentence at its end. Errors of the program keep theirs.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .findings import DataLoss
from .log_files import StoreMissing
from .network.errors import NetworkError
from .options import OptionError

#: Errors whose text is a sentence for the user.
_SENTENCES = (OptionError, DataLoss, StoreMissing, NetworkError)
#: The sink's are there as well; readers do not import the client.
_OF_CLIENT = "appliance.client.errors"
#: Spark's own variable for it. A process of Spark ends after the error that it sends, so nothing else is hidden.
_HIDE = "SPARK_HIDE_TRACEBACK"

T = TypeVar("T", bound=type)


def bare(*names: str) -> Callable[[T], T]:
    """Return a decorator of a class: of these methods, which Spark calls, errors with sentences leave bare."""

    def decorate(cls: T) -> T:
        for name in names:
            setattr(cls, name, _bare(getattr(cls, name)))
        return cls

    return decorate


def _bare(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        try:
            found = method(*args, **named)
        except Exception as error:
            if not _is_sentence(error):
                raise
            _hide_traceback()
            raise error.with_traceback(None) from None
        return _each(found) if isinstance(found, Iterator) else found

    return call


def _each(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except Exception as error:
        if not _is_sentence(error):
            raise
        _hide_traceback()
        raise error.with_traceback(None) from None


def _is_sentence(error: Exception) -> bool:
    if isinstance(error, OSError) and error.filename is not None:  # a path and a reason; without, it says too little
        return True
    return isinstance(error, _SENTENCES) or type(error).__module__ == _OF_CLIENT


def _hide_traceback() -> None:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name.startswith("pyspark."):
        os.environ[_HIDE] = "1"
