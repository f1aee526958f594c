/* The bytes of a connection: one Unix stream socket, one buffer each way, whole frames in and out.
 * Every other file of libtern uses it and sees frames only. It does not interpret bodies.
 *
 * Invariant: both buffers have a fixed size, chosen when the connection opens; a length from the
 * other side is checked before it is used; once `state` is CLIENT_SOCKET_LOST nothing is sent or
 * received any more. One thread, the caller's, puts frames into `out`. Bytes of `out` are sent and
 * moved only with out_lock held, so that a second thread (sender.c) can send meanwhile. File
 * descriptors are received only while an answer that carries some is expected: the kernel drops all
 * others. */
#ifndef CLIENT_SOCKET_H
#define CLIENT_SOCKET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"
#include "states.h"

#define CLIENT_FDS_MAX  4     /* descriptors of one answer: region, control page, bell, checksums */
#define CLIENT_BODY_MIN 4096u /* a daemon that announces a smaller cap is refused */
#define CLIENT_BODY_MAX (16u << 20) /* a larger announced cap is reduced to this */
#define CLIENT_IN_EXTRA                                                                            \
    (64u << 10) /* room behind the largest frame, so that one read takes several */

struct client_socket {
    int fd;
    enum client_socket_state state;
    uint32_t body_max; /* cap of a body that we send, in bytes: the daemon's */
    uint32_t recv_max; /* cap of a body that we receive, in bytes: never below FRAME_BODY_MAX */
    uint32_t recv_ms;  /* SO_RCVTIMEO in force; 0: none */
    uint8_t *out, *in; /* owned */
    uint32_t out_cap;
    _Atomic uint32_t out_head, out_tail; /* [head, tail) waits to be sent */
    pthread_mutex_t out_lock;            /* held by the sender, only for a non-blocking send */
    _Atomic bool out_broken;             /* a send has failed: the next call loses the connection */
    bool out_left;                       /* the thread of sender.c sends all that waits */
    uint32_t in_head, in_tail, in_cap;   /* [head, tail) was received and not yet returned */
    uint32_t fds_expected;               /* answers under way that carry descriptors */
    uint32_t nfds;
    int fds[CLIENT_FDS_MAX]; /* owned until client_socket_take_fds */
};

uint64_t client_socket_now_ns(void); /* CLOCK_MONOTONIC */

/* Connects. DAEMON_LOST with errno: nobody listens, or no permission. TIMED_OUT. INVALID: the path
 * is too long. INTERNAL: no memory, or no descriptor (errno). On success *c owns everything in it
 * until client_socket_close. */
enum tern_err client_socket_open(struct client_socket *c, const char *path, uint32_t deadline_ms);
/* Takes ownership of a connected socket (closes it on failure). For tests, too. */
enum tern_err client_socket_adopt(struct client_socket *c, int fd);
void client_socket_close(struct client_socket *c);

/* Sets the daemon's cap after Hello. Only while both buffers are empty. UNSUPPORTED: too small. */
enum tern_err client_socket_set_body_max(struct client_socket *c, uint32_t body_max);

/* Reserves room for a frame with a body of `body` bytes: write its header to *ret_frame, the body
 * behind it. client_socket_queue then queues the frame for client_socket_send. BUSY: no room now,
 * send first (or another thread is sending; the call does not wait). INVALID: larger than the
 * daemon accepts.
 */
enum tern_err client_socket_room(struct client_socket *c, uint64_t body, uint8_t **ret_frame);
void client_socket_queue(struct client_socket *c, uint32_t frame_bytes);

/* Sends what the socket accepts. OK: all is sent, or the other side has closed, which
 * client_socket_recv reports. BUSY: the rest waits for the socket. DAEMON_LOST. */
enum tern_err client_socket_send(struct client_socket *c);
/* Sends on another thread, at any time, what the caller's thread has queued. Returns false if
 * nothing was queued. */
bool client_socket_push(struct client_socket *c);
bool client_socket_has_out(const struct client_socket *c);

/* Returns the next whole frame, body borrowed until the next client_socket_recv. OK, BUSY (none is
 * whole yet), MALFORMED or UNSUPPORTED (the header is invalid; the connection is lost). */
enum tern_err client_socket_frame(struct client_socket *c, struct frame_header *ret,
                                  const uint8_t **ret_body);

/* Receives once. wait_ms 0: does not wait (BUSY: nothing has arrived). Else waits that long
 * (TIMED_OUT). DAEMON_LOST. */
enum tern_err client_socket_recv(struct client_socket *c, uint32_t wait_ms);
/* Waits until the socket can be read, or written while something is left to send. OK or TIMED_OUT.
 */
enum tern_err client_socket_wait(struct client_socket *c, uint64_t deadline_ns);

/* Returns true if queued bytes wait for the caller to send them. */
static inline bool client_socket_wants_write(const struct client_socket *c)
{
    return !c->out_left && client_socket_has_out(c);
}

/* Moves the received descriptors to the caller, at most `n`. MALFORMED: none or more than n
 * arrived; all are closed.
 */
enum tern_err client_socket_take_fds(struct client_socket *c, int *ret, uint32_t n,
                                     uint32_t *ret_n);
void client_socket_drop_fds(struct client_socket *c);
void client_socket_lose(struct client_socket *c);

#endif
