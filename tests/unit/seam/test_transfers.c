/* Transfers that succeed, and faults other than those of a wire: right pages for every geometry,
 * corrupt and gone pages, peers that are gone or have another incarnation. */
#include "unit/seam/test_transfers.h"

static const struct rig_options options = {.page_bytes = {4096}};

TRANSFER_TEST(xfer_pages_of_every_geometry_arrive_right)
{
    static const struct rig_options o[] = {
        {.page_bytes = {4096}, .units = 1},
        {.page_bytes = {512}, .units = 1},
        {.page_bytes = {4096, 16384}, .units = 2, .regions = 2},
        {.page_bytes = {100, 70272}, .units = 3, .regions = 4},
        {.page_bytes = {65536}, .units = 8, .regions = 1},
    };

    for (uint32_t i = 0; i < sizeof o / sizeof o[0]; i++) {
        pull_and_check(&o[i], 300, 256);
        pull_and_check(&o[i], 37, 5);
        pull_and_check(&o[i], 1, 1);
    }
}

TRANSFER_TEST(xfer_pages_larger_than_a_piece_arrive_right)
{
    struct rig_options o = {
        .page_bytes = {3u << 20}, .units = 5, .regions = 2, .memory_bytes = 64u << 20};

    pull_and_check(&o, 7, 3);
    o = (struct rig_options){.page_bytes = {1u << 20}, .units = 1, .memory_bytes = 64u << 20};
    pull_and_check(&o, 20, 8);
    o = (struct rig_options){
        .page_bytes = {300000}, .units = 1000, .regions = 16, .memory_bytes = 4u << 20};
    pull_and_check(&o, 5, 3); /* more sums a page than a piece usually has */
}

/* Both ends report how much of one transfer has moved; the next one in its place begins at zero. */
TRANSFER_TEST(xfer_flow_of_one_transfer_is_told_at_both_ends)
{
    const struct rig_options o = {.page_bytes = {4096}, .units = 1, .regions = 2};
    const struct serve_id serve = {0, 7};
    struct action start = {.kind = ACT_SERVE_START, .serve = {.serve = {0, 8}}};
    struct xfer_flow_view seen;

    rig_open_filled(&o, 101);
    rig_pull(PULL(0), 0, 0, 1, 100);
    rig_until(&rig.dst, 1);
    assert_true(xfer_pull_view(rig.dst.xfer, PULL(0), &seen));
    assert_true(seen.pages == 100 && seen.bytes == 100 * 2 * 4096);
    assert_true(rate_of(seen.rate, io_now_ns()) <= seen.bytes);
    assert_true(xfer_serve_view(rig.src.xfer, serve, &seen));
    assert_true(seen.pages == 100 && seen.bytes == 100 * 2 * 4096);
    assert_false(xfer_pull_view(rig.dst.xfer, (struct pull_id){0, 99}, &seen));
    rig_stop(PULL(0));
    xfer_serve_start(rig.src.xfer, &start);
    assert_true(xfer_serve_view(rig.src.xfer, start.serve.serve, &seen));
    assert_true(seen.pages == 0 && seen.bytes == 0);
    rig_pull((struct pull_id){0, 99}, 0, 1, 1, 1);
    assert_true(xfer_pull_view(rig.dst.xfer, (struct pull_id){0, 99}, &seen));
    assert_true(seen.pages == 0);
    rig_until(&rig.dst, 3);
}

/* X5: data that all ranks have alike moves once, and every rank gets it. */
TRANSFER_TEST(xfer_x5_replicated_pages_move_once)
{
    static const struct rig_options o[] = {
        {.page_bytes = {4096}, .units = 1, .regions = 4, .alike = true},
        {.page_bytes = {100, 70272}, .units = 3, .regions = 2, .alike = true},
        {.page_bytes = {300000},
         .units = 1000,
         .regions = 16,
         .memory_bytes = 4u << 20,
         .alike = true},
    };

    pull_and_check(&o[0], 300, 256);
    pull_and_check(&o[1], 37, 5);
    pull_and_check(&o[2], 5, 3);
}

