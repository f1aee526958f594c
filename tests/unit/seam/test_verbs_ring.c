/* Rings in host memory, for pages of GPUs, with a device that is played here: what its windows
 * open, how many slots each peer gets and for how long, and that the bytes reach their places. Host
 * memory poses as GPU memory: only the NIC's part differs. */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seam/xfer/tcp/tcp.h"
#include "seam/xfer/verbs/verbs.h"
#include "testing/test.h"
#include "unit/rig/rig_mrs.h"

#define MIB     ((uint64_t)1 << 20)
#define LINKS   3u
#define REGIONS 2u
#define MEMORY  (128 * MIB) /* of each region */
#define SMALL   0u          /* groups */
#define LARGE   1u
#define BIG     2u
#define HUGE    3u
#define LANE                                                                                       \
    {                                                                                              \
        .queue = {NONE}, .path = { {.conn = NONE} }                                                \
    }

static const struct group_layout groups[] = {
    [SMALL] = {.page_tokens = 64, .units = 1, .page_bytes = 4096},
    [LARGE] = {.page_tokens = 64, .units = 1, .page_bytes = 5 * MIB / 4}, /* 2.5 MiB: 3 slots */
    [BIG] = {.page_tokens = 64, .units = 1, .page_bytes = 9 * MIB},   /* 18: more than a share */
    [HUGE] = {.page_tokens = 64, .units = 1, .page_bytes = 17 * MIB}, /* more than a ring has */
};

/* ------------------------------------------------------------------ the device */

static int ring_error;

static int registration_error(const struct registration *r)
{
    (void)r;
    return ring_error;
}

static struct {
    uint64_t addr, length;
} window[VERBS_MWS];
static uint32_t bound, closed;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp, (void)bad;
    for (; wr; wr = wr->next) {
        if (wr->opcode == IBV_WR_BIND_MW && bound < VERBS_MWS) {
            window[bound].addr = wr->bind_mw.bind_info.addr;
            window[bound].length = wr->bind_mw.bind_info.length;
        }
        bound += wr->opcode == IBV_WR_BIND_MW;
        closed += wr->opcode == IBV_WR_LOCAL_INV;
    }
    return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)qp, (void)wr, (void)bad;
    return 0;
}

static struct io_task *given; /* the last one handed to the data threads */

void __wrap_io_threads_submit(struct io_threads *t, struct io_task *task, enum io_task_kind kind,
                              uint32_t lane, int fd);

void __wrap_io_threads_submit(struct io_threads *t, struct io_task *task, enum io_task_kind kind,
                              uint32_t lane, int fd)
{
    (void)t, (void)kind, (void)lane, (void)fd;
    given = task;
}

/* ------------------------------------------------------------------ the rig */

static struct mem *mem;
static struct xfer xfer;
static struct verbs v;
static struct xfer_link peers[LINKS];
static struct verbs_link links[LINKS];
static struct xfer_pull pull;
static struct batch batch;
static struct data_conn conn;
static struct data_conns conns = {.conn = &conn};
static struct verbs_path paths[LINKS];
static struct verbs_domain domain;
static struct ibv_context ctx;
static struct ibv_pd pd;
static struct ibv_qp qp;
static struct ibv_mw mws[LINKS][VERBS_MWS];
static const struct verbs_ring *ring = &v.ring[0];

static void make_memory(void)
{
    struct mem_config m = {.tenants = 1,
                           .tenant = {{.memory_bytes = MEMORY, .regions = REGIONS}},
                           .engines = 1,
                           .pools = 1,
                           .page_records = 8,
                           .page_bytes_min = 4096,
                           .sums_per_page = REGIONS,
                           .workers = 1,
                           .jobs = 4,
                           .incarnation = 1};
    const char *why = "";

    if (mem_create(&m, &mem, &why) != TERN_OK)
        fail_msg("%s", why);
    mem_pool_set(mem, 0, TIER_DEVICE, 0, 0, MEMORY, REGIONS, NULL, REGIONS, 4, groups);
}

