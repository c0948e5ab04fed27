/* Frames in and out; see wire.h. The header texts are those of the Java client 5.3.3, key order included. */
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* ------------------------------------------------------------------ reading */

struct cursor {
    const char *at, *end;
};

/* A string, `at` on its opening quote; leaves `at` behind the closing one. */
static bool read_string(struct cursor *c, const char **text, size_t *length) {
    if (c->at >= c->end || *c->at != '"') return false;
    const char *start = ++c->at;
    while (c->at < c->end && *c->at != '"') {
        if (*c->at == '\\') c->at++;
        c->at++;
    }
    if (c->at >= c->end) return false;
    *text = start;
    *length = (size_t)(c->at++ - start);
    return true;
}

static bool read_number(const char *text, size_t length, int64_t *out) {
    bool negative = length > 0 && *text == '-';
    size_t i = negative;
    int64_t value = 0;
    if (i == length || length > 20) return false;
    for (; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = value * 10 + (text[i] - '0');
    }
    *out = negative ? -value : value;
    return true;
}

/* Any scalar: a string without its quotes, or the text of a number, true, false or null. */
static bool read_scalar(struct cursor *c, const char **text, size_t *length) {
    if (c->at < c->end && *c->at == '"') return read_string(c, text, length);
    *text = c->at;
    while (c->at < c->end && *c->at != ',' && *c->at != '}' && *c->at != ' ') c->at++;
    *length = (size_t)(c->at - *text);
    return *length > 0;
}

static void skip_blanks(struct cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\r' || *c->at == '\t')) c->at++;
}

static bool expect(struct cursor *c, char wanted) {
    skip_blanks(c);
    if (c->at >= c->end || *c->at != wanted) return false;
    c->at++;
    skip_blanks(c);
    return true;
}

#define IS(name) (key_length == sizeof(name) - 1 && memcmp(key, name, sizeof(name) - 1) == 0)

/* A header that was parsed: between its changing values (`spans`) an equal one has the same text. */
#define OUTLINE_BYTES 1024
#define OUTLINE_SPANS 12
struct outline {
    char text[OUTLINE_BYTES];
    size_t length; /* 0: nothing learnt */
    int spans;
    struct span {
        size_t start, end;
        size_t field; /* offsetof the number in struct header, or MESSAGE_ID */
    } span[OUTLINE_SPANS];
    int64_t code, flag;
};
#define MESSAGE_ID SIZE_MAX
static struct outline outline;
static const char *outline_base; /* the header being parsed */

static void remember_span(const char *text, size_t length, size_t field) {
    if (outline.spans == OUTLINE_SPANS) {
        outline.spans++; /* too many: learn nothing */
    } else if (outline.spans < OUTLINE_SPANS) {
        size_t start = (size_t)(text - outline_base);
        outline.span[outline.spans++] = (struct span){start, start + length, field};
    }
}

static bool set_field(struct header *out, const char *key, size_t key_length, const char *text, size_t length) {
    int64_t *number = NULL;
    if (IS("msgId")) {
        out->message_id = text;
        out->message_id_length = length;
        remember_span(text, length, MESSAGE_ID);
    } else if (IS("queueId") || IS("e")) {
        number = &out->queue_id;
    } else if (IS("queueOffset")) {
        number = &out->queue_offset;
    } else if (IS("nextBeginOffset")) {
        number = &out->next_begin_offset;
    } else if (IS("minOffset")) {
        number = &out->min_offset;
    } else if (IS("maxOffset")) {
        number = &out->max_offset;
    } else if (IS("offset")) {
        number = &out->offset;
    } else if (IS("maxMsgNums")) {
        number = &out->max_messages;
    } else if (IS("sysFlag")) {
        number = &out->pull_flag;
    }
    if (number == NULL) return true;
    remember_span(text, length, (size_t)((char *)number - (char *)out));
    return read_number(text, length, number);
}

static bool read_fields(struct cursor *c, struct header *out) {
    const char *key, *text;
    size_t key_length, length;
    if (c->end - c->at >= 4 && memcmp(c->at, "null", 4) == 0) {
        c->at += 4;
        return true;
    }
    if (!expect(c, '{')) return false;
    if (c->at < c->end && *c->at == '}') return expect(c, '}');
    do {
        if (!read_string(c, &key, &key_length) || !expect(c, ':') || !read_scalar(c, &text, &length)) return false;
        if (!set_field(out, key, key_length, text, length)) return false;
    } while (expect(c, ','));
    return expect(c, '}');
}

