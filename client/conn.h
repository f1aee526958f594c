/* The bytes of a connection: one Unix stream socket, one buffer each way, whole frames in and out.
 * Used by every other file of libtern, which sees frames only. Knows nothing of what a body says.
 *
 * What must stay true: both buffers have a fixed size, chosen when the connection opens; a length
 * that the other side sends is checked before it is used; once `state` is CONN_LOST nothing is sent
 * or received any more. File descriptors are taken from the socket only while an answer that
 * carries some is expected: the kernel drops any other. */
#ifndef CLIENT_CONN_H
#define CLIENT_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"

#define CONN_FDS_MAX  2           /* descriptors of one answer: region, control page */
#define CONN_BODY_MIN 4096u       /* a daemon that announces a smaller cap is refused */
#define CONN_BODY_MAX (16u << 20) /* one that announces a larger one is held to this */
#define CONN_IN_EXTRA                                                                              \
    (64u << 10) /* room behind the largest frame, so that one read takes several */

enum conn_state {
    CONN_UP = 1, /* frames go both ways */
    CONN_LOST,   /* ended by the other side, by an error or by nonsense; only conn_close is left */
};

struct conn {
    int fd;
    enum conn_state state;
    uint32_t body_max;                    /* cap of a body that we send: the daemon's */
    uint32_t recv_max;                    /* cap of one that we take: never below FRAME_BODY_MAX */
    uint32_t recv_ms;                     /* SO_RCVTIMEO in force; 0: none */
    uint8_t *out, *in;                    /* owned */
    uint32_t out_head, out_tail, out_cap; /* [head, tail) waits to be sent */
    uint32_t in_head, in_tail, in_cap;    /* [head, tail) was received and not yet handed out */
    uint32_t fds_expected;                /* answers under way that carry descriptors */
    uint32_t nfds;
    int fds[CONN_FDS_MAX]; /* owned until conn_take_fds */
};

uint64_t conn_now_ns(void); /* CLOCK_MONOTONIC */

/* PEER_LOST with errno: nobody listens, or not allowed. TIMED_OUT; INVALID: the path does not fit;
 * INTERNAL: no memory, or no descriptor (errno). On success everything in *c is owned by it until
 * conn_close. */
enum tern_err conn_open(struct conn *c, const char *path, uint32_t deadline_ms);
/* Takes a connected socket over (and closes it on failure). For conn_open and tests. */
enum tern_err conn_adopt(struct conn *c, int fd);
void conn_close(struct conn *c);

/* After Hello: the daemon's own cap. Only while both buffers are empty. UNSUPPORTED: too small to
 * work with. */
enum tern_err conn_set_body_max(struct conn *c, uint32_t body_max);

/* Room for a frame with a body of `body` bytes: the frame's header goes to *ret_frame, the body
 * behind it. conn_queue then lets conn_send have it. BUSY: not now, send first. INVALID: larger
 * than the daemon takes. */
enum tern_err conn_room(struct conn *c, uint64_t body, uint8_t **ret_frame);
void conn_queue(struct conn *c, uint32_t frame_bytes);

/* Sends what the socket takes. OK: all is out, or nobody will read it: conn_recv tells. BUSY: the
 * rest waits for the socket. PEER_LOST. */
enum tern_err conn_send(struct conn *c);

/* The next whole frame, body borrowed until the next conn_recv. OK, BUSY (none is whole yet),
 * MALFORMED or UNSUPPORTED (the header is nonsense; the connection is lost). */
enum tern_err conn_frame(struct conn *c, struct frame_header *ret, const uint8_t **ret_body);

/* Receives once. wait_ms 0: only what is there (BUSY: nothing). Else waits that long: TIMED_OUT.
 * PEER_LOST. */
enum tern_err conn_recv(struct conn *c, uint32_t wait_ms);
/* Waits until the socket can be read, or written while something is left to send. OK or TIMED_OUT.
 */
enum tern_err conn_wait(struct conn *c, uint64_t deadline_ns);

static inline bool conn_wants_write(const struct conn *c)
{
    return c->out_head != c->out_tail;
}

/* Hands over exactly `n` received descriptors. MALFORMED: another number came; all are closed. */
enum tern_err conn_take_fds(struct conn *c, int *ret, uint32_t n);
void conn_drop_fds(struct conn *c);
void conn_lose(struct conn *c);

#endif
