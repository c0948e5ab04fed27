/* The modes for stores of another kind: nats (JetStream) and redis (streams). As in a closed loop of sends, every slot
 * has one append of one body outstanding, and its acknowledgement is checked.
 *
 * nats: PUB to the subject that is the topic, with a reply subject that names slot and generation; the answer names the
 * stream's sequence number. Sequence numbers must be dense, as no other publisher writes to the stream.
 * redis: XADD TOPIC:QUEUE * b BODY, queues in turn. Answers come in the order of the requests; the id of an entry must be
 * above the last one that this connection had of the same queue, and in the end the streams (XLEN) must hold as many
 * entries as were acknowledged. */
#include "loadgen.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINE_LIMIT 65536
#define GIVE_UP_NS 10000000000LL
#define BROKEN -1

struct append {
    int64_t sent_at;
    uint32_t generation;
    int queue_id;
    bool waiting;
};

static struct append *appends;
static int append_count, next_queue;
static int64_t outstanding, issued;
static char *body; /* with the line end that follows it in both protocols */
static size_t body_bytes;

/* ------------------------------------------------------------------ both */

static char *put_text(char *at, const char *text) {
    size_t length = strlen(text);
    memcpy(at, text, length);
    return at + length;
}

/* The append to send now, or NULL when there is none to send any more. */
static struct append *begin_append(struct connection *connection, int index) {
    const struct options *o = &run.options;
    struct append *append = &appends[index];
    if (o->messages > 0) {
        run.give_up_at = run.now + GIVE_UP_NS;
        if (issued >= o->messages) {
            if (outstanding == 0) run.done = true;
            return NULL;
        }
    }
    if (run.draining || connection->fd < 0) return NULL;
    append->queue_id = next_queue;
    next_queue = next_queue + 1 == o->queues ? 0 : next_queue + 1;
    append->generation++;
    append->sent_at = run.now;
    append->waiting = true;
    issued++;
    outstanding++;
    return append;
}

static void end_append(struct append *append) {
    append->waiting = false;
    outstanding--;
}

static void count_append(const struct append *append) {
    run.all_messages++;
    run.last_answer = run.now;
    if (measuring()) {
        run.requests++;
        run.messages++;
        run.bytes += (int64_t)run.options.body;
        histogram_record(&run.latency, run.now - append->sent_at);
    }
}

static void start_appends(void) {
    const struct options *o = &run.options;
    append_count = o->connections * o->inflight;
    appends = calloc((size_t)append_count, sizeof *appends);
    body = malloc(o->body + 3);
    if (appends == NULL || body == NULL) abort();
    for (size_t i = 0; i < o->body; i++) body[i] = (char)('a' + i % 26);
    memcpy(body + o->body, "\r\n", 3);
    body_bytes = o->body + 2;
    open_connections(o->connections);
    run.now = now_ns();
    run.measure_from = run.now + (int64_t)(o->warm_up * 1e9);
    if (o->messages == 0) run.end = run.measure_from + (int64_t)(o->seconds * 1e9);
}

static void on_closed(struct connection *connection) {
    for (int i = 0; i < run.options.inflight; i++) {
        struct append *append = &appends[connection->index * run.options.inflight + i];
        if (!append->waiting) continue;
        end_append(append);
        count_error(UNANSWERED, "no answer before the connection was closed");
    }
}

static int64_t count_outstanding(void) { return outstanding; }

/* A number's digits from `at` on; false when there is none. */
static bool take_number(const char **at, const char *end, int64_t *out) {
    const char *digit = *at;
    int64_t value = 0;
    while (digit < end && *digit >= '0' && *digit <= '9' && digit - *at < 18) value = value * 10 + (*digit++ - '0');
    if (digit == *at) return false;
    *at = digit;
    *out = value;
    return true;
}

/* The line that begins at `at`, without its end; NULL when it has not come whole. */
static const char *line_end(const char *at, const char *end) {
    const char *found = memchr(at, '\r', (size_t)(end - at));
    return found == NULL || found + 1 >= end ? NULL : found;
}

static bool begins(const char *at, const char *end, const char *word) {
    size_t length = strlen(word);
    return (size_t)(end - at) >= length && memcmp(at, word, length) == 0;
}

