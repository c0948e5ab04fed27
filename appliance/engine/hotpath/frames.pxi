# The walk over the frames of one read: it takes whole, usual frames and stops at the first other one.
#
# The reference: `Connection._consume`, `Dispatcher.dispatch`.

cdef enum:
    # Frame and header limits are those of `protocol/command.py`; Python refuses longer ones.
    MAX_FRAME_BYTES = 16777216
    MAX_HEADER_BYTES = 262144
    # Above this, Python counts the fields of a header in the binary encoding first; see `Dispatcher.dispatch`.
    MANY_FIELDS_BYTES = 65536


cdef class FrameRunner:
    """Takes the usual frames of one listening port's connections. Owned by remoting-io."""
    # One per request code; None: Python handles the code.
    cdef SendRuns send, send_letters, send_batch
    cdef PullRuns pull, lite_pull
    # None without access control.
    cdef Guard guard

    def __init__(self, dict runs, guard=None):
        """runs: request code -> the SendRuns or PullRuns that takes its usual frames. guard: checks them first."""
        self.guard = guard
        self.send = runs.get(10)
        self.send_letters = runs.get(310)
        self.send_batch = runs.get(320)
        self.pull = runs.get(11)
        self.lite_pull = runs.get(361)

    def run(self, PeerState peer, view, Py_ssize_t position, Py_ssize_t end):
        """Take the usual frames from `view[position]` on; return where the first other one begins, or `end`."""
        cdef Py_buffer buffer
        PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
        try:
            assert 0 <= position <= end <= buffer.len
            return self.walk(peer, <const byte*>buffer.buf, position, end)
        finally:
            PyBuffer_Release(&buffer)

    cdef Py_ssize_t walk(self, PeerState peer, const byte* p, Py_ssize_t position, Py_ssize_t end) except -1:
        cdef Header header
        cdef SendRuns sends = None, run
        cdef PullRuns pulls
        cdef int64_t length
        cdef uint32_t meta
        cdef Py_ssize_t head, body, most
        cdef int64_t code
        try:
            while end - position >= 8 and not peer.halted:  # a pull may halt its peer, or close the connection
                length = i32_at(p + position)
                if length < 4 or length > MAX_FRAME_BYTES - 4 or position + 4 + length > end:
                    break
                meta = u32_at(p + position + 4)
                head = position + 8
                body = head + (meta & 0xFFFFFF)
                most = MAX_HEADER_BYTES if meta < 0x1000000 else MANY_FIELDS_BYTES
                if body > position + 4 + length or body - head > most:
                    break
                code = code_of(p + head, body - head, meta >> 24)
                if code == 310:
                    run = self.send_letters
                elif code == 320:
                    run = self.send_batch
                elif code == 10:
                    run = self.send
                else:
                    run = None
                pulls = None
                if run is None:
                    if code == 11:
                        pulls = self.pull
                    elif code == 361:
                        pulls = self.lite_pull
                    if pulls is None:
                        break
                if not (parse_json(p + head, body - head, &header) if meta < 0x1000000
                        else parse_binary(p + head, body - head, &header)):
                    break
                if self.guard is not None and not self.guard.passes(
                    peer, &header, code, p + body, position + 4 + length - body
                ):
                    break
                if run is None:
                    if sends is not None:  # a pull calls into Python, which must find a complete tick
                        sends.end()
                        sends = None
                    if not pulls.one(peer, &header, code == 361):
                        break
                    position += 4 + length
                    continue
                sends = run
                if not run.one(peer, &header, code != 10, p + body, position + 4 + length - body):
                    break
                position += 4 + length
        finally:
            if sends is not None:
                sends.end()
        return position


cdef int64_t code_of(const byte* p, Py_ssize_t size, uint32_t codec) noexcept nogil:
    """Return the request code of a header that begins as clients write it; -1 for any other header.

    A look at its first bytes only: frames of other codes go to Python, so parsing them here would be wasted.
    """
    cdef Py_ssize_t i = 8
    cdef int64_t code = 0
    if codec == 1:
        return u16_at(p) if size >= 2 else -1
    if codec or size < 16 or memcmp(p, b'{"code":', 8) != 0:
        return -1
    while i < 12 and 48 <= p[i] <= 57:
        code = code * 10 + p[i] - 48
        i += 1
    return code if p[i] == 44 else -1
