# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of the hottest parts of the Python client `rocketbox`, which is complete without it.

Sends in their usual form (`core/quick.py`, `core/unique_key.py`, the promise of `shells/threads.py`, and what
`Producer.quickly` does), and messages of pulls (`core/records.py`). It takes usual cases only: the first that is not is
left to the Python code, with none of its effects done. It relies on the GIL. The client hands in its own classes, since
it is imported by two names: of its wheel, and within RocketBox.
"""

from _thread import allocate_lock
from json.encoder import encode_basestring
from threading import TIMEOUT_MAX
from time import monotonic, time_ns

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8
from libc.math cimport INFINITY
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    ctypedef struct PyTypeObject
    int PyObject_GenericSetAttr(object instance, object name, object value) except -1
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t count)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

#: As of `twin.py`.
INTERFACE = 3

#: Number of forks that led to this process, and what makes the error of promises of before.
cdef unsigned int FORKS = 0
cdef object IS_PARENTS = None

cdef const char *HEX = "0123456789ABCDEF"
cdef const char *BEGIN = '"UNIQ_KEY\\u0001'
cdef const char *MIDDLE = "\\u0002WAIT\\u0001true\\u0002"
DEF BEGIN_BYTES = 15
DEF MIDDLE_BYTES = 26
DEF KEY_BYTES = 32
#: Most bytes of a number in decimal.
DEF NUMBER_BYTES = 20
DEF MOST_HOLES = 8
DEF MOST_ID_BYTES = 1000
#: As of `core/quick.py`.
DEF MOST_FORMS = 20
#: As of `shells/link.py`.
DEF MOST_UNSENT = 64 << 20
DEF ENOUGH_BYTES = 64 << 10

cdef enum:
    END, QUEUE_ID, QUEUE_OFFSET, MESSAGE_ID, TRANSACTION_ID, OPAQUE


cdef inline unsigned long long whole(const unsigned char *at, int size) noexcept:
    cdef unsigned long long value = 0
    cdef int i
    for i in range(size):
        value = value << 8 | at[i]
    return value


cdef inline char *put_decimal(char *out, unsigned long long value) noexcept:
    cdef char digits[NUMBER_BYTES]
    cdef int count = 0
    while True:
        digits[count] = 48 + <char> (value % 10)
        count += 1
        value = value // 10
        if not value:
            break
    while count:
        count -= 1
        out[0] = digits[count]
        out += 1
    return out


cdef inline char *put(char *out, const char *text, Py_ssize_t size) noexcept:
    memcpy(out, text, size)
    return out + size


cdef class Pending:
    """The future result of a procedure; `shells/threads.py` has its description."""

    cdef bint _is_done
    cdef unsigned int _forks
    cdef object _result
    cdef object _error
    cdef list _waiting

    def __cinit__(self):
        self._forks = FORKS

    @classmethod
    def __class_getitem__(cls, kind):
        return cls

    def done(self):
        return self._is_done or self._forks != FORKS

    def result(self, timeout=None):
        if not self._is_done:
            self._wait(timeout)
        if self._error is not None:
            raise self._error
        return self._result

    cdef int _wait(self, timeout) except -1:
        if self._forks != FORKS:
            raise IS_PARENTS()
        own = allocate_lock()
        own.acquire()
        cdef list fresh = []
        # From here on nothing lets the GIL go until the lock is among those that `complete` lets go.
        if self._is_done:
            return 0
        if self._waiting is None:
            self._waiting = fresh
        self._waiting.append(own)
        seconds = -1.0 if timeout is None else max(0.0, min(timeout, TIMEOUT_MAX))
        if not own.acquire(True, seconds):
            if self._waiting is not None:
                self._waiting.remove(own)
            raise TimeoutError(f"it goes on after {timeout:g} s")
        return 0

    cpdef complete(self, result, error):
        cdef list waiting
        self._result = result
        self._error = error
        self._is_done = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            for one in waiting:
                one.release()

    @staticmethod
    def has_forked(is_parents):
        global FORKS, IS_PARENTS
        FORKS += 1
        IS_PARENTS = is_parents

    def __call__(self, result, error):
        self.complete(result, error)


cdef class KeyMaker:
    """Makes unique keys, each only once."""

    cdef object _months
    cdef bytes _prefix
    cdef long long _begin_ms
    cdef long long _end_ms
    cdef long long _ms
    cdef unsigned int _counter
    cdef unsigned int _first

    def __init__(self, months):
        """months: `next` returns begin and end of the month of a time, and the first 20 digits of the keys in it."""
        self._months = months
        self._prefix = b""
        self._begin_ms = self._end_ms = 0

    cpdef str next(self, long long now_ms):
        cdef char text[KEY_BYTES]
        cdef unsigned long long rest
        cdef long long ms
        cdef int i
        if not self._begin_ms <= now_ms < self._end_ms:
            self._begin_ms, self._end_ms, prefix = self._months.next(now_ms)
            self._prefix = prefix.encode()
            self._ms = -1
            self._counter = 0
        self._counter = (self._counter + 1) & 0xFFFF
        ms = now_ms - self._begin_ms
        if ms > self._ms:
            self._ms = ms
            self._first = self._counter
        elif self._counter == self._first:
            self._ms += 1
        rest = (<unsigned long long> self._ms & 0xFFFFFFFF) << 16 | self._counter
        memcpy(text, PyBytes_AS_STRING(self._prefix), 20)
        for i in range(12):
            text[KEY_BYTES - 1 - i] = HEX[rest & 15]
            rest >>= 4
        return PyUnicode_DecodeASCII(text, KEY_BYTES, NULL)


cdef class Flight:
    """A message whose first attempt is on its way."""

    cdef readonly object fleet
    cdef readonly object queue
    cdef readonly str key
    cdef readonly bytes body
    cdef readonly object shard
    cdef readonly object complete
    cdef readonly bint is_launched
    cdef readonly double began
    cdef readonly double deadline
    cdef readonly double until
    #: The text of the properties; or None, and then the tail of its tags, and the same within JSON.
    cdef str _text
    cdef str _tail
    cdef bytes _escaped

    def __init__(
        self, fleet, queue, str key, str text, bytes body, shard, double began, double deadline, double until, complete
    ):
        self.fleet = fleet
        self.queue = queue
        self.key = key
        self._text = text
        self.body = body
        self.shard = shard
        self.began = began
        self.deadline = deadline
        self.until = until
        self.complete = complete

    @property
    def text(self):
        if self._text is None:
            self._text = f"UNIQ_KEY\x01{self.key}\x02WAIT\x01true\x02{self._tail}"
        return self._text

    def __call__(self, outcome):
        self.fleet.diverted(self, outcome)


cdef class SendKit:
    """The client's classes for results of sends."""

    cdef object result
    cdef object queue
    cdef object form_of

    def __init__(self, result, queue, form_of):
        self.result = result
        self.queue = queue
        self.form_of = form_of


