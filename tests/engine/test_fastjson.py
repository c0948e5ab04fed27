"""fastjson's dialect: Apache's own files come back byte for byte, and malformed documents are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine import fastjson
from tests.support.golden import GOLDEN

FILES = sorted((GOLDEN / "config").rglob("*.json"))


def with_integer_keys(value):
    """Turn keys that were unquoted in the file into integers again: all-digit keys are never anything else there."""
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


# --- what a stranger may send


def fan_out(levels):
    """Return levels that each refer twice to the next one, so that the expansion doubles with each."""
    rows = [f'"a{level}":[{{"$ref":"$.a{level + 1}"}},{{"$ref":"$.a{level + 1}"}}]' for level in range(levels)]
    return "{" + ",".join([*rows, f'"a{levels}":["x"]']) + "}"


def test_references_make_a_document_some_times_larger_and_no_more():
    assert fastjson.loads(fan_out(3))["a0"] == [[[["x"]] * 2] * 2] * 2
    for levels in (20, 30):
        with pytest.raises(ValueError, match="its references make the document too large"):
            fastjson.loads(fan_out(levels))


def test_references_to_long_texts_are_counted_in_characters():
    text = json.dumps({"a": ["x" * 100_000], "b": [{"$ref": "$.a"}] * 1000})
    with pytest.raises(ValueError, match="its references make the document too large"):
        fastjson.loads(text)


def test_a_long_path_is_paid_for_each_time_it_is_followed():
    text = json.dumps({"x": {"r": {"$ref": "$." + "a" * 100_000}}, "y": [{"$ref": "$.x"}] * 5000})
    with pytest.raises(ValueError, match="its references make the document too large"):
        fastjson.loads(text)


def test_what_occurs_again_and_again_is_read_as_apache_means_it():
    config = {"perm": 6, "topicName": "T", "attributes": {"k": "v" * 150}}
    text = json.dumps({"t": [config] + [{"$ref": "$.t[0]"}] * 2000})
    found = fastjson.loads(text)["t"]
    assert found == [config] * 2001
    found[0]["perm"] = 2
    assert found[1]["perm"] == 6, "each is a value of its own"


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"x":{"$ref":"$.b"}},"b":{"y":{"$ref":"$.a"}}}',
        '{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}',
        '{"a":{"$ref":"$.a"}}',
        '[{"$ref":"$[0]"}]',
    ],
)
def test_references_in_a_circle_have_an_end(text):
    json.dumps(fastjson.loads(text), check_circular=True)


def test_a_path_goes_through_objects_and_lists_only():
    assert fastjson.loads('{"a":"text","b":{"$ref":"$.a[0]"},"c":{"$ref":"$.a.x"}}') == {
        "a": "text",
        "b": None,
        "c": None,
    }
    assert fastjson.loads('{"a":[1],"b":{"$ref":"$.a[%s]"}}' % ("9" * 5000))["b"] is None


def test_a_key_within_a_key_is_refused_whatever_it_would_expand_to():
    assert fastjson.loads('{{"a":{"b":1}}:2}') == {'{"a":{"b":1}}': 2}
    for text in ('{{{"a":1}:1}:1}', '{{"a":{{"b":1}:1}}:1}', "{" * 40 + '"a":1' + "}:1" * 40):
        with pytest.raises(ValueError, match="an object as a key within a key"):
            fastjson.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"\\ud800"}',
        '{"a":"x\\uDFFFy"}',
        '{"\\udc00":1}',
        '["\\ud83d\\ud83d\\ude00"]',
        '["\\\\\\ud83d"]',
        '{0:"\\ud800"}',
        '{{"a":"\\ud800"}:1}',
        '{"a":["\\ud800"],"b":{"$ref":"$.a"}}',
    ],
)
def test_half_a_surrogate_pair_of_a_peer_is_not_read(text):
    with pytest.raises(ValueError, match="half a surrogate pair"):
        fastjson.loads(text, 100)


def test_whole_pairs_and_escapes_that_only_look_like_one_are_read():
    assert fastjson.loads('["\\ud83d\\ude00","\\\\ud800","\\u00e9\\uD83D\\uDE00x"]', 100) == ["😀", "\\ud800", "é😀x"]


@given(st.text(st.characters() | st.sampled_from("\\ud83e0")))
def test_no_text_that_is_read_lacks_half_of_a_pair(text):
    try:
        found = fastjson.loads('["' + text.encode("utf-8", "replace").decode() + '"]', 1000)
    except ValueError:
        return
    json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_without_end_is_refused(number):
    for text in (f'{{"a":{number}}}', f'{{{{"k":1}}:{number}}}', f"{{0:{number}}}"):
        with pytest.raises(ValueError):
            fastjson.loads(text)


@pytest.mark.parametrize("number", [str(1 << 63), str(-(1 << 63) - 1), "9" * 100_000])
def test_a_peers_numbers_have_64_bits(number):
    for text in (f"[{number}]", f'{{{{"k":1}}:{number}}}'):
        with pytest.raises(ValueError, match="outside 64 bits"):
            fastjson.loads(text, 100)
    assert fastjson.loads(f"[{(1 << 63) - 1},{-(1 << 63)}]", 100) == [(1 << 63) - 1, -(1 << 63)]


def test_a_peers_values_are_counted_before_they_are_read():
    assert fastjson.loads("[1,[],{}]", 6)
    for text in ("[1,[],{}]", "[[[[[", ",,,,,"):
        with pytest.raises(ValueError, match="values in one document, at most 5 are read"):
            fastjson.loads(text, 5)
    with pytest.raises(ValueError, match="its references"):
        fastjson.loads('{"a":[1,1,1],"b":[{"$ref":"$.a"},{"$ref":"$.a"}]}', 12)


@pytest.mark.parametrize("text", ["\ufeff{}", '{"a":"\x00"}', "{}\x00"])
def test_a_byte_order_mark_and_bare_zeros_are_refused(text):
    with pytest.raises(ValueError):
        fastjson.loads(text)
