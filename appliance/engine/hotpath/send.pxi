# Usual sends (10, 310, 320): from a header's fields and a body to the stage, the queue's tail and the tick.
#
# The reference: `broker/sending/send_path.py` and the parts that it calls, `store/appender.py`, `protocol/record.py`.
# Each send is checked completely before its first byte is staged: a send that turns out to be unusual halfway would
# otherwise leave half a record in the stage, and Python would stage it again behind that.

from cpython.dict cimport PyDict_GetItem, PyDict_SetItem
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

import cython

cdef enum:
    MAGIC_V1 = 0xDAA320A7
    BLANK_BYTES = 8
    ENTRY_BYTES = 20
    MAX_PROPERTIES_BYTES = 32767
    SECTOR_BYTES = 512
    HOSTS_IPV6 = 0x30
    UNUSUAL_FLAGS = 0x8C  # the bits of a transaction and of an inner batch
    ONEWAY = 2
    RESPONSE = 1
    # Longer escaped texts are left to Python.
    SCRATCH_BYTES = 65536
    # Most queues that a run notes before it writes them to the tick.
    MOST_TOUCHED = 64
    # As in `batch_body.py`.
    MEMBERS_KEPT = 1024
    LONGEST_SHAPE = 256
    MOST_MEMBERS = 16384
    # Length of a unique key that the broker makes: `UniqueKeys`.
    KEY_BYTES = 32
    # Most routes kept; a full table is emptied.
    ROUTES_KEPT = 50000


# --- a send's fields


cdef struct Send:
    Field* topic
    Field* properties
    int64_t queue_id
    int64_t sys_flag
    int64_t born_ms
    int64_t flag
    int64_t reconsume_times
    bint batch


cdef int letter_of(Field* field) noexcept nogil:
    """Return the letter of SendMessageRequestHeaderV2 for a name of SendMessageRequestHeader; 0 for another name."""
    cdef const byte* name = field.name
    cdef Py_ssize_t size = field.name_size
    if size == 5:
        if memcmp(name, b"topic", 5) == 0:
            return 98
        if memcmp(name, b"batch", 5) == 0:
            return 109
    elif size == 7:
        if memcmp(name, b"queueId", 7) == 0:
            return 101
        if memcmp(name, b"sysFlag", 7) == 0:
            return 102
    elif size == 4:
        if memcmp(name, b"flag", 4) == 0:
            return 104
    elif size == 8:
        if memcmp(name, b"unitMode", 8) == 0:
            return 107
    elif size == 10:
        if memcmp(name, b"properties", 10) == 0:
            return 105
    elif size == 12:
        if memcmp(name, b"defaultTopic", 12) == 0:
            return 99
    elif size == 13:
        if memcmp(name, b"producerGroup", 13) == 0:
            return 97
        if memcmp(name, b"bornTimestamp", 13) == 0:
            return 103
    elif size == 14:
        if memcmp(name, b"reconsumeTimes", 14) == 0:
            return 106
    elif size == 17:
        if memcmp(name, b"maxReconsumeTimes", 17) == 0:
            return 108
    elif size == 21:
        if memcmp(name, b"defaultTopicQueueNums", 21) == 0:
            return 100
    return 0


cdef bint send_of(Header* header, bint letters, Send* send) noexcept nogil:
    """Take the fields of a send and check all of them; False when one is missing, doubled or unusual."""
    cdef int i, letter
    cdef uint32_t seen = 0, bit
    cdef int64_t number
    cdef bint boolean
    cdef Field* field
    cdef int64_t low = -0x80000000, high = 0x7FFFFFFF
    send.reconsume_times = 0
    send.batch = False
    for i in range(header.count):
        field = &header.fields[i]
        if letters:
            letter = field.name[0] if field.name_size == 1 else 0
        else:
            letter = letter_of(field)
        if letter < 97 or letter > 109:
            continue
        bit = <uint32_t>1 << (letter - 97)
        if seen & bit:
            return False
        seen |= bit
        if letter == 97 or letter == 99:  # producer group, default topic: any text
            if field.kind != TEXT:
                return False
        elif letter == 98:
            if field.kind != TEXT:
                return False
            send.topic = field
        elif letter == 105:
            if field.kind != TEXT and field.kind != ESCAPED:
                return False
            send.properties = field
        elif letter == 107:
            if not truth(field, &boolean):
                return False
        elif letter == 109:
            if not truth(field, &send.batch):
                return False
        elif letter == 103:
            if not whole_number(field, -0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, &send.born_ms):
                return False
        else:
            if not whole_number(field, low, high, &number):
                return False
            if letter == 101:
                send.queue_id = number
            elif letter == 102:
                send.sys_flag = number
            elif letter == 104:
                send.flag = number
            elif letter == 106:
                send.reconsume_times = number
    # All of a to i, so also the properties: Python completes a send without any.
    return seen & 0x1FF == 0x1FF


# --- its properties


cdef struct Found:
    Py_ssize_t key_at
    Py_ssize_t key_end
    int64_t tag_code


