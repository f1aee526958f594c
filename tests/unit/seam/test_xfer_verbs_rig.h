/* Two transfer sides of one process with RDMA between them, over whatever device there is. On a
 * machine without one only what needs none runs, and the rest says that it was skipped; the lab
 * (tests/rdma) runs all of it over soft-RoCE. */
#ifndef TEST_XFER_VERBS_RIG_H
#define TEST_XFER_VERBS_RIG_H

#include "engine/stats.h"
#include "unit/rig/rig_lost.h"
#include "unit/seam/test_pulls_rig.h"

#define WAIT_NS            20000000000u /* longer than the longest pause before a path is made anew */
#define PAIRS              1            /* of measurements: ours, and perftest's */
#define PERFTEST_TRIES_MAX 3u
#define PAIRS_FULL         15
#define INJECTED_ENOUGH    3  /* of a fault that comes by chance, but in the long form */
#define TEST_SKIPPED       77 /* what ctest counts as skipped */

static bool no_device; /* some tests could not run */

static inline bool has_device(void)
{
    struct xfer_rdma_view view;

    xfer_rdma_view(rig.dst.xfer, &view);
    return view.open;
}

static inline bool verbs_up(void)
{
    struct xfer_link_view view;

    xfer_link_view(rig.dst.xfer, rig.link, &view);
    return strcmp(view.transport, "verbs") == 0;
}

static inline void wait_verbs(void)
{
    uint64_t deadline = io_now_ns() + WAIT_NS;

    while (!verbs_up()) {
        if (io_now_ns() > deadline)
            fail_msg("no path after 20 s");
        rig_turn();
    }
}

static inline struct xfer_stats stats_of(const struct side *side)
{
    struct xfer_stats s;

    xfer_stats(side->xfer, &s);
    return s;
}

static inline void ask_for_verbs(void)
{
    xfer_link_transport(rig.dst.xfer, rig.link, XFER_VERBS, 1, true);
}

/* The link comes up anew, with whatever is to be done to its keys. */
static inline void link_anew(uint32_t rkey_xor)
{
    xfer_link_down(rig.dst.xfer, rig.link);
    rig.rkey_xor = rkey_xor;
    rig_link(rig.port, RIG_SRC_INC);
}

/* The test is skipped where there is no device. */
static inline void open_verbs(struct rig_options o, uint32_t pages)
{
    o.rdma = true;
    rig_open(&o);
    if (!has_device()) {
        no_device = true;
        rig_close();
        skip();
    }
    rig_fill_source(pages);
    xfer_link_push(rig.dst.xfer, rig.link, o.push);
    ask_for_verbs();
    wait_verbs();
}

static inline const struct event *last(const struct side *side)
{
    assert_true(side->nevents > 0);
    return &side->event[side->nevents - 1];
}

static inline void pull_whole(uint32_t gen, uint32_t first, uint32_t n)
{
    rig.dst.nevents = 0;
    rig_pull((struct pull_id){1, gen}, 0, 3, first, n);
    rig_until(&rig.dst, 1);
    assert_int_equal(last(&rig.dst)->pulled.batch, 3);
    assert_int_equal(rig_check_pulled(last(&rig.dst), first, n), n);
}

static inline void poison(uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++)
        memset(mem_page(rig.dst.mem, 0, 0, 0, i), 0xee, rig.group[0].page_bytes);
}

static inline bool poisoned(uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++) {
        const uint8_t *page = mem_page(rig.dst.mem, 0, 0, 0, i);

        for (uint64_t b = 0; b < rig.group[0].page_bytes; b++)
            if (page[b] != 0xee)
                return false;
    }
    return true;
}

static inline void stop_and_wait(struct pull_id pull)
{
    uint32_t before = rig.dst.nevents;

    rig_stop(pull);
    rig_until(&rig.dst, before + 1);
    assert_int_equal(last(&rig.dst)->kind, EV_PULL_QUIET);
}

/* ------------------------------------------------------------------ cases that both ways have */

/* Larger than a registration, and across two. */
static inline void across_registrations(bool push)
{
    open_verbs(
        (struct rig_options){.page_bytes = {100 << 10}, .mr_bytes_max = 2u << 20, .push = push},
        201);
    pull_whole(1, 1, 200);
    assert_int_equal(stats_of(&rig.dst).verbs_pages_in, 200);
}