static bool read_header(struct cursor *c, struct header *out) {
    const char *key, *text;
    size_t key_length, length;
    if (!expect(c, '{')) return false;
    do {
        if (!read_string(c, &key, &key_length) || !expect(c, ':')) return false;
        if (IS("extFields")) {
            if (!read_fields(c, out)) return false;
            continue;
        }
        if (!read_scalar(c, &text, &length)) return false;
        if (IS("code")) {
            if (!read_number(text, length, &out->code)) return false;
        } else if (IS("opaque")) {
            if (!read_number(text, length, &out->opaque)) return false;
            remember_span(text, length, offsetof(struct header, opaque));
        } else if (IS("flag")) {
            if (!read_number(text, length, &out->flag)) return false;
        } else if (IS("remark")) {
            out->remark = text;
            out->remark_length = length;
        }
    } while (expect(c, ','));
    return expect(c, '}') && c->at == c->end;
}

/* A number as read_number takes it, `at` moving behind it. */
static ALWAYS_INLINE bool scan_number(const char **at, const char *end, int64_t *out) {
    const char *start = *at + (*at < end && **at == '-'), *digit = start;
    int64_t value = 0;
    while (digit < end && *digit >= '0' && *digit <= '9') value = value * 10 + (*digit++ - '0');
    if (digit == start || digit - *at > 20) return false;
    *out = start != *at ? -value : value;
    *at = digit;
    return true;
}

/* Brokers answer alike: most headers are the last parsed one but for some numbers and the message ids. What is not
 * byte for byte the learnt text around such values is left to the parser, so nothing is taken that it would refuse. */
static bool read_alike(const char *at, size_t length, struct header *out) {
    const char *text = outline.text, *end = at + length;
    size_t known = 0;
    for (int i = 0; i < outline.spans; i++) {
        const struct span *span = &outline.span[i];
        size_t same = span->start - known;
        if ((size_t)(end - at) < same || memcmp(at, text + known, same) != 0) return false;
        at += same;
        known = span->end;
        if (span->field == MESSAGE_ID) {
            const char *quote = memchr(at, '"', (size_t)(end - at));
            if (quote == NULL || memchr(at, '\\', (size_t)(quote - at)) != NULL) return false;
            out->message_id = at;
            out->message_id_length = (size_t)(quote - at);
            at = quote;
        } else if (!scan_number(&at, end, (int64_t *)((char *)out + span->field))) {
            return false;
        }
    }
    if ((size_t)(end - at) != outline.length - known || memcmp(at, text + known, outline.length - known) != 0) return false;
    out->code = outline.code;
    out->flag = outline.flag;
    return true;
}

static void learn(const char *text, size_t length, const struct header *header) {
    outline.length = 0;
    if (length > OUTLINE_BYTES || outline.spans > OUTLINE_SPANS || header->code != 0) return;
    memcpy(outline.text, text, length);
    outline.length = length;
    outline.code = header->code;
    outline.flag = header->flag;
}

static void clear_header(struct header *out) {
    memset(out, 0, sizeof *out);
    out->code = out->opaque = out->flag = ABSENT;
    out->queue_id = out->queue_offset = out->next_begin_offset = ABSENT;
    out->min_offset = out->max_offset = out->offset = ABSENT;
    out->max_messages = out->pull_flag = ABSENT;
}

bool read_frame(const uint8_t *frame, size_t length, struct header *out) {
    if (length < 4 || frame[0] != 0) return false; /* the top byte 0: a JSON header */
    size_t header_length = read_u32(frame) & 0xFFFFFF;
    if (header_length > length - 4) return false;
    const char *text = (const char *)frame + 4;
    clear_header(out);
    if (outline.length == 0 || !read_alike(text, header_length, out)) {
        struct cursor cursor = {text, text + header_length};
        clear_header(out);
        outline.spans = 0;
        outline.length = 0;
        outline_base = text;
        if (!read_header(&cursor, out) || out->code == ABSENT || out->opaque == ABSENT || out->flag == ABSENT) return false;
        learn(text, header_length, out);
    }
    out->body = frame + 4 + header_length;
    out->body_length = length - 4 - header_length;
    return true;
}