cdef inline bint ends_with(const byte* text, Py_ssize_t at, const char* name, Py_ssize_t size) noexcept nogil:
    """True if the bytes before `text[at]` are `name`."""
    return at >= size and memcmp(text + at - size, name, size) == 0


cdef int look_at_properties(const byte* text, Py_ssize_t size, Found* found) noexcept nogil:
    """Find the unique key and the tag: return 1. 0 when the properties need the map (`SendProperties.stored`), 2 when
    they need it only because they lack a unique key.

    Names are compared only at bytes that are rare in properties: an underscore, a `Y`, the separator 0x01 behind a
    name. A name that is found inside a value does no harm: the send is then unusual, and Python reads the pairs.
    """
    cdef Py_ssize_t i, tag_at = -1, tag_end
    cdef uint32_t code = 0
    cdef byte c
    cdef const byte* end
    found.key_at = -1
    for i in range(size):
        c = text[i]
        if c > 95 or (c > 2 and c < 89):
            continue
        if c == 95:  # _
            if (
                ends_with(text, i, "TIMER", 5)
                or ends_with(text, i, "TRAN", 4)
                or ends_with(text, i, "MSG", 3)
                or ends_with(text, i, "TRACE", 5)
                or ends_with(text, i, "POP", 3)
                or ends_with(text, i, "INNER", 5)
                or (size - i >= 6 and memcmp(text + i, b"__RMQ.", 6) == 0)
            ):
                return 0
        elif c == 89:  # Y
            if ends_with(text, i, "DELA", 4):
                return 0
        elif c == 0:
            return 0
        elif c == 1:
            if ends_with(text, i, "UNIQ_KEY", 8):
                if found.key_at < 0:
                    if i > 8 and text[i - 9] != 2:
                        return 0
                    found.key_at = i + 1
            elif ends_with(text, i, "TAGS", 4):
                if i == 4 or text[i - 5] == 2:
                    tag_at = i + 1
            elif ends_with(text, i, "CLUSTER", 7):
                return 0
            elif ends_with(text, i, "WAIT", 4):
                if size - i > 5 and memcmp(text + i + 1, b"false", 5) == 0:
                    return 0
    if found.key_at < 0:
        return 2
    end = <const byte*>memchr(text + found.key_at, 2, size - found.key_at)
    found.key_end = size if end == NULL else end - text
    if found.key_end == found.key_at:
        return 0
    for i in range(found.key_at, found.key_end):
        c = text[i]
        if not (48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122):
            return 0  # the answer would have to escape it
    if tag_at >= 0:
        end = <const byte*>memchr(text + tag_at, 2, size - tag_at)
        tag_end = size if end == NULL else end - text
        code = java_hash(text + tag_at, tag_end - tag_at)
    found.tag_code = <int32_t>code
    return 1


cdef uint32_t java_hash(const byte* text, Py_ssize_t size) noexcept nogil:
    """`properties.java_hash`, which counts UTF-16 units; `text` is valid UTF-8, as `is_utf8` has checked."""
    cdef Py_ssize_t i = 0
    cdef uint32_t code = 0, c
    while i < size:
        c = text[i]
        if c < 0x80:
            i += 1
        elif c < 0xE0:
            c = (c & 0x1F) << 6 | (text[i + 1] & 0x3F)
            i += 2
        elif c < 0xF0:
            c = (c & 0x0F) << 12 | <uint32_t>(text[i + 1] & 0x3F) << 6 | (text[i + 2] & 0x3F)
            i += 3
        else:
            c = (
                (c & 0x07) << 18
                | <uint32_t>(text[i + 1] & 0x3F) << 12
                | <uint32_t>(text[i + 2] & 0x3F) << 6
                | (text[i + 3] & 0x3F)
            ) - 0x10000
            i += 4
            code = 31 * code + (0xD800 | c >> 10)
            c = 0xDC00 | (c & 0x3FF)
        code = 31 * code + c
    return code


cdef bint is_plain_map(const byte* text, Py_ssize_t size) noexcept nogil:
    """True if decoding the pairs and encoding them again would change nothing but the last separator."""
    cdef Py_ssize_t begins[8]
    cdef Py_ssize_t sizes[8]
    cdef Py_ssize_t at = 0, end
    cdef const byte* found
    cdef int count = 0, i
    while at < size:
        found = <const byte*>memchr(text + at, 1, size - at)
        if found == NULL or count == 8:
            return False
        begins[count], sizes[count] = at, found - text - at
        at = found - text + 1
        found = <const byte*>memchr(text + at, 2, size - at)
        end = size if found == NULL else found - text
        if not sizes[count] or end == at or memchr(text + at, 1, end - at) != NULL:
            return False
        if memchr(text + begins[count], 2, sizes[count]) != NULL:
            return False
        for i in range(count):
            if sizes[i] == sizes[count] and memcmp(text + begins[i], text + begins[count], sizes[count]) == 0:
                return False
        count += 1
        at = end + 1
    return True


