# Checks on the records of a log: of another broker's before they are appended, of this broker's at a start. References:
# `decode_record` of protocol/record.py, `check_place` of store/log/log_scan.py, `Dispatch` of store/dispatch.py. All but
# the CRCs are checked without the GIL.

from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t
from libc.string cimport strlen

cdef enum:
    _COPY_FIXED_BYTES = 88  # of a record with IPv4 hosts, up to its body
    _COPY_LEAST_BYTES = 91
    _COPY_MOST_RECORDS = 4096
    _COPY_MOST_QUEUES = 256
    _COPY_SLOTS = 1024  # a power of two; four times the queues, so that a search ends after few steps

# MAX_QUEUE_OFFSET of store/replica.py.
cdef int64_t _COPY_MOST_OFFSET = <int64_t>1 << 58
cdef const char* _COPY_SCHEDULE = b"SCHEDULE_TOPIC_XXXX"

cdef struct CopiedRecord:
    int64_t physical
    int64_t tag_code
    int64_t store_ms
    Py_ssize_t body
    int32_t body_size
    int32_t crc
    int32_t size
    int32_t queue  # index in `queues`; -1 for a record without a queue entry

cdef struct CopiedQueue:
    Py_ssize_t topic
    Py_ssize_t topic_size
    int64_t first
    int64_t next
    int32_t queue_id
    int32_t count
    byte* out

cdef struct CopiedPart:
    CopiedRecord* records
    CopiedQueue* queues
    int16_t* slots  # a hash table of `queues`: index + 1, 0 for an empty slot
    int count
    int queue_count


cdef bint _copy_is_utf8(const byte* p, Py_ssize_t size) noexcept nogil:
    """As `is_utf8`, but faster for ASCII, which most texts are: eight bytes at a time."""
    cdef Py_ssize_t i = 0
    cdef uint64_t word, seen = 0
    while i + 8 <= size:
        memcpy(&word, p + i, 8)
        seen |= word
        i += 8
    while i < size:
        seen |= p[i]
        i += 1
    return not seen & 0x8080808080808080U or is_utf8(p, size)


cdef bint _copy_is_topic(const byte* p, Py_ssize_t size) noexcept nogil:
    """True for a name that a topic's directory can have, unless it is the schedule topic.

    The entries of that topic hold due times instead of tag codes, so Python makes them.
    """
    cdef Py_ssize_t i
    if size == 0 or (p[0] == 46 and (size == 1 or (size == 2 and p[1] == 46))):  # . and ..
        return False
    for i in range(size):
        if p[i] < 32 or p[i] == 127 or p[i] == 47:
            return False
    if size == <Py_ssize_t>strlen(_COPY_SCHEDULE) and memcmp(p, _COPY_SCHEDULE, size) == 0:
        return False
    return _copy_is_utf8(p, size)


cdef int64_t _copy_tag_code(const byte* p, Py_ssize_t size) noexcept nogil:
    """As `properties_tag_code`, for a text that is valid UTF-8."""
    cdef const byte* end = p + size
    cdef const byte* tag = NULL
    cdef const byte* stop
    while True:
        if end - p >= 5 and memcmp(p, b"TAGS\x01", 5) == 0:
            tag = p + 5
        p = <const byte*>memchr(p, 2, end - p)
        if p == NULL:
            break
        p += 1
    if tag == NULL:
        return 0
    stop = <const byte*>memchr(tag, 2, end - tag)
    return <int32_t>java_hash(tag, (end if stop == NULL else stop) - tag)


