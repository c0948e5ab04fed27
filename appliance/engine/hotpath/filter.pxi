# The properties of stored messages that a SQL92 expression names. Reference: `property_values` of filter/projection.py,
# over records that `store/settling.py` has read. Here each record is read on its own, without its body where that is
# long. All of it happens without the GIL, so that a scan never holds up the event loop.

from os import strerror as os_strerror

cdef extern from *:
    """
    UNBROKEN(pread_unbroken, (int fd, void *buffer, size_t size, off_t position), pread(fd, buffer, size, position))
    """
    ssize_t pread_unbroken(int fd, void* buffer, size_t size, off_t position) nogil

cdef enum:
    _VALUES_MOST_NAMES = 16
    _VALUES_ENTRY = 20
    # Up to this size a record is read in one piece, with its body.
    _VALUES_SHORT_RECORD = 8192
    # Up to the body's length, with two IPv6 hosts.
    _VALUES_HEAD = 112
    _VALUES_BEHIND_BODY = 2 * (2 + 0xFFFF)
    # Records that lie close together are read with one call: a call costs as much as copying a gap of this size.
    _VALUES_WINDOW = 128 * 1024
    _VALUES_GAP = 4096

cdef struct Name:
    const char* text
    Py_ssize_t size


cdef inline long long _values_number(const unsigned char* at, int size) noexcept nogil:
    cdef unsigned long long value = 0
    cdef int i
    for i in range(size):
        value = value << 8 | at[i]
    return <long long>value


cdef struct Values:
    # All keys, one behind the other, and the end of each in `data`; -1 for a record without a key.
    char* data
    Py_ssize_t size
    Py_ssize_t room
    Py_ssize_t* ends
    int error


cdef bint _values_add(Values* all, const char* text, Py_ssize_t size) noexcept nogil:
    cdef char* data
    cdef Py_ssize_t room
    if all.size + size > all.room:
        room = 2 * (all.size + size) + 4096
        data = <char*>realloc(all.data, room)
        if data == NULL:
            return False
        all.data, all.room = data, room
    if size:
        memcpy(all.data + all.size, text, size)
    all.size += size
    return True


cdef bint _values_of_properties(
    Values* all, const char* at, const char* end, const Name* names, int name_count
) noexcept nogil:
    """Add the key of one record: the values of `names`, joined by 0x02. False if there is no memory.

    As `decode_properties` reads them: a pair with an empty name or value does not count, of two with one name the last.
    """
    cdef const char* found[_VALUES_MOST_NAMES]
    cdef Py_ssize_t sizes[_VALUES_MOST_NAMES]
    cdef const char* stop
    cdef const char* middle
    cdef int i
    for i in range(name_count):
        sizes[i] = 0
    while at < end:
        stop = <const char*>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        middle = <const char*>memchr(at, 1, stop - at)
        if middle != NULL and middle > at and middle + 1 < stop:
            for i in range(name_count):
                if names[i].size == middle - at and memcmp(names[i].text, at, middle - at) == 0:
                    found[i], sizes[i] = middle + 1, stop - middle - 1
                    break
        at = stop + 1
    for i in range(name_count):
        if i and not _values_add(all, b"\x02", 1):
            return False
        if sizes[i] and not _values_add(all, found[i], sizes[i]):
            return False
    return True


cdef struct Window:
    # The bytes [begin, end) of the file are in `data`.
    unsigned char* data
    long long begin
    long long end


cdef long long _values_span(const unsigned char* lines, Py_ssize_t count, long long start, long long end) noexcept nogil:
    """Return the end of a read that begins at the first entry's record and takes short ones close behind it, too."""
    cdef long long physical = _values_number(lines, 8), size = _values_number(lines + 8, 4)
    cdef long long first = physical, reached = physical + size
    cdef Py_ssize_t number
    for number in range(1, count):
        physical = _values_number(lines + number * _VALUES_ENTRY, 8)
        size = _values_number(lines + number * _VALUES_ENTRY + 8, 4)
        if size <= 0 or size > _VALUES_SHORT_RECORD or physical < reached or physical > reached + _VALUES_GAP:
            break
        if physical + size - first > _VALUES_WINDOW or physical + size > end:
            break
        reached = physical + size
    return reached - start


