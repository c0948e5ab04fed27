/* What this machine gives before any broker is asked.
 *
 *   calibrate serve [--port N]                       a server that parses, copies the body and replies: the ceiling of
 *                                                    the rig; see reply_server.c. Prints {"port":N}.
 *   calibrate sync  --dir D [--size B] [--seconds S]  pwrite + fdatasync into a preallocated file, one after the other
 *   calibrate write --dir D [--size B] [--seconds S]  pwrite alone
 *
 * sync and write print one line of JSON, durations in microseconds. The server ends with its standard input. */
#define _GNU_SOURCE
#include "connection.h"
#include "histogram.h"
#include "reply_server.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
    if (strcmp(what, "serve") == 0) return serve_replies(port);
    if (strcmp(what, "sync") == 0) return write_disk(dir, size, seconds, true);
    if (strcmp(what, "write") == 0) return write_disk(dir, size, seconds, false);
    fprintf(stderr, "usage: calibrate serve|sync|write [--port N] [--dir D] [--size BYTES] [--seconds S]\n");
    return 2;
}
