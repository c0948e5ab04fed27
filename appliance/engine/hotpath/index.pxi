# The key index. References: `store/index/index_keys.py` for `scan_keys`, which finds the keys of usual records, and
# `pure_index.py` for the rest. Large slices are handled without the GIL. That is safe because their data are immutable
# bytes, and keys and table belong to the thread that holds the index's lock.

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp

cdef extern from *:
    void __builtin_prefetch(const void* at) noexcept nogil

cdef enum:
    _KEY_RECORD_BYTES = 91  # of a V1 record with IPv4 hosts, without body, topic and properties
    _KEY_ENTRY_BYTES = 20
    _KEY_FIRST_ENTRY = 1
    # Smaller amounts of work keep the GIL: releasing it and taking it back would cost more.
    _KEY_SCAN_GIL_BYTES = 32768
    _KEY_PUT_GIL = 256
    # Longest record that `keyed_record` reads.
    _KEY_READ_BYTES = 4096
    # Words of KEYS in so many bytes are all indexed: twice `dispatch.FEW_WORDS`.
    _KEY_FEW_WORDS_BYTES = 128
    # The table of slots is larger than the processor's caches, so slots are prefetched this many keys ahead.
    _KEY_AHEAD = 16

cdef struct PackedKey:
    long long physical
    long long time_ms
    unsigned int code


cdef class Keys:
    """Keys in their order, (hash, physical offset, store time in ms) each, packed instead of a tuple each.

    Has the methods of a list that the index uses. Used by one thread at a time.
    """

    cdef PackedKey* keys
    cdef Py_ssize_t count
    cdef Py_ssize_t room

    def __dealloc__(self):
        free(self.keys)

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(self.count))]
        cdef Py_ssize_t i = at
        if i < 0:
            i += self.count
        if not 0 <= i < self.count:
            raise IndexError(at)
        return self.keys[i].code, self.keys[i].physical, self.keys[i].time_ms

    def append(self, key):
        code, physical, time_ms = key
        if not _key_append(self, code, physical, time_ms):
            raise MemoryError

    def clear(self):
        self.count = 0


cdef bint _key_append(Keys found, unsigned int code, long long physical, long long time_ms) noexcept nogil:
    """Append a key; False if there is no memory."""
    cdef PackedKey* moved
    cdef Py_ssize_t room
    if found.count == found.room:
        room = 2 * found.room if found.room else 512
        moved = <PackedKey*>realloc(found.keys, room * sizeof(PackedKey))
        if moved == NULL:
            return False
        found.keys = moved
        found.room = room
    found.keys[found.count].code = code
    found.keys[found.count].physical = physical
    found.keys[found.count].time_ms = time_ms
    found.count += 1
    return True


cdef inline unsigned int _key_u32(const unsigned char* at) noexcept nogil:
    return (<unsigned int>at[0] << 24) | (<unsigned int>at[1] << 16) | (<unsigned int>at[2] << 8) | at[3]


cdef inline long long _key_i64(const unsigned char* at) noexcept nogil:
    return <long long>((<unsigned long long>_key_u32(at) << 32) | _key_u32(at + 4))


cdef inline void _key_put_u32(unsigned char* at, unsigned int value) noexcept nogil:
    at[0] = value >> 24
    at[1] = value >> 16 & 0xFF
    at[2] = value >> 8 & 0xFF
    at[3] = value & 0xFF


cdef bint _key_hash(const unsigned char* at, Py_ssize_t size, unsigned int* code) noexcept nogil:
    """Continue Java's hash in `code` over `size` bytes of text; False if they are not UTF-8."""
    cdef const unsigned char* begin = at
    cdef const unsigned char* end = at + size
    cdef unsigned int value = code[0], seen = 0
    while size >= 4:  # four bytes a step: a multiplication then depends on the one before it only once in four bytes
        value = value * 923521u + at[0] * 29791u + at[1] * 961u + at[2] * 31u + at[3]
        seen |= at[0] | at[1] | at[2] | at[3]
        at += 4
        size -= 4
    while size > 0:
        value = value * 31u + at[0]
        seen |= at[0]
        at += 1
        size -= 1
    if seen > 127:
        return _key_hash_units(begin, end, code)
    code[0] = value
    return True


