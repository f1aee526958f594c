/* Transfers of a daemon with itself: pages of one pool are copied into another one, whatever
 * transport the link should have. Pages given up before or behind the copy, and damaged ones, do
 * not count; and promise P2. */
#include "unit/seam/test_pulls_rig.h"

#define OWN     1u /* the link to itself, and the pool of the destination */
#define PAGES   100u
#define BATCH   25u
#define BATCHES (PAGES / BATCH)
#define BYTES   40000u
#define STOPS   100u
#define TURNS   40u
#define POISON  0xa5

static struct side *const side = &rig.src;

static uint32_t record_of(uint32_t page)
{
    return RIG_PAGES + page;
}

static void open_own(uint32_t regions)
{
    const struct rig_options o = {.page_bytes = {BYTES},
                                  .units = 2,
                                  .regions = regions,
                                  .memory_bytes = 16u << 20,
                                  .tenants = 2};
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    rig_open_filled(&o, PAGES + 1);
    addr.sin_port = htons(rig.port);
    assert_int_equal(xfer_link_up(side->xfer, OWN, (struct sockaddr *)&addr, sizeof addr,
                                  RIG_SRC_INC, RIG_TOKEN),
                     TERN_OK);
    xfer_link_transport(side->xfer, OWN, XFER_TCP, 3, false);
}

static void pull(struct pull_id id, uint32_t batch)
{
    struct page_at pages[BATCH];
    struct page_ref refs[BATCH];
    struct action act = {.kind = ACT_PULL};

    for (uint32_t i = 0; i < BATCH; i++) {
        const uint32_t page = 1 + batch * BATCH + i;

        pages[i] = (struct page_at){.index = page, .gen = id.gen, .record = record_of(page)};
        refs[i] = (struct page_ref){page, 100 + page};
    }
    act.pull.pull = id;
    act.pull.serve = (struct serve_id){0, 7};
    act.pull.link = act.pull.pool = OWN;
    act.pull.batch = batch;
    act.pull.n = BATCH;
    act.pull.pages = pages;
    act.pull.refs = refs;
    xfer_pull(side->xfer, &act);
}

static void stop(struct pull_id id)
{
    struct action act = {.kind = ACT_PULL_STOP};

    act.pull_stop.pull = id;
    xfer_pull_stop(side->xfer, &act);
}

static bool is_right(uint32_t page)
{
    uint8_t *bytes = malloc(BYTES);
    bool right = true;

    assert_non_null(bytes);
    for (uint32_t r = 0; r < rig.regions; r++) {
        assert_true(mem_get(side->mem, bytes, mem_page(side->mem, OWN, r, 0, page), BYTES));
        for (uint32_t b = 0; b < BYTES; b++)
            right = right && bytes[b] == rig_byte(r, 0, page, b);
    }
    free(bytes);
    return right && memcmp(mem_sums(side->mem, record_of(page)), mem_sums(side->mem, page),
                           8 * 2 * rig.regions) == 0;
}

/* Number of pages that the event reports as right, which they are. */
static uint32_t came(const struct event *e)
{
    uint32_t n = 0;

    assert_int_equal(e->kind, EV_PULLED);
    for (uint32_t i = 0; i < BATCH; i++) {
        if (!xfer_bit(e->pulled.ok, i))
            continue;
        assert_true(is_right(1 + e->pulled.batch * BATCH + i));
        n++;
    }
    return n;
}

/* A link that needs neither connections nor paths lacks nothing. */
static void assert_shown_local(void)
{
    struct xfer_link_view view = {0};

    xfer_link_view(side->xfer, OWN, &view);
    assert_string_equal(view.transport, "local");
    assert_non_null(strstr(view.reason, "this daemon itself"));
    assert_int_equal(view.connections, 0);
}