# --- CRC


cdef class _Window:
    """A buffer object over a place in memory, for zlib-ng: one for all messages instead of a new one for each.

    Valid for the one call that follows: nothing here keeps the memory alive.
    """
    cdef const byte* data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>self.data, self.size, 1, flags)

    def __releasebuffer__(self, Py_buffer* buffer):
        pass


cdef extern from "Python.h":
    int PyBuffer_FillInfo(Py_buffer* view, object exporter, void* buf, Py_ssize_t len, int readonly, int flags) except -1
    int PyObject_GetBuffer(object exporter, Py_buffer* view, int flags) except -1
    void PyBuffer_Release(Py_buffer* view)
    int PyBUF_SIMPLE


# --- acknowledgements


cdef class Places:
    """Outcomes of the sends that one read of a connection brought, until their tick is published (`ReplyTo`).

    Packed one behind the other: opaque 4, queue id 4, queue offset 8, messages 4, bytes of the key 4, key, physical
    offsets 8 each; in the machine's byte order.
    """
    cdef PeerState peer
    cdef object answers
    cdef char* data
    cdef Py_ssize_t used, room
    cdef int count
    # Messages in all of these sends, each of which gets a message id in its answer.
    cdef Py_ssize_t ids

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef char* note(
        self, int32_t opaque, int32_t queue_id, int64_t offset, int32_t messages, const byte* key, int32_t key_size
    ) except NULL:
        """Note one send; return the place for its physical offsets, all of which the caller has to write."""
        cdef Py_ssize_t needed = self.used + 24 + key_size + 8 * <Py_ssize_t>messages, room = self.room
        cdef char* p
        if needed > room:
            while needed > room:
                room = room * 2 if room else 512
            p = <char*>PyMem_Realloc(self.data, room)
            if p == NULL:
                raise MemoryError
            self.data, self.room = p, room
        p = self.data + self.used
        self.used = needed
        memcpy(p, &opaque, 4)
        memcpy(p + 4, &queue_id, 4)
        memcpy(p + 8, &offset, 8)
        memcpy(p + 16, &messages, 4)
        memcpy(p + 20, &key_size, 4)
        memcpy(p + 24, key, key_size)
        self.count += 1
        self.ids += messages
        return p + 24 + key_size

    def put_ended(self, outcome):
        """As `SendReply.put_ended`, for each of these sends."""
        try:
            if outcome.code in (0, 10, 12):
                queue_answer(self.peer, self.render(outcome.code))
            else:
                for opaque in self.opaques():
                    self.peer.answer(opaque, self.answers.refusal(outcome))
        except Exception:
            self.peer.fail()

    def opaques(self):
        """Return the opaques of the requests, in their order."""
        cdef int32_t opaque, messages, key_size
        cdef Py_ssize_t at = 0
        found = []
        while at < self.used:
            memcpy(&opaque, self.data + at, 4)
            memcpy(&messages, self.data + at + 16, 4)
            memcpy(&key_size, self.data + at + 20, 4)
            found.append(opaque)
            at += 24 + key_size + 8 * <Py_ssize_t>messages
        return found

    cdef bytes render(self, int64_t code):
        """Return the answers, one frame behind the other."""
        cdef tuple pieces = self.answers.pieces
        cdef bytes host = <bytes?>pieces[7], out
        cdef const char* piece[7]
        cdef Py_ssize_t size[7]
        cdef Py_ssize_t fixed = 0, host_size = PyBytes_GET_SIZE(host), at = 0, room, k
        cdef int32_t opaque, queue_id, messages, key_size, m
        cdef int64_t offset, physical
        cdef byte* p
        cdef byte* frame
        cdef byte* begin
        for k in range(7):
            one = <bytes?>pieces[k]
            piece[k], size[k] = PyBytes_AS_STRING(one), PyBytes_GET_SIZE(one)
            fixed += size[k]
        # A frame has four numbers of at most 20 characters and two lengths; the keys are counted in `used`.
        room = self.count * (fixed + 88) + self.ids * (host_size + 17) + self.used
        out = PyBytes_FromStringAndSize(NULL, room)
        begin = p = <byte*>PyBytes_AS_STRING(out)
        while at < self.used:
            memcpy(&opaque, self.data + at, 4)
            memcpy(&queue_id, self.data + at + 4, 4)
            memcpy(&offset, self.data + at + 8, 8)
            memcpy(&messages, self.data + at + 16, 4)
            memcpy(&key_size, self.data + at + 20, 4)
            at += 24
            frame = p
            p += 8
            p = put_piece(p, piece[0], size[0])
            p = put_decimal(p, code)
            p = put_piece(p, piece[1], size[1])
            p = put_decimal(p, queue_id)
            p = put_piece(p, piece[2], size[2])
            p = put_piece(p, self.data + at, key_size)
            at += key_size
            p = put_piece(p, piece[3], size[3])
            for m in range(messages):
                memcpy(&physical, self.data + at, 8)
                at += 8
                if m:
                    p[0] = 44
                    p += 1
                p = put_piece(p, PyBytes_AS_STRING(host), host_size)
                p = put_hex(p, <uint64_t>physical)
            p = put_piece(p, piece[4], size[4])
            p = put_decimal(p, offset)
            p = put_piece(p, piece[5], size[5])
            p = put_decimal(p, opaque)
            p = put_piece(p, piece[6], size[6])
            put_u32(frame, <uint32_t>(p - frame - 4))
            put_u32(frame + 4, <uint32_t>(p - frame - 8))
        assert p - begin <= room
        return out[: p - begin]