cdef int _copy_queue(
    CopiedPart* part, const byte* data, Py_ssize_t topic, Py_ssize_t size, int32_t queue_id, int64_t offset
) noexcept nogil:
    """Count an entry with queue offset `offset`; return the index of its queue in `queues`.

    -1 when it is not the queue's next entry, or the table is full. Only the end of the topic is hashed: names of one
    program mostly differ there.
    """
    cdef CopiedQueue* queue
    cdef uint32_t slot = <uint32_t>queue_id * 31u
    cdef Py_ssize_t i
    for i in range(16 if size > 16 else size):
        slot = slot * 31u + data[topic + size - 1 - i]
    slot &= _COPY_SLOTS - 1
    while part.slots[slot]:
        queue = part.queues + (part.slots[slot] - 1)
        if (
            queue.queue_id == queue_id
            and queue.topic_size == size
            and memcmp(data + queue.topic, data + topic, size) == 0
        ):
            if queue.next != offset or offset == INT64_MAX:
                return -1
            queue.next += 1
            queue.count += 1
            return part.slots[slot] - 1
        slot = (slot + 1) & (_COPY_SLOTS - 1)
    if part.queue_count == _COPY_MOST_QUEUES or offset == INT64_MAX:
        return -1
    queue = part.queues + part.queue_count
    queue.topic, queue.topic_size, queue.queue_id = topic, size, queue_id
    queue.first, queue.next, queue.count = offset, offset + 1, 1
    part.queue_count += 1
    part.slots[slot] = <int16_t>part.queue_count
    return part.queue_count - 1


cdef void _copy_walk(
    CopiedPart* part, const byte* data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t most, int64_t base, int64_t file_bytes,
    bint takes_zeros,
) noexcept nogil:
    """Collect the records from `data[at]` on, up to the first unusual one. Does not check the CRCs of bodies."""
    cdef CopiedRecord* found
    cdef const byte* record
    cdef int64_t left, size, body
    cdef Py_ssize_t p, topic, topic_size, text_size
    cdef uint32_t magic, flags, fixed
    cdef int32_t queue_id
    cdef int64_t queue_offset
    cdef int queue
    while part.count < _COPY_MOST_RECORDS and at < most and end - at >= _COPY_LEAST_BYTES:
        record = data + at
        size, magic = i32_at(record), u32_at(record + 4)
        left = file_bytes - (base + at) % file_bytes
        if magic != 0xDAA320A7u and magic != 0xDAA320ABu:
            return
        if size < _COPY_LEAST_BYTES or size > left - 8 or size > end - at:
            return
        flags = u32_at(record + 36)
        fixed = _COPY_FIXED_BYTES + (12 if flags & 0x10 else 0) + (12 if flags & 0x20 else 0)
        if size < <int64_t>fixed + 3:
            return
        body = i32_at(record + fixed - 4)
        if body < 0 or fixed + body + 2 >= size:
            return
        p = <Py_ssize_t>(fixed + body)
        if magic == 0xDAA320A7u:
            topic_size, topic = record[p], p + 1
        else:
            topic_size, topic = u16_at(record + p), p + 2
        p = topic + topic_size
        if p + 2 > size:
            return
        text_size = u16_at(record + p)
        p += 2
        if p + text_size != size:
            return
        queue_id, queue_offset = i32_at(record + 12), i64_at(record + 20)
        if i64_at(record + 28) != base + at or queue_id < 0 or not 0 <= queue_offset <= _COPY_MOST_OFFSET:
            return
        if not _copy_is_topic(record + topic, topic_size) or not _copy_is_utf8(record + p, text_size):
            return
        if not takes_zeros and memchr(record + p, 0, text_size) != NULL:
            return
        queue = -1
        found = part.records + part.count
        found.store_ms = i64_at(record + (68 if flags & 0x10 else 56))
        if part.count and found.store_ms < part.records[part.count - 1].store_ms:
            return  # ends the part: within one, store times must not go back
        if (flags & 0xC == 0 or flags & 0xC == 8) and not flags & 0x80:
            queue = _copy_queue(part, data, at + topic, topic_size, queue_id, queue_offset)
            if queue < 0:
                return
            found.tag_code = _copy_tag_code(record + p, text_size)
        found.queue = queue
        found.physical, found.size = base + at, <int32_t>size
        found.body, found.body_size, found.crc = at + fixed, <int32_t>body, i32_at(record + 8)
        part.count += 1
        at += <Py_ssize_t>size


