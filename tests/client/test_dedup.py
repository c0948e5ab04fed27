"""Handlers that skip what they have handled: by memory, and by what several processes share."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from appliance.client import InvalidOption, MemoryStore, RedisStore, Reject, Retry, dedup, once
from appliance.client.message import MessageQueue, ReceivedMessage
from appliance.client.wire import Record
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)


def message(key, attempt=0, **properties):
    text = "".join(f"{name}\x01{value}\x02" for name, value in ({"UNIQ_KEY": key} | properties).items())
    record = Record(0, 0, 0, 0, 0, 0, 0, 0, 0, ("127.0.0.1", 1), 0, ("127.0.0.1", 1), attempt, 0, b"x", "orders", text)
    return ReceivedMessage(record, MessageQueue("orders", "broker-a", 0))


class Redis:
    """The three commands of redis-py that the store uses, without expiry."""

    def __init__(self):
        self.kept, self.times = {}, {}

    def set(self, name, value, nx=False, px=None):
        if nx and name in self.kept:
            return None
        self.kept[name], self.times[name] = value, px
        return True

    def get(self, name):
        return self.kept.get(name)

    def delete(self, name):
        return self.kept.pop(name, None) is not None


class AwaitedRedis:
    def __init__(self, redis):
        self._redis = redis

    def __getattr__(self, name):
        async def call(*arguments, **options):
            return getattr(self._redis, name)(*arguments, **options)

        return call


@pytest.mark.parametrize("make", [MemoryStore, lambda: RedisStore(Redis())])
def test_a_handler_gets_each_message_once_unless_it_fails(make):
    store, seen = make(), []

    @once(store)
    def handle(message):
        seen.append(message.message_id)
        if message.message_id == "bad" and seen.count("bad") == 1:
            raise ZeroDivisionError

    handle(message("a"))
    handle(message("a"))
    with pytest.raises(ZeroDivisionError):
        handle(message("bad"))
    handle(message("bad"))
    handle(message("bad"))
    assert seen == ["a", "bad", "bad"]


@pytest.mark.parametrize("make", [MemoryStore, lambda: RedisStore(Redis())])
def test_what_another_call_works_on_comes_again(make):
    begun, go_on = threading.Event(), threading.Event()

    @once(make())
    def handle(message):
        begun.set()
        assert go_on.wait(60)

    first = threading.Thread(target=handle, args=(message("a"),))
    first.start()
    assert begun.wait(60)
    with pytest.raises(Retry) as caught:
        handle(message("a"))
    assert caught.value.after == 10
    go_on.set()
    first.join(60)
    handle(message("a"))


def test_a_lease_of_a_dead_process_ends_before_the_attempts(monkeypatch):
    waited, now = [], 0.0
    monkeypatch.setattr(dedup, "time", SimpleNamespace(monotonic=lambda: now))
    store, seen = MemoryStore(), []
    handle = once(store, "h")(seen.append)
    assert store.claim("h:a") == "new"
    for attempt in range(16):
        try:
            handle(message("a", attempt=attempt))
            break
        except Retry as again:
            waited.append(again.after)
            now += again.after
    assert len(seen) == 1
    assert waited[:3] == [10, 20, 40]


class Failing(MemoryStore):
    def done(self, key):
        raise ConnectionError("the store is away")

    release = done


def test_what_a_handler_did_counts_if_its_store_fails(caplog):
    def handle(message):
        if message.message_id == "bad":
            raise Reject("not this one")
        return None

    async def handle_awaiting(message):
        handle(message)

    once(Failing())(handle)(message("a"))
    asyncio.run(once(Failing())(handle_awaiting)(message("a")))
    with pytest.raises(Reject):
        once(Failing())(handle)(message("bad"))
    with pytest.raises(Reject):
        asyncio.run(once(Failing())(handle_awaiting)(message("bad")))
    assert caplog.text.count("handled messages failed") == 4


def test_handlers_have_their_ids_for_themselves_and_an_outbox_its_own():
    store, seen = MemoryStore(), []
    one, other = once(store, "one")(seen.append), once(store, "other")(seen.append)
    for handle in (one, other, one):
        handle(message("a"))
    one(message("b", OUTBOX_ID="7"))
    one(message("c", OUTBOX_ID="7"))
    assert [found.message_id for found in seen] == ["a", "a", "b"]


def test_times_are_kept():
    redis = Redis()
    once(RedisStore(redis, ttl=60, lease=2), "h")(lambda _: None)(message("a"))
    assert redis.kept == {"once:h:a": b"done"}
    assert redis.times == {"once:h:a": 60_000}
    short = MemoryStore(ttl=1e-9, lease=1e-9)
    assert [short.claim("a") for _ in range(3)] == ["new"] * 3
    few = MemoryStore(most=2)
    for key in "abc":
        few.done(key)
    assert [few.claim(key) for key in "bca"] == ["done", "done", "new"]


def test_coroutine_functions_have_stores_of_both_kinds():
    async def act():
        for store in (MemoryStore(), RedisStore(AwaitedRedis(Redis()))):
            seen = []

            @once(store)
            async def handle(message, seen=seen):
                seen.append(message)
                if len(seen) == 1:
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await handle(message("a"))
            await handle(message("a"))
            await handle(message("a"))
            assert len(seen) == 2

    asyncio.run(act())


def test_what_cannot_be_is_said():
    with pytest.raises(InvalidOption, match="batch is 1"):
        once(MemoryStore())(print)([message("a")])
    with pytest.raises(InvalidOption, match="ttl"):
        MemoryStore(ttl=0)
    with pytest.raises(InvalidOption, match="ttl"):
        RedisStore(Redis(), lease=0)


def test_a_consumer_skips_a_message_that_is_stored_twice(
    rocketbox, rocketmq_topic, rocketmq_group, produce, group_idle
):
    seen = []
    with rocketbox.client(timeout=60) as client:
        consumer = client.push_consumer(rocketmq_group, start="first")

        @consumer.subscribe(rocketmq_topic)
        @once(MemoryStore())
        def handle(message):
            seen.append(message.text)

        for text in ("0", "0 again", "1"):
            produce(rocketmq_topic, text, properties={"OUTBOX_ID": text[0]}, shard="one")
        consumer.start()
        wait_for(lambda: "1" in seen, "the last message")
        consumer.close()
    assert sorted(seen) in (["0", "1"], ["0 again", "1"])
