/* Pushes by RDMA WRITE between two transfer sides of one process, over any available device.
 * Without one these are skipped; the lab (tests/rdma) runs all of them over soft-RoCE: grants,
 * their end, and who is harmed by what. */
#include "seam/xfer/verbs/verbs.h"
#include "unit/seam/test_xfer_verbs_rig.h"

#define WINDOW_RUNS_MAX 20u

/* Page i of the batch is page first + i * step of the source and of the destination. */
static void pull_scattered(struct pull_id pull, uint32_t first, uint32_t step, uint32_t n)
{
    struct page_at pages[PULL_BATCH_PAGES];
    struct page_ref refs[PULL_BATCH_PAGES];
    struct action act = {.kind = ACT_PULL};

    for (uint32_t i = 0; i < n; i++) {
        uint32_t index = first + i * step;

        pages[i] = (struct page_at){.group = 0, .index = index, .gen = pull.gen, .record = index};
        refs[i] = (struct page_ref){index, 100 + index};
    }
    act.pull.pull = pull;
    act.pull.serve = (struct serve_id){0, 7};
    act.pull.link = rig.link;
    act.pull.n = n;
    act.pull.pages = pages;
    act.pull.refs = refs;
    xfer_pull(rig.dst.xfer, &act);
}

static bool all_right(uint32_t first, uint32_t step, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!rig_page_right(0, first + i * step))
            return false;
    return true;
}

/* ------------------------------------------------------------------ cases */

TEST(xfer_push_writes_every_page_and_merges_adjacent_ones)
{
    struct xfer_stats s, out;

    open_verbs((struct rig_options){.page_bytes = {4096}, .units = 2, .regions = 2}, 257);
    pull_whole(1, 1, 256);
    s = stats_of(&rig.dst);
    out = stats_of(&rig.src);
    assert_int_equal(s.verbs_pages_in, 256);
    assert_int_equal(s.pages_in, 256);
    assert_int_equal(s.corrupt_detected + s.gone_answers + s.read_errors + s.late_writes, 0);
    assert_int_equal(out.verbs_pages_out, 256);
    assert_true(out.writes_posted > 0 && out.writes_posted < 256); /* of 512 pieces of memory */
    assert_true(s.socket_bytes_in < s.payload_bytes_in / 50);
}

/* X5 */
TEST(xfer_push_x5_replicated_pages_move_once)
{
    open_verbs((struct rig_options){.page_bytes = {4096}, .units = 2, .regions = 4, .alike = true},
               257);
    pull_whole(1, 1, 256);
    assert_int_equal(stats_of(&rig.dst).verbs_bytes_in, 256 * 4096);
}

/* Larger than a registration, and across two. */
TEST(xfer_push_pages_across_registrations_are_split)
{
    open_verbs((struct rig_options){.page_bytes = {100 << 10}, .mr_bytes_max = 2u << 20}, 201);
    pull_whole(1, 1, 200);
    assert_int_equal(stats_of(&rig.dst).verbs_pages_in, 200);
}

/* No two pages are adjacent: each needs a window of its own in each region, 400 in all, and a path
 * has far fewer. Windows are freed and used again. */
TEST(xfer_push_more_runs_than_windows_go_in_turn)
{
    open_verbs((struct rig_options){.page_bytes = {4096}, .regions = 2}, 402);
    for (uint32_t run = 1; run <= 3; run++) {
        rig.dst.nevents = 0;
        pull_scattered((struct pull_id){1, run}, 1, 2, 200);
        rig_until(&rig.dst, 1);
        assert_int_equal(last(&rig.dst)->kind, EV_PULLED);
        assert_true(all_right(1, 2, 200));
    }
    assert_int_equal(stats_of(&rig.dst).verbs_pages_in, 600);
}

TEST(xfer_push_page_recycled_at_the_source_is_gone)
{
    open_verbs((struct rig_options){.page_bytes = {4096}}, 65);
    rig.gone_after = 64 + 40; /* all may leave; the 41st to be confirmed was recycled */
    rig.answers = 0;
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 64);
    rig_until(&rig.dst, 1);
    assert_int_equal(last(&rig.dst)->kind, EV_PULL_BROKEN);
    assert_int_equal(last(&rig.dst)->broken.err, TERN_GONE);
    assert_int_equal(stats_of(&rig.dst).gone_answers, 24);
    stop_and_wait((struct pull_id){1, 1});
}

