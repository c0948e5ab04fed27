/* The modes that keep a fixed number of requests outstanding: send, transaction, batch, ping and pull.
 *
 * A slot is one outstanding request. Its opaque is FIRST_OPAQUE + slot + slots * generation, so an answer finds its
 * slot by arithmetic, and an answer that comes twice or for nothing is seen. */
#include "loadgen.h"

#include <inttypes.h>
#include <stdlib.h>

#define FIRST_OPAQUE 1000
#define GENERATIONS 1000
#define GIVE_UP_NS 10000000000LL

struct slot {
    int64_t sent_at;
    int64_t queue_offset; /* pull: where this connection is in its queue */
    uint64_t unique;      /* transactions: of the half message */
    int generation;
    int queue_id;
    bool waiting;
};

/* What was acknowledged of one queue: dense, when no other producer writes to the topic. */
struct queue {
    int64_t first, after, count;
};

static int code; /* the request this mode repeats */
static struct slot *slots;
static struct queue *queues;
static int slot_count;
static int64_t outstanding, issued, wraps, discarded;
static uint64_t unique;
static bool transactions; /* each send is a half message, and its answer is followed by a one-way commit */
static int next_queue;
static size_t record_bytes; /* of every record checked so far; MIXED when they differ */
#define MIXED SIZE_MAX
static uint8_t *body;
static size_t body_length;

static void issue(struct connection *connection, int index) {
    const struct options *o = &run.options;
    struct slot *slot = &slots[index];
    struct request request = {.code = code,
                              .topic = o->topic,
                              .group = o->group,
                              .broker_name = o->broker_name,
                              .tags = o->tags,
                              .keys = o->keys,
                              .born_at_ms = wall_ms(),
                              .unique = unique,
                              .half = transactions,
                              .body = body,
                              .body_length = body_length};
    if (o->messages > 0) {
        /* By count: over with the last answer, or when none comes any more. */
        run.give_up_at = run.now + GIVE_UP_NS;
        if (issued >= o->messages) {
            if (outstanding == 0) run.done = true;
            return;
        }
    }
    if (run.draining || connection->fd < 0) return;
    if (code == CODE_PULL) {
        connection->discards = o->discard && !o->tls && record_bytes > 0 && run.now >= run.measure_from;
        request.queue_offset = slot->queue_offset;
        request.max_messages = o->max_messages;
        request.pull_flag = PULL_SUBSCRIPTION;
        request.suspend_ms = o->suspend_ms;
    } else {
        slot->queue_id = next_queue;
        next_queue = next_queue + 1 == o->queues ? 0 : next_queue + 1;
    }
    if (code == CODE_SEND_BATCH) {
        set_batch_unique(body, o->batch, o->body, unique + 1);
        unique += (uint64_t)o->batch;
        issued += o->batch - 1;
    }
    slot->unique = unique;
    unique++;
    issued++;
    slot->generation = (slot->generation + 1) % GENERATIONS;
    slot->sent_at = run.now;
    slot->waiting = true;
    outstanding++;
    request.queue_id = run.options.first_queue + slot->queue_id;
    request.opaque = FIRST_OPAQUE + index + (int64_t)slot_count * slot->generation;
    connection_wrote(connection, write_request(connection_room(connection, request_bound(&request)), &request));
}

static void start(int request_code) {
    const struct options *o = &run.options;
    code = request_code;
    slot_count = o->connections * o->inflight;
    slots = calloc((size_t)slot_count, sizeof *slots);
    queues = calloc((size_t)o->queues, sizeof *queues);
    if (slots == NULL || queues == NULL) abort();
    for (int i = 0; i < o->queues; i++) queues[i].first = INT64_MAX;
    unique = (uint64_t)wall_ms() << 24;
    if (code == CODE_SEND || code == CODE_SEND_BATCH) {
        body_length = o->body;
        body = malloc(body_length + 1);
        if (body == NULL) abort();
        for (size_t i = 0; i < body_length; i++) body[i] = (uint8_t)('a' + i % 26);
        if (code == CODE_SEND_BATCH) body = make_batch(o->batch, body, o->body, o->tags, &body_length);
    }
    open_connections(o->connections);
    run.now = now_ns();
    run.measure_from = run.now + (int64_t)(o->warm_up * 1e9);
    if (o->messages == 0) run.end = run.measure_from + (int64_t)(o->seconds * 1e9);
    for (int i = 0; i < slot_count; i++) {
        slots[i].queue_id = i % o->queues;
        issue(&run.connections[i / o->inflight], i);
    }
    for (int i = 0; i < o->connections; i++) flush(&run.connections[i]);
}