cdef class Flights:
    """The flights of one connection."""

    cdef SendKit _kit
    cdef dict _waiting
    cdef double _least
    cdef list _landed
    cdef int _forms_left
    # The form of the last answer: texts, and what follows each.
    cdef list _texts
    cdef int _holes[MOST_HOLES]
    cdef object _region
    cdef object _traced
    # Of the last answer.
    cdef long long _queue_id
    cdef long long _queue_offset
    cdef long long _opaque
    cdef const unsigned char *_id
    cdef Py_ssize_t _id_bytes
    cdef const unsigned char *_transaction
    cdef Py_ssize_t _transaction_bytes

    def __init__(self, SendKit kit):
        self._kit = kit
        self._waiting = {}
        self._least = INFINITY
        self._landed = []
        self._forms_left = MOST_FORMS

    def __len__(self):
        return len(self._waiting)

    cpdef bytes launch(self, Flight flight, stop, long long born_ms, long long opaque):
        cdef bytes first, second, third, last, text
        cdef const char *key = NULL
        cdef Py_ssize_t key_bytes = 0, text_bytes, header
        cdef char born[NUMBER_BYTES]
        cdef char number[NUMBER_BYTES]
        cdef Py_ssize_t born_bytes, number_bytes
        cdef bytes frame
        cdef char *out
        first, second, third, last = stop.pieces
        born_bytes = put_decimal(born, born_ms) - born
        number_bytes = put_decimal(number, opaque) - number
        if flight._text is None:
            text = flight._escaped
            key = PyUnicode_AsUTF8AndSize(flight.key, &key_bytes)
            text_bytes = BEGIN_BYTES + key_bytes + MIDDLE_BYTES + PyBytes_GET_SIZE(text) + 1
        else:
            text = encode_basestring(flight._text).encode()
            text_bytes = PyBytes_GET_SIZE(text)
        header = PyBytes_GET_SIZE(first) + PyBytes_GET_SIZE(second) + PyBytes_GET_SIZE(third) + PyBytes_GET_SIZE(last)
        header += born_bytes + text_bytes + number_bytes
        frame = PyBytes_FromStringAndSize(NULL, 8 + header)
        out = PyBytes_AS_STRING(frame)
        out = put_whole(out, 4 + header + PyBytes_GET_SIZE(flight.body))
        out = put_whole(out, header)
        out = put(out, PyBytes_AS_STRING(first), PyBytes_GET_SIZE(first))
        out = put(out, born, born_bytes)
        out = put(out, PyBytes_AS_STRING(second), PyBytes_GET_SIZE(second))
        if key != NULL:
            out = put(out, BEGIN, BEGIN_BYTES)
            out = put(out, key, key_bytes)
            out = put(out, MIDDLE, MIDDLE_BYTES)
        out = put(out, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        if key != NULL:
            out[0] = 34
            out += 1
        out = put(out, PyBytes_AS_STRING(third), PyBytes_GET_SIZE(third))
        out = put(out, number, number_bytes)
        put(out, PyBytes_AS_STRING(last), PyBytes_GET_SIZE(last))
        if not self._waiting:
            self._least = INFINITY
        self._waiting[opaque] = flight
        flight.is_launched = True
        if flight.deadline < self._least:
            self._least = flight.deadline
        return frame

    def walk(self, bytearray received, Py_ssize_t at):
        cdef const unsigned char *base = <const unsigned char *> PyByteArray_AS_STRING(received)
        cdef Py_ssize_t size = PyByteArray_GET_SIZE(received), length, end
        while self._waiting and size - at >= 8:
            length = <Py_ssize_t> whole(base + at, 4)
            end = at + 4 + length
            if <Py_ssize_t> whole(base + at + 4, 4) != length - 4 or end > size:
                break
            if not self._lands(base + at + 8, length - 4):
                break
            at = end
        return at

    cdef bint _lands(self, const unsigned char *header, Py_ssize_t size) except -1:
        cdef Flight flight
        if self._texts is None or not self._fits(header, size):
            if not self._forms_left:
                return False
            form = self._kit.form_of(PyBytes_FromStringAndSize(<const char *> header, size))
            if form is None or not self._learn(form) or not self._fits(header, size):
                return False
        found = self._waiting.pop(self._opaque, None)
        if found is None:
            return False
        flight = <Flight?> found
        self._landed.append((flight, self._place(flight)))
        return True

    cdef bint _learn(self, form) except -1:
        cdef list parts = form.parts, texts = []
        cdef int number = 0
        if len(parts) > MOST_HOLES:
            return False
        names = {
            "": END, "queueId": QUEUE_ID, "queueOffset": QUEUE_OFFSET, "msgId": MESSAGE_ID,
            "transactionId": TRANSACTION_ID, "opaque": OPAQUE,
        }
        for text, name in parts:
            texts.append(<bytes?> text)
            self._holes[number] = names[name]
            number += 1
        self._forms_left -= 1
        self._texts = texts
        self._region = form.region
        self._traced = form.traced
        return True

    cdef bint _fits(self, const unsigned char *at, Py_ssize_t size) except -1:
        """True if a header is of the form; what it says is kept then."""
        cdef const unsigned char *end = at + size
        cdef const unsigned char *begin
        cdef int number, hole, most
        cdef long long value
        cdef bytes text
        self._transaction_bytes = 0
        for number in range(len(self._texts)):
            text = <bytes> self._texts[number]
            if end - at < PyBytes_GET_SIZE(text) or memcmp(at, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)):
                return False
            at += PyBytes_GET_SIZE(text)
            hole = self._holes[number]
            begin = at
            if hole == END:
                return at == end
            if hole == MESSAGE_ID or hole == TRANSACTION_ID:
                while at < end and 33 <= at[0] <= 126 and at[0] != 34 and at[0] != 92:
                    at += 1
                if not 1 <= at - begin <= MOST_ID_BYTES:
                    return False
                if hole == MESSAGE_ID:
                    self._id, self._id_bytes = begin, at - begin
                else:
                    self._transaction, self._transaction_bytes = begin, at - begin
                continue
            value = 0
            most = 18 if hole == QUEUE_OFFSET else 10 if hole == OPAQUE else 9
            while at < end and 48 <= at[0] <= 57 and at - begin <= most:
                value = value * 10 + (at[0] - 48)
                at += 1
            if not 1 <= at - begin <= most:
                return False
            if hole == QUEUE_ID:
                self._queue_id = value
            elif hole == QUEUE_OFFSET:
                self._queue_offset = value
            else:
                self._opaque = value
        return False

    cdef object _place(self, Flight flight):
        queue = flight.queue
        if <long long> queue.queue_id != self._queue_id:
            queue = self._kit.queue(queue.topic, queue.broker_name, self._queue_id)
        transaction = None
        if self._transaction_bytes:
            transaction = PyUnicode_DecodeASCII(<const char *> self._transaction, self._transaction_bytes, NULL)
        # As its own __init__ does, which sets these of a frozen class by name.
        found = PyType_GenericAlloc(<PyTypeObject *> self._kit.result, 0)
        PyObject_GenericSetAttr(found, "message_id", flight.key)
        PyObject_GenericSetAttr(
            found, "offset_id", PyUnicode_DecodeASCII(<const char *> self._id, self._id_bytes, NULL)
        )
        PyObject_GenericSetAttr(found, "queue", queue)
        PyObject_GenericSetAttr(found, "queue_offset", self._queue_offset)
        PyObject_GenericSetAttr(found, "transaction_id", transaction)
        PyObject_GenericSetAttr(found, "recall_handle", None)
        PyObject_GenericSetAttr(found, "region", self._region)
        PyObject_GenericSetAttr(found, "is_traced", self._traced)
        PyObject_GenericSetAttr(found, "unconfirmed", None)
        return found

    def take_landed(self):
        landed, self._landed = self._landed, []
        return landed

    def pop(self, long long opaque):
        return self._waiting.pop(opaque, None)

    def next_deadline(self):
        return self._least if self._waiting else None

    def expire(self, double now):
        cdef Flight flight
        cdef list expired = []
        if now < self._least:
            return expired
        self._least = INFINITY
        for opaque, found in list(self._waiting.items()):
            flight = <Flight?> found
            if flight.deadline <= now:
                del self._waiting[opaque]
                expired.append(flight)
            elif flight.deadline < self._least:
                self._least = flight.deadline
        return expired

    def lost(self):
        waiting = list(self._waiting.values())
        self._waiting.clear()
        self._least = INFINITY
        return waiting


