#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifdef WITH_TLS
#include <openssl/ssl.h>
static SSL_CTX *tls_context;

bool connect_by_tls(void) {
    tls_context = SSL_CTX_new(TLS_client_method());
    if (tls_context != NULL) SSL_CTX_set_mode(tls_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return tls_context != NULL;
}

static bool shake_hands(struct connection *connection) {
    SSL *tls = SSL_new(tls_context);
    connection->tls = tls;
    return tls != NULL && SSL_set_fd(tls, connection->fd) == 1 && SSL_connect(tls) == 1;
}

/* As recv and send; a record that is not whole is EAGAIN. */
static ssize_t as_socket_call(SSL *tls, int result) {
    if (result > 0) return result;
    int why = SSL_get_error(tls, result);
    if (why == SSL_ERROR_ZERO_RETURN) return 0;
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
}

static int at_most(size_t size) { return size > 1 << 30 ? 1 << 30 : (int)size; }
static ssize_t tls_receive(void *tls, void *into, size_t size) { return as_socket_call(tls, SSL_read(tls, into, at_most(size))); }
static ssize_t tls_send(void *tls, const void *from, size_t size) { return as_socket_call(tls, SSL_write(tls, from, at_most(size))); }
static void tls_end(void *tls) { SSL_free(tls); }
#else
static const bool tls_context = false;
bool connect_by_tls(void) { return false; }
static bool shake_hands(struct connection *connection) { return connection == NULL; }
static ssize_t tls_receive(void *tls, void *into, size_t size) { return tls == into && size ? -1 : -1; }
static ssize_t tls_send(void *tls, const void *from, size_t size) { return tls == from && size ? -1 : -1; }
static void tls_end(void *tls) { free(tls); }
#endif

/* One read takes at most this much; a frame larger than it grows the buffer. */
static uint8_t *receive_buffer;
static size_t receive_size = 1024 * 1024;

/* A connection that throws bodies away reads so much before it knows how long the header is. */
#define HEAD_BYTES 512

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void *grow(void *memory, size_t size) {
    void *grown = realloc(memory, size);
    if (grown == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return grown;
}

bool parse_address(const char *text, struct sockaddr_in *address) {
    char host[64];
    const char *colon = strrchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= sizeof host) return false;
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)atoi(colon + 1));
    return inet_pton(AF_INET, host, &address->sin_addr) == 1;
}

void connection_adopt(struct connection *connection, int index, int fd, int epoll_fd) {
    int yes = 1;
    memset(connection, 0, sizeof *connection);
    connection->fd = fd;
    connection->index = index;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

bool connection_open(struct connection *connection, int index, const struct sockaddr_in *address, int epoll_fd) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connection->fd = -1;
    if (fd < 0) return false;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
        int why = errno;
        close(fd);
        errno = why;
        return false;
    }
    void *tls = NULL;
    if (tls_context) {
        connection->fd = fd;
        if (!shake_hands(connection)) {
            close(fd);
            connection->fd = -1;
            errno = EPROTO;
            return false;
        }
        tls = connection->tls;
    }
    connection_adopt(connection, index, fd, epoll_fd);
    connection->tls = tls;
    return true;
}

void connection_close(struct connection *connection) {
    if (connection->fd < 0) return;
    if (connection->tls) tls_end(connection->tls);
    close(connection->fd);
    free(connection->tail);
    free(connection->out);
    memset(connection, 0, sizeof *connection);
    connection->fd = -1;
}

static void keep_tail(struct connection *connection, const uint8_t *bytes, size_t length) {
    if (length > connection->tail_size) {
        connection->tail = grow(connection->tail, length);
        connection->tail_size = length;
    }
    if (length > 0) memcpy(connection->tail, bytes, length);
    connection->tail_length = length;
}

/* Read once behind what is held of this connection: how much lies in receive_buffer then; 0 when nothing came, and
 * *status says what that means. */
static size_t receive(struct connection *connection, size_t wanted, enum read_status *status) {
    size_t held = connection->tail_length;
    wanted += held + 65536;
    if (receive_buffer == NULL || wanted > receive_size) {
        if (wanted > receive_size) receive_size = wanted;
        receive_buffer = grow(receive_buffer, receive_size);
    }
    if (held > 0) memcpy(receive_buffer, connection->tail, held);
    size_t room = connection->discards ? HEAD_BYTES : receive_size - held;
    ssize_t got = connection->tls ? tls_receive(connection->tls, receive_buffer + held, room)
                                  : recv(connection->fd, receive_buffer + held, room, 0);
    *status = got < 0 && (errno == EAGAIN || errno == EINTR) ? READ_MORE : READ_CLOSED;
    return got > 0 ? held + (size_t)got : 0;
}

