"""/metrics by upstream's names: each of Apache's broker and exporter is there as upstream tells it, or has a reason.

The list is `upstream_metrics.json`, from the constants of both programs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from appliance.console.health import metrics_views as metrics
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine

HERE = Path(__file__).parent
LIST = json.loads((HERE / "upstream_metrics.json").read_text(encoding="utf-8"))
ALL = [one for part in ("broker", "store", "pop", "exporter") for one in LIST[part]]
PRESENT = {one["name"]: one for one in ALL if "absent" not in one}
BOARD = HERE.parents[1] / "examples" / "grafana" / "rocketbox.json"
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Scrape:
    """One answer: type by name; (name, labels, value) of each sample."""

    def __init__(self, text: str) -> None:
        self.types: dict[str, str] = {}
        self.samples: list[tuple[str, dict[str, str], float]] = []
        closed: set[str] = set()
        family = ""
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                closed.add(family)
                _, _, family, kind = line.split(" ")
                assert family not in closed, f"{family} stands in two places"
                self.types[family] = kind
                continue
            shown, value = line.rsplit(" ", 1)
            name, _, labels = shown.partition("{")
            assert name == family, f"{name} stands behind {family}"
            self.samples.append((name, dict(LABEL.findall(labels)), float(value)))

    def of(self, name: str, **labels: str) -> list[float]:
        return [value for n, found, value in self.samples if n == name and labels.items() <= found.items()]


def scrape(running: RunningEngine) -> Scrape:
    return Scrape(metrics.upstream_text(running.window.upstream_metrics()))


@pytest.fixture(scope="module")
def lively(request):
    """A broker with traffic of every kind that the list speaks of."""
    running = RunningEngine(shared_directory(request, "metrics"))
    running.sample()
    running.put("Orders", *[b"x" * 100] * 9)
    running.join("c-1", "CG", also="PG")
    running.commit("CG", "Orders", 0, 2)
    running.sample()
    running.commit("CG", "Orders", 0, 5)
    running.put("%RETRY%CG", b"x", j=1)
    running.put("%DLQ%CG", b"x", b"y", c="TBW102", d=1)
    running.sample()
    yield running
    running.stop()


def test_no_name_stands_twice_in_the_list_and_each_that_is_absent_has_a_reason():
    names = [one["name"] for one in ALL]
    assert len(names) == len(set(names))
    assert len(PRESENT) > 70
    assert all(len(one["absent"]) > 10 for one in ALL if "absent" in one)


def test_each_name_of_upstream_is_there_with_its_type_and_labels_or_absent(lively):
    found = scrape(lively)
    labels: dict[str, set[tuple[str, ...]]] = {}
    for name, own, _ in found.samples:
        labels.setdefault(name, set()).add(tuple(own))
    assert {name: sorted(labels.get(name, ())) for name in PRESENT} == {
        name: [tuple(one["labels"])] for name, one in PRESENT.items()
    }
    assert {name: found.types[name] for name in PRESENT} == {name: one["type"] for name, one in PRESENT.items()}
    ours = {"rocketbox_metrics_pairs_left_out"}
    assert set(found.types) - ours == set(PRESENT), "a name that the list does not know, or calls absent"


def test_the_figures_are_those_of_the_broker(lively):
    found = scrape(lively)
    of_group = {"topic": "Orders", "consumer_group": "CG"}
    assert found.of("rocketmq_messages_in_total", topic="Orders", message_type="unspecified") == [9] or (
        found.of("rocketmq_messages_in_total", topic="Orders") == [9]
    )
    assert found.of("rocketmq_consumer_lag_messages", **of_group) == [4]
    assert found.of("rocketmq_messages_out_total", **of_group) == [3]
    assert found.of("rocketmq_consumer_lag_latency", **of_group)[0] >= 0
    assert found.of("rocketmq_group_diff", group="CG", topic="Orders", countOfOnlineConsumers="1") == [4]
    assert found.of("rocketmq_group_retrydiff", group="CG") == [1]
    assert found.of("rocketmq_send_to_dlq_messages_total", consumer_group="CG") == [2]
    assert found.of("rocketmq_group_consume_total_offset", group="CG", topic="Orders") == [5]
    assert found.of("rocketmq_consumer_connections", consumer_group="CG", consume_mode="push") == [1]
    assert found.of("rocketmq_producer_count", group="PG") == [1]
    assert found.of("rocketmq_brokeruntime_msg_put_total_today_now") == [12]


def test_a_group_of_which_nothing_is_known_has_no_lag_of_zero(lively):
    lively.join("r-1", "radio", model="BROADCASTING")
    lively.join("n-1", "new")
    found = scrape(lively)
    for group in ("radio", "new"):
        assert found.of("rocketmq_consumer_lag_messages", consumer_group=group) == []
        assert len(found.of("rocketmq_consumer_connections", consumer_group=group)) == 1


def test_counters_never_go_back_also_when_offsets_do(lively):
    def counters() -> dict[tuple[str, str], float]:
        found = scrape(lively)
        return {
            (name, str(sorted(labels.items()))): value
            for name, labels, value in found.samples
            if found.types[name] == "counter"
        }

    before = counters()
    lively.commit("CG", "Orders", 0, 1)
    lively.sample()
    lively.put("Orders", b"x")
    after = counters()
    assert before.keys() <= after.keys()
    assert all(after[key] >= value for key, value in before.items())
    assert sum(after.values()) > sum(before.values())
    lively.commit("CG", "Orders", 0, 3)
    lively.sample()
    again = counters()
    assert all(again[key] >= value for key, value in after.items())
    out = [key for key in again if key[0] == "rocketmq_messages_out_total" and "'CG'" in key[1]]
    assert [again[key] - after[key] for key in out] == [2]


def test_what_is_too_much_for_one_scrape_is_counted(lively, monkeypatch):
    monkeypatch.setattr("appliance.engine.window.figures.upstream_metrics.MOST_PAIRS", 1)
    for number in range(4):
        lively.engine.broker.offsets.commit(f"many{number}", "Orders", 0, 1)
    found = scrape(lively)
    assert len(found.of("rocketmq_consumer_lag_messages")) <= 1
    assert found.of("rocketbox_metrics_pairs_left_out")[0] >= 4


def test_names_of_strangers_are_escaped():
    sample = ("rocketmq_x", "gauge", (("topic", 'a"b\\c\nd'),), 1)
    text = metrics.upstream_text([sample])  # type: ignore[list-item]
    assert text.splitlines()[1] == 'rocketmq_x{topic="a\\"b\\\\c\\nd"} 1'


@pytest.mark.django_db
def test_the_page_carries_both_and_nothing_by_a_name_of_upstreams_without_labels(client, broker):
    found = Scrape(client.get("/metrics").content.decode())
    assert found.of("rocketbox_uptime_seconds")
    # Tests before this one left half messages open.
    assert found.of("rocketmq_half_messages") == [broker.metrics()["rocketmq_half_messages"]]
    assert all(labels for name, labels, _ in found.samples if name.startswith("rocketmq_"))


def test_the_boards_expressions_ask_for_names_that_exist_and_their_labels(lively):
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    found = scrape(lively)
    own = set(lively.window.metrics())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [one["definition"] for one in board["templating"]["list"] if one["type"] == "query"]
    assert len(asked) > 15
    for expression in asked:
        names = re.findall(r"\b((?:rocketmq|rocketbox)_\w+)(?:\{([^}]*)\})?", expression)
        assert names, expression
        for name, chosen in names:
            if name.startswith("rocketbox_"):
                assert name.removeprefix("rocketbox_") in own, name
                continue
            assert name in found.types, name
            labels = set(PRESENT[name]["labels"])
            assert set(re.findall(r"(\w+)[=!]", chosen)) <= labels, expression
            assert set(re.findall(r"by \((\w+)\)", expression)) <= labels, expression
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