cdef bint _key_hash_units(const unsigned char* at, const unsigned char* end, unsigned int* code) noexcept nogil:
    """As `_key_hash`, for text with non-ASCII characters: Java hashes UTF-16 units."""
    cdef unsigned int value = code[0], c, least, more
    while at < end:
        c = at[0]
        at += 1
        if c < 0x80:
            value = value * 31u + c
            continue
        if c < 0xC2 or c > 0xF4:
            return False
        more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
        if end - at < <Py_ssize_t>more:
            return False
        least = 0x80 if more == 1 else 0x800 if more == 2 else 0x10000
        c &= 0x3F >> more
        while more > 0:
            if at[0] & 0xC0 != 0x80:
                return False
            c = c << 6 | (at[0] & 0x3F)
            at += 1
            more -= 1
        if c < least or c > 0x10FFFF or 0xD800 <= c <= 0xDFFF:
            return False
        if c > 0xFFFF:
            c -= 0x10000
            value = value * 31u + (0xD800 | c >> 10)
            c = 0xDC00 | (c & 0x3FF)
        value = value * 31u + c
    code[0] = value
    return True


cdef inline unsigned int _key_abs(unsigned int code) noexcept nogil:
    """Return the absolute value of a hash, as Apache's index does: 0 for -2**31."""
    return code if code < 0x80000000u else (0u - code) & 0x7FFFFFFFu


cdef Py_ssize_t _key_scan(
    const unsigned char* data, Py_ssize_t at, Py_ssize_t end, long long base, Keys found, Py_ssize_t* limit
) noexcept nogil:
    """Append the keys of usual records from `data[at]` on; return the place where it stopped, -1 if there is no memory.

    limit: most records to read; reduced by those that were read. Nothing of the record at the place returned is in
    `found`, so that Python can take over there.
    """
    cdef const unsigned char* record
    cdef const unsigned char* p
    cdef const unsigned char* q
    cdef const unsigned char* stop
    cdef const unsigned char* unique
    cdef const unsigned char* words
    cdef const unsigned char* topic = NULL
    cdef Py_ssize_t topic_size = 0, unique_size, words_size, size, before, left
    cdef unsigned int topic_code = 0, code, sys_flag, body
    cdef long long physical, time_ms
    while limit[0] > 0 and at + _KEY_RECORD_BYTES <= end:
        record = data + at
        size = _key_u32(record)
        sys_flag = _key_u32(record + 36)
        physical = _key_i64(record + 28)
        body = _key_u32(record + 84)
        if (
            _key_u32(record + 4) != 0xDAA320A7u
            or size < _KEY_RECORD_BYTES
            or size > end - at
            or sys_flag & 0x30
            or physical != base + at
            or <Py_ssize_t>body > size - _KEY_RECORD_BYTES
        ):
            break
        p = record + 88 + body
        stop = record + size
        q = p + 3 + p[0]
        if q > stop or stop - q != ((<Py_ssize_t>(q - 2)[0] << 8) | (q - 1)[0]):
            break
        if sys_flag & 0xC == 0xC:  # rolled back
            at += size
            limit[0] -= 1
            continue
        # Neighbours mostly have the same topic, whose hash every key continues: it is computed once.
        if topic == NULL or p[0] != topic_size or memcmp(p + 1, topic, topic_size) != 0:
            code = 0
            if not _key_hash(p + 1, p[0], &code):
                break
            topic = p + 1
            topic_size = p[0]
            topic_code = code * 31u + 35  # '#'
        unique = words = NULL
        unique_size = words_size = 0
        p = q
        while p < stop:
            q = <const unsigned char*>memchr(p, 2, stop - p)
            if q == NULL:
                q = stop
            if p[0] == 85 and q - p >= 9 and memcmp(p, b"UNIQ_KEY\x01", 9) == 0:
                unique = p + 9
                unique_size = q - unique
                if unique_size == 0:
                    break
            elif p[0] == 75 and q - p >= 5 and memcmp(p, b"KEYS\x01", 5) == 0:
                words = p + 5
                words_size = q - words
                if words_size == 0:
                    break
            p = q + 1
        if (unique != NULL and unique_size == 0) or (words != NULL and words_size == 0):
            break  # an empty value does not count, so an earlier pair with this name may: Python decides
        time_ms = _key_i64(record + 56)
        before = found.count
        if unique != NULL:
            code = topic_code
            if not _key_hash(unique, unique_size, &code):
                break
            if not _key_append(found, _key_abs(code), physical, time_ms):
                return -1
        if words != NULL:
            stop = words + words_size
            left = 64 + words_size // 10  # `dispatch.most_words`
            while words < stop and left:
                q = <const unsigned char*>memchr(words, 32, stop - words)
                if q == NULL:
                    q = stop
                if q > words:
                    left -= 1
                    code = topic_code
                    if not _key_hash(words, q - words, &code):
                        found.count = before
                        return at
                    if not _key_append(found, _key_abs(code), physical, time_ms):
                        return -1
                words = q + 1
        at += size
        limit[0] -= 1
    return at


