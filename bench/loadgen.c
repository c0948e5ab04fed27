/* Load for RocketMQ brokers over the remoting protocol: one thread, epoll, any broker alike.
 *
 *   loadgen send    --broker H:P --topic T --queues Q --connections C --inflight N --body B --seconds S --warm-up W
 *   loadgen transaction ...                         half messages, each committed (one-way) when it is acknowledged,
 *                                                   or with --open left open
 *   loadgen batch   ... --batch 32                  messages in batches
 *   loadgen ping    ...                             the smallest request (minimum offset), for calibration
 *   loadgen pull    ... --max 32                    walk full queues, one a slot, again and again; with --discard the
 *                                                   kernel throws the bodies away once the warm-up has checked them
 *   loadgen paced   ... --rate 20000                sends due at a fixed rate, whatever is outstanding
 *   loadgen latency ... --rate 400                  a synchronous producer and a long-polling consumer, end to end
 *   loadgen park    ... --connections 10000         parked polls; prints {"event":"parked"}, waits for a line (or
 *                                                   --hold seconds), then wakes them all
 *   loadgen nats    ...                             publish to a JetStream whose subject is the topic, acknowledged each
 *   loadgen redis   ...                             XADD to streams named TOPIC:QUEUE
 *
 * --watch PID,PID adds the CPU time those processes took while it was measured; the generator's own is always there.
 * The topic must exist. Prints one line of JSON; exit status 0 only when no error was counted. Durations in it are
 * microseconds. A closed loop: each of C x N slots has one request outstanding; latency is from the send call to the
 * moment the answer was read. */
#define _GNU_SOURCE
#include "loadgen.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define DRAIN_NS 5000000000LL

struct run run = {.options = {.topic = "BenchTopic",
                              .group = "BenchGroup",
                              .broker_name = "broker-a",
                              .tags = "TagA",
                              .connections = 1,
                              .inflight = 1,
                              .queues = 8,
                              .batch = 32,
                              .max_messages = 32,
                              .body = 1024,
                              .seconds = 5,
                              .warm_up = 1,
                              .rate = 400,
                              .hold = -1,
                              .suspend_ms = 15000}};

static const struct mode *mode;
static int timer_fd;
static int64_t drain_until;
/* What epoll hands back for the two descriptors that are no connections. */
static int timer_mark, input_mark;

static const char *const error_names[ERROR_KINDS] = {"bad_code", "bad_answer", "unknown_opaque", "unanswered",
                                                     "closed", "bad_record", "gap"};

void count_error(enum error_kind kind, const char *format, ...) {
    run.errors[kind]++;
    if (run.first_error[0] == 0) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(run.first_error, sizeof run.first_error, format, arguments);
        va_end(arguments);
    }
}

void count_bad_code(const struct header *header) {
    count_error(BAD_CODE, "code %" PRId64 ": %.*s", header->code, (int)header->remark_length,
                header->remark ? header->remark : "");
}

bool measuring(void) { return run.now >= run.measure_from && run.now < run.end; }

static void connection_lost(struct connection *connection, const char *how) {
    if (connection->fd < 0) return;
    count_error(CLOSED, "connection %d %s", connection->index, how);
    connection_close(connection);
    run.open_connections--;
    if (mode->on_closed) mode->on_closed(connection);
    if (run.open_connections == 0) run.done = true;
}

void flush(struct connection *connection) {
    if (connection->fd >= 0 && !connection_flush(connection, run.epoll_fd)) connection_lost(connection, "refused a write");
}

void open_connections(int count) {
    run.connections = calloc((size_t)count, sizeof *run.connections);
    if (run.connections == NULL) abort();
    for (int i = 0; i < count; i++) {
        if (!connection_open(&run.connections[i], i, &run.options.address, run.epoll_fd)) {
            fprintf(stderr, "cannot open connection %d to %s: %s\n", i, run.options.broker, strerror(errno));
            exit(2);
        }
        run.open_connections++;
    }
}

