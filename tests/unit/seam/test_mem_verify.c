/* Verifying pages that arrive: host memory, which answers at once, and a memory that answers later,
 * as one does that the CPU cannot read. For the latter mem_verify_end is wrapped: what the host's
 * says is kept, and told when the case says so. */
#include "unit/seam/test_transfers.h"

#include "seam/xfer/tcp/tcp.h"

#define PAGES     40u
#define OWED_MAX  512u
#define PAGE_SIZE 8192u

static const struct rig_options options = {.page_bytes = {PAGE_SIZE}, .units = 2};

/* ------------------------------------------------------------------ a memory that answers later */

static bool answers_later;
static struct {
    struct mem_asker asker;
    enum mem_verdict verdict;
} owed[OWED_MAX];
static uint32_t nowed;

enum mem_verdict __real_mem_verify_end(bool right, const struct mem_asker *asker);
enum mem_verdict __wrap_mem_verify_end(bool right, const struct mem_asker *asker);

enum mem_verdict __wrap_mem_verify_end(bool right, const struct mem_asker *asker)
{
    enum mem_verdict verdict = __real_mem_verify_end(right, asker);

    if (!answers_later)
        return verdict;
    assert_true(nowed < OWED_MAX);
    owed[nowed].asker = *asker;
    owed[nowed++].verdict = verdict;
    return MEM_LATER;
}

/* The newest first, so that no order is relied on. */
static void tell(uint32_t n)
{
    for (; n > 0; n--) {
        nowed--;
        owed[nowed].asker.verdict(owed[nowed].asker.ctx, owed[nowed].asker.token,
                                  owed[nowed].verdict);
    }
}

static void open_later(const struct rig_options *o)
{
    answers_later = true;
    nowed = 0;
    rig_open_filled(o, 2 * PAGES + 1);
}

static void until_owed(uint32_t n)
{
    uint64_t deadline = io_now_ns() + RIG_WAIT_NS;

    while (nowed < n) {
        assert_true(io_now_ns() < deadline);
        rig_turn();
    }
}

static void turns(uint32_t n)
{
    for (; n > 0; n--)
        rig_turn();
}

static void close_later(void)
{
    assert_int_equal(nowed, 0);
    answers_later = false;
    rig_close();
}

/* ------------------------------------------------------------------ the batch */

/* All bytes are there, and the core hears of none of them until the last verdict is in. */
TRANSFER_TEST(mem_verify_a_later_verdict_is_waited_for)
{
    struct xfer_flow_view seen;

    open_later(&options);
    rig_pull(PULL(2), 0, 0, 1, PAGES);
    rig_pull(PULL(2), 0, 1, 1 + PAGES, PAGES);
    until_owed(2 * PAGES);
    turns(20);
    assert_int_equal(rig.dst.nevents, 0);
    assert_true(xfer_inflow_view(rig.dst.xfer, PULL(2), &seen));
    assert_true(seen.verifying && seen.pages == 2 * PAGES);
    owed[3].verdict = MEM_CORRUPT;
    tell(2 * PAGES - 4);
    assert_int_equal(rig.dst.nevents, 1); /* the second batch */
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1 + PAGES, PAGES), PAGES);
    tell(4);
    assert_int_equal(rig.dst.nevents, 2);
    assert_int_equal(rig_check_pulled(&rig.dst.event[1], 1, PAGES), PAGES - 1);
    assert_true(xfer_inflow_view(rig.dst.xfer, PULL(2), &seen));
    assert_true(!seen.verifying && seen.verifying_ns > 0);
    rig_stop(PULL(2));
    assert_int_equal(rig.dst.nevents, 3);
    assert_int_equal(rig.dst.event[2].kind, EV_PULL_QUIET);
    close_later();
}

/* The memory may still touch the pages of a pull that was stopped: QUIET comes behind the last
 * verdict, and nothing else does. */
TRANSFER_TEST(mem_verify_a_stop_before_the_verdict_is_quiet_behind_it)
{
    for (uint32_t have = 1; have <= PAGES; have += 13) {
        open_later(&options);
        rig_pull(PULL(2), 0, 0, 1, PAGES);
        until_owed(have);
        rig_stop(PULL(2));
        turns(20);
        assert_int_equal(rig.dst.nevents, 0);
        tell(nowed - 1);
        turns(3);
        assert_int_equal(rig.dst.nevents, 0);
        tell(1);
        assert_int_equal(rig.dst.nevents, 1);
        assert_int_equal(rig.dst.event[0].kind, EV_PULL_QUIET);
        rig_pull((struct pull_id){2, 6}, 0, 0, 1, PAGES); /* the slot is used again */
        until_owed(PAGES);
        tell(PAGES);
        rig_until(&rig.dst, 2);
        assert_int_equal(rig_check_pulled(&rig.dst.event[1], 1, PAGES), PAGES);
        close_later();
    }
}

