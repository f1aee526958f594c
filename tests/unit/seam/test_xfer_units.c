/* Units of pages over real sockets (Y4): those that come ahead of their commit, and the rest, with
 * the checksums of the commit. */
#include "seam/mem/checksum.h"
#include "standin/standin.h"
#include "test_pulls_rig.h"

#define PAGES 12u
#define BYTES 40000u /* of a page: units that are no multiple of a block */
#define UNITS 5u

static const struct rig_options options = {.page_bytes = {BYTES}, .units = UNITS, .regions = 2};
static uint32_t batches;

static void open_units(void)
{
    batches = 0;
    rig_open_filled(&options, PAGES + 1);
    rig.may_leave = 0x1f;
}

static const struct event *pull_units(enum pull_part part, uint64_t units)
{
    struct action act = {.kind = ACT_PULL};

    act.pull.part = part;
    act.pull.units = units;
    rig_pull_part(PULL(2), batches % PULL_BATCHES_MAX, 1, PAGES, &act);
    rig_until(&rig.dst, ++batches);
    assert_int_equal(rig.dst.event[batches - 1].kind, EV_PULLED);
    return &rig.dst.event[batches - 1];
}

static uint32_t oks(const struct event *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < PULL_BATCH_PAGES; i++)
        n += xfer_bit(e->pulled.ok, i);
    return n;
}

static bool unit_right(uint32_t index, uint32_t unit)
{
    return rig_stretch_right(0, index, unit * BYTES / UNITS, (unit + 1) * BYTES / UNITS);
}

static void flip(uint32_t region, uint32_t index, uint64_t at)
{
    uint8_t *where = (uint8_t *)mem_page(rig.src.mem, 0, region, 0, index) + at, byte;

    assert_true(mem_get(rig.src.mem, &byte, where, 1));
    byte ^= 1;
    assert_true(mem_put(rig.src.mem, where, &byte, 1));
}

static uint64_t payload(void)
{
    struct xfer_stats s;

    xfer_stats(rig.dst.xfer, &s);
    return s.payload_bytes_in;
}

TEST(xfer_units_move_alone_and_the_rest_with_all_checksums)
{
    for (uint64_t first = 1; first < 1u << UNITS; first++) {
        open_units();
        assert_int_equal(oks(pull_units(PART_EARLY, first)), PAGES);
        for (uint32_t u = 0; u < UNITS; u++)
            for (uint32_t i = 1; i <= PAGES; i++)
                assert_int_equal(unit_right(i, u), first >> u & 1);
        assert_int_equal(payload(),
                         PAGES * 2ull * BYTES / UNITS * (uint32_t)__builtin_popcountll(first));
        assert_int_equal(rig_check_pulled(pull_units(PART_REST, ~first & 0x1f), 1, PAGES), PAGES);
        assert_int_equal(payload(), PAGES * 2ull * BYTES); /* each byte once */
        rig_close();
    }
}

TEST(xfer_units_come_one_after_the_other_and_the_checksums_last)
{
    struct xfer_stats in, out;

    open_units();
    for (uint32_t u = 0; u < UNITS; u++)
        assert_int_equal(oks(pull_units(PART_EARLY, 1u << u)), PAGES);
    xfer_stats(rig.dst.xfer, &in);
    assert_int_equal(in.pages_in, 0); /* they are no pages yet */
    assert_int_equal(rig_check_pulled(pull_units(PART_REST, 0), 1, PAGES), PAGES);
    xfer_stats(rig.dst.xfer, &in);
    xfer_stats(rig.src.xfer, &out);
    assert_int_equal(in.payload_bytes_in, PAGES * 2ull * BYTES);
    assert_int_equal(in.pages_in, PAGES);
    assert_int_equal(out.pages_out, PAGES);
}

/* A unit counts only if it was hashed to what its checksum says at the commit. */
TEST(xfer_unit_that_was_written_again_is_not_right)
{
    for (uint32_t region = 0; region < 2; region++) {
        struct xfer_stats s;

        open_units();
        flip(region, 3, BYTES / UNITS + 77);
        assert_int_equal(oks(pull_units(PART_EARLY, 0x2)), PAGES);
        flip(region, 3, BYTES / UNITS + 77);
        assert_int_equal(rig_check_pulled(pull_units(PART_REST, 0x1d), 1, PAGES), PAGES - 1);
        assert_false(xfer_bit(rig.dst.event[1].pulled.ok, 2));
        xfer_stats(rig.dst.xfer, &s);
        assert_int_equal(s.corrupt_detected, 0);
        assert_int_equal(rig_check_pulled(pull_units(PART_WHOLE, 0), 1, PAGES), PAGES);
        rig_close();
    }
}

