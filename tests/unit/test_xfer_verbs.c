/* Pulls by RDMA READ between two transfer sides of one process, over whatever device there is. On a
 * machine without one only what needs none runs, and the rest says that it was skipped; the lab
 * (tests/rdma) runs all of it over soft-RoCE. */
#include "test_xfer_rig.h"

#define WAIT_NS      8000000000u
#define TEST_SKIPPED 77 /* what ctest counts as skipped */

static bool no_device; /* some tests could not run */

static bool has_device(struct rig *rig)
{
    struct xfer_rdma_view view;

    xfer_rdma_view(rig->dst.xfer, &view);
    return view.open;
}

static bool verbs_up(const struct rig *rig)
{
    struct xfer_link_view view;

    xfer_link_view(rig->dst.xfer, rig->link, &view);
    return strcmp(view.transport, "verbs") == 0;
}

static void wait_verbs(struct rig *rig)
{
    uint64_t deadline = io_now_ns() + WAIT_NS;

    while (!verbs_up(rig)) {
        if (io_now_ns() > deadline)
            fail_msg("no path after 8 s");
        rig_turn(rig);
    }
}

static struct xfer_stats stats_of(const struct side *side)
{
    struct xfer_stats s;

    xfer_stats(side->xfer, &s);
    return s;
}

/* False: there is no device, the rig is closed. */
static bool open_verbs(struct rig *rig, struct rig_options o, uint32_t pages)
{
    o.rdma = true;
    rig_open(rig, &o);
    if (!has_device(rig)) {
        no_device = true;
        rig_close(rig);
        return false;
    }
    rig_fill_source(rig, pages);
    xfer_link_transport(rig->dst.xfer, rig->link, XFER_VERBS, 1, true);
    wait_verbs(rig);
    return true;
}

static const struct event *last(const struct side *side)
{
    assert_true(side->nevents > 0);
    return &side->event[side->nevents - 1];
}

static void pull_whole(struct rig *rig, uint32_t gen, uint32_t first, uint32_t n)
{
    rig->dst.nevents = 0;
    rig_pull(rig, (struct id){1, gen}, 0, 3, first, n);
    rig_until(rig, &rig->dst, 1);
    assert_int_equal(last(&rig->dst)->pulled.batch, 3);
    assert_int_equal(rig_check_pulled(rig, last(&rig->dst), first, n), n);
}

/* ------------------------------------------------------------------ cases */

static void xfer_verbs_pull_reads_every_page_and_merges_adjacent_ones(void **state)
{
    struct rig rig;
    struct xfer_stats s;

    (void)state;
    if (!open_verbs(&rig, (struct rig_options){.page_bytes = {4096}, .units = 2, .regions = 2},
                    257))
        skip();
    pull_whole(&rig, 1, 1, 256);
    s = stats_of(&rig.dst);
    assert_int_equal(s.verbs_pages_in, 256);
    assert_int_equal(s.pages_in, 256);
    assert_int_equal(s.corrupt_detected + s.gone_answers + s.read_errors, 0);
    assert_true(s.reads_posted < 256); /* of 512 pieces of memory */
    assert_true(s.socket_bytes_in < s.payload_bytes_in / 50);
    assert_int_equal(stats_of(&rig.src).verbs_pages_out, 256);
    rig_close(&rig);
}

static void xfer_verbs_pages_across_registrations_are_split(void **state)
{
    struct rig rig;

    (void)state;
    if (!open_verbs(&rig, (struct rig_options){.page_bytes = {100 << 10}, .mr_bytes_max = 2u << 20},
                    201))
        skip();
    pull_whole(&rig, 1, 1, 200);
    assert_int_equal(stats_of(&rig.dst).verbs_pages_in, 200);
    rig_close(&rig);
}

static void xfer_verbs_page_recycled_before_confirm_is_gone(void **state)
{
    struct rig rig;

    (void)state;
    if (!open_verbs(&rig, (struct rig_options){.page_bytes = {4096}}, 65))
        skip();
    rig.gone_after = 64 + 40; /* all may leave; the 41st to be confirmed was recycled */
    rig.answers = 0;
    rig_pull(&rig, (struct id){1, 1}, 0, 0, 1, 64);
    rig_until(&rig, &rig.dst, 1);
    assert_int_equal(last(&rig.dst)->kind, EV_PULL_BROKEN);
    assert_int_equal(last(&rig.dst)->broken.err, TERN_GONE);
    assert_int_equal(stats_of(&rig.dst).gone_answers, 24);
    rig_stop(&rig, (struct id){1, 1});
    rig_until(&rig, &rig.dst, 2);
    assert_int_equal(last(&rig.dst)->kind, EV_PULL_QUIET);
    rig_close(&rig);
}