/* ------------------------------------------------------------------ nats */

static int64_t first_sequence = INT64_MAX, after_sequence, sequences;

static void publish(struct connection *connection, int index) {
    const struct append *append = begin_append(connection, index);
    if (append == NULL) return;
    char *start = (char *)connection_room(connection, strlen(run.options.topic) + 128 + body_bytes);
    char *at = put_text(put_text(put_text(start, "PUB "), run.options.topic), " ");
    at += sprintf(at, "_B.%d.%d.%" PRIu32 " %zu\r\n", connection->index, index, append->generation, run.options.body);
    memcpy(at, body, body_bytes);
    connection_wrote(connection, (size_t)(at + body_bytes - start));
}

static void start_nats(void) {
    const struct options *o = &run.options;
    start_appends();
    for (int i = 0; i < o->connections; i++) {
        struct connection *connection = &run.connections[i];
        char *start = (char *)connection_room(connection, 512);
        int length = sprintf(start,
                             "CONNECT {\"verbose\":false,\"pedantic\":false,\"tls_required\":false,\"name\":\"loadgen\","
                             "\"lang\":\"c\",\"version\":\"1\",\"protocol\":1,\"headers\":true,\"no_responders\":true}\r\n"
                             "SUB _B.%d.> 1\r\n", i);
        connection_wrote(connection, (size_t)length);
        for (int slot = 0; slot < o->inflight; slot++) publish(connection, i * o->inflight + slot);
        flush(connection);
    }
}

/* The sequence number of an acknowledgement {"stream":"S","seq":7}; -1 when it is none. */
static int64_t acknowledged_sequence(const char *text, const char *end) {
    static const char stream[] = "{\"stream\":\"", seq[] = "\"seq\":";
    int64_t sequence;
    if (!begins(text, end, stream)) return -1;
    text += sizeof stream - 1;
    if (!begins(text, end, run.options.topic)) return -1;
    text += strlen(run.options.topic);
    if (text >= end || *text++ != '"') return -1;
    while (text < end && (*text == ',' || *text == ' ')) text++;
    if (!begins(text, end, seq)) return -1;
    text += sizeof seq - 1;
    while (text < end && *text == ' ') text++;
    if (!take_number(&text, end, &sequence) || text >= end || (*text != ',' && *text != '}')) return -1;
    return sequence;
}

static void on_acknowledged(struct connection *connection, const char *reply, const char *reply_end, const char *text,
                            const char *text_end) {
    int64_t owner, index, generation;
    bool known = begins(reply, reply_end, "_B.");
    reply += 3;
    known = known && take_number(&reply, reply_end, &owner) && reply < reply_end && *reply++ == '.' &&
            take_number(&reply, reply_end, &index) && reply < reply_end && *reply++ == '.' &&
            take_number(&reply, reply_end, &generation) && reply == reply_end;
    if (!known || owner != connection->index || index >= append_count || index / run.options.inflight != owner ||
        !appends[index].waiting || appends[index].generation != generation) {
        count_error(UNKNOWN_OPAQUE, "an acknowledgement nobody waits for");
        return;
    }
    struct append *append = &appends[index];
    int64_t sequence = acknowledged_sequence(text, text_end);
    end_append(append);
    if (sequence < 1) {
        count_error(BAD_CODE, "%.*s", (int)(text_end - text), text);
    } else {
        if (sequence < first_sequence) first_sequence = sequence;
        if (sequence + 1 > after_sequence) after_sequence = sequence + 1;
        sequences++;
        count_append(append);
    }
    publish(connection, (int)index);
}

/* MSG subject sid [reply] size, with `headed` also the size of the headers before it: behind the line lie so many bytes
 * and a line end. How many bytes all that takes; 0 when it has not come whole, BROKEN when it is none. */
static ptrdiff_t on_message(struct connection *connection, const char *at, const char *stop, const char *end, bool headed) {
    const char *subject = at + (headed ? 5 : 4), *subject_end = memchr(subject, ' ', (size_t)(stop - subject));
    const char *size_at = stop;
    int64_t size;
    if (subject_end == NULL) return BROKEN;
    while (size_at[-1] >= '0' && size_at[-1] <= '9') size_at--;
    if (!take_number(&size_at, stop, &size) || size_at != stop || size > LINE_LIMIT) return BROKEN;
    const char *text = stop + 2;
    if (end - text < size + 2) return 0;
    if (memcmp(text + size, "\r\n", 2) != 0) return BROKEN;
    on_acknowledged(connection, subject, subject_end, text, text + size);
    return text + size + 2 - at;
}

