/* The operators' view of peers that are down, of peers whose pages fall back to TCP, and of the
 * maximum number of peers. A bare listener plays the peer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define MANY   500
#define COMING 200 /* of them have dialled us, and stay: more than 64 */

static struct daemon rig;
static struct tern *admin;
static struct rig_answer answer;

/* ---- the view of operators ---- */

/* The row of that peer, owned; looks at every page of the list. */
static json_t *peer_row(const char *peer)
{
    char from[32] = "from=0";
    json_t *found = NULL;

    for (bool more = true; more && !found;) {
        json_t *page = admin_ask(admin, "peers", from), *next = json_object_get(page, "next");

        assert_non_null(page);
        found = json_incref(json_row(json_object_get(page, "peers"), "peer", peer));
        more = json_is_integer(next);
        if (more)
            snprintf(from, sizeof from, "from=%lld", (long long)json_integer_value(next));
        json_decref(page);
    }
    assert_non_null(found);
    return found;
}

/* Waits until its last error has `words` (NULL: no error), after at least `attempts` attempts. */
static void wait_for(const char *peer, const char *words, json_int_t attempts)
{
    for (uint64_t end = rig_now_ms() + RIG_WAIT_MS;; usleep(10000)) {
        json_t *row = peer_row(peer);
        const char *error = json_string_value(json_object_get(row, "last_error"));
        json_int_t n = json_integer_value(json_object_get(row, "attempts"));
        bool down = json_is_real(json_object_get(row, "since_s"));
        bool is = words ? error && strstr(error, words) && down : !error && !down && n == 0;

        if (!is && rig_now_ms() >= end)
            fail_msg("%s: wanted %s, has %s", peer, words ? words : "none", error ? error : "none");
        json_decref(row);
        if (is && n >= attempts)
            return;
        assert_true(rig_now_ms() < end);
    }
}

static void start(const char *extra)
{
    rig_start(&rig, extra, NULL);
    admin = rig_connected(rig.admin);
}