/* One page of a piece is of another generation: nothing of the piece is written. */
TEST(xfer_push_stale_generation_writes_nothing)
{
    open_verbs((struct rig_options){.page_bytes = {4096}}, 65);
    rig.gen[0][33]++;
    poison(1, 64);
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 64);
    expect_broken((struct pull_id){1, 1}, TERN_GONE);
    assert_true(poisoned(1, 64));
    assert_int_equal(stats_of(&rig.src).writes_posted, 0);
    rig.gen[0][33]--;
    pull_whole(2, 1, 64); /* and the path works as before */
    assert_int_equal(stats_of(&rig.dst).paths_failed, 0);
}

/* Fault 9. */
TEST(xfer_push_damaged_page_is_found_by_its_checksum)
{
    open_verbs((struct rig_options){.page_bytes = {4096}, .corrupt = 5}, 129);
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 128);
    rig_until(&rig.dst, 1);
    assert_int_equal(rig_check_pulled(last(&rig.dst), 1, 128), 123);
    assert_int_equal(stats_of(&rig.dst).corrupt_detected, 5);
    pull_whole(2, 1, 128);
    printf("fault=9 runs=1 injected=5 violations=0\n");
}

static uint32_t right_of(uint32_t gen, uint32_t n)
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

/* Fault 40: other memory replaces the memory that the device has registered, at the source or at
 * the destination; then there is none at all. */