static ptrdiff_t on_nats(struct connection *connection, const uint8_t *bytes, size_t length) {
    const char *start = (const char *)bytes, *at = start, *end = start + length, *stop;
    while (connection->fd >= 0 && at < end) {
        stop = line_end(at, end);
        if (stop == NULL) return end - at > LINE_LIMIT ? BROKEN : at - start;
        if (begins(at, end, "MSG ") || begins(at, end, "HMSG ")) {
            ptrdiff_t taken = on_message(connection, at, stop, end, *at == 'H');
            if (taken < 0) return BROKEN;
            if (taken == 0) break;
            at += taken;
            continue;
        }
        if (begins(at, end, "PING")) {
            memcpy(connection_room(connection, 6), "PONG\r\n", 6);
            connection_wrote(connection, 6);
        } else if (begins(at, end, "-ERR")) {
            count_error(BAD_CODE, "%.*s", (int)(stop - at), at);
        } else if (!begins(at, end, "INFO ") && !begins(at, end, "PONG") && !begins(at, end, "+OK")) {
            return BROKEN;
        }
        at = stop + 2;
    }
    return at - start;
}

static void report_nats(FILE *out) {
    int64_t gaps = sequences > 0 ? llabs(after_sequence - first_sequence - sequences) : 0;
    if (gaps > 0 && run.errors[BAD_CODE] + run.errors[UNANSWERED] == 0) {
        count_error(GAP, "acknowledged sequence numbers are not dense");
        run.errors[GAP] += gaps - 1;
    }
    fprintf(out, ",\"offset_gaps\":%" PRId64, gaps);
}

/* ------------------------------------------------------------------ redis */

struct entry_id {
    int64_t ms, number;
};

static int *turn;                  /* by connection: the slot whose answer comes next */
static struct entry_id *last_ids;  /* by connection and queue */
static char **commands;            /* by queue: all that stands before the body */
static size_t *command_bytes;

static void add_entry(struct connection *connection, int index) {
    const struct append *append = begin_append(connection, index);
    if (append == NULL) return;
    size_t head = command_bytes[append->queue_id];
    uint8_t *at = connection_room(connection, head + body_bytes);
    memcpy(at, commands[append->queue_id], head);
    memcpy(at + head, body, body_bytes);
    connection_wrote(connection, head + body_bytes);
}

static void start_redis(void) {
    const struct options *o = &run.options;
    turn = calloc((size_t)o->connections, sizeof *turn);
    last_ids = calloc((size_t)o->connections * (size_t)o->queues, sizeof *last_ids);
    commands = calloc((size_t)o->queues, sizeof *commands);
    command_bytes = calloc((size_t)o->queues, sizeof *command_bytes);
    if (turn == NULL || last_ids == NULL || commands == NULL || command_bytes == NULL) abort();
    for (int queue = 0; queue < o->queues; queue++) {
        char key[512];
        int key_bytes = snprintf(key, sizeof key, "%s:%d", o->topic, queue);
        commands[queue] = malloc(640);
        if (commands[queue] == NULL) abort();
        command_bytes[queue] = (size_t)snprintf(commands[queue], 640, "*5\r\n$4\r\nXADD\r\n$%d\r\n%s\r\n$1\r\n*\r\n$1\r\nb\r\n$%zu\r\n",
                                                key_bytes, key, o->body);
    }
    start_appends();
    for (int i = 0; i < o->connections; i++) {
        for (int slot = 0; slot < o->inflight; slot++) add_entry(&run.connections[i], i * o->inflight + slot);
        flush(&run.connections[i]);
    }
}

/* An entry's id, "ms-number". */
static bool read_id(const char *text, const char *end, struct entry_id *out) {
    return take_number(&text, end, &out->ms) && text < end && *text++ == '-' && take_number(&text, end, &out->number) &&
           text == end;
}