void set_timer(int64_t at_ns, int64_t interval_ns) {
    struct itimerspec when = {{interval_ns / 1000000000, interval_ns % 1000000000},
                              {at_ns / 1000000000, at_ns % 1000000000}};
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

uint64_t timer_expirations(void) {
    uint64_t expirations = 0;
    return read(timer_fd, &expirations, sizeof expirations) == sizeof expirations ? expirations : 0;
}

void start_draining(void) {
    if (run.draining) return;
    run.draining = true;
    drain_until = run.now + DRAIN_NS;
}

/* ------------------------------------------------------------------ CPU time */

#define WATCHED 64
static clockid_t watched[WATCHED];
static int watched_count;
static struct cpu {
    bool taken;
    double watched_s, own_s;
} cpu_before, cpu_after;

static double clock_s(clockid_t clock) {
    struct timespec time;
    return clock_gettime(clock, &time) == 0 ? (double)time.tv_sec + (double)time.tv_nsec / 1e9 : 0;
}

static void watch(const char *pids) {
    for (char *end; *pids; pids = *end ? end + 1 : end) {
        long pid = strtol(pids, &end, 10);
        if (end == pids || watched_count == WATCHED || clock_getcpuclockid((pid_t)pid, &watched[watched_count++]) != 0) {
            fprintf(stderr, "no process to watch: %s\n", pids);
            exit(2);
        }
    }
}

static void take_cpu(struct cpu *cpu) {
    if (cpu->taken) return;
    cpu->taken = true;
    cpu->own_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < watched_count; i++) cpu->watched_s += clock_s(watched[i]);
}

/* ------------------------------------------------------------------ options */

static void usage(const char *complaint) {
    fprintf(stderr,
            "%s\nusage: loadgen send|transaction|batch|ping|pull|paced|latency|park|nats|redis --broker HOST:PORT [--topic T] [--queues N] [--first-queue N] [--group G]\n"
            "  [--broker-name S] [--connections N] [--inflight N] [--body BYTES] [--seconds S] [--warm-up S]\n"
            "  [--messages N] [--batch N] [--max N] [--rate N] [--suspend-ms N] [--hold S] [--tags T] [--keys K]\n"
            "  [--heartbeat] [--verify] [--discard] [--open] [--sign NAME:SECRET] [--tls] [--watch PID,...]\n",
            complaint);
    exit(2);
}