/* Fault 9: each flipped byte is noticed, the page is requested again and is right. */
TRANSFER_TEST(xfer_fault_9_corrupt_pages_are_seen_and_come_right_when_asked_again)
{
    struct rig_options o = {.page_bytes = {4096, 8192}, .units = 2, .regions = 2, .corrupt = 40};
    struct xfer_stats stats;
    uint32_t ok;

    rig_open_filled(&o, 301);
    rig_pull(PULL(0), 0, 0, 1, 150);
    rig_pull(PULL(0), 0, 1, 151, 150);
    rig_until(&rig.dst, 2);
    ok = rig_check_pulled(&rig.dst.event[0], 1, 150);
    ok += rig_check_pulled(&rig.dst.event[1], 151, 150);
    assert_int_equal(ok, 260);
    rig_pull(PULL(0), 0, 2, 1, 150);
    rig_pull(PULL(0), 0, 3, 151, 150);
    rig_until(&rig.dst, 4);
    ok = rig_check_pulled(&rig.dst.event[2], 1, 150);
    ok += rig_check_pulled(&rig.dst.event[3], 151, 150);
    assert_int_equal(ok, 300);
    xfer_stats(rig.dst.xfer, &stats);
    assert_int_equal(stats.corrupt_injected, 40);
    assert_int_equal(stats.corrupt_detected, 40);
    printf("fault=9 runs=1 injected=40 violations=0 undetected=0\n");
}

/* Shows the bytes of those pages of the source, or zeros in their place. */
static void show_pages(uint32_t first, uint32_t n, bool visible)
{
    for (uint32_t i = first; i < first + n; i++) {
        uint8_t *page = mem_page(rig.src.mem, 0, 0, 0, rig.base[0] + i);

        for (uint64_t b = 0; b < rig.group[0].page_bytes; b++)
            page[b] = visible ? rig_byte(0, 0, i, b) : 0;
    }
}

/* The transfer completes while bytes of some pages are not visible yet: the checksum rejects each
 * of these pages, and once they are visible they can be fetched. */
TRANSFER_TEST(xfer_fault_8_complete_before_its_bytes_are_visible_is_held_back)
{
    enum { LATE = 24 };
    struct xfer_stats stats;
    uint32_t ok;

    rig_open_filled(&options, 101);
    show_pages(31, LATE, false);
    rig_pull(PULL(0), 0, 0, 1, 100);
    rig_until(&rig.dst, 1);
    ok = rig_check_pulled(&rig.dst.event[0], 1, 100);
    assert_int_equal(ok, 100 - LATE);
    xfer_stats(rig.dst.xfer, &stats);
    assert_int_equal(stats.corrupt_detected, LATE);
    show_pages(31, LATE, true);
    rig_pull(PULL(0), 0, 1, 31, LATE);
    rig_until(&rig.dst, 2);
    assert_int_equal(rig_check_pulled(&rig.dst.event[1], 31, LATE), LATE);
    printf("fault=8 runs=1 injected=%d violations=0 detected=%d\n", LATE, LATE);
}

/* Fault 7, and the connection continues: the existing pages can still be fetched. */
TRANSFER_TEST(xfer_fault_7_passed_generation_is_gone)
{
    struct rig_options o = {.page_bytes = {4096}};
    struct xfer_stats stats;

    rig_open_filled(&o, 301);
    rig.gen[0][17]++;
    pull_breaks(PULL(0), 0, 0, 1, 256, TERN_GONE);
    pull_breaks(PULL(1), 5, 0, 1, 20, TERN_GONE); /* a serve that does not exist */
    rig_pull(PULL(2), 0, 0, 18, 200);
    rig_until(&rig.dst, 1);
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], 18, 200), 200);
    xfer_stats(rig.dst.xfer, &stats);
    assert_int_equal(stats.gone_answers, 21);
    if (!rig_transports)
        assert_int_equal(stats.conns, 1);
    printf("fault=7 runs=1 injected=21 violations=0 wrong_bytes=0\n");
}