/* X5 */
static inline void replicated_move_once(bool push)
{
    open_verbs(
        (struct rig_options){
            .page_bytes = {4096}, .units = 2, .regions = 4, .alike = true, .push = push},
        257);
    pull_whole(1, 1, 256);
    assert_int_equal(stats_of(&rig.dst).verbs_bytes_in, 256 * 4096);
}

static inline void recycled_is_gone(bool push)
{
    open_verbs((struct rig_options){.page_bytes = {4096}, .push = push}, 65);
    rig.gone_after = 64 + 40; /* all may leave; the 41st to be confirmed was recycled */
    rig.answers = 0;
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 64);
    rig_until(&rig.dst, 1);
    assert_int_equal(last(&rig.dst)->kind, EV_PULL_BROKEN);
    assert_int_equal(last(&rig.dst)->broken.err, TERN_GONE);
    assert_int_equal(stats_of(&rig.dst).gone_answers, 24);
    stop_and_wait((struct pull_id){1, 1});
}

static inline uint32_t right_of(uint32_t gen, uint32_t n)
{
    uint32_t right;

    rig.dst.nevents = 0;
    rig_pull((struct pull_id){1, gen}, 0, 0, 1, n);
    rig_until(&rig.dst, 1);
    assert_int_equal(last(&rig.dst)->kind, EV_PULLED);
    right = rig_check_pulled(last(&rig.dst), 1, n);
    stop_and_wait((struct pull_id){1, gen});
    return right;
}

/* Fault 40: other memory lies where the device has registered what was there before, at the source
 * or at the destination; then there is none at all. */
static inline void other_memory_than_registered_is_found(bool push)
{
    struct lost from, to;
    struct mem_stats before, after;
    struct page_at at = {.index = 5, .gen = 1, .record = 5};

    open_verbs((struct rig_options){.page_bytes = {4096}, .push = push}, 65);
    assert_int_equal(right_of(1, 64), 64);
    lost_open(&from, mem_page(rig.src.mem, 0, 0, 0, 5), 4096);
    memset(from.view, 0xab, 4096);
    mem_seal(rig.src.mem, (struct seal_id){1, 2}, 0, &at, 1);
    mem_wait(rig.src.mem);
    mem_poll(rig.src.mem, rig_emit, &rig.src);
    assert_int_equal(right_of(2, 64), 63);
    lost_open(&to, mem_page(rig.dst.mem, 0, 0, 0, 9), 4096);
    assert_int_equal(right_of(3, 64), 62);
    lost_cut(&to);
    mem_stats(rig.dst.mem, &before);
    assert_int_equal(right_of(4, 64), 62);
    mem_stats(rig.dst.mem, &after);
    assert_int_equal(after.faults - before.faults, 1);
    assert_int_equal(stats_of(&rig.dst).verbs_pages_in, 64 + 63 + 62 + 62);
    lost_back(&to);
    lost_is_one(&to);
    lost_is_one(&from);
    lost_close(&to);
    lost_close(&from);
}

/* Fault 9. */
static inline void damaged_is_found(bool push)
{
    open_verbs((struct rig_options){.page_bytes = {4096}, .corrupt = 5, .push = push}, 129);
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 128);
    rig_until(&rig.dst, 1);
    assert_int_equal(rig_check_pulled(last(&rig.dst), 1, 128), 123);
    assert_int_equal(stats_of(&rig.dst).corrupt_detected, 5);
    pull_whole(2, 1, 128);
    printf("fault=9 runs=1 injected=5 violations=0\n");
}

/* Work requests that move pages; whoever posts them counts those that fail, too. */
static inline const struct side *poster(bool push)
{
    return push ? &rig.src : &rig.dst;
}

static inline uint64_t posted(bool push)
{
    struct xfer_stats s = stats_of(poster(push));

    return push ? s.writes_posted : s.reads_posted;
}

static inline void wait_posted(bool push, uint64_t n)
{
    uint64_t deadline = io_now_ns() + WAIT_NS;

    while (posted(push) < n && io_now_ns() < deadline)
        rig_turn();
}

/* Fault 10: the source's queue pair goes while it writes or is read from. A destination that posts
 * nothing is told. */
