# Pulls: the choice of entries for an answer, and the answer itself, from the page cache to the socket.
#
# The reference is Python: `pick_entries` of store/message_reader.py, PullProcessor._pull, PullPath.pull and
# PullAnswers. The code here answers a pull that finds messages at once, from a peer that can receive them at once. All
# other pulls go to PullPath, with their request already made.

import os

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport free, realloc

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

# An entry: physical offset 8, size 4, tag code 8. HOLE_SIZE, MIN_CODE: see consume_queue.py, queue_extension.py.
cdef enum: PULL_ENTRY = 20
cdef enum: PULL_HOLE_SIZE = 0x7FFFFFFF
cdef enum: PULL_MIN_CODE = -2147483648
# No log gets this long. A larger number means damage; Python handles it, since its sums cannot overflow.
cdef long long PULL_FARTHEST = <long long>1 << 62
# More tags than this in one expression are compared in Python.
cdef enum: PULL_MOST_CODES = 64
cdef enum: PULL_SUBSCRIPTION = 4
cdef enum: PULL_SUSPEND = 2
cdef enum: PULL_COMMIT = 1
cdef enum: PULL_PERM_READ = 4
cdef enum: PULL_MAX_COUNT = 1048576
# Group, topic, expression and its type, together.
cdef enum: PULL_KEY_BYTES = 1024
cdef enum: PULL_MOST_PLANS = 16384
# Entries read at once, for this pull and the next ones; number of queues whose entries are kept, 5 KiB each.
cdef enum: PULL_AHEAD = 256
cdef enum: PULL_MOST_BLOCKS = 256
# As in pull_answers.py.
cdef enum: PULL_BYTES_FOR_A_CALL = 12000
cdef enum: PULL_SENDFILE_FROM = 8192
cdef enum: PULL_HEAD_BYTES = 640
# Numbers in the head of an answer.
cdef enum: PULL_NUMBERS = 6
# Most pieces of one sendmsg, the header included. Linux: IOV_MAX.
cdef enum: PULL_MOST_PIECES = 1024
# Bytes of a delivery event, and the largest numbers that fit in it: broker/deliveries/event_format.py.
cdef enum: PULL_EVENT = 16
cdef enum: PULL_MOST_COUNT = 0xFFFF
cdef long long PULL_MOST_OFFSET = (<long long>1 << 47) - 1


cdef struct PullRun:
    long long offset
    long long size


cdef struct Picked:
    # count, size: of the matching records. scanned: entries looked through. removed: the records of some entries were
    # deleted. damaged: an entry has no size, so the file has lost its content.
    Py_ssize_t run_count
    long long count
    long long size
    long long scanned
    bint removed
    bint damaged


cdef bint pick(
    const byte* entries,
    Py_ssize_t entry_count,
    const long long* codes,
    int code_count,
    long long log_begin,
    long long limit_count,
    long long limit_bytes,
    PullRun* runs,
    Picked* out,
) noexcept nogil:
    """As `pick_entries`. code_count: -1 if all entries match. `runs` has room for one run an entry.

    False: left to Python, which can look a tag's address up in the queue's extension.
    """
    cdef Py_ssize_t number, count
    cdef long long physical, code, last = 0, first, total = 0, run_begin = -1, run_end = -1
    cdef int size, smallest, largest, index
    cdef const byte* at = entries
    cdef bint matches
    memset(out, 0, sizeof(Picked))
    if entry_count < 1 or limit_count < 1 or log_begin < 0:
        return False
    if code_count < 0:
        # The usual pull: all entries match, have records and fit. One loop without branches finds out; if any of that
        # is not so, the loop below begins anew.
        count = entry_count if entry_count < limit_count else <Py_ssize_t>limit_count
        smallest, largest = PULL_HOLE_SIZE, -PULL_HOLE_SIZE
        for number in range(count):
            last = i64_at(at)
            size = i32_at(at + 8)
            runs[number].offset = last
            runs[number].size = size
            total += size
            if size < smallest:
                smallest = size
            if size > largest:
                largest = size
            at += PULL_ENTRY
        first = runs[0].offset
        if total <= limit_bytes and smallest > 0 and largest < PULL_HOLE_SIZE and first >= log_begin:
            out.run_count = count
            out.count = out.scanned = count
            out.size = total
            if last >= first and last - first == total - runs[count - 1].size:
                out.run_count = 1
                runs[0].size = total
            return True
        at = entries
    for number in range(entry_count):
        physical = i64_at(at)
        size = i32_at(at + 8)
        code = i64_at(at + 12)
        at += PULL_ENTRY
        if size <= 0:
            out.damaged = True
            break
        matches = code_count < 0
        for index in range(code_count):
            if codes[index] == code:
                matches = True
                break
        if not matches and code < PULL_MIN_CODE:
            return False
        if matches:
            if size == PULL_HOLE_SIZE or physical < log_begin:
                out.removed = True
                out.scanned += 1
                continue
            if physical > PULL_FARTHEST:
                return False
            if out.count and (out.count >= limit_count or out.size + size > limit_bytes):
                break
            out.count += 1
            out.size += size
            if physical == run_end:
                run_end += size
            else:
                if run_end >= 0:
                    runs[out.run_count].offset = run_begin
                    runs[out.run_count].size = run_end - run_begin
                    out.run_count += 1
                run_begin = physical
                run_end = physical + size
        out.scanned += 1
    if run_end >= 0:
        runs[out.run_count].offset = run_begin
        runs[out.run_count].size = run_end - run_begin
        out.run_count += 1
    return True