cdef inline char *put_whole(char *out, Py_ssize_t value) noexcept:
    out[0] = <char> (value >> 24)
    out[1] = <char> (value >> 16)
    out[2] = <char> (value >> 8)
    out[3] = <char> value
    return out + 4


def tally(list flights):
    """Return (bytes of the bodies, {topic: messages})."""
    cdef Py_ssize_t size = 0, same = 0
    cdef dict topics = {}
    cdef Flight flight
    last = None
    for found in flights:
        flight = <Flight?> found
        size += PyBytes_GET_SIZE(flight.body)
        topic = flight.queue.topic
        if topic is not last:
            if same:
                topics[last] = topics.get(last, 0) + same
            last, same = topic, 0
        same += 1
    if same:
        topics[last] = topics.get(last, 0) + same
    return size, topics


def complete(list flights, list places):
    """Hand the results out."""
    cdef Py_ssize_t number
    cdef Flight flight
    for number in range(len(flights)):
        flight = <Flight?> flights[number]
        done = flight.complete
        if type(done) is Pending:
            (<Pending> done).complete(places[number], None)
        else:
            done(places[number], None)


cdef class Launcher:
    """`Producer.quickly` for messages without keys, properties, shard and delay."""

    cdef object _quickly
    cdef object _message
    cdef object _producer
    cdef object _session
    cdef object _shell
    cdef object _lock
    cdef object _room_lock
    cdef object _producers
    cdef object _fleet
    cdef object _lanes
    cdef object _directory
    cdef object _faults
    cdef object _attempt_deadline
    cdef str _group
    cdef dict _tails
    cdef dict _escaped
    cdef bint _retries
    cdef Py_ssize_t _most_bytes
    #: Bodies of so many bytes are compressed; 0: none.
    cdef Py_ssize_t _compress_over

    def __init__(
        self, producer, message, fleet, attempt_deadline, bint retries, Py_ssize_t most_bytes, Py_ssize_t compress_over
    ):
        """producer: whose sends these are. message: the class. fleet: the producer's. retries: True if it has any."""
        self._quickly = producer.quickly
        self._message = message
        self._producer = producer
        self._session = producer._session
        self._shell = self._session.shell
        self._lock = self._shell.lock
        self._room_lock = producer._room.lock
        self._producers = self._session.core.producers
        self._fleet = fleet
        self._lanes = fleet._lanes
        self._directory = self._session.core.directory
        self._faults = producer._sending.faults
        self._attempt_deadline = attempt_deadline
        self._group = producer.group
        self._tails = producer._tails
        self._escaped = {}
        self._retries = retries
        self._most_bytes = most_bytes
        self._compress_over = compress_over

    def __call__(self, message, double seconds, bint may_wait=False):
        cdef Flight flight
        cdef Pending pending
        cdef bytes body, escaped
        cdef Py_ssize_t size
        cdef double now, until, deadline
        cdef long long born_ms
        cdef str key
        if type(message) is not self._message or type(message.body) is not bytes:
            return self._quickly(message, seconds, may_wait)
        body = message.body
        size = PyBytes_GET_SIZE(body)
        tags = message.tags
        tail = self._tails.get(tags) if tags is None or type(tags) is str else None
        if (
            tail is None
            or message.shard is not None
            or message.delay_level is not None
            or message.delay is not None
            or message.at is not None
            or message.keys
            or message.properties
            or not 0 < size <= self._most_bytes
            or (self._compress_over and size >= self._compress_over)
        ):
            return self._quickly(message, seconds, may_wait)
        found = self._escaped.get(tags)
        if found is None:
            found = self._escaped[tags] = encode_basestring(tail).encode().removeprefix(b'"').removesuffix(b'"')
        escaped = found
        self._session.check_usable()
        now = monotonic()
        born_ms = time_ns() // 1_000_000
        with self._lock:
            if self._group not in self._producers:
                return None
            topic = message.topic
            lane = self._lanes.get(topic)
            if lane is not None and not self._faults._until and lane.route is self._directory.route_to_publish(topic):
                stops = lane.stops
                stop = stops[lane.turn.take(len(stops))]
            else:
                stop = self._fleet.stop(topic, None, now)
                if stop is None:
                    return None
            key = self._session.keys.next(born_ms)
        link = self._shell.open_link(stop.address)
        if link is None:
            return None
        until = now + seconds
        deadline = until
        if stop.has_others and self._retries:
            deadline = self._attempt_deadline(now, until, True)
        with self._room_lock:
            if not self._producer._enters(size):
                return None
        pending = Pending.__new__(Pending)
        flight = Flight.__new__(Flight)
        flight.fleet = self._fleet
        flight.queue = stop.queue
        flight.key = key
        flight._tail = tail
        flight._escaped = escaped
        flight.body = body
        flight.began = now
        flight.deadline = deadline
        flight.until = until
        flight.complete = pending
        try:
            if self._launches(link, flight, stop, born_ms, may_wait):
                return pending
        except BaseException:  # a signal's handler may raise
            if not flight.is_launched:
                self._producer._landed(size)
            raise
        self._producer._landed(size)
        return None

    cdef bint _launches(self, link, Flight flight, stop, long long born_ms, bint may_wait) except -1:
        """`Link.launch` of threads, and `Connection.launch`."""
        cdef bytes head
        cdef long long opaque
        cdef Py_ssize_t waiting
        left = False
        with link._lock:
            if link._why_dead is not None or not link._is_open or len(link._unsent) > MOST_UNSENT:
                return False
            connection = link._connection
            opaque = (<long long> connection._opaque + 1) & 0x7FFFFFFF
            connection._opaque = opaque
            head = (<Flights?> connection._flights).launch(flight, stop, born_ms, opaque)
            output = <list?> connection._output
            output.append(head)
            output.append(flight.body)
            waiting = <Py_ssize_t> connection._output_bytes + PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(flight.body)
            connection._output_bytes = waiting
            if not may_wait or waiting >= ENOUGH_BYTES:
                left = link._write()
        if left:
            link._after(left)
        if may_wait and link.writes_at is None:
            link._write_soon()
        if flight.deadline < <double> self._shell._wakes_at:
            link._expire_at(flight.deadline)
        return True