static void brings_all(uint32_t regions)
{
    struct xfer_stats stats;
    uint32_t n = 0;

    open_own(regions);
    assert_shown_local();
    for (uint32_t b = 0; b < BATCHES; b++)
        pull(PULL(1), b);
    rig_until(side, BATCHES);
    for (uint32_t b = 0; b < BATCHES; b++)
        n += came(&side->event[b]);
    assert_int_equal(n, PAGES);
    xfer_stats(side->xfer, &stats);
    assert_int_equal(stats.payload_bytes_in, (uint64_t)PAGES * BYTES * regions);
    assert_int_equal(stats.pages_in, PAGES);
    assert_int_equal(stats.pages_out, PAGES);
    assert_int_equal(stats.socket_bytes_in + stats.socket_bytes_out, 0);
    stop(PULL(1));
    rig_serve_stop(0);
    rig_until(side, BATCHES + 2);
    assert_int_equal(side->event[BATCHES].kind, EV_PULL_QUIET);
    assert_int_equal(side->event[BATCHES + 1].kind, EV_SERVE_QUIET);
}

TEST(local_pages_come_by_copies_alone)
{
    brings_all(1);
}

TEST(local_pages_of_two_regions_come_region_by_region)
{
    brings_all(2);
}

static void breaks(void)
{
    pull(PULL(1), 0);
    rig_until(side, 1);
    assert_int_equal(side->event[0].kind, EV_PULL_BROKEN);
    assert_int_equal(side->event[0].broken.err, TERN_GONE);
}

TEST(local_page_that_is_another_one_by_now_is_not_copied)
{
    open_own(1);
    rig.gen[0][7]++;
    breaks();
}

/* All may leave at the beginning; the last one no longer when it has been copied. */
TEST(local_page_that_became_another_one_meanwhile_does_not_count)
{
    open_own(1);
    rig.gone_after = 2 * BATCH - 1;
    breaks();
    assert_int_equal(rig.answers, 2 * BATCH);
}

TEST(local_page_that_is_damaged_is_told)
{
    open_own(1);
    ((uint8_t *)mem_page(side->mem, 0, 0, 0, 9))[BYTES - 1] ^= 1;
    pull(PULL(1), 0);
    rig_until(side, 1);
    assert_int_equal(came(&side->event[0]), BATCH - 1);
    assert_false(xfer_bit(side->event[0].pulled.ok, 8));
}

static bool heard(enum event_kind kind)
{
    for (uint32_t i = 0; i < side->nevents; i++)
        if (side->event[i].kind == kind)
            return true;
    return false;
}

static void wait_for(enum event_kind kind)
{
    uint64_t deadline = io_now_ns() + RIG_WAIT_NS;

    while (!heard(kind)) {
        assert_true(io_now_ns() < deadline);
        rig_turn();
    }
}

/* P2: nobody writes the pull's pages after its QUIET, nor reads the serve's after that one's. */
TEST(local_copies_end_before_quiet_is_said)
{
    uint8_t *there, *here;
    struct prng p;

    open_own(1);
    prng_init(&p, 11);
    there = mem_page(side->mem, 0, 0, 0, 1);
    here = mem_page(side->mem, OWN, 0, 0, 1);
    for (uint32_t gen = 1; gen <= STOPS; gen++) {
        side->nevents = 0;
        rig_serve(0);
        for (uint32_t b = 0; b < BATCHES; b++)
            pull((struct pull_id){1, gen}, b);
        for (uint32_t n = prng_below(&p, TURNS); n > 0; n--)
            rig_step();
        rig_serve_stop(0);
        stop((struct pull_id){1, gen});
        wait_for(EV_PULL_QUIET);
        memset(here, POISON, (size_t)PAGES * BYTES);
        wait_for(EV_SERVE_QUIET);
        memset(there, (int)gen, BYTES);
        for (uint32_t n = 0; n < TURNS; n++)
            rig_step();
        for (uint32_t b = 0; b < PAGES * BYTES; b++)
            assert_true(here[b] == POISON);
        rig_write(side->mem, 0, 0, 1);
    }
}
