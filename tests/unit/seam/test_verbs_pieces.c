/* Pieces of pushes at the destination, with a device that is played here: what lets one go on, and
 * what lets it go. The simulator comes here too seldom. */

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
static struct inflow inflow;
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
static uint64_t read_of[2];   /* over each, where the last read went */
static uint32_t nreads[2];

static int post_send(struct ibv_qp *to, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)bad;
    for (; wr; wr = wr->next) {
        bound += wr->opcode == IBV_WR_BIND_MW;
        if (wr->opcode == IBV_WR_RDMA_READ) {
            read_of[to - pair] = wr->sg_list->addr;
            nreads[to - pair]++;
        }
    }
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

/* A link with one path, which is ready, and its rail. */
FIXTURE(start)
{
    make_memory(1);
    memset(paths, 0, sizeof paths);
    bound = 0;
    ctx.ops.post_send = post_send;
    ctx.ops.post_recv = post_recv;
    qp.context = &ctx;
    peer = (struct xfer_link){.lane = {LANE, LANE}};
    inflow = (struct inflow){.state = INFLOW_ACTIVE};
    batch = (struct batch){.state = BATCH_ASKED, .n = 1, .asked = 1, .page = {{.index = 1}}};
    xfer = (struct xfer){
        .link = &peer,
        .inflow = &inflow,
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
                                   .push = true,
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

/* The path that it was on is lost, and the next one's completion queue is full of other paths'
 * requests: when those are done it goes on, and not with the tick. */
TEST_WITH(verbs_pieces_one_that_waits_goes_on_when_another_path_makes_room, start, stop)
{
    struct verbs_piece *piece = piece_of(&v, 0, 0);
    struct verbs_rail *rail = &v.rail[0];

    *piece = (struct verbs_piece){
        .state = PIECE_WAITING, .answered = true, .n = 1, .tries = 1, .sums = piece->sums};
    rail->cq_used = PLACES - 1; /* a window takes two: to be bound, and to be closed */
    pieces_start(&v, 0);
    assert_int_equal(piece->state, PIECE_WAITING);
    assert_int_equal(bound, 0);
    rail->cq_used = 0;
    paths_go_on(rail);
    assert_int_equal(piece->state, PIECE_BINDING);
    assert_int_equal(bound, 1);
    assert_int_equal(inflow.holds, 1);
}

/* Fault 12: however many of the completion queue's places are taken, a piece takes only what is
 * free, or waits: the device never has more to say than the queue holds. */
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

/* Two rails, a region of the pool on each, and a path on each that reads. */
FIXTURE(start_regions)
{
    struct verbs_path whole;

    start(state);
    mem_destroy(mem);
    make_memory(2);
    xfer.config.mem = mem;
    v.nrails = v.rails = 2;
    memset(nreads, 0, sizeof nreads);
    whole = (struct verbs_path){.state = PATH_READY, .wanted = true, .npeer_mrs = 2};
    for (uint32_t r = 0; r < 2; r++) {
        whole.peer_mr[r] = (struct xfer_mr){.addr = 1u << 30, .bytes = MEMORY_BYTES, .region = r};
        domains[r] = domain;
        pair[r].context = &ctx;
        v.rail[r] = (struct verbs_rail){.v = &v, .domain = &domains[r], .max_msg = 1u << 30};
        v.rail[r].view.completion_queue = PLACES;
        xfer.region[0][r] = (struct xfer_region){.binds = true, .rail = r};
    }
    for (uint32_t i = 0; i < 2; i++) {
        paths[i] = whole;
        paths[i].rail = i;
        paths[i].qp = &pair[i];
    }
    return 0;
}

static struct verbs_piece *piece_that_waits(void)
{
    struct verbs_piece *piece = piece_of(&v, 0, 0);

    *piece = (struct verbs_piece){.state = PIECE_WAITING,
                                  .answered = true,
                                  .n = 1,
                                  .region = {0, 1},
                                  .sent = {1},
                                  .link = 0,
                                  .sums = piece->sums};
    return piece;
}

static void completes(uint32_t path)
{
    paths[path].completed = paths[path].posted;
    pieces_done(&v, &paths[path]);
}

static uint64_t page_in(uint32_t r)
{
    return (uintptr_t)mem_page(mem, 0, r, 0, 1);
}

/* Each region's bytes come over the path of its rail, and the piece is read when both are done. */
TEST_WITH(verbs_pieces_are_read_over_the_rail_of_each_region, start_regions, stop)
{
    for (uint32_t seq = 0; seq < 2; seq++) {
        struct verbs_piece *piece = piece_that_waits();

        piece->seq = seq; /* which rail is first */
        pieces_start(&v, 0);
        assert_int_equal(piece->state, PIECE_READING);
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(nreads[r], seq + 1);
            assert_true(read_of[r] == page_in(r));
        }
        assert_int_equal(piece->path, 1 - seq); /* the last one */
        assert_int_equal(inflow.holds, 1);
        completes(seq);
        assert_int_equal(piece->state, PIECE_READING);
        assert_int_equal(inflow.holds, 1);
        completes(1 - seq);
        assert_int_equal(piece->state, PIECE_READ);
        assert_int_equal(inflow.holds, 0);
    }
}

/* While one path is lost the other one may still write its pages, so it waits for that. Then it is
 * read again, all of it over the path that is left. */
TEST_WITH(verbs_pieces_wait_for_all_rails_before_they_are_read_again, start_regions, stop)
{
    struct verbs_piece *piece = piece_that_waits();

    pieces_start(&v, 0);
    path_state_move(&paths[0].state, PATH_STOPPING);
    path_lost(&v, &paths[0]);
    assert_int_equal(piece->state, PIECE_WAITING);
    completes(0);
    assert_int_equal(piece->state, PIECE_WAITING);
    assert_int_equal(inflow.holds, 1);
    assert_int_equal(nreads[1], 1);
    completes(1);
    assert_int_equal(piece->state, PIECE_READING);
    assert_int_equal(nreads[0] + nreads[1], 1 + 1 + 2);
    assert_int_equal(nreads[1], 3);
    completes(1);
    assert_int_equal(piece->state, PIECE_READ);
    assert_int_equal(inflow.holds, 0);
}

/* A piece is read over both rails. The last path is lost and made anew, now with pushes, while the
 * device of the first one still reads. */
static struct verbs_piece *piece_beside_a_push(enum path_state state)
{
    struct verbs_piece *piece = piece_that_waits();

    pieces_start(&v, 0);
    assert_int_equal(piece->path, 1);
    path_state_move(&paths[1].state, PATH_STOPPING);
    path_lost(&v, &paths[1]);
    completes(1);
    assert_int_equal(piece->reading, 1u << 0);
    paths[1].state = state;
    paths[1].push = true;
    paths[1].mws_free = ~(uint64_t)0 >> (64 - VERBS_MWS);
    return piece;
}

/* The end of a path says nothing of reads over another one, though the piece names that path. */
TEST_WITH(verbs_pieces_that_are_read_outlast_a_push_over_their_last_path, start_regions, stop)
{
    struct verbs_piece *piece = piece_beside_a_push(PATH_ENDING);

    pushes_ended(&v, &paths[1]);
    assert_int_equal(piece->state, PIECE_WAITING);
    assert_int_equal(inflow.holds, 1);
    piece_drop(&v, piece);
    pushes_ended(&v, &paths[1]);
    assert_int_equal(piece->state, PIECE_WAITING);
    assert_int_equal(inflow.holds, 1);
    completes(0);
    assert_int_equal(piece->state, PIECE_FREE);
    assert_int_equal(inflow.holds, 0);
    assert_int_equal(xfer.stats.late_reads, 1);
}

/* Nor is such a piece one that the peer has to write in time, or says that it has written. */
TEST_WITH(verbs_pieces_that_are_read_were_not_granted, start_regions, stop)
{
    struct ibv_wc wc = {.opcode = IBV_WC_RECV_RDMA_WITH_IMM};
    struct verbs_piece *piece = piece_beside_a_push(PATH_READY);

    wc.imm_data = htonl(piece->seq);
    pieces_tick(&v, 0, UINT64_MAX);
    assert_int_equal(paths[1].state, PATH_READY);
    piece_drop(&v, piece);
    push_received(&v, &paths[1], &wc);
    assert_int_equal(paths[1].state, PATH_READY);
    assert_int_equal(xfer.stats.late_writes, 1);
    assert_int_equal(piece->state, PIECE_WAITING);
    assert_int_equal(inflow.holds, 1);
}

/* A rail that has no room holds back its own regions alone: it goes on when that has room. */
TEST_WITH(verbs_pieces_wait_for_room_on_the_rail_of_a_region, start_regions, stop)
{
    struct verbs_piece *piece = piece_that_waits();

    v.rail[1].cq_used = PLACES;
    pieces_start(&v, 0);
    assert_int_equal(nreads[0], 1);
    assert_int_equal(nreads[1], 0);
    completes(0); /* nothing writes its pages, and it is not read */
    assert_int_equal(piece->state, PIECE_READING);
    assert_int_equal(inflow.holds, 0);
    v.rail[1].cq_used = 0;
    paths_go_on(&v.rail[1]);
    assert_int_equal(nreads[1], 1);
    completes(1);
    assert_int_equal(piece->state, PIECE_READ);
    assert_int_equal(inflow.holds, 0);
}

/* Of one region: its rail, though the other one has more room; any, where it has none; the other
 * one, where its own is lost. */
TEST_WITH(verbs_pieces_prefer_the_rail_of_their_region, start_regions, stop)
{
    paths[1].posted = VERBS_SEND_QUEUE / 2;
    xfer.region[0][0].rail = 1;
    xfer.region[0][1].rail = 1;
    assert_int_equal(batch_rails(&v, 0), 1u << 1);
    assert_ptr_equal(path_for(&v, 0, 0, batch_rails(&v, 0), NULL), &paths[1]);
    xfer.region[0][1].rail = NONE;
    assert_int_equal(batch_rails(&v, 0), 0);
    xfer.region[0][1] = (struct xfer_region){.rail = 1};
    assert_int_equal(batch_rails(&v, 0), 0);
    assert_ptr_equal(path_for(&v, 0, 0, 0, NULL), &paths[0]);
    paths[1].state = PATH_DRAINING;
    assert_ptr_equal(path_for(&v, 0, 0, 1u << 1, NULL), &paths[0]);
}

static void revoke(struct verbs_piece *piece, bool heard)
{
    *piece = (struct verbs_piece){.state = PIECE_CLOSING,
                                  .batch = NONE,
                                  .revoked = true,
                                  .pushed = true,
                                  .answered = heard,
                                  .sums = piece->sums};
}

/* Of a grant that was revoked, and closed: if its answer had come, the source writes, and its write
 * is waited for; else nobody will say whether it does, so nothing is waited for. */
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

/* Of two pulls over one link one is read by RDMA, the other waits in vain for a connection of its
 * own. */
TEST_WITH(xfer_no_connection_to_be_had_breaks_the_pulls_that_wait_for_one, start, stop)
{
    static struct inflow inflows[2];
    static struct batch batches[2 * PULL_BATCHES_MAX];
    struct lane *lane = &peer.lane[1];
    struct batch *waits = &batches[0], *is_read = &batches[PULL_BATCHES_MAX];

    inflows[0] = inflows[1] = (struct inflow){.state = INFLOW_ACTIVE};
    for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++) {
        inflows[0].batch[b] = b;
        inflows[1].batch[b] = PULL_BATCHES_MAX + b;
    }
    *waits = (struct batch){.state = BATCH_QUEUED, .lane = 1, .inflow = 0, .n = 1, .next = NONE};
    *is_read = (struct batch){.state = BATCH_ASKED, .lane = 0, .inflow = 1, .n = 1, .asked = 1};
    xfer.inflow = inflows;
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
    assert_int_equal(inflows[1].state, INFLOW_ACTIVE);
    assert_true(batch_used(is_read));
}