/* Positions in a record with IPv4 hosts: size 0, magic 4, CRC 8, queue offset 20, sys-flag 36, body length 84. */
bool next_record(const uint8_t **at, const uint8_t *end, struct record *out, bool *broken) {
    const uint8_t *record = *at;
    *broken = false;
    if (record == end) return false;
    *broken = true;
    if (end - record < 91) return false;
    uint32_t size = read_u32(record);
    if (size < 91 || size > (size_t)(end - record)) return false;
    if (read_u32(record + 4) != 0xDAA320A7u || (read_u32(record + 36) & 0x30)) return false;
    uint32_t body_length = read_u32(record + 84);
    if (body_length > size - 91) return false;
    out->crc = read_u32(record + 8);
    out->queue_offset = (int64_t)read_u64(record + 20);
    out->body = record + 88;
    out->body_length = body_length;
    *at = record + size;
    *broken = false;
    return true;
}

uint32_t record_crc(const uint8_t *bytes, size_t length) {
    static uint32_t table[256];
    uint32_t crc = 0xFFFFFFFFu;
    if (table[1] == 0) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++) value = value & 1 ? 0xEDB88320u ^ (value >> 1) : value >> 1;
            table[i] = value;
        }
    }
    for (size_t i = 0; i < length; i++) crc = table[(crc ^ bytes[i]) & 0xFF] ^ (crc >> 8);
    return (crc ^ 0xFFFFFFFFu) & 0x7FFFFFFFu;
}

/* ------------------------------------------------------------------ writing */

/* The first 16 digits of every unique key: 127.0.0.1, a process, a class loader. */
static const char UNIQUE_PREFIX[] = "7F0000016AB14E0E";
#define UNIQUE_DIGITS 16

/* Inline, so that the length of a constant is one. */
static ALWAYS_INLINE char *put(char *at, const char *text) {
    size_t length = strlen(text);
    memcpy(at, text, length);
    return at + length;
}

static char *put_number(char *at, int64_t value) {
    char digits[24];
    int n = 0;
    if (value < 0) {
        *at++ = '-';
        value = -value;
    }
    do digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n > 0) *at++ = digits[--n];
    return at;
}

static char *put_unique(char *at, uint64_t unique) {
    at = put(at, UNIQUE_PREFIX);
    for (int shift = 60; shift >= 0; shift -= 4) *at++ = "0123456789ABCDEF"[(unique >> shift) & 15];
    return at;
}

static char *put_send_fields(char *at, const struct request *r) {
    bool batch = r->code == CODE_SEND_BATCH;
    at = put(put(at, "\"a\":\""), r->group);
    at = put(put(at, "\",\"b\":\""), r->topic);
    at = put_number(put(at, "\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\""), r->queue_id);
    at = put_number(put(at, r->half ? "\",\"f\":\"4\",\"g\":\"" : "\",\"f\":\"0\",\"g\":\""), r->born_at_ms);
    at = put(at, "\",\"h\":\"0\",\"i\":\"");
    if (!batch && r->keys) at = put(put(put(at, "KEYS\\u0001"), r->keys), "\\u0002");
    if (r->half) at = put(put(put(at, "TRAN_MSG\\u0001true\\u0002PGROUP\\u0001"), r->group), "\\u0002");
    at = put_unique(put(at, "UNIQ_KEY\\u0001"), r->unique);
    at = put(at, "\\u0002WAIT\\u0001true\\u0002");
    if (!batch) at = put(put(put(at, "TAGS\\u0001"), r->tags), "\\u0002");
    at = put(at, "\",\"j\":\"0\",\"k\":\"false\",\"m\":\"");
    return put(put(put(at, batch ? "true" : "false"), "\",\"n\":\""), r->broker_name);
}

