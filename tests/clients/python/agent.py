"""The Python client under remote control.

Speaks as the Java, Go and C++ agents do: a JSON command a line on stdin, answers and events on stdout. Messages have no
flag there, and retries of a listener are exceptions.
"""

import base64
import contextlib
import hashlib
import itertools
import json
import os
import queue as queue_module
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from datetime import UTC, datetime, timedelta
from statistics import median

from appliance.client import (
    BrokerAway,
    Client,
    ClientError,
    CloseReport,
    Decision,
    Message,
    MessageQueue,
    Reject,
    RequestRefused,
    RequestTimeout,
    Retry,
    Suspend,
    allocation,
)
from appliance.client.core import requests
from appliance.client.wire import encode_command, encode_properties
from tests.support.apache import ask

OUT = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)

LOCK = threading.Lock()
#: Name -> (its client, its producer or consumer, an event that ends its watcher).
OPEN = {}
STARTS = {"CONSUME_FROM_FIRST_OFFSET": "first", "CONSUME_FROM_LAST_OFFSET": "last"}
#: Seconds for a machine with other work.
PATIENT = 30.0
LOOK_S = 0.02


def say(**line):
    data = json.dumps(line).encode() + b"\n"
    with LOCK:
        OUT.write(data)


def message_of(topic, given):
    if given.get("flag"):
        raise ValueError("the Python client sends no flag")
    timer = given.get("timer", {})
    at = timer.get("TIMER_DELIVER_MS")
    delay = timer.get("TIMER_DELAY_MS", timer.get("TIMER_DELAY_SEC", 0) * 1000)
    return Message(
        topic,
        base64.b64decode(given["body"]),
        tags=given.get("tags"),
        keys=given.get("keys", ()),
        properties=given["properties"],
        shard=given.get("order"),
        delay_level=given.get("delay"),
        delay=timedelta(milliseconds=delay) if timer and at is None else None,
        at=None if at is None else datetime.fromtimestamp(at / 1000, UTC),
    )


def received(message):
    record = message.record
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": record.physical_offset,
        "msg_id": message.message_id,
        "offset_msg_id": message.offset_id,
        "flag": record.flag,
        "tags": message.tags,
        "keys": " ".join(message.keys) or None,
        "properties": message.properties,
        "body_sha256": hashlib.sha256(message.body).hexdigest(),
        "body_bytes": len(message.body),
        "sys_flag": record.sys_flag,
        "store_bytes": record.size,
        "prepared_offset": record.prepared_transaction_offset,
        "born_at_ms": record.born_time_ms,
        "store_at_ms": record.store_time_ms,
        "store_host": "{}:{}".format(*record.store_host),
        "reconsume_times": message.attempt - 1,
        "at_ms": int(time.time() * 1000),
    }


def result_of(*results):
    first = results[0]
    return {
        "status": "SEND_OK",
        "msg_id": ",".join(result.message_id for result in results),
        "offset_msg_id": ",".join(result.offset_id for result in results),
        "broker": first.queue.broker_name,
        "queue_id": first.queue.queue_id,
        "queue_offset": first.queue_offset,
        "transaction_id": first.transaction_id,
        "recall_handle": first.recall_handle,
    }


def client_of(namesrv, instance, given):
    return Client(
        namesrv,
        timeout=PATIENT,
        instance_name=instance,
        namespace=given.get("namespace") or "",
        trace=given.get("trace", False),
    )


def start_producer(name, group, namesrv, retries=2, transactional=False, **given):
    client = client_of(namesrv, name, given)
    if transactional:
        producer = client.transactional_producer(group, check=checks(name))
    else:
        producer = client.producer(group, retries=retries)
    OPEN[name] = client, producer, threading.Event()


def checks(name):
    """Return a `check` that answers as the message says: see Transactions.java, transactions.go."""
    asked = Counter()

    def check(message):
        came = received(message) | {"transaction_id": message.message_id}
        say(event="checked", of=name, message=came)
        with LOCK:
            asked[came["body_sha256"]] += 1
            times = asked[came["body_sha256"]]
        word = verdict(message.properties.get("check"), times)
        return None if word == "null" else Decision[word.upper()]

    return check


def verdict(words, times):
    """Return the word of a message's property that counts for this call. Raises Undecided for "throw"; "hang" never
    returns."""
    listed = (words or "commit").split()
    word = listed[min(times, len(listed)) - 1]
    if word == "throw":
        raise Undecided
    while word == "hang":
        time.sleep(PATIENT)
    return word


