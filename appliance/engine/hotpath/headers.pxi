# Parsing of a request's header, in either encoding, into pointers to its bytes, and the values of its fields.
#
# Strict: it understands what Java, Go and C++ clients write. Everything else is "unusual" (0), even if it is correct:
# Python decides about it. So nothing here has to reproduce Python's json module. Formats: `protocol/header_codecs.py`.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

ctypedef unsigned char byte

cdef enum:
    MOST_FIELDS = 48

    # Kinds of a field's value: text as it stands, text with JSON's escapes, a whole number, true, false, null.
    TEXT = 1
    ESCAPED = 2
    NUMBER = 3
    TRUE = 4
    FALSE = 5
    NULL_VALUE = 6

cdef struct Field:
    const byte* name
    Py_ssize_t name_size
    const byte* value
    Py_ssize_t size
    int kind

cdef struct Header:
    int64_t code
    int64_t opaque
    int64_t flag
    int64_t version
    # Bits 1, 2, 4, 8: the four fields above that the header has; 16: it has extFields.
    int has
    int count
    Field fields[MOST_FIELDS]


cdef inline uint32_t u32_at(const byte* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline int32_t i32_at(const byte* p) noexcept nogil:
    return <int32_t>u32_at(p)


cdef inline uint32_t u16_at(const byte* p) noexcept nogil:
    return (<uint32_t>p[0] << 8) | p[1]


cdef inline int64_t i64_at(const byte* p) noexcept nogil:
    return <int64_t>((<uint64_t>u32_at(p) << 32) | u32_at(p + 4))


cdef inline void put_u32(byte* p, uint32_t value) noexcept nogil:
    p[0] = value >> 24
    p[1] = (value >> 16) & 0xFF
    p[2] = (value >> 8) & 0xFF
    p[3] = value & 0xFF


cdef inline void put_i64(byte* p, int64_t value) noexcept nogil:
    put_u32(p, <uint32_t>(<uint64_t>value >> 32))
    put_u32(p + 4, <uint32_t>(<uint64_t>value & 0xFFFFFFFFU))


cdef bint is_utf8(const byte* p, Py_ssize_t size) noexcept nogil:
    """True if Python would decode these bytes: no overlong forms, no surrogates, nothing beyond U+10FFFF."""
    cdef Py_ssize_t i = 0
    cdef int more, k
    cdef uint32_t c, least
    while i < size:
        c = p[i]
        i += 1
        if c < 0x80:
            continue
        if 0xC2 <= c <= 0xDF:
            more, least, c = 1, 0x80, c & 0x1F
        elif 0xE0 <= c <= 0xEF:
            more, least, c = 2, 0x800, c & 0x0F
        elif 0xF0 <= c <= 0xF4:
            more, least, c = 3, 0x10000, c & 0x07
        else:
            return False
        if i + more > size:
            return False
        for k in range(more):
            if p[i] & 0xC0 != 0x80:
                return False
            c = (c << 6) | (p[i] & 0x3F)
            i += 1
        if c < least or c > 0x10FFFF or 0xD800 <= c <= 0xDFFF:
            return False
    return True


cdef inline int hex_digit(byte c) noexcept nogil:
    if 48 <= c <= 57:
        return c - 48
    c |= 0x20
    if 97 <= c <= 102:
        return c - 87
    return -1


cdef Py_ssize_t end_of_text(const byte* p, Py_ssize_t at, Py_ssize_t end, int* kind) noexcept nogil:
    """Return the place of the quote that ends the JSON text starting at `p[at]`; -1 when the text is unusual.

    kind: set to TEXT or ESCAPED.
    """
    cdef Py_ssize_t begin = at
    cdef bint wide = False
    cdef byte c
    cdef int k
    kind[0] = TEXT
    while at < end:
        c = p[at]
        if c == 34:  # "
            if wide and not is_utf8(p + begin, at - begin):
                return -1
            return at
        if c == 92:  # backslash
            kind[0] = ESCAPED
            at += 1
            if at >= end:
                return -1
            c = p[at]
            if c == 117:  # u
                if at + 4 >= end:
                    return -1
                for k in range(1, 5):
                    if hex_digit(p[at + k]) < 0:
                        return -1
                if hex_digit(p[at + 1]) == 13 and hex_digit(p[at + 2]) >= 8:
                    return -1  # half of a surrogate pair is not valid text in any field
                at += 4
            elif not (c == 34 or c == 92 or c == 47 or c == 98 or c == 102 or c == 110 or c == 114 or c == 116):
                return -1
        elif c < 32:
            return -1
        elif c >= 0x80:
            wide = True
        at += 1
    return -1


cdef bint number_of(const byte* p, Py_ssize_t size, int64_t* value) noexcept nogil:
    """Parse a whole number as clients write it: no sign but a minus, no leading zeros, at most 18 digits.

    18 digits always fit into 64 bits, so the sum below needs no check for overflow.
    """
    cdef Py_ssize_t i = 0
    cdef int64_t n = 0
    cdef bint negative = False
    if size and p[0] == 45:
        negative = True
        i = 1
    if size - i < 1 or size - i > 18:
        return False
    if p[i] == 48 and (size - i > 1 or negative):
        return False
    while i < size:
        if p[i] < 48 or p[i] > 57:
            return False
        n = n * 10 + (p[i] - 48)
        i += 1
    value[0] = -n if negative else n
    return True


cdef Py_ssize_t json_value(const byte* p, Py_ssize_t at, Py_ssize_t end, Field* field) noexcept nogil:
    """Read a text, a whole number, true, false or null; return the place behind it, -1 for any other value."""
    cdef Py_ssize_t stop
    cdef int64_t number
    cdef byte c
    if at >= end:
        return -1
    c = p[at]
    if c == 34:
        stop = end_of_text(p, at + 1, end, &field.kind)
        field.value = p + at + 1
        field.size = stop - at - 1
        return stop + 1 if stop >= 0 else -1
    if c == 45 or 48 <= c <= 57:
        stop = at + 1
        while stop < end and 48 <= p[stop] <= 57:
            stop += 1
        field.kind, field.value, field.size = NUMBER, p + at, stop - at
        return stop if number_of(p + at, stop - at, &number) else -1
    field.size = 0
    field.value = p + at
    if end - at >= 4 and memcmp(p + at, b"true", 4) == 0:
        field.kind = TRUE
        return at + 4
    if end - at >= 5 and memcmp(p + at, b"false", 5) == 0:
        field.kind = FALSE
        return at + 5
    if end - at >= 4 and memcmp(p + at, b"null", 4) == 0:
        field.kind = NULL_VALUE
        return at + 4
    return -1


cdef Py_ssize_t json_fields(const byte* p, Py_ssize_t at, Py_ssize_t end, Header* header) noexcept nogil:
    """Read the object `extFields` from its first key on; return the place behind it, -1 when it is unusual."""
    cdef Py_ssize_t stop
    cdef int kind
    cdef Field* field
    if at < end and p[at] == 125:  # }
        return at + 1
    while at < end:
        if p[at] != 34 or header.count >= MOST_FIELDS:
            return -1
        stop = end_of_text(p, at + 1, end, &kind)
        if stop < 0 or kind != TEXT or stop + 1 >= end or p[stop + 1] != 58:  # :
            return -1
        field = &header.fields[header.count]
        field.name = p + at + 1
        field.name_size = stop - at - 1
        at = json_value(p, stop + 2, end, field)
        if at < 0 or at >= end:
            return -1
        header.count += 1
        if p[at] == 125:
            return at + 1
        if p[at] != 44:  # ,
            return -1
        at += 1
    return -1


cdef bint take_member(const byte* name, Py_ssize_t size, Field* value, Header* header) noexcept nogil:
    """Keep one of the header's own four numbers, ignore other members; False for one that is doubled or no int32."""
    cdef int64_t* place
    cdef int bit
    if size == 4 and memcmp(name, b"code", 4) == 0:
        place, bit = &header.code, 1
    elif size == 6 and memcmp(name, b"opaque", 6) == 0:
        place, bit = &header.opaque, 2
    elif size == 4 and memcmp(name, b"flag", 4) == 0:
        place, bit = &header.flag, 4
    elif size == 7 and memcmp(name, b"version", 7) == 0:
        place, bit = &header.version, 8
    else:
        return True
    if header.has & bit or value.kind != NUMBER or not number_of(value.value, value.size, place):
        return False
    header.has |= bit
    return -0x80000000 <= place[0] <= 0x7FFFFFFF


cdef bint parse_json(const byte* p, Py_ssize_t end, Header* header) noexcept nogil:
    cdef Py_ssize_t at = 1, name, stop
    cdef int kind
    cdef Field value
    header.has = header.count = 0
    header.code = header.opaque = header.flag = header.version = 0
    while end > 1 and p[end - 1] == 10:  # the C++ client ends its header with a newline
        end -= 1
    if end < 2 or p[0] != 123:  # {
        return False
    while at < end:
        if p[at] != 34:
            return False
        stop = end_of_text(p, at + 1, end, &kind)
        if stop < 0 or kind != TEXT or stop + 1 >= end or p[stop + 1] != 58:
            return False
        if stop - at - 1 == 9 and memcmp(p + at + 1, b"extFields", 9) == 0:
            if header.has & 16 or stop + 2 >= end or p[stop + 2] != 123:
                return False
            header.has |= 16
            at = json_fields(p, stop + 3, end, header)
            if at < 0:
                return False
        else:
            name = at + 1
            at = json_value(p, stop + 2, end, &value)
            if at < 0 or not take_member(p + name, stop - name, &value, header):
                return False
        if at >= end:
            return False
        if p[at] == 125:
            # The object ends with the header, and code, opaque and extFields were there.
            return at + 1 == end and header.has & 19 == 19
        if p[at] != 44:
            return False
        at += 1
    return False


cdef bint parse_binary(const byte* p, Py_ssize_t size, Header* header) noexcept nogil:
    cdef Py_ssize_t at = 21, end
    cdef int64_t length
    cdef Field* field
    if size < 21 or u32_at(p + 13):  # requests carry no remark
        return False
    header.has = 31
    header.count = 0
    header.code = u16_at(p)
    header.version = u16_at(p + 3)
    header.opaque = i32_at(p + 5)
    header.flag = i32_at(p + 9)
    length = i32_at(p + 17)
    end = at + length
    if length < 0 or end > size:
        return False
    while at < end:
        if header.count >= MOST_FIELDS or at + 2 > end:
            return False
        field = &header.fields[header.count]
        length = u16_at(p + at)
        at += 2
        if length < 1 or length > 0x7FFF or at + length + 4 > end:
            return False
        field.name, field.name_size = p + at, length
        at += length
        length = i32_at(p + at)
        at += 4
        if length < 0 or at + length > end or not is_utf8(field.name, field.name_size):
            return False
        if not length:  # null
            continue
        field.kind, field.value, field.size = TEXT, p + at, length
        if not is_utf8(field.value, length):
            return False
        at += length
        header.count += 1
    return True


cdef Py_ssize_t unescape(const byte* p, Py_ssize_t size, byte* out) noexcept nogil:
    """Write a JSON text without its escapes to `out`, which has room for `size` bytes; return its length.

    -1 for an escaped surrogate, also for a whole pair: clients write characters beyond U+FFFF as UTF-8. Reads no byte
    behind the text: `end_of_text` has checked that each escape is complete.
    """
    cdef Py_ssize_t i = 0, n = 0
    cdef uint32_t c
    while i < size:
        c = p[i]
        i += 1
        if c != 92:
            out[n] = c
            n += 1
            continue
        c = p[i]
        i += 1
        if c == 117:
            c = (
                (<uint32_t>hex_digit(p[i]) << 12)
                | (<uint32_t>hex_digit(p[i + 1]) << 8)
                | (<uint32_t>hex_digit(p[i + 2]) << 4)
                | <uint32_t>hex_digit(p[i + 3])
            )
            i += 4
            if 0xD800 <= c <= 0xDFFF:
                return -1
            if c >= 0x800:
                out[n] = 0xE0 | (c >> 12)
                out[n + 1] = 0x80 | ((c >> 6) & 0x3F)
                out[n + 2] = 0x80 | (c & 0x3F)
                n += 3
                continue
            if c >= 0x80:
                out[n] = 0xC0 | (c >> 6)
                out[n + 1] = 0x80 | (c & 0x3F)
                n += 2
                continue
        elif c == 98:
            c = 8
        elif c == 102:
            c = 12
        elif c == 110:
            c = 10
        elif c == 114:
            c = 13
        elif c == 116:
            c = 9
        out[n] = c
        n += 1
    return n


cdef bint whole_number(Field* field, int64_t least, int64_t most, int64_t* value) noexcept nogil:
    """Read a field's number, written as a JSON number or as text; False unless it is within `least` and `most`."""
    if (field.kind != NUMBER and field.kind != TEXT) or not number_of(field.value, field.size, value):
        return False
    return least <= value[0] <= most


cdef bint truth(Field* field, bint* value) noexcept nogil:
    """Read a field's boolean, written as a JSON literal or as text; False if it is neither."""
    value[0] = False
    if field.kind == TRUE or (field.kind == TEXT and field.size == 4 and memcmp(field.value, b"true", 4) == 0):
        value[0] = True
        return True
    return field.kind == FALSE or (field.kind == TEXT and field.size == 5 and memcmp(field.value, b"false", 5) == 0)
