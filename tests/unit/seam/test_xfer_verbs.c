/* Paths between two transfer sides of one process, over any available device: made, lost, and made
 * again, what continues over others, and what falls back. test_xfer_push.c has the data. Without a
 * device only cases that need none run, and the rest reports itself as skipped; the lab
 * (tests/rdma) runs all of it over soft-RoCE. */
#include <dirent.h>
#include <sys/resource.h>

#include "unit/seam/test_xfer_verbs_rig.h"

/* ------------------------------------------------------------------ cases */

/* Fault 10, where TCP is allowed: transfers under way restart over it. */
TEST(xfer_verbs_fault_10_lost_path_goes_on_over_tcp)
{
    open_verbs((struct rig_options){.page_bytes = {64 << 10}}, 201);
    xfer_link_transport(rig.dst.xfer, rig.link, XFER_AUTO, 1, true);
    rig_pull((struct pull_id){1, 1}, 0, 0, 1, 100);
    rig_pull((struct pull_id){1, 1}, 0, 1, 101, 100);
    wait_posted(1);
    xfer_peer_down(rig.src.xfer, rig.link);
    rig_until(&rig.dst, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct event *e = &rig.dst.event[i];

        assert_int_equal(e->kind, EV_PULLED);
        assert_int_equal(rig_check_pulled(e, 1 + 100 * e->pulled.batch, 100), 100);
    }
    assert_true(stats_of(&rig.dst).batches_moved >= 1);
    assert_int_equal(stats_of(&rig.dst).corrupt_detected, 0);
    printf("fault=10 runs=1 injected=1 violations=0 batches_moved=%u\n",
           (unsigned)stats_of(&rig.dst).batches_moved);
}

/* Fault 11: a peer that refuses every path is asked less and less often. */
TEST(xfer_verbs_fault_11_refused_paths_come_again_after_a_growing_pause)
{
    uint64_t start, now, pause = 200000000u, sum = 0;
    uint32_t cap = 1;

    open_verbs((struct rig_options){.page_bytes = {4096}}, 65);
    rig.refuses = true;
    link_anew(0);
    ask_for_verbs();
    for (start = io_now_ns(); rig.refused < 4;) {
        rig_turn();
        now = io_now_ns(); /* after the attempts: a stalled thread has made none unseen */
        assert_true(now - start < WAIT_NS);
        while (sum + pause <= now - start) {
            sum += pause;
            pause *= 2;
            cap++;
        }
        assert_true(rig.refused <= cap);
    }
    printf("fault=11 runs=1 injected=%u violations=0 attempts=%u limit=%u\n", rig.refused,
           rig.refused, cap);
    rig.refuses = false;
    wait_verbs();
    pull_whole(2, 1, 64);
}

static void wait_rails(void)
{
    uint64_t deadline = io_now_ns() + WAIT_NS;

    while (stats_of(&rig.dst).paths_up < 2 && io_now_ns() < deadline)
        rig_turn();
    assert_int_equal(stats_of(&rig.dst).paths_up, 2);
}

/* The test is skipped if there are fewer than two devices. */
static void open_two_rails(struct rig_options o, uint32_t pages)
{
    struct xfer_rdma_view view;
    static char name[2][XFER_DEVICE_BYTES];

    o.rdma = true;
    rig_open(&o);
    xfer_rdma_view(rig.dst.xfer, &view);
    rig_close();
    if (view.ndevices < 2) {
        no_device = true;
        skip();
    }
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(name[i], sizeof name[i], "%s", view.found[i].name);
        o.device[i] = name[i];
    }
    rig_open(&o);
    xfer_rdma_view(rig.dst.xfer, &view);
    assert_int_equal(view.nrails, 2);
    rig_fill_source(pages);
    ask_for_verbs();
    wait_rails();
}

/* Both are used; when one is lost the other takes over. More is pulled than is asked for at
 * once. */