static char *put_pull_fields(char *at, const struct request *r) {
    at = put_number(put(at, "\"queueId\":\""), r->queue_id);
    at = put(at, "\",\"commitOffset\":\"0\",");
    if (r->pull_flag & PULL_SUBSCRIPTION) at = put(at, "\"subscription\":\"*\",");
    at = put_number(put(at, "\"suspendTimeoutMillis\":\""), r->suspend_ms);
    at = put(put(at, "\",\"bname\":\""), r->broker_name);
    at = put_number(put(at, "\",\"sysFlag\":\""), r->pull_flag);
    at = put(put(at, "\",\"expressionType\":\"TAG\",\"topic\":\""), r->topic);
    at = put(put(at, "\",\"consumerGroup\":\""), r->group);
    at = put_number(put(at, "\",\"maxMsgNums\":\""), r->max_messages);
    at = put_number(put(at, "\",\"queueOffset\":\""), r->queue_offset);
    at = put_number(put(at, "\",\"subVersion\":\""), r->sub_version);
    return put(at, "\",\"maxMsgBytes\":\"2147483647");
}

static char *put_queue_fields(char *at, const struct request *r) {
    at = put_number(put(at, "\"queueId\":\""), r->queue_id);
    at = put(put(at, "\",\"bname\":\""), r->broker_name);
    return put(put(at, "\",\"topic\":\""), r->topic);
}

/* A commit, as the producer says it that has run its local branch. */
static char *put_end_fields(char *at, const struct request *r) {
    at = put(put(at, "\"producerGroup\":\""), r->group);
    at = put_number(put(at, "\",\"commitLogOffset\":\""), r->log_offset);
    at = put(put(at, "\",\"topic\":\""), r->topic);
    at = put_unique(put(at, "\",\"msgId\":\""), r->unique);
    at = put_number(put(at, "\",\"tranStateTableOffset\":\""), r->queue_offset);
    at = put_unique(put(at, "\",\"commitOrRollback\":\"8\",\"transactionId\":\""), r->unique);
    return put(put(at, "\",\"fromTransactionCheck\":\"false\",\"bname\":\""), r->broker_name);
}

size_t request_bound(const struct request *r) {
    return 840 + strlen(r->topic) + 2 * strlen(r->group) + strlen(r->broker_name) + (r->tags ? strlen(r->tags) : 0) +
           (r->keys ? strlen(r->keys) : 0) + r->body_length;
}

static size_t finish_frame(uint8_t *frame, char *header_end, const uint8_t *body, size_t body_length) {
    size_t header_length = (size_t)(header_end - (char *)frame) - 8;
    if (body_length > 0) memcpy(header_end, body, body_length);
    write_u32(frame, (uint32_t)(4 + header_length + body_length));
    write_u32(frame + 4, (uint32_t)header_length);
    return 8 + header_length + body_length;
}

size_t write_request(uint8_t *frame, const struct request *r) {
    char *at = put_number(put((char *)frame + 8, "{\"code\":"), r->code);
    if (r->code == CODE_HEARTBEAT) {
        at = put(at, ",\"extFields\":{");
    } else {
        at = put(at, ",\"extFields\":{");
        char *fields = at;
        if (r->code == CODE_PULL)
            at = put_pull_fields(at, r);
        else if (r->code == CODE_MAX_OFFSET || r->code == CODE_MIN_OFFSET)
            at = put_queue_fields(at, r);
        else if (r->code == CODE_END_TRANSACTION)
            at = put_end_fields(at, r);
        else
            at = put_send_fields(at, r);
        *at++ = '"';
        *at = 0;
        at = put_signature(fields, at, r->body, r->body_length);
    }
    at = put(at, r->code == CODE_END_TRANSACTION ? "},\"flag\":2" : "},\"flag\":0");
    at = put_number(put(at, ",\"language\":\"JAVA\",\"opaque\":"), r->opaque);
    at = put(at, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}");
    return finish_frame(frame, at, r->body, r->body_length);
}