TEST(xfer_push_other_memory_than_registered_is_found)
{
    struct lost from, to;
    struct mem_stats before, after;
    struct page_at at = {.index = 5, .gen = 1, .record = 5};

    open_verbs((struct rig_options){.page_bytes = {4096}}, 65);
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

/* Fault 6, from the other side: after QUIET no write lands, however many the source has under way.
 * A grant whose write does not come in time is revoked, and the device refuses the write. */
TEST(xfer_push_fault_6_stop_is_quiet_only_when_nobody_can_write)
{
    struct prng prng;
    uint32_t runs = 0, injected = 0, enough = getenv("TERN_FULL") ? UINT32_MAX : INJECTED_ENOUGH;

    prng_init(&prng, 7);
    open_verbs((struct rig_options){.page_bytes = {64 << 10}}, 201);
    while (runs < 25 && (injected < enough || stats_of(&rig.dst).paths_failed == 0)) {
        uint32_t run = ++runs, before, late = (uint32_t)stats_of(&rig.dst).late_writes;

        rig.dst.nevents = 0;
        wait_verbs(); /* the run before may have failed the queue pair */
        rig_pull((struct pull_id){2, run}, 0, 0, 1, 200);
        for (uint64_t turns = prng_below(&prng, 40); turns > 0 && rig.dst.nevents == 0; turns--)
            rig_turn();
        before = rig.dst.nevents;
        rig_stop((struct pull_id){2, run});
        rig_until(&rig.dst, before + 1);
        assert_int_equal(last(&rig.dst)->kind, EV_PULL_QUIET);
        poison(1, 200);
        for (uint32_t turns = 0; turns < 100; turns++)
            rig_turn();
        assert_true(poisoned(1, 200));
        assert_int_equal(rig.dst.nevents, before + 1);
        injected += (uint32_t)stats_of(&rig.dst).late_writes > late;
    }
    printf("fault=6 runs=%u injected=%u violations=0 landed_in_live=0 late_writes=%u revoked=%u "
           "refused=%u\n",
           runs, injected, (unsigned)stats_of(&rig.dst).late_writes,
           (unsigned)stats_of(&rig.dst).grants_revoked, (unsigned)stats_of(&rig.dst).paths_failed);
    assert_true(injected > 0);
    assert_true(stats_of(&rig.dst).grants_revoked > 0 && stats_of(&rig.dst).paths_failed > 0);
    wait_verbs();
    pull_whole(1, 1, 200);
}

/* The source learns of the end, too: it refuses what it had not begun, and no queue pair breaks. */
TEST(xfer_push_stop_that_both_hear_of_breaks_nothing)
{
    open_verbs((struct rig_options){.page_bytes = {4096}}, 257);
    for (uint32_t run = 1; run <= 20; run++) {
        rig.dst.nevents = rig.src.nevents = 0;
        rig_pull((struct pull_id){2, run}, 0, 0, 1, 256);
        for (uint32_t turns = 0; turns < run && rig.dst.nevents == 0; turns++)
            rig_turn();
        if (rig.dst.nevents > 0)
            rig.dst.nevents = 0; /* it was faster */
        rig_serve_stop(0);
        rig_stop((struct pull_id){2, run});
        rig_until(&rig.src, 1);
        assert_int_equal(last(&rig.src)->kind, EV_SERVE_QUIET);
        while (rig.dst.nevents == 0 || last(&rig.dst)->kind != EV_PULL_QUIET)
            rig_until(&rig.dst, rig.dst.nevents + 1);
        rig_serve(0);
    }
    assert_int_equal(stats_of(&rig.dst).paths_failed, 0);
    rig.dst.nevents = 0;
    pull_whole(1, 1, 256);
}

/* The serve is quiet only when no device reads its pages any more. */
TEST(xfer_push_serve_is_quiet_only_when_its_writes_have_ended)
{
    uint32_t waited = 0;

    open_verbs((struct rig_options){.page_bytes = {64 << 10}}, 201);
    for (uint32_t run = 1; run <= 10; run++) {
        uint64_t before = stats_of(&rig.src).writes_posted;

        rig.dst.nevents = rig.src.nevents = 0;
        rig_pull((struct pull_id){2, run}, 0, 0, 1, 200);
        while (stats_of(&rig.src).writes_posted == before)
            rig_turn();
        rig_serve_stop(0);
        waited += rig.src.nevents == 0;
        rig_until(&rig.src, 1);
        assert_int_equal(last(&rig.src)->kind, EV_SERVE_QUIET);
        /* Nobody confirmed the pages that arrived: the serve was over. */
        expect_broken((struct pull_id){2, run}, TERN_GONE);
        rig_serve(0);
    }
    assert_true(waited > 0);
    assert_int_equal(stats_of(&rig.dst).paths_failed, 0);
}

/* Fault 10: the source's queue pair is lost while it writes or is read from. A destination that
 * posts nothing is informed. */
TEST(xfer_push_fault_10_lost_queue_pair_ends_typed_and_is_made_again)
{
    uint64_t start;

    open_verbs((struct rig_options){.page_bytes = {64 << 10}}, 201);
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 200);
    wait_posted(1);
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

/* The destination's queue pair is lost while it is written to. */
TEST(xfer_push_lost_queue_pair_of_the_destination_is_made_again)
{
    open_verbs((struct rig_options){.page_bytes = {64 << 10}}, 201);
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 200);
    wait_posted(1);
    xfer_link_down(rig.dst.xfer, rig.link);
    expect_broken((struct pull_id){1, 1}, TERN_PEER_LOST);
    poison(1, 200);
    for (uint32_t turns = 0; turns < 200; turns++)
        rig_turn();
    assert_true(poisoned(1, 200));
    rig_link(rig.port, RIG_SRC_INC);
    ask_for_verbs();
    wait_verbs();
    rig.dst.nevents = 0;
    pull_whole(2, 1, 200);
}

/* Writes by keys that the other end did not give. */
TEST(xfer_push_forged_key_writes_nothing_and_ends_typed)
{
    open_verbs((struct rig_options){.page_bytes = {4096}}, 65);
    link_anew(0x00ffff00u);
    ask_for_verbs();
    wait_verbs();
    poison(1, 64);
    rig.dst.nevents = 0;
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 64);
    expect_broken((struct pull_id){1, 1}, TERN_PEER_LOST);
    assert_true(poisoned(1, 64));
    assert_true(stats_of(&rig.src).read_errors > 0);
}

/* ------------------------------------------------------------------ keys */

static struct verbs_path *path_at(const struct side *side)
{
    return path_of(verbs_of(side->xfer), rig.link, 0, 0);
}

/* Acts as a peer with a program of its own: one request over the path's queue pair, between its
 * page and memory there, by that key. Returns its status; the queue pair breaks if not well. */
