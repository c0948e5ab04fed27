"""A delay counts from when the message came, not from the beginning of the tick that took it."""

from appliance.engine.broker.delays.levels import DelayLevels, Place, make_wait
from appliance.engine.broker.sending.own_appends import OwnAppends, OwnMessage
from appliance.engine.broker.topic_config import new_topic
from appliance.engine.protocol.properties import encode_properties
from appliance.engine.store.dispatch import SCHEDULE_TOPIC
from appliance.engine.store.queues.consume_queue import ENTRY
from tests.support.store import BORN, StoreUnderTest

TICK_BEGAN = 1_700_000_000_000


def test_a_long_tick_makes_no_message_early(tmp_path):
    under_test = StoreUnderTest(tmp_path).open()
    store = under_test.store
    under_test.scheduler.wall_ms = TICK_BEGAN
    now = [TICK_BEGAN + 40]
    topics = {SCHEDULE_TOPIC: new_topic(SCHEDULE_TOPIC, 18, 6)}
    appends = OwnAppends(
        store, topics.get, DelayLevels((1000, 5000)), under_test.scheduler.call_soon, lambda: True, lambda: now[0]
    )

    def put(level):
        properties = {}
        make_wait(properties, level, Place("Orders", 0))
        text = encode_properties(properties)
        appends.submit([OwnMessage(SCHEDULE_TOPIC, level - 1, b"x", text, "", TICK_BEGAN, BORN)])

    put(1)
    now[0] = TICK_BEGAN - 3_600_000  # setting the clock back does not set store times back
    put(2)
    under_test.tick()
    for level, delay_ms in ((1, 1000), (2, 5000)):
        queue = store.queues.get_or_create(SCHEDULE_TOPIC, level - 1)
        _, _, due_ms = ENTRY.unpack(store.queues.read_entries(queue, 0, 1))
        assert due_ms == TICK_BEGAN + 40 + delay_ms
        [record] = under_test.records(SCHEDULE_TOPIC, level - 1)
        assert record.store_time_ms == TICK_BEGAN + 40
    under_test.stop()
