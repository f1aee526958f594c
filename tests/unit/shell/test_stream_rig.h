/* Streams over socket pairs, with the far ends in the test: opened and closed with each case. The
 * rig keeps what arrives and why a stream ends. Header only. */
#ifndef TEST_STREAM_RIG_H
#define TEST_STREAM_RIG_H

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shell/stream/stream.h"
#include "testing/test.h"

#define STREAMS_MAX 16
#define WAIT_NS     5000000000u

#define RECV_BUFFERS 8 /* of each share */
#define RECV_BYTES   4096

struct side {
    struct stream s;    /* first: the callbacks cast */
    struct side *other; /* closed with this one; NULL: none */
    uint32_t frames;    /* that were handed out, in the order of their ids */
    uint32_t closed, finished, brought, aside;
    char why[160];
};

static struct io *io;
static struct stream_pool *pool;
static void (*on_each)(struct stream *s); /* called with each frame; NULL: not called */
static bool closes_apart;                 /* clients' streams, which may carry descriptors */
static struct closer *closer;
static struct side side[STREAMS_MAX];
static int far_end[STREAMS_MAX];

static void on_frame(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    struct side *me = (struct side *)(void *)s;

    (void)body;
    assert_int_equal(me->closed, 0);
    assert_int_equal(h->request_id, ++me->frames);
    if (on_each)
        on_each(s);
    if (h->type == FRAME_ENGINE_LEAVE)
        stream_close(s, "it asked for it");
}

static void on_closed(struct stream *s, const char *why)
{
    struct side *me = (struct side *)(void *)s;

    me->closed++;
    snprintf(me->why, sizeof me->why, "%s", why);
    if (me->other)
        stream_close(&me->other->s, "with another one");
}

static void on_finished(struct stream *s)
{
    ((struct side *)(void *)s)->finished++;
}

static void on_brought(struct stream *s)
{
    struct side *me = (struct side *)(void *)s;

    assert_int_equal(me->closed, 0);
    me->brought++;
}

static void on_aside(struct stream *s, uint64_t ns)
{
    (void)ns;
    ((struct side *)(void *)s)->aside++;
}

static void on_tls_met(struct stream *s)
{
    stream_close(s, "it speaks TLS");
}

/* The last of_share_1 of them are of share 1, all others of share 0. */
static inline void streams_open(struct stream_config *config, uint32_t of_share_1,
                                uint32_t send_buffers_max)
{
    static const struct stream_ops ops = {.frame = on_frame,
                                          .closed = on_closed,
                                          .finished = on_finished,
                                          .brought = on_brought,
                                          .tls_met = on_tls_met,
                                          .aside = on_aside};
    struct io_config io_config = {
        .entries = 64, .groups = 2, .buffers = RECV_BUFFERS, .buffer_bytes = RECV_BYTES};
    const char *why = "";
    int fd[2];

    assert_int_equal(io_create(&io_config, &io, &why), TERN_OK);
    config->io = io;
    config->bodies[0] = STREAMS_MAX;
    if (closes_apart) {
        struct closer_config with = {
            .io = io, .lanes = 2, .sockets = STREAMS_MAX, .lane_sockets = STREAMS_MAX};

        assert_int_equal(closer_create(&with, &closer, &why), TERN_OK);
        config->closer = closer;
    }
    assert_int_equal(stream_pool_create(config, &pool), TERN_OK);
    memset(side, 0, sizeof side);
    on_each = NULL;
    for (uint32_t i = 0; i < config->streams; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
        far_end[i] = fd[1];
        stream_open(&side[i].s, pool, &ops, fd[0], i + of_share_1 >= config->streams, 4096,
                    send_buffers_max);
    }
    stream_pool_flush(pool); /* so that each receives */
}

/* A turn of the daemon's loop; waits until then, unless there is work. */
static inline void turn(uint64_t until_ns)
{
    stream_pool_flush(pool);
    io_run(io, stream_pool_has_input(pool) ? 0 : until_ns);
    stream_pool_serve(pool);
}

/* Each has ended once, for whatever reason, and has no buffers. */
static inline void streams_close(uint32_t n)
{
    uint64_t end = io_now_ns() + WAIT_NS;

    for (uint32_t i = 0; i < n; i++) {
        stream_close(&side[i].s, "the test is over");
        while (!side[i].finished && io_now_ns() < end) {
            stream_pool_serve(pool);
            turn(end);
        }
        assert_int_equal(side[i].finished, 1);
        assert_int_equal(side[i].closed, 1);
        assert_int_equal(side[i].s.send_buffers, 0);
        close(far_end[i]);
    }
}

static inline int streams_gone(void)
{
    closer_end(closer);
    closer_destroy(closer);
    closer = NULL;
    io_destroy(io);
    stream_pool_destroy(pool);
    return 0;
}

#endif
