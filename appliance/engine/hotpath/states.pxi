# The fields of the engine's parts that compiled code uses as plain C values. `pure.py` describes them.

cdef extern from *:
    # One byte in memory, where a `bint` takes four.
    ctypedef bint flag "_Bool"

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
    # The largest first, so that there are no gaps between them.
    cdef public list _out
    cdef public bytearray _partial
    cdef public object _server
    cdef public object grants
    cdef public Reading reading
    cdef public dict told
    cdef public long long _out_bytes
    cdef public double connected_at
    cdef public double last_active
    cdef public double listening_since
    cdef public int _accounted
    cdef public int _filled
    cdef public int _in_pools_bytes
    cdef public int _in_socket
    cdef public int _mask
    cdef public int _pool_waits
    cdef public int _posted
    cdef public int fd
    cdef public int parked_count
    # `born_host`: an object for each peer would take twice as much.
    cdef unsigned char born[BORN_MOST]
    cdef unsigned char born_bytes
    cdef public unsigned char partial_magnitude
    cdef public flag _going_on
    cdef public flag _held_back
    cdef public flag _hung_up
    cdef public flag _in_pool
    cdef public flag _settled
    cdef public flag closed
    cdef public flag closing
    cdef public flag dirty
    cdef public flag full
    cdef public flag halted

    def on_event(self, int mask):
        read_socket(self, mask)

    @property
    def born_host(self):
        return PyBytes_FromStringAndSize(<char*>self.born, self.born_bytes)

    @born_host.setter
    def born_host(self, bytes host not None):
        if PyBytes_GET_SIZE(host) > BORN_MOST:
            raise ValueError(f"{len(host)} bytes for a host")
        self.born_bytes = <unsigned char>PyBytes_GET_SIZE(host)
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
