/* Peers whose addresses are names: when they are looked up, which address is dialled then, and the
 * report of an unknown name. The linker replaces the name service, the clock and the ring's connect
 * by this file. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>

#include "seam/io/io.h"
#include "seam/io/resolve.h"
#include "shell/daemon.h"
#include "test_link_rig.h"
#include "unit/rig/rig_log.h"

#define SECOND 1000000000u

enum { NUMBER, NAME, OTHER, PEERS }; /* 127.0.0.9, name.test, other.test */

static struct config config;
static struct daemon d;
static uint8_t frame[FRAME_HEADER_BYTES + FRAME_BODY_MAX];
static struct event queue[4];
static uint64_t now_ns;

static struct {
    struct io_op *op; /* NULL: no connect is under way */
    char to[INET6_ADDRSTRLEN];
    uint32_t n;
} connects[PEERS];

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct resolve_answer name; /* the answer for name.test; other.test is 127.0.0.3 */
    bool hangs;
    uint32_t calls, back;
    pthread_t by;
} service = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

uint64_t __wrap_io_now_ns(void);
void __wrap_io_cancel(struct io *io, struct io_op *op);
void __real_io_cancel(struct io *io, struct io_op *op);
void __wrap_io_connect(struct io *io, struct io_op *op, int fd, const struct sockaddr *addr,
                       socklen_t len);
void __wrap_resolve_system(const char *host, uint16_t port, struct resolve_answer *ret);
void __wrap_xfer_link_down(struct xfer *xfer, uint32_t link);

uint64_t __wrap_io_now_ns(void)
{
    return now_ns;
}

void __wrap_io_cancel(struct io *io, struct io_op *op)
{
    for (uint32_t i = 0; i < PEERS; i++)
        assert_ptr_not_equal(op, &d.links.v[i].dial);
    __real_io_cancel(io, op);
}

void __wrap_io_connect(struct io *io, struct io_op *op, int fd, const struct sockaddr *addr,
                       socklen_t len)
{
    const struct peer_link *l =
        (const struct peer_link *)(void *)((char *)op - offsetof(struct peer_link, dial));

    (void)io, (void)fd;
    assert_int_equal(len, sizeof(struct sockaddr_in));
    assert_null(connects[l->slot].op);
    connects[l->slot].op = op;
    connects[l->slot].n++;
    inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)addr)->sin_addr,
              connects[l->slot].to, sizeof connects[l->slot].to);
}

void __wrap_xfer_link_down(struct xfer *xfer, uint32_t link)
{
    (void)xfer;
    assert_int_equal(link, NAME);
}

static void put(struct resolve_answer *a, const char *address, uint16_t port)
{
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&a->addr[a->n];

    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    inet_pton(AF_INET, address, &in->sin_addr);
    a->len[a->n++] = sizeof *in;
}

void __wrap_resolve_system(const char *host, uint16_t port, struct resolve_answer *ret)
{
    pthread_mutex_lock(&service.lock);
    service.by = pthread_self();
    if (strcmp(host, "other.test") == 0) {
        put(ret, "127.0.0.3", port);
    } else {
        service.calls++;
        pthread_cond_broadcast(&service.moved);
        while (service.hangs)
            pthread_cond_wait(&service.moved, &service.lock);
        *ret = service.name;
        service.back++;
    }
    pthread_cond_broadcast(&service.moved);
    pthread_mutex_unlock(&service.lock);
}

/* Sets the answer from now on. */
static void name_is(enum tern_err err, const char *first, const char *second)
{
    pthread_mutex_lock(&service.lock);
    service.name = (struct resolve_answer){.err = err};
    if (err != TERN_OK)
        snprintf(service.name.text, sizeof service.name.text, "%s", first);
    else
        put(&service.name, first, 1);
    if (second)
        put(&service.name, second, 1);
    pthread_mutex_unlock(&service.lock);
}

static void set_hangs(bool hangs)
{
    pthread_mutex_lock(&service.lock);
    service.hangs = hangs;
    pthread_cond_broadcast(&service.moved);
    pthread_mutex_unlock(&service.lock);
}