/* Throw away what has come of the body; the frame is handed over when the last byte is gone. */
static enum read_status discard(struct connection *connection, frame_handler *handler) {
    while (connection->to_discard > 0) {
        ssize_t got = recv(connection->fd, NULL, connection->to_discard, MSG_TRUNC);
        if (got < 0) return errno == EAGAIN || errno == EINTR ? READ_MORE : READ_CLOSED;
        if (got == 0) return READ_CLOSED;
        connection->to_discard -= (size_t)got;
    }
    handler(connection, &connection->headed);
    return READ_MORE;
}

/* Whether `at` begins a frame whose header has come and whose body has not: then the rest of it is to be thrown away. */
static bool head_only(struct connection *connection, const uint8_t *at, size_t here, bool *broken) {
    if (!connection->discards || here < 8) return false;
    uint32_t length = read_u32(at), header_length = read_u32(at + 4) & 0xFFFFFF;
    if (header_length > length - 4 || here < 8 + (size_t)header_length) return false;
    *broken = !read_frame(at + 4, length, &connection->headed);
    connection->headed.body = NULL;
    connection->to_discard = 4 + (size_t)length - here;
    return true;
}

enum read_status connection_read(struct connection *connection, frame_handler *handler) {
    size_t held = connection->tail_length, wanted = 0;
    enum read_status status;
    if (connection->to_discard > 0) return discard(connection, handler);
    if (held >= 4 && read_u32(connection->tail) < FRAME_LIMIT) wanted = read_u32(connection->tail);
    size_t got = receive(connection, wanted, &status);
    if (got == 0) return status;
    const uint8_t *at = receive_buffer, *end = receive_buffer + got;
    while (end - at >= 4) {
        struct header header;
        bool broken = false;
        uint32_t length = read_u32(at);
        if (length < 4 || length > FRAME_LIMIT) return READ_BROKEN;
        if ((size_t)(end - at) - 4 < length) {
            if (!head_only(connection, at, (size_t)(end - at), &broken)) break;
            connection->headed.remark = connection->headed.message_id = NULL; /* they were in the buffer of all */
            connection->headed.remark_length = connection->headed.message_id_length = 0;
            connection->tail_length = 0;
            return broken ? READ_BROKEN : discard(connection, handler);
        }
        if (!read_frame(at + 4, length, &header)) return READ_BROKEN;
        if (connection->discards) header.body = NULL;
        at += 4 + (size_t)length;
        handler(connection, &header);
        if (connection->fd < 0) return READ_MORE; /* the handler closed it */
    }
    keep_tail(connection, at, (size_t)(end - at));
    return READ_MORE;
}

enum read_status connection_read_bytes(struct connection *connection, bytes_handler *handler) {
    enum read_status status;
    size_t got = receive(connection, 0, &status);
    if (got == 0) return status;
    ptrdiff_t taken = handler(connection, receive_buffer, got);
    if (taken < 0) return READ_BROKEN;
    if (connection->fd >= 0) keep_tail(connection, receive_buffer + taken, got - (size_t)taken);
    return READ_MORE;
}

uint8_t *connection_room(struct connection *connection, size_t size) {
    if (connection->out_end + size > connection->out_size) {
        size_t held = connection->out_end - connection->out_start;
        if (connection->out_start > 0) {
            memmove(connection->out, connection->out + connection->out_start, held);
            connection->out_start = 0;
            connection->out_end = held;
        }
        if (held + size > connection->out_size) {
            connection->out_size = 2 * (held + size);
            connection->out = grow(connection->out, connection->out_size);
        }
    }
    return connection->out + connection->out_end;
}

void connection_wrote(struct connection *connection, size_t size) { connection->out_end += size; }

bool connection_flush(struct connection *connection, int epoll_fd) {
    while (connection->out_start < connection->out_end) {
        const uint8_t *from = connection->out + connection->out_start;
        size_t size = connection->out_end - connection->out_start;
        ssize_t sent = connection->tls ? tls_send(connection->tls, from, size) : send(connection->fd, from, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN) return false;
        if (sent < 0) break;
        connection->out_start += (size_t)sent;
    }
    bool left = connection->out_start < connection->out_end;
    if (!left) connection->out_start = connection->out_end = 0;
    if (left != connection->wants_write) {
        struct epoll_event event = {.events = EPOLLIN | (left ? EPOLLOUT : 0), .data.ptr = connection};
        epoll_ctl(epoll_fd, EPOLL_CTL_MOD, connection->fd, &event);
        connection->wants_write = left;
    }
    return true;
}