static void start_send(void) { start(CODE_SEND); }
static void start_transactions(void) {
    transactions = true;
    start(CODE_SEND);
}
static void start_batch(void) { start(CODE_SEND_BATCH); }
static void start_ping(void) { start(CODE_MIN_OFFSET); }
static void start_pull(void) { start(CODE_PULL); }

/* The slot an answer belongs to, freed; NULL for a request of the broker or an answer nobody waits for. */
static struct slot *take_slot(const struct connection *connection, const struct header *header) {
    if ((header->flag & 1) == 0) return NULL; /* a notice from the broker */
    int64_t number = header->opaque - FIRST_OPAQUE;
    struct slot *slot = number >= 0 ? &slots[number % slot_count] : NULL;
    if (slot == NULL || !slot->waiting || number / slot_count != slot->generation ||
        (int)(number % slot_count) / run.options.inflight != connection->index) {
        count_error(UNKNOWN_OPAQUE, "an answer to opaque %" PRId64 ", which nobody asked", header->opaque);
        return NULL;
    }
    slot->waiting = false;
    outstanding--;
    return slot;
}

static void count_answer(const struct slot *slot, const struct header *header, int64_t messages) {
    run.all_messages += messages;
    run.last_answer = run.now;
    if (measuring()) {
        run.requests++;
        run.messages += messages;
        run.bytes += (int64_t)header->body_length;
        histogram_record(&run.latency, run.now - slot->sent_at);
    }
}

/* offsetMsgId: 32 hex digits for IPv4; a batch has one a message, separated by commas. */
static bool is_message_id(const struct header *header, int count) {
    if (header->message_id_length != (size_t)count * 33 - 1) return false;
    for (size_t i = 0; i < header->message_id_length; i++) {
        char c = header->message_id[i];
        bool hex = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F');
        if (i % 33 == 32 ? c != ',' : !hex) return false;
    }
    return true;
}

/* What a producer says whose local branch took no time. */
static void commit(struct connection *connection, const struct slot *slot, const struct header *header) {
    struct request request = {.code = CODE_END_TRANSACTION,
                              .topic = run.options.topic,
                              .group = run.options.group,
                              .broker_name = run.options.broker_name,
                              .unique = slot->unique,
                              .queue_offset = header->queue_offset,
                              .opaque = 1};
    for (const char *at = header->message_id + 16; at < header->message_id + 32; at++)
        request.log_offset = request.log_offset * 16 + (*at <= '9' ? *at - '0' : *at - 'A' + 10);
    connection_wrote(connection, write_request(connection_room(connection, request_bound(&request)), &request));
}

static void on_sent(struct connection *connection, const struct header *header) {
    int count = code == CODE_SEND_BATCH ? run.options.batch : 1;
    struct slot *slot = take_slot(connection, header);
    if (slot == NULL) return;
    if (header->code != 0) {
        count_bad_code(header);
    } else if (!is_message_id(header, count) || header->queue_offset < 0 || header->queue_id != run.options.first_queue + slot->queue_id) {
        count_error(BAD_ANSWER, "a send was answered without msgId, queueId or queueOffset as they must be");
    } else {
        struct queue *queue = &queues[transactions ? 0 : slot->queue_id]; /* all halves are in one */
        if (transactions && !run.options.open) commit(connection, slot, header);
        if (header->queue_offset < queue->first) queue->first = header->queue_offset;
        if (header->queue_offset + count > queue->after) queue->after = header->queue_offset + count;
        queue->count += count;
        count_answer(slot, header, count);
    }
    issue(connection, (int)(slot - slots));
}

static void on_pong(struct connection *connection, const struct header *header) {
    struct slot *slot = take_slot(connection, header);
    if (slot == NULL) return;
    if (header->code != 0)
        count_bad_code(header);
    else if (header->offset == ABSENT)
        count_error(BAD_ANSWER, "no offset in the answer");
    else
        count_answer(slot, header, 1);
    issue(connection, (int)(slot - slots));
}

