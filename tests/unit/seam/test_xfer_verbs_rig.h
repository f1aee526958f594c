/* Two transfer sides of one process with RDMA between them, over any available device. Without one
 * only cases that need none run, and the rest reports itself as skipped; the lab (tests/rdma) runs
 * all of it over soft-RoCE. */
#ifndef TEST_XFER_VERBS_RIG_H
#define TEST_XFER_VERBS_RIG_H

#include "engine/stats.h"
#include "unit/rig/rig_lost.h"
#include "unit/seam/test_pulls_rig.h"

#define WAIT_NS            20000000000u /* over the longest pause before a path is made anew */
#define PAIRS              1            /* of measurements: ours, and perftest's */
#define PERFTEST_TRIES_MAX 3u
#define PAIRS_FULL         15
#define INJECTED_ENOUGH    3  /* of a random fault, except in the long form */
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

/* The link comes up anew, with this change of its keys. */
static inline void link_anew(uint32_t rkey_xor)
{
    xfer_link_down(rig.dst.xfer, rig.link);
    rig.rkey_xor = rkey_xor;
    rig_link(rig.port, RIG_SRC_INC);
}

/* The test is skipped if there is no device. */
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

static inline void wait_posted(uint64_t n)
{
    uint64_t deadline = io_now_ns() + WAIT_NS;

    while (stats_of(&rig.src).writes_posted < n && io_now_ns() < deadline)
        rig_turn();
}

/* The value that main returns: a case that could not run makes the whole count as skipped. */
static inline int verbs_ended(int failed)
{
    return failed == 0 && no_device ? TEST_SKIPPED : failed;
}

__attribute__((constructor)) static void says_how_it_ended(void)
{
    test_ends(verbs_ended);
}

#endif