static enum ibv_wc_status steal(struct side *thief, enum ibv_wr_opcode opcode, uint8_t *page,
                                const uint8_t *there, uint32_t rkey)
{
    struct verbs *v = verbs_of(thief->xfer);
    struct verbs_path *p = path_at(thief);
    const struct verbs_mr *mr = local_mr(&rail_of(v, p)->domain[0], page);
    struct ibv_sge sge = {.addr = (uintptr_t)page, .length = 4096, .lkey = mr->mr->lkey};
    struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode};
    uint64_t deadline = io_now_ns() + WAIT_NS;
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)there;
    wr.wr.rdma.rkey = rkey;
    assert_int_equal(p->posted, p->completed); /* the next completion is this one */
    assert_int_equal(ibv_post_send(p->qp, &wr, &bad), 0);
    while (ibv_poll_cq(rail_of(v, p)->cq, 1, &wc) == 0)
        assert_true(io_now_ns() < deadline);
    return wc.status;
}

static void path_anew(void)
{
    link_anew(0);
    ask_for_verbs();
    wait_verbs();
}

/* The destination reads page 1 by the key of the source's own registration. */
static enum ibv_wc_status read_all_the_same(void)
{
    const uint8_t *there = mem_page(rig.src.mem, 0, 0, 0, 1);
    struct verbs *v = verbs_of(rig.src.xfer);
    const struct verbs_mr *mr = local_mr(&rail_of(v, path_at(&rig.src))->domain[0], there);

    return steal(&rig.dst, IBV_WR_RDMA_READ, mem_page(rig.dst.mem, 0, 0, 0, 1), there,
                 mr->mr->rkey);
}

/* Neither over its own queue pair, nor by that key if a queue pair took reads: before its fetch,
 * and after it. */
