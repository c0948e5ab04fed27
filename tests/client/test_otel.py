"""The hook for OpenTelemetry: spans of sends and handlers, joined over properties, and metrics."""

import asyncio
import subprocess
import sys
import threading

import pytest

from appliance.client import Hook, InvalidMessage, Message, aio
from appliance.client.hooks import SendCall
from tests.support.waiting import wait_for

pytest.importorskip("opentelemetry.sdk")
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from appliance.client.otel import OpenTelemetryHook

pytest_plugins = ("appliance.pytest_rocketbox",)

PATIENT = 60.0


class Told:
    """The spans and metrics of the hook."""

    def __init__(self):
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.hook = OpenTelemetryHook(self.provider, MeterProvider([self._metrics]))

    def spans(self, name):
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def metric(self, name):
        """Its points, as (attributes, value or count)."""
        scopes = self._metrics.get_metrics_data().resource_metrics[0].scope_metrics
        (found,) = [metric for scope in scopes for metric in scope.metrics if metric.name == name]
        return [
            (point.attributes, point.value if hasattr(point, "value") else point.count)
            for point in found.data.data_points
        ]


@pytest.fixture
def told():
    return Told()


def test_a_send_and_its_handler_are_one_trace(rocketbox, told, rocketmq_topic, rocketmq_group):
    inner, failures = [], [RuntimeError("not today")]
    with rocketbox.client(timeout=PATIENT, hooks=[told.hook]) as client:
        consumer = client.push_consumer(rocketmq_group, start="first")

        @consumer.subscribe(rocketmq_topic)
        def handle(message):
            inner.append((message, trace.get_current_span()))
            if failures:
                raise failures.pop()

        consumer.start()
        with told.provider.get_tracer("own").start_as_current_span("pay") as around:
            sent = client.producer().send(rocketmq_topic, "x", tags="paid", keys=["k1", "k2"], properties={"a": "b"})
        wait_for(lambda: len(told.spans(f"process {rocketmq_topic}")) == 2, "both attempts")
    (send,) = told.spans(f"send {rocketmq_topic}")
    failed, done = told.spans(f"process {rocketmq_topic}")
    assert send.parent.span_id == around.get_span_context().span_id
    assert {failed.parent.span_id, done.parent.span_id} == {send.context.span_id}
    assert (send.kind, done.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    expected = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": rocketmq_topic,
        "messaging.message.id": sent.message_id,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
    }
    for span in (send, done):
        assert expected.items() <= dict(span.attributes).items()
    assert done.attributes["messaging.consumer.group.name"] == rocketmq_group
    assert (failed.status.status_code, failed.attributes["error.type"]) == (StatusCode.ERROR, "RuntimeError")
    assert done.status.status_code is StatusCode.UNSET
    message, current = inner[0]
    assert current.get_span_context() == failed.context
    assert message.properties["traceparent"].split("-")[2] == f"{send.context.span_id:016x}"
    assert message.properties["a"] == "b"
    ((_, count),) = told.metric("messaging.client.sent.messages")
    assert count == 1
    assert sorted(attributes.get("error.type", "") for attributes, _ in told.metric("messaging.process.duration")) == [
        "",
        "RuntimeError",
    ]


def test_what_a_pull_consumer_gives_has_a_span_until_it_is_done(
    rocketbox, told, rocketmq_topic, rocketmq_group, caplog
):
    def current():
        return trace.get_current_span().get_span_context()

    outside, tracer = current(), told.provider.get_tracer("own")
    with rocketbox.client(timeout=PATIENT, hooks=[told.hook]) as client:
        for number in range(4):
            client.producer().send(rocketmq_topic, str(number), shard="one")
        client.producer().flush(PATIENT)
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        each = iter(consumer)
        next(each)
        first = current()
        consumer.commit()
        assert current() == outside
        with tracer.start_as_current_span("around") as around:
            next(each)
            second = current()
        assert current() == outside
        next(each)  # ends the second one, whose surroundings have ended before it
        consumer.commit()
        assert current() == outside
        with tracer.start_as_current_span("last"):
            next(each)
            closing = threading.Thread(target=consumer.close)
            closing.start()
            closing.join(PATIENT)
    spans = told.spans(f"process {rocketmq_topic}")
    assert [span.context for span in spans][:2] == [first, second]
    assert around.get_span_context() not in (first, second)
    assert [span.parent.span_id for span in spans] == [
        span.context.span_id for span in told.spans(f"send {rocketmq_topic}")
    ]
    assert [span.attributes.get("error.type") for span in spans] == [None, None, None, "Closed"]
    assert "detach" not in caplog.text


def test_a_list_of_messages_has_links(rocketbox, told, rocketmq_topic, rocketmq_group):
    lists = []
    with rocketbox.client(timeout=PATIENT, hooks=[told.hook]) as client:
        sent = [client.producer().send(rocketmq_topic, str(number)) for number in range(2)]
        consumer = client.push_consumer(rocketmq_group, start="first", batch=8)
        consumer.subscribe(rocketmq_topic, handler=lists.append)
        consumer.start()
        wait_for(lambda: sum(map(len, lists)) == len(sent), "the messages")
    spans = told.spans(f"process {rocketmq_topic}")
    senders = {span.context.span_id for span in told.spans(f"send {rocketmq_topic}")}
    found = {link.context.span_id for span in spans for link in span.links} | {
        span.parent.span_id for span in spans if span.parent
    }
    assert found == senders


def test_a_task_has_the_span_of_its_message(rocketbox, told, rocketmq_topic, rocketmq_group):
    inner = []

    async def work():
        async with aio.Client(rocketbox.namesrv, timeout=PATIENT, hooks=[told.hook]) as client:
            consumer = client.push_consumer(rocketmq_group, start="first")
            ended = asyncio.Event()

            @consumer.subscribe(rocketmq_topic)
            async def handle(message):
                await asyncio.sleep(0)
                inner.append(trace.get_current_span().get_span_context().span_id)
                if len(inner) == 3:
                    ended.set()

            with told.provider.get_tracer("own").start_as_current_span("begin"):
                await consumer.start()
            await asyncio.gather(*(client.producer().send(rocketmq_topic, str(number)) for number in range(3)))
            await asyncio.wait_for(ended.wait(), PATIENT)

    asyncio.run(work())
    spans = told.spans(f"process {rocketmq_topic}")
    assert sorted(inner) == sorted(span.context.span_id for span in spans)
    senders = [span.context.span_id for span in told.spans(f"send {rocketmq_topic}")]
    assert sorted(span.parent.span_id for span in spans) == sorted(senders)


def test_a_send_that_is_refused_is_an_error(rocketbox, told, rocketmq_topic):
    with rocketbox.client(timeout=PATIENT, hooks=[Hook(), told.hook]) as client, pytest.raises(InvalidMessage):
        client.producer().send(rocketmq_topic, "")
    (span,) = told.spans(f"send {rocketmq_topic}")
    assert span.attributes["error.type"] == "InvalidMessage"


def test_a_message_that_is_passed_on_has_no_state_of_another_trace(told):
    others = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "tracestate": "stranger=1", "own": "x"}
    call = SendCall("g", Message("T", b"x", properties=others), "id")
    told.hook.before_send(call)
    told.hook.after_send(call, None, None)
    (span,) = told.spans("send T")
    assert call.message.properties.keys() == {"traceparent", "own"}
    assert call.message.properties["traceparent"].split("-")[1] == f"{span.context.trace_id:032x}"


def test_nothing_is_imported_without_the_hook():
    program = "import sys, appliance.client, appliance.client.aio; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