def transact(producer, name, message):
    """Send a message in a transaction whose block ends as its property "local" says. As with the other clients it is no
    error of the send if the decision does not arrive, or arrives twice."""
    lost = Undecided, BrokerAway, RequestRefused, RequestTimeout
    with contextlib.suppress(*lost), producer.transaction(message) as transaction:
        ran = {
            "body_sha256": hashlib.sha256(message.body).hexdigest(),
            "transaction_id": transaction.result.message_id,
            "properties": dict(message.properties),
            "at_ms": int(time.time() * 1000),
        }
        say(event="executed", of=name, message=ran)
        word = verdict(message.properties.get("local"), 1)
        if word == "rollback":
            transaction.rollback()
        elif word != "commit":
            raise Undecided
    return transaction.result


class Undecided(Exception):
    """Leaves a block without a decision."""


def send(name, topic, messages, how="sync", queue=None, **_):
    _, producer, _ = OPEN[name]
    made = [message_of(topic, one) for one in messages]
    if how == "batch":
        return {"results": [result_of(*producer.send_batch(made))]}
    if how == "async":
        return {"results": [result_of(one.result()) for one in [producer.submit(message) for message in made]]}
    if how == "transaction":
        return {"results": [result_of(transact(producer, name, message)) for message in made]}
    if how == "oneway":
        for message in made:
            producer.send_oneway(message)
        return {"results": []}
    if how not in ("sync", "ordered", "queue"):
        raise ValueError(f"how? {how}")
    where = {"queue": MessageQueue(queue["topic"], queue["broker"], queue["queue_id"])} if how == "queue" else {}
    return {"results": [result_of(producer.send(message, **where)) for message in made]}


def send_many(name, topic, count, bytes, how, **_):
    """Send messages of zeros, for bench/clients.py; how: sync, or async with 256 on their way."""
    _, producer, _ = OPEN[name]
    message = Message(topic, b"\0" * bytes)
    if how == "sync":
        for _ in range(count):
            producer.send(message)
    else:
        for outcome in producer.send_many(message for _ in range(count)):
            if isinstance(outcome, ClientError):
                raise outcome


def consume_many(namesrv, topic, group, count, **_):
    """Handle messages from the first on with an empty handler, for bench/clients.py."""
    done, handled = threading.Event(), itertools.count(1)
    with Client(namesrv, timeout=PATIENT) as client:
        consumer = client.push_consumer(group, start="first")

        @consumer.subscribe(topic)
        def handle(_message):
            if next(handled) == count:
                done.set()

        consumer.start()
        done.wait()


def waited(name, topic, bytes, count, **_):
    """Return medians in seconds: of a send, of a round trip of the same bytes without a client, and from before a send
    to its handler."""
    client, producer, _ = OPEN[name]
    message = Message(topic, b"\0" * bytes)
    queue = producer.send(message).queue
    sends = [timed(lambda: producer.send(message)) for _ in range(count)]
    raw = raw_round_trips(client, producer.group, queue, message.body, count)
    arrived = queue_module.SimpleQueue()
    # From the first on, or those that are sent before it has begun with a queue never come.
    consumer = client.push_consumer(f"{producer.group}-waited", start="first")
    consumer.subscribe(f"{topic}-waited", handler=lambda message: arrived.put(time.perf_counter()))
    producer.send(f"{topic}-waited", "first")
    consumer.start()
    arrived.get(timeout=PATIENT)
    ways = []
    for _ in range(count):
        began = time.perf_counter()
        producer.send(f"{topic}-waited", message.body)
        ways.append(arrived.get(timeout=PATIENT) - began)
    consumer.close()
    return {"send": median(sends), "raw": median(raw), "to_handler": median(ways)}


def timed(act):
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def raw_round_trips(client, group, queue, body, count):
    host, port = client._session.core.directory.master(queue).split(":")
    text = encode_properties({"UNIQ_KEY": "0" * 32, "WAIT": "true"})
    frame = encode_command(requests.send(group, queue, body, text, 0, int(time.time() * 1000)))
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def go():
            sock.sendall(frame)
            assert len(sock.recv(65536)) > 100

        return [timed(go) for _ in range(count)]


def idle(namesrv, topic, group, count, **_):
    """Return how many bytes of memory so many consumers take that have nothing to do."""
    before = resident()
    client = Client(namesrv, timeout=PATIENT)
    for number in range(count):
        client.push_consumer(f"{group}-{number}", workers=1).subscribe(topic, handler=str)
    for consumer in client._push_consumers.values():
        consumer.start()
    found = resident() - before
    client.close()
    return {"bytes": found}


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def start_push(name, group, namesrv, topic, instance, **given):
    start = STARTS.get(given["from"])
    if start is None:
        start = datetime.strptime(given["timestamp"], "%Y%m%d%H%M%S").astimezone()
    options = {"ordered": given.get("orderly", False), "broadcast": given.get("model") == "BROADCASTING"}
    options["allocation"] = getattr(allocation, given.get("allocation", "average"))
    if given.get("max_reconsume", -1) >= 0:
        options["max_attempts"] = given["max_reconsume"] + 1
    client = client_of(namesrv, instance, given)
    consumer = client.push_consumer(group, start=start, **options)
    sql = given.get("sql") or None
    consumer.subscribe(topic, "*" if sql else given.get("expression", "*"), sql=sql, handler=handler(name, given))
    ended = threading.Event()
    OPEN[name] = client, consumer, ended
    threading.Thread(target=watch, args=(name, topic, consumer, ended), daemon=True).start()
    consumer.start()