static void make_paths(void)
{
    for (uint32_t i = 0; i < LINKS; i++) {
        peers[i] = (struct xfer_link){.lane = {LANE, LANE}};
        links[i] = (struct verbs_link){0};
        paths[i] = (struct verbs_path){.state = PATH_READY,
                                       .wanted = true,
                                       .link = i,
                                       .epoch = 1,
                                       .qp = &qp,
                                       .mws_free = ~(uint64_t)0 >> (64 - VERBS_MWS)};
        for (uint32_t k = 0; k < VERBS_MWS; k++)
            paths[i].mw[k] = &mws[i][k];
        assert_true(link_pieces(&v, i));
    }
}

/* A link to each of some pushing peers, with a path each, over one rail. */
FIXTURE(begin)
{
    make_memory();
    bound = closed = 0;
    ring_error = 0;
    given = NULL;
    ctx.ops.post_send = post_send;
    ctx.ops.post_recv = post_recv;
    qp.context = &ctx;
    pull = (struct xfer_pull){.state = XFER_PULL_ACTIVE};
    batch = (struct batch){.state = BATCH_ASKED, .n = 1, .asked = 1};
    conn = (struct data_conn){.xfer = &xfer};
    xfer = (struct xfer){
        .link = peers,
        .pull = &pull,
        .batch = &batch,
        .conns = &conns,
        .ntransports = 2,
        .transport = {{&verbs_transport, &xfer, 0, &v}, {&tcp_transport, &xfer, 1, &conns}}};
    xfer.config = (struct xfer_config){
        .mem = mem, .links = LINKS, .pulls = 1, .data_conns_max = 1, .rdma.pulls = LINKS};
    v = (struct verbs){.xfer = &xfer,
                       .transport = &xfer.transport[0],
                       .nrails = 1,
                       .rails = 1,
                       .tenants = 1,
                       .npaths = LINKS,
                       .path = paths,
                       .link = links,
                       .piece_sums = 64};
    domain = (struct verbs_domain){.pd = &pd, .far = true};
    v.rail[0] = (struct verbs_rail){.v = &v, .domain = &domain, .max_msg = 1u << 30};
    v.rail[0].view.completion_queue = 4096;
    v.rail[0].view.memory_windows = true;
    make_paths();
    ring_open(&v, &v.rail[0], 0);
    assert_non_null(domain.ring.mr);
    return 0;
}

FIXTURE(end)
{
    for (uint32_t i = 0; i < LINKS; i++) {
        for (uint32_t k = 0; k < VERBS_PIECES; k++)
            free(links[i].piece[k].sums);
        free(links[i].piece);
    }
    (void)ibv_dereg_mr(domain.ring.mr);
    rings_close(&v);
    mem_destroy(mem);
    return 0;
}

TEST_EACH(begin, end);

/* A piece of n pages of the batch that waits for a push over its link. */
static struct verbs_piece *piece_waits(uint32_t link, uint32_t i, uint32_t group, uint32_t n)
{
    struct verbs_piece *piece = piece_of(&v, link, i);

    for (uint32_t k = 0; k < n; k++) {
        batch.page[k] = (struct page_at){.group = group, .index = 1 + k, .record = k};
        batch.span[k] = (struct batch_span){.page = (uint16_t)k, .n = 1};
    }
    batch.n = batch.asked = n;
    *piece = (struct verbs_piece){.state = PIECE_WAITING,
                                  .answered = true,
                                  .n = n,
                                  .tries = 1,
                                  .v = &v,
                                  .link = link,
                                  .task = piece->task,
                                  .sums = piece->sums};
    pieces_start(&v, link);
    return piece;
}

static void completes(struct verbs_path *p)
{
    p->completed = p->posted;
    pieces_done(&v, p);
    verbs_run(&v);
}

static uint32_t taken(void)
{
    return (uint32_t)__builtin_popcountll(ring->taken);
}