static void xfer_verbs_damaged_page_is_found_by_its_checksum(void **state)
{
    struct rig rig;

    (void)state;
    if (!open_verbs(&rig, (struct rig_options){.page_bytes = {4096}, .corrupt = 5}, 129))
        skip();
    rig_pull(&rig, (struct id){1, 1}, 0, 0, 1, 128);
    rig_until(&rig, &rig.dst, 1);
    assert_int_equal(rig_check_pulled(&rig, last(&rig.dst), 1, 128), 123);
    assert_int_equal(stats_of(&rig.dst).corrupt_detected, 5);
    pull_whole(&rig, 2, 1, 128);
    printf("fault=9 runs=1 injected=5 violations=0\n");
    rig_close(&rig);
}

static void poison(struct rig *rig, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++)
        memset(mem_page(rig->dst.mem, 0, 0, 0, i), 0xee, rig->group[0].page_bytes);
}

static bool poisoned(struct rig *rig, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++) {
        const uint8_t *page = mem_page(rig->dst.mem, 0, 0, 0, i);

        for (uint64_t b = 0; b < rig->group[0].page_bytes; b++)
            if (page[b] != 0xee)
                return false;
    }
    return true;
}

/* Fault 6: once QUIET was said no byte of the pull lands, however far its reads were. */
static void xfer_verbs_fault_6_stop_is_quiet_only_when_reads_have_ended(void **state)
{
    struct prng prng;
    struct rig rig;
    uint32_t runs = 60, injected = 0;
    uint64_t at_quiet;

    (void)state;
    prng_init(&prng, 7);
    if (!open_verbs(&rig, (struct rig_options){.page_bytes = {64 << 10}}, 201))
        skip();
    for (uint32_t run = 1; run <= runs; run++) {
        uint32_t before = rig.dst.nevents = 0, late = (uint32_t)stats_of(&rig.dst).late_reads;

        rig_pull(&rig, (struct id){2, run}, 0, 0, 1, 200);
        for (uint64_t turns = prng_below(&prng, 60); turns > 0 && rig.dst.nevents == 0; turns--)
            rig_turn(&rig);
        before = rig.dst.nevents;
        rig_stop(&rig, (struct id){2, run});
        rig_until(&rig, &rig.dst, before + 1);
        assert_int_equal(last(&rig.dst)->kind, EV_PULL_QUIET);
        at_quiet = stats_of(&rig.dst).late_reads;
        poison(&rig, 1, 200);
        for (uint32_t turns = 0; turns < 15; turns++)
            rig_turn(&rig);
        assert_true(poisoned(&rig, 1, 200));
        assert_int_equal(stats_of(&rig.dst).late_reads, at_quiet); /* none ends after it */
        assert_int_equal(rig.dst.nevents, before + 1);
        injected += (uint32_t)stats_of(&rig.dst).late_reads > late;
    }
    assert_true(injected > 0);
    printf("fault=6 runs=%u injected=%u violations=0 landed_in_live=0\n", runs, injected);
    pull_whole(&rig, 1, 1, 200);
    rig_close(&rig);
}

/* Fault 10: the source's queue pair goes while it is read from. */
static void xfer_verbs_fault_10_lost_queue_pair_ends_typed_and_is_made_again(void **state)
{
    uint64_t start, deadline;
    struct rig rig;

    (void)state;
    if (!open_verbs(&rig, (struct rig_options){.page_bytes = {64 << 10}}, 201))
        skip();
    rig_pull(&rig, (struct id){1, 1}, 0, 0, 1, 200);
    deadline = io_now_ns() + WAIT_NS;
    while (stats_of(&rig.dst).reads_posted == 0 && io_now_ns() < deadline)
        rig_turn(&rig);
    xfer_peer_down(rig.src.xfer, rig.link);
    start = io_now_ns();
    rig_until(&rig, &rig.dst, 1);
    assert_int_equal(last(&rig.dst)->kind, EV_PULL_BROKEN);
    assert_int_equal(last(&rig.dst)->broken.err, TERN_PEER_LOST);
    rig_stop(&rig, (struct id){1, 1});
    rig_until(&rig, &rig.dst, 2);
    assert_int_equal(last(&rig.dst)->kind, EV_PULL_QUIET);
    wait_verbs(&rig);
    pull_whole(&rig, 2, 1, 200);
    assert_true(stats_of(&rig.dst).paths_failed >= 1);
    printf("fault=10 runs=1 injected=1 violations=0 recover_ms=%u reconnects=%u\n",
           (unsigned)((io_now_ns() - start) / 1000000),
           (unsigned)stats_of(&rig.dst).paths_made - 1);
    rig_close(&rig);
}