/* Messages in the answer, -1 when they are not what was asked for. */
static int64_t check_records(const struct slot *slot, const struct header *header) {
    const uint8_t *at = header->body, *end = header->body + header->body_length;
    int64_t expected = slot->queue_offset;
    struct record record;
    bool broken;
    for (const uint8_t *from = at; next_record(&at, end, &record, &broken); from = at) {
        size_t bytes = (size_t)(at - from);
        record_bytes = record_bytes == 0 || record_bytes == bytes ? bytes : MIXED;
        if (record.queue_offset != expected++) return -1;
        if (run.options.verify && record.crc != record_crc(record.body, record.body_length)) return -1;
    }
    return broken || expected != header->next_begin_offset ? -1 : expected - slot->queue_offset;
}

/* The same of an answer whose body was thrown away: as many bytes as its messages take, by those that were checked. */
static int64_t check_length(const struct slot *slot, const struct header *header) {
    int64_t messages = header->next_begin_offset - slot->queue_offset;
    if (messages < 1 || messages > run.options.max_messages || header->next_begin_offset > header->max_offset) return -1;
    if (record_bytes != MIXED && header->body_length != (size_t)messages * record_bytes) return -1;
    discarded++;
    return messages;
}

static void on_pulled(struct connection *connection, const struct header *header) {
    struct slot *slot = take_slot(connection, header);
    if (slot == NULL) return;
    if (header->code != PULL_FOUND && header->code != PULL_NOT_FOUND) {
        count_bad_code(header);
    } else if (header->next_begin_offset == ABSENT || header->min_offset == ABSENT || header->max_offset == ABSENT) {
        count_error(BAD_ANSWER, "a pull was answered without its offsets");
    } else if (header->code == PULL_NOT_FOUND) {
        if (header->max_offset <= header->min_offset) count_error(BAD_ANSWER, "queue %d is empty", slot->queue_id);
        slot->queue_offset = header->min_offset;
        wraps++;
    } else {
        int64_t messages = header->body == NULL ? check_length(slot, header) : check_records(slot, header);
        if (messages <= 0)
            count_error(BAD_RECORD, "records of queue %d from %" PRId64 " on are not as they must be", slot->queue_id,
                        slot->queue_offset);
        else
            count_answer(slot, header, messages);
        slot->queue_offset = header->next_begin_offset;
        if (slot->queue_offset >= header->max_offset) {
            slot->queue_offset = header->min_offset;
            wraps++;
        }
    }
    issue(connection, (int)(slot - slots));
}

static void on_closed(struct connection *connection) {
    for (int i = 0; i < run.options.inflight; i++) {
        struct slot *slot = &slots[connection->index * run.options.inflight + i];
        if (!slot->waiting) continue;
        slot->waiting = false;
        outstanding--;
        count_error(UNANSWERED, "no answer before the connection was closed");
    }
}

static int64_t count_outstanding(void) { return outstanding; }

/* Acknowledged offsets must be dense: no other producer writes to the topic, so a hole is a lost message or a twice
 * given offset. Requests that failed or went unanswered are errors already, so holes are only sought without any. */
static void report_queues(FILE *out) {
    int64_t gaps = 0;
    for (int i = 0; i < run.options.queues; i++)
        if (queues[i].count > 0) gaps += llabs(queues[i].after - queues[i].first - queues[i].count);
    if (gaps > 0 && run.errors[BAD_CODE] + run.errors[UNANSWERED] == 0) {
        count_error(GAP, "acknowledged offsets are not dense");
        run.errors[GAP] += gaps - 1;
    }
    fprintf(out, ",\"offset_gaps\":%" PRId64, gaps);
}

static void report_wraps(FILE *out) { fprintf(out, ",\"wraps\":%" PRId64 ",\"discarded\":%" PRId64, wraps, discarded); }

const struct mode send_mode = {
    .name = "send", .start = start_send, .on_answer = on_sent, .on_closed = on_closed,
    .outstanding = count_outstanding, .report = report_queues};
const struct mode transaction_mode = {
    .name = "transaction", .start = start_transactions, .on_answer = on_sent, .on_closed = on_closed,
    .outstanding = count_outstanding, .report = report_queues};
const struct mode batch_mode = {
    .name = "batch", .start = start_batch, .on_answer = on_sent, .on_closed = on_closed,
    .outstanding = count_outstanding, .report = report_queues};
const struct mode ping_mode = {
    .name = "ping", .start = start_ping, .on_answer = on_pong, .on_closed = on_closed,
    .outstanding = count_outstanding};
const struct mode pull_mode = {
    .name = "pull", .start = start_pull, .on_answer = on_pulled, .on_closed = on_closed,
    .outstanding = count_outstanding, .report = report_wraps};