TEST(xfer_verbs_rail_lost_in_mid_transfer_the_other_goes_on)
{
    struct xfer_path_msg again;
    struct xfer_path_view path;
    struct xfer_rdma_view view;
    open_two_rails((struct rig_options){.page_bytes = {64 << 10}, .memory_bytes = 64u << 20}, 801);
    for (uint32_t i = 0; i < 4; i++)
        rig_pull((struct pull_id){1 + i / 2, 1}, 0, i, 1 + 200 * i, 200);
    wait_posted(4);
    again = rig.offer[1]; /* one that it never made: the source fails the queue pair */
    again.epoch += 1000;
    xfer_path_msg(rig.src.xfer, rig.link, &again);
    rig_until(&rig.dst, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const struct event *e = &rig.dst.event[i];

        assert_int_equal(e->kind, EV_PULLED);
        assert_int_equal(rig_check_pulled(e, 1 + 200 * e->pulled.batch, 200), 200);
    }
    assert_int_equal(stats_of(&rig.dst).verbs_pages_in, 800);
    assert_int_equal(stats_of(&rig.dst).paths_failed, 1);
    assert_true(stats_of(&rig.dst).pieces_again > 0);
    xfer_rdma_view(rig.src.xfer, &view);
    assert_true(view.rail[0].bytes_asked > 0 && view.rail[1].bytes_asked > 0);
    assert_true(xfer_path_view(rig.dst.xfer, rig.link, 0, &path));
    assert_true(path.ready);
    assert_true(xfer_path_view(rig.dst.xfer, rig.link, 1, &path));
    assert_false(xfer_path_view(rig.dst.xfer, rig.link, 2, &path));
    printf("fault=10 runs=1 injected=1 violations=0 pieces_again=%u\n",
           (unsigned)stats_of(&rig.dst).pieces_again);
}