cdef int queue_answer(PeerState peer, bytes data) except -1:
    """`Outbox.send`."""
    if peer.closed:
        return 0
    if peer._out is None:
        peer._out = [data]
    else:
        peer._out.append(data)
    peer._out_bytes += PyBytes_GET_SIZE(data)
    if not peer.dirty:
        peer.dirty = True
        (<ServerState?>peer._server).dirty.append(peer)
    return 0


cdef inline byte* put_piece(byte* p, const char* piece, Py_ssize_t size) noexcept nogil:
    memcpy(p, piece, size)
    return p + size


cdef byte* put_decimal(byte* p, int64_t number) noexcept nogil:
    cdef char digits[20]
    cdef int n = 0
    cdef uint64_t rest = <uint64_t>number
    if number < 0:
        p[0] = 45
        p += 1
        rest = 0 - rest
    while True:
        digits[n] = 48 + rest % 10
        rest //= 10
        n += 1
        if not rest:
            break
    while n:
        n -= 1
        p[0] = digits[n]
        p += 1
    return p


cdef byte* put_hex(byte* p, uint64_t number) noexcept nogil:
    """Write 16 hexadecimal digits in capitals, as Apache's message ids have them."""
    cdef int i, digit
    for i in range(16):
        digit = (number >> (60 - 4 * i)) & 15
        p[i] = 48 + digit if digit < 10 else 55 + digit
    return p + 16


# --- routes and sends


cdef class _Route:
    """A topic's queues and encoded name, valid for one generation of the topic table."""
    cdef bytes topic
    cdef bytes topic_field
    cdef list queues
    cdef bint batches


cdef struct Member:
    const byte* body
    int32_t body_size
    int32_t flag
    const byte* own
    int32_t own_size
    int32_t record
    uint32_t crc
    PyObject* added
    int64_t tag_code