static void read_options(int argc, char **argv) {
    struct options *o = &run.options;
    static const struct option known[] = {
        {"broker", 1, 0, 'b'},   {"topic", 1, 0, 't'},      {"group", 1, 0, 'g'},    {"broker-name", 1, 0, 'B'},
        {"tags", 1, 0, 'T'},     {"keys", 1, 0, 'k'},       {"queues", 1, 0, 'q'},   {"connections", 1, 0, 'c'},
        {"inflight", 1, 0, 'i'}, {"batch", 1, 0, 'n'},      {"max", 1, 0, 'm'},      {"body", 1, 0, 'y'},
        {"seconds", 1, 0, 's'},  {"warm-up", 1, 0, 'w'},    {"rate", 1, 0, 'r'},     {"hold", 1, 0, 'h'},
        {"messages", 1, 0, 'M'}, {"suspend-ms", 1, 0, 'S'}, {"heartbeat", 0, 0, 'H'}, {"verify", 0, 0, 'V'}, {"open", 0, 0, 'O'},
        {"discard", 0, 0, 'D'},  {"first-queue", 1, 0, 'Q'}, {"sign", 1, 0, 'A'},    {"tls", 0, 0, 'L'},  {"watch", 1, 0, 'p'},
        {0, 0, 0, 0}};
    if (argc < 2) usage("which mode?");
    o->mode = argv[1];
    optind = 2;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
            case 'b': o->broker = optarg; break;
            case 't': o->topic = optarg; break;
            case 'g': o->group = optarg; break;
            case 'B': o->broker_name = optarg; break;
            case 'T': o->tags = optarg; break;
            case 'k': o->keys = optarg; break;
            case 'q': o->queues = atoi(optarg); break;
            case 'Q': o->first_queue = atoi(optarg); break;
            case 'c': o->connections = atoi(optarg); break;
            case 'i': o->inflight = atoi(optarg); break;
            case 'n': o->batch = atoi(optarg); break;
            case 'm': o->max_messages = atoi(optarg); break;
            case 'y': o->body = (size_t)atol(optarg); break;
            case 's': o->seconds = atof(optarg); break;
            case 'w': o->warm_up = atof(optarg); break;
            case 'r': o->rate = atof(optarg); break;
            case 'h': o->hold = atof(optarg); break;
            case 'M': o->messages = atoll(optarg); break;
            case 'S': o->suspend_ms = atoll(optarg); break;
            case 'H': o->heartbeat = true; break;
            case 'V': o->verify = true; break;
            case 'O': o->open = true; break;
            case 'D': o->discard = true; break;
            case 'p': o->watch = optarg; break;
            case 'L':
                if (!connect_by_tls()) usage("--tls: built without OpenSSL, whose headers were not there");
                o->tls = true;
                break;
            case 'A':
                if (!sign_as(optarg)) usage("--sign takes NAME:SECRET");
                break;
            default: usage("unknown option");
        }
    }
    if (optind != argc) usage("unexpected argument");
    if (o->broker == NULL || !parse_address(o->broker, &o->address)) usage("--broker HOST:PORT in numbers is needed");
    if (o->connections < 1 || o->inflight < 1 || o->queues < 1 || o->batch < 1 || o->seconds <= 0 || o->rate <= 0)
        usage("counts, seconds and rates must be positive");
    static const struct mode *const modes[] = {&send_mode, &transaction_mode, &batch_mode, &ping_mode, &pull_mode,
                                              &latency_mode, &park_mode, &paced_mode, &nats_mode, &redis_mode};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i]->name, o->mode) == 0) mode = modes[i];
    if (mode == NULL) usage("no such mode");
    if (o->messages > 0) o->warm_up = 0; /* by count, all of them are measured */
}

static void raise_descriptor_limit(int wanted) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < (rlim_t)wanted + 16) {
        fprintf(stderr, "%d connections need more descriptors than the limit of %ld\n", wanted, (long)limit.rlim_cur);
        exit(2);
    }
}

/* ------------------------------------------------------------------ the loop */

static void handle(struct epoll_event *event) {
    if (event->data.ptr == &timer_mark) {
        if (mode->on_timer) mode->on_timer();
        return;
    }
    if (event->data.ptr == &input_mark) {
        char line[256];
        ssize_t got = read(STDIN_FILENO, line, sizeof line);
        epoll_ctl(run.epoll_fd, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
        if (got >= 0 && mode->on_input) mode->on_input();
        return;
    }
    struct connection *connection = event->data.ptr;
    if (connection->fd < 0) return;
    run.now = now_ns(); /* other connections of this batch of events have taken their time */
    if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        enum read_status status = mode->on_bytes ? connection_read_bytes(connection, mode->on_bytes)
                                                 : connection_read(connection, mode->on_answer);
        if (status == READ_CLOSED) connection_lost(connection, "was closed by the broker");
        if (status == READ_BROKEN) connection_lost(connection, "sent a frame that is not one");
    }
    flush(connection);
}

static void loop(void) {
    struct epoll_event events[256];
    while (!run.done) {
        int64_t wake = run.draining ? drain_until : run.end;
        int64_t wait_ms = (wake - run.now) / 1000000 + 1;
        int count = epoll_wait(run.epoll_fd, events, 256, wait_ms > 1000 ? 1000 : wait_ms < 0 ? 0 : (int)wait_ms);
        run.now = now_ns();
        for (int i = 0; i < count; i++) handle(&events[i]);
        if (run.measure_from > 0 && run.now >= run.measure_from) take_cpu(&cpu_before);
        if (run.now >= run.end) {
            take_cpu(&cpu_after);
            start_draining();
        }
        if (run.now >= run.give_up_at) run.done = true;
        if (run.draining && (mode->outstanding() == 0 || run.now >= drain_until)) run.done = true;
    }
    take_cpu(&cpu_before);
    take_cpu(&cpu_after);
    if (mode->outstanding() > 0 && run.open_connections > 0) {
        count_error(UNANSWERED, "%" PRId64 " still outstanding at the end", mode->outstanding());
        run.errors[UNANSWERED] += mode->outstanding() - 1;
    } else if (run.messages == 0 && run.first_error[0] == 0) {
        count_error(UNANSWERED, "nothing was measured");
    }
}

