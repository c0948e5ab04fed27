/* The parts of the load generator: options, the run in progress, and what a mode must provide. */
#ifndef BENCH_LOADGEN_H
#define BENCH_LOADGEN_H

#include "connection.h"
#include "histogram.h"

#include <stdio.h>

struct options {
    const char *mode, *broker, *topic, *group, *broker_name, *tags, *keys;
    struct sockaddr_in address;
    int connections, inflight, queues, first_queue, batch, max_messages;
    size_t body;
    double seconds, warm_up, rate, hold;
    int64_t messages;   /* stop after so many instead of after `seconds`; 0 = by time */
    int64_t suspend_ms;
    bool heartbeat;     /* subscribe by heartbeat, not by the pull's own subscription */
    bool verify;        /* recompute the CRC of every body pulled */
    bool discard;       /* pull: check every record during the warm-up only, then let the kernel drop the bodies */
    bool tls;           /* bodies are read then, since the kernel cannot drop them */
    bool open;          /* transaction: commit nothing */
    const char *watch;  /* process ids, separated by commas, whose CPU time is measured */
};

/* Why an answer, or its absence, was an error; each kind is counted. */
enum error_kind { BAD_CODE, BAD_ANSWER, UNKNOWN_OPAQUE, UNANSWERED, CLOSED, BAD_RECORD, GAP, ERROR_KINDS };

struct run {
    struct options options;
    int epoll_fd;
    struct connection *connections;
    int open_connections;
    int64_t now;                /* taken after each epoll_wait */
    int64_t measure_from, end;  /* answers in between count; end is INT64_MAX when the mode decides */
    int64_t last_answer;
    int64_t give_up_at;         /* INT64_MAX, or when a mode without an end has waited too long */
    bool draining;              /* no new requests; waiting for answers */
    bool done;
    int64_t requests, messages, bytes; /* counted while measuring */
    int64_t all_messages;              /* acknowledged or received in the whole run */
    struct histogram latency;
    struct histogram second; /* what the mode measures besides; see its name in the result */
    const char *second_name;
    int64_t errors[ERROR_KINDS];
    char first_error[256];
};

struct mode {
    const char *name;
    void (*start)(void);
    frame_handler *on_answer;
    bytes_handler *on_bytes;                           /* instead of on_answer, where the protocol has no frames */
    void (*on_closed)(struct connection *connection);  /* may be NULL */
    void (*on_timer)(void);                            /* timer_fd expired; may be NULL */
    void (*on_input)(void);                            /* a line or the end of standard input; may be NULL */
    int64_t (*outstanding)(void);                      /* answers or messages still expected */
    void (*report)(FILE *out);                         /* more fields of the result, each ",\"name\":value"; may be NULL */
};

extern struct run run;
extern const struct mode send_mode, transaction_mode, batch_mode, ping_mode, pull_mode, latency_mode, park_mode, paced_mode, nats_mode, redis_mode;

/* Count an error; the text of the first one is part of the result. */
void count_error(enum error_kind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Count an answer with an unwanted code, with its remark. */
void count_bad_code(const struct header *header);

bool measuring(void);
void open_connections(int count);
void flush(struct connection *connection);
/* Make timer_fd expire at `at_ns` and then every `interval_ns`. */
void set_timer(int64_t at_ns, int64_t interval_ns);
/* How often it expired since last asked. */
uint64_t timer_expirations(void);
/* Stop asking; the run ends when nothing is outstanding, or after the drain time. */
void start_draining(void);

#endif