cdef class SendRuns:
    """Puts usual sends without Python's help. Owned by remoting-io. taken: number of frames put."""
    cdef LoopState loop
    cdef StageState log
    cdef AppenderState store
    cdef TableState topics
    cdef AdmissionState admission
    cdef object path, properties, answers, shapes, member_look, looker, crc32, stored
    cdef _Window window
    cdef bytes store_host
    # Options, as of the last `refresh`.
    cdef int64_t max_message_size
    cdef bytes suffix
    # Topic -> route, for this generation.
    cdef dict routes
    cdef int64_t generation
    cdef _Route route
    # Members of batches seen before: `known` maps a member's properties without its unique key to (what the batch adds,
    # tag code), for batches of one shape. `shape`, `shape_added`, `shape_code`: the last of these, to save the look-up.
    cdef bytes known_key
    cdef dict known
    cdef bytes shape
    cdef bytes shape_added
    cdef int64_t shape_code
    cdef byte* scratch
    cdef byte* common
    # The properties of a batch to which the broker has to give a unique key.
    cdef byte* keyed
    cdef bint needs_key
    cdef Py_ssize_t common_size
    cdef Member* members
    cdef Py_ssize_t members_room
    # The run that is under way.
    cdef Places places
    cdef PyObject* touched[MOST_TOUCHED]
    cdef int touched_count
    cdef readonly int64_t taken

    def __cinit__(self):
        self.scratch = <byte*>PyMem_Malloc(SCRATCH_BYTES)
        self.common = <byte*>PyMem_Malloc(SCRATCH_BYTES)
        self.keyed = <byte*>PyMem_Malloc(SCRATCH_BYTES)
        if self.scratch == NULL or self.common == NULL or self.keyed == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.scratch)
        PyMem_Free(self.common)
        PyMem_Free(self.keyed)
        PyMem_Free(self.members)

    def __init__(self, loop, store, topics, admission, path, properties, answers, shapes, member_look, crc32, stored):
        """path, properties, answers: the parts whose options are used. shapes, member_look: for batches, see
        `batch_body.py`. stored: the outcome of a run all of which was stored."""
        self.loop = loop
        self.store = store
        self.log = store.log
        self.topics, self.admission = topics, admission
        self.path, self.properties, self.answers = path, properties, answers
        self.shapes, self.member_look = shapes, member_look
        self.crc32, self.stored = crc32, stored
        self.window = _Window()
        self.store_host = store.store_host
        self.routes = {}
        self.generation = -1
        self.refresh()

    def refresh(self):
        """Take changed options over."""
        self.max_message_size = self.path.max_message_size
        self.suffix = self.properties.suffix

    cdef _Route find_route(self, const byte* topic, Py_ssize_t size):
        """Return the topic's route; None leaves the send to Python.

        Routes are learned from `admission`, after Python admitted a send to the topic. They are good for one generation
        of the topic table: a change of any topic drops them all.
        """
        cdef _Route route = self.route
        if self.generation != self.topics.generation or self.generation != self.admission.generation:
            self.routes.clear()
            self.route = route = None
            self.generation = self.topics.generation
            if self.generation != self.admission.generation:
                return None
        if route is not None and PyBytes_GET_SIZE(route.topic) == size:
            if memcmp(PyBytes_AS_STRING(route.topic), topic, size) == 0:
                return route
        name = PyBytes_FromStringAndSize(<const char*>topic, size)
        route = self.routes.get(name)
        if route is None:
            known = self.admission.routes.get(name.decode())
            if known is None or known.is_retry:
                return None
            route = _Route()
            route.topic, route.topic_field, route.queues = name, known.topic_field, known.queues
            route.batches = not name.startswith(b"%")
            if len(self.routes) >= ROUTES_KEPT:
                self.routes.clear()
            self.routes[name] = route
        self.route = route
        return route

    cdef int one(
        self, PeerState peer, Header* header, bint letters, const byte* body, Py_ssize_t body_size
    ) except -1:
        """Put one send: return 1 when it is done, 0 when Python has to handle it; then nothing has changed."""
        cdef Send send
        cdef Found found
        cdef const byte* text
        cdef Py_ssize_t size, raw_size, suffix_size
        cdef _Route route
        cdef QueueState queue
        cdef PyObject* item
        cdef int looked
        if header.flag & RESPONSE or not send_of(header, letters, &send):
            return 0
        if send.queue_id < 0 or send.sys_flag & UNUSUAL_FLAGS or not 0 < body_size <= self.max_message_size:
            return 0
        if send.properties.kind == ESCAPED:
            if send.properties.size > SCRATCH_BYTES:
                return 0
            size = unescape(send.properties.value, send.properties.size, self.scratch)
            text = self.scratch
            if size < 0:
                return 0
        else:
            size, text = send.properties.size, send.properties.value
        looked = look_at_properties(text, size, &found)
        if looked == 2 and send.batch and is_plain_map(text, size):
            # Java 4.9, Go and C++ give unique keys to the members of a batch, but none to the batch. Its key is made
            # once the batch is taken (`put_batch`); until then zeros hold the place.
            if not size + 9 + KEY_BYTES < SCRATCH_BYTES:
                return 0
            memcpy(self.keyed, text, size)
            if size and text[size - 1] != 2:
                self.keyed[size] = 2
                size += 1
            memcpy(self.keyed + size, <const byte*>b"UNIQ_KEY\x01", 9)
            found.key_at, found.key_end = size + 9, size + 9 + KEY_BYTES
            memset(self.keyed + found.key_at, 48, KEY_BYTES)
            text, size = self.keyed, found.key_end
        elif looked != 1:
            return 0
        suffix_size = PyBytes_GET_SIZE(self.suffix)
        raw_size = size + (text[size - 1] != 2) + suffix_size
        if raw_size > MAX_PROPERTIES_BYTES:
            return 0
        route = self.find_route(send.topic.value, send.topic.size)
        if route is None or send.queue_id >= PyList_GET_SIZE(route.queues):
            return 0
        item = <PyObject*>PyList_GET_ITEM(route.queues, send.queue_id)
        if item == <PyObject*>None:
            return 0
        queue = <QueueState>item
        if send.batch:
            if not route.batches:
                return 0
            self.needs_key = looked == 2
            return self.put_batch(peer, header, &send, queue, route, body, body_size, text, size, &found)
        return self.put(peer, header, &send, queue, route, body, body_size, text, size, raw_size, &found)

    cdef inline int64_t now(self):
        """Return the store time of the next record, `Appender.next_store_ms`: it does not go back with the clock."""
        if self.loop.wall_ms > self.store.store_ms:
            self.store.store_ms = self.loop.wall_ms
        return self.store.store_ms

    cdef int64_t crc_of(self, const byte* data, Py_ssize_t size) except -1:
        if not size:
            return 0
        self.window.data, self.window.size = data, size
        return <int64_t>self.crc32(self.window) & 0x7FFFFFFF

    cdef int touch(self, QueueState queue) except -1:
        """Note for the end of the run that the queue has grown."""
        cdef int i
        cdef PyObject* item = <PyObject*>queue
        for i in range(self.touched_count):
            if self.touched[i] == item:
                return 0
        if self.touched_count == MOST_TOUCHED:
            self.tell_tick()
        Py_INCREF(queue)
        self.touched[self.touched_count] = item
        self.touched_count += 1
        return 0

    cdef int tell_tick(self) except -1:
        cdef int i
        cdef int count = self.touched_count
        cdef QueueState queue
        self.touched_count = 0
        for i in range(count):
            queue = <QueueState>self.touched[i]
            try:
                self.store.tick.touched[queue] = queue.next_offset
            finally:
                Py_XDECREF(self.touched[i])
        return 0

    cdef Places places_for(self, PeerState peer):
        """Return the Places of this run, made for its first send that wants an answer."""
        if self.places is None:
            self.places = Places()
            self.places.peer, self.places.answers = peer, self.answers
        return self.places

    cdef int end(self) except -1:
        """End the run: write to the tick what it staged. Called before Python code may put anything."""
        if self.touched_count:
            self.tell_tick()
        if self.places is not None:
            places, self.places = self.places, None
            self.store.tick.acks.append((places, self.stored))
        return 0

    cdef byte* grown_tail(self, QueueState queue, Py_ssize_t more) except NULL:
        cdef Py_ssize_t size = PyByteArray_GET_SIZE(queue.tail)
        PyByteArray_Resize(queue.tail, size + more)
        return <byte*>PyByteArray_AS_STRING(queue.tail) + size

    cdef int put(
        self,
        PeerState peer,
        Header* header,
        Send* send,
        QueueState queue,
        _Route route,
        const byte* body,
        Py_ssize_t body_size,
        const byte* text,
        Py_ssize_t size,
        Py_ssize_t raw_size,
        Found* found,
    ) except -1:
        cdef StageState log = self.log
        cdef Py_ssize_t born_size = peer.born_bytes, host_size = PyBytes_GET_SIZE(self.store_host)
        cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(route.topic_field)
        cdef Py_ssize_t record = 72 + born_size + host_size + body_size + topic_size + 2 + raw_size
        cdef int64_t at = log.staged, physical = log.stage_base + at, crc, offset = queue.next_offset
        cdef Places places = None
        cdef byte* p
        cdef char* ids
        cdef byte* begin
        if at + record > log.stage_room or physical + record + BLANK_BYTES > log.segment_end:
            return 0
        crc = self.crc_of(body, body_size)
        if not header.flag & ONEWAY:
            places = self.places_for(peer)
            ids = places.note(
                <int32_t>header.opaque, <int32_t>queue.queue_id, offset, 1, text + found.key_at,
                <int32_t>(found.key_end - found.key_at),
            )
            memcpy(ids, &physical, 8)
        assert 0 <= at and at + record <= PyByteArray_GET_SIZE(log.stage)
        self.touch(queue)
        # From here on nothing can fail.
        put_entry(self.grown_tail(queue, ENTRY_BYTES), physical, <int32_t>record, found.tag_code)
        begin = <byte*>PyByteArray_AS_STRING(log.stage) + at
        p = put_head(
            begin, <uint32_t>record, <uint32_t>crc, <uint32_t>queue.queue_id, <uint32_t>send.flag, offset, physical
        )
        p = self.put_shared(p, peer, send)
        p = put_middle(p, body, body_size, route.topic_field, raw_size)
        p = self.put_properties(p, text, size)
        assert p == begin + record
        log.staged = at + record
        queue.next_offset = offset + 1
        self.store.tick.last_offset = physical
        self.taken += 1
        return 1

    cdef byte* put_properties(self, byte* p, const byte* text, Py_ssize_t size):
        """Write a send's properties as they are stored: its own, then those that the broker adds."""
        p = put_piece(p, <const char*>text, size)
        if text[size - 1] != 2:
            p[0] = 2
            p += 1
        return put_piece(p, PyBytes_AS_STRING(self.suffix), PyBytes_GET_SIZE(self.suffix))

    cdef byte* put_shared(self, byte* p, PeerState peer, Send* send):
        """Write the fields that all records of a batch share: sys flag to prepared transaction offset."""
        cdef Py_ssize_t born_size = peer.born_bytes, host_size = PyBytes_GET_SIZE(self.store_host)
        cdef uint32_t hosts = (0x10 if born_size == 20 else 0) | (0x20 if host_size == 20 else 0)
        put_u32(p, (<uint32_t>send.sys_flag & ~<uint32_t>HOSTS_IPV6) | hosts)
        put_i64(p + 4, send.born_ms)
        memcpy(p + 12, peer.born, born_size)
        p += 12 + born_size
        put_i64(p, self.now())
        memcpy(p + 8, PyBytes_AS_STRING(self.store_host), host_size)
        p += 8 + host_size
        put_u32(p, <uint32_t>send.reconsume_times)
        put_i64(p + 4, 0)
        return p + 12

    # --- batches

    cdef int put_batch(
        self,
        PeerState peer,
        Header* header,
        Send* send,
        QueueState queue,
        _Route route,
        const byte* body,
        Py_ssize_t body_size,
        const byte* text,
        Py_ssize_t text_size,
        Found* found,
    ) except -1:
        cdef StageState log = self.log
        cdef Py_ssize_t born_size = peer.born_bytes, host_size = PyBytes_GET_SIZE(self.store_host)
        cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(route.topic_field)
        cdef Py_ssize_t shared_size, added_size
        cdef Py_ssize_t overhead = 72 + born_size + host_size + topic_size + 2, total = 0
        cdef int32_t count, i
        cdef int64_t at = log.staged, physical, offset = queue.next_offset, crc
        cdef Member* member
        cdef Places places = None
        cdef byte* p
        cdef byte* shared
        cdef byte* entry
        cdef char* ids = NULL
        cdef list kept = []
        # The batch's own properties as they would be stored. Not into `scratch`, which may hold the unescaped text.
        self.find_known(self.put_properties(self.common, text, text_size) - self.common, found)
        count = self.split(body, body_size, overhead, log.stage_room - at, &total, kept)
        if count <= 0:
            return 0
        physical = log.stage_base + at
        if at + total > log.stage_room or physical + total + BLANK_BYTES > log.segment_end:
            return 0
        if self.needs_key:
            new_key = <bytes?>self.properties.new_key(self.store.store_ms).encode()
            assert PyBytes_GET_SIZE(new_key) == KEY_BYTES
            memcpy(self.keyed + found.key_at, PyBytes_AS_STRING(new_key), KEY_BYTES)
        for i in range(count):
            crc = self.crc_of(self.members[i].body, self.members[i].body_size)
            self.members[i].crc = <uint32_t>crc
        if not header.flag & ONEWAY:
            places = self.places_for(peer)
            ids = places.note(
                <int32_t>header.opaque, <int32_t>queue.queue_id, offset, count, text + found.key_at,
                <int32_t>(found.key_end - found.key_at),
            )
        assert 0 <= at and at + total <= PyByteArray_GET_SIZE(log.stage)
        self.touch(queue)
        # From here on nothing can fail.
        entry = self.grown_tail(queue, ENTRY_BYTES * <Py_ssize_t>count)
        p = <byte*>PyByteArray_AS_STRING(log.stage) + at
        shared = self.common
        shared_size = self.put_shared(shared, peer, send) - shared
        for i in range(count):
            member = &self.members[i]
            put_entry(entry, physical, member.record, member.tag_code)
            entry += ENTRY_BYTES
            if ids != NULL:
                memcpy(ids, &physical, 8)
                ids += 8
            p = put_head(
                p, <uint32_t>member.record, member.crc, <uint32_t>queue.queue_id, <uint32_t>member.flag, offset, physical
            )
            p = put_piece(p, <const char*>shared, shared_size)
            added_size = PyBytes_GET_SIZE(<bytes>member.added)
            p = put_middle(p, member.body, member.body_size, route.topic_field, member.own_size + added_size)
            p = put_piece(p, <const char*>member.own, member.own_size)
            p = put_piece(p, PyBytes_AS_STRING(<bytes>member.added), added_size)
            physical += member.record
            offset += 1
        assert p == <byte*>PyByteArray_AS_STRING(log.stage) + at + total
        log.staged = at + total
        queue.next_offset = offset
        self.store.tick.last_offset = physical - self.members[count - 1].record
        self.taken += 1
        return 1

    cdef int find_known(self, Py_ssize_t common_size, Found* found) except -1:
        """Select `known`, the members seen in batches of this shape; the batch's own properties are in `common`."""
        cdef Py_ssize_t head = found.key_at - 9, rest = common_size - found.key_end
        cdef const char* key
        # It gives the batch's unique key to members without one, and that differs between batches of one shape.
        self.looker = None
        self.common_size = common_size
        if self.known_key is not None and PyBytes_GET_SIZE(self.known_key) == head + rest:
            key = PyBytes_AS_STRING(self.known_key)
            if memcmp(key, self.common, head) == 0 and memcmp(key + head, self.common + found.key_end, rest) == 0:
                if len(self.known) < MEMBERS_KEPT:
                    return 0
        self.shape = None
        common = PyBytes_FromStringAndSize(<char*>self.common, common_size)
        self.known = self.shapes.of(common)
        self.known_key = None
        if head + rest <= LONGEST_SHAPE:
            self.known_key = common[:head] + common[found.key_end :]
        return 0

    cdef int32_t split(
        self,
        const byte* body,
        Py_ssize_t size,
        Py_ssize_t overhead,
        int64_t room,
        Py_ssize_t* total,
        list kept,
    ) except -1:
        """Split a batch's body into `members`; return their number, 0 when Python has to handle the batch.

        room: bytes left for their records; a batch that needs more is left at once, without work under the GIL. kept:
        holds the objects that the members point to and nothing else refers to.
        """
        cdef Py_ssize_t at = 0, record
        cdef int64_t length, following, own_size, added_size
        cdef int32_t count = 0
        cdef Member* member
        total[0] = 0
        # A batch that is too large is found before Python has worked on any of its members.
        while size - at >= 22:
            count += 1
            following = i32_at(body + at)
            if following < 22 or count > MOST_MEMBERS:
                return 0
            at += following
        if size + count * overhead - 22 * <Py_ssize_t>count > room:
            return 0
        at = count = 0
        while at < size:
            if size - at < 22:
                return 0
            length = i32_at(body + at + 16)
            if length < 0 or at + 20 + length + 2 > size:
                return 0
            following = at + <int64_t>i32_at(body + at)
            own_size = u16_at(body + at + 20 + length)
            if following > size or following - at - length - 22 != own_size:
                return 0
            if count == self.members_room:
                self.grow_members()
            member = &self.members[count]
            member.flag = i32_at(body + at + 12)
            member.body, member.body_size = body + at + 20, <int32_t>length
            member.own, member.own_size = body + at + 22 + length, <int32_t>own_size
            if not self.know(member, kept):
                return 0
            added_size = PyBytes_GET_SIZE(<bytes>member.added)
            if own_size + added_size > MAX_PROPERTIES_BYTES:
                return 0
            record = overhead + length + own_size + added_size
            member.record = <int32_t>record
            total[0] += record
            if total[0] > room:
                return 0
            count += 1
            at = following
        return count

    cdef int grow_members(self) except -1:
        cdef Py_ssize_t room = self.members_room * 2 if self.members_room else 64
        cdef Member* members = <Member*>PyMem_Realloc(self.members, room * sizeof(Member))
        if members == NULL:
            raise MemoryError
        self.members, self.members_room = members, room
        return 0

    cdef bint know(self, Member* member, list kept) except -1:
        """Set the properties that the batch adds to a member, and its tag code; False if Python has to handle it.

        Members of a batch mostly differ in their unique key only, which is their first property. So the result is kept
        by the rest of the text. `cut`: length of that key's pair; 0 where the text does not begin with one, or is not
        ASCII or too long, which Python judges each time.
        """
        cdef const byte* own = member.own
        cdef Py_ssize_t size = member.own_size, cut = 0, i
        cdef const byte* found
        cdef PyObject* item = NULL
        cdef bytes shape = None, added
        if size > 9 and memcmp(own, b"UNIQ_KEY\x01", 9) == 0:
            found = <const byte*>memchr(own + 9, 2, size - 9)
            cut = 0 if found == NULL else found - own
            if cut >= SECTOR_BYTES:
                cut = 0
            for i in range(size):
                if own[i] >= 0x80:
                    cut = 0
                    break
        if cut:
            if self.shape is not None and PyBytes_GET_SIZE(self.shape) == size - cut:
                if memcmp(PyBytes_AS_STRING(self.shape), own + cut, size - cut) == 0:
                    member.added, member.tag_code = <PyObject*>self.shape_added, self.shape_code
                    return True
            shape = PyBytes_FromStringAndSize(<const char*>own + cut, size - cut)
            item = PyDict_GetItem(self.known, shape)
        if item != NULL:
            seen = <object>item
        else:
            if self.needs_key and not cut:
                return False  # it may need the batch's key, which does not exist yet
            if self.looker is None:
                self.looker = self.member_look(PyBytes_FromStringAndSize(<char*>self.common, self.common_size))
            try:
                seen = self.looker.look_at(PyBytes_FromStringAndSize(<const char*>own, size))
            except Exception:
                return False  # Python meets the same error, and answers with it
            if shape is not None and size - cut <= LONGEST_SHAPE:
                self.known[shape] = seen
        added = <bytes?>seen[0]
        member.added, member.tag_code = <PyObject*>added, seen[1]
        kept.append(added)
        if shape is not None and size - cut <= LONGEST_SHAPE:
            self.shape, self.shape_added, self.shape_code = shape, added, member.tag_code
        return True


