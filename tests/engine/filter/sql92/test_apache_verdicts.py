"""Expressions that hypothesis makes, evaluated by RocketBox and Apache's filter module: the verdicts are the same."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.effort import effort
from tests.support.sql92.apache_filter import ApacheFilter
from tests.support.sql92.expressions import questions, verdict

BATCH = 35
#: Each has some 110 verdicts.
BATCHES = effort(35, 105, 1_000)


@pytest.fixture(scope="module")
def apache():
    with ApacheFilter() as running:
        yield running


def test_every_verdict_is_apaches(apache):
    seen = Counter()

    @settings(max_examples=BATCHES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(questions, min_size=BATCH, max_size=BATCH))
    def compare(batch):
        pairs = [(text, values) for text, maps in batch for values in maps]
        theirs = [answer.split()[0] for answer in apache.verdicts(pairs)]
        for (text, values), wanted in zip(pairs, theirs, strict=True):
            assert verdict(text, values) == wanted, f"{text!r} {values!r}"
            seen[wanted] += 1

    compare()
    assert seen.total() >= 95 * BATCHES, seen
    # Each kind of verdict must be frequent enough to have been compared.
    assert min(seen[kind] for kind in ("TRUE", "FALSE", "NULL", "THROWS", "REFUSED")) >= 2.8 * BATCHES, seen
