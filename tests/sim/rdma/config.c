/* The configuration of a history: small memory, small queues, and a random subset of the faults. */
#include "world.h"

#define RECEIVES 16              /* of a path: VERBS_PIECES */
#define RUNS     32              /* of one piece: XFER_RUNS_MAX; each is bound and closed */
#define ROOM     (MEMORY - 2048) /* a pool begins at 2 KiB at the latest */

static void fit(struct rconfig *c, uint32_t g, uint32_t bytes)
{
    while ((c->first[g] + c->pages[g]) * c->page_bytes[g] > bytes)
        c->pages[g]--;
}

static void make_pages(struct rconfig *c)
{
    uint64_t end;

    for (uint32_t g = 0; g < c->groups; g++) {
        c->units[g] = rw_between(1, UNITS);
        c->page_bytes[g] = 64 * rw_between(1, rw_one_in(4) ? 24 : 6);
        c->pages[g] = rw_between(4, PAGES / 2);
    }
    c->first[0] = rw_between(1, 3);
    fit(c, 0, c->groups > 1 ? ROOM / 2 : ROOM);
    end = (uint64_t)(c->first[0] + c->pages[0]) * c->page_bytes[0];
    if (c->groups == 1)
        return;
    c->first[1] = (uint32_t)((end + c->page_bytes[1] - 1) / c->page_bytes[1]);
    fit(c, 1, ROOM);
}

static void make_faults(struct rconfig *c)
{
    static const uint32_t usual[RF_COUNT] = {
        [RF_conn_refused] = 8,      [RF_conn_reset] = 40,
        [RF_accept_fails] = 8,      [RF_poll_ends] = 8,
        [RF_stall] = 600,           [RF_cut] = 60,
        [RF_nic_stalls] = 300,      [RF_link_down] = 40,
        [RF_node_killed] = 90,      [RF_bit_flip] = 60,
        [RF_early_completion] = 30, [RF_stale_completion] = 3,
        [RF_qp_error] = 30,         [RF_flush_stuck] = 3,
        [RF_access_refused] = 500,  [RF_job_fails] = 20,
        [RF_page_recycled] = 6,     [RF_serve_given_up] = 20,
        [RF_pull_stopped] = 6,      [RF_immediate_unasked] = 40,
        [RF_post_fails] = 1000,     [RF_destroy_fails] = 20,
        [RF_device_lost] = 400,     [RF_slow_connect] = 6,
        [RF_rail_cut] = 60,         [RF_path_silent] = 20};
    bool calm = rw_one_in(8);

    for (uint32_t i = 0; i < RF_COUNT; i++) {
        uint32_t r = rw_below(6);

        c->rate[i] = calm || r < 2 ? 0 : r < 5 ? usual[i] : (usual[i] + 3) / 4;
    }
}

/* Several connections to a peer, and most often no other way. */
static void make_paths(struct rconfig *c)
{
    c->connections = rw_one_in(2) ? 1 : rw_between(2, 4);
    if (c->connections == 1 || rw_one_in(3))
        return;
    for (uint32_t i = 0; i < NODES; i++)
        for (uint32_t k = 0; k < NODES; k++)
            c->transport[i][k] = XFER_TCP;
}

/* The least completion queue: bindings of a piece, and the receives that all paths keep posted. */
static uint32_t places_held(const struct rconfig *c)
{
    return 2 * RUNS + RECEIVES * (c->nodes - 1) * c->tenants;
}

/* Two paths that together need more than one completion queue has, break often, and are polled
 * seldom. */
static void squeeze(struct rconfig *c)
{
    c->tenants = 2;
    c->cqe = places_held(c) + rw_between(2, 6);
    c->max_msg = 64;
    c->busy = rw_between(1000, 5000);
    c->purge = false;
    c->rate[RF_qp_error] = 3;
}

/* Pushes of more requests than a queue has, which are given up half way. */
static void give_up_pushes(struct rconfig *c)
{
    memset(c->old, 0, sizeof c->old);
    c->cqe = places_held(c) + rw_between(2, 12);
    c->max_msg = 64;
    c->drag = rw_between(5, 100);
    c->rate[RF_serve_given_up] = c->rate[RF_pull_stopped] = 3;
}

/* Pulls are so rare, and cables so often cut, that no other piece learns in time that the path is
 * gone. */
static void push_seldom(struct rconfig *c)
{
    c->pause_ns = MS * rw_between(200, 1000);
    c->choices = rw_between(60, 90);
    c->idle_ns = SEC;
    c->rate[RF_cut] = 2;
}

void config_make(struct rconfig *c)
{
    memset(c, 0, sizeof *c);
    c->nodes = rw_one_in(3) ? 3 : 2;
    c->tenants = rw_one_in(3) ? 2 : 1;
    c->regions = rw_one_in(3) ? 2 : 1;
    c->groups = rw_one_in(3) ? 2 : 1;
    make_pages(c);
    c->max_msg = rw_one_in(3) ? 64 * rw_between(1, 8) : 1u << 30;
    for (uint32_t i = 0; i < NODES; i++)
        c->old[i] = rw_one_in(12);
    c->cqe = places_held(c) + (rw_one_in(2) ? rw_between(2, 12) : 1024);
    c->mr_bytes = rw_one_in(3) ? 1024 * rw_between(2, 16) : 0;
    c->slow = rw_one_in(4) ? rw_between(10, 100) : rw_between(1, 5);
    c->drag = rw_one_in(4) ? rw_between(50, 300) : c->slow;
    c->busy = rw_one_in(3) ? rw_between(100, 5000) : 0;
    c->purge = rw_one_in(2);
    c->idle_ns =
        SEC * rw_between(1, 5); /* a path's requests run out of retries before half of it, or not */
    c->pause_ns = rw_one_in(2) ? 1000ull * rw_between(20, 2000) : MS * rw_between(1, 40);
    for (uint32_t i = 0; i < NODES; i++)
        c->rails[i] = rw_one_in(10) ? 0 : rw_one_in(3) ? (rw_one_in(6) ? RAILS : 2) : 1;
    for (uint32_t i = 0; i < NODES; i++)
        for (uint32_t k = 0; k < NODES; k++)
            c->transport[i][k] = rw_one_in(8) ? XFER_TCP : rw_one_in(3) ? XFER_VERBS : XFER_AUTO;
    make_faults(c);
    if (rw_one_in(8))
        squeeze(c);
    if (rw_one_in(8))
        give_up_pushes(c);
    c->choices = rw_between(60, CHOICES_MAX);
    c->transfer_regions = rw_one_in(2) ? 1 : c->regions;
    make_paths(c);
    if (rw_one_in(6))
        push_seldom(c);
    for (uint32_t i = 0; i < NODES; i++) {
        c->far[i] = rw_one_in(4);
        c->bare[i] = c->far[i] && rw_one_in(4);
    }
}