cdef inline void put_entry(byte* p, int64_t physical, int32_t record, int64_t tag_code) noexcept nogil:
    put_i64(p, physical)
    put_u32(p + 8, <uint32_t>record)
    put_i64(p + 12, tag_code)


cdef inline byte* put_head(
    byte* p, uint32_t record, uint32_t crc, uint32_t queue_id, uint32_t flag, int64_t offset, int64_t physical
) noexcept nogil:
    """Write the fields that differ from record to record; return the place behind them."""
    put_u32(p, record)
    put_u32(p + 4, MAGIC_V1)
    put_u32(p + 8, crc)
    put_u32(p + 12, queue_id)
    put_u32(p + 16, flag)
    put_i64(p + 20, offset)
    put_i64(p + 28, physical)
    return p + 36


cdef inline byte* put_middle(
    byte* p, const byte* body, Py_ssize_t body_size, bytes topic_field, Py_ssize_t properties_size
):
    """Write a record's body, its topic, and the length of its properties, which the caller writes next."""
    put_u32(p, <uint32_t>body_size)
    p = put_piece(p + 4, <const char*>body, body_size)
    p = put_piece(p, PyBytes_AS_STRING(topic_field), PyBytes_GET_SIZE(topic_field))
    p[0], p[1] = properties_size >> 8, properties_size & 0xFF
    return p + 2
