"""taskiq's tasks over RocketMQ, by a real broker."""

import asyncio

import pytest
from taskiq import TaskiqMiddleware
from taskiq.api import run_receiver_task
from taskiq.exceptions import SendTaskError

from appliance.client import InvalidMessage, InvalidOption
from appliance.client.taskiq import RocketBroker
from tests.support.waiting import wait_in_loop

pytest_plugins = ("appliance.pytest_rocketbox",)


@pytest.fixture
def make(rocketbox, rocketmq_topic, rocketmq_group):
    def make(**options):
        client = {"timeout": 60.0}
        return RocketBroker(rocketbox.namesrv, topic=rocketmq_topic, group=rocketmq_group, client=client, **options)

    return make


def with_task(broker, done):
    @broker.task(task_name="bill")
    async def bill(order: int) -> None:
        done.append(order)

    return bill


async def worked(broker, until):
    """Run a worker until something is so."""
    broker.is_worker_process = True
    worker = asyncio.create_task(run_receiver_task(broker, run_startup=True))
    try:
        await wait_in_loop(until, "the tasks")
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await broker.shutdown()


def test_tasks_are_done_once_over_several_workers(make, group_idle, rocketmq_group, rocketmq_topic):
    done = []

    async def act():
        asks = make()
        bill = with_task(asks, done)
        await asks.startup()
        for order in range(5):
            await bill.kiq(order)
        await bill.kicker().with_labels(delay=0.3, shard="7").kiq(5)
        await asks.shutdown()
        broker = make()
        with_task(broker, done)
        await worked(broker, lambda: len(done) == 6)
        again = make()
        with_task(again, done)
        asks = make()
        await with_task(asks, done).kiq(6)
        await asks.shutdown()
        await worked(again, lambda: 6 in done)

    asyncio.run(act())
    assert sorted(done) == list(range(7))
    group_idle(rocketmq_group, rocketmq_topic)


def test_a_task_that_is_not_acknowledged_comes_again(make):
    async def act():
        asks = make()
        await with_task(asks, []).kiq(17)
        await asks.shutdown()
        dying = make()
        first = await anext(dying.listen())
        await dying.shutdown()
        other = make()
        tasks = other.listen()
        again = await anext(tasks)
        assert again.data == first.data
        await again.ack()
        await tasks.aclose()
        await other.shutdown()
        done = []
        last = make()
        asks = make()
        await with_task(asks, done).kiq(18)
        await asks.shutdown()
        with_task(last, done)
        await worked(last, lambda: done)
        assert done == [18]

    asyncio.run(act())


def test_labels_and_options_that_cannot_be_are_refused(make):
    async def act():
        broker = make()
        bill = with_task(broker, [])
        with pytest.raises(SendTaskError) as caught:
            await bill.kicker().with_labels(delay="soon").kiq(1)
        assert isinstance(caught.value.__cause__, InvalidMessage)
        await broker.shutdown()

    asyncio.run(act())
    with pytest.raises(InvalidOption, match="at_once"):
        make(at_once=0)


def test_a_task_that_is_never_acknowledged_leaves_its_place_to_others(make):
    done = []

    class Failing(TaskiqMiddleware):
        def pre_execute(self, message):
            if message.args == [0]:
                raise ZeroDivisionError
            return message

    async def act():
        asks = make()
        bill = with_task(asks, done)
        await asks.startup()
        for order in range(2):
            await bill.kicker().with_labels(shard="one").kiq(order)
        await asks.shutdown()
        broker = make(at_once=1, handler_timeout=1.0)
        broker.add_middlewares(Failing())
        with_task(broker, done)
        await worked(broker, lambda: done == [1])

    asyncio.run(act())