def scan_keys(bytes data, Py_ssize_t at, long long base, Keys found, Py_ssize_t limit):
    """Run `KeyScanner.scan` up to the first record that is unusual, incomplete, or no record; return (the place in
    `data` where it stopped, records of `limit` that are left)."""
    cdef const unsigned char* raw = <const unsigned char*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    if at < 0:
        return at, limit
    if end - at < _KEY_SCAN_GIL_BYTES:
        at = _key_scan(raw, at, end, base, found, &limit)
    else:
        with nogil:
            at = _key_scan(raw, at, end, base, found, &limit)
    if at < 0:
        raise MemoryError
    return at, limit


cdef struct KeyPlace:
    int* table
    Py_ssize_t slots
    Py_ssize_t number
    Py_ssize_t used
    long long begin_ms


cdef void _key_put(const PackedKey* keys, Py_ssize_t count, unsigned char* entry, KeyPlace* place) noexcept nogil:
    cdef Py_ssize_t i
    cdef long long last_ms = -1, time_ms, seconds = 0
    cdef unsigned int slots = <unsigned int>place.slots
    cdef int previous
    cdef int* slot
    for i in range(count):
        if i + _KEY_AHEAD < count:
            __builtin_prefetch(place.table + keys[i + _KEY_AHEAD].code % slots)
        time_ms = keys[i].time_ms
        if time_ms != last_ms:
            last_ms = time_ms
            seconds = 0
            if place.begin_ms > 0 and time_ms > place.begin_ms:
                seconds = (time_ms - place.begin_ms) // 1000
                if seconds > 0x7FFFFFFF:
                    seconds = 0x7FFFFFFF
        slot = place.table + keys[i].code % slots
        previous = slot[0]
        if previous <= 0:
            previous = 0
            place.used += 1
        _key_put_u32(entry, keys[i].code)
        _key_put_u32(entry + 4, <unsigned int>(<unsigned long long>keys[i].physical >> 32))
        _key_put_u32(entry + 8, <unsigned int>keys[i].physical)
        _key_put_u32(entry + 12, <unsigned int>seconds)
        _key_put_u32(entry + 16, <unsigned int>previous)
        entry += _KEY_ENTRY_BYTES
        slot[0] = <int>place.number
        if place.number == _KEY_FIRST_ENTRY:
            place.begin_ms = time_ms
            last_ms = -1
        place.number += 1


cdef void _key_take_back(const unsigned char* entries, Py_ssize_t count, int* table, Py_ssize_t slots) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count - 1, -1, -1):
        table[_key_slot(entries + i * _KEY_ENTRY_BYTES, slots)] = <int>_key_u32(entries + i * _KEY_ENTRY_BYTES + 16)


