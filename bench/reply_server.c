/* A server that does the least a broker can do on one thread: parse the request, copy what it carries or asks for, reply.
 * It keeps no log. What it reaches under a load of the generator is the ceiling of the rig, and a broker's distance from
 * it is what the broker does besides.
 *
 * Sends and batches: the bodies are copied into a ring larger than a cache, offsets are counted by queue (whatever the
 * topic). Pulls: a queue that was filled by batches gives records of the generator's body, copied from such a ring and
 * given their offsets; one that was sent to gives what was sent, of which it keeps the last RECENT. A poll at the end of
 * a queue waits for the next send to it, for ever, one a queue. */
#define _GNU_SOURCE
#include "reply_server.h"

#include "connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define RING_BYTES (64u << 20)
#define QUEUES 65536
#define RECENT 64
#define RECENT_BYTES 4096
#define BATCH_LIMIT 1024
#define ANSWER_BOUND (512 + 33 * BATCH_LIMIT)
#define FILLED_BODY 1024
#define RECORD_BOUND 256 /* of a record besides its body */

struct queue {
    int64_t next_offset;
    struct connection *poller; /* who waits for the next message */
    int64_t poll_opaque, poll_offset;
};

static uint8_t *ring, *records;
static size_t ring_at, record_bytes, records_at;
static struct queue queues[QUEUES];
static struct recent {
    int64_t queue_id, offset;
    uint8_t record[RECENT_BYTES + RECORD_BOUND];
    size_t bytes;
} recent[RECENT];
static int epoll_fd;
static bool polled; /* somebody waits for messages now and then: keep them */

static void copy_in(const struct header *header) {
    if (header->body_length > RING_BYTES) return;
    if (ring_at + header->body_length > RING_BYTES) ring_at = 0;
    memcpy(ring + ring_at, header->body, header->body_length);
    ring_at += header->body_length;
}

/* The ring of records that filled queues give: larger than a cache, as a log would be. */
static void make_records(void) {
    uint8_t body[FILLED_BODY];
    for (size_t i = 0; i < sizeof body; i++) body[i] = (uint8_t)('a' + i % 26);
    record_bytes = write_record(records, 0, 0, body, sizeof body);
    for (size_t at = record_bytes; at + record_bytes <= RING_BYTES; at += record_bytes) memcpy(records + at, records, record_bytes);
}

static void reply_found(struct connection *connection, int64_t opaque, int64_t offset, int64_t count, const struct queue *queue,
                        const struct recent *message) {
    size_t bytes = message ? message->bytes : (size_t)count * record_bytes;
    uint8_t *frame = connection_room(connection, 512 + bytes);
    size_t head = write_pull_answer(frame, opaque, offset + count, queue->next_offset, bytes);
    uint8_t *at = frame + head;
    if (message) {
        memcpy(at, message->record, bytes);
    } else {
        if (records_at + bytes > RING_BYTES) records_at = 0;
        memcpy(at, records + records_at, bytes);
        records_at += bytes;
        for (int64_t i = 0; i < count; i++) set_record_offset(at + (size_t)i * record_bytes, offset + i);
    }
    connection_wrote(connection, head + bytes);
}

static void on_pull(struct connection *connection, const struct header *header, struct queue *queue) {
    int64_t offset = header->queue_offset, left = queue->next_offset - offset;
    const struct recent *message = &recent[offset >= 0 ? offset % RECENT : 0];
    if (offset >= 0 && left > 0) {
        if (message->bytes == 0 || message->offset != offset || message->queue_id != queue - queues) message = NULL;
        int64_t count = message ? 1 : header->max_messages < 1 ? 1 : header->max_messages < 32 ? header->max_messages : 32;
        reply_found(connection, header->opaque, offset, count < left ? count : left, queue, message);
    } else if (header->pull_flag != ABSENT && header->pull_flag & PULL_SUSPEND) {
        polled = true;
        *queue = (struct queue){queue->next_offset, connection, header->opaque, offset};
    } else {
        uint8_t *frame = connection_room(connection, 512);
        connection_wrote(connection, write_pull_answer(frame, header->opaque, queue->next_offset, queue->next_offset, 0));
    }
}

static void wake(struct queue *queue) {
    struct connection *poller = queue->poller;
    int64_t offset = queue->poll_offset;
    if (poller == NULL || offset >= queue->next_offset) return;
    const struct recent *message = &recent[offset % RECENT];
    queue->poller = NULL;
    reply_found(poller, queue->poll_opaque, offset, 1, queue, message->bytes ? message : NULL);
    connection_flush(poller, epoll_fd); /* a failure is seen when it is read next */
}

/* Messages of a batch; 0 when it is not whole messages. */
static int count_batch(const struct header *header) {
    size_t at = 0;
    int count = 0;
    while (at < header->body_length) {
        if (header->body_length - at < 22) return 0;
        size_t size = read_u32(header->body + at);
        if (size < 22 || size > header->body_length - at) return 0;
        at += size;
        count++;
    }
    return count <= BATCH_LIMIT ? count : 0;
}

static void on_request(struct connection *connection, const struct header *header) {
    int64_t queue_id = header->queue_id < 0 ? 0 : header->queue_id % QUEUES;
    struct queue *queue = &queues[queue_id];
    int count = 1;
    if (header->flag & 2) return;
    if (header->code == CODE_PULL) {
        on_pull(connection, header, queue);
        return;
    }
    uint8_t *frame = connection_room(connection, ANSWER_BOUND);
    if (header->code == CODE_MIN_OFFSET || header->code == CODE_MAX_OFFSET || header->code == CODE_HEARTBEAT) {
        int64_t offset = header->code == CODE_MAX_OFFSET ? queue->next_offset : 0;
        connection_wrote(connection, write_offset_answer(frame, header->opaque, offset));
        return;
    }
    copy_in(header);
    if (header->code == CODE_SEND_BATCH) {
        count = count_batch(header);
    } else if (polled && header->body_length <= RECENT_BYTES) {
        struct recent *message = &recent[queue->next_offset % RECENT];
        message->queue_id = queue_id;
        message->offset = queue->next_offset;
        message->bytes = write_record(message->record, (int)queue_id, queue->next_offset, header->body, header->body_length);
    }
    connection_wrote(connection, write_send_answer(frame, header->opaque, queue_id, queue->next_offset, count));
    queue->next_offset += count;
    wake(queue);
}

static void forget(const struct connection *connection) {
    for (int i = 0; i < QUEUES; i++)
        if (queues[i].poller == connection) queues[i].poller = NULL;
}

int serve_replies(int port) {
    int yes = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    struct epoll_event events[256], event = {.events = EPOLLIN, .data.ptr = NULL};
    static int input_mark;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    ring = calloc(1, RING_BYTES);
    records = calloc(1, RING_BYTES);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (ring == NULL || records == NULL || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1024) != 0) {
        perror("calibrate serve");
        return 2;
    }
    make_records();
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
                forget(connection);
                connection_close(connection);
                free(connection);
            }
        }
    }
}