cdef class Record:
    """One decoded record, as `engine/protocol/record.py` has it."""

    cdef readonly Py_ssize_t size
    cdef readonly unsigned int magic
    cdef readonly int body_crc
    cdef readonly int queue_id
    cdef readonly int flag
    cdef readonly long long queue_offset
    cdef readonly long long physical_offset
    cdef readonly int sys_flag
    cdef readonly long long born_time_ms
    cdef readonly long long store_time_ms
    cdef readonly int reconsume_times
    cdef readonly long long prepared_transaction_offset
    cdef readonly bytes body
    cdef readonly str topic
    cdef readonly str properties
    cdef object _decode_host
    cdef bytes _born_host
    cdef bytes _store_host

    @property
    def born_host(self):
        return self._decode_host(self._born_host)

    @property
    def store_host(self):
        return self._decode_host(self._store_host)

    def __iter__(self):
        yield from (
            self.size, self.magic, self.body_crc, self.queue_id, self.flag, self.queue_offset, self.physical_offset,
            self.sys_flag, self.born_time_ms, self.born_host, self.store_time_ms, self.store_host,
            self.reconsume_times, self.prepared_transaction_offset, self.body, self.topic, self.properties,
        )

    def __eq__(self, other):
        return tuple(self) == tuple(other) if isinstance(other, Record | tuple) else NotImplemented

    def __hash__(self):
        return hash(tuple(self))