FIXTURE(stop)
{
    tern_destroy(admin);
    admin = NULL;
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

/* ---- the tests ---- */

/* The peer has no RDMA, whatever this host has: one warning at the beginning, none when the link is
 * made anew; and operators see it. */
TEST(peers_whose_pages_fall_back_to_tcp_are_told)
{
    static const char warned[] =
        "level=warn event=transport peer=far tenant=" SPAWN_TENANT " transport=tcp reason=\"";
    const uint16_t port = port_free(), far_port = port_free();
    struct daemon_options o = {.node = "near",
                               .port = port,
                               .peer = {{.name = "far", .port = far_port}},
                               .memory_bytes = 1u << 20,
                               .page_bytes_min = RIG_PAGE,
                               .core = -1};
    char dir[RIG_DIR_BYTES], far_dir[RIG_DIR_BYTES], why[SPAWN_WHY_BYTES] = "";
    struct daemon near, far;
    json_t *row, *said;

    assert_true(tempdir_make(dir, sizeof dir, "tern-near"));
    assert_true(tempdir_make(far_dir, sizeof far_dir, "tern-far"));
    setenv("TERN_PEER_TRANSPORT", "auto", 1);
    if (!daemon_start(&near, dir, &o, why))
        fail_msg("%s", why);
    setenv("TERN_PEER_TRANSPORT", "tcp", 1);
    o.node = "far";
    o.port = far_port;
    o.peer[0].name = "near";
    o.peer[0].port = port;
    for (uint32_t life = 0; life < 2; life++) {
        if (!daemon_start(&far, far_dir, &o, why))
            fail_msg("%s", why);
        rig_wait_linked(&near, "far");
        assert_int_equal(daemon_log_count(&near, warned, 1, RIG_WAIT_MS), 1);
        if (life == 0)
            assert_true(daemon_stop(&far));
    }
    unsetenv("TERN_PEER_TRANSPORT");
    admin = rig_connected(near.admin);
    row = peer_row("far");
    assert_true(json_is_true(json_object_get(row, "fallback")));
    assert_true(json_says(row, "transport", "tcp"));
    json_decref(row);
    said = admin_ask(admin, "status", NULL);
    assert_int_equal(json_integer_value(json_object_get(said, "peers_fallback")), 1);
    json_decref(said);
    assert_true(
        rig_ctl_says(&near, "status", "peers 1 of 1 up, 1 by TCP although RDMA is preferred"));
    tern_destroy(admin);
    admin = NULL;
    assert_true(daemon_stop(&near));
    assert_true(daemon_stop(&far));
    tempdir_remove(dir);
    tempdir_remove(far_dir);
}

TEST_WITH(peers_that_are_not_there_say_why, NULL, stop)
{
    static const char warned[] = "level=warn event=dial_failed peer=gone ";
    uint16_t port = 0, gone_port = 0;
    int listener = rig_listen(&port), gone = rig_listen(&gone_port), fd;
    char extra[512];

    close(gone);
    snprintf(extra, sizeof extra,
             "insecure_peers: true\npeers:\n"
             "  - {name: other, address: \"127.0.0.1:%u\", tenants: [t0]}\n"
             "  - {name: gone, address: \"127.0.0.1:%u\", tenants: [t0]}\n",
             port, gone_port);
    start(extra);
    wait_for("gone", "Connection refused", 3);
    assert_int_equal(daemon_log_count(&rig, warned, 0, 0), 1);
    assert_true(rig_ctl_says(&rig, "peers", "Connection refused ("));

    gone = rig_listen(&gone_port); /* another cause, and the first one again */
    fd = rig_accept_fresh(gone);
    assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    close(fd);
    assert_true(rig_log_has(&rig,
                            "level=warn event=link_down link=1 peer=gone dir=out "
                            "reason=\"closed by the other side\"",
                            RIG_WAIT_MS));
    close(gone);
    wait_for("gone", "Connection refused", 5);
    assert_int_equal(daemon_log_count(&rig, warned, 0, 0), 2);

    fd = rig_accept_fresh(listener);
    rig_answer_hello(fd, "stranger", 1, false);
    wait_for("other", "another node answers at the peer's address: stranger", 1);
    close(fd);
    fd = rig_accept_fresh(listener);
    rig_answer_hello(fd, "other", 1, false);
    assert_true(admin_wait_peer(admin, "other", RIG_WAIT_MS));
    wait_for("other", NULL, 0);
    close(fd);
    wait_for("other", "closed by the other side", 0);
    close(listener);
    wait_for("other", "Connection refused", 1);
}

TEST_WITH(peers_of_a_large_cluster_fit, NULL, stop)
{
    int fds[COMING];
    char *extra, name[16];
    size_t n;
    FILE *out = open_memstream(&extra, &n);

    fputs("listen: 127.0.0.1:0\ninsecure_peers: true\npeers:\n", out);
    for (uint32_t i = 0; i < MANY; i++)
        fprintf(out, "  - {name: p%u, address: \"127.0.0.1:1\", tenants: [t0]}\n", i);
    fclose(out);
    start(extra);
    free(extra);
    assert_int_equal(rig_figure(admin, "status", "peers"), MANY);
    for (uint32_t i = 0; i < COMING; i++) {
        snprintf(name, sizeof name, "p%u", MANY - COMING + i);
        fds[i] = rig_peer_dials(&rig, name, &answer);
        assert_int_equal(rig_status(&answer), TERN_OK);
    }
    for (uint32_t i = 0; i < MANY; i += 7) {
        snprintf(name, sizeof name, "p%u", i);
        wait_for(name, "Connection refused", 1);
    }
    for (uint32_t i = 0; i < COMING; i++)
        close(fds[i]);
    printf("peers=%d inbound=%d rss_kib=%llu\n", MANY, COMING,
           (unsigned long long)rig_rss_kib(&rig));
}