cdef int _values_of_record(
    Values* all, int fd, Window* window, long long position, long long size, long long reach, const Name* names,
    int name_count,
) noexcept nogil:
    """Return 1 if the record's key was added, 0 if there is no such record, -1 if the disk or the memory fails.

    reach: where a read that begins here may end; see `_values_span`.
    """
    cdef unsigned char* buffer = window.data
    cdef ssize_t got
    cdef long long at, body, rest
    cdef unsigned char* place
    if size < _KEY_RECORD_BYTES:
        return 0
    if size <= _VALUES_SHORT_RECORD:
        if position < window.begin or position + size > window.end:
            if reach - position < size or reach - position > _VALUES_WINDOW:
                reach = position + size  # never more than the buffer holds
            got = pread_unbroken(fd, buffer, reach - position, position)
            if got < 0:
                all.error = errno
                return -1
            window.begin, window.end = position, position + got
            if got < size:
                return 0
        buffer += position - window.begin
    else:
        window.begin = window.end = 0
        got = pread_unbroken(fd, buffer, _VALUES_HEAD, position)
        if got < 0:
            all.error = errno
            return -1
        if got < _VALUES_HEAD:
            return 0
    if _values_number(buffer, 4) != size:
        return 0
    if buffer[4] != 0xDA or buffer[5] != 0xA3 or buffer[6] != 0x20 or (buffer[7] != 0xA7 and buffer[7] != 0xAB):
        return 0
    at = 84 + (12 if buffer[39] & 0x10 else 0) + (12 if buffer[39] & 0x20 else 0)
    if at + 4 > size:
        return 0
    body = _values_number(buffer + at, 4)
    at += 4
    rest = size - at - body
    if body < 0 or body > size or rest < 3:
        return 0
    if size <= _VALUES_SHORT_RECORD:
        place = buffer + at + body
    else:
        if rest > _VALUES_BEHIND_BODY:
            return 0
        place = buffer + _VALUES_HEAD
        got = pread_unbroken(fd, place, rest, position + at + body)
        if got < 0:
            all.error = errno
            return -1
        if got < rest:
            return 0
    # From here on `rest` bytes lie at `place`: topic and properties with their lengths.
    if buffer[7] == 0xA7:
        at = 1 + place[0]
    else:
        at = 2 + _values_number(place, 2)
    if at + 2 > rest or at + 2 + _values_number(place + at, 2) != rest:
        return 0
    if not _values_of_properties(all, <const char*>place + at + 2, <const char*>place + rest, names, name_count):
        return -1
    return 1


def values_of(int fd, long long start, long long end, bytes entries, Py_ssize_t first, Py_ssize_t most, tuple names):
    """Return the keys of the records of up to `most` queue entries, from entry `first` on; None for what is no record.

    Ends early at a record outside the log file `fd`, which holds the physical offsets [start, end). names: bytes, at
    most 16; the result is None if there are more. Raises OSError, MemoryError.
    """
    cdef Name some[_VALUES_MOST_NAMES]
    cdef Values all
    cdef Window window
    cdef long long reach = 0
    cdef const unsigned char* lines = <const unsigned char*>PyBytes_AS_STRING(entries)
    cdef const unsigned char* entry
    cdef Py_ssize_t count = PyBytes_GET_SIZE(entries) // _VALUES_ENTRY - first, number, begin
    cdef long long physical, size
    cdef int name_count = len(names), i, outcome = 1
    if name_count > _VALUES_MOST_NAMES or first < 0:
        return None
    for i in range(name_count):
        name = names[i]
        some[i].text, some[i].size = PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
    if count > most:
        count = most
    if count <= 0:
        return []
    all.data, all.size, all.room, all.error = NULL, 0, 0, 0
    all.ends = <Py_ssize_t*>realloc(NULL, count * sizeof(Py_ssize_t))
    window.begin = window.end = 0
    window.data = <unsigned char*>realloc(NULL, _VALUES_WINDOW + _VALUES_BEHIND_BODY)
    try:
        if all.ends == NULL or window.data == NULL:
            raise MemoryError
        with nogil:
            number = 0
            while number < count:
                entry = lines + (first + number) * _VALUES_ENTRY
                physical, size = _values_number(entry, 8), _values_number(entry + 8, 4)
                if size <= 0 or size >= 0x7FFFFFFF or physical < start or physical >= end:
                    break
                if physical - start < window.begin or physical - start + size > window.end:
                    reach = _values_span(entry, count - number, start, end)
                outcome = _values_of_record(&all, fd, &window, physical - start, size, reach, some, name_count)
                if outcome < 0:
                    break
                all.ends[number] = all.size if outcome else -1
                number += 1
        if outcome < 0:
            if all.error:
                raise OSError(all.error, os_strerror(all.error))
            raise MemoryError
        found = []
        begin = 0
        for i in range(number):
            if all.ends[i] < 0:
                found.append(None)
            else:
                found.append(PyBytes_FromStringAndSize(all.data + begin, all.ends[i] - begin))
                begin = all.ends[i]
        return found
    finally:
        free(all.data)
        free(all.ends)
        free(window.data)