static inline void lost_queue_pair_is_made_again(bool push)
{
    uint64_t start;

    open_verbs((struct rig_options){.page_bytes = {64 << 10}, .push = push}, 201);
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 200);
    wait_posted(push, 1);
    xfer_peer_down(rig.src.xfer, rig.link);
    start = io_now_ns();
    expect_broken((struct pull_id){1, 1}, TERN_PEER_LOST);
    wait_verbs();
    pull_whole(2, 1, 200);
    assert_true(stats_of(&rig.dst).paths_failed >= 1);
    printf("fault=10 runs=1 injected=1 violations=0 recover_ms=%u reconnects=%u\n",
           (unsigned)((io_now_ns() - start) / 1000000),
           (unsigned)stats_of(&rig.dst).paths_made - 1);
}

/* By keys that the other end did not give. */
static inline void forged_key_moves_nothing(bool push)
{
    open_verbs((struct rig_options){.page_bytes = {4096}, .push = push}, 65);
    link_anew(0x00ffff00u);
    ask_for_verbs();
    wait_verbs();
    poison(1, 64);
    rig.dst.nevents = 0;
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 64);
    expect_broken((struct pull_id){1, 1}, TERN_PEER_LOST);
    assert_true(poisoned(1, 64));
    assert_true(stats_of(poster(push)).read_errors > 0);
}

/* What the command in TERN_PERFTEST says of that program on the same device, which may end without
 * a figure where the machine is busy; 0: there is no such command. */
static inline double perftest(const char *program)
{
    const char *script = getenv("TERN_PERFTEST");
    char command[512], line[512], *at;
    double v = 0;
    FILE *f;

    if (!script)
        return 0;
    snprintf(command, sizeof command, "%s %s", script, program);
    for (uint32_t i = 0; i < PERFTEST_TRIES_MAX && v <= 0; i++) {
        f = popen(command, "r");
        assert_non_null(f);
        while (fgets(line, sizeof line, f)) {
            at = strstr(line, "mb_per_s=");
            if (at)
                v = atof(at + strlen("mb_per_s="));
            if (!at || v <= 0)
                fputs(line, stdout);
        }
        if (pclose(f) != 0)
            v = 0;
    }
    assert_true(v > 0);
    return v;
}

static inline double pull_mb_per_s(uint32_t run)
{
    uint64_t start = io_now_ns();

    rig.dst.nevents = 0;
    rig_pull((struct pull_id){1, run}, 0, 0, 1, 200);
    rig_pull((struct pull_id){1, run}, 0, 1, 201, 200);
    rig_until(&rig.dst, 2);
    return 400.0 * (64 << 10) * 1000.0 / (double)(io_now_ns() - start);
}

/* Sorts them. */
static inline double median(double *v, uint32_t n)
{
    return series_median(&(struct series){.v = v, .n = n});
}

/* 64 KiB a page, by turns with perftest, so that whatever else the machine does falls on both. */
static inline void throughput(bool push, const char *name, const char *program)
{
    struct rig_options o = {.page_bytes = {64 << 10}, .memory_bytes = 64u << 20, .push = push};
    double ours[PAIRS_FULL], theirs[PAIRS_FULL], ratio[PAIRS_FULL], middle;
    uint32_t n = getenv("TERN_FULL") ? PAIRS_FULL : PAIRS;

    open_verbs(o, 401);
    for (uint32_t i = 0; i < n; i++) {
        ours[i] = pull_mb_per_s(i + 1);
        theirs[i] = perftest(program);
        ratio[i] = theirs[i] > 0 ? ours[i] / theirs[i] : 0;
    }
    middle = median(ratio, n);
    printf(
        "throughput at 64 KiB: %s %.1f MB/s, %s %.1f MB/s, ratio=%.2f (%.2f to %.2f, %u pairs)\n",
        name, median(ours, n), program, median(theirs, n), middle, ratio[0], ratio[n - 1], n);
}

/* What main returns: a case that could not run makes the whole count as skipped. */
static inline int verbs_ended(int failed)
{
    return failed == 0 && no_device ? TEST_SKIPPED : failed;
}

__attribute__((constructor)) static void says_how_it_ended(void)
{
    test_ends(verbs_ended);
}

#endif