static uint32_t calls(void)
{
    uint32_t n;

    pthread_mutex_lock(&service.lock);
    n = service.calls;
    pthread_mutex_unlock(&service.lock);
    return n;
}

/* Waits until so many lookups of name.test have begun, and so many are over. */
static void until(uint32_t begun, uint32_t over)
{
    pthread_mutex_lock(&service.lock);
    while (service.calls < begun || service.back < over)
        pthread_cond_wait(&service.moved, &service.lock);
    pthread_mutex_unlock(&service.lock);
}

static struct peer_link *link_of(uint32_t peer)
{
    return &d.links.v[peer];
}

/* Runs until the peer's lookup is over: the links get the answers. */
static void settle(uint32_t peer)
{
    while (link_of(peer)->state == PEER_LINK_RESOLVING)
        io_run(d.io, UINT64_MAX);
}

/* Moves the time to the peer's next attempt. */
static void next_try(uint32_t peer)
{
    assert_int_equal(link_of(peer)->state, PEER_LINK_IDLE);
    now_ns = d.links.due_ns[peer];
    io_run(d.io, 0);
    links_tick(&d, now_ns);
    settle(peer);
}

static void refuse(uint32_t peer)
{
    struct io_op *op = connects[peer].op;

    assert_non_null(op);
    connects[peer].op = NULL;
    op->done(op, -ECONNREFUSED, IO_LAST, 0);
}

/* A listener answers there. */
static void accept_dial(uint32_t peer)
{
    struct io_op *op = connects[peer].op;

    assert_non_null(op);
    connects[peer].op = NULL;
    op->done(op, 0, IO_LAST, 0);
    assert_int_equal(link_of(peer)->state, PEER_LINK_GREETING);
}

static void hang_up(uint32_t peer)
{
    struct stream *s = &link_of(peer)->stream;

    s->ops->closed(s, "closed by the other side");
    close(s->fd);
    s->ops->finished(s);
}

static void assert_dialled(uint32_t peer, const char *address)
{
    assert_int_equal(link_of(peer)->state, PEER_LINK_DIALLING);
    assert_non_null(connects[peer].op);
    assert_string_equal(connects[peer].to, address);
}

/* The other peers are dialled, and their connects stay under way. */
static void others_dial(void)
{
    settle(OTHER);
    assert_dialled(OTHER, "127.0.0.3");
    assert_dialled(NUMBER, "127.0.0.9");
    d.links.due_ns[OTHER] = d.links.due_ns[NUMBER] = UINT64_MAX;
}

static void assert_trouble(uint32_t peer, const char *words)
{
    const struct peer_link *l = &d.links.v[peer];

    assert_string_equal(l->cause, words);
    assert_true(l->attempts > 0 && l->down_ns > 0);
}

/* Number of occurrences of the words in the log. */
static uint32_t times_logged(const char *words)
{
    uint32_t found = 0;

    for (const char *at = logged_so_far(); (at = strstr(at, words)) != NULL; at++)
        found++;
    return found;
}

FIXTURE(start)
{
    static const char *const hosts[PEERS] = {"127.0.0.9", "name.test", "other.test"};
    static const char *const names[PEERS] = {"number", "name", "other"};
    const struct io_config ring = {.entries = 8};
    const char *unused;
    char why[256];

    memset(&config, 0, sizeof config);
    memset(&d, 0, sizeof d);
    memset(connects, 0, sizeof connects);
    service.calls = service.back = 0;
    service.hangs = false;
    config.npeers = PEERS;
    for (uint32_t i = 0; i < PEERS; i++) {
        strcpy(config.peers[i].name, names[i]);
        strcpy(config.peers[i].address.host, hosts[i]);
        config.peers[i].address.port = 1;
    }
    d.config = &config;
    d.incarnation = 7;
    d.frame = frame;
    d.queue = (struct event_queue){.v = queue, .cap = sizeof queue / sizeof *queue};
    strcpy(config.node, "self");
    d.limits.peers = d.limits.links = PEERS;
    now_ns = 1000 * (uint64_t)SECOND;
    log_start(LEVEL_WARN);
    if (io_create(&ring, &d.io, &unused) != TERN_OK)
        return -1;
    return links_init(&d, why, sizeof why) == TERN_OK ? 0 : -1;
}

