# System calls. None of them waits: sockets are non-blocking, and `sendfile` is called for bytes in the page cache only.

from libc.errno cimport EAGAIN, ECONNRESET, EPIPE, errno
from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #include <errno.h>
    #include <stdint.h>
    #include <sys/socket.h>
    #include <sys/types.h>
    #include <sys/uio.h>
    #include <unistd.h>
    #ifdef __linux__
    #include <sys/sendfile.h>
    #include <sys/syscall.h>
    #else
    static ssize_t sendfile(int to, int from, off_t *offset, size_t count) { errno = EAGAIN; return -1; }
    #endif
    #ifndef MSG_MORE
    #define MSG_MORE 0
    #endif
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif

    /* Repeat a call that a signal interrupted before it did anything. */
    #define UNBROKEN(name, parameters, call) \\
        static ssize_t name parameters { ssize_t done; do done = call; while (done < 0 && errno == EINTR); return done; }
    UNBROKEN(recv_unbroken, (int fd, void *buffer, size_t size, int flags), recv(fd, buffer, size, flags))
    UNBROKEN(send_unbroken, (int fd, const void *data, size_t size, int flags), send(fd, data, size, flags))
    UNBROKEN(sendmsg_unbroken, (int fd, const struct msghdr *message, int flags), sendmsg(fd, message, flags))
    UNBROKEN(sendfile_unbroken, (int to, int from, off_t *offset, size_t count), sendfile(to, from, offset, count))

    /* Reads of the page cache alone. EAGAIN: the disk would have to be waited for, or the kernel cannot tell. */
    #if defined(__linux__) && defined(RWF_NOWAIT)
    UNBROKEN(preadv_unbroken, (int fd, const struct iovec *parts, off_t position),
             preadv2(fd, parts, 1, position, RWF_NOWAIT))
    #else
    static ssize_t preadv_unbroken(int fd, const struct iovec *parts, off_t position) { errno = EAGAIN; return -1; }
    #endif
    static ssize_t pread_cached(int fd, void *buffer, size_t size, off_t position) {
        struct iovec part = {buffer, size};
        return preadv_unbroken(fd, &part, position);
    }

    /* cachestat(2) has the same number on every architecture. -1 where the kernel cannot tell. */
    static long long pages_in_cache(int fd, uint64_t position, uint64_t size) {
    #ifdef __linux__
        uint64_t range[2] = {position, size}, found[5];
        if (syscall(451, (unsigned)fd, range, found, 0) == 0)
            return (long long)found[0];
    #endif
        return -1;
    }
    """
    ctypedef long long off_t
    struct iovec:
        void* iov_base
        size_t iov_len
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    const int MSG_MORE, MSG_NOSIGNAL
    ssize_t recv_unbroken(int fd, void* buffer, size_t size, int flags) nogil
    ssize_t send_unbroken(int fd, const void* data, size_t size, int flags) nogil
    ssize_t sendmsg_unbroken(int fd, const msghdr* message, int flags) nogil
    ssize_t sendfile_unbroken(int to, int source, off_t* offset, size_t count) nogil
    ssize_t pread_cached(int fd, void* buffer, size_t size, off_t position) nogil
    long long pages_in_cache(int fd, uint64_t position, uint64_t size) nogil


def cached_pages(int fd, uint64_t position, uint64_t size):
    """`_cached_pages` of engine/disk.py. Keeps the GIL: the call takes no longer than giving it up would."""
    return pages_in_cache(fd, position, size)
