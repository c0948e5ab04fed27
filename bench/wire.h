/* Remoting frames: [i32 length][i32 header length][JSON header][body], all integers big-endian.
 * The reader understands what a load generator must check; the writers send what the official Java client sends. */
#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    CODE_SEND = 310,
    CODE_SEND_BATCH = 320,
    CODE_PULL = 11,
    CODE_HEARTBEAT = 34,
    CODE_MAX_OFFSET = 30,
    CODE_MIN_OFFSET = 31,
    CODE_END_TRANSACTION = 37,
};

/* Response codes of a pull. */
enum { PULL_FOUND = 0, PULL_NOT_FOUND = 19, PULL_RETRY = 20, PULL_MOVED = 21 };

#define PULL_SUSPEND 2
#define PULL_SUBSCRIPTION 4

#define FRAME_LIMIT (16 * 1024 * 1024)
#define ABSENT INT64_MIN

/* What was read of one frame. Pointers lead into the frame and die with it. */
struct header {
    int64_t code, opaque, flag;
    int64_t queue_id, queue_offset, next_begin_offset, min_offset, max_offset, offset; /* ABSENT when not there */
    int64_t max_messages, pull_flag;                                                  /* of a pull request; likewise */
    const char *message_id;
    size_t message_id_length;
    const char *remark; /* still escaped */
    size_t remark_length;
    const uint8_t *body; /* NULL when it was thrown away unread */
    size_t body_length;
};

static inline uint32_t read_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

static inline uint64_t read_u64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return __builtin_bswap64(value);
}

static inline void write_u16(uint8_t *at, uint16_t value) {
    value = __builtin_bswap16(value);
    memcpy(at, &value, 2);
}

static inline void write_u32(uint8_t *at, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
}

static inline void write_u64(uint8_t *at, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(at, &value, 8);
}

/* Read a frame that is whole: `frame` points behind the length field, `length` is that field.
 * False when the header is not JSON of the expected shape; every brace, quote and separator is checked. */
bool read_frame(const uint8_t *frame, size_t length, struct header *out);

/* Walk the records of a pull answer. `at` moves forward; false at the end or at a record that does not fit
 * (then *broken is set). */
struct record {
    int64_t queue_offset;
    uint32_t crc;
    const uint8_t *body;
    uint32_t body_length;
};
bool next_record(const uint8_t **at, const uint8_t *end, struct record *out, bool *broken);

/* CRC-32 as stored in records (zlib polynomial), top bit cleared. */
uint32_t record_crc(const uint8_t *bytes, size_t length);

/* One request whose variable fields are filled in when it is written. */
struct request {
    int code;
    const char *topic, *group, *broker_name, *tags, *keys;
    int queue_id;
    int64_t opaque;
    int64_t born_at_ms;
    uint64_t unique;         /* last 16 hex digits of UNIQ_KEY */
    int64_t queue_offset;    /* pull */
    int max_messages;        /* pull */
    int pull_flag;           /* pull */
    int64_t suspend_ms;      /* pull */
    int64_t sub_version;     /* pull */
    bool half;               /* send: the half message of a transaction */
    int64_t log_offset;      /* end of a transaction: where its half lies; queue_offset: its place in its queue */
    const uint8_t *body;
    size_t body_length;
};

/* Sign every request that is written from now on. user: "NAME:SECRET". False for another form. */
bool sign_as(const char *user);

/* Add user and signature to the header fields that begin at `fields` and end at `end`; return their new end. */
char *put_signature(char *fields, char *end, const uint8_t *body, size_t body_length);

/* The bytes a frame of this request may take at most. */
size_t request_bound(const struct request *request);

/* Write the frame at `at`, which has request_bound() bytes of room; return its size. */
size_t write_request(uint8_t *at, const struct request *request);

/* Answers as a broker gives them, for the calibration server; each returns its size. A batch of `count` has as many
 * message ids. Behind the answer to a pull come `body_length` bytes of records, written by the caller; 0: none was found. */
size_t write_send_answer(uint8_t *at, int64_t opaque, int64_t queue_id, int64_t queue_offset, int count);
size_t write_offset_answer(uint8_t *at, int64_t opaque, int64_t offset);
size_t write_pull_answer(uint8_t *at, int64_t opaque, int64_t next_offset, int64_t max_offset, size_t body_length);

/* A stored record with the properties of a send; it takes at most 256 bytes more than its body. Returns the size. */
size_t write_record(uint8_t *at, int queue_id, int64_t queue_offset, const uint8_t *body, size_t body_length);
void set_record_offset(uint8_t *record, int64_t queue_offset);

/* The body of a batch: `count` messages with the same body, each with its own unique key, which set_batch_unique
 * renews. Returned memory belongs to the caller. */
uint8_t *make_batch(int count, const uint8_t *body, size_t body_length, const char *tags, size_t *length);
void set_batch_unique(uint8_t *batch, int count, size_t body_length, uint64_t first);

#endif
