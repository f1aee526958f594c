/* A daemon that is among its own peers: one of its pools sends to another one a prefix, and a
 * ticket with its tail and blob. Another daemon that merely has its name is no peer. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/engine.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define TOKENS 150u /* two chunks of 64, and a tail */
#define CHUNKS 128u

static char dir[RIG_DIR_BYTES];
static struct daemon solo;
static struct engine prefill, decode;
static uint32_t tokens[TOKENS];

/* The daemon's peer with its own name is at peer_port; 0: no such peer. */
static void start_as(struct daemon *d, const char *in, uint16_t port, uint16_t peer_port)
{
    const struct daemon_options o = {
        .node = "solo",
        .port = port,
        .peer = {{.name = peer_port ? "solo" : NULL, .port = peer_port}},
        .memory_bytes = 16u << 20,
        .page_bytes_min = RIG_PAGE,
        .core = -1};
    char why[SPAWN_WHY_BYTES] = "";

    d->pid = -1;
    if (!daemon_start(d, in, &o, why))
        fail_msg("%s", why);
}

static void engines_open(void)
{
    prefill = rig_engine(solo.socket, "prefill", 64, 64 * RIG_PAGE);
    decode = rig_engine(solo.socket, "decode", 64, 96 * RIG_PAGE);
    assert_int_not_equal(prefill.pool, decode.pool);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i + 1;
}

FIXTURE(start)
{
    uint16_t port = port_free();

    assert_true(tempdir_make(dir, sizeof dir, "tern-own"));
    start_as(&solo, dir, port, port);
    engines_open();
    return 0;
}

FIXTURE(stop)
{
    engine_close(&decode);
    engine_close(&prefill);
    assert_true(daemon_stop(&solo));
    tempdir_remove(dir);
    return 0;
}

TEST_EACH(start, stop);

static void write_all(struct engine_session *s)
{
    assert_ok(prefill.tern, engine_begin(s, &prefill, tokens, TOKENS));
    assert_ok(prefill.tern, engine_extend(s, TOKENS, TOKENS));
    engine_write(s, 0, TOKENS);
    prefill.step++;
    assert_ok(prefill.tern, engine_commit(s, CHUNKS));
}

static struct tern_ticket hand_over(void)
{
    struct engine_session from;
    struct tern_ticket ticket;

    write_all(&from);
    assert_ok(prefill.tern, tern_handoff(prefill.tern, from.id, prefill.step, "blob", 4, 0,
                                         RIG_WAIT_MS, &ticket));
    assert_ok(prefill.tern, tern_done_step(prefill.map, prefill.step));
    engine_free(&from);
    return ticket;
}

/* Fetches once the last step has passed. */
static enum tern_err fetched(struct engine_session *to, const struct tern_ticket *ticket,
                             struct tern_result *r)
{
    assert_ok(decode.tern, engine_begin(to, &decode, tokens, TOKENS));
    return rig_fetch_ticket(to, ticket, r);
}

TEST(own_peer_brings_a_prefix_from_another_pool)
{
    struct engine_session from, to;
    struct tern_result r;

    rig_wait_linked(&solo, "solo");
    write_all(&from);
    assert_ok(prefill.tern, tern_done_step(prefill.map, prefill.step));
    assert_ok(decode.tern, engine_begin(&to, &decode, tokens, TOKENS));
    assert_int_equal(to.len.committed, 0);
    assert_ok(
        decode.tern,
        tern_fetch(decode.tern, to.id,
                   &(struct tern_fetch){.peer = "solo", .at_least = CHUNKS, .step = TERN_STEP_NONE},
                   RIG_WAIT_MS, &r));
    assert_int_equal(engine_take(&to, &r), TERN_OK);
    assert_int_equal(to.len.committed, CHUNKS);
    assert_int_equal(engine_wrong(&to, CHUNKS), 0);
    assert_ok(decode.tern, engine_end(&to));
    assert_ok(prefill.tern, engine_end(&from));
    rig_wait_let_go(&solo);
}

TEST(own_peer_brings_a_ticket_whole_and_once)
{
    struct tern_ticket ticket = hand_over();
    struct engine_session to, late;
    struct tern_result r;

    rig_wait_linked(&solo, "solo");
    assert_int_equal(fetched(&to, &ticket, &r), TERN_OK);
    assert_int_equal(to.len.written, TOKENS);
    assert_int_equal(engine_wrong(&to, TOKENS), 0);
    assert_int_equal(r.blob_bytes, 4);
    assert_memory_equal(r.blob, "blob", 4);
    assert_int_equal(fetched(&late, &ticket, &r), TERN_GONE);
    assert_ok(decode.tern, engine_end(&late));
    assert_ok(decode.tern, engine_end(&to));
    rig_wait_let_go(&solo);
}

/* Within one pool nothing moves: the pages change their owner. */
TEST(own_peer_is_not_asked_for_a_ticket_of_the_same_pool)
{
    struct tern_ticket ticket = hand_over();
    struct engine_session to;
    struct tern_result r;

    rig_wait_linked(&solo, "solo");
    assert_ok(prefill.tern, engine_begin(&to, &prefill, tokens, TOKENS));
    assert_ok(prefill.tern, rig_fetch_ticket(&to, &ticket, &r));
    assert_int_equal(engine_wrong(&to, TOKENS), 0);
    assert_ok(prefill.tern, engine_end(&to));
    rig_wait_let_go(&solo);
}

static void start_anew(uint16_t port, uint16_t peer_port)
{
    engine_close(&decode);
    engine_close(&prefill);
    assert_true(daemon_stop(&solo));
    start_as(&solo, dir, port, peer_port);
    engines_open();
}

TEST(own_ticket_for_another_pool_is_refused_without_own_peer)
{
    struct tern_ticket ticket;
    struct engine_session to;
    struct tern_result r;

    start_anew(port_free(), 0);
    ticket = hand_over();
    assert_int_equal(fetched(&to, &ticket, &r), TERN_UNSUPPORTED);
    assert_non_null(strstr(tern_error_text(decode.tern, NULL), "among its own `peers`"));
    assert_ok(prefill.tern, tern_ticket_drop(prefill.tern, ticket.text, RIG_WAIT_MS));
    assert_ok(decode.tern, engine_end(&to));
}

/* The other daemon is its own peer, so it knows the name. */
TEST(own_peer_is_no_other_daemon_of_that_name)
{
    static const char cause[] =
        "another daemon uses this daemon's node name: give each its own `node`";
    char other_dir[RIG_DIR_BYTES];
    struct daemon other;
    uint16_t port = port_free(), other_port = port_free();
    struct tern *admin;
    json_t *peers, *row;

    assert_true(tempdir_make(other_dir, sizeof other_dir, "tern-own"));
    start_as(&other, other_dir, other_port, other_port);
    start_anew(port, other_port);
    assert_true(daemon_log_count(&solo, cause, 1, RIG_WAIT_MS) > 0);
    admin = rig_connected(solo.admin);
    peers = admin_ask(admin, "peers", NULL);
    row = json_row(json_object_get(peers, "peers"), "peer", "solo");
    assert_non_null(row);
    assert_non_null(strstr(json_string_value(json_object_get(row, "last_error")), cause));
    assert_false(json_says(row, "state", "up"));
    json_decref(peers);
    tern_destroy(admin);
    assert_true(daemon_stop(&other));
    tempdir_remove(other_dir);
}
