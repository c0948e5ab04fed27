# Receiving from sockets and sending to them, without a Python object for each frame or answer.
#
# The reference: `Connection.handle_event` and `_read`, `Outbox.flush`.

cdef enum:
    WATCH_READABLE = 1
    # As in `connection.py` and `outbox.py`.
    OWN_BUFFER_BYTES = 65536
    JOINED_BYTES = 1048576
    # Most outboxes sent in one release of the GIL, and most pieces of one outbox.
    MOST_OUTBOXES = 64
    MOST_PIECES = 16


cdef class Reading:
    """Values that all connections of a port share. runner: its FrameRunner."""
    cdef FrameRunner runner
    cdef LoopState loop
    cdef ServerState server
    cdef bytearray buffer

    def __init__(self, FrameRunner runner, ServerState server, loop):
        self.runner, self.server, self.loop = runner, server, loop
        self.buffer = loop.receive_buffer


cdef int read_socket(PeerState peer, int mask) except -1:
    """Read a peer's usual frames, and call the peer for everything else. On remoting-io."""
    cdef Reading reading = peer.reading
    cdef Py_ssize_t kept = 0, room, position
    cdef ssize_t received
    cdef byte* p
    cdef int fd = peer.fd
    if (
        reading is None
        or mask != WATCH_READABLE
        or not peer._mask & WATCH_READABLE
        or peer.halted
        or peer.closed
        or reading.server.producers_held
        or reading.server.read_bytes
    ):
        peer.handle_event(mask)
        return 0
    room, p = PyByteArray_GET_SIZE(reading.buffer), <byte*>PyByteArray_AS_STRING(reading.buffer)
    if peer._partial is not None:
        kept = PyByteArray_GET_SIZE(peer._partial)
        if kept > OWN_BUFFER_BYTES:
            peer.handle_event(mask)
            return 0
        memcpy(p, PyByteArray_AS_STRING(peer._partial), kept)
    with nogil:
        received = recv_unbroken(fd, p + kept, room - kept, 0)
    if received <= 0:
        peer.handle_event(mask)  # reads again, meets the same error or end, and handles it
        return 0
    peer.last_active = reading.loop.monotonic
    try:
        position = reading.runner.walk(peer, p, 0, kept + received)
    except Exception:
        peer.fail()
        return 0
    if position < kept + received or peer._partial is not None:
        peer.received(position, kept + received)
    return 0


def flush_outboxes(list batch, double monotonic):
    """Send the content of usual outboxes, as far as their sockets take it; return the others, for Python to flush."""
    cdef list left = []
    cdef PeerState peer
    cdef iovec pieces[MOST_OUTBOXES * MOST_PIECES]
    cdef msghdr messages[MOST_OUTBOXES]
    cdef PyObject* peers[MOST_OUTBOXES]
    cdef int fds[MOST_OUTBOXES]
    cdef ssize_t sent[MOST_OUTBOXES]
    cdef Py_ssize_t at = 0, size, total = PyList_GET_SIZE(batch)
    cdef int count, i, k
    cdef list out
    while at < total:
        count = 0
        while at < total and count < MOST_OUTBOXES:
            peer = <PeerState?>batch[at]
            at += 1
            out = peer._out
            size = 0 if out is None else PyList_GET_SIZE(out)
            if (
                peer.closed or peer.closing or not peer._settled
                or not 1 <= size <= MOST_PIECES or peer._out_bytes > JOINED_BYTES
            ):
                left.append(peer)
                continue
            for k in range(size):
                piece = out[k]
                if type(piece) is not bytes:
                    break
                pieces[count * MOST_PIECES + k].iov_base = PyBytes_AS_STRING(<bytes>piece)
                pieces[count * MOST_PIECES + k].iov_len = PyBytes_GET_SIZE(<bytes>piece)
            else:
                memset(&messages[count], 0, sizeof(msghdr))
                messages[count].msg_iov = &pieces[count * MOST_PIECES]
                messages[count].msg_iovlen = size
                # `batch` refers to the peer, and the peer to its pieces. Only this thread changes either, so they stay
                # alive while the GIL is released.
                peers[count], fds[count] = <PyObject*>peer, peer.fd
                count += 1
                continue
            left.append(peer)
        with nogil:
            for i in range(count):
                sent[i] = sendmsg_unbroken(fds[i], &messages[i], MSG_NOSIGNAL)
        for i in range(count):
            peer = <PeerState>peers[i]
            if peer.closed:
                continue  # for the sake of all outboxes together, by one before it
            if sent[i] < 0:
                left.append(peer)  # Python's flush tries again and handles the error
            elif sent[i] == peer._out_bytes:
                peer.dirty = False
                peer._out = None
                peer._out_bytes = 0
                peer.last_active = monotonic
            else:
                try:
                    peer.took(sent[i])
                except Exception:
                    peer.fail()
    return left
