/* Pages belong to the link that was offered them: the daemon lets in two peers, played by raw
 * sockets, and both may ask for the tenant, yet neither gets a page of the other's transfer on its
 * own data connection. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/core.h"
#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/engine.h"
#include "rig_daemon.h"
#include "seam/xfer/flow/data_wire.h"
#include "testing/test.h"

#define L        64
#define PAGE     4096
#define PAGES    4
#define TOKENS   (PAGES * L)
#define SEED     7u                    /* of page i: SEED + i */
#define SUMS_AT  (XFER_HEAD_BYTES + 8) /* the status of one page is padded to 8 bytes */
#define PAGE_AT  (SUMS_AT + 8)
#define ANSWERED (PAGE_AT + PAGE + XFER_TAIL_BYTES)

static struct daemon rig;
static struct rig_answer answer;
static struct engine e;
static struct tern *admin;
static int listener; /* where the daemon dials the peer "one" */

/* The daemon's question to "one" when the engine fetched from there. Its tenant, namespace, layout
 * and tokens are right, so sending it back asks for the same prefix. */
static struct rig_answer asked;

/* A peer that was let in. */
struct peer {
    int fd;
    uint64_t incarnation, token; /* the daemon's, for a data connection */
};

/* ---- the daemon, its engine and the commit ---- */

/* Greets the daemon that dialled, lets it ask, and closes. */
static void note_question(tern_session s)
{
    struct tern_answer a;
    int fd = rig_accept_fresh(listener);

    rig_answer_hello(fd, "one", 1, false);
    assert_true(admin_wait_peer(admin, "one", RIG_WAIT_MS));
    assert_int_equal(tern_submit_fetch(
                         e.tern, s, &(struct tern_fetch){.peer = "one", .step = TERN_STEP_NONE}, 1),
                     TERN_OK);
    do
        assert_int_equal(rig_read(fd, RIG_WAIT_MS, &asked), RIG_FRAME);
    while (asked.h.type == FRAME_PING);
    close(fd);
    assert_int_equal(answer_wait(e.tern, RIG_WAIT_MS, &a), TERN_OK);
    assert_int_equal(a.err, TERN_PEER_LOST);
}

static void commit_pages(void)
{
    struct engine_session s;
    uint32_t v[TOKENS];

    for (uint32_t i = 0; i < TOKENS; i++)
        v[i] = i;
    e = rig_engine(rig.socket, "e", L, 256 * PAGE);
    assert_ok(e.tern, engine_begin(&s, &e, v, TOKENS));
    note_question(s.id);
    assert_ok(e.tern, engine_extend(&s, TOKENS, TOKENS));
    assert_true(table_covers(&s.table, TOKENS));
    for (uint32_t i = 0; i < PAGES; i++)
        page_fill(engine_page(&e, 0, s.table.group[0].index[i]), PAGE, SEED + i);
    assert_ok(e.tern, engine_commit(&s, TOKENS));
    assert_int_equal(s.len.committed, TOKENS);
    engine_free(&s);
}

FIXTURE(start)
{
    char extra[512];
    uint16_t port = 0;

    listener = rig_listen(&port);
    snprintf(extra, sizeof(extra),
             "listen: 127.0.0.1:0\ninsecure_peers: true\npeers:\n"
             "  - {name: one, address: \"127.0.0.1:%u\", tenants: [t0]}\n"
             "  - {name: two, address: \"127.0.0.1:1\", tenants: [t0]}\n",
             port);
    rig_start(&rig, extra, NULL);
    admin = rig_connected(rig.admin);
    commit_pages();
    return 0;
}