cdef int take_codes(codes, long long* into) except -2:
    """Copy a filter's tag codes; return their number. -1: all match; PULL_MOST_CODES + 1: too many; -2: error."""
    cdef int count = 0
    if codes is None:
        return -1
    if len(codes) > PULL_MOST_CODES:
        return PULL_MOST_CODES + 1
    for code in codes:
        into[count] = code
        count += 1
    return count


def pick_entries(bytes entries, codes, long long log_begin, long long limit_count, long long limit_bytes):
    """As `pick_entries` of store/message_reader.py; None if it needs the extension, or for unusual arguments."""
    cdef long long some[PULL_MOST_CODES]
    cdef int code_count = take_codes(codes, some)
    cdef Py_ssize_t entry_count = PyBytes_GET_SIZE(entries) // PULL_ENTRY, number
    cdef Picked picked
    cdef PullRun* runs
    cdef bint taken
    if code_count > PULL_MOST_CODES or PyBytes_GET_SIZE(entries) % PULL_ENTRY or not entry_count:
        return None
    runs = <PullRun*>realloc(NULL, entry_count * sizeof(PullRun))
    if runs == NULL:
        raise MemoryError
    try:
        taken = pick(
            <const byte*>PyBytes_AS_STRING(entries), entry_count, some, code_count, log_begin, limit_count,
            limit_bytes, runs, &picked,
        )
        if not taken:
            return None
        found = [(runs[number].offset, runs[number].size) for number in range(picked.run_count)]
    finally:
        free(runs)
    return found, picked.count, picked.size, picked.scanned, picked.removed, picked.damaged


cdef class AnswersState:
    cdef public long long found_count
    cdef public long long miss_count
    cdef public long long message_count
    cdef public long long message_bytes


cdef struct PullAsk:
    # The fields of a pull. Texts are UTF-8 and point into the frame, or into Python's strings; NULL means empty.
    const char* group
    const char* topic
    const char* subscription
    const char* expression_type
    Py_ssize_t group_bytes
    Py_ssize_t topic_bytes
    Py_ssize_t subscription_bytes
    Py_ssize_t expression_type_bytes
    int64_t opaque
    int64_t queue_id
    int64_t offset
    int64_t max_count
    int64_t sys_flag
    int64_t commit_offset
    int64_t suspend_ms
    int64_t sub_version
    bint lite


cdef bint is_name(const Field* field, const char* name, Py_ssize_t size) noexcept nogil:
    return field.name_size == size and memcmp(field.name, name, size) == 0


cdef bint text_of(const Field* field, const char** text, Py_ssize_t* size) noexcept nogil:
    text[0], size[0] = <const char*>field.value, field.size
    return field.kind == TEXT


cdef bint pull_of(Header* header, PullAsk* ask) noexcept nogil:
    """Take the fields that PullFields has; of several with one name the last one counts. False for an unusual pull."""
    cdef int index
    cdef int has = 0
    cdef int64_t low = -(<int64_t>1 << 62), high = <int64_t>1 << 62
    cdef Field* field
    memset(ask, 0, sizeof(PullAsk))
    ask.opaque, ask.commit_offset = header.opaque, -1
    for index in range(header.count):
        field = &header.fields[index]
        if is_name(field, b"consumerGroup", 13):
            if not text_of(field, &ask.group, &ask.group_bytes):
                return False
        elif is_name(field, b"topic", 5):
            if not text_of(field, &ask.topic, &ask.topic_bytes):
                return False
        elif is_name(field, b"subscription", 12):
            if not text_of(field, &ask.subscription, &ask.subscription_bytes):
                return False
        elif is_name(field, b"expressionType", 14):
            if not text_of(field, &ask.expression_type, &ask.expression_type_bytes):
                return False
        elif is_name(field, b"queueId", 7):
            has |= 1
            if not whole_number(field, low, high, &ask.queue_id):
                return False
        elif is_name(field, b"queueOffset", 11):
            has |= 2
            if not whole_number(field, low, high, &ask.offset):
                return False
        elif is_name(field, b"maxMsgNums", 10):
            has |= 4
            if not whole_number(field, low, high, &ask.max_count):
                return False
        elif is_name(field, b"sysFlag", 7):
            has |= 8
            if not whole_number(field, low, high, &ask.sys_flag):
                return False
        elif is_name(field, b"commitOffset", 12):
            if not whole_number(field, low, high, &ask.commit_offset):
                return False
        elif is_name(field, b"suspendTimeoutMillis", 20):
            if not whole_number(field, low, high, &ask.suspend_ms):
                return False
        elif is_name(field, b"subVersion", 10):
            if not whole_number(field, low, high, &ask.sub_version):
                return False
    return has == 15 and ask.group_bytes > 0 and ask.topic_bytes > 0


