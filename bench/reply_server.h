/* The server of `calibrate serve`. */
#ifndef BENCH_REPLY_SERVER_H
#define BENCH_REPLY_SERVER_H

/* Listen on 127.0.0.1:`port` (0: any), say which as {"port":N}, and answer until standard input ends. */
int serve_replies(int port);

#endif
