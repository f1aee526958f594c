/* Verifying pages that arrive, and a batch that goes to another transport. */
#include "unit/seam/test_transfers.h"

#include "seam/xfer/tcp/tcp.h"

#define PAGES     40u
#define PAGE_SIZE 8192u

static const struct rig_options options = {.page_bytes = {PAGE_SIZE}, .units = 2};

/* A transport that gives up a batch: the next transport asks for its pages again. */
TEST(mem_verify_another_transport_asks_anew)
{
    static const struct transport_ops *const both[] = {&memory_transport, &tcp_transport, NULL};
    struct xfer_stats stats;
    struct xfer *xfer;

    rig_transports = both;
    rig_open_filled(&options, 2 * PAGES + 1);
    rig_transports = NULL;
    xfer = rig.dst.xfer;
    rig_pull(PULL(2), 0, 0, 1, PAGES);
    memory_transport.drop(&xfer->transport[0], PULL(2).slot);
    batch_hand_on(xfer, xfer->pull[PULL(2).slot].batch[0], TERN_PEER_LOST);
    assert_int_equal(rig.dst.nevents, 0);
    transports_pump_after(xfer, &xfer->transport[0], 0);
    rig_until(&rig.dst, 1);
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1, PAGES), PAGES);
    xfer_stats(xfer, &stats);
    assert_true(stats.conns == 1 && stats.batches_moved == 1);
    rig_close();
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

/* In whatever pieces the bytes arrive: the same verdict, and a flipped bit is noticed. */
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

        assert_true(mem_verify_landed(&v));
        assert_memory_equal(mem_sums(rig.src.mem, 1), sums, sizeof sums);
        mem_verify_spoil(rig.src.mem, 0, &at, 0, PAGE_SIZE - 1 - i);
        v = in_pieces(sums, steps[i]);
        assert_false(mem_verify_landed(&v));
        mem_verify_spoil(rig.src.mem, 0, &at, 0, PAGE_SIZE - 1 - i);
    }
}
