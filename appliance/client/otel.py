"""`OpenTelemetryHook`: spans and metrics of sends and handlers. It needs the package opentelemetry-api, and is imported
by programs that want it:

    from appliance.client.otel import OpenTelemetryHook
    client = Client("127.0.0.1:9876", hooks=[OpenTelemetryHook()])

Names of spans, attributes and metrics: OpenTelemetry's semantic conventions for messaging.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opentelemetry import context, metrics, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .hooks import ConsumeCall, Hook, SendCall
from .message import Message, ReceivedMessage, SendResult

#: The trace alone goes with a message: baggage would be stored, and be read by every consumer.
_PROPAGATOR = TraceContextTextMapPropagator()
_SCOPE = "rocketbox.client"


class OpenTelemetryHook(Hook):
    """Makes a span "send TOPIC" of each message that is sent, and "process TOPIC" of each call of a handler, which is
    the current span there. The span that sent a message is the parent of the one that handles it, over all clients that
    write `traceparent` and `tracestate` into properties, as OpenTelemetry's agent for Java does; a list of messages has
    links to them.

    tracer_provider, meter_provider: OpenTelemetry's global ones unless told otherwise.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        # Constant after construction.
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")
        self._sending = meter.create_histogram("messaging.client.operation.duration", "s")
        self._processing = meter.create_histogram("messaging.process.duration", "s")

    def before_send(self, call: SendCall) -> None:
        message = call.message
        common = _common("send", "send", message.topic)
        attributes = common | _of_sent(message) | {"messaging.message.id": call.message_id}
        span = self._tracer.start_span(f"send {message.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
        if carrier:
            call.message = _with_trace(message, carrier)
        call.state[self] = (span, common, time.perf_counter())

    def after_send(self, call: SendCall, result: SendResult | None, error: BaseException | None) -> None:
        span, common, began = call.state.pop(self)
        if result is not None:
            span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
        labels = _ended(span, common, error)
        self._sent.add(1, labels)
        self._sending.record(time.perf_counter() - began, labels)

    def before_consume(self, call: ConsumeCall) -> None:
        first = call.messages[0]
        # Not in the context of the worker, which may have that of the call that began the consumer.
        common = _common("process", "process", first.topic) | {"messaging.consumer.group.name": call.group}
        if len(call.messages) == 1:
            parent, links = _PROPAGATOR.extract(first.properties, context.Context()), []
            attributes = common | _of_received(first)
        else:
            parent, links = context.Context(), _links(call.messages)
            attributes = common | {"messaging.batch.message_count": len(call.messages)}
        span = self._tracer.start_span(
            f"process {first.topic}", parent, SpanKind.CONSUMER, attributes=attributes, links=links
        )
        token = context.attach(trace.set_span_in_context(span))
        call.state[self] = (span, token, common, time.perf_counter())

    def after_consume(self, call: ConsumeCall, error: BaseException | None) -> None:
        span, token, common, began = call.state.pop(self)
        if trace.get_current_span() is span:  # a pull consumer's may end in another thread, or behind its surroundings
            context.detach(token)
        labels = _ended(span, common, error)
        self._consumed.add(len(call.messages), labels)
        self._processing.record(time.perf_counter() - began, labels)


def _common(name: str, kind: str, topic: str) -> dict[str, Any]:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def _of_sent(message: Message) -> dict[str, Any]:
    keys = [message.keys] if isinstance(message.keys, str) else list(message.keys)
    return _rocketmq(message.tags, keys)


def _of_received(message: ReceivedMessage) -> dict[str, Any]:
    return _rocketmq(message.tags, message.keys) | {
        "messaging.message.id": message.message_id,
        "messaging.destination.partition.id": str(message.queue.queue_id),
    }


def _rocketmq(tag: str | None, keys: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"messaging.rocketmq.message.tag": tag} if tag else {}
    return found | {"messaging.rocketmq.message.keys": list(keys)} if keys else found


def _links(messages: Sequence[ReceivedMessage]) -> list[Link]:
    """Links to the spans that sent messages, of those that have one."""
    spans = [trace.get_current_span(_PROPAGATOR.extract(one.properties, context.Context())) for one in messages]
    return [Link(span.get_span_context()) for span in spans if span.get_span_context().is_valid]


def _with_trace(message: Message, carrier: dict[str, str]) -> Message:
    """A message that is passed on may have another trace, of which no part stays."""
    own = {name: value for name, value in message.properties.items() if name not in _PROPAGATOR.fields}
    return replace(message, properties=own | carrier)


def _ended(span: Span, common: dict[str, Any], error: BaseException | None) -> dict[str, Any]:
    """End a span; return the attributes of its metrics."""
    labels = common
    if error is not None:
        kind = type(error).__qualname__
        span.set_attribute("error.type", kind)
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
        labels = common | {"error.type": kind}
    span.end()
    return labels