/* ------------------------------------------------------------------ the result */

static void print_text(FILE *out, const char *text) {
    putc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putc('\\', out);
        putc((unsigned char)*text < 32 ? ' ' : *text, out);
    }
    putc('"', out);
}

static void print_histogram(FILE *out, const char *name, const struct histogram *h) {
    fprintf(out, ",\"%s\":{\"count\":%" PRIu64 ",\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p99.9\":%.1f,\"max\":%.1f}",
            name, h->total, h->total ? h->sum_ns / (double)h->total / 1000 : 0, histogram_quantile(h, 0.5) / 1000,
            histogram_quantile(h, 0.9) / 1000, histogram_quantile(h, 0.99) / 1000, histogram_quantile(h, 0.999) / 1000,
            (double)h->max_ns / 1000);
}

static int64_t print_result(FILE *out) {
    const struct options *o = &run.options;
    int64_t errors = 0;
    double seconds = (double)((run.end == INT64_MAX ? run.last_answer : run.end) - run.measure_from) / 1e9;
    if (seconds <= 0) seconds = 1e-9;
    fprintf(out, "{\"mode\":\"%s\",\"connections\":%d,\"inflight\":%d,\"body\":%zu,\"seconds\":%.3f", o->mode, o->connections,
            o->inflight, o->body, seconds);
    fprintf(out, ",\"requests\":%" PRId64 ",\"messages\":%" PRId64 ",\"all_messages\":%" PRId64, run.requests, run.messages,
            run.all_messages);
    fprintf(out, ",\"rate\":%.1f,\"request_rate\":%.1f,\"bytes_rate\":%.0f", (double)run.messages / seconds,
            (double)run.requests / seconds, (double)run.bytes / seconds);
    fprintf(out, ",\"generator_cpu_s\":%.4f", cpu_after.own_s - cpu_before.own_s);
    if (watched_count > 0) fprintf(out, ",\"watched_cpu_s\":%.4f", cpu_after.watched_s - cpu_before.watched_s);
    print_histogram(out, "latency_us", &run.latency);
    if (run.second_name) print_histogram(out, run.second_name, &run.second);
    if (mode->report) mode->report(out);
    for (int kind = 0; kind < ERROR_KINDS; kind++) errors += run.errors[kind];
    fprintf(out, ",\"errors\":%" PRId64 ",\"error_kinds\":{", errors);
    for (int kind = 0, first = 1; kind < ERROR_KINDS; kind++) {
        if (run.errors[kind] == 0) continue;
        fprintf(out, "%s\"%s\":%" PRId64, first ? "" : ",", error_names[kind], run.errors[kind]);
        first = 0;
    }
    fprintf(out, "},\"first_error\":");
    print_text(out, run.first_error);
    fprintf(out, "}\n");
    fflush(out);
    return errors;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    raise_descriptor_limit(run.options.connections);
    run.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &timer_mark};
    epoll_ctl(run.epoll_fd, EPOLL_CTL_ADD, timer_fd, &event);
    if (mode->on_input && run.options.hold < 0) {
        event.data.ptr = &input_mark;
        epoll_ctl(run.epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    }
    run.now = now_ns();
    run.end = run.give_up_at = INT64_MAX;
    if (run.options.watch) watch(run.options.watch);
    mode->start();
    if (run.measure_from > 0 && run.measure_from <= run.now) take_cpu(&cpu_before);
    loop();
    return print_result(stdout) == 0 ? 0 : 1;
}