def watch(name, topic, consumer, ended):
    """Say each new allocation of the topic's queues."""
    before = None
    while not ended.wait(LOOK_S):
        now = sorted(queue for queue in consumer.assignment() if queue.topic == topic)
        if now != before:
            if not ended.is_set():
                say(event="allocated", of=name, topic=topic, queues=[as_json(queue) for queue in now])
            before = now


def handler(name, given):
    """Fails `fail` times (-1: always) with a message, counted by body, and takes `hold_ms` for each."""
    fail, level = given.get("fail", 0), given.get("next_level", 0)
    failures = Counter()

    def handle(message):
        came = received(message)
        say(event="message", of=name, message=came)
        time.sleep(given.get("hold_ms", 0) / 1000)
        with LOCK:
            failures[came["body_sha256"]] += 1
            fails = fail < 0 or failures[came["body_sha256"]] <= fail
        if not fails:
            return
        if given.get("orderly"):
            raise Suspend(given.get("suspend_ms", 1000) / 1000)
        if level < 0:
            raise Reject("as the test wants it")
        if given.get("failing") == "throw" and not level:
            raise RuntimeError("as the test wants it")
        raise Retry(level=level) if level else Retry()

    return handle


def start_lite(name, group, namesrv, topic, expression="*", **given):
    """It begins at the first message, as the Java agent's."""
    client = client_of(namesrv, name, given)
    consumer = client.pull_consumer(group, start="first").subscribe(topic, expression)
    OPEN[name] = client, consumer, threading.Event()
    consumer.resume()  # joins the group, and takes nothing


def poll(name, timeout_ms, **_):
    return [received(message) for message in OPEN[name][1].poll(timeout_ms / 1000)]


def committed(name, queue, **_):
    return OPEN[name][1].committed(MessageQueue(queue["topic"], queue["broker"], queue["queue_id"]))


def stop(name, **_):
    client, _, ended = OPEN.pop(name)
    ended.set()
    report = client.close()
    if report != CloseReport():
        print(f"{name}: {report}", file=sys.stderr)


def create_topic(broker, topic, queues=4, **_):
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    header, _ = ask(broker, 17, {name: str(value) for name, value in fields.items()})
    if header["code"]:
        raise RuntimeError(f"{header}")


def queues(namesrv, topic, **_):
    with Client(namesrv, timeout=PATIENT) as client:
        return [as_json(queue) for queue in client.reader().queues(topic)]


def query(namesrv, topic, key, max=32, begin=None, end=None, **_):
    since, until = (None if ms is None else datetime.fromtimestamp(ms / 1000, UTC) for ms in (begin, end))
    with Client(namesrv, timeout=PATIENT) as client:
        found = client.admin().by_key(topic, key, most=max, since=since, until=until)
    if not found:
        raise LookupError(key)
    return [received(message) for message in found]


def view(namesrv, topic, message, **_):
    with Client(namesrv, timeout=PATIENT) as client:
        return received(client.admin().message(message, topic))


def as_json(queue):
    return {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}


def topics(namesrv, **_):
    _, body = ask(namesrv.partition(";")[0], 206, {})
    return json.loads(body)["topicList"]


COMMANDS = {
    "producer.start": start_producer,
    "producer.send": send,
    "producer.many": send_many,
    "consumer.many": consume_many,
    "producer.waited": waited,
    "consumer.idle": idle,
    "producer.stop": stop,
    "push.start": start_push,
    "push.stop": stop,
    "lite.start": start_lite,
    "lite.poll": poll,
    "lite.assignment": lambda name: [as_json(queue) for queue in OPEN[name][1].assignment()],
    "lite.commit": lambda name: OPEN[name][1].commit(),
    "lite.committed": committed,
    "lite.stop": stop,
    "admin.create_topic": create_topic,
    "admin.query": query,
    "admin.queues": queues,
    "admin.topics": topics,
    "admin.view": view,
}


def answer(command):
    number = command.pop("id")
    try:
        found = COMMANDS[command.pop("do")](**command)
        say(id=number, ok={} if found is None else found)
    except Exception as error:
        code = getattr(error, "code", None) if isinstance(error, ClientError) else None
        say(
            id=number,
            error={
                "type": type(error).__name__,
                "code": code,
                "message": f"{error}",
                "stack": traceback.format_exc(),
            },
        )


for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
os._exit(0)  # clients that were not stopped keep threads alive
