"""The rules of the language, recorded from Apache's filter module 5.3.3: tests/golden/sql92, written by
tests/support/sql92/record.py."""

import json
from collections import Counter

import pytest

from appliance.engine.filter.sql92 import Sql92Expression, SqlError
from tests.support.sql92.expressions import verdict
from tests.support.sql92.record import LETTERS, RECORDED

BLOCKS = json.loads(RECORDED.read_text(encoding="ascii"))
CASES = [
    pytest.param(text, recorded, block["properties"], id=f"{number}-{block['rule'].split(':')[0]}-{text[:40]!a}")
    for number, block in enumerate(BLOCKS)
    for text, recorded in block["verdicts"].items()
]
# Places that are reported differently on purpose. Of a lexical error RocketMQ names the character at which its
# automaton gave up, and one further at the end of the text; RocketBox names the one with which no token begins. Behind
# a `+` RocketMQ names the sign, as it reads ahead there.
_LEXICAL = "TokenMgrError"


@pytest.mark.parametrize(("text", "recorded", "properties"), CASES)
def test_a_verdict_is_apaches(text, recorded, properties):
    if recorded.startswith("REFUSED"):
        _, kind, line, column = recorded.split()
        with pytest.raises(SqlError) as refusal:
            Sql92Expression(text)
        assert refusal.value.line >= 1
        assert refusal.value.column >= 1
        if line != "0" and kind != _LEXICAL and "+" not in text:
            assert (refusal.value.line, refusal.value.column) == (int(line), int(column))
        return
    ours = "".join([LETTERS[verdict(text, values)] for values in properties])
    assert [*zip(ours, properties, strict=True)] == [*zip(recorded, properties, strict=True)]


def test_the_table_holds_every_kind_of_verdict():
    recorded = [answer for block in BLOCKS for answer in block["verdicts"].values()]
    refused = [answer for answer in recorded if answer.startswith("REFUSED")]
    letters = Counter("".join([answer for answer in recorded if answer not in refused]))
    assert min(letters[letter] for letter in LETTERS.values()) > 300, letters
    assert len(refused) > 100
