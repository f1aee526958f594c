/* Promise P2 at the transport: after EV_PULL_QUIET nothing writes the pull's pages, after
 * EV_SERVE_QUIET nothing reads the serve's. Stops at random points, with a second transfer on the
 * same connection that must not be affected. */
#include <sys/eventfd.h>

#include "unit/seam/test_transfers.h"

#define STOPS      200
#define A_FIRST    1
#define B_FIRST    101
#define PAGES      100 /* of each transfer */
#define PAGE_BYTES 40000
#define POISON     0xa5
#define TURNS_MAX  60
#define LATE_PULLS 8

/* Small socket buffers: a stop finds a half-done receive or send, not a finished transfer. */
static const struct rig_options options = {.page_bytes = {PAGE_BYTES},
                                           .units = 2,
                                           .regions = 1,
                                           .memory_bytes = 16u << 20,
                                           .socket_buffer_bytes = 64u << 10};

static const struct event *find(const struct side *side, enum event_kind kind, uint32_t slot)
{
    for (uint32_t i = 0; i < side->nevents; i++) {
        const struct event *e = &side->event[i];

        if (e->kind != kind)
            continue;
        if ((kind == EV_PULL_QUIET && e->pull_quiet.pull.slot == slot) ||
            (kind == EV_PULL_BROKEN && e->broken.pull.slot == slot) ||
            (kind == EV_SERVE_QUIET && e->serve_quiet.serve.slot == slot))
            return e;
    }
    return NULL;
}

static uint32_t count_pulled(const struct side *side, uint32_t slot)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < side->nevents; i++)
        n += side->event[i].kind == EV_PULLED && side->event[i].pulled.pull.slot == slot;
    return n;
}

/* Turns until some of `pages` pages have arrived, or for a number of turns if the path is memory,
 * whose pulls take a known number of them: the progress of a transfer must not depend on the speed
 * of the turns relative to the threads. */
static void turn_some(struct prng *p, uint32_t pages)
{
    uint64_t deadline = io_now_ns() + RIG_WAIT_NS;
    uint64_t upto = prng_below(p, (pages - 1) * PAGE_BYTES);
    struct xfer_stats stats;

    if (rig_transports) {
        for (uint32_t n = prng_below(p, TURNS_MAX); n > 0; n--)
            rig_step();
        return;
    }
    xfer_stats(rig.dst.xfer, &stats);
    for (upto += stats.socket_bytes_in; stats.socket_bytes_in < upto;) {
        assert_true(io_now_ns() < deadline);
        rig_step();
        xfer_stats(rig.dst.xfer, &stats);
    }
}

static void both_pull(uint32_t gen)
{
    for (uint32_t batch = 0; batch < 4; batch++) {
        rig_pull((struct pull_id){0, gen}, 0, batch, A_FIRST + 25 * batch, 25);
        if (gen & 1)
            rig_pull((struct pull_id){1, gen}, 1, batch, B_FIRST + 25 * batch, 25);
    }
    for (uint32_t batch = 0; batch < 4 && !(gen & 1); batch++)
        rig_pull((struct pull_id){1, gen}, 1, batch, B_FIRST + 25 * batch, 25);
}

static void b_is_whole(void)
{
    uint64_t deadline = io_now_ns() + RIG_WAIT_NS;

    while (count_pulled(&rig.dst, 1) < 4) {
        assert_true(io_now_ns() < deadline);
        assert_null(find(&rig.dst, EV_PULL_BROKEN, 1));
        rig_turn();
    }
    for (uint32_t i = 0; i < rig.dst.nevents; i++) {
        const struct event *e = &rig.dst.event[i];

        if (e->kind == EV_PULLED && e->pulled.pull.slot == 1)
            assert_int_equal(rig_check_pulled(e, B_FIRST + 25 * e->pulled.batch, 25), 25);
    }
}

static void wait_for(const struct side *side, enum event_kind kind, uint32_t slot)
{
    uint64_t deadline = io_now_ns() + RIG_WAIT_NS;

    while (!find(side, kind, slot)) {
        assert_true(io_now_ns() < deadline);
        rig_turn();
    }
}

