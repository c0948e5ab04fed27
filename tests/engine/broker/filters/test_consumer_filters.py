"""The table of the groups' filters: registration, death, bounds, the file."""

import json
import shutil
from pathlib import Path

import pytest

from appliance.engine.broker.filters import consumer_filters
from appliance.engine.broker.filters.consumer_filters import ConsumerFilters
from appliance.engine.broker.heartbeat import SubscriptionData
from appliance.engine.config import BrokerConfig
from tests.support.clock import FakeClock

GOLDEN = Path(__file__).parents[3] / "golden" / "config"
HOUR_MS = 3_600_000


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def filters(tmp_path, clock):
    return ConsumerFilters(tmp_path / "consumerFilter.json", BrokerConfig(), clock)


def sql(topic="T", expression="a > 1", version=1, kind="SQL92"):
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version, expression_type=kind)


def test_what_counts_by_now_replaces_whatever_its_version(filters, clock):
    changes = []
    filters.on_change = lambda topic, group: changes.append((topic, group))
    filters.register("g", [sql(version=5)])
    born = filters.get("T", "g")
    clock.advance(1000)
    for version in (6, 4):
        filters.register("g", [sql(version=version)])
        assert (filters.get("T", "g").client_version, filters.get("T", "g").born_time) == (version, born.born_time)
    assert changes == [("T", "g")], "when it came"
    filters.register("g", [sql(expression="a > 2", version=3)])
    new = filters.get("T", "g")
    assert (new.expression, new.born_time) == ("a > 2", born.born_time + 1000)
    assert filters.filter_of(new).expression == "a > 2"
    assert changes == [("T", "g")] * 2


def test_what_does_not_compile_any_more_is_gone(filters):
    filters.register("g", [sql(version=5), sql("Other")])
    filters.register("g", [sql(expression="a >", version=6), sql("Other")])
    assert filters.get("T", "g") is None
    assert filters.get("Other", "g") is not None


@pytest.mark.parametrize("after", [[], [sql(expression="*", kind="TAG", version=9)]], ids=["unsubscribed", "tags"])
def test_a_topic_that_is_not_filtered_any_more_dies(filters, after):
    filters.register("g", [sql(version=5), sql("Other")])
    filters.register("g", [sql("Other"), *after])
    assert filters.get("T", "g").is_dead
    assert not filters.get("Other", "g").is_dead
    filters.register("g", [sql("Other"), sql(version=5)])
    assert not filters.get("T", "g").is_dead


def test_the_dead_are_forgotten_after_a_day(filters, clock):
    filters.register("g", [sql()])
    filters.register("h", [sql()])
    filters.unregister("g")
    clock.advance(24 * HOUR_MS - 1)
    filters.clean()
    assert filters.get("T", "g") is not None
    clock.advance(1)
    filters.clean()
    assert filters.get("T", "g") is None
    assert filters.get("T", "h") is not None
    filters.unregister("g")  # nothing to do


def test_another_span_counts_at_once(filters, clock):
    filters.register("g", [sql()])
    filters.unregister("g")
    clock.advance(10_000)
    filters.take_options(BrokerConfig(filter_data_clean_time_span=5000))
    filters.clean()
    assert filters.all() == []


def test_strangers_cannot_fill_memory(filters, monkeypatch, clock):
    monkeypatch.setattr(consumer_filters, "MOST_ENTRIES", 100)
    monkeypatch.setattr(consumer_filters, "MOST_CHARS", 2000)
    for number in range(150):
        filters.register(f"g{number}", [sql()])
    assert len(filters.all()) == 100
    filters.unregister("g3")
    clock.advance(1)
    filters.unregister("g7")
    filters.register("new", [sql()])
    assert filters.get("T", "new") is not None
    assert filters.get("T", "g3") is None, "dead for longest"
    filters.register("new2", [sql(expression="a = '" + "x" * 1990 + "'")])
    assert filters.get("T", "new2") is None, "too long for what is left"


def test_short_expressions_do_not_become_long_ones_where_there_is_no_room(filters, monkeypatch):
    monkeypatch.setattr(consumer_filters, "MOST_CHARS", 2000)
    long = "a = '" + "x" * 500 + "'"
    for number in range(10):
        assert filters.register(f"g{number}", [sql()])
    grown = [filters.register(f"g{number}", [sql(expression=long, version=2)]) for number in range(10)]
    assert grown == [True] * 3 + [False] * 7
    assert filters.get("T", "g9").expression == "a > 1", "what was there stays"
    filters.unregister("g0")
    assert filters.register("g9", [sql(expression=long, version=2)]), "it was not forgotten what came last"
    assert sum(len(data.expression) for data in filters.all()) <= 2000