TRANSFER_TEST(mem_verify_a_link_that_goes_before_the_verdict_breaks_the_pull)
{
    for (uint32_t have = 1; have <= PAGES; have += 13) {
        open_later(&options);
        rig_pull(PULL(2), 0, 0, 1, PAGES);
        until_owed(have);
        xfer_link_down(rig.dst.xfer, 0);
        assert_int_equal(rig.dst.nevents, 1);
        assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
        assert_int_equal(rig.dst.event[0].broken.err, TERN_PEER_LOST);
        rig_stop(PULL(2));
        turns(20);
        assert_int_equal(rig.dst.nevents, 1);
        tell(nowed);
        assert_int_equal(rig.dst.nevents, 2);
        assert_int_equal(rig.dst.event[1].kind, EV_PULL_QUIET);
        close_later();
    }
}

/* A transport that gives a batch up while verdicts are owed: the next one asks for its pages, and
 * writes them, only when the memory has done with what the first one brought. */
TEST(mem_verify_another_transport_waits_for_the_verdict)
{
    static const struct transport_ops *const both[] = {&memory_transport, &tcp_transport, NULL};
    struct xfer_stats stats;
    struct xfer *xfer;

    rig_transports = both;
    open_later(&options);
    rig_transports = NULL;
    xfer = rig.dst.xfer;
    rig_pull(PULL(2), 0, 0, 1, PAGES);
    until_owed(3);
    assert_true(nowed < PAGES);
    memory_transport.drop(&xfer->transport[0], PULL(2).slot);
    batch_hand_on(xfer, xfer->inflow[PULL(2).slot].batch[0], TERN_PEER_LOST);
    turns(20);
    xfer_stats(xfer, &stats);
    assert_int_equal(stats.conns, 0);
    assert_int_equal(rig.dst.nevents, 0);
    tell(nowed);
    until_owed(PAGES);
    xfer_stats(xfer, &stats);
    assert_int_equal(stats.conns, 1);
    tell(PAGES);
    assert_int_equal(rig.dst.nevents, 1);
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1, PAGES), PAGES);
    close_later();
}

/* ------------------------------------------------------------------ host memory */

static struct mem_verify in_pieces(const uint64_t *sums, uint64_t step)
{
    struct page_at at = {.group = 0, .index = 1, .gen = 1, .record = 1};
    struct mem_verify v;

    mem_verify_begin(&v, rig.src.mem, 0, &at, sums);
    for (uint64_t to = step; to < PAGE_SIZE; to += step)
        mem_verify_arrived(&v, 0, to);
    mem_verify_arrived(&v, 0, PAGE_SIZE);
    return v;
}

/* However the bytes come: the same verdict, and a bit that was flipped is seen. */
TEST(mem_verify_host_memory_verifies_in_pieces_of_any_size)
{
    static const uint64_t steps[] = {1, 100, 4096, 5000, PAGE_SIZE};
    struct page_at at = {.group = 0, .index = 1, .gen = 1, .record = 1};
    uint64_t sums[2];

    rig_open_filled(&options, 3);
    memcpy(sums, mem_sums(rig.src.mem, 1), sizeof sums);
    assert_true(mem_sums_known(rig.src.mem, 1, 2));
    for (uint32_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct mem_verify v = in_pieces(sums, steps[i]);

        assert_int_equal(mem_verify_end(mem_verify_landed(&v), NULL), MEM_RIGHT);
        assert_memory_equal(mem_sums(rig.src.mem, 1), sums, sizeof sums);
        mem_verify_spoil(rig.src.mem, 0, &at, 0, PAGE_SIZE - 1 - i);
        v = in_pieces(sums, steps[i]);
        assert_int_equal(mem_verify_end(mem_verify_landed(&v), NULL), MEM_CORRUPT);
        mem_verify_spoil(rig.src.mem, 0, &at, 0, PAGE_SIZE - 1 - i);
    }
}
