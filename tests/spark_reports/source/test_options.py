"""Options: their meaning, and the errors for wrong ones."""

from __future__ import annotations

import pickle

import pytest

from spark_reports.source.named_offsets import NamedOffsets
from spark_reports.source.options import NAMES, OptionError, Options, check_batch, check_sink, check_stream, parse


def test_defaults():
    assert parse({"store": "/data"}) == Options(store="/data")
    assert parse({"path": "/data"}) == Options(store="/data")


def test_all_together_in_any_case():
    found = parse(
        {
            "STORE": "/data", "Topic": "orders, refunds,orders", "from": "2026-01-31T12:00:00Z", "to": "1900000000000",
            "startingoffsets": '{"orders": {"0": 12, "1": -1}}', "endingOffsets": '{"refunds": {"3": 9}}',
            "columns": "BODY", "includesystem": "true", "failOnDataLoss": "False", "maxRowsPerPartition": "10",
            "maxRowsPerTrigger": "20", "until": '{"log_end": 77}', "findings": "/tmp/found",
        }
    )  # fmt: skip
    assert found == Options(
        store="/data",
        topics=("orders", "refunds"),
        from_ms=1_769_860_800_000,
        to_ms=1_900_000_000_000,
        starting_offsets=NamedOffsets(queues={("", "orders", 0): 12, ("", "orders", 1): -1}),
        ending_offsets=NamedOffsets(queues={("", "refunds", 3): 9}),
        body=True,
        include_system=True,
        fail_on_data_loss=False,
        max_rows_per_partition=10,
        max_rows_per_trigger=20,
        until=77,
        findings="/tmp/found",
    )
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1769860800001", 1_769_860_800_001),
        ("2026-01-31", 1_769_817_600_000),
        ("2026-01-31T12:00:00", 1_769_860_800_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
        ("2026-01-31T12:00:00.0005Z", 1_769_860_800_001),
        ("2026-01-31T12:00:00.999999Z", 1_769_860_801_000),
    ],
)
def test_times(text, ms):
    assert parse({"store": "/data", "from": text}).from_ms == ms


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "One of the options store"),
        ({"store": "/data", "brokers": "localhost:9876"}, "not both"),
        ({"store": "/data", "toppic": "a"}, "did you mean topic?"),
        ({"store": "/data", "startingOffset": "a"}, "did you mean startingOffsets?"),
        ({"store": "/data", "zzzzzzzz": "a"}, "there are store, brokers"),
        ({"store": "/data", "path": "/other"}, "given twice"),
        ({"store": "/data", "columns": "bodies"}, "meta, body or latest, not 'bodies'. Did you mean body?"),
        ({"store": "/data", "failOnDataLoss": "no"}, "true or false"),
        ({"store": "/data", "maxRowsPerPartition": "0"}, "from 1 on"),
        ({"store": "/data", "maxRowsPerTrigger": "-5"}, "from 1 on"),
        ({"store": "/data", "maxRowsPerTrigger": "9" * 30}, "from 1 on"),
        ({"store": "/data", "maxBytesPerTrigger": "0"}, "a number of bytes from 1 on"),
        ({"store": "/data", "maxRowsPerTrigger": "5", "maxBytesPerTrigger": "5"}, "one can be given"),
        ({"store": "/data", "from": "yesterday"}, "a time like 2026-01-31T12:00:00Z"),
        ({"store": "/data", "to": "-1"}, "a time like"),
        ({"store": "/data", "to": "9" * 15}, "a time like"),
        ({"store": "/data", "from": "20000000000", "to": "10000000000"}, "later than the option to"),
        ({"store": "/data", "from": "1790000000"}, "are 1970-01-21. If these are seconds, write 1790000000000."),
        ({"store": "/data", "to": "20260131"}, "20260131 ms are 1970-01-01."),
        ({"store": "/data", "useTls": "true"}, "The option useTls is for brokers, and a store is read from its files."),
        ({"store": "/data", "accessKey": "a", "secretKey": "b"}, "is for brokers"),
        ({"store": "/data", "maxBytesPerSecond": "5"}, "is for brokers"),
        ({"brokers": "a:1", "until": "5"}, "The option until is for a store, and brokers have other ones."),
        ({"brokers": "a:1", "timesAscend": "true"}, "is for a store"),
        ({"store": "/data", "topic": " , "}, "is empty"),
        ({"store": "/data", "topicPattern": "*"}, "is no regular expression"),
        ({"store": "/data", "topicPattern": ""}, "is empty"),
        ({"store": "/data", "topic": "a", "topicPattern": "b"}, "not both"),
        ({"store": "/data", "timesAscend": "1"}, "true or false"),
        ({"store": "/data", "startingOffsets": "soon"}, "earliest, latest or JSON"),
        ({"store": "/data", "startingOffsets": '{"a": {"0": -3}}'}, "earliest, latest or JSON"),
        ({"store": "/data", "startingOffsets": '{"a": {"0": true}}'}, "earliest, latest or JSON"),
        ({"store": "/data", "startingOffsets": '{"a": {"x": 1}}'}, "earliest, latest or JSON"),
        ({"store": "/data", "startingOffsets": '{"a": {"0": 1, "00": 2}}'}, "earliest, latest or JSON"),
        ({"store": "/data", "endingOffsets": "[1]"}, "latest or JSON"),
        ({"store": "/data", "endingOffsets": "[" * 100_000}, "latest or JSON"),
        ({"store": "/data", "topic": "a", "endingOffsets": '{"b": {"0": 1}}'}, "which the option topic does not"),
        ({"store": "/data", "startingOffsets": '{"b": {"a": {"0": 1}}}'}, "of a store names no brokers"),
        ({"store": "/data", "startingOffsets": '{"position": -3}'}, "or the offset of a stream"),
        ({"store": "/data", "startingOffsets": '{"position": 3, "ends": {}}'}, "or the offset of a stream"),
        ({"store": "/data", "startingOffsets": '{"position": 3, "witness": [4, 1]}'}, "or the offset of a stream"),
        ({"store": "/data", "startingOffsets": '{"position": 3, "witness": [1]}'}, "or the offset of a stream"),
        ({"brokers": "a:1", "startingOffsets": '{"": {"a": {"0": 1}}}'}, "or the offset of a stream"),
        ({"brokers": "a:1", "startingOffsets": '{"b": {"a": {"0": 1}, "c": 2}}'}, "or the offset of a stream"),
        ({"brokers": "a:1", "endingOffsets": '{"position": 3}'}, "the offset of a stream of files"),
        ({"store": "/data", "endingOffsets": '{"position": 3}', "until": "5"}, "one can be given"),
        (
            {"store": "/data", "startingOffsets": '{"position": 4}', "endingOffsets": '{"position": 3}'},
            "endingOffsets ends the log at 3, and startingOffsets begins at 4",
        ),
        (
            {"brokers": "a:1", "startingOffsets": '{"b": {"a": {"0": 9}}}', "endingOffsets": '{"b": {"a": {"0": 8}}}'},
            "endingOffsets ends a, queue 0 of b at 8, and startingOffsets begins at 9",
        ),
        (
            {"brokers": "a:1", "startingOffsets": '{"a": {"0": 9}}', "endingOffsets": '{"b": {"a": {"0": 8}}}'},
            "endingOffsets ends a, queue 0 of b at 8, and startingOffsets begins at 9",
        ),
        ({"store": "/data", "until": '{"end": 1}'}, "a physical offset"),
        ({"store": "/data", "until": "true"}, "a physical offset"),
        ({"brokers": "localhost:9876", "accessKey": "a"}, "belong together"),
    ],
)
def test_wrong_ones_are_said_in_a_sentence(given, said):
    with pytest.raises(OptionError) as caught:
        parse(given)
    assert said in str(caught.value)
    assert str(caught.value)[-1] in ".?"


