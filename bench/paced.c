/* The mode with a fixed rate: paced. Sends are due at `rate` a second whatever the broker does, spread over the
 * connections in turn; a stall is charged to every message it delayed.
 *
 * Time is cut into ticks of 100 us; what falls into a tick is due at its beginning. Message n travels on connection
 * n % connections with opaque FIRST_OPAQUE + n % WINDOW. At most WINDOW are outstanding; what is due beyond that waits,
 * and its latency counts from when it was due. */
#include "loadgen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/prctl.h>

#define FIRST_OPAQUE 1000
#define WINDOW 65536
#define TICK_NS 100000

struct sent {
    int64_t due_at;
    int queue_id, connection;
    bool waiting;
};

static struct sent *window;
static int64_t started_at, next_message, outstanding, late;
static uint64_t unique;
static uint8_t *body;

static void start_paced(void) {
    const struct options *o = &run.options;
    window = calloc(WINDOW, sizeof *window);
    body = malloc(o->body + 1);
    if (window == NULL || body == NULL) abort();
    memset(body, 'x', o->body);
    prctl(PR_SET_TIMERSLACK, 1UL);
    open_connections(o->connections);
    unique = (uint64_t)wall_ms() << 24;
    started_at = now_ns() + 10000000;
    run.measure_from = started_at + (int64_t)(o->warm_up * 1e9);
    run.end = run.measure_from + (int64_t)(o->seconds * 1e9);
    set_timer(started_at, TICK_NS);
}

static void send_message(int64_t due_at) {
    const struct options *o = &run.options;
    int place = (int)(next_message % WINDOW);
    struct connection *connection = &run.connections[next_message % o->connections];
    struct request request = {.code = CODE_SEND,
                              .topic = o->topic,
                              .group = o->group,
                              .broker_name = o->broker_name,
                              .tags = o->tags,
                              .keys = o->keys,
                              .born_at_ms = wall_ms(),
                              .unique = unique++,
                              .queue_id = (int)(next_message % o->queues),
                              .opaque = FIRST_OPAQUE + place,
                              .body = body,
                              .body_length = o->body};
    next_message++;
    if (connection->fd < 0) return;
    window[place] = (struct sent){due_at, request.queue_id, connection->index, true};
    outstanding++;
    connection_wrote(connection, write_request(connection_room(connection, request_bound(&request)), &request));
    flush(connection);
}

static void on_tick(void) {
    timer_expirations();
    while (!run.draining) {
        int64_t tick = (int64_t)((double)next_message * 1e9 / run.options.rate) / TICK_NS;
        int64_t due_at = started_at + tick * TICK_NS;
        if (due_at > run.now || due_at >= run.end) return;
        if (window[next_message % WINDOW].waiting) {
            late++;
            return;
        }
        send_message(due_at);
    }
}

static void on_sent(struct connection *connection, const struct header *header) {
    if ((header->flag & 1) == 0) return; /* a notice from the broker */
    int64_t place = header->opaque - FIRST_OPAQUE;
    struct sent *sent = place >= 0 && place < WINDOW ? &window[place] : NULL;
    if (sent == NULL || !sent->waiting || sent->connection != connection->index) {
        count_error(UNKNOWN_OPAQUE, "an answer to opaque %" PRId64 ", which nobody asked", header->opaque);
        return;
    }
    sent->waiting = false;
    outstanding--;
    if (header->code != 0) {
        count_bad_code(header);
    } else if (header->message_id_length != 32 || header->queue_offset < 0 || header->queue_id != sent->queue_id) {
        count_error(BAD_ANSWER, "a send was answered without msgId, queueId or queueOffset as they must be");
    } else {
        run.all_messages++;
        run.last_answer = run.now;
        if (sent->due_at >= run.measure_from) {
            run.requests++;
            run.messages++;
            histogram_record(&run.latency, run.now - sent->due_at);
        }
    }
}

static void on_closed(struct connection *connection) {
    for (int place = 0; place < WINDOW; place++) {
        if (!window[place].waiting || window[place].connection != connection->index) continue;
        window[place].waiting = false;
        outstanding--;
        count_error(UNANSWERED, "no answer before the connection was closed");
    }
}

static int64_t count_outstanding(void) { return outstanding; }

/* How often a tick found the window full: the broker was WINDOW messages behind. */
static void report(FILE *out) { fprintf(out, ",\"held_back\":%" PRId64, late); }

const struct mode paced_mode = {
    .name = "paced", .start = start_paced, .on_answer = on_sent, .on_closed = on_closed, .on_timer = on_tick,
    .outstanding = count_outstanding, .report = report};