/* Nothing is kept of units that came for the page's last use: what was hashed then is compared. */
TEST(xfer_rest_of_a_page_whose_units_never_came_is_not_right)
{
    open_units();
    assert_int_equal(oks(pull_units(PART_REST, 0x3)), 0);
}

TEST(xfer_units_that_may_not_leave_are_refused_and_the_pull_goes_on)
{
    open_units();
    rig.may_leave = 0x3;
    assert_int_equal(oks(pull_units(PART_EARLY, 0x4)), 0);
    rig.gen[0][4]++;
    assert_int_equal(oks(pull_units(PART_EARLY, 0x3)), PAGES - 1);
    rig.gen[0][4]--;
    assert_int_equal(rig_check_pulled(pull_units(PART_WHOLE, 0), 1, PAGES), PAGES);
    rig.may_leave = UINT64_MAX; /* there are no such units, whatever the core says */
    assert_int_equal(oks(pull_units(PART_EARLY, 0x20)), 0);
}

/* No seal of a page that is not committed is looked at. */
TEST(xfer_units_of_pages_without_checksums_leave_ahead_alone)
{
    struct action act = {.kind = ACT_PULL};

    open_units();
    mem_sums(rig.src.mem, 5)[1] = CHECKSUM_NONE;
    assert_int_equal(oks(pull_units(PART_EARLY, 0x1f)), PAGES);
    act.pull.part = PART_REST;
    rig_pull_part(PULL(2), 1, 1, PAGES, &act);
    rig_until(&rig.dst, 2);
    assert_int_equal(rig.dst.event[1].kind, EV_PULL_BROKEN);
    assert_int_equal(rig.dst.event[1].broken.err, TERN_GONE);
}

TEST(xfer_units_of_a_pull_that_is_stopped_are_proved_quiet)
{
    struct action act = {.kind = ACT_PULL};

    for (uint32_t turns = 0; turns < 12; turns++) {
        open_units();
        act.pull.part = PART_EARLY;
        act.pull.units = 0x15;
        rig_pull_part(PULL(2), 0, 1, PAGES, &act);
        for (uint32_t i = 0; i < turns; i++)
            rig_turn();
        rig_stop(PULL(2));
        while (rig.dst.nevents == 0 || rig.dst.event[rig.dst.nevents - 1].kind != EV_PULL_QUIET)
            rig_turn();
        rig_close();
    }
}

/* Pages that the CPU does not reach: it is a stand-in's memory, where a touch ends the program. */
TEST(xfer_units_move_alone_between_gpus)
{
    static const char gpus[RANKS_MAX][MEM_DEVICE_BYTES] = {STANDIN_UUID(0), STANDIN_UUID(1)};
    struct rig_options on_gpus = options;

    on_gpus.gpus = gpus;
    on_gpus.cuda_library = STANDIN_MEMORY;
    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        batches = 0;
        rig_open_filled(&on_gpus, PAGES + 1);
        rig.may_leave = 0x1f;
        assert_true(mem_is_far(rig.dst.mem, mem_page(rig.dst.mem, 0, 1, 0, 1)));
        for (uint32_t u = 0; wrong && u < UNITS; u += 2)
            flip(1, 3, u * BYTES / UNITS + 4096 + u);
        assert_int_equal(oks(pull_units(PART_EARLY, 0x5)), PAGES);
        for (uint32_t u = 0; u < UNITS; u++)
            for (uint32_t i = 1; i <= PAGES; i++)
                assert_int_equal(unit_right(i, u), (0x5 >> u & 1) && !(wrong && i == 3));
        assert_int_equal(oks(pull_units(PART_EARLY, 0x10)), PAGES);
        for (uint32_t u = 0; wrong && u < UNITS; u += 2)
            flip(1, 3, u * BYTES / UNITS + 4096 + u);
        assert_int_equal(rig_check_pulled(pull_units(PART_REST, 0xa), 1, PAGES), PAGES - wrong);
        assert_int_equal(payload(), PAGES * 2ull * BYTES); /* each byte once */
        assert_int_equal(rig_check_pulled(pull_units(PART_WHOLE, 0), 1, PAGES), PAGES);
        rig_close();
    }
}