cdef Py_ssize_t _key_link(
    const unsigned char* entries, Py_ssize_t count, int* table, Py_ssize_t slots, Py_ssize_t number
) noexcept nogil:
    cdef Py_ssize_t i, used = 0
    cdef int* slot
    for i in range(count):
        if i + _KEY_AHEAD < count:
            __builtin_prefetch(table + _key_slot(entries + (i + _KEY_AHEAD) * _KEY_ENTRY_BYTES, slots))
        slot = table + _key_slot(entries + i * _KEY_ENTRY_BYTES, slots)
        used += slot[0] == 0
        slot[0] = <int>(number + i)
    return used


cdef inline Py_ssize_t _key_slot(const unsigned char* entry, Py_ssize_t slots) noexcept nogil:
    """Return the slot of a stored entry. Its hash may be negative: only the entries of this broker are known to be
    positive."""
    cdef Py_ssize_t slot = <int>_key_u32(entry) % slots
    return slot if slot >= 0 else slot + slots


cdef int _key_table(object table, Py_buffer* view) except -1:
    """Acquire the buffer of a table of slots, which the caller releases. Raises ValueError for another buffer."""
    PyObject_GetBuffer(table, view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    if view.len < 4 or view.len % 4 or view.len // 4 > 0x7FFFFFFF:
        PyBuffer_Release(view)
        raise ValueError("no table of slots")
    return 0


def put_keys(table, Keys keys, Py_ssize_t begin, Py_ssize_t count, Py_ssize_t number, Py_ssize_t used, begin_ms):
    """Return (the entries of `count` keys from `keys[begin]` on, slots in use then); see `pure_index.py`."""
    cdef Py_buffer view
    cdef KeyPlace place
    cdef const PackedKey* first
    cdef unsigned char* out
    if begin < 0 or count < 0 or begin + count > keys.count or number < 0 or number + count > 0x7FFFFFFF:
        raise ValueError("keys that are not there")
    entries = PyBytes_FromStringAndSize(NULL, count * _KEY_ENTRY_BYTES)
    out = <unsigned char*>PyBytes_AS_STRING(entries)
    first = keys.keys + begin
    place.begin_ms, place.number, place.used = begin_ms, number, used
    _key_table(table, &view)
    place.table = <int*>view.buf
    place.slots = view.len // 4
    if count < _KEY_PUT_GIL:
        _key_put(first, count, out, &place)
    else:
        with nogil:
            _key_put(first, count, out, &place)
    PyBuffer_Release(&view)
    return entries, place.used


def take_back(table, bytes entries):
    """See `pure_index.py`."""
    cdef Py_buffer view
    _key_table(table, &view)
    _key_take_back(
        <const unsigned char*>PyBytes_AS_STRING(entries), PyBytes_GET_SIZE(entries) // _KEY_ENTRY_BYTES,
        <int*>view.buf, view.len // 4,
    )
    PyBuffer_Release(&view)


def link_entries(table, bytes entries, Py_ssize_t number):
    """See `pure_index.py`."""
    cdef Py_buffer view
    cdef const unsigned char* first = <const unsigned char*>PyBytes_AS_STRING(entries)
    cdef Py_ssize_t count = PyBytes_GET_SIZE(entries) // _KEY_ENTRY_BYTES, used
    if number < 0 or number + count > 0x7FFFFFFF:
        raise ValueError("numbers that no slot holds")
    _key_table(table, &view)
    with nogil:
        used = _key_link(first, count, <int*>view.buf, view.len // 4, number)
    PyBuffer_Release(&view)
    return used


def chain_cached(
    int fd, long long slot_at, long long number, long long entries_at, long long count, long long begin_ms,
    unsigned int code, int steps,
):
    """As `IndexFile.chain_now`. slot_at: place of the slot in the file, if `number` is negative. Keeps the GIL: what is
    cached is read in less time than giving it up takes."""
    cdef unsigned char entry[_KEY_ENTRY_BYTES]
    cdef long long seconds, previous
    if number < 0:
        if pread_cached(fd, entry, 4, slot_at) != 4:
            return None
        number = <int>_key_u32(entry)
        if number > count:
            number = 0
    found = []
    while 0 < number < count:
        if steps <= 0:
            return None
        steps -= 1
        if pread_cached(fd, entry, _KEY_ENTRY_BYTES, entries_at + number * _KEY_ENTRY_BYTES) != _KEY_ENTRY_BYTES:
            return None
        seconds, previous = <int>_key_u32(entry + 12), <int>_key_u32(entry + 16)
        if _key_u32(entry) == code and seconds >= 0:
            found.append((_key_i64(entry + 4), begin_ms + (seconds * 1000 if number > _KEY_FIRST_ENTRY else 0)))
        number = previous if previous < number else 0
    return found


cdef bint _key_is(
    const unsigned char* at, const unsigned char* end, const unsigned char* key, Py_ssize_t size
) noexcept nogil:
    return end - at == size and memcmp(at, key, size) == 0


cdef Py_ssize_t _keyed_size(
    const unsigned char* record, Py_ssize_t got, long long physical, const unsigned char* topic, Py_ssize_t topic_size,
    const unsigned char* key, Py_ssize_t key_size, long long begin_ms, long long end_ms,
) noexcept nogil:
    """Return the size of the record if it is a usual one that has this key; 0 if not, or if Python has to look."""
    cdef const unsigned char* p
    cdef const unsigned char* q
    cdef const unsigned char* end
    cdef const unsigned char* unique = NULL
    cdef const unsigned char* unique_end = NULL
    cdef const unsigned char* words = NULL
    cdef const unsigned char* words_end = NULL
    cdef Py_ssize_t size, body
    cdef unsigned char seen = 0
    if got < _KEY_RECORD_BYTES or key_size == 0:
        return 0
    size = _key_u32(record)
    body = _key_u32(record + 84)
    if (
        size < _KEY_RECORD_BYTES or size > got or _key_u32(record + 4) != 0xDAA320A7u or _key_u32(record + 36) & 0x30
        or _key_i64(record + 28) != physical or body > size - _KEY_RECORD_BYTES
        or not begin_ms <= _key_i64(record + 56) <= end_ms
    ):
        return 0
    p = record + 88 + body
    end = record + size
    q = p + 1 + p[0]
    if q + 2 > end or end - q - 2 != ((<Py_ssize_t>q[0] << 8) | q[1]) or not _key_is(p + 1, q, topic, topic_size):
        return 0
    p = q + 2
    q = p
    while q < end:
        seen |= q[0]
        q += 1
    if seen > 127:
        return 0
    while p < end:
        q = <const unsigned char*>memchr(p, 2, end - p)
        if q == NULL:
            q = end
        # A pair without a value does not count; of two pairs with one name the last.
        if q - p > 9 and memcmp(p, b"UNIQ_KEY\x01", 9) == 0:
            unique, unique_end = p + 9, q
        elif q - p > 5 and memcmp(p, b"KEYS\x01", 5) == 0:
            words, words_end = p + 5, q
        p = q + 1
    if unique != NULL and _key_is(unique, unique_end, key, key_size):
        return size
    if words == NULL or words_end - words >= _KEY_FEW_WORDS_BYTES:
        return 0
    while words < words_end:
        q = <const unsigned char*>memchr(words, 32, words_end - words)
        if q == NULL:
            q = words_end
        if _key_is(words, q, key, key_size):
            return size
        words = q + 1
    return 0


def keyed_record(
    int fd, long long position, long long room, long long physical, bytes topic, bytes key, long long begin_ms,
    long long end_ms,
):
    """Return the bytes of the record at a position in the file `fd` if it is cached, has at most `room` bytes, and is a
    usual one of this topic and key, stored in [begin_ms, end_ms]. None: Python has to look. Keeps the GIL, as above."""
    cdef unsigned char record[_KEY_READ_BYTES]
    cdef ssize_t got = pread_cached(fd, record, room if room < _KEY_READ_BYTES else _KEY_READ_BYTES, position)
    cdef Py_ssize_t size = _keyed_size(
        record, got, physical, <const unsigned char*>PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic),
        <const unsigned char*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), begin_ms, end_ms,
    )
    return PyBytes_FromStringAndSize(<char*>record, size) if size else None
