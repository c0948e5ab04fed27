"""fastjson's dialect: Apache's own files come back byte for byte, and what is no document is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine import fastjson
from tests.support.golden import GOLDEN

FILES = sorted((GOLDEN / "config").rglob("*.json"))


def with_integer_keys(value):
    """Keys that were unquoted in the file, as integers again: all-digit keys are never anything else there."""
    if isinstance(value, dict):
        return {int(key) if key.isdigit() else key: with_integer_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_integer_keys(item) for item in value]
    return value


def test_there_are_recorded_files_of_both_versions():
    assert {path.parts[-3] for path in FILES} == {"4.9.8", "5.3.3"}
    assert {path.name for path in FILES} >= {
        "topics.json",
        "subscriptionGroup.json",
        "consumerOffset.json",
        "delayOffset.json",
        "consumerFilter.json",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_a_file_of_apache_comes_back_byte_for_byte(path):
    text = path.read_bytes()
    assert fastjson.encode_pretty(with_integer_keys(fastjson.loads(text))).encode() == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":[1,2.5,"x",true,null]}', {"a": [1, 2.5, "x", True, None]}),
        ('{"brokerAddrs":{0:"ip:1",1:"ip:2"}}', {"brokerAddrs": {"0": "ip:1", "1": "ip:2"}}),
        ("{0:1}", {"0": 1}),
        ("{ -3 : 1 ,\n\t4:2 }", {"-3": 1, "4": 2}),
        ('{"t@g":{0:5\n\t\t},"x":"{0:1}, {2:3}"}', {"t@g": {"0": 5}, "x": "{0:1}, {2:3}"}),
        (r'{"q":"\"{1:2","r":{1:2}}', {"q": '"{1:2', "r": {"1": 2}}),
        ('{"offsetTable":{{"queueId":0,"topic":"t"}:12}}', {"offsetTable": {'{"queueId":0,"topic":"t"}': 12}}),
        ('{{"a":{1:2}}:[{3:4},"x\\n"]}', {'{"a":{"1":2}}': [{"3": 4}, "x\n"]}),
        ('{"a":{"x":[1,{"y":2}]},"b":{"$ref":"$.a.x[1]"}}', {"a": {"x": [1, {"y": 2}]}, "b": {"y": 2}}),
        ('{"a":{"k.1":7},"b":{"$ref":"$.a.k\\\\.1"}}', {"a": {"k.1": 7}, "b": 7}),
        ('{"a":{"$ref":"$.nowhere"},"b":{"$ref":"@x"}}', {"a": None, "b": None}),
    ],
)
def test_the_dialect_is_read(text, value):
    assert fastjson.loads(text) == value
    assert fastjson.loads(text.encode()) == value


@pytest.mark.parametrize("text", ['{"a":{"$ref":"$"}}', '{"a":{"b":{"$ref":".."}}}', '{"a":{"b":[{"$ref":"$.a"}]}}'])
def test_a_reference_to_what_is_around_it_makes_no_endless_value(text):
    json.dumps(fastjson.loads(text), check_circular=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "{",
        '{"a"}',
        '{"a":1,}',
        "{0:}",
        "{0 1}",
        '{"a":1} x',
        "{{:1}}",
        "{[1]:1}",
        "{true:1}",
        "{1.5:1}",
        '{"a',
        '{"a\\',
        "{0:" * 30,
        "[" * 200_000,
        "{0:" * 200_000,
        '{"a":' * 100_000 + '{"$ref":"$"}',
        '{{"a":1}:' * 100 + "1" + "}" * 100,
        "\x00",
    ],
    ids=lambda text: text[:12],
)
def test_what_is_no_document_is_refused(text):
    with pytest.raises(ValueError):
        fastjson.loads(text)


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(ValueError):
        fastjson.loads(b'{"a":"\xff"}')


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(blacklist_categories=("Cs",))),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(blacklist_categories=("Cs",)), max_size=8), inner, max_size=4)
        | st.dictionaries(st.integers(-9, 99), inner, min_size=1, max_size=4)
    ),
    max_leaves=20,
)


def as_read(value):
    if isinstance(value, dict):
        return {str(key): as_read(item) for key, item in value.items()}
    return [as_read(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_what_is_written_is_read_again(value):
    if '"$ref"' not in fastjson.encode_pretty(value):
        assert fastjson.loads(fastjson.encode_pretty(value)) == as_read(value)


def test_half_a_surrogate_pair_is_not_written():
    with pytest.raises(UnicodeEncodeError):
        fastjson.encode_pretty({"a": "\ud800"})


def test_a_large_document_comes_in_small_pieces_that_join_to_the_same_text():
    table = {f"T{number}": {"perm": 6, "queues": {0: number}} for number in range(1000)}
    entries = (f'"{name}":{fastjson.encode_pretty(value, 2)}'.encode() for name, value in table.items())
    pieces = list(fastjson.pretty_document([("a", b"1"), ("empty", iter(())), ("table", entries)]))
    assert b"".join(pieces).decode() == fastjson.encode_pretty({"a": 1, "empty": {}, "table": table})
    assert max(map(len, pieces)) < len(b"".join(pieces)) / 3