static uint32_t open_files(void)
{
    uint32_t n = 0;
    DIR *d = opendir("/proc/self/fd");

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* For the operator's decision: the devices and the limit are reported also where RDMA is not
 * wanted, as they are where it is. */
TEST(xfer_verbs_unwanted_is_looked_at_and_left_alone)
{
    struct rig_options o = {.page_bytes = {4096}, .rdma = true};
    struct xfer_rdma_view wanted, view;
    struct rlimit limit;
    uint32_t files[2];

    rig_open(&o);
    xfer_rdma_view(rig.dst.xfer, &wanted);
    rig_close();
    o.rdma = false;
    rig_open(&o);
    files[0] = open_files();
    rig_close();
    o.rdma_unwanted = true;
    rig_open(&o);
    files[1] = open_files();
    xfer_rdma_view(rig.dst.xfer, &view);
    rig_close();
    assert_true(wanted.wanted && view.built == wanted.built && !view.wanted && !view.open);
    assert_int_equal(files[0], files[1]);
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    assert_int_equal(view.memlock_bytes,
                     limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur);
    assert_int_equal(view.memlock_exempt, wanted.memlock_exempt);
    assert_int_equal(view.memlock_needed, wanted.memlock_needed);
    assert_true(view.memlock_needed > 0);
    assert_int_equal(view.ndevices, wanted.ndevices);
    assert_int_equal(view.nrails, 0);
    for (uint32_t i = 0; i < view.ndevices; i++)
        assert_string_equal(view.found[i].name, wanted.found[i].name);
    if (wanted.nrails > 0)
        assert_non_null(strstr(view.found[0].state, "at start port 1 was active"));
}

static void pull_800(uint32_t gen)
{
    rig.dst.nevents = 0;
    for (uint32_t i = 0; i < 4; i++)
        rig_pull((struct pull_id){1 + i / 2, gen}, 0, i, 1 + 200 * i, 200);
    rig_until(&rig.dst, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const struct event *e = &rig.dst.event[i];

        assert_int_equal(rig_check_pulled(e, 1 + 200 * e->pulled.batch, 200), 200);
    }
}

static const char *second_path(void)
{
    struct xfer_path_view path;

    assert_true(xfer_path_view(rig.dst.xfer, rig.link, 1, &path));
    return path.state_word;
}

/* The second path is lost and made again, and fails again at the next use, as with a dead cable:
 * each time that costs one piece. After a success it carries all pieces. */
TEST(xfer_verbs_rail_in_doubt_is_pushed_one_piece)
{
    struct rig_options o = {.page_bytes = {16 << 10}, .memory_bytes = 24u << 20};
    struct xfer_stats before, after;
    struct xfer_rdma_view view;
    struct xfer_path_msg again;
    uint64_t asked;
    uint32_t gen = 1;

    open_two_rails(o, 801);
    rig.rkey_xor = 0x00ffff00u; /* of paths that are made from here on */
    again = rig.offer[1];       /* one that it never made: the source fails the queue pair */
    again.epoch += 1000;
    xfer_path_msg(rig.src.xfer, rig.link, &again);
    pull_800(gen++);
    before = stats_of(&rig.dst);
    assert_true(before.paths_failed > 0 && before.pieces_again > 0);
    wait_rails();
    assert_string_equal(second_path(), "unproven");
    pull_800(gen++);
    after = stats_of(&rig.dst);
    assert_true(after.paths_failed > before.paths_failed);
    assert_int_equal(after.pieces_again - before.pieces_again,
                     after.paths_failed - before.paths_failed);
    rig.rkey_xor = 0;
    do { /* as it is, it may fail once more */
        wait_rails();
        before = stats_of(&rig.dst);
        pull_800(gen++);
    } while (stats_of(&rig.dst).paths_failed > before.paths_failed);
    xfer_rdma_view(rig.src.xfer, &view);
    asked = view.rail[1].bytes_asked;
    pull_800(gen++);
    xfer_rdma_view(rig.src.xfer, &view);
    assert_true(view.rail[1].bytes_asked - asked > 1u << 20); /* more than one piece */
    assert_string_equal(second_path(), "ready");
}

/* If one end cannot, auto goes over TCP and verbs goes nowhere. */
TEST(xfer_verbs_fallback_is_only_what_was_asked_for)
{
    struct rig_options o = {.page_bytes = {4096}, .rdma = true};
    struct xfer_link_view view;

    rig_open_filled(&o, 65);
    xfer_link_transport(rig.dst.xfer, rig.link, XFER_AUTO, 1, false);
    pull_whole(1, 1, 64);
    assert_int_equal(stats_of(&rig.dst).verbs_pages_in, 0);
    xfer_link_view(rig.dst.xfer, rig.link, &view);
    assert_string_equal(view.transport, "tcp");
    assert_true(strlen(view.reason) > 0);
    link_anew(0);
    xfer_link_transport(rig.dst.xfer, rig.link, XFER_VERBS, 1, false);
    rig.dst.nevents = 0;
    rig_pull((struct pull_id){2, 1}, 0, 0, 1, 64);
    assert_int_equal(last(&rig.dst)->kind, EV_PULL_BROKEN);
    assert_int_equal(last(&rig.dst)->broken.err, TERN_PEER_LOST);
    xfer_link_view(rig.dst.xfer, rig.link, &view);
    assert_string_equal(view.transport, "none");
}

/* Two slots for connections that this end dials. Links 0 and 1 have paths, link 2 pulls over TCP;
 * each takes the slot of an idle one, beside a path or not, and nobody gets BUSY. */
TEST(xfer_verbs_idle_connections_make_room_both_ways)
{
    open_verbs((struct rig_options){.page_bytes = {4096}, .conns_dst = 4}, 65);
    for (rig.link = 1; rig.link < 3; rig.link++)
        rig_link(rig.port, RIG_SRC_INC);
    rig.link = 1;
    xfer_link_transport(rig.dst.xfer, 1, XFER_VERBS, 1, true);
    wait_verbs();
    for (uint32_t k = 0; k < 9; k++) {
        uint64_t before = stats_of(&rig.dst).verbs_pages_in;

        rig.link = k % 3;
        pull_whole(k + 1, 1, 64);
        stop_and_wait((struct pull_id){1, k + 1});
        assert_int_equal(stats_of(&rig.dst).verbs_pages_in - before, rig.link < 2 ? 64 : 0);
        assert_true(stats_of(&rig.dst).conns <= 2);
    }
}
