/* Pieces of pushes at the destination, with a device that is played here: the events that let a
 * piece continue, and those that free it. The simulator reaches these states too seldom. */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seam/xfer/tcp/tcp.h"
#include "seam/xfer/verbs/verbs.h"
#include "testing/test.h"

#define PAGE_BYTES   4096u
#define MEMORY_BYTES (1u << 20)
#define PLACES       64u /* of the completion queue */
#define LANE                                                                                       \
    {                                                                                              \
        .queue = {NONE}, .path = { {.conn = NONE} }                                                \
    }

/* ------------------------------------------------------------------ the rig */

static struct mem *mem;
static struct xfer xfer;
static struct verbs v;
static struct xfer_link peer;
static struct verbs_link link_verbs;
static struct xfer_pull pull;
static struct batch batch;
static struct data_conn conn;
static struct data_conns conns;
static struct verbs_path paths[XFER_RAILS_MAX];
static struct verbs_domain domain;
static struct ibv_mr mr;
static struct ibv_context ctx;
static struct ibv_qp qp;
static struct ibv_mw window[VERBS_MWS];
static uint32_t bound;        /* windows, by the device */
static struct ibv_qp pair[2]; /* of two rails */
static struct ibv_mw windows[2][VERBS_MWS];

static int post_send(struct ibv_qp *to, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)to, (void)bad;
    for (; wr; wr = wr->next)
        bound += wr->opcode == IBV_WR_BIND_MW;
    return 0;
}

static int post_recv(struct ibv_qp *to, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)to, (void)wr, (void)bad;
    return 0;
}

static void make_memory(uint32_t regions)
{
    static const struct group_layout group = {
        .page_tokens = 64, .units = 1, .page_bytes = PAGE_BYTES};
    struct mem_config m = {.tenants = 1,
                           .tenant = {{.memory_bytes = MEMORY_BYTES, .regions = regions}},
                           .engines = 1,
                           .pools = 1,
                           .page_records = 8,
                           .page_bytes_min = 4096,
                           .sums_per_page = 2,
                           .workers = 1,
                           .jobs = 4,
                           .incarnation = 1};
    const char *why = "";

    if (mem_create(&m, &mem, &why) != TERN_OK)
        fail_msg("%s", why);
    mem_pool_set(mem, 0, TIER_DEVICE, 0, 0, MEMORY_BYTES, regions, NULL, regions, 1, &group);
    domain = (struct verbs_domain){.n = regions};
    for (uint32_t r = 0; r < regions; r++) {
        domain.mr[r] = (struct verbs_mr){.mr = &mr, .region = r};
        domain.mr[r].base = mem_region_base(mem, 0, r, &domain.mr[r].bytes);
    }
}

/* A link with one ready path, and its rail. */
FIXTURE(start)
{
    make_memory(1);
    memset(paths, 0, sizeof paths);
    bound = 0;
    ctx.ops.post_send = post_send;
    ctx.ops.post_recv = post_recv;
    qp.context = &ctx;
    peer = (struct xfer_link){.lane = {LANE, LANE}};
    pull = (struct xfer_pull){.state = XFER_PULL_ACTIVE};
    batch = (struct batch){.state = BATCH_ASKED, .n = 1, .asked = 1, .page = {{.index = 1}}};
    xfer = (struct xfer){
        .link = &peer,
        .pull = &pull,
        .batch = &batch,
        .conns = &conns,
        .ntransports = 2,
        .transport = {{&verbs_transport, &xfer, 0, &v}, {&tcp_transport, &xfer, 1, &conns}}};
    xfer.config = (struct xfer_config){.mem = mem, .links = 1, .pulls = 1, .rdma.pulls = 1};
    v = (struct verbs){.xfer = &xfer,
                       .transport = &xfer.transport[0],
                       .nrails = 1,
                       .tenants = 1,
                       .npaths = XFER_RAILS_MAX,
                       .path = paths,
                       .link = &link_verbs,
                       .piece_sums = 1};
    v.rail[0] = (struct verbs_rail){.v = &v, .domain = &domain};
    v.rail[0].view.completion_queue = PLACES;
    paths[0] = (struct verbs_path){.state = PATH_READY,
                                   .wanted = true,
                                   .qp = &qp,
                                   .mws_free = ~(uint64_t)0 >> (64 - VERBS_MWS)};
    for (uint32_t i = 0; i < VERBS_MWS; i++)
        paths[0].mw[i] = &window[i];
    return link_pieces(&v, 0) ? 0 : -1;
}

FIXTURE(stop)
{
    for (uint32_t i = 0; i < VERBS_PIECES; i++)
        free(link_verbs.piece[i].sums);
    free(link_verbs.piece);
    mem_destroy(mem);
    return 0;
}

/* ------------------------------------------------------------------ cases */

/* The piece's path is lost, and the completion queue of the next one is full of other paths'
 * requests: when those are done the piece continues, and not at the tick. */