TEST(verbs_ring_windows_open_slots_in_place_of_pages)
{
    struct verbs_piece *piece = piece_waits(0, 0, SMALL, 2);

    assert_int_equal(piece->state, PIECE_BINDING);
    assert_int_equal(bound, 1);
    assert_true(window[0].addr == (uintptr_t)ring->base);
    assert_int_equal(window[0].length, 2 * REGIONS * groups[SMALL].page_bytes);
    assert_int_equal(piece->slots, 1);
    assert_int_equal(pull.holds, 1);
}

/* Slots that lie apart are a run each, and the last one is opened only as far as needed. */
TEST(verbs_ring_slots_of_a_piece_may_lie_apart)
{
    struct verbs_piece *piece;

    piece_waits(0, 0, SMALL, 1);
    piece_waits(0, 1, SMALL, 1);
    completes(&paths[0]);
    piece_drop(&v, piece_of(&v, 0, 0)); /* its windows close, and slot 0 is free */
    completes(&paths[0]);
    assert_int_equal(ring->taken, 2);
    bound = 0;
    piece = piece_waits(1, 0, LARGE, 1);
    assert_int_equal(piece->slots, 1 | 4 | 8);
    assert_int_equal(bound, 2);
    assert_true(window[0].addr == (uintptr_t)ring->base);
    assert_int_equal(window[0].length, MIB);
    assert_true(window[1].addr == (uintptr_t)ring->base + 2 * MIB);
    assert_int_equal(window[1].length, 3 * MIB / 2);
}

/* The piece has arrived: requested, granted, written, its windows closed, and confirmed. */
static void comes(struct verbs_piece *piece)
{
    struct verbs_path *p = &v.path[piece->path];
    struct ibv_wc wc = {.opcode = IBV_WC_RECV_RDMA_WITH_IMM, .status = IBV_WC_SUCCESS};
    const uint64_t none_stale[XFER_MASK_WORDS] = {0};

    completes(p);
    assert_int_equal(piece->state, PIECE_BOUND);
    push_asked(piece);
    piece->answered = true;
    push_answered(&v, piece, true);
    wc.imm_data = htonl(piece->seq);
    push_received(&v, p, &wc);
    assert_int_equal(piece->state, PIECE_CLOSING);
    completes(p);
    assert_int_equal(piece->state, PIECE_CLOSED);
    piece_state_move(&piece->state, PIECE_CONFIRMING);
    piece_verify(&v, piece, none_stale);
    assert_ptr_equal(given, &piece->task);
}

static void *work(void *task)
{
    assert_false(((struct io_task *)task)->work(task, 0));
    return NULL;
}

static void on_a_thread(struct io_task *task)
{
    pthread_t worker;

    assert_int_equal(pthread_create(&worker, NULL, work, task), 0);
    pthread_join(worker, NULL);
}

/* The peer's write: region after region, page after page, with their checksums. */
static void peer_writes(struct verbs_piece *piece, uint32_t group)
{
    const uint64_t bytes = groups[group].page_bytes, all = REGIONS * piece->n * bytes;
    uint8_t *what = malloc(all);
    uint64_t n;

    assert_non_null(what);
    for (uint64_t i = 0; i < all; i++)
        what[i] = (uint8_t)(i % 251 + i / bytes);
    for (uint64_t at = 0; at < all; at += n) {
        uint8_t *to = ring_at(&v, 0, piece->slots, at, &n);

        n = n < all - at ? n : all - at;
        memcpy(to, what + at, n);
    }
    for (uint32_t i = 0; i < piece->n; i++)
        for (uint32_t r = 0; r < REGIONS; r++)
            piece->sums[i * REGIONS + r] = checksum_unit(what + (r * piece->n + i) * bytes, bytes);
    free(what);
}

