/* Non-blocking connections for one epoll thread: an outbox each, one receive buffer shared by all. A connection keeps
 * only the tail of a frame that has not arrived whole. */
#ifndef BENCH_CONNECTION_H
#define BENCH_CONNECTION_H

#include "wire.h"

#include <netinet/in.h>

struct connection {
    int fd; /* -1 once closed */
    int index;
    bool wants_write;
    bool discards; /* the bodies of its frames are thrown away by the kernel */
    void *tls;     /* an SSL; NULL on a plain connection */
    uint8_t *tail;
    size_t tail_length, tail_size;
    struct header headed; /* of the frame whose body is being thrown away */
    size_t to_discard;
    uint8_t *out;
    size_t out_start, out_end, out_size;
};

enum read_status { READ_MORE, READ_CLOSED, READ_BROKEN };

/* Called for every whole frame that was read. */
typedef void frame_handler(struct connection *connection, const struct header *header);

/* "host:port", numbers only; false when it is not that. */
bool parse_address(const char *text, struct sockaddr_in *address);

/* Have every connection that is opened from now on speak TLS; no certificate is checked. False when this program was
 * built without OpenSSL. */
bool connect_by_tls(void);

/* Connect (blocking), then set non-blocking and without delay, and watch it with `epoll_fd`; false with errno set. */
bool connection_open(struct connection *connection, int index, const struct sockaddr_in *address, int epoll_fd);
/* Take over an accepted socket. */
void connection_adopt(struct connection *connection, int index, int fd, int epoll_fd);
void connection_close(struct connection *connection);

/* Read once what the socket holds and hand over every whole frame. A connection that `discards` hands them over without
 * body (NULL), but with its length; the handler may begin that at any frame. */
enum read_status connection_read(struct connection *connection, frame_handler *handler);

/* For protocols without frames: called with all that has come and was not taken yet; says how much of it was taken, or
 * -1 when it is not what it must be. */
typedef ptrdiff_t bytes_handler(struct connection *connection, const uint8_t *bytes, size_t length);
enum read_status connection_read_bytes(struct connection *connection, bytes_handler *handler);

/* Room for `size` bytes at the end of the outbox; `connection_wrote` says how many were used. */
uint8_t *connection_room(struct connection *connection, size_t size);
void connection_wrote(struct connection *connection, size_t size);

/* Send what the outbox holds, as far as the socket takes it; false when the peer is gone. */
bool connection_flush(struct connection *connection, int epoll_fd);

int64_t now_ns(void); /* monotonic */
int64_t wall_ms(void);

#endif