TEST_WITH(verbs_pieces_one_that_waits_goes_on_when_another_path_makes_room, start, stop)
{
    struct verbs_piece *piece = piece_of(&v, 0, 0);
    struct verbs_rail *rail = &v.rail[0];

    *piece = (struct verbs_piece){
        .state = PIECE_WAITING, .answered = true, .n = 1, .tries = 1, .sums = piece->sums};
    rail->cq_used = PLACES - 1; /* a window takes two: for its bind and its close */
    pieces_start(&v, 0);
    assert_int_equal(piece->state, PIECE_WAITING);
    assert_int_equal(bound, 0);
    rail->cq_used = 0;
    rail->cq_freed = true;
    verbs_run(&v);
    assert_int_equal(piece->state, PIECE_BINDING);
    assert_int_equal(bound, 1);
    assert_int_equal(pull.holds, 1);
}

/* A batch of two pieces: one has no try left, and the device may still write the other. The batch
 * begins no more pieces, and moves to TCP when nothing of it is held. */
TEST_WITH(verbs_pieces_of_a_batch_that_is_given_up_begin_no_more, start, stop)
{
    struct verbs_piece *tired = piece_of(&v, 0, 0), *held = piece_of(&v, 0, 1);

    batch = (struct batch){.state = BATCH_QUEUED, .n = 3, .asked = 2, .next = NONE};
    peer.up = true;
    peer.lane[0].queue.head = 0;
    *tired = (struct verbs_piece){.state = PIECE_WAITING,
                                  .answered = true,
                                  .n = 1,
                                  .tries = VERBS_PIECE_TRIES,
                                  .sums = tired->sums};
    *held = (struct verbs_piece){
        .state = PIECE_ASKED, .holds = true, .first = 1, .n = 1, .tries = 1, .sums = held->sums};
    pieces_start(&v, 0);
    assert_int_equal(batch.state, BATCH_ASKED);
    assert_int_equal(batch_in_turn(v.transport, 0, NULL), NONE);
    held->holds = false;
    pieces_start(&v, 0);
    assert_int_equal(batch.state, BATCH_QUEUED);
    assert_int_equal(batch.lane, 1);
    assert_int_equal(batch.asked, 0);
    assert_int_equal(xfer.stats.batches_moved, 1);
}

/* Fault 12: however many places of the completion queue are taken, a piece takes only free ones, or
 * waits: the device never has more completions than the queue has places. */
TEST_WITH(verbs_fault_12_a_completion_queue_never_overruns, start, stop)
{
    uint32_t waited = 0, went = 0, most = 0;

    for (uint32_t used = 0; used <= PLACES; used++) {
        struct verbs_piece *piece = piece_of(&v, 0, 0);
        struct verbs_rail *rail = &v.rail[0];

        *piece = (struct verbs_piece){
            .state = PIECE_WAITING, .answered = true, .n = 1, .tries = 1, .sums = piece->sums};
        rail->cq_used = used;
        pieces_start(&v, 0);
        waited += piece->state == PIECE_WAITING;
        went += piece->state == PIECE_BINDING;
        most = rail->cq_used > most ? rail->cq_used : most;
        assert_true(rail->cq_used <= rail->view.completion_queue);
        stop(state);
        assert_int_equal(start(state), 0);
    }
    assert_int_equal(waited + went, PLACES + 1);
    assert_true(waited > 0 && went > 0);
    printf("fault=12 runs=%u injected=%u violations=0 cq_high_water=%u depth=%u\n", waited + went,
           waited, most, PLACES);
}

/* ------------------------------------------------------------------ regions with rails of their
 * own */

static struct verbs_domain domains[2];

/* Two rails, a region of the pool on each, and a path on each. */
FIXTURE(start_regions)
{
    start(state);
    mem_destroy(mem);
    make_memory(2);
    xfer.config.mem = mem;
    v.nrails = v.rails = 2;
    for (uint32_t r = 0; r < 2; r++) {
        domains[r] = domain;
        pair[r].context = &ctx;
        v.rail[r] = (struct verbs_rail){.v = &v, .domain = &domains[r], .max_msg = 1u << 30};
        v.rail[r].view.completion_queue = PLACES;
        xfer.region[0][r] = (struct xfer_region){.binds = true, .rail = r};
        paths[r] = paths[0];
        paths[r].rail = r;
        paths[r].qp = &pair[r];
        for (uint32_t i = 0; i < VERBS_MWS; i++)
            paths[r].mw[i] = &windows[r][i];
    }
    return 0;
}

/* After the loss of one path the device may still write the pages, so the piece waits for the
 * path's end. Then all of it is requested again over the remaining path. */