def test_an_entry_that_stays_keeps_its_share(filters, monkeypatch):
    """A peer whose longer expressions are refused would have what it has for nothing."""
    monkeypatch.setattr(consumer_filters, "MOST_CHARS", 2000)
    peer = bytes((10, 0, 0, 1, 0, 0, 0, 1))
    assert filters.register("g", [sql()], peer=peer)
    had = filters._shares.of(peer)
    assert had > 0
    too_long = "a = '" + "x" * consumer_filters.FEW_CHARS + "'"
    assert not filters.register("g", [sql(expression=too_long, version=2)], peer=peer)
    assert filters.get("T", "g").expression == "a > 1"
    assert filters._shares.of(peer) == had
    filters.unregister("g")
    assert filters._shares.of(peer) == 0


def test_a_file_that_holds_too_much_is_read_in_part(tmp_path, filters, monkeypatch, clock, caplog):
    for number in range(20):
        filters.register(f"g{number}", [sql()])
        filters.unregister(f"g{number}")
        clock.advance(1)
    filters.persist()
    monkeypatch.setattr(consumer_filters, "MOST_ENTRIES", 5)
    again = ConsumerFilters(tmp_path / "consumerFilter.json", BrokerConfig(), clock)
    assert [data.consumer_group for data in again.all()] == [f"g{number}" for number in range(15, 20)]
    assert "of 20 entries" in caplog.text


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_apaches_file_is_read_and_written_as_it_was(tmp_path, version):
    path = tmp_path / "consumerFilter.json"
    shutil.copy(GOLDEN / version / "mixed" / "consumerFilter.json", path)
    recorded = json.loads(path.read_text())
    born = recorded["filterDataByTopic"]["StoreTagged"]["groupFilterData"]["CG_StoreSql"]["bornTime"]
    filters = ConsumerFilters(path, BrokerConfig(), FakeClock(born + HOUR_MS))
    assert filters.document() == path.read_bytes()
    data = filters.get("StoreTagged", "CG_StoreSql")
    assert data.is_dead
    assert filters.filter_of(data).matches({"a": "11", "b": "x"})
    filters.persist()
    filters.register("CG_StoreSql", [sql("StoreTagged", data.expression, data.client_version)])
    filters.persist()
    assert (tmp_path / "consumerFilter.json.bak").read_bytes() == json_file(recorded)
    assert (
        json.loads(path.read_text())["filterDataByTopic"]["StoreTagged"]["groupFilterData"]["CG_StoreSql"]["dead"]
        is False
    )


def json_file(document):
    from appliance.engine.fastjson import encode_pretty

    return encode_pretty(document).encode()


def test_who_was_alive_when_the_broker_stopped_counts_as_dead(tmp_path, filters, clock):
    filters.register("g", [sql()])
    filters.persist()
    clock.advance(600_000)
    again = ConsumerFilters(tmp_path / "consumerFilter.json", BrokerConfig(), clock)
    assert again.get("T", "g").is_dead
    assert again.get("T", "g").dead_time == clock.wall_ms() - 30_000


@pytest.mark.parametrize(
    "text", ["{", "[1]", "[]", "null", "{}", '{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"topic":5}}}}}']
)
def test_a_damaged_file_stops_nobody(tmp_path, clock, text, caplog):
    (tmp_path / "consumerFilter.json").write_text(text)
    filters = ConsumerFilters(tmp_path / "consumerFilter.json", BrokerConfig(), clock)
    assert filters.all() == []
    assert "is not read" in caplog.text
    filters.register("g", [sql()])
    filters.persist()
    assert len(ConsumerFilters(tmp_path / "consumerFilter.json", BrokerConfig(), clock).all()) == 1


def test_a_disk_that_fails_is_tried_again(tmp_path, filters, monkeypatch):
    filters.register("g", [sql()])
    directory = tmp_path / "consumerFilter.json.tmp"
    directory.mkdir()
    with pytest.raises(OSError, match="directory"):
        filters.persist()
    directory.rmdir()
    filters.persist()
    assert (tmp_path / "consumerFilter.json").exists()
