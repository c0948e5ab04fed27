# The fields of the engine's parts that compiled code uses as plain C values. `pure.py` describes them.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy


cdef class LoopState:
    cdef public long long wall_ms
    cdef public double monotonic


cdef class StageState:
    cdef public bytearray stage
    cdef public long long staged
    cdef public long long stage_base
    cdef public long long stage_room
    cdef public long long segment_end
    cdef public long long kept
    cdef public long long kept_end
    cdef public long long durable


cdef class QueueState:
    cdef public long long queue_id
    cdef public long long min_offset
    cdef public long long max_offset
    cdef public long long next_offset
    cdef public bytearray tail
    cdef public long long tail_base


cdef class TickState:
    cdef public long long end
    cdef public long long last_offset
    cdef public dict touched
    cdef public list acks
    cdef public list early
    cdef public double written_at


cdef class AppenderState:
    cdef public TickState tick
    cdef public long long store_ms


cdef class ServerState:
    cdef public object loop
    cdef public list dirty
    cdef public bint producers_held
    cdef public long long read_bytes


# An IPv6 address and a port.
cdef enum: BORN_MOST = 20


cdef class Reading


cdef class PeerState:
    cdef public bint _going_on
    cdef public bint _held_back
    cdef public bint _in_pool
    cdef public int _in_socket
    cdef public int _mask
    cdef public list _out
    cdef public long long _out_bytes
    cdef public bytearray _partial
    cdef public int _pool_waits
    cdef public object _server
    cdef public bint _settled
    cdef public bint closed
    cdef public bint closing
    cdef public double connected_at
    cdef public bint dirty
    cdef public int fd
    cdef public bint full
    cdef public object grants
    cdef public bint halted
    cdef public double last_active
    cdef public double listening_since
    cdef public int parked_count
    cdef public int partial_magnitude
    cdef public Reading reading
    cdef public dict told
    # `born_host`: an object for each peer would take twice as much.
    cdef unsigned char born[BORN_MOST]
    cdef int born_bytes

    def on_event(self, int mask):
        read_socket(self, mask)

    @property
    def born_host(self):
        return PyBytes_FromStringAndSize(<char*>self.born, self.born_bytes)

    @born_host.setter
    def born_host(self, bytes host not None):
        if PyBytes_GET_SIZE(host) > BORN_MOST:
            raise ValueError(f"{len(host)} bytes for a host")
        self.born_bytes = <int>PyBytes_GET_SIZE(host)
        memcpy(self.born, PyBytes_AS_STRING(host), self.born_bytes)


cdef class TableState:
    cdef public long long generation


cdef class AdmissionState:
    cdef public long long generation
    cdef public dict routes


cdef class DeliveryState:
    cdef public bytearray room
    cdef public long long at
    cdef public long long first_number
    cdef public bint on
