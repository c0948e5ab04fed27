/* The modes with parked polls.
 *
 * latency: connection 0 sends at a fixed rate, the next message only after the last acknowledgement; connection 1
 * long-polls the same queue. Every body starts with the time its send was due and a sequence number: a stall of the
 * broker is charged to all messages it delayed, and each must arrive once and in order. After the warm-up each message
 * received is one value of `latency_us`; `acknowledged_us` is the producer's side.
 *
 * park: every connection but the last parks one poll, spread over the queues; the last then sends one message to each
 * queue. `latency_us` is the time from the first send to each poll's answer; its `max` is "all awake". */
#include "loadgen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define SEND_OPAQUE 1000000
#define POLL_OPAQUE 1
#define HEARTBEAT_OPAQUE 2
#define OFFSET_OPAQUE 3
#define STAMP_BYTES 16

static uint8_t *body;
static int64_t started_at, interval_ns;
static int64_t due;                    /* messages whose time has come */
static int64_t next_message;           /* sequence number of the next send */
static int64_t acknowledged, received; /* received is also the sequence number the consumer must see next */
static int64_t poll_offset, sub_version;
static int poll_generation;
static bool polling;

static void send_request(struct connection *connection, struct request *request) {
    const struct options *o = &run.options;
    request->topic = o->topic;
    request->group = o->group;
    request->broker_name = o->broker_name;
    request->tags = o->tags;
    request->keys = o->keys;
    connection_wrote(connection, write_request(connection_room(connection, request_bound(request)), request));
}

/* Subscribe the group as a push consumer does, so that polls need not carry the subscription. */
static void send_heartbeat(struct connection *connection) {
    const struct options *o = &run.options;
    char text[1024];
    int length = snprintf(
        text, sizeof text,
        "{\"clientID\":\"127.0.0.1@bench%d\",\"consumerDataSet\":[{\"consumeFromWhere\":\"CONSUME_FROM_FIRST_OFFSET\","
        "\"consumeType\":\"CONSUME_PASSIVELY\",\"groupName\":\"%s\",\"messageModel\":\"CLUSTERING\",\"subscriptionDataSet\":"
        "[{\"classFilterMode\":false,\"codeSet\":[],\"expressionType\":\"TAG\",\"subString\":\"*\",\"subVersion\":%" PRId64
        ",\"tagsSet\":[],\"topic\":\"%s\"}],\"unitMode\":false}],\"heartbeatFingerprint\":0,\"producerDataSet\":[],"
        "\"withoutSub\":false}",
        connection->index, o->group, sub_version, o->topic);
    struct request request = {.code = CODE_HEARTBEAT, .opaque = HEARTBEAT_OPAQUE, .body = (uint8_t *)text, .body_length = (size_t)length};
    send_request(connection, &request);
}

static void send_poll(struct connection *connection, int queue_id, int64_t offset, int64_t opaque) {
    const struct options *o = &run.options;
    struct request request = {.code = CODE_PULL,
                              .queue_id = queue_id,
                              .opaque = opaque,
                              .queue_offset = offset,
                              .max_messages = o->max_messages,
                              .pull_flag = PULL_SUSPEND | (o->heartbeat ? 0 : PULL_SUBSCRIPTION),
                              .suspend_ms = o->suspend_ms,
                              .sub_version = o->heartbeat ? sub_version : 0};
    send_request(connection, &request);
}

static void send_message(struct connection *connection, int queue_id, int64_t due_at) {
    struct request request = {.code = CODE_SEND,
                              .queue_id = queue_id,
                              .opaque = SEND_OPAQUE + next_message,
                              .born_at_ms = wall_ms(),
                              .unique = ((uint64_t)wall_ms() << 24) + (uint64_t)next_message,
                              .body = body,
                              .body_length = run.options.body};
    write_u64(body, (uint64_t)due_at);
    write_u64(body + 8, (uint64_t)next_message);
    next_message++;
    send_request(connection, &request);
}

static void make_body(void) {
    if (run.options.body < STAMP_BYTES) run.options.body = STAMP_BYTES;
    body = malloc(run.options.body);
    if (body == NULL) abort();
    memset(body, 'x', run.options.body);
    sub_version = wall_ms();
}