def test_offsets_may_be_those_of_a_stream():
    found = parse({"store": "/data", "startingOffsets": '{"position": 7, "starts": {"a": {"0": 3}}}'})
    assert found.starting_offsets == NamedOffsets(queues={("", "a", 0): 3}, position=7)
    found = parse({"store": "/data", "startingOffsets": '{"position": 7, "witness": [3, 1700]}'})
    assert found.starting_offsets == NamedOffsets(position=7, witness=(3, 1700))
    found = parse({"brokers": "a:1", "endingOffsets": '{"b": {"a": {"0": 3}}, "c": {"a": {"0": 4}}}'})
    ends = found.ending_offsets
    assert [ends.of("a", 0, broker) for broker in "bcd"] == [3, 4, None]


def test_what_the_other_source_has_may_be_off():
    assert parse({"store": "/data", "useTls": "false"}) == parse({"store": "/data"})
    assert parse({"brokers": "a:1", "timesAscend": "False"}) == parse({"brokers": "a:1"})


def test_a_secret_is_not_shown():
    found = parse({"brokers": "localhost:9876", "accessKey": "reader", "secretKey": "much too secret"})
    assert found.secret_key == "much too secret"
    assert "much too secret" not in repr(found)


def test_a_store_may_be_written_as_spark_writes_paths():
    assert parse({"store": "file:///data/a b"}).store == "/data/a b"
    assert parse({"path": "file:/data"}).store == "/data"
    assert parse({"store": "a:b/c"}).store == "a:b/c"
    with pytest.raises(OptionError, match="a directory of this machine's, not 's3://bucket/data'"):
        parse({"store": "s3://bucket/data"})


def test_what_a_use_would_ignore_is_refused():
    store, brokers = {"store": "/data"}, {"brokers": "a:1", "topic": "a"}
    for given in (store | {"MaxRowsPerTrigger": "5"}, brokers | {"maxRowsPerTrigger": "5"}):
        with pytest.raises(OptionError, match=r"maxRowsPerTrigger is for streams \(readStream\), and this is a batch"):
            check_batch(given)
        check_stream(parse(given))
    check_batch(store | {"maxRowsPerPartition": "5"})
    for name in set(NAMES) - {"store", "brokers", "accessKey", "secretKey", "useTls", "tlsCaFile", "topic"}:
        with pytest.raises(OptionError, match=f"The option {name} is for reading: writing has brokers, "):
            check_sink(brokers | {name: "x"})
    check_sink(brokers | {"accessKey": "a", "secretKey": "b", "checkpointLocation": "/tmp"})
    for name, value in {"to": "0", "findings": "/tmp", "startingOffsets": "latest", "until": "3"}.items():
        with pytest.raises(OptionError, match=f"The option {name} does not go with columns=latest"):
            parse(store | {"columns": "latest", name: value})
    with pytest.raises(OptionError, match="columns=latest is for batches"):
        check_stream(parse(brokers | {"columns": "latest"}))


def test_what_offsets_may_be_is_told_whole():
    for name in ("startingOffsets", "endingOffsets"):
        with pytest.raises(OptionError, match="is earliest, latest or JSON"):
            parse({"store": "/data", name: "newest"})


def test_a_table_of_the_catalogue_is_refused_with_what_to_do():
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
        parse({"store": "/data", "option.store": "/data", "provider": "rocketbox", "owner": "ada"})