cdef class RecordKit:
    """The client's class for messages, and what makes an address of a host's bytes."""

    cdef object message
    cdef object decode_host

    def __init__(self, message, decode_host):
        self.message = message
        self.decode_host = decode_host


def read_messages(RecordKit kit, bytes body, queue):
    """Return the messages in the body of a pull, whose CRCs are not checked; None if one is no proper record."""
    cdef const unsigned char *base = <const unsigned char *> PyBytes_AS_STRING(body)
    cdef const unsigned char *at
    cdef const unsigned char *end
    cdef const unsigned char *last_topic = NULL
    cdef Py_ssize_t left = PyBytes_GET_SIZE(body), length, topic_bytes, last_bytes = 0
    cdef int born_bytes, store_bytes
    cdef Record record
    cdef list found = []
    cdef str topic = None
    while left:
        if left < 91:
            return None
        record = Record.__new__(Record)
        record.size = <int> whole(base, 4)
        record.magic = <unsigned int> whole(base + 4, 4)
        if record.magic not in (0xDAA320A7, 0xDAA320AB) or not 91 <= record.size <= left:
            return None
        record.sys_flag = <int> whole(base + 36, 4)
        born_bytes = 20 if record.sys_flag & 0x10 else 8
        store_bytes = 20 if record.sys_flag & 0x20 else 8
        end = base + record.size
        at = base + 72 + born_bytes + store_bytes
        if at > end:
            return None
        record.body_crc = <int> whole(base + 8, 4)
        record.queue_id = <int> whole(base + 12, 4)
        record.flag = <int> whole(base + 16, 4)
        record.queue_offset = <long long> whole(base + 20, 8)
        record.physical_offset = <long long> whole(base + 28, 8)
        record.born_time_ms = <long long> whole(base + 40, 8)
        record._born_host = PyBytes_FromStringAndSize(<const char *> base + 48, born_bytes)
        record.store_time_ms = <long long> whole(base + 48 + born_bytes, 8)
        record._store_host = PyBytes_FromStringAndSize(<const char *> base + 56 + born_bytes, store_bytes)
        record.reconsume_times = <int> whole(at - 16, 4)
        record.prepared_transaction_offset = <long long> whole(at - 12, 8)
        length = <int> whole(at - 4, 4)
        if length < 0 or length >= end - at:
            return None
        record.body = PyBytes_FromStringAndSize(<const char *> at, length)
        at += length
        if record.magic == 0xDAA320A7:
            topic_bytes = at[0]
            at += 1
        else:
            if end - at < 2:
                return None
            topic_bytes = <Py_ssize_t> whole(at, 2)
            at += 2
        if topic_bytes + 2 > end - at:
            return None
        try:
            if topic is None or topic_bytes != last_bytes or memcmp(at, last_topic, topic_bytes):
                topic = PyUnicode_DecodeUTF8(<const char *> at, topic_bytes, NULL)
                last_topic, last_bytes = at, topic_bytes
            at += topic_bytes
            length = <Py_ssize_t> whole(at, 2)
            at += 2
            if length != end - at:
                return None
            record.properties = PyUnicode_DecodeUTF8(<const char *> at, length, NULL)
        except UnicodeDecodeError:
            return None
        record.topic = topic
        record._decode_host = kit.decode_host
        # As its own __init__ does.
        message = PyType_GenericAlloc(<PyTypeObject *> kit.message, 0)
        PyObject_GenericSetAttr(message, "_record", record)
        PyObject_GenericSetAttr(message, "queue", queue)
        PyObject_GenericSetAttr(message, "_properties", None)
        PyObject_GenericSetAttr(message, "_body", None)
        PyObject_GenericSetAttr(message, "handled_before", 0)
        PyObject_GenericSetAttr(message, "namespace", "")
        found.append(message)
        base = end
        left -= record.size
    return found
