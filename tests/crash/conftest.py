"""For lives that crash thousands of times."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Recovery reports each tail that it cuts, and faults of a disk are errors: nothing of that is logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