TEST_WITH(verbs_pieces_wait_for_the_end_of_a_path_that_was_lost, start_regions, stop)
{
    struct verbs_piece *piece = piece_of(&v, 0, 0);
    struct verbs_path *first;

    *piece = (struct verbs_piece){
        .state = PIECE_WAITING, .answered = true, .n = 1, .link = 0, .sums = piece->sums};
    pieces_start(&v, 0);
    assert_int_equal(piece->state, PIECE_BINDING);
    first = &paths[piece->path];
    path_state_move(&first->state, PATH_STOPPING);
    pieces_lost(&v, first);
    verbs_run(&v);
    assert_int_equal(piece->state, PIECE_WAITING);
    assert_int_equal(pull.holds, 1);
    first->completed = first->posted;
    pieces_done(&v, first);
    verbs_run(&v);
    assert_int_equal(pull.holds, 1); /* a flushed request closes nothing */
    pieces_ended(&v, first);
    verbs_run(&v);
    assert_int_equal(piece->state, PIECE_BINDING);
    assert_ptr_not_equal(&paths[piece->path], first);
    assert_int_equal(piece->nruns, 2);
    assert_int_equal(pull.holds, 1);
}

/* For one region: its rail, even if the other one has more room; any rail without such a region;
 * the other one if its own is lost. */
TEST_WITH(verbs_pieces_prefer_the_rail_of_their_region, start_regions, stop)
{
    paths[1].posted = 1; /* so it comes second if nothing else decides */
    xfer.region[0][0].rail = 1;
    xfer.region[0][1].rail = 1;
    assert_ptr_equal(path_for(&v, 0, 0, NULL), &paths[1]);
    xfer.region[0][1].rail = NONE;
    assert_ptr_equal(path_for(&v, 0, 0, NULL), &paths[0]);
    xfer.region[0][1] = (struct xfer_region){.rail = 1};
    assert_ptr_equal(path_for(&v, 0, 0, NULL), &paths[0]);
    xfer.region[0][1] = xfer.region[0][0];
    paths[1].state = PATH_DRAINING;
    assert_ptr_equal(path_for(&v, 0, 0, NULL), &paths[0]);
}

static void revoke(struct verbs_piece *piece, bool heard)
{
    *piece = (struct verbs_piece){.state = PIECE_CLOSING,
                                  .batch = NONE,
                                  .revoked = true,
                                  .answered = heard,
                                  .sums = piece->sums};
}

/* After a grant is revoked and closed: if its answer had come, the source writes, and the piece
 * waits for that write; else no report of a write can come, so it waits for nothing. */
TEST_WITH(verbs_pieces_of_a_lost_connection_wait_for_what_was_answered, start, stop)
{
    struct verbs_piece *unheard = piece_of(&v, 0, 0), *heard = piece_of(&v, 0, 1);

    revoke(unheard, false);
    revoke(heard, true);
    conn = (struct data_conn){.xfer = &xfer, .transport = &xfer.transport[0], .peer_link = 0};
    verbs_caller.lost(&conn);
    assert_int_equal(unheard->state, PIECE_FREE);
    assert_false(unheard->revoked);
    assert_int_equal(heard->state, PIECE_CLOSING);
    assert_true(heard->revoked);
}

static struct event told;
static uint32_t ntold;

static void on_event(void *unused, struct event *event)
{
    (void)unused;
    told = *event;
    ntold++;
}

/* Two pulls share a link: one uses RDMA, the other waits in vain for a connection of its own. */
TEST_WITH(xfer_no_connection_to_be_had_breaks_the_pulls_that_wait_for_one, start, stop)
{
    static struct xfer_pull pulls[2];
    static struct batch batches[2 * PULL_BATCHES_MAX];
    struct lane *lane = &peer.lane[1];
    struct batch *waits = &batches[0], *by_rdma = &batches[PULL_BATCHES_MAX];

    pulls[0] = pulls[1] = (struct xfer_pull){.state = XFER_PULL_ACTIVE};
    for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++) {
        pulls[0].batch[b] = b;
        pulls[1].batch[b] = PULL_BATCHES_MAX + b;
    }
    *waits = (struct batch){.state = BATCH_QUEUED, .lane = 1, .pull = 0, .n = 1, .next = NONE};
    *by_rdma = (struct batch){.state = BATCH_ASKED, .lane = 0, .pull = 1, .n = 1, .asked = 1};
    xfer.pull = pulls;
    xfer.batch = batches;
    xfer.config.pulls = 2;
    xfer.config.idle_ns = 1000;
    xfer.config.emit = on_event;
    lane->queue = (struct batch_queue){0};
    lane_wait(&xfer, lane, 1);
    ntold = 0;
    xfer_link_tick(&xfer, 0, 2000);
    assert_int_equal(ntold, 1);
    assert_int_equal(told.kind, EV_PULL_BROKEN);
    assert_int_equal(told.broken.pull.slot, 0);
    assert_int_equal(told.broken.err, TERN_BUSY);
    assert_int_equal(lane->waiting_ns, 0);
    assert_int_equal(pulls[1].state, XFER_PULL_ACTIVE);
    assert_true(batch_used(by_rdma));
}