/* False, and counted, when the answer to a send is not as it must be. */
static bool check_acknowledgement(const struct header *header) {
    if (header->code != 0) {
        count_bad_code(header);
        return false;
    }
    if (header->message_id_length != 32 || header->queue_offset < 0) {
        count_error(BAD_ANSWER, "a send was answered without msgId or queueOffset");
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------ latency */

static void ask_offset(struct connection *connection) {
    struct request request = {.code = CODE_MAX_OFFSET, .opaque = OFFSET_OPAQUE};
    send_request(connection, &request);
}

static void start_latency(void) {
    make_body();
    open_connections(2);
    interval_ns = (int64_t)(1e9 / run.options.rate);
    if (run.options.heartbeat)
        send_heartbeat(&run.connections[1]);
    else
        ask_offset(&run.connections[1]);
    flush(&run.connections[1]);
    run.second_name = "acknowledged_us";
    run.end = run.now + 10000000000; /* for the first answer; begin_sending knows better */
}

static int64_t poll_opaque(void) { return POLL_OPAQUE + 10 * (int64_t)(poll_generation % 10000); }

static void poll_again(struct connection *connection) {
    poll_generation++;
    polling = true;
    send_poll(connection, 0, poll_offset, poll_opaque());
}

/* The consumer knows where the queue ends: park, then let the producer begin. */
static void begin_sending(struct connection *connection, int64_t offset) {
    poll_offset = offset;
    poll_again(connection);
    started_at = run.now + 100000000; /* the first poll is parked by then */
    run.measure_from = started_at + (int64_t)(run.options.warm_up * 1e9);
    run.end = run.measure_from + (int64_t)(run.options.seconds * 1e9);
    set_timer(started_at, interval_ns);
}

static void send_next(void) {
    if (run.draining || next_message >= due || acknowledged < next_message) return;
    send_message(&run.connections[0], 0, started_at + next_message * interval_ns);
    flush(&run.connections[0]);
}

static void on_latency_timer(void) {
    due += (int64_t)timer_expirations();
    send_next();
}

static void on_acknowledged(const struct header *header) {
    int64_t number = header->opaque - SEND_OPAQUE;
    if (number != acknowledged || number >= next_message) {
        count_error(UNKNOWN_OPAQUE, "an answer to opaque %" PRId64 ", which nobody asked", header->opaque);
        return;
    }
    acknowledged++;
    if (check_acknowledgement(header) && measuring())
        histogram_record(&run.second, run.now - (started_at + number * interval_ns));
    send_next();
}

static void on_polled(struct connection *connection, const struct header *header) {
    const uint8_t *at = header->body, *end = header->body + header->body_length;
    struct record record;
    bool broken = false;
    polling = false;
    if (header->code != PULL_FOUND && header->code != PULL_NOT_FOUND && header->code != PULL_RETRY) {
        count_bad_code(header);
        run.done = true;
        return;
    }
    while (header->code == PULL_FOUND && next_record(&at, end, &record, &broken)) {
        if (record.body_length < STAMP_BYTES || (int64_t)read_u64(record.body + 8) != received) {
            count_error(BAD_RECORD, "message %" PRId64 " was not received in its turn", received);
            run.done = true;
            return;
        }
        received++;
        run.all_messages++;
        run.last_answer = run.now;
        if (measuring()) {
            run.messages++;
            histogram_record(&run.latency, run.now - (int64_t)read_u64(record.body));
        }
    }
    if (broken) count_error(BAD_RECORD, "a record does not fit its answer");
    if (measuring()) run.requests++;
    if (header->next_begin_offset == ABSENT) {
        count_error(BAD_ANSWER, "a pull was answered without nextBeginOffset");
        run.done = true;
        return;
    }
    poll_offset = header->next_begin_offset;
    poll_again(connection);
}

static void on_latency_answer(struct connection *connection, const struct header *header) {
    if ((header->flag & 1) == 0) return;
    if (connection->index == 0) {
        on_acknowledged(header);
    } else if (header->opaque == OFFSET_OPAQUE) {
        if (header->code != 0 || header->offset == ABSENT) {
            count_bad_code(header);
            run.done = true;
            return;
        }
        begin_sending(connection, header->offset);
    } else if (header->opaque == HEARTBEAT_OPAQUE) {
        if (header->code != 0) count_bad_code(header);
        ask_offset(connection);
    } else if (polling && header->opaque == poll_opaque()) {
        on_polled(connection, header);
    } else {
        count_error(UNKNOWN_OPAQUE, "an answer to opaque %" PRId64 ", which nobody asked", header->opaque);
    }
}

static int64_t latency_outstanding(void) { return (next_message - acknowledged) + (next_message - received); }

/* ------------------------------------------------------------------ park */

static int parked_count, polls_sent, woken_count, queue_count;
static int64_t woken_from;
static bool parked, waking;
static bool *woken;

/* A broker cannot be asked whether a poll is parked: after the last one it is given the warm-up time. */
static void park(struct connection *connection) {
    send_poll(connection, connection->index % queue_count, 0, POLL_OPAQUE);
    if (++polls_sent == parked_count) set_timer(now_ns() + (int64_t)(run.options.warm_up * 1e9), 0);
}

static void start_park(void) {
    const struct options *o = &run.options;
    make_body();
    parked_count = o->connections;
    queue_count = o->queues < parked_count ? o->queues : parked_count;
    woken = calloc((size_t)parked_count, sizeof *woken);
    if (woken == NULL) abort();
    open_connections(parked_count + 1);
    for (int i = 0; i < parked_count; i++) {
        if (o->heartbeat)
            send_heartbeat(&run.connections[i]);
        else
            park(&run.connections[i]);
        flush(&run.connections[i]);
    }
    run.second_name = "acknowledged_us";
}

static void wake_all(void) {
    struct connection *producer = &run.connections[parked_count];
    if (waking) return;
    waking = true;
    run.now = woken_from = run.measure_from = now_ns();
    for (int queue = 0; queue < queue_count; queue++) send_message(producer, queue, woken_from);
    flush(producer);
    start_draining();
}

/* First: the broker was quiet, all polls are parked. Second (only with --hold): wake them. */
static void on_park_timer(void) {
    timer_expirations();
    if (parked) {
        wake_all();
        return;
    }
    parked = true;
    printf("{\"event\":\"parked\",\"connections\":%d}\n", parked_count);
    fflush(stdout);
    if (run.options.hold >= 0) set_timer(now_ns() + 1 + (int64_t)(run.options.hold * 1e9), 0);
}

static void on_woken(struct connection *connection, const struct header *header) {
    const uint8_t *at = header->body, *end = header->body + header->body_length;
    struct record record;
    bool broken;
    int64_t messages = 0;
    if (header->opaque == HEARTBEAT_OPAQUE) {
        if (header->code != 0) count_bad_code(header);
        park(connection);
        return;
    }
    if (woken[connection->index]) {
        count_error(UNKNOWN_OPAQUE, "poll %d was answered twice", connection->index);
        return;
    }
    woken[connection->index] = true;
    woken_count++;
    if (header->code != PULL_FOUND) {
        count_bad_code(header);
        return;
    }
    if (!waking) count_error(BAD_ANSWER, "poll %d was answered before anything was sent", connection->index);
    while (next_record(&at, end, &record, &broken)) messages++;
    if (broken || messages == 0) count_error(BAD_RECORD, "a record does not fit its answer");
    run.messages += messages;
    run.all_messages += messages;
    run.requests++;
    run.last_answer = run.now;
    histogram_record(&run.latency, run.now - woken_from);
}

static void on_park_answer(struct connection *connection, const struct header *header) {
    if ((header->flag & 1) == 0) return;
    if (connection->index < parked_count) {
        on_woken(connection, header);
    } else {
        acknowledged++;
        if (check_acknowledgement(header)) histogram_record(&run.second, run.now - woken_from);
    }
}

static int64_t park_outstanding(void) {
    return waking ? (parked_count - woken_count) + (queue_count - acknowledged) : parked_count - woken_count;
}

static void report_park(FILE *out) {
    fprintf(out, ",\"queues\":%d,\"woken\":%d,\"wake_all_ms\":%.2f", queue_count, woken_count, (double)run.latency.max_ns / 1e6);
}

const struct mode latency_mode = {
    .name = "latency", .start = start_latency, .on_answer = on_latency_answer, .on_timer = on_latency_timer,
    .outstanding = latency_outstanding};
const struct mode park_mode = {
    .name = "park", .start = start_park, .on_answer = on_park_answer, .on_timer = on_park_timer,
    .on_input = wake_all, .outstanding = park_outstanding, .report = report_park};
