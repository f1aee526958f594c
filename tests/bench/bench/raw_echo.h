/* The raw baseline of `tern-bench rpc`: a process that answers every request_bytes with reply_bytes
 * over a Unix stream socket by io_uring, and reads none of the content. */
#ifndef BENCH_RAW_ECHO_H
#define BENCH_RAW_ECHO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RAW_REPLIES_MAX 256 /* requests in flight */

struct raw_echo {
    pid_t pid;
    int fd; /* the client's end, owned */
    uint32_t request_bytes, reply_bytes;
};

/* Runs on that core; -1: anywhere. */
bool raw_echo_start(struct raw_echo *e, uint32_t request_bytes, uint32_t reply_bytes, int core);
void raw_echo_stop(struct raw_echo *e);

/* One request and its answer, in blocking calls. */
bool raw_echo_ping(const struct raw_echo *e);
/* The same in two parts. */
bool raw_echo_send(const struct raw_echo *e);
bool raw_echo_receive(const struct raw_echo *e);

/* Sends n requests with at most `depth` in flight, each by a call of its own. */
bool raw_echo_pipeline(const struct raw_echo *e, uint32_t n, uint32_t depth);

#endif