FIXTURE(stop)
{
    engine_close(&e);
    tern_destroy(admin);
    close(listener);
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

/* ---- actions of a peer ---- */

static struct peer comes_in(const char *node)
{
    struct peer p = {.fd = rig_peer_dials(&rig, node, &answer)};
    const Tern__Wire__PeerHelloReply *m = rig_decoded(&answer, FRAME_PEER_HELLO_REPLY);

    assert_null(m->status);
    p.incarnation = m->incarnation;
    p.token = m->data_token;
    assert_true(p.token != 0);
    return p;
}

/* Asks for the prefix that the engine committed, and gets its pages offered. */
static uint64_t opens_pull(const struct peer *p, struct page_ref ret_ref[PAGES])
{
    const Tern__Wire__PeerMsg *offer = rig_decoded(&asked, FRAME_PEER_MSG);
    Tern__Wire__PeerMsg question = *offer;

    assert_int_equal(question.kind, PEER_PULL_OPEN);
    question.sequence = 1;
    assert_true(rig_message(p->fd, FRAME_PEER_MSG, 0, 0, &question.base));
    assert_int_equal(rig_read(p->fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    offer = rig_decoded(&answer, FRAME_PEER_MSG);
    assert_int_equal(offer->kind, PEER_PULL_OFFER);
    assert_int_equal(offer->err, TERN_OK);
    assert_int_equal(offer->to, TOKENS);
    assert_int_equal(offer->n_runs, 1);
    assert_int_equal(offer->runs[0]->refs.len, PAGES * WIRE_REF_BYTES);
    memcpy(ret_ref, offer->runs[0]->refs.data, PAGES * WIRE_REF_BYTES);
    return offer->serve;
}

/* Asks for one page of that serve on a data connection of its own. Returns the bytes that arrived
 * before the connection was closed or the answer complete. */
static size_t asks_for_page(const struct peer *p, uint64_t serve, struct page_ref ref,
                            uint8_t ret_bytes[ANSWERED])
{
    uint8_t said[2 * XFER_HEAD_BYTES + XFER_ENTRY_BYTES];
    int fd = rig_connect_tcp(rig.data_port);
    struct pollfd pf = {.fd = fd, .events = POLLIN};
    size_t n = 0;

    xfer_put_head(said,
                  &(struct xfer_head){.type = XFER_HELLO, .a = p->incarnation, .b = p->token});
    xfer_put_head(said + XFER_HEAD_BYTES,
                  &(struct xfer_head){.type = XFER_REQUEST, .n = 1, .seq = 1, .a = serve, .b = 1});
    xfer_put_entry(said + 2 * XFER_HEAD_BYTES,
                   &(struct xfer_entry){.group = 0, .index = ref.index, .gen = ref.gen});
    assert_true(rig_write(fd, said, sizeof(said)));
    while (n < ANSWERED) {
        ssize_t got;

        assert_int_equal(poll(&pf, 1, RIG_AT_ONCE_MS), 1); /* an answer or the end, never silence */
        got = recv(fd, ret_bytes + n, ANSWERED - n, 0);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    close(fd);
    return n;
}

static void gets_page(const struct peer *p, uint64_t serve, const struct page_ref *ref, uint32_t i)
{
    static uint8_t bytes[ANSWERED] __attribute__((aligned(8)));
    uint64_t stale[XFER_MASK_WORDS];
    struct xfer_head head;

    assert_int_equal(asks_for_page(p, serve, ref[i], bytes), ANSWERED);
    assert_true(xfer_get_head(bytes, &head));
    assert_int_equal(head.type, XFER_ANSWER);
    assert_int_equal(head.a, PAGE);
    assert_int_equal(xfer_get32(bytes + XFER_HEAD_BYTES), TERN_OK);
    assert_int_equal(page_compare(bytes + PAGE_AT, PAGE, SEED + i), 0);
    assert_true(xfer_get_tail(bytes + PAGE_AT + PAGE, 1, stale));
    assert_int_equal(stale[0], 0);
}

static uint64_t figure(const char *path)
{
    return rig_figure(admin, "status", path);
}

/* ---- the test ---- */

TEST_GROUP(start, stop);

TEST(pages_of_another_peers_transfer_are_refused)
{
    static uint8_t bytes[ANSWERED] __attribute__((aligned(8)));
    struct page_ref of_one[PAGES], of_two[PAGES];
    struct peer one = comes_in("one"), two = comes_in("two");
    uint64_t serve_one = opens_pull(&one, of_one), serve_two = opens_pull(&two, of_two);

    assert_true(serve_one != serve_two);
    gets_page(&two, serve_two, of_two, 0); /* it was let in, and is served its own offer */
    assert_int_equal(figure("data.refused"), 0);
    assert_int_equal(figure("data.pages_out"), 1);
    for (uint32_t i = 0; i < PAGES; i++) {
        assert_int_equal(asks_for_page(&two, serve_one, of_one[i], bytes), 0);
        assert_int_equal(figure("data.refused"), i + 1);
    }
    assert_int_equal(asks_for_page(&one, serve_two, of_two[0], bytes), 0);
    assert_int_equal(figure("data.refused"), PAGES + 1);
    assert_int_equal(figure("data.pages_out"), 1);
    assert_int_equal(figure("data.payload_bytes_out"), PAGE);
    assert_true(rig_log_has(&rig, "event=data_refused", RIG_WAIT_MS));
    for (uint32_t i = 0; i < PAGES; i++)
        gets_page(&one, serve_one, of_one, i); /* the owner of the transfer gets all of it */
    gets_page(&two, serve_two, of_two, 1);
    assert_int_equal(figure("data.refused"), PAGES + 1);
    close(one.fd);
    close(two.fd);
}