static void xfer_verbs_forged_key_reads_nothing_and_ends_typed(void **state)
{
    struct rig rig;

    (void)state;
    rig.rkey_xor = 0;
    if (!open_verbs(&rig, (struct rig_options){.page_bytes = {4096}}, 65))
        skip();
    xfer_link_down(rig.dst.xfer, rig.link);
    rig.rkey_xor = 0x00ffff00u;
    rig_link(&rig, rig.port, RIG_SRC_INC);
    xfer_link_transport(rig.dst.xfer, rig.link, XFER_VERBS, 1, true);
    wait_verbs(&rig);
    poison(&rig, 1, 64);
    rig.dst.nevents = 0;
    rig_pull(&rig, (struct id){1, 1}, 0, 0, 1, 64);
    rig_until(&rig, &rig.dst, 1);
    assert_int_equal(last(&rig.dst)->kind, EV_PULL_BROKEN);
    assert_int_equal(last(&rig.dst)->broken.err, TERN_PEER_LOST);
    rig_stop(&rig, (struct id){1, 1});
    rig_until(&rig, &rig.dst, 2);
    assert_int_equal(last(&rig.dst)->kind, EV_PULL_QUIET);
    assert_true(poisoned(&rig, 1, 64));
    assert_true(stats_of(&rig.dst).read_errors > 0);
    rig_close(&rig);
}

/* Where one end cannot, auto goes over TCP and verbs goes nowhere. */
static void xfer_verbs_fallback_is_only_what_was_asked_for(void **state)
{
    struct rig_options o = {.page_bytes = {4096}, .rdma = true};
    struct xfer_link_view view;
    struct rig rig;

    (void)state;
    rig_open(&rig, &o);
    rig_fill_source(&rig, 65);
    xfer_link_transport(rig.dst.xfer, rig.link, XFER_AUTO, 1, false);
    pull_whole(&rig, 1, 1, 64);
    assert_int_equal(stats_of(&rig.dst).verbs_pages_in, 0);
    xfer_link_view(rig.dst.xfer, rig.link, &view);
    assert_string_equal(view.transport, "tcp");
    assert_true(strlen(view.reason) > 0);
    xfer_link_down(rig.dst.xfer, rig.link);
    rig_link(&rig, rig.port, RIG_SRC_INC);
    xfer_link_transport(rig.dst.xfer, rig.link, XFER_VERBS, 1, false);
    rig.dst.nevents = 0;
    rig_pull(&rig, (struct id){2, 1}, 0, 0, 1, 64);
    assert_int_equal(last(&rig.dst)->kind, EV_PULL_BROKEN);
    assert_int_equal(last(&rig.dst)->broken.err, TERN_PEER_LOST);
    xfer_link_view(rig.dst.xfer, rig.link, &view);
    assert_string_equal(view.transport, "none");
    rig_close(&rig);
}

static void xfer_verbs_throughput_at_64_kib(void **state)
{
    uint64_t start, bytes = 0;
    struct rig rig;

    (void)state;
    if (!open_verbs(&rig, (struct rig_options){.page_bytes = {64 << 10}, .memory_bytes = 64u << 20},
                    401))
        skip();
    start = io_now_ns();
    for (uint32_t run = 1; run <= 4; run++) {
        rig.dst.nevents = 0;
        rig_pull(&rig, (struct id){1, run}, 0, 0, 1, 200);
        rig_pull(&rig, (struct id){1, run}, 0, 1, 201, 200);
        rig_until(&rig, &rig.dst, 2);
        bytes += 400u * (64u << 10);
    }
    printf("verbs_pull bytes=65536 mb_per_s=%.1f\n",
           (double)bytes * 1000.0 / (double)(io_now_ns() - start));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xfer_verbs_fallback_is_only_what_was_asked_for),
        cmocka_unit_test(xfer_verbs_pull_reads_every_page_and_merges_adjacent_ones),
        cmocka_unit_test(xfer_verbs_pages_across_registrations_are_split),
        cmocka_unit_test(xfer_verbs_page_recycled_before_confirm_is_gone),
        cmocka_unit_test(xfer_verbs_damaged_page_is_found_by_its_checksum),
        cmocka_unit_test(xfer_verbs_fault_6_stop_is_quiet_only_when_reads_have_ended),
        cmocka_unit_test(xfer_verbs_fault_10_lost_queue_pair_ends_typed_and_is_made_again),
        cmocka_unit_test(xfer_verbs_forged_key_reads_nothing_and_ends_typed),
        cmocka_unit_test(xfer_verbs_throughput_at_64_kib),
    };

    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed == 0 && no_device ? TEST_SKIPPED : failed;
}