static void poison(const struct mem *mem, uint32_t first)
{
    memset(mem_page(mem, 0, 0, 0, first), POISON, (size_t)PAGES * PAGE_BYTES);
    (void)rig;
}

static void restore_source(uint32_t first)
{
    for (uint32_t i = first; i < first + PAGES; i++) {
        uint8_t *page = mem_page(rig.src.mem, 0, 0, 0, i);

        for (uint32_t b = 0; b < PAGE_BYTES; b++)
            page[b] = rig_byte(0, 0, i, b);
    }
}

static bool poison_is_whole(uint32_t first)
{
    const uint8_t *at = mem_page(rig.dst.mem, 0, 0, 0, first);

    return at[0] == POISON && memcmp(at, at + 1, (size_t)PAGES * PAGE_BYTES - 1) == 0;
}

/* A run of poison bytes that no honest page contains. */
static bool poison_came_over(uint32_t first)
{
    static const uint8_t run[64] = {[0 ... 63] = POISON};

    return memmem(mem_page(rig.dst.mem, 0, 0, 0, first), (size_t)PAGES * PAGE_BYTES, run,
                  sizeof run) != NULL;
}

/* Fault 6 / P2: the promise of QUIET. */
TRANSFER_TEST(xfer_fault_6_nothing_is_written_after_pull_quiet)
{
    uint32_t in_flight = 0, skipped = 0;
    struct xfer_stats stats;
    struct prng p;

    prng_init(&p, 11);
    rig_open_filled(&options, B_FIRST + PAGES);
    rig_serve(1);
    for (uint32_t k = 0; k < STOPS; k++) {
        rig.dst.nevents = 0;
        both_pull(k + 1);
        turn_some(&p, PAGES);
        rig_stop((struct pull_id){0, k + 1});
        in_flight += !find(&rig.dst, EV_PULL_QUIET, 0);
        wait_for(&rig.dst, EV_PULL_QUIET, 0);
        skipped += count_pulled(&rig.dst, 0) < 4;
        poison(rig.dst.mem, A_FIRST);
        b_is_whole();
        assert_true(poison_is_whole(A_FIRST));
    }
    xfer_stats(rig.dst.xfer, &stats);
    if (!rig_transports)
        assert_int_equal(stats.conns, 1); /* B needed no second request */
    assert_true(in_flight > STOPS / 10);
    printf("fault=6 runs=%u injected=%u violations=0 landed_in_live=0 stopped_early=%u\n", STOPS,
           in_flight, skipped);
}

/* The slot and the pages are reused at once, by a transfer of other bytes. */
TRANSFER_TEST(xfer_pages_and_slot_are_reused_right_after_quiet)
{
    struct prng p;

    prng_init(&p, 12);
    rig_open_filled(&options, B_FIRST + PAGES);
    for (uint32_t k = 0; k < STOPS; k++) {
        struct pull_id first = {0, 2 * k + 1}, second = {0, 2 * k + 2};

        rig.dst.nevents = 0;
        for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++)
            rig_pull(first, 0, b, A_FIRST + 10 * b, 10);
        turn_some(&p, 10 * PULL_BATCHES_MAX);
        rig_stop(first);
        wait_for(&rig.dst, EV_PULL_QUIET, 0);
        rig.dst.nevents = 0;
        for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++)
            rig_pull(second, 0, b, A_FIRST + 3 * b, 3);
        rig_until(&rig.dst, PULL_BATCHES_MAX);
        for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++) {
            assert_true(pull_id_equal(rig.dst.event[b].pulled.pull, second));
            assert_int_equal(rig_check_pulled(&rig.dst.event[b], A_FIRST + 3 * b, 3), 3);
        }
        rig_stop(second);
        assert_int_equal(rig.dst.nevents, PULL_BATCHES_MAX + 1);
    }
}

