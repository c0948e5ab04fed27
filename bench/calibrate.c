/* What this machine gives before any broker is asked.
 *
 *   calibrate serve [--port N]                       a server that parses, copies the body and replies: the ceiling of
 *                                                    the rig for `loadgen send` and `ping`. Prints {"port":N}.
 *   calibrate sync  --dir D [--size B] [--seconds S]  pwrite + fdatasync into a preallocated file, one after the other
 *   calibrate write --dir D [--size B] [--seconds S]  pwrite alone
 *
 * sync and write print one line of JSON, durations in microseconds. The server ends with its standard input. */
#define _GNU_SOURCE
#include "connection.h"
#include "histogram.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------------------------------------------------------------------ server */

#define RING_BYTES (64u << 20) /* bodies are copied here: more than a cache holds, as a log would be */
#define QUEUES 65536

static uint8_t *ring;
static size_t ring_at;
static int64_t next_offset[QUEUES];

static void on_request(struct connection *connection, const struct header *header) {
    uint8_t *frame = connection_room(connection, 512);
    int64_t queue_id = header->queue_id < 0 ? 0 : header->queue_id % QUEUES;
    if (header->flag & 2) return;
    if (header->code == CODE_MIN_OFFSET || header->code == CODE_MAX_OFFSET) {
        connection_wrote(connection, write_offset_answer(frame, header->opaque, 0));
        return;
    }
    if (ring_at + header->body_length > RING_BYTES) ring_at = 0;
    if (header->body_length <= RING_BYTES) memcpy(ring + ring_at, header->body, header->body_length);
    ring_at += header->body_length;
    connection_wrote(connection, write_send_answer(frame, header->opaque, queue_id, next_offset[queue_id]++));
}

static int serve(int port) {
    int yes = 1, epoll_fd = epoll_create1(EPOLL_CLOEXEC), listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    struct epoll_event events[256], event = {.events = EPOLLIN, .data.ptr = NULL};
    static int input_mark;
    ring = calloc(1, RING_BYTES);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (ring == NULL || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1024) != 0) {
        perror("calibrate serve");
        return 2;
    }
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("{\"port\":%d}\n", ntohs(address.sin_port));
    fflush(stdout);
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    event.data.ptr = &input_mark;
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    for (;;) {
        int count = epoll_wait(epoll_fd, events, 256, -1);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (events[i].data.ptr == &input_mark) {
                char line[64];
                if (read(STDIN_FILENO, line, sizeof line) <= 0) return 0;
            } else if (connection == NULL) {
                int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                if (fd < 0) continue;
                connection = calloc(1, sizeof *connection);
                if (connection == NULL) abort();
                connection_adopt(connection, 0, fd, epoll_fd);
            } else if (connection_read(connection, on_request) != READ_MORE || !connection_flush(connection, epoll_fd)) {
                connection_close(connection);
                free(connection);
            }
        }
    }
}

/* ------------------------------------------------------------------ disk */

#define FILE_BYTES (256ll << 20)

static int write_disk(const char *dir, size_t size, double seconds, bool sync) {
    static struct histogram latency;
    char path[PATH_MAX];
    int64_t done = 0, at = 0, start, end, now;
    uint8_t *block = malloc(size);
    snprintf(path, sizeof path, "%s/calibrate-%d.tmp", dir, (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || block == NULL || size == 0 || (int64_t)size > FILE_BYTES) {
        fprintf(stderr, "calibrate: %s: %s\n", path, strerror(errno));
        return 2;
    }
    unlink(path);
    memset(block, 'x', size);
    int failed = posix_fallocate(fd, 0, FILE_BYTES);
    if (failed != 0 || fsync(fd) != 0) {
        fprintf(stderr, "calibrate: cannot preallocate in %s: %s\n", dir, strerror(failed ? failed : errno));
        return 2;
    }
    start = now = now_ns();
    end = start + (int64_t)(seconds * 1e9);
    while (now < end) {
        if (pwrite(fd, block, size, at) != (ssize_t)size || (sync && fdatasync(fd) != 0)) {
            perror("calibrate: write");
            return 2;
        }
        at = at + 2 * (int64_t)size > FILE_BYTES ? 0 : at + (int64_t)size;
        int64_t after = now_ns();
        histogram_record(&latency, after - now);
        now = after;
        done++;
    }
    printf("{\"mode\":\"%s\",\"size\":%zu,\"rate\":%.1f,\"p50\":%.1f,\"p99\":%.1f,\"p99.9\":%.1f}\n", sync ? "sync" : "write", size,
           (double)done / ((double)(now - start) / 1e9), histogram_quantile(&latency, 0.5) / 1000,
           histogram_quantile(&latency, 0.99) / 1000, histogram_quantile(&latency, 0.999) / 1000);
    return 0;
}

int main(int argc, char **argv) {
    static const struct option known[] = {
        {"port", 1, 0, 'p'}, {"dir", 1, 0, 'd'}, {"size", 1, 0, 'z'}, {"seconds", 1, 0, 's'}, {0, 0, 0, 0}};
    int port = 0;
    const char *dir = ".", *what = argc > 1 ? argv[1] : "";
    size_t size = 1024;
    double seconds = 3;
    optind = 2;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
            case 'p': port = atoi(optarg); break;
            case 'd': dir = optarg; break;
            case 'z': size = (size_t)atol(optarg); break;
            case 's': seconds = atof(optarg); break;
            default: return 2;
        }
    }
    if (strcmp(what, "serve") == 0) return serve(port);
    if (strcmp(what, "sync") == 0) return write_disk(dir, size, seconds, true);
    if (strcmp(what, "write") == 0) return write_disk(dir, size, seconds, false);
    fprintf(stderr, "usage: calibrate serve|sync|write [--port N] [--dir D] [--size BYTES] [--seconds S]\n");
    return 2;
}
