"""The front page, the live frame, checks, system and log."""

import json
import logging
import time

import pytest

from appliance.engine.config import EngineConfig
from appliance.engine.engine import Engine
from appliance.engine.errors import InvalidInput, Unavailable
from appliance.engine.store.findings import Finding
from appliance.engine.window.figures import live
from appliance.engine.window.sentences import TEMPLATES, say
from tests.support.engine import pull_fields
from tests.support.waiting import wait_for


def test_the_overview_counts_what_happens(running):
    begin_ms = int(time.time() * 1000)
    running.sample()
    running.put("Orders", *[b"x"] * 20)
    running.peer().ask(11, pull_fields("Orders", 0, 0))
    running.join("c-1", "CG")
    running.produce_as("p-1", "PG")
    running.sample()
    overview = running.window.overview.snapshot()
    assert (overview.put_total, overview.delivered_total) == (20, 20)
    assert overview.in_rate > 0
    assert overview.out_rate > 0
    assert (overview.producer_clients, overview.consumer_clients) == (1, 1)
    assert overview.log_bytes == running.engine.broker.store.published
    assert begin_ms <= overview.oldest_at_ms <= time.time() * 1000
    assert overview.broker_address == running.engine.broker_address


def test_an_empty_broker_says_what_it_does_not_know(running):
    overview = running.window.overview.snapshot()
    assert (overview.oldest_at_ms, overview.oldest_why.code) == (None, "no_messages")
    assert overview.disk_full_at_ms is None
    assert overview.disk_full_why.code in ("not_measured_yet", "disk_not_filling")
    assert overview.behind == ()
    assert [need for need in overview.needs if need.name != "disk"] == []  # the machine's own may be nearly full


def test_who_is_furthest_behind_comes_first(running):
    running.put("Orders", *[b"x"] * 9)
    for group, offset in (("near", 8), ("far", 1)):
        running.engine.broker.groups.find(group)
        running.commit(group, "Orders", 0, offset)
    running.join("b-1", "radio", model="BROADCASTING")
    behind = running.window.overview.snapshot().behind
    assert [(row.group, row.lag) for row in behind] == [("far", 8), ("near", 1), ("radio", None)]
    assert behind[2].lag_why.code == "broadcast_keeps_offsets"
    running.join("n-1", "near")
    order = ["near", "far", "radio"]
    look = running.window.overview.snapshot
    wait_for(lambda: [row.group for row in look().behind] == order, "only near has a client")


def test_checks_tell_what_is_wrong(running):
    checks = {check.name: check for check in running.window.checks()}
    assert checks["store"].level == "ok"
    assert checks["flush"].sentence.code == "async_flush"
    assert checks["address"].sentence.code == "advertised_loopback"
    assert checks["address"].level == "ok", "nobody else can reach it, and nobody else is told of it"
    assert checks["namesrv"].level == "ok"
    running.engine.broker.store.log.fail("writing failed: No space left on device")
    check = next(check for check in running.window.checks() if check.name == "store")
    assert check.level == "failed"
    assert "No space left on device" in str(check.sentence)
    assert running.window.overview.snapshot().needs[0].level == "act"


def test_every_sentence_can_be_said():
    import re

    for code, template in TEMPLATES.items():
        names = re.findall(r"%\((\w+)\)", str(template))
        assert str(say(code, **dict.fromkeys(names, 1))), code
    with pytest.raises(KeyError):
        say("no such thing")


def test_one_frame_serves_all_viewers(running):
    running.put("Orders", b"x")
    number, frame = running.window.live.frame()
    assert all(running.window.live.frame()[1] is frame for _ in range(20)) or running.window.live.frame()[0] > number
    found = json.loads(frame)
    assert (found["number"], found["put_total"]) == (number, 1)
    assert {"in_rate", "out_rate", "behind", "needs", "worst_check", "at_ms"} <= found.keys()
    later = wait_for(lambda: running.window.live.frame()[0] > number, "the next second's frame")
    assert later
    assert json.loads(running.window.live.frame()[1])["uptime_ms"] > found["uptime_ms"]


def test_nobody_looks_nothing_is_encoded(running, monkeypatch):
    running.window.live.frame()
    running.window._parts.sampler.stop()  # it refreshes, too
    frames = running.window._parts.live
    made = []
    monkeypatch.setattr(frames, "_make_locked", lambda now: made.append(now))
    frames._asked_at = time.monotonic() - live.INTEREST_S - 1
    frames.refresh()
    assert made == []
    frames._asked_at = time.monotonic()
    frames.refresh()
    assert len(made) == 1