/* A slot belongs to its piece until its copy has ended, and then to another one. */
TEST(verbs_ring_pieces_keep_their_slots_until_they_are_copied)
{
    static const uint32_t kinds[] = {SMALL, LARGE};

    for (uint32_t k = 0; k < 2; k++) {
        uint32_t n = 3 - k, slots = k == 0 ? 1 : 5;
        struct verbs_piece *piece = piece_waits(0, 0, kinds[k], n);

        assert_int_equal(taken(), slots);
        peer_writes(piece, kinds[k]);
        comes(piece);
        assert_int_equal(xfer.stats.windows_open, 0);
        assert_int_equal(taken(), slots);
        on_a_thread(given);
        assert_int_equal(piece->right[0], (1u << n) - 1);
        assert_int_equal(taken(), slots);
        piece->batch = NONE; /* its pull has ended: the report does not matter here */
        given->done(given, 0);
        assert_int_equal(piece->state, PIECE_FREE);
        assert_int_equal(taken(), 0);
        assert_int_equal(pull.holds, 0);
    }
}

/* Only the end of the queue pair proves that nothing writes to them. */
TEST(verbs_ring_slots_of_a_path_that_fails_wait_for_its_end)
{
    struct verbs_piece *piece = piece_waits(0, 0, LARGE, 1);

    path_state_move(&paths[0].state, PATH_STOPPING);
    pieces_lost(&v, &paths[0]);
    verbs_run(&v);
    assert_int_equal(piece->state, PIECE_WAITING);
    piece_drop(&v, piece);
    assert_int_equal(taken(), 3);
    paths[0].completed = paths[0].posted;
    pieces_ended(&v, &paths[0]);
    verbs_run(&v);
    assert_int_equal(piece->state, PIECE_FREE);
    assert_int_equal(taken(), 0);
}

/* One peer gets its share, however much is free. Freed slots go to the link's own pieces first,
 * then to those of others. */
TEST(verbs_ring_is_shared_by_peers)
{
    for (uint32_t i = 0; i < 6; i++)
        piece_waits(0, i, LARGE, 1);
    assert_int_equal(taken(), 15);
    assert_int_equal(piece_of(&v, 0, 5)->state, PIECE_WAITING);
    for (uint32_t i = 0; i < 6; i++)
        piece_waits(1, i, LARGE, 1);
    assert_int_equal(taken(), 30);
    assert_int_equal(piece_waits(2, 0, LARGE, 1)->state, PIECE_WAITING);
    completes(&paths[0]);
    piece_drop(&v, piece_of(&v, 0, 0)); /* its windows close */
    completes(&paths[0]);
    assert_int_equal(piece_of(&v, 0, 5)->state, PIECE_BINDING);
    assert_int_equal(piece_of(&v, 2, 0)->state, PIECE_WAITING);
    piece_drop(&v, piece_of(&v, 0, 1));
    completes(&paths[0]);
    assert_int_equal(piece_of(&v, 2, 0)->state, PIECE_BINDING);
    assert_int_equal(piece_of(&v, 1, 5)->state, PIECE_WAITING);
    assert_int_equal(taken(), 30);
}

TEST(verbs_ring_pages_that_never_fit_are_told_from_those_that_wait)
{
    struct verbs_piece *piece = piece_of(&v, 0, 1);
    bool most;

    batch.page[0] = (struct page_at){.group = HUGE, .index = 1};
    assert_int_equal(push_fit(&v, &paths[0], 0, 0, 1, piece, &most), 0);
    assert_true(most);
    piece_waits(0, 0, SMALL, 1);
    batch.page[0] = (struct page_at){.group = HUGE, .index = 1};
    assert_int_equal(push_fit(&v, &paths[0], 0, 0, 1, piece, &most), 0);
    assert_false(most);
}

TEST(verbs_ring_page_larger_than_a_share_goes_alone)
{
    assert_int_equal(piece_waits(0, 0, SMALL, 1)->state, PIECE_BINDING);
    assert_int_equal(piece_waits(0, 1, BIG, 1)->state, PIECE_WAITING);
    assert_int_equal(piece_waits(1, 0, BIG, 1)->state, PIECE_BINDING);
    assert_int_equal(taken(), 1 + 18);
    assert_int_equal(piece_waits(1, 1, SMALL, 1)->state, PIECE_WAITING);
}
