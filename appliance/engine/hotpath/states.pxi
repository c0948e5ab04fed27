# The fields of the engine's parts that compiled code uses as plain C values. `pure.py` describes them.


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


cdef class PeerState:
    cdef public int _mask
    cdef public list _out
    cdef public long long _out_bytes
    cdef public bytearray _partial
    cdef public object _server
    cdef public bint _settled
    cdef public bytes born_host
    cdef public bint closed
    cdef public bint closing
    cdef public bint dirty
    cdef public int fd
    cdef public bint full
    cdef public object grants
    cdef public bint halted
    cdef public double last_active
    cdef public dict told


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