cdef class EntryBlock:
    """Entries of a queue's file from `first` on."""

    cdef long long first
    cdef bytes data


cdef class PullPlan:
    """A pull that PullAdmission has admitted, for later ones with the same key.

    Valid as long as the configurations and the subscription are the same objects: a change never alters these objects,
    it replaces them. So comparing identities is all the admission that the next pull needs.
    """

    cdef object group
    cdef object topic
    cdef object subscription
    cdef object wanted
    cdef str group_name
    cdef str topic_name
    cdef object queue_id
    cdef long long sub_version
    cdef long long group_sys_flag
    cdef long long topic_sys_flag
    cdef bint usual
    cdef int code_count
    cdef long long codes[PULL_MOST_CODES]


cdef class PullRuns:
    """Serves the pulls of consumers that were admitted before. Owned by remoting-io, except `take_options`.

    hits: pulls answered here. asked: pulls that were admitted here, then served or held by PullPath.
    """

    cdef public long long hits
    cdef public long long asked
    cdef dict _plans
    cdef object _find_group, _get_topic, _consumer_group, _refusal_of
    cdef object _find_queue, _settings, _published, _files, _log
    cdef StageState _stage
    # Queue -> the EntryBlock read last from its file; valid until a file is deleted or replaced (`_deletions`).
    cdef dict _blocks
    cdef list _deletions
    cdef object _deletions_seen
    cdef dict _resets
    cdef object _commit, _note
    cdef object _path_pull, _new_request
    cdef AnswersState _answers
    cdef DeliveryState _deliveries
    cdef LoopState _loop
    cdef object _buffer
    cdef char* _bytes
    cdef Py_ssize_t _buffer_bytes
    cdef PullRun* _runs
    cdef Py_ssize_t _run_room
    cdef tuple _head
    # Copies of options.
    cdef bint _readable, _lite
    cdef bint _long_polling
    cdef long long _short_ms
    # Copies of settings, taken again when the store has another settings object than `_known_settings`.
    cdef object _known_settings
    cdef long long _bytes_in_memory, _count_in_memory, _bytes_on_disk, _count_on_disk, _scan_entries, _memory_bytes
    # True if a reader far behind is sent to a slave. Python makes that answer.
    cdef bint _slave_reads

    def __cinit__(self):
        self._bytes = NULL
        self._runs = NULL
        self._run_room = 0

    def __init__(self, parts):
        """parts: a PullParts."""
        cdef Py_buffer view
        self._plans = {}
        self._find_group, self._get_topic = parts.find_group, parts.get_topic
        self._consumer_group, self._refusal_of = parts.consumer_group, parts.refusal_of
        self._find_queue, self._settings, self._published = parts.find_queue, parts.settings, parts.published
        self._files, self._log, self._stage = parts.files, parts.log, parts.log
        self._blocks, self._deletions, self._deletions_seen = {}, parts.deletions, parts.deletions[0]
        self._resets, self._commit, self._note = parts.resets, parts.commit, parts.note
        self._path_pull, self._new_request = parts.pull, parts.new_request
        self._answers, self._loop, self._deliveries = parts.answers, parts.loop, parts.deliveries
        assert PyByteArray_GET_SIZE(self._deliveries.room) % PULL_EVENT == 0
        self._buffer = parts.buffer
        # `_buffer` is a memoryview, which pins its bytes as long as this object refers to it. So the pointer stays
        # valid after the release below.
        PyObject_GetBuffer(self._buffer, &view, PyBUF_WRITABLE)
        self._bytes, self._buffer_bytes = <char*>view.buf, view.len
        PyBuffer_Release(&view)
        self._head = parts.head
        assert len(self._head) == PULL_NUMBERS + 1
        assert 8 + sum(map(len, self._head)) + 20 * PULL_NUMBERS <= PULL_HEAD_BYTES
        self.take_options(parts.options)

    def __dealloc__(self):
        free(self._runs)

    def take_options(self, options):
        """Take changed options over. Any thread."""
        self._readable = options.broker_permission & PULL_PERM_READ != 0
        self._lite = options.lite_pull_message_enable
        self._long_polling = options.long_polling_enable
        self._short_ms = options.short_polling_time_ms

    def forget_plans(self):
        """Drop all plans, after a change of options that admission depends on. On remoting-io."""
        self._plans.clear()

    # --- plans

    cdef bytes _key(self, const PullAsk* ask):
        """Return the key of a pull's plan; None if it would be too long.

        The lengths come first, so that two pulls whose texts only join to the same bytes have different keys. A pull
        without a subscription of its own leaves expression and type out.
        """
        cdef char key[PULL_KEY_BYTES]
        cdef bint own = ask.sys_flag & PULL_SUBSCRIPTION != 0
        cdef Py_ssize_t size = 16 + ask.group_bytes + ask.topic_bytes
        cdef Py_ssize_t at = 16
        cdef unsigned int numbers[4]
        if own:
            size += ask.subscription_bytes + ask.expression_type_bytes
        if size > PULL_KEY_BYTES:
            return None
        numbers[0] = <unsigned int>ask.queue_id << 1 | own
        numbers[1] = <unsigned int>ask.group_bytes
        numbers[2] = <unsigned int>ask.topic_bytes
        numbers[3] = <unsigned int>ask.subscription_bytes if own else 0
        memcpy(key, numbers, 16)
        memcpy(key + at, ask.group, ask.group_bytes)
        at += ask.group_bytes
        memcpy(key + at, ask.topic, ask.topic_bytes)
        at += ask.topic_bytes
        if own:
            if ask.subscription_bytes:
                memcpy(key + at, ask.subscription, ask.subscription_bytes)
                at += ask.subscription_bytes
            if ask.expression_type_bytes:
                memcpy(key + at, ask.expression_type, ask.expression_type_bytes)
                at += ask.expression_type_bytes
        assert at == size
        return PyBytes_FromStringAndSize(key, size)

    def learn(self, fields, request):
        """Keep a plan for the pull that PullAdmission has just admitted: it made `request` from `fields`."""
        cdef PullAsk ask
        cdef PullPlan plan
        if not self._ask_of(fields, &ask):
            return
        if ask.sys_flag & PULL_SUBSCRIPTION and not (fields.subscription or "").isprintable():
            return  # no client writes such an expression, and its plan would keep the text
        key = self._key(&ask)
        if key is None:
            return
        plan = PullPlan.__new__(PullPlan)
        plan.group, plan.topic, plan.wanted = request.group, request.topic, request.wanted
        plan.group_name, plan.topic_name = plan.group.group_name, plan.topic.topic_name
        if plan.group_name != fields.group or plan.topic_name != fields.topic:
            return
        plan.queue_id = request.queue_id
        plan.group_sys_flag, plan.topic_sys_flag = plan.group.group_sys_flag, plan.topic.topic_sys_flag
        plan.code_count = take_codes(plan.wanted.codes, plan.codes)
        plan.usual = plan.code_count <= PULL_MOST_CODES and not plan.wanted.reads_records
        if not ask.sys_flag & PULL_SUBSCRIPTION:
            if not plan.group.consume_broadcast_enable:
                return  # its admission also depends on the message model in the last heartbeat
            plan.subscription = self._consumer_group(plan.group_name).subscriptions[plan.topic_name]
            plan.sub_version = plan.subscription.sub_version
        if len(self._plans) >= PULL_MOST_PLANS:
            self._plans.clear()
        self._plans[key] = plan

    cdef bint _ask_of(self, fields, PullAsk* ask) except -1:
        """Fill `ask` from a PullFields, whose texts it points to; False if no plan is made for such a pull."""
        memset(ask, 0, sizeof(PullAsk))
        try:
            ask.group = PyUnicode_AsUTF8AndSize(fields.group, &ask.group_bytes)
            ask.topic = PyUnicode_AsUTF8AndSize(fields.topic, &ask.topic_bytes)
            if fields.subscription:
                ask.subscription = PyUnicode_AsUTF8AndSize(fields.subscription, &ask.subscription_bytes)
            if fields.expression_type:
                ask.expression_type = PyUnicode_AsUTF8AndSize(fields.expression_type, &ask.expression_type_bytes)
            ask.queue_id, ask.offset, ask.max_count = fields.queue_id, fields.offset, fields.max_count
            ask.sys_flag, ask.commit_offset = fields.sys_flag, fields.commit_offset
            ask.suspend_ms, ask.sub_version = fields.suspend_ms, fields.sub_version
        except (OverflowError, UnicodeEncodeError):  # numbers over 64 bits, half a surrogate pair
            return False
        return 0 <= ask.queue_id < 1 << 30 and ask.group_bytes > 0 and ask.topic_bytes > 0

    cdef PullPlan _plan(self, const PullAsk* ask):
        """Return the plan of a pull; None if there is none, or if it is no longer valid."""
        cdef PullPlan plan
        cdef void* found
        if not 0 <= ask.queue_id < 1 << 30:
            return None
        key = self._key(ask)
        if key is None:
            return None
        found = PyDict_GetItem(self._plans, key)
        if found == NULL:
            return None
        plan = <PullPlan><object>found
        if self._find_group(plan.group_name) is not plan.group or self._get_topic(plan.topic_name) is not plan.topic:
            del self._plans[key]
            return None
        if not ask.sys_flag & PULL_SUBSCRIPTION:
            info = self._consumer_group(plan.group_name)
            if info is None or info.subscriptions.get(plan.topic_name) is not plan.subscription:
                del self._plans[key]
                return None
            if plan.sub_version < ask.sub_version:
                return None
        return plan

    # --- serving

    cdef int one(self, PeerState conn, Header* header, bint lite) except -1:
        """Serve a pull: return 1 when it is done, 0 when Python has to handle it; then nothing has changed."""
        cdef PullAsk ask
        if header.flag or not pull_of(header, &ask):
            return 0
        ask.lite = lite
        return self.serve(conn, &ask)

    cdef int serve(self, PeerState conn, const PullAsk* ask) except -1:
        """Return 1 if the pull was served, 0 if nothing was done and Python has to serve it."""
        cdef PullPlan plan
        cdef long long hold_ms = 0, max_count = ask.max_count
        if not self._readable or (ask.lite and not self._lite):
            return 0
        plan = self._plan(ask)
        if plan is None:
            return 0
        if len(self._resets) and (plan.group_name, plan.topic_name, plan.queue_id) in self._resets:
            return 0
        # The pull is admitted. From here on it must not go back to Python's admission: its commit would count twice.
        if ask.sys_flag & PULL_COMMIT:
            self._commit(plan.group_name, plan.topic_name, plan.queue_id, ask.commit_offset, conn.born_host)
        if max_count > PULL_MAX_COUNT:
            max_count = PULL_MAX_COUNT
        if plan.usual and self._answer(conn, ask.opaque, plan, ask.offset, max_count):
            self.hits += 1
            return 1
        if ask.sys_flag & PULL_SUSPEND:
            hold_ms = ask.suspend_ms if self._long_polling else self._short_ms
        self.asked += 1
        request = self._new_request(
            self._answers, conn, ask.opaque, plan.group, plan.topic, plan.queue_id, ask.offset, max_count, plan.wanted
        )
        request.plan = plan
        self._path_pull(request, hold_ms)
        return 1

    def answer_woken(self, request):
        """As PullPath.pull for a request that was held and now finds messages; False if nothing was done.

        As PullPath, it uses the group, topic and filter that the request was admitted with, even if they have changed.
        """
        cdef PullPlan plan = request.plan
        if plan is None or not plan.usual:
            return False
        if not self._answer(request.conn, request.opaque, plan, request.offset, request.max_count):
            return False
        self.hits += 1
        return True

    def wake(self, queue, list held, look_at, remove, resume):
        """Answer those of a queue's held pulls that find messages, one after the other, as LongPolling and PullPath do.

        look_at: does the same for one pull. remove: takes one out of the places where it is held. resume: answers one
        that is no longer there.
        """
        cdef PullPlan plan, sure = None
        cdef QueueState entries = <QueueState?>queue
        for request in held:
            plan = request.plan
            if (
                plan is None or not plan.usual or plan.code_count >= 0 or len(self._resets)
                or not request.bucket or request.offset >= entries.max_offset
                or request.reply_to is not self._answers or request.group is not plan.group
                or plan is not sure and (
                    self._refusal_of(request) is not None
                    or self._find_queue(plan.topic_name, plan.queue_id) is not queue
                )
            ):
                sure = None  # Python may change anything
                look_at(request, queue)
                continue
            sure = plan
            remove(request)
            try:
                if self._answer_from(request.conn, request.opaque, plan, queue, request.offset, request.max_count):
                    self.hits += 1
                else:
                    sure = None
                    resume(request)
            except Exception:
                request.conn.fail()

    cdef int _take_settings(self, settings) except -1:
        self._bytes_in_memory, self._count_in_memory = settings.max_bytes_in_memory, settings.max_count_in_memory
        self._bytes_on_disk, self._count_on_disk = settings.max_bytes_on_disk, settings.max_count_on_disk
        self._scan_entries = settings.max_scan_bytes // PULL_ENTRY
        self._memory_bytes = settings.memory_bytes
        self._slave_reads = settings.slave_reads
        self._known_settings = settings
        return 0

    cdef bint _answer(self, PeerState conn, long long opaque, PullPlan plan, long long offset, long long max_count) except -1:
        """As PullPath.pull and PullAnswers.found for a pull that finds messages; False if nothing was done."""
        return self._answer_from(
            conn, opaque, plan, self._find_queue(plan.topic_name, plan.queue_id), offset, max_count
        )

    cdef bint _answer_from(
        self, PeerState conn, long long opaque, PullPlan plan, found_queue, long long offset, long long max_count
    ) except -1:
        """The same of a queue that was found; None: there is none."""
        cdef QueueState queue
        cdef Picked picked
        cdef const byte* entries
        cdef Py_ssize_t entry_count
        cdef long long low, high, scan, most, in_files, begin, log_end, log_begin, limit_bytes, limit_count
        # With an answer still in the outbox, this one must not go to the socket directly: it would overtake that one.
        if conn.closed or conn.full or conn._out_bytes:
            return False
        if found_queue is None:
            return False
        queue = <QueueState?>found_queue
        low, high = queue.min_offset, queue.max_offset
        if offset < low or offset >= high:
            return False
        settings = self._settings()
        if settings is not self._known_settings:
            self._take_settings(settings)
        scan = max_count
        if not 0 < scan <= self._count_in_memory:
            most = max(self._count_in_memory, self._count_on_disk)
            scan = max(1, min(scan, most))
        if plan.code_count >= 0:
            scan = max(self._scan_entries, scan)
        if scan > high - offset:
            scan = high - offset
        log_end = self._published()
        log_begin = self._log.min_offset
        read = None
        if offset < queue.tail_base:
            if found_queue.broken:
                return False
            in_files = queue.tail_base - offset
            begin = 0
            if scan > in_files or scan > PULL_AHEAD:
                read = self._files.read_nowait(plan.topic_name, plan.queue_id, offset, min(scan, in_files))
                if not read:
                    return False
                if scan > in_files and PyBytes_GET_SIZE(read) == in_files * PULL_ENTRY:
                    read += found_queue.tail_entries(queue.tail_base, scan - in_files)
            else:
                read = self._read_ahead(plan, queue, offset, scan, in_files, &begin)
                if read is None:
                    return False
            entries = <const byte*>PyBytes_AS_STRING(read) + begin
            entry_count = min((PyBytes_GET_SIZE(read) - begin) // PULL_ENTRY, scan)
        else:
            begin = (offset - queue.tail_base) * PULL_ENTRY
            entry_count = <Py_ssize_t>scan
            assert begin + entry_count * PULL_ENTRY <= PyByteArray_GET_SIZE(queue.tail)
            entries = <const byte*>PyByteArray_AS_STRING(queue.tail) + begin
        if entry_count < 1:
            return False
        if entry_count > self._run_room:
            self._make_room(entry_count)
        limit_bytes, limit_count = self._bytes_in_memory, self._count_in_memory
        if i64_at(entries) >= 0 and log_end - i64_at(entries) > self._memory_bytes:
            if self._slave_reads:
                return False
            limit_bytes, limit_count = self._bytes_on_disk, self._count_on_disk
        limit_count = max(1, min(max_count, limit_count))
        if not pick(
            entries, entry_count, plan.codes, plan.code_count, log_begin, limit_count, limit_bytes, self._runs, &picked
        ):
            return False
        if picked.damaged:
            self._blocks.pop(queue, None)
        if picked.damaged or not picked.run_count:
            return False
        return self._send(conn, opaque, plan, queue, offset + picked.scanned, low, high, &picked)

    cdef bytes _read_ahead(
        self, PullPlan plan, QueueState queue, long long offset, long long scan, long long in_files, long long* begin
    ):
        """Return entries of the queue's file; those from `offset` on start at byte `begin`. None if they are not in
        the page cache.

        They are `scan` entries, or fewer where the file ends. More are read than this pull needs, since a consumer
        mostly pulls the next ones soon: these then cost no system call.
        """
        cdef EntryBlock block
        cdef void* found
        if self._deletions[0] != self._deletions_seen:
            self._deletions_seen = self._deletions[0]
            self._blocks.clear()
        found = PyDict_GetItem(self._blocks, queue)
        if found != NULL:
            block = <EntryBlock><object>found
            begin[0] = (offset - block.first) * PULL_ENTRY
            if begin[0] >= 0 and begin[0] + scan * PULL_ENTRY <= PyBytes_GET_SIZE(block.data):
                return block.data
        read = self._files.read_nowait(plan.topic_name, plan.queue_id, offset, min(in_files, <long long>PULL_AHEAD))
        if not read:
            return None
        if len(self._blocks) >= PULL_MOST_BLOCKS:
            self._blocks.clear()
        block = EntryBlock.__new__(EntryBlock)
        block.first, block.data = offset, read
        self._blocks[queue] = block
        begin[0] = 0
        return block.data

    cdef int _make_room(self, Py_ssize_t count) except -1:
        cdef PullRun* runs = <PullRun*>realloc(self._runs, count * sizeof(PullRun))
        if runs == NULL:
            raise MemoryError
        self._runs = runs
        self._run_room = count
        return 0

    # --- sending

    cdef Py_ssize_t _render(self, char* into, const long long* numbers, long long size) except -1:
        """Write the answer's head, up to the records, which have `size` bytes; return the length of the head."""
        cdef Py_ssize_t number, at = 8
        cdef bytes piece
        for number in range(PULL_NUMBERS + 1):
            piece = <bytes>self._head[number]
            memcpy(into + at, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
            at += PyBytes_GET_SIZE(piece)
            if number < PULL_NUMBERS:
                at = <char*>put_decimal(<byte*>into + at, numbers[number]) - into
        assert at <= PULL_HEAD_BYTES
        put_u32(<byte*>into, <uint32_t>(at - 4 + size))
        put_u32(<byte*>into + 4, <uint32_t>(at - 8))
        return at

    cdef int _served(
        self, PeerState conn, PullPlan plan, queue, long long next_offset, const Picked* picked
    ) except -1:
        """Count the answer and note its delivery. Called when it is certain that the answer will be sent."""
        self._note(plan.group_name, queue, next_offset)
        self._answers.found_count += 1
        self._answers.message_count += picked.count
        self._answers.message_bytes += picked.size
        if self._deliveries.on:
            self._tell(conn, plan, next_offset - picked.scanned, picked.scanned)
        return 0

    cdef int _tell(self, PeerState conn, PullPlan plan, long long first, long long count) except -1:
        """As DeliveryRecorder.record."""
        cdef DeliveryState events = self._deliveries
        cdef void* known = PyDict_GetItem(conn.told, plan)
        cdef long long number = -1
        cdef byte* at
        if known != NULL:
            number = <object>known
        if number < events.first_number or count > PULL_MOST_COUNT or first > PULL_MOST_OFFSET:
            events.record_unusual(
                conn, plan, plan.group_name, plan.topic_name, plan.queue_id, plan.wanted, first, count
            )
            return 0
        if events.at + PULL_EVENT > PyByteArray_GET_SIZE(events.room):
            events.hand_over()
        at = <byte*>PyByteArray_AS_STRING(events.room) + events.at
        put_u32(at, <uint32_t>number)
        put_u32(at + 4, <uint32_t>self._loop.wall_ms)
        put_i64(at + 8, first << 16 | count)
        events.at += PULL_EVENT
        return 0

    cdef bint _send(
        self, PeerState conn, long long opaque, PullPlan plan, QueueState queue, long long next_offset, long long low,
        long long high, const Picked* picked,
    ) except -1:
        cdef char head[PULL_HEAD_BYTES]
        cdef long long numbers[PULL_NUMBERS]
        cdef Py_ssize_t head_bytes
        numbers[0], numbers[1], numbers[2], numbers[3] = plan.group_sys_flag, next_offset, high, low
        numbers[4], numbers[5] = plan.topic_sys_flag, opaque
        head_bytes = self._render(head, numbers, picked.size)
        cdef PullRun* runs = self._runs
        if picked.run_count == 1 and picked.size >= PULL_SENDFILE_FROM:
            place = self._log.resident(runs[0].offset, runs[0].size)
            if place is not None:
                self._served(conn, plan, queue, next_offset, picked)
                self._send_file(conn, head, head_bytes, place[0], place[1], picked.size)
                return True
        if not self._read_records(picked):
            return False
        self._served(conn, plan, queue, next_offset, picked)
        self._send_pieces(conn, head, head_bytes, picked)
        return True

    cdef int _send_file(
        self, PeerState conn, const char* head, Py_ssize_t head_bytes, int source, long long position, long long size
    ) except -1:
        """As Outbox.send_file. The head goes out with MSG_MORE, so that it shares a packet with the first records."""
        cdef int fd = conn.fd, error = 0
        cdef ssize_t done
        cdef long long sent = -head_bytes
        cdef off_t at = position
        conn.last_active = self._loop.monotonic
        with nogil:
            done = send_unbroken(fd, head, head_bytes, MSG_MORE | MSG_NOSIGNAL)
            if done >= 0:
                sent += done
                if sent == 0:
                    done = sendfile_unbroken(fd, source, &at, size)
                    if done > 0:
                        sent = done
            if done < 0:
                error = errno
        if error and error not in (EAGAIN, EPIPE, ECONNRESET):
            self._give_up(conn, error, False)
        elif sent < size:
            conn.send_rest_of_file(PyBytes_FromStringAndSize(head, head_bytes), sent, source, position, size)
        return 0

    cdef int _give_up(self, PeerState conn, int error, bint quietly) except -1:
        """Close the connection after an error of its socket, logged unless `quietly`."""
        try:
            raise OSError(error, os.strerror(error))
        except OSError:
            if quietly:
                conn._close()
            else:
                conn.fail()
        return 0

    cdef bint _read_records(self, const Picked* picked) except -1:
        """Read the records into the shared buffer, in one piece, and turn each run's offset into its place there.

        False if they are not in the page cache, or lie so far apart that reading the gaps would cost more than one call
        for each run. As in CommitLog.read_nowait, the records written last come from the stage.
        """
        cdef PullRun* runs = self._runs
        cdef StageState stage = self._stage
        cdef Py_ssize_t number, count = picked.run_count
        cdef long long base = runs[0].offset, span, worth
        span = runs[count - 1].offset + runs[count - 1].size - base
        worth = picked.size if count == 1 else picked.size + count * PULL_BYTES_FOR_A_CALL
        worth = min(worth, <long long>self._buffer_bytes)
        if not 0 < span <= worth or count >= PULL_MOST_PIECES:
            return False
        for number in range(count):  # entries are in order, unless the queue file is damaged
            if runs[number].offset < base or runs[number].offset + runs[number].size > base + span:
                return False
        if stage.kept <= base and base + span <= stage.kept_end and not stage.staged:
            assert span <= PyByteArray_GET_SIZE(stage.stage)
            memcpy(self._bytes, PyByteArray_AS_STRING(stage.stage) + base - stage.kept, span)
        else:
            if count > 1:
                segment = self._log.segment_at(base)
                if segment is None or base + span > segment.end:
                    return False
            if not self._log.read_nowait(base, self._buffer[:span]):
                return False
        for number in range(count):
            runs[number].offset -= base
        return True

    cdef int _send_pieces(self, PeerState conn, char* head, Py_ssize_t head_bytes, const Picked* picked) except -1:
        """As Outbox.send_now."""
        cdef iovec pieces[PULL_MOST_PIECES]
        cdef msghdr message
        cdef PullRun* runs = self._runs
        cdef Py_ssize_t number, count = 1
        cdef long long end = -1, total = head_bytes + picked.size
        cdef int fd = conn.fd, error = 0
        cdef ssize_t sent
        pieces[0].iov_base = head
        pieces[0].iov_len = head_bytes
        for number in range(picked.run_count):
            if runs[number].offset == end:
                pieces[count - 1].iov_len += runs[number].size
            else:
                assert count < PULL_MOST_PIECES
                pieces[count].iov_base = self._bytes + runs[number].offset
                pieces[count].iov_len = runs[number].size
                count += 1
            end = runs[number].offset + runs[number].size
        memset(&message, 0, sizeof(message))
        message.msg_iov = pieces
        message.msg_iovlen = count
        conn.last_active = self._loop.monotonic
        with nogil:
            sent = sendmsg_unbroken(fd, &message, MSG_NOSIGNAL)
            if sent < 0:
                error = errno
                sent = 0
        if error and error not in (EAGAIN, EPIPE, ECONNRESET):
            self._give_up(conn, error, True)
        elif sent < total:
            self._queue_rest(conn, pieces, count, sent, total)
        return 0

    cdef int _queue_rest(
        self, PeerState conn, const iovec* pieces, Py_ssize_t count, long long sent, long long total
    ) except -1:
        """Queue a copy of the bytes that the socket did not take, since the next pull overwrites the buffer."""
        cdef bytes rest = PyBytes_FromStringAndSize(NULL, total - sent)
        cdef char* at = PyBytes_AS_STRING(rest)
        cdef Py_ssize_t number, size
        for number in range(count):
            size = pieces[number].iov_len
            if sent >= size:
                sent -= size
                continue
            memcpy(at, <char*>pieces[number].iov_base + sent, size - sent)
            at += size - sent
            sent = 0
        assert at == PyBytes_AS_STRING(rest) + PyBytes_GET_SIZE(rest)
        conn.send_parts([rest], PyBytes_GET_SIZE(rest))
        return 0
