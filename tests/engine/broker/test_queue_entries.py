"""321: the entries of a queue, and whether a group's filter lets each through."""

import json

from tests.support.engine import RunningEngine


def test_the_filter_is_told_of_when_a_group_is_named(tmp_path):
    """As 5.3.3: mqadmin's queryCq prints no "Filter data" without a group."""
    running = RunningEngine(tmp_path)
    try:
        running.put("Orders", b"x")
        running.join("c1", "CG")
        asker = running.peer()

        def entries(**more):
            answer = asker.ask(321, {"topic": "Orders", "queueId": 0, "index": 0, "count": 1, **more})
            found = json.loads(answer.body)
            assert len(found["queueData"]) == 1
            return found.get("filterData"), found.get("subscriptionData", {}).get("subString")

        assert entries() == (None, None)
        assert entries(consumerGroup="Nobody") == ("Nobody@Orders is not online!", None)
        assert entries(consumerGroup="CG") == ("null", "*")
    finally:
        running.hang_up()
        running.engine.stop()