TRANSFER_TEST(xfer_nothing_is_read_after_serve_quiet)
{
    uint32_t in_flight = 0, broken = 0;
    struct xfer_stats stats;
    struct prng p;

    prng_init(&p, 13);
    rig_open_filled(&options, B_FIRST + PAGES);
    rig_serve(1);
    for (uint32_t k = 0; k < STOPS; k++) {
        rig.dst.nevents = rig.src.nevents = 0;
        both_pull(k + 1);
        turn_some(&p, PAGES);
        rig_serve_stop(0);
        in_flight += !find(&rig.src, EV_SERVE_QUIET, 0);
        wait_for(&rig.src, EV_SERVE_QUIET, 0);
        poison(rig.src.mem, A_FIRST);
        b_is_whole();
        while (count_pulled(&rig.dst, 0) < 4 && !find(&rig.dst, EV_PULL_BROKEN, 0))
            rig_turn();
        for (uint32_t i = 0; i < rig.dst.nevents; i++) {
            const struct event *e = &rig.dst.event[i];

            if (e->kind == EV_PULLED && e->pulled.pull.slot == 0)
                assert_int_equal(rig_check_pulled(e, A_FIRST + 25 * e->pulled.batch, 25), 25);
            if (e->kind == EV_PULL_BROKEN)
                assert_int_equal(e->broken.err, TERN_GONE);
        }
        broken += find(&rig.dst, EV_PULL_BROKEN, 0) != NULL;
        assert_false(poison_came_over(A_FIRST));
        rig_stop((struct pull_id){0, k + 1});
        wait_for(&rig.dst, EV_PULL_QUIET, 0);
        restore_source(A_FIRST);
        rig_serve(0);
    }
    xfer_stats(rig.dst.xfer, &stats);
    if (!rig_transports)
        assert_int_equal(stats.conns, 1);
    assert_true(in_flight > STOPS / 20);
    assert_true(broken > STOPS / 10);
    printf("serve_stop: runs=%u in_flight=%u broken=%u\n", STOPS, in_flight, broken);
}

/* Both ends stop, in any order, and one of them may go entirely. */
TRANSFER_TEST(xfer_destroy_in_mid_transfer_ends_the_other_side)
{
    struct prng p;

    prng_init(&p, 14);
    for (uint32_t k = 0; k < 20; k++) {
        rig_open_filled(&options, B_FIRST + PAGES);
        rig_serve(1);
        both_pull(1);
        turn_some(&p, PAGES);
        if (k & 1) {
            xfer_destroy(rig.src.xfer);
            rig.src.xfer = NULL;
            while (count_pulled(&rig.dst, 0) < 4 && !find(&rig.dst, EV_PULL_BROKEN, 0))
                rig_step();
            rig_stop((struct pull_id){0, 1});
            while (!find(&rig.dst, EV_PULL_QUIET, 0))
                rig_step();
        } else {
            xfer_destroy(rig.dst.xfer);
            rig.dst.xfer = NULL;
            rig_serve_stop(0);
            while (!find(&rig.src, EV_SERVE_QUIET, 0))
                rig_step();
        }
        rig_close();
    }
}

static struct late {
    struct io_op op;
    int fd;
    uint32_t asked;
} late;

/* Like the end of a path or of a name lookup: it comes whenever the ring runs. */
static void asks_late(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    (void)op, (void)res, (void)flags, (void)buffer;
    if (late.asked == LATE_PULLS)
        return;
    rig_pull((struct pull_id){late.asked, 1}, 0, 0, A_FIRST + late.asked, 1);
    late.asked++;
    usleep(1000);
    eventfd_write(late.fd, 1);
}

TEST(xfer_destroy_lets_nobody_call_any_more)
{
    rig_open_filled(&options, B_FIRST);
    late = (struct late){.op.done = asks_late, .fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
    io_poll_in(rig.io, &late.op, late.fd, true);
    xfer_destroy(rig.dst.xfer);
    rig.dst.xfer = NULL;
    assert_true(late.asked > 0);
    io_cancel(rig.io, &late.op);
    late.asked = LATE_PULLS;
    close(late.fd);
}
