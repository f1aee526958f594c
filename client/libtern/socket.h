/* The bytes of a connection: one Unix stream socket, one buffer each way, whole frames in and out.
 * Used by every other file of libtern, which sees frames only. Knows nothing of what a body says.
 *
 * What must stay true: both buffers have a fixed size, chosen when the connection opens; a length
 * that the other side sends is checked before it is used; once `state` is CLIENT_SOCKET_LOST
 * nothing is sent or received any more. One thread, the caller's, puts frames into `out`; whoever
 * holds out_lock sends from it, and only with that lock is what lies there moved, so that a second
 * thread (sender.c) can send meanwhile. File descriptors are taken from the socket only while an
 * answer that carries some is expected: the kernel drops any other. */
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
#define CLIENT_BODY_MAX (16u << 20) /* one that announces a larger one is held to this */
#define CLIENT_IN_EXTRA                                                                            \
    (64u << 10) /* room behind the largest frame, so that one read takes several */

struct client_socket {
    int fd;
    enum client_socket_state state;
    uint32_t body_max; /* cap of a body that we send: the daemon's */
    uint32_t recv_max; /* cap of one that we take: never below FRAME_BODY_MAX */
    uint32_t recv_ms;  /* SO_RCVTIMEO in force; 0: none */
    uint8_t *out, *in; /* owned */
    uint32_t out_cap;
    _Atomic uint32_t out_head, out_tail; /* [head, tail) waits to be sent */
    pthread_mutex_t out_lock;            /* who sends; held for no longer than a send that does
                                            not wait */
    _Atomic bool out_broken;           /* a send has failed: who calls next loses the connection */
    bool out_left;                     /* all that waits is left to the thread of sender.c */
    uint32_t in_head, in_tail, in_cap; /* [head, tail) was received and not yet handed out */
    uint32_t fds_expected;             /* answers under way that carry descriptors */
    uint32_t nfds;
    int fds[CLIENT_FDS_MAX]; /* owned until client_socket_take_fds */
};

uint64_t client_socket_now_ns(void); /* CLOCK_MONOTONIC */

/* DAEMON_LOST with errno: nobody listens, or not allowed. TIMED_OUT; INVALID: the path does not
 * fit; INTERNAL: no memory, or no descriptor (errno). On success everything in *c is owned by it
 * until client_socket_close. */
enum tern_err client_socket_open(struct client_socket *c, const char *path, uint32_t deadline_ms);
/* Takes a connected socket over (and closes it on failure). For client_socket_open and tests. */
enum tern_err client_socket_adopt(struct client_socket *c, int fd);
void client_socket_close(struct client_socket *c);

/* After Hello: the daemon's own cap. Only while both buffers are empty. UNSUPPORTED: too small to
 * work with. */
enum tern_err client_socket_set_body_max(struct client_socket *c, uint32_t body_max);

/* Room for a frame with a body of `body` bytes: the frame's header goes to *ret_frame, the body
 * behind it. client_socket_queue then lets client_socket_send have it. BUSY: not now, send first
 * (or somebody sends at this moment: it waits for nobody). INVALID: larger than the daemon takes.
 */
enum tern_err client_socket_room(struct client_socket *c, uint64_t body, uint8_t **ret_frame);
void client_socket_queue(struct client_socket *c, uint32_t frame_bytes);

/* Sends what the socket takes. OK: all is out, or nobody will read it: client_socket_recv tells.
 * BUSY: the rest waits for the socket. DAEMON_LOST. */
enum tern_err client_socket_send(struct client_socket *c);
/* The same on another thread, at any time: what the caller's thread has queued. False: nothing lay
 * there. */
bool client_socket_push(struct client_socket *c);
bool client_socket_has_out(const struct client_socket *c);

/* The next whole frame, body borrowed until the next client_socket_recv. OK, BUSY (none is whole
 * yet), MALFORMED or UNSUPPORTED (the header is nonsense; the connection is lost). */
enum tern_err client_socket_frame(struct client_socket *c, struct frame_header *ret,
                                  const uint8_t **ret_body);

/* Receives once. wait_ms 0: only what is there (BUSY: nothing). Else waits that long: TIMED_OUT.
 * DAEMON_LOST. */
enum tern_err client_socket_recv(struct client_socket *c, uint32_t wait_ms);
/* Waits until the socket can be read, or written while something is left to send. OK or TIMED_OUT.
 */
enum tern_err client_socket_wait(struct client_socket *c, uint64_t deadline_ns);

/* Something waits for the caller to send it. */
static inline bool client_socket_wants_write(const struct client_socket *c)
{
    return !c->out_left && client_socket_has_out(c);
}

/* Hands over the received descriptors, at most `n`. MALFORMED: none came, or more; all are closed.
 */
enum tern_err client_socket_take_fds(struct client_socket *c, int *ret, uint32_t n,
                                     uint32_t *ret_n);
void client_socket_drop_fds(struct client_socket *c);
void client_socket_lose(struct client_socket *c);

#endif
