"""Number of times that members of a group were asked to share out its queues again."""

from appliance.engine.broker import clients
from tests.support.waiting import wait_for


def rebalances(running):
    found = [one for some in running.window.measurements.take(30) for one in some if one.name == "group_rebalances"]
    return {one.label: one.value for one in found}


def counted(running, group):
    return running.window._parts.measurements._rebalances().get(group, 0)


def test_each_time_that_members_are_told_counts_from_the_second_look_on(running):
    first = running.join("c1", "billing")
    assert rebalances(running) == {"billing": None}, "nobody knows what was before"
    second = running.join("c2", "billing")
    assert rebalances(running) == {"billing": 1}
    assert rebalances(running) == {"billing": 0}
    second.close()
    wait_for(lambda: counted(running, "billing") == 3, "the other one is told")
    first.close()
    wait_for(lambda: running.window.groups.detail("billing").clients == 0, "the last one leaves")
    assert rebalances(running) == {"billing": 1}, "of the last one that left there was no member to notify"


def test_a_broadcasting_group_shares_nothing_out(running):
    running.join("c1", "everyone", model="BROADCASTING")
    rebalances(running)
    running.join("c2", "everyone", model="BROADCASTING")
    assert rebalances(running) == {"everyone": 0}


def test_counts_of_groups_that_come_and_go_are_bounded(running, monkeypatch):
    monkeypatch.setattr(clients, "MOST_COUNTED", 3)
    for name in "abcd":
        running.join(f"c-{name}", f"group-{name}").close()
    wait_for(lambda: list(running.window._parts.measurements._rebalances()) == ["group-d"], "the others are forgotten")
    wait_for(lambda: running.window.groups.detail("group-d").clients == 0, "its member leaves")
    running.join("c-e", "group-d")
    wait_for(lambda: counted(running, "group-d") == 2, "the one that came is told")
    rebalances(running)
    running.join("c-f", "group-d")
    wait_for(lambda: counted(running, "group-d") == 3, "both are told")
    assert rebalances(running)["group-d"] == 1


def test_measurements_of_topics_come_last(running):
    running.put("Orders", b"x")
    running.join("c1", "billing")
    names = [one.name.partition("_")[0] for some in running.window.measurements.take(30) for one in some]
    assert {"group", "in"} <= set(names[: names.index("topic")])
    assert set(names[names.index("topic") :]) == {"topic"}
