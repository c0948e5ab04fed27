# The usual rounds of the thread `flush-commitlog` in sync flush, without the GIL: wait for a tick, sync the file, move
# `durable`, wake the loop. With the GIL, each of these steps would wait until remoting-io gives it up, and take it away.
#
# The reference: `FlushCommitLogService.run` and `CommitLog.sync`.

cdef extern from *:
    """
    #include <time.h>

    #ifdef __APPLE__
    #include <fcntl.h>
    static int sync_once(int fd) { return fcntl(fd, F_FULLFSYNC); }  /* fsync(2) there ends at the drive's cache */
    #else
    static int sync_once(int fd) { return fdatasync(fd); }
    #endif
    static int sync_unbroken(int fd) {
        int done;
        do done = sync_once(fd); while (done < 0 && errno == EINTR);
        return done < 0 ? errno : 0;
    }

    static void wake_by(int fd) {
        uint64_t one = 1;
        ssize_t done;
        do done = write(fd, &one, sizeof one); while (done < 0 && errno == EINTR);  /* EAGAIN: it will wake */
    }

    static double monotonic_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    }

    #define now_of(place) __atomic_load_n(place, __ATOMIC_SEQ_CST)
    #define become(place, value) __atomic_store_n(place, value, __ATOMIC_SEQ_CST)
    #define swap(place, value) __atomic_exchange_n(place, value, __ATOMIC_SEQ_CST)

    /* Raise a position; never lower it, whoever else raises it meanwhile. */
    static void raise_to(long long *place, long long value) {
        long long before = now_of(place);
        while (before < value
               && !__atomic_compare_exchange_n(place, &before, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    }
    """
    int sync_unbroken(int fd) nogil
    void wake_by(int fd) nogil
    double monotonic_now() nogil
    void raise_to(long long* place, long long value) nogil
    int load_flag "now_of"(int* place) nogil
    long long load_place "now_of"(long long* place) nogil
    void store_flag "become"(int* place, int value) nogil
    void store_place "become"(long long* place, long long value) nogil
    int swap_flag "swap"(int* place, int value) nogil

cdef extern from "pythread.h":
    ctypedef void* PyThread_type_lock
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock lock)
    int PyThread_acquire_lock(PyThread_type_lock lock, int wait) nogil
    void PyThread_release_lock(PyThread_type_lock lock) nogil


cdef class SyncRounds:
    """`run` belongs to flush-commitlog, `written` to remoting-io; any thread may `ask` and read the figures.

    wake_fd: each write of 8 bytes to it wakes the loop; it stays the caller's.
    """
    cdef StageState log
    cdef PyThread_type_lock gate
    cdef int wake_fd
    # 1 while the gate is open or about to be opened.
    cdef int opened
    cdef int asked
    cdef long long target
    #: Number of syncs, seconds that they took, and when the current one began (0.0: none is under way).
    cdef readonly long long count
    cdef readonly double seconds
    cdef readonly double since

    def __cinit__(self, StageState log, int wake_fd):
        self.log, self.wake_fd = log, wake_fd
        self.gate = PyThread_allocate_lock()
        if self.gate == NULL:
            raise MemoryError
        PyThread_acquire_lock(self.gate, 1)

    def __dealloc__(self):
        if self.gate != NULL:
            PyThread_free_lock(self.gate)

    cdef void open(self) noexcept nogil:
        if not swap_flag(&self.opened, 1):
            PyThread_release_lock(self.gate)

    def written(self, long long end):
        """Have the log synced up to `end`, which is written."""
        store_place(&self.target, end)
        self.open()

    def ask(self):
        """Have `run` return, before it syncs anything that `written` is told of from now on."""
        store_flag(&self.asked, 1)
        self.open()

    def run(self, int fd, long long end):
        """Wait, and sync what was written to `fd`, which holds the log from `durable` to `end`. Return 0 if Python has
        to look: it was asked for, or the log is written behind `end`. Return the error number if a sync failed."""
        cdef long long target
        cdef double begun
        cdef int failed = 0
        with nogil:
            while True:
                PyThread_acquire_lock(self.gate, 1)
                store_flag(&self.opened, 0)
                # In this order: `ask` comes before the end that it is about.
                target = load_place(&self.target)
                if swap_flag(&self.asked, 0):
                    break
                if target <= load_place(&self.log.durable):
                    continue
                if target > end:
                    break
                begun = monotonic_now()
                self.since = begun
                failed = sync_unbroken(fd)
                self.since = 0.0
                if failed:
                    break
                self.count += 1
                self.seconds += monotonic_now() - begun
                raise_to(&self.log.durable, target)
                wake_by(self.wake_fd)
        return failed