FIXTURE(stop)
{
    links_names_finish(&d);
    links_finish(&d);
    io_destroy(d.io);
    return log_stop();
}

/* A round tries every address of the answer, one at a time; then the name is looked up again, and a
 * moved peer is found. A numeric address is dialled at once, without a lookup. */
TEST_WITH(a_name_is_asked_for_before_each_round, start, stop)
{
    name_is(TERN_OK, "127.0.0.1", "127.0.0.2");
    links_tick(&d, now_ns);
    assert_dialled(NUMBER, "127.0.0.9");
    settle(NAME);
    assert_dialled(NAME, "127.0.0.1");
    assert_false(pthread_equal(service.by, pthread_self()));
    refuse(NAME);
    assert_trouble(NAME, "Connection refused");
    next_try(NAME);
    assert_dialled(NAME, "127.0.0.2");
    assert_int_equal(calls(), 1);
    refuse(NAME);
    name_is(TERN_OK, "127.0.0.7", NULL);
    next_try(NAME);
    assert_dialled(NAME, "127.0.0.7");
    assert_int_equal(calls(), 2);
    refuse(NUMBER);
    next_try(NUMBER);
    assert_dialled(NUMBER, "127.0.0.9");
}

/* After the loss of a link the name's present answer counts, not the former one. A link that never
 * came up, because another node answers there, does not discredit the other addresses. */
TEST_WITH(a_lost_link_asks_anew, start, stop)
{
    name_is(TERN_OK, "127.0.0.1", "127.0.0.2");
    links_tick(&d, now_ns);
    settle(NAME);
    accept_dial(NAME);
    hang_up(NAME);
    next_try(NAME);
    assert_dialled(NAME, "127.0.0.2");
    assert_int_equal(calls(), 1);
    accept_dial(NAME);
    link_of(NAME)->state = PEER_LINK_UP;
    name_is(TERN_OK, "127.0.0.7", "127.0.0.8");
    hang_up(NAME);
    next_try(NAME);
    assert_int_equal(calls(), 2);
    assert_dialled(NAME, "127.0.0.7");
    accept_dial(NAME);
    link_of(NAME)->state = PEER_LINK_UP; /* at the first of two */
    name_is(TERN_OK, "127.0.0.9", NULL);
    hang_up(NAME);
    next_try(NAME);
    assert_int_equal(calls(), 3);
    assert_dialled(NAME, "127.0.0.9");
}

/* An unknown name: reported once, tried again with a growing pause, and found when it is known. */
TEST_WITH(a_name_that_is_not_known_yet_is_asked_for_again, start, stop)
{
    uint64_t pause = 0;

    name_is(TERN_INVALID, "Name or service not known", NULL);
    links_tick(&d, now_ns);
    others_dial();
    settle(NAME);
    for (uint32_t i = 0; i < 10; i++) {
        uint64_t wait = d.links.due_ns[NAME] - now_ns;

        assert_int_equal(link_of(NAME)->attempts, i + 1);
        assert_true(wait <= LINK_REDIAL_MAX_NS + LINK_REDIAL_MAX_NS / 4);
        pause = wait > pause ? wait : pause;
        assert_trouble(NAME, "the name does not resolve: Name or service not known");
        next_try(NAME);
    }
    assert_true(pause >= LINK_REDIAL_MAX_NS - LINK_REDIAL_MAX_NS / 4);
    assert_int_equal(connects[NAME].n, 0);
    assert_int_equal(
        times_logged("level=warn event=resolve_failed peer=name host=name.test err=INVALID "
                     "reason=\"Name or service not known\""),
        1);
    name_is(TERN_OK, "127.0.0.1", NULL);
    next_try(NAME);
    assert_dialled(NAME, "127.0.0.1");
    refuse(NAME);
    assert_trouble(NAME, "Connection refused");
}

/* Without an answer, the last addresses stay valid. After the answer that the name does not exist,
 * they are dropped. */