cdef class RecordWalk:
    """Takes usual records from a log's bytes, many at a time. Owned by one thread."""

    cdef CopiedRecord records[_COPY_MOST_RECORDS]
    cdef CopiedQueue queues[_COPY_MOST_QUEUES]
    cdef int16_t slots[_COPY_SLOTS]
    cdef object crc32
    cdef _Window window
    #: Number of records taken.
    cdef readonly int64_t taken

    def __init__(self, crc32):
        """crc32: zlib-ng's function."""
        self.crc32 = crc32
        self.window = _Window()

    def walk(
        self, data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t most, int64_t base, int64_t file_bytes,
        bint takes_zeros=True,
    ):
        """Take the records from `data[at]` on that begin before `most`. None if there are none.

        Ends before the first record that is unusual, wrong, older than the one before it or not complete by `end`.
        Returns (the place of that record in `data`, physical offset of the last record taken, latest store time in ms,
        [(topic, queue id, first queue offset, number of entries, the entries)]); a queue's offsets are consecutive.

        base: the physical offset of `data[0]`, which may lie in another file. takes_zeros: False if a record with zeros
        in its properties is unusual.
        """
        cdef Py_buffer view
        cdef CopiedPart part
        if not 0 <= at <= end or file_bytes < 1 or base > INT64_MAX - end or base + at < 0:
            return None
        part.records, part.queues, part.slots = self.records, self.queues, self.slots
        part.count = part.queue_count = 0
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            end = min(end, view.len)
            with nogil:
                memset(self.slots, 0, sizeof(self.slots))
                _copy_walk(&part, <const byte*>view.buf, at, end, most, base, file_bytes, takes_zeros)
            self.check(&part, <const byte*>view.buf)
            return self.parts(&part, <const byte*>view.buf, base) if part.count else None
        finally:
            PyBuffer_Release(&view)

    cdef int check(self, CopiedPart* part, const byte* data) except -1:
        """Drop the first record whose body does not match its CRC, and all records behind it."""
        cdef int i
        cdef CopiedRecord* found
        for i in range(part.count):
            found = part.records + i
            if found.body_size:
                self.window.data, self.window.size = data + found.body, found.body_size
                if <int64_t>self.crc32(self.window) & 0x7FFFFFFF != found.crc:
                    part.count = i
                    return 0
        return 0

    cdef object parts(self, CopiedPart* part, const byte* data, int64_t base):
        cdef CopiedRecord* found
        cdef CopiedQueue* queue
        cdef int64_t store_ms = INT64_MIN
        cdef int i
        cdef list runs = []
        for i in range(part.queue_count):
            part.queues[i].count = 0
        for i in range(part.count):
            if part.records[i].queue >= 0:
                part.queues[part.records[i].queue].count += 1
        for i in range(part.queue_count):
            queue = part.queues + i
            if not queue.count:  # `check` dropped its first record
                continue
            entries = PyBytes_FromStringAndSize(NULL, queue.count * <Py_ssize_t>ENTRY_BYTES)
            queue.out = <byte*>PyBytes_AS_STRING(entries)
            topic = PyBytes_FromStringAndSize(<const char*>data + queue.topic, queue.topic_size)
            runs.append((topic.decode(), queue.queue_id, queue.first, queue.count, entries))
        for i in range(part.count):
            found = part.records + i
            if found.queue >= 0:
                queue = part.queues + found.queue
                put_entry(queue.out, found.physical, found.size, found.tag_code)
                queue.out += ENTRY_BYTES
            if found.store_ms > store_ms:
                store_ms = found.store_ms
        self.taken += part.count
        found = part.records + part.count - 1
        return found.physical + found.size - base, found.physical, store_ms, runs