def test_series_have_a_point_a_sample(running):
    for _ in range(3):
        running.sample()
    series = running.window.charts.series("in_bytes", 60)
    assert len(series.values) == len(series.times_at_ms) >= 2
    assert series.unit == "bytes/s"
    for wrong in ({"name": "x"}, {"name": "in", "seconds": 0}, {"name": "in", "group": "G"}):
        with pytest.raises(InvalidInput):
            running.window.charts.series(**wrong)


def test_the_ring_of_samples_turns_over(running):
    sampler = running.window._parts.sampler
    running.put("Orders", b"x")
    for _ in range(300):
        sampler.sample()
    running.put("Orders", b"x", b"y")
    for _ in range(305):
        sampler.sample()
    assert sampler.topics["Orders"].moved(sampler.count) == 2, "what is older than ten minutes is forgotten"
    assert len(running.window.charts.series("in", 3600).values) <= 599
    for _ in range(605):
        sampler.sample()
    assert sampler.topics["Orders"].resting


def test_the_system_page(running):
    system = running.window.system()
    assert system.broker_address == running.engine.broker_address
    assert system.persona == "5.3.3"
    assert system.namesrvs == {running.engine.namesrv_address: True}
    assert "admin-sampler" in system.threads
    assert system.rss_bytes > 1 << 20
    assert system.disk_free_bytes > 0
    assert system.log_files == 1


def test_log_lines_are_kept_filtered_and_numbered(running):
    logger = logging.getLogger("tests.running")
    logger.warning("first %s", "<b>")
    logger.error("second")
    logger.info("not shown at this level")
    lines = [line for line in running.window.log.lines() if line.logger == "tests.running"]
    assert [(line.level, line.text) for line in lines if line.level != "INFO"] == [
        ("WARNING", "first <b>"),
        ("ERROR", "second"),
    ]
    assert [line.text for line in running.window.log.lines("ERROR", q="SECOND")] == ["second"]
    assert running.window.log.lines(after=lines[-1].number) == ()
    assert running.window.log.lines(q="first <", limit=1)[0].number == lines[0].number
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("third")
    assert "ValueError: why" in running.window.log.lines(q="third")[0].text
    for wrong in ({"level": "LOUD"}, {"limit": 0}):
        with pytest.raises(InvalidInput):
            running.window.log.lines(**wrong)


def test_the_log_handler_goes_with_the_engine(running):
    before = len(logging.getLogger().handlers)
    running.window.stop()
    assert len(logging.getLogger().handlers) == before - 1


def test_without_a_broker_only_the_system_is_known(tmp_path):
    from appliance.engine.config import EngineConfig
    from appliance.engine.engine import Engine

    engine = Engine(EngineConfig(data_dir=tmp_path, namesrv_port=0, roles=frozenset({"namesrv"})))
    engine.start()
    try:
        assert engine.window.system().roles == ("namesrv",)
        assert [check.name for check in engine.window.checks()] == ["io", "address"]
        assert engine.window.metrics()["namesrv_brokers"] == 0
        with pytest.raises(Unavailable):
            engine.window.overview.snapshot()
    finally:
        engine.stop()


def test_what_was_found_in_the_store_is_news_for_a_week(running):
    store = running.engine.broker.store

    def check():
        return next(check for check in running.window.checks() if check.name == "findings")

    assert (check().level, check().sentence.code) == ("ok", "nothing_found")
    week_ms, now = 7 * 86_400_000, int(time.time() * 1000)
    store.files.add_finding(Finding(now - week_ms - 1000, "torn", "commitlog/0", 1, 2, "", "Long ago."))
    assert check().sentence.code == "nothing_found"
    store.files.add_finding(Finding(now, "torn", "commitlog/0", 1, 2, "", "A kill left it."))
    assert (check().level, check().sentence.code) == ("ok", "found_lately")
    store.files.add_finding(Finding(now, "damage", "commitlog/0", 10, 20, "", "It is no record."))
    assert check().level == "warning"
    text = "2 problems were found in the store in the last week, the latest in commitlog/0 [10, 20). It is no record."
    assert str(check().sentence) == text
    assert ("watch", "findings") in [(need.level, need.name) for need in running.window.overview.snapshot().needs]
    store.blocks.damaged = (("00000000000000000000", 0, 65536),)
    assert (check().level, check().sentence.code) == ("failed", "bytes_changed")
    assert "commitlog/00000000000000000000 [0, 65536)" in str(check().sentence)


def test_an_address_that_the_ports_do_not_listen_on_is_not_said_to_be_well(tmp_path):
    config = EngineConfig(data_dir=tmp_path, broker_port=0, namesrv_port=0, advertise="10.1.2.3")
    engine = Engine(config)
    engine.start()
    try:
        check = next(one for one in engine.window.checks() if one.name == "address")
    finally:
        engine.stop()
    assert check.level == "warning"
    assert "--bind 10.1.2.3" in str(check.sentence)
    assert "listen on 127.0.0.1 only" in str(check.sentence)