/* The next answer on this connection: the text of a bulk string, or of an error. */
static void on_entry(struct connection *connection, bool refused, const char *text, const char *end) {
    int inflight = run.options.inflight, index = connection->index * inflight + turn[connection->index];
    struct append *append = &appends[index];
    struct entry_id id, *last = &last_ids[connection->index * run.options.queues + append->queue_id];
    if (!append->waiting) {
        count_error(UNKNOWN_OPAQUE, "an answer nobody waits for");
        return;
    }
    turn[connection->index] = (turn[connection->index] + 1) % inflight;
    end_append(append);
    if (refused) {
        count_error(BAD_CODE, "%.*s", (int)(end - text), text);
    } else if (!read_id(text, end, &id)) {
        count_error(BAD_ANSWER, "an entry's id is not one: %.*s", (int)(end - text), text);
    } else if (id.ms < last->ms || (id.ms == last->ms && id.number <= last->number)) {
        count_error(BAD_ANSWER, "an entry's id %.*s is not above the one before", (int)(end - text), text);
    } else {
        *last = id;
        count_append(append);
    }
    add_entry(connection, index);
}

static ptrdiff_t on_redis(struct connection *connection, const uint8_t *bytes, size_t length) {
    const char *start = (const char *)bytes, *at = start, *end = start + length;
    while (connection->fd >= 0 && at < end) {
        const char *stop = line_end(at, end), *text = at + 1;
        int64_t size;
        if (stop == NULL) return end - at > LINE_LIMIT ? BROKEN : at - start;
        if (*at == '-') {
            on_entry(connection, true, text, stop);
            at = stop + 2;
            continue;
        }
        if (*at != '$' || !take_number(&text, stop, &size) || text != stop || size > LINE_LIMIT) return BROKEN;
        if (end - stop < size + 4) break;
        if (memcmp(stop + 2 + size, "\r\n", 2) != 0) return BROKEN;
        on_entry(connection, false, stop + 2, stop + 2 + size);
        at = stop + 4 + size;
    }
    return at - start;
}

/* XLEN of every queue, asked on a connection of its own; -1 when it is not answered. */
static int64_t count_entries(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int64_t total = 0;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&run.options.address, sizeof run.options.address) != 0) total = -1;
    for (int queue = 0; queue < run.options.queues && total >= 0; queue++) {
        char text[640];
        size_t got = 0;
        int64_t entries;
        int key_bytes = snprintf(text, sizeof text, "%s:%d", run.options.topic, queue);
        int length = snprintf(text, sizeof text, "*2\r\n$4\r\nXLEN\r\n$%d\r\n%s:%d\r\n", key_bytes, run.options.topic, queue);
        bool asked = send(fd, text, (size_t)length, MSG_NOSIGNAL) == length;
        while (asked && got < 64 && line_end(text, text + got) == NULL) {
            ssize_t more = recv(fd, text + got, 64 - got, 0);
            if (more <= 0) break;
            got += (size_t)more;
        }
        const char *at = text + 1;
        if (!asked || got < 2 || text[0] != ':' || !take_number(&at, text + got, &entries)) total = -1;
        else total += entries;
    }
    if (fd >= 0) close(fd);
    return total;
}

static void report_redis(FILE *out) {
    int64_t entries = count_entries(), gaps = entries < 0 ? 0 : llabs(entries - run.all_messages);
    if (entries < 0) count_error(UNANSWERED, "the streams' lengths were not told");
    if (gaps > 0 && run.errors[BAD_CODE] + run.errors[UNANSWERED] == 0) {
        count_error(GAP, "the streams hold %" PRId64 " entries, acknowledged were %" PRId64, entries, run.all_messages);
        run.errors[GAP] += gaps - 1;
    }
    fprintf(out, ",\"offset_gaps\":%" PRId64, gaps);
}

const struct mode nats_mode = {
    .name = "nats", .start = start_nats, .on_bytes = on_nats, .on_closed = on_closed, .outstanding = count_outstanding,
    .report = report_nats};
const struct mode redis_mode = {
    .name = "redis", .start = start_redis, .on_bytes = on_redis, .on_closed = on_closed, .outstanding = count_outstanding,
    .report = report_redis};