size_t write_send_answer(uint8_t *frame, int64_t opaque, int64_t queue_id, int64_t queue_offset, int count) {
    static const char message_id[] = ",7F000001000051AF0000000000000000";
    char *at = put_number(put((char *)frame + 8, "{\"code\":0,\"extFields\":{\"queueId\":\""), queue_id);
    at = put(at, "\",\"msgId\":\"");
    for (int i = 0; i < count; i++) at = put(at, i == 0 ? message_id + 1 : message_id);
    at = put(at, "\",\"TRACE_ON\":\"true\",\"MSG_REGION\":\"DefaultRegion\",");
    at = put_number(put(at, "\"queueOffset\":\""), queue_offset);
    at = put_number(put(at, "\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":"), opaque);
    at = put(at, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}");
    return finish_frame(frame, at, NULL, 0);
}

size_t write_offset_answer(uint8_t *frame, int64_t opaque, int64_t offset) {
    char *at = put_number(put((char *)frame + 8, "{\"code\":0,\"extFields\":{\"offset\":\""), offset);
    at = put_number(put(at, "\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":"), opaque);
    at = put(at, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}");
    return finish_frame(frame, at, NULL, 0);
}

size_t write_pull_answer(uint8_t *frame, int64_t opaque, int64_t next_offset, int64_t max_offset, size_t body_length) {
    char *at = put_number(put((char *)frame + 8, "{\"code\":"), body_length > 0 ? PULL_FOUND : PULL_NOT_FOUND);
    at = put_number(put(at, ",\"extFields\":{\"suggestWhichBrokerId\":\"0\",\"nextBeginOffset\":\""), next_offset);
    at = put_number(put(at, "\",\"minOffset\":\"0\",\"maxOffset\":\""), max_offset);
    at = put_number(put(at, "\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":"), opaque);
    at = put(at, ",\"remark\":\"FOUND\",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}");
    size_t head = finish_frame(frame, at, NULL, 0);
    write_u32(frame, (uint32_t)(head - 4 + body_length));
    return head;
}

/* Behind the body stand the topic and the properties; see next_record for what stands before it. */
size_t write_record(uint8_t *record, int queue_id, int64_t queue_offset, const uint8_t *body, size_t body_length) {
    char *at = (char *)record + 88 + body_length;
    memset(record, 0, 88);
    write_u32(record + 4, 0xDAA320A7u);
    write_u32(record + 8, record_crc(body, body_length));
    write_u32(record + 12, (uint32_t)queue_id);
    write_u64(record + 20, (uint64_t)queue_offset);
    write_u32(record + 84, (uint32_t)body_length);
    memcpy(record + 88, body, body_length);
    *at++ = 11;
    at = put(at, "BenchFilled") + 2;
    char *properties = at;
    at = put(put_unique(put(at, "UNIQ_KEY\001"), 0), "\002WAIT\001true\002TAGS\001TagA\002");
    write_u16((uint8_t *)properties - 2, (uint16_t)(at - properties));
    write_u32(record, (uint32_t)(at - (char *)record));
    return (size_t)(at - (char *)record);
}

void set_record_offset(uint8_t *record, int64_t queue_offset) { write_u64(record + 20, (uint64_t)queue_offset); }

/* Inner message: i32 size, i32 magic 0, i32 CRC 0, i32 flag, i32 + body, i16 + properties. */
#define INNER_BODY_AT 20
static const char INNER_PROPERTIES[] = "UNIQ_KEY\001";

uint8_t *make_batch(int count, const uint8_t *body, size_t body_length, const char *tags, size_t *length) {
    char properties[512];
    char *end = put_unique(put(properties, INNER_PROPERTIES), 0);
    end = put(put(put(end, "\002WAIT\001true\002TAGS\001"), tags), "\002");
    size_t properties_length = (size_t)(end - properties);
    size_t size = INNER_BODY_AT + body_length + 2 + properties_length;
    uint8_t *batch = calloc((size_t)count, size);
    if (batch == NULL) abort();
    for (int i = 0; i < count; i++) {
        uint8_t *inner = batch + (size_t)i * size;
        write_u32(inner, (uint32_t)size);
        write_u32(inner + 16, (uint32_t)body_length);
        memcpy(inner + INNER_BODY_AT, body, body_length);
        write_u16(inner + INNER_BODY_AT + body_length, (uint16_t)properties_length);
        memcpy(inner + INNER_BODY_AT + body_length + 2, properties, properties_length);
    }
    *length = (size_t)count * size;
    return batch;
}

void set_batch_unique(uint8_t *batch, int count, size_t body_length, uint64_t first) {
    size_t size = read_u32(batch);
    for (int i = 0; i < count; i++) {
        uint8_t *properties = batch + (size_t)i * size + INNER_BODY_AT + body_length + 2;
        put_unique((char *)properties + sizeof INNER_PROPERTIES - 1, first + (uint64_t)i);
    }
}