TEST_WITH(a_silent_name_service_leaves_the_last_addresses, start, stop)
{
    name_is(TERN_OK, "127.0.0.1", NULL);
    links_tick(&d, now_ns);
    settle(NAME);
    refuse(NAME);
    name_is(TERN_TIMED_OUT, "Temporary failure", NULL);
    for (uint32_t i = 0; i < 3; i++) {
        next_try(NAME);
        assert_dialled(NAME, "127.0.0.1");
        refuse(NAME);
        assert_trouble(NAME, "Connection refused; the name does not resolve: Temporary failure");
    }
    assert_int_equal(calls(), 4);
    assert_int_equal(times_logged("event=resolve_failed"), 1);
    assert_int_equal(times_logged("err=TIMED_OUT reason=\"Temporary failure\""), 1);
    name_is(TERN_INVALID, "no such name", NULL);
    next_try(NAME);
    assert_int_equal(link_of(NAME)->state, PEER_LINK_IDLE);
    assert_trouble(NAME, "the name does not resolve: no such name");
    name_is(TERN_TIMED_OUT, "Temporary failure", NULL);
    next_try(NAME);
    assert_int_equal(connects[NAME].n, 4);
    assert_trouble(NAME, "the name does not resolve: Temporary failure");
}

/* The link was up a moment ago, so its addresses are good, and the wait for an answer is short.
 * They fail, so the lookup has its whole time again: a slow answer still counts. */
TEST_WITH(a_lost_link_does_not_wait_for_a_silent_name_service, start, stop)
{
    name_is(TERN_OK, "127.0.0.1", NULL);
    links_tick(&d, now_ns);
    others_dial();
    settle(NAME);
    accept_dial(NAME);
    link_of(NAME)->state = PEER_LINK_UP;
    set_hangs(true);
    hang_up(NAME);
    now_ns = d.links.due_ns[NAME];
    links_tick(&d, now_ns);
    until(2, 1);
    now_ns += LINK_RESOLVE_AGAIN_NS - 1;
    links_tick(&d, now_ns);
    assert_int_equal(link_of(NAME)->state, PEER_LINK_RESOLVING);
    links_tick(&d, ++now_ns);
    assert_dialled(NAME, "127.0.0.1");
    refuse(NAME);
    next_try(NAME); /* the abandoned lookup is still under way: no other begins */
    assert_dialled(NAME, "127.0.0.1");
    assert_int_equal(calls(), 2);
    refuse(NAME);
    set_hangs(false);
    until(2, 2);
    set_hangs(true);
    while (calls() == 2) { /* its thread may not have returned yet */
        now_ns = d.links.due_ns[NAME];
        io_run(d.io, 0);
        links_tick(&d, now_ns);
        if (link_of(NAME)->state == PEER_LINK_DIALLING)
            refuse(NAME);
        else
            until(3, 2);
    }
    now_ns += LINK_RESOLVE_NS - 1;
    links_tick(&d, now_ns);
    assert_int_equal(link_of(NAME)->state, PEER_LINK_RESOLVING);
    name_is(TERN_OK, "127.0.0.7", NULL);
    set_hangs(false);
    settle(NAME);
    assert_dialled(NAME, "127.0.0.7");
}

/* A lookup that hangs has a deadline, is not begun a second time, and delays no other peer. */
TEST_WITH(a_lookup_that_hangs_is_given_up, start, stop)
{
    set_hangs(true);
    name_is(TERN_OK, "127.0.0.1", NULL);
    links_tick(&d, now_ns);
    others_dial();
    until(1, 0);
    now_ns += LINK_RESOLVE_NS - 1;
    links_tick(&d, now_ns);
    assert_int_equal(link_of(NAME)->state, PEER_LINK_RESOLVING);
    links_tick(&d, ++now_ns);
    assert_int_equal(link_of(NAME)->state, PEER_LINK_IDLE);
    assert_trouble(NAME, "the name does not resolve: no answer from the name service");
    assert_int_equal(times_logged("event=resolve_failed peer=name host=name.test err=TIMED_OUT"),
                     1);
    for (uint32_t i = 0; i < 3; i++)
        next_try(NAME);
    assert_int_equal(link_of(NAME)->attempts, 4);
    assert_int_equal(calls(), 1);
    set_hangs(false);
    until(1, 1);
    while (calls() == 1) /* its thread may not have returned yet */
        next_try(NAME);
    assert_dialled(NAME, "127.0.0.1");
}
