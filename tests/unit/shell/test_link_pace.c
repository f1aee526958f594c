/* A storm of reconnects (fault 11): as many peers as a configuration may have, and all are down.
 * The linker replaces the clock and the ring's connect by this file. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "shell/daemon.h"
#include "shell/peers/link_internal.h"
#include "test_link_rig.h"
#include "unit/rig/rig_log.h"

#define SECOND 1000000000u
#define PEERS  CONFIG_PEERS_MAX

static struct config config;
static struct daemon d;
static struct event queue[1];
static uint8_t frame[FRAME_HEADER_BYTES + FRAME_BODY_MAX];
static uint64_t now_ns;

static struct {
    struct io_op *op; /* NULL: no connect is under way */
    uint32_t n;
} connects[PEERS];
static uint32_t begun, under_way;

uint64_t __wrap_io_now_ns(void);
void __wrap_io_cancel(struct io *io, struct io_op *op);
void __wrap_io_connect(struct io *io, struct io_op *op, int fd, const struct sockaddr *addr,
                       socklen_t len);
void __wrap_xfer_link_down(struct xfer *xfer, uint32_t link);

uint64_t __wrap_io_now_ns(void)
{
    return now_ns;
}

static void end(uint32_t peer, int32_t res)
{
    struct io_op *op = connects[peer].op;

    assert_non_null(op);
    connects[peer].op = NULL;
    under_way--;
    op->done(op, res, IO_LAST, 0);
}

static uint32_t slot_of(const struct io_op *op)
{
    return ((const struct peer_link *)(const void *)((const char *)op -
                                                     offsetof(struct peer_link, dial)))
        ->slot;
}

void __wrap_io_cancel(struct io *io, struct io_op *op)
{
    (void)io;
    end(slot_of(op), -ECANCELED);
}

void __wrap_io_connect(struct io *io, struct io_op *op, int fd, const struct sockaddr *addr,
                       socklen_t len)
{
    uint32_t peer = slot_of(op);

    (void)io, (void)fd, (void)addr, (void)len;
    assert_null(connects[peer].op);
    connects[peer].op = op;
    connects[peer].n++;
    begun++;
    under_way++;
}

void __wrap_xfer_link_down(struct xfer *xfer, uint32_t link)
{
    (void)xfer, (void)link;
}

/* One tick of the daemon later. */
static void tick(void)
{
    now_ns += TICK_NS;
    links_tick(&d, now_ns);
}

static void refuse_all(void)
{
    for (uint32_t i = 0; i < PEERS; i++)
        if (connects[i].op)
            end(i, -ECONNREFUSED);
}

FIXTURE(start)
{
    struct rlimit files;
    char why[256];

    memset(&config, 0, sizeof config);
    memset(&d, 0, sizeof d);
    memset(connects, 0, sizeof connects);
    begun = under_way = 0;
    config.npeers = PEERS;
    for (uint32_t i = 0; i < PEERS; i++) {
        snprintf(config.peers[i].name, sizeof config.peers[i].name, "p%u", i);
        strcpy(config.peers[i].address.host, "127.0.0.9");
        config.peers[i].address.port = 1;
    }
    d.config = &config;
    d.queue = (struct event_queue){.v = queue, .cap = 1};
    d.incarnation = 7;
    d.frame = frame;
    d.limits.peers = d.limits.links = PEERS;
    now_ns = 1000 * (uint64_t)SECOND;
    log_start(LEVEL_ERROR);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    return links_init(&d, why, sizeof why) == TERN_OK ? 0 : -1;
}

FIXTURE(stop)
{
    links_finish(&d);
    return log_stop();
}

/* Each second has at most LINK_DIALS_PER_S attempts, and those of one tick; every peer has its
 * turn, again and again. */
TEST_WITH(attempts_of_many_peers_are_paced_and_each_has_its_turn, start, stop)
{
    uint32_t most = 0;

    for (uint32_t s = 0; s < 60; s++) {
        uint32_t before = begun;

        for (uint32_t i = 0; i < SECOND / TICK_NS; i++) {
            tick();
            refuse_all();
        }
        if (s > 0 && begun - before > most)
            most = begun - before;
    }
    assert_true(most > LINK_DIALS_PER_S / 2 && most <= LINK_DIALS_PER_S);
    for (uint32_t i = 0; i < PEERS; i++)
        assert_true(connects[i].n >= 2 && connects[i].n <= 4);
    printf("fault=11 links=%u attempts=%u attempts_per_s=%u limit=%u violations=0\n", PEERS, begun,
           most, LINK_DIALS_PER_S);
}

/* Nobody answers, so each attempt lasts until its deadline. */
TEST_WITH(attempts_under_way_are_limited, start, stop)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < 200 * (SECOND / TICK_NS); i++) {
        tick();
        assert_true(under_way <= LINK_DIALS_MAX);
        most = under_way > most ? under_way : most;
    }
    assert_true(most > LINK_DIALS_MAX / 2);
    for (uint32_t i = 0; i < PEERS; i++)
        assert_true(connects[i].n >= 2);
    refuse_all();
}

/* While all others are down, a lost link is dialled as soon as ever. */
TEST_WITH(a_lost_link_does_not_wait_behind_peers_that_are_away, start, stop)
{
    struct peer_link *l = &d.links.v[PEERS - 1];

    for (uint32_t i = 0; i < 60 * (SECOND / TICK_NS) || !connects[PEERS - 1].op; i++) {
        refuse_all();
        tick();
    }
    end(PEERS - 1, 0);
    l->state = PEER_LINK_UP;
    link_clear_cause(l);
    l->pause_ns = 0;
    l->stream.ops->closed(&l->stream, "the other side went");
    close(l->stream.fd);
    l->stream.ops->finished(&l->stream);
    for (uint32_t i = 0; !connects[PEERS - 1].op; i++) {
        assert_true(i < 2);
        refuse_all();
        tick();
    }
    refuse_all();
}