TEST(xfer_push_a_puller_has_no_key_that_reads)
{
    struct ibv_qp_attr reads = {.qp_state = IBV_QPS_RTS, .qp_access_flags = IBV_ACCESS_REMOTE_READ};

    open_verbs((struct rig_options){.page_bytes = {4096}}, 65);
    for (uint32_t run = 1; run <= 2; run++) {
        poison(1, 64);
        assert_int_equal(read_all_the_same(), IBV_WC_REM_INV_REQ_ERR);
        assert_true(poisoned(1, 64));
        path_anew();
        assert_int_equal(
            ibv_modify_qp(path_at(&rig.src)->qp, &reads, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
        assert_int_equal(read_all_the_same(), IBV_WC_REM_ACCESS_ERR);
        assert_true(poisoned(1, 64));
        path_anew();
        pull_whole(run, 1, 64);
    }
}

/* The source writes page 1 by the key that was bound to it last. (soft-RoCE does not check that a
 * key opens nothing beyond its pages; tern-sim --rdma shows it.) */
TEST(xfer_push_a_key_opens_nothing_after_its_fetch)
{
    uint8_t *page, *there;

    open_verbs((struct rig_options){.page_bytes = {4096}}, 65);
    page = mem_page(rig.src.mem, 0, 0, 0, 2);
    there = mem_page(rig.dst.mem, 0, 0, 0, 1);
    for (uint32_t run = 1; run <= 2; run++) {
        rig.dst.nevents = 0;
        pull_scattered((struct pull_id){1, run}, 1, 1, 1); /* one run, so the first memory window */
        rig_until(&rig.dst, 1);
        assert_true(all_right(1, 1, 1));
        assert_int_equal(stats_of(&rig.dst).windows_open, 0);
        poison(1, 1);
        assert_int_equal(
            steal(&rig.src, IBV_WR_RDMA_WRITE, page, there, path_at(&rig.dst)->mw[0]->rkey),
            IBV_WC_REM_ACCESS_ERR);
        assert_true(poisoned(1, 1));
        path_anew();
    }
    pull_whole(3, 1, 64);
}

static void all_closed(void)
{
    uint64_t deadline = io_now_ns() + WAIT_NS;

    while (stats_of(&rig.dst).windows_open > 0) {
        assert_true(io_now_ns() < deadline);
        rig_turn();
    }
}

/* False: nothing was pushed, as the source's end of the path was not ready; it came by TCP. */
static bool begins_by_push(uint64_t before)
{
    uint64_t deadline = io_now_ns() + WAIT_NS;

    while (stats_of(&rig.src).writes_posted == before && rig.dst.nevents == 0) {
        assert_true(io_now_ns() < deadline);
        rig_turn();
    }
    return stats_of(&rig.src).writes_posted > before;
}

/* By the device, or with their queue pair: for fetches that succeed, are given up, or lose it. */
TEST(xfer_push_windows_are_closed_however_a_fetch_ends)
{
    uint32_t seen = 0;

    open_verbs((struct rig_options){.page_bytes = {64 << 10}}, 201);
    for (uint32_t run = 1; seen < 6; run++) {
        uint64_t before = stats_of(&rig.src).writes_posted;

        assert_true(run <= WINDOW_RUNS_MAX);
        wait_verbs();
        rig.dst.nevents = 0;
        rig_pull((struct pull_id){2, run}, 0, 0, 1, 200);
        if (!begins_by_push(before)) {
            printf("run %u came by TCP\n", run);
            continue;
        }
        assert_true(stats_of(&rig.dst).windows_open > 0);
        if (++seen % 3 == 1) {
            rig_until(&rig.dst, 1);
        } else if (seen % 3 == 2) {
            rig_stop((struct pull_id){2, run});
        } else {
            xfer_peer_down(rig.src.xfer, rig.link);
            expect_broken((struct pull_id){2, run}, TERN_PEER_LOST);
        }
        all_closed();
    }
    wait_verbs();
    rig.dst.nevents = 0;
    pull_whole(1, 1, 200);
    all_closed();
}

/* ------------------------------------------------------------------ forged requests */

struct forgery {
    struct xfer_run run;
    uint32_t nruns;
    bool other_epoch;
};

/* The answer to a request for page 1 with such a run: a status, or -1 if the source hangs up. */
static int64_t forge(const struct forgery *f)
{
    uint8_t buf[XFER_WRITE_BYTES];
    struct xfer_head head = {.type = XFER_REQUEST_WRITE,
                             .n = 1,
                             .a = serve_id_pack((struct serve_id){0, 7}),
                             .b = f->nruns | (uint64_t)(rig.offer[0].epoch + f->other_epoch) << 32};
    uint32_t n = 2 * XFER_HEAD_BYTES, got = 0;
    uint64_t deadline = io_now_ns() + WAIT_NS;
    int fd = rig_dial(rig.port);
    ssize_t r = 1;

    xfer_put_head(buf, &(struct xfer_head){.type = XFER_HELLO, .a = RIG_SRC_INC, .b = RIG_TOKEN});
    xfer_put_head(buf + XFER_HEAD_BYTES, &head);
    xfer_put_entry(buf + n, &(struct xfer_entry){.index = 1, .gen = 101});
    n += XFER_ENTRY_BYTES;
    for (uint32_t i = 0; i < f->nruns; i++, n += XFER_RUN_BYTES)
        xfer_put_run(buf + n, &f->run);
    assert_int_equal(send(fd, buf, n, MSG_NOSIGNAL), n);
    while (r != 0 && got < XFER_HEAD_BYTES + XFER_STATUS_BYTES(1)) {
        r = recv(fd, buf + got, sizeof buf - got, MSG_DONTWAIT);
        assert_true(r >= 0 || errno == EAGAIN);
        assert_true(io_now_ns() < deadline);
        got += r > 0 ? (uint32_t)r : 0;
        rig_turn();
    }
    close(fd);
    return r == 0 ? -1 : (int64_t)xfer_get32(buf + XFER_HEAD_BYTES);
}

/* Grants that no destination gave: the source writes for none of them. */
TEST(xfer_push_forged_grants_are_not_written_to)
{
    const struct forgery senseless[] = {
        {{.mw = XFER_MWS_MAX << 8, .bytes = 4096}, 1, false}, /* no such window */
        {{.mw = 0xffffff00u, .bytes = 4096}, 1, false},
        {{.region = 1, .bytes = 4096}, 1, false}, /* no such memory */
        {{.offset = UINT64_MAX, .bytes = 4096}, 1, false},
        {{.offset = (32u << 20) - 4095, .bytes = 4096}, 1, false}, /* beyond its end */
        {{.bytes = 4095}, 1, false},                               /* not the page's bytes */
        {{.bytes = 4097}, 1, false},
        {{.bytes = UINT64_MAX}, 1, false},
        {{.bytes = 0}, 1, false},
        {{.bytes = 4096}, 2, false},
        {{.bytes = 4096}, 0, false},
    };

    open_verbs((struct rig_options){.page_bytes = {4096}}, 65);
    for (uint32_t i = 0; i < sizeof senseless / sizeof senseless[0]; i++)
        assert_int_equal(forge(&senseless[i]), -1);
    assert_int_equal(forge(&(struct forgery){{.bytes = 4096}, 1, true}), TERN_PEER_LOST);
    assert_int_equal(stats_of(&rig.src).writes_posted, 0);
    pull_whole(1, 1, 64);
    assert_int_equal(stats_of(&rig.dst).paths_failed, 0);
}

/* A page in more registrations than a grant has runs. */
static const struct rig_options in_many_registrations = {.page_bytes = {32 * (68 << 10) - 4096},
                                                         .mr_bytes_max = 68 << 10,
                                                         .memory_bytes = 64 * (68 << 10)};

static void any_transport(void)
{
    link_anew(0);
    xfer_link_transport(rig.dst.xfer, rig.link, XFER_AUTO, 1, true);
    wait_verbs();
}

/* It takes another way, or ends with a typed error. */
TEST(xfer_push_page_in_too_many_registrations_is_not_pushed)
{
    open_verbs(in_many_registrations, 2);
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 1);
    expect_broken((struct pull_id){1, 1}, TERN_UNSUPPORTED);
    any_transport();
    pull_whole(2, 1, 1);
    assert_int_equal(stats_of(&rig.dst).verbs_pages_in, 0);
    assert_int_equal(stats_of(&rig.dst).batches_moved, 1);
}

/* Both batches that wait for the connection take the other way at once: the clock stands still. */
TEST(xfer_push_batches_that_go_another_way_wait_for_no_tick)
{
    uint64_t deadline = io_now_ns() + WAIT_NS;

    open_verbs(in_many_registrations, 2);
    any_transport();
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 1);
    rig_pull((struct pull_id){1, 1}, 0, 1, 1, 1);
    while (rig.dst.nevents < 2) {
        assert_true(io_now_ns() < deadline);
        xfer_poll(rig.src.xfer);
        xfer_poll(rig.dst.xfer);
        io_run(rig.io, io_now_ns() + 1000000u);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(rig_check_pulled(&rig.dst.event[i], 1, 1), 1);
    assert_int_equal(stats_of(&rig.dst).batches_moved, 2);
}

/* Runs the command in TERN_PERFTEST for that program on the same device, which may end without a
 * figure on a busy machine; 0: no such command. */
static double perftest(const char *program)
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

static double pull_mb_per_s(uint32_t run)
{
    uint64_t start = io_now_ns();

    rig.dst.nevents = 0;
    rig_pull((struct pull_id){1, run}, 0, 0, 1, 200);
    rig_pull((struct pull_id){1, run}, 0, 1, 201, 200);
    rig_until(&rig.dst, 2);
    return 400.0 * (64 << 10) * 1000.0 / (double)(io_now_ns() - start);
}

/* Sorts them. */
static double median(double *v, uint32_t n)
{
    return series_median(&(struct series){.v = v, .n = n});
}

/* 64 KiB a page, alternating with perftest, so that other load affects both. */
TEST(xfer_push_throughput_at_64_kib)
{
    struct rig_options o = {.page_bytes = {64 << 10}, .memory_bytes = 64u << 20};
    double ours[PAIRS_FULL], theirs[PAIRS_FULL], ratio[PAIRS_FULL], middle;
    uint32_t n = getenv("TERN_FULL") ? PAIRS_FULL : PAIRS;

    open_verbs(o, 401);
    for (uint32_t i = 0; i < n; i++) {
        ours[i] = pull_mb_per_s(i + 1);
        theirs[i] = perftest("ib_write_bw");
        ratio[i] = theirs[i] > 0 ? ours[i] / theirs[i] : 0;
    }
    middle = median(ratio, n);
    printf("throughput at 64 KiB: verbs_push %.1f MB/s, ib_write_bw %.1f MB/s, ratio=%.2f (%.2f to "
           "%.2f, %u pairs)\n",
           median(ours, n), median(theirs, n), middle, ratio[0], ratio[n - 1], n);
}
