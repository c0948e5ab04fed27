"""The official C++ client (librocketmq 2.x, through PyPI's `rocketmq`) under remote control.

Speaks as the Java and Go agents do: a JSON command a line on stdin, answers and events on stdout. Runs in a process of
its own, with that package on its path. The library takes and gives bodies as C strings: text without a NUL only.
"""

import base64
import hashlib
import json
import os
import sys
import threading
import time
import traceback
import zlib

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import MessageModel, dll

# The library's own output must not mix with the answers.
OUT = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)

LOCK = threading.Lock()
CLIENTS = {}
# Stopped clients are kept: what the package does when one is collected frees it under the library's own threads.
STOPPED = []
# Producers are kept running, too, until the process ends. All clients without an instance of their own share what the
# library finds by a table without a lock, and the stop of the last producer frees it under a consumer that just starts.
# Properties are readable by name only.
SHOWN = (
    "number", "city", "DELAY", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "UNIQ_KEY",
    "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_OUT_MS",
    "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME",
)  # fmt: skip
SUCCESS, LATER = 0, 1  # what a listener of the library returns


def say(**line):
    data = json.dumps(line).encode() + b"\n"
    with LOCK:
        OUT.write(data)


def message_of(topic, json_message):
    message = Message(topic)
    message.set_body(base64.b64decode(json_message["body"]))
    if "tags" in json_message:
        message.set_tags(json_message["tags"])
    if "keys" in json_message:
        message.set_keys(" ".join(json_message["keys"]))
    for name, value in json_message["properties"].items():
        message.set_property(name, value)
    for name, value in json_message.get("timer", {}).items():
        message.set_property(name, str(value))
    if json_message.get("delay"):
        message.set_delay_time_level(json_message["delay"])
    return message


def received(message):
    def text(value):
        return None if value is None else value.decode()

    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.id,
        "tags": text(message.tags) or None,
        "keys": text(message.keys) or None,
        "flag": 0,
        "body_bytes": len(message.body),
        "body_sha256": hashlib.sha256(message.body).hexdigest(),
        "properties": {name: text(message.get_property(name)) for name in SHOWN if message.get_property(name)},
        "reconsume_times": message.reconsume_times,
        "store_at_ms": message.store_timestamp,
        "at_ms": int(time.time() * 1000),
    }


def result_of(result):
    status = {0: "SEND_OK"}.get(int(result.status), str(result.status))
    return {"status": status, "msg_id": result.msg_id, "queue_offset": result.offset}


def sign_as(client, arguments):
    """Have a client sign with `access_key` and `secret_key`, if it is given any."""
    if "access_key" in arguments:
        client.set_session_credentials(arguments["access_key"], arguments["secret_key"], "")


def start_producer(name, group, namesrv, **arguments):
    producer = Producer(group, timeout=30_000)  # its own 3 s are short for a machine with other work
    producer.set_namesrv_addr(namesrv)
    sign_as(producer, arguments)
    producer.start()
    CLIENTS[name] = producer


def send(name, topic, messages, how="sync", **_):
    producer = CLIENTS[name]
    made = [(message_of(topic, one), zlib.crc32(one.get("order", "").encode()) & 0x7FFFFFFF) for one in messages]
    if how == "batch":
        return {"results": [result_of(producer.send_batch([message for message, _ in made]))]}
    if how == "async":
        return {"results": [result_of(result) for result in send_async(producer, [message for message, _ in made])]}
    results = []
    for message, order in made:
        if how == "sync":
            results.append(result_of(producer.send_sync(message)))
        elif how == "ordered":
            results.append(result_of(producer.send_orderly(message, order)))
        elif how == "oneway":
            producer.send_oneway(message)
        elif how == "oneway ordered":
            producer.send_oneway_orderly(message, order)
        else:
            raise ValueError(f"how? {how}")
    return {"results": results}


def send_async(producer, messages):
    done = threading.Semaphore(0)
    found = []

    def succeeded(result):
        found.append(result)
        done.release()

    def failed(error):
        found.append(error)
        done.release()

    for message in messages:
        producer.send_async(message, succeeded, failed)
    for _ in messages:
        if not done.acquire(timeout=60):
            raise TimeoutError("no answer to an asynchronous send in 60 s")
    for result in found:
        if isinstance(result, Exception):
            raise result
    return found


def send_many(name, topic, count, bytes, how, **_):
    """Send messages of one letter, for bench/clients.py; a body ends at its first NUL here."""
    message = Message(topic)
    message.set_body(b"x" * bytes)
    if how == "sync":
        for _ in range(count):
            CLIENTS[name].send_sync(message)
        return
    for begin in range(0, count, 256):  # the library has no window of its own
        send_async(CLIENTS[name], [message] * min(256, count - begin))


def start_push(name, group, namesrv, topic, expression="*", orderly=False, model="CLUSTERING", **arguments):
    consumer = PushConsumer(group, orderly=orderly, message_model=MessageModel[model])
    consumer.set_namesrv_addr(namesrv)
    consumer.set_instance_name(arguments.get("instance", name))
    sign_as(consumer, arguments)
    ffi_check(dll.Subscribe(consumer._handle, topic.encode(), expression.encode()))
    # Not the package's `subscribe`: what raises there is given to the library as a success.
    consumer._register_callback(listener(name, arguments.get("fail", 0), arguments.get("hold_ms", 0)))
    consumer.start()
    CLIENTS[name] = consumer


def listener(name, fail, hold_ms):
    """Fails `fail` times (-1: always) with a message, counted by body, and takes `hold_ms` for each."""
    failures = {}

    def listen(_, handle):
        came = received(RecvMessage(handle))
        say(event="message", of=name, message=came)
        time.sleep(hold_ms / 1000)
        with LOCK:
            failures[came["body_sha256"]] = failures.get(came["body_sha256"], 0) + 1
            return LATER if fail < 0 or failures[came["body_sha256"]] <= fail else SUCCESS

    return listen


def start_pull(name, group, namesrv, **_):
    consumer = PullConsumer(group)
    consumer.set_namesrv_addr(namesrv)
    consumer.start()
    CLIENTS[name] = consumer


def stop_producer(name, **_):
    STOPPED.append(CLIENTS.pop(name))


def stop(name, **_):
    client = CLIENTS.pop(name)
    STOPPED.append(client)
    client.shutdown()


COMMANDS = {
    "producer.start": start_producer,
    "producer.send": send,
    "producer.many": send_many,
    "producer.stop": stop_producer,
    "push.start": start_push,
    "push.stop": stop,
    "pull.start": start_pull,
    "pull.pull": lambda name, topic, expression="*", **_: [
        received(message) for message in CLIENTS[name].pull(topic, expression)
    ],
    "pull.stop": stop,
}


def answer(command):
    number = command.pop("id")
    try:
        found = COMMANDS[command.pop("do")](**command)
        say(id=number, ok={} if found is None else found)
    except Exception as error:
        text = f"{error} {vars(error)}"
        say(
            id=number,
            error={"type": type(error).__name__, "code": None, "message": text, "stack": traceback.format_exc()},
        )


for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
os._exit(0)  # clients that were not stopped keep threads alive