/* The generation passes while the bytes are under way, after each possible number of answers. */
TRANSFER_TEST(xfer_generation_that_passes_while_sending_is_gone)
{
    struct rig_options o = {.page_bytes = {4096}};

    for (uint32_t k = 1; k < 16; k++) { /* 8 pages: asked 8 times before and 8 times after */
        rig_open_filled(&o, 9);
        rig.gone_after = k;
        pull_breaks(PULL(0), 0, 0, 1, 8, TERN_GONE);
        rig_close();
    }
}

TRANSFER_TEST(xfer_stale_incarnation_is_refused_before_any_page)
{
    rig_open_filled(&options, 40);
    rig_link(rig.port, RIG_SRC_INC - 1);
    pull_breaks(PULL(0), 0, 0, 1, 30, TERN_PEER_LOST);
    assert_int_equal(rig.answers, 0);
    rig_link(rig.port, RIG_SRC_INC);
    pull_works(0);
}

TRANSFER_TEST(xfer_link_down_breaks_its_pulls_and_no_others)
{
    rig_open_filled(&options, 300);
    for (uint32_t k = 0; k < 30; k++) {
        struct pull_id id = {0, k + 1};

        rig.link = 0;
        rig_link(rig.port, RIG_SRC_INC);
        rig_pull(id, 0, 0, 1, 250);
        for (uint32_t i = 0; i < k % 10; i++)
            rig_step();
        xfer_link_down(rig.dst.xfer, 0);
        if (rig.dst.nevents == 1 && rig.dst.event[0].kind == EV_PULLED) {
            assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1, 250), 250);
            rig.dst.nevents = 0;
        } else {
            expect_broken(id, TERN_PEER_LOST);
        }
        rig_pull((struct pull_id){0, 1000 + k}, 0, 0, 1, 3); /* on a link that is down */
        expect_broken((struct pull_id){0, 1000 + k}, TERN_PEER_LOST);
        rig.link = 1;
        rig_link(rig.port, RIG_SRC_INC);
        pull_works(1);
    }
}

/* The pulls of arriving batches in order, each as a letter. */
static void order_of(uint32_t batches, char *ret)
{
    for (uint32_t i = 0; i < batches; i++) {
        const struct event *e = &rig.dst.event[i];

        assert_int_equal(e->kind, EV_PULLED);
        ret[i] = (char)('A' + e->pulled.pull.slot);
    }
    ret[batches] = 0;
}

/* X8: pages of the pull that began first arrive first, also those that are requested late. */
TRANSFER_TEST(xfer_x8_first_pull_first)
{
    struct rig_options o = {.page_bytes = {1u << 20}, .memory_bytes = 40u << 20};
    char order[16];

    rig_open_filled(&o, 16);
    for (uint32_t i = 0; i < 3; i++)
        rig_pull(PULL(0), 0, i, 1 + i, 1);
    for (uint32_t i = 0; i < 4; i++)
        rig_pull(PULL(1), 0, i, 7 + i, 1);
    for (uint32_t i = 3; i < 6; i++)
        rig_pull(PULL(0), 0, i, 1 + i, 1);
    rig_until(&rig.dst, 10);
    order_of(10, order);
    assert_string_equal(order, "AAAAAABBBB");
}

/* X8: pieces of tenants take turns, whoever asked for more or earlier. */
TRANSFER_TEST(xfer_x8_tenants_take_turns)
{
    struct rig_options o = {.page_bytes = {1u << 20}, .memory_bytes = 40u << 20, .tenants = 3};
    char order[16];

    rig_open_filled(&o, 16);
    for (uint32_t i = 0; i < 6; i++)
        rig_pull(PULL(0), 0, i, 1 + i, 1);
    for (rig.pool = 1; rig.pool < 3; rig.pool++)
        for (uint32_t i = 0; i < 2; i++)
            rig_pull(PULL(rig.pool), 0, i, 7 + 2 * rig.pool + i, 1);
    rig_until(&rig.dst, 10);
    order_of(10, order);
    /* In memory the first piece is requested before the others arrive. */
    assert_string_equal(order, rig_transports ? "ABCABCAAAA" : "BCABCAAAAA");
}
