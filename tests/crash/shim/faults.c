/* A library for LD_PRELOAD: calls of the C library fail, fall short or take long when a test says so, while the process
 * runs, and the wall clock jumps. Without FAULTS_FILE in the environment it does nothing.
 *
 * FAULTS_FILE names a file of `struct control` that the test maps, too; tests/support/faults.py is its other side and
 * knows the same layout. A rule is read when a call it covers is made, so a change counts from the next call on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum call { SYNC, MSYNC, WRITE, ALLOCATE, CALLS };

struct rule {
    volatile int32_t armed; /* written last */
    int32_t error;          /* errno to fail with; 0: the call is made */
    int32_t limit;          /* bytes a write may take; 0: all */
    int32_t delay_ms;       /* before the call */
    int64_t skip;           /* calls that are let through first */
    int64_t times;          /* calls it holds for; -1: all that follow */
    int64_t hits;           /* calls it changed */
    char path[128];         /* part of the file's path; empty: any file. Memory (MSYNC) has none and always counts. */
};

struct control {
    volatile int64_t clock_ns; /* added to the wall clock */
    struct rule rules[CALLS];
};

static struct control *control;

__attribute__((constructor)) static void open_control(void) {
    const char *path = getenv("FAULTS_FILE");
    if (!path)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        perror("faults: FAULTS_FILE cannot be mapped");
        _exit(125);
    }
    close(fd);
    control = page;
}

static void *libc(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "faults: there is no %s\n", name);
        abort();
    }
    return found;
}

static int concerns(const struct rule *rule, int fd) {
    if (!rule->path[0] || fd < 0)
        return 1;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0)
        return 0;
    path[size] = 0;
    return strstr(path, rule->path) != NULL;
}

/* The rule that holds for this call, or NULL. */
static struct rule *held(enum call call, int fd) {
    struct rule *rule = control ? &control->rules[call] : NULL;
    if (!rule || !rule->armed || !concerns(rule, fd))
        return NULL;
    if (rule->skip > 0 && __atomic_fetch_sub(&rule->skip, 1, __ATOMIC_SEQ_CST) > 0)
        return NULL;
    if (rule->times == 0)
        return NULL;
    if (rule->times > 0 && __atomic_fetch_sub(&rule->times, 1, __ATOMIC_SEQ_CST) <= 0) {
        rule->times = 0;
        return NULL;
    }
    __atomic_fetch_add(&rule->hits, 1, __ATOMIC_SEQ_CST);
    if (rule->delay_ms) {
        struct timespec delay = {rule->delay_ms / 1000, rule->delay_ms % 1000 * 1000000L};
        nanosleep(&delay, NULL);
    }
    return rule;
}

/* Whether the call fails; errno says how. */
static int fails(enum call call, int fd) {
    struct rule *rule = held(call, fd);
    if (!rule || !rule->error)
        return 0;
    errno = rule->error;
    return 1;
}

/* How much of a write is taken; -1: it fails. */
static ssize_t taken(int fd, size_t count) {
    struct rule *rule = held(WRITE, fd);
    if (rule && rule->error) {
        errno = rule->error;
        return -1;
    }
    if (rule && rule->limit > 0 && count > (size_t)rule->limit)
        return rule->limit;
    return (ssize_t)count;
}

#define REAL(name, ...)                                                                                                \
    ({                                                                                                                 \
        static __typeof__(&name) real;                                                                                 \
        if (!real)                                                                                                     \
            real = (__typeof__(&name))libc(#name);                                                                     \
        real(__VA_ARGS__);                                                                                             \
    })

int fsync(int fd) { return fails(SYNC, fd) ? -1 : REAL(fsync, fd); }

int fdatasync(int fd) { return fails(SYNC, fd) ? -1 : REAL(fdatasync, fd); }

int msync(void *address, size_t size, int flags) { return fails(MSYNC, -1) ? -1 : REAL(msync, address, size, flags); }

#define WRITES(name, offset_type)                                                                                      \
    ssize_t name(int fd, const void *data, size_t count, offset_type position) {                                       \
        ssize_t size = taken(fd, count);                                                                               \
        return size < 0 ? -1 : REAL(name, fd, data, (size_t)size, position);                                           \
    }
WRITES(pwrite, off_t)
WRITES(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t count) {
    ssize_t size = taken(fd, count);
    return size < 0 ? -1 : REAL(write, fd, data, (size_t)size);
}

/* A vector that falls short ends within its first part: that is allowed, and all a caller may count on. */
static size_t total(const struct iovec *parts, int count) {
    size_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += parts[i].iov_len;
    return sum;
}

#define WRITES_VECTOR(name, offset_type)                                                                               \
    ssize_t name(int fd, const struct iovec *parts, int count, offset_type position) {                                 \
        size_t whole = total(parts, count);                                                                            \
        ssize_t size = taken(fd, whole);                                                                               \
        if (size < 0)                                                                                                  \
            return -1;                                                                                                 \
        if ((size_t)size == whole)                                                                                     \
            return REAL(name, fd, parts, count, position);                                                             \
        size_t first = parts[0].iov_len < (size_t)size ? parts[0].iov_len : (size_t)size;                              \
        return REAL(pwrite64, fd, parts[0].iov_base, first, position);                                                 \
    }
WRITES_VECTOR(pwritev, off_t)
WRITES_VECTOR(pwritev64, off64_t)

ssize_t writev(int fd, const struct iovec *parts, int count) {
    size_t whole = total(parts, count);
    ssize_t size = taken(fd, whole);
    if (size < 0)
        return -1;
    if ((size_t)size == whole)
        return REAL(writev, fd, parts, count);
    return REAL(write, fd, parts[0].iov_base, parts[0].iov_len < (size_t)size ? parts[0].iov_len : (size_t)size);
}

/* These two return the error instead of setting it. */
int posix_fallocate(int fd, off_t position, off_t size) {
    return fails(ALLOCATE, fd) ? errno : REAL(posix_fallocate, fd, position, size);
}

int posix_fallocate64(int fd, off64_t position, off64_t size) {
    return fails(ALLOCATE, fd) ? errno : REAL(posix_fallocate64, fd, position, size);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime, clock, now);
    if (result == 0 && control && control->clock_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t moved = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + control->clock_ns;
        now->tv_sec = moved / 1000000000;
        now->tv_nsec = moved % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec time;
    if (clock_gettime(CLOCK_REALTIME, &time) != 0)
        return -1;
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
