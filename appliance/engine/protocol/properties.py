"""The properties of a message: a map in one text, and the names that the broker uses. PURE.

    TAGS 0x01 TagA 0x02 KEYS 0x01 order-17 0x02

Java 4.9 leaves out the last 0x02, all other clients write it, and the broker stores the text as received. Readers
accept both. They drop pairs without 0x01, with an empty name or an empty value; of two equal names the last counts, as
in Java's readers.
"""

from collections.abc import Collection

NAME_SEPARATOR = "\x01"
PAIR_SEPARATOR = "\x02"

#: A record stores the length as a signed short.
MAX_PROPERTIES_BYTES = 32767

# Set by producers.
KEYS = "KEYS"  # words separated by blanks; the key index finds the message by each
TAGS = "TAGS"  # one tag; its `java_hash` is the tag code of the queue entry
UNIQUE_KEY = "UNIQ_KEY"  # see `message_id`; the key index finds the message by it, too
SHARDING_KEY = "__SHARDINGKEY"  # messages with one key stay in order: its `java_hash` chose the queue
TRANSACTION_PREPARED = "TRAN_MSG"  # "true": a half message
PRODUCER_GROUP = "PGROUP"  # of a half message: its sender's group
CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"  # of a half message: no check before this age
DELAY_TIME_LEVEL = "DELAY"  # a number from 1 on: one of `messageDelayLevel`
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"  # seconds from now
TIMER_DELAY_MS = "TIMER_DELAY_MS"  # milliseconds from now
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"  # wall ms
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"  # the unique key of a delayed message that is recalled
INNER_NUM = "INNER_NUM"  # number of messages in a record of Apache's batch queues
#: Each of them delays a message by a timer, or recalls a delayed one.
TIMER_NAMES = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_DEL_UNIQKEY)

# Set by brokers.
RETRY_TOPIC = "RETRY_TOPIC"  # of a message in %RETRY% or %DLQ%: the topic it was sent to
REAL_TOPIC = "REAL_TOPIC"  # of a message that waits in a system topic: the topic it is for
REAL_QUEUE_ID = "REAL_QID"  # and the queue of that topic
TRANSACTION_ID = "__transactionId__"  # of a half message and its committed copy: the unique key
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"  # of a half message: number of checks with its producers
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"  # of a half message that was stored again: its first offset
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"  # of a message in %RETRY% or %DLQ%: offset id of the copy first consumed
WAIT_STORE = "WAIT"  # "false": the sender does not wait for the sync
MSG_REGION = "MSG_REGION"  # the broker's `regionId`
TRACE_SWITCH = "TRACE_ON"  # "true" if clients may write traces
CLUSTER = "CLUSTER"  # the broker's `brokerClusterName`
TIMER_OUT_MS = "TIMER_OUT_MS"  # of a message that waits for its time: wall ms, the requested time less the precision
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"  # of a message whose time came, or that was stored again: when its wait began
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"  # and when the broker stored it then: wall ms
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"  # how often it was stored again while it waited
TIMER_FIRST = "ROCKETBOX_TIMER_FIRST"  # RocketBox's, of such records: the first one, see docs/formats/timers.md
TIMER_WAS_OUT_MS = "ROCKETBOX_TIMER_OUT_MS"  # RocketBox's, of a message whose time came: its TIMER_OUT_MS before
# RocketBox's, of a message that waits and was stored again after its topic had been deleted: a new topic of that name
# must not get it.
OF_DELETED = "ROCKETBOX_OF_DELETED"
TIMER_OF = "ROCKETBOX_TIMER_OF"  # RocketBox's, of a mark: queue offset of the first record of the message it removes
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"  # of a request and its reply: client id of the requester
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"  # of a pushed reply: the broker's wall ms
POP_CK = "POP_CK"  # the checkpoint with which a POP consumer acknowledges
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."  # properties of such names are not stored


def decode_properties(text: str) -> dict[str, str]:
    """Return the map in a properties text."""
    found = {}
    for pair in text.split(PAIR_SEPARATOR):
        name, separator, value = pair.partition(NAME_SEPARATOR)
        if separator and name and value:
            found[name] = value
    return found


def encode_properties(properties: dict[str, str]) -> str:
    """Return the text of a map, with 0x02 behind each pair. Names and values must not contain a separator."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def find_property(text: str, name: str) -> str | None:
    """Return one value without building the map: the last if the name occurs twice, None if it is absent or empty."""
    needle = f"\x02{name}\x01"
    _, found, rest = f"\x02{text}".rpartition(needle)
    if not found:
        return None
    return rest.partition(PAIR_SEPARATOR)[0] or None


def without_properties(text: str, names: Collection[str]) -> str:
    """Return a properties text without these names; all else stays as it is."""
    pairs = text.split(PAIR_SEPARATOR)
    return PAIR_SEPARATOR.join([pair for pair in pairs if pair.partition(NAME_SEPARATOR)[0] not in names])


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: 32 bits, signed, over UTF-16 code units. A message's tag code is its tag's."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
