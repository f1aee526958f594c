/* Pages that travel between device and host memory of a real daemon: what comes back is byte for
 * byte what was written, and with copies spoilt on purpose some do not come back, but none comes
 * back wrong. The pool holds far less than what is written, so that all of it passes through the
 * host tier. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/err.h"
#include "engine/bytes.h"
#include "rig_daemon.h"
#include "tern.h"
#include "testing/test.h"

#define L             64
#define PAGE          4096
#define PAGES         16 /* of a conversation */
#define TOKENS        (PAGES * L)
#define CONVERSATIONS 48 /* 768 pages; the device has 256, the host 1,024 */
#define AWAY          8  /* sessions that give way together */
#define SETTLED_LOOKS 5

struct talk {
    uint32_t id, index[PAGES], n; /* n: pages of the table that are known */
    tern_session session;
};

static struct rig_daemon rig;
static struct tern *engine, *admin;
static struct tern_pool *mapped;
static uint64_t pool, step;
static uint32_t wrong_pages, right_pages, corrupt_answers;
static const struct tern_namespace ns = {.model = "m"};

static void start(const char *faults)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = PAGE, .units = 4};
    struct tern_layout layout = {
        .groups = &kv, .ngroups = 1, .bytes = 256 * PAGE, .host_bytes = 1024 * PAGE};
    char extra[256];

    /* The first line goes on with the rig's tenant. */
    snprintf(extra, sizeof extra, "    host_memory: 8M\nlimits:\n  sums_per_page: 4\n%s", faults);
    rig_start(&rig, extra, NULL);
    step = 0;
    wrong_pages = right_pages = corrupt_answers = 0;
    assert_int_equal(tern_connect(rig.socket, 0, &engine), TERN_OK);
    assert_int_equal(tern_connect(rig.admin, 0, &admin), TERN_OK);
    assert_ok(engine, tern_join(engine, "e", TERN_BOTH, 0, 1, 0));
    assert_ok(engine, tern_pool_open(engine, &layout, 0, &pool, NULL));
    assert_ok(engine, tern_pool_map(engine, pool, 0, &mapped));
}

static void stop(void)
{
    tern_destroy(engine);
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
}

static uint64_t figure_of(const char *part, const char *key)
{
    const char *text;
    json_t *json;
    uint64_t n;

    assert_ok(admin, tern_admin(admin, "status", NULL, 0, 0, &text));
    json = json_loads(text, 0, NULL);
    assert_non_null(json);
    n = (uint64_t)json_integer_value(json_object_get(json_object_get(json, part), key));
    json_decref(json);
    return n;
}

static uint64_t figure(const char *key)
{
    return figure_of("host_tier", key);
}

/* Until every copy has ended, well or not. The daemon sees a step within a millisecond or so, and
 * only then begins: so nothing under way is believed when it was seen for a while. */
static void copies_settle(void)
{
    uint64_t until = rig_now_ms() + RIG_WAIT_MS;

    for (uint32_t quiet = 0; quiet<SETTLED_LOOKS; quiet = figure("copies")> 0 ? 0 : quiet + 1) {
        assert_true(rig_now_ms() < until);
        usleep(1000);
    }
}

static void copies_reach(uint64_t n)
{
    uint64_t until = rig_now_ms() + RIG_WAIT_MS;

    while (figure("host_copies") < n) {
        assert_true(rig_now_ms() < until);
        usleep(1000);
    }
}

/* ---- one conversation ---- */

static struct tern_tokens tokens_of(const struct talk *k)
{
    static uint32_t v[TOKENS];

    for (uint32_t i = 0; i < TOKENS; i++)
        v[i] = k->id * 10000 + i;
    return (struct tern_tokens){.v = v, .n = TOKENS};
}

static uint8_t *page(const struct talk *k, uint32_t i)
{
    return tern_pool_base(mapped) + (size_t)k->index[i] * PAGE;
}

static void table_is(struct talk *k, const struct tern_result *r)
{
    for (uint32_t i = 0; i < r->nruns; i++) {
        const struct tern_run *run = &r->runs[i];

        assert_true(run->first + run->n <= PAGES);
        for (uint32_t j = 0; j < run->n; j++)
            k->index[run->first + j] = run->pages[j].index;
        if (run->first + run->n > k->n)
            k->n = run->first + run->n;
    }
}

static void open_talk(struct talk *k, uint32_t id, struct tern_result *ret)
{
    struct tern_tokens tokens;

    memset(k, 0, sizeof *k);
    k->id = id;
    tokens = tokens_of(k);
    assert_ok(engine, tern_session_open(engine, pool, &ns, 0, &k->session));
    assert_ok(engine, tern_match(engine, k->session, &tokens, 0, 0, ret));
    table_is(k, ret);
}

static void operation(const struct talk *k, enum tern_op_kind kind, uint32_t length,
                      uint32_t written, struct tern_result *ret)
{
    struct tern_op op = {
        .kind = kind, .session = k->session, .step = step, .length = length, .written = written};

    uint64_t until = rig_now_ms() + RIG_WAIT_MS;
    enum tern_err err;

    /* Pages that are on their way to the host hold the device's until they are there. */
    while ((err = tern_do(engine, &op, 0, ret)) == TERN_POOL_EXHAUSTED && rig_now_ms() < until)
        usleep(1000);
    if (err != TERN_OK)
        fail_msg("%s: %s", err_name(err), tern_error_text(engine));
}

/* From where the table ends to the end of the conversation, and committed. */
static void write_talk(struct talk *k)
{
    uint32_t from = k->n;
    struct tern_result r;

    operation(k, TERN_EXTEND, TOKENS, 0, &r);
    table_is(k, &r);
    assert_int_equal(k->n, PAGES);
    for (uint32_t i = from; i < PAGES; i++)
        page_fill(page(k, i), PAGE, page_seed(k->id, i, 0));
    step++;
    operation(k, TERN_EXTEND, 0, TOKENS, &r);
    operation(k, TERN_COMMIT, TOKENS, 0, &r);
    assert_ok(engine, tern_done_step(mapped, step));
}

static void compare(const struct talk *k, uint32_t tokens)
{
    for (uint32_t i = 0; i < tokens / L; i++) {
        if (page_compare(page(k, i), PAGE, page_seed(k->id, i, 0)) == 0)
            right_pages++;
        else
            wrong_pages++;
    }
}

static void close_talk(const struct talk *k)
{
    struct tern_result r;

    operation(k, TERN_CLOSE, 0, 0, &r);
}

/* Looks for the conversation, fetches what only the host has, and reads all that it got. Depth that
 * was there. */
static uint32_t visit(uint32_t id)
{
    struct tern_result r;
    struct talk k;
    uint32_t got;

    open_talk(&k, id, &r);
    got = r.matched;
    if (r.host_depth > got) {
        enum tern_err err = tern_fetch(engine, k.session, NULL, 0, RIG_WAIT_MS, &r);

        if (err != TERN_OK && err != TERN_CORRUPT)
            fail_msg("fetch: %s: %s", err_name(err), tern_error_text(engine));
        corrupt_answers += err == TERN_CORRUPT ? 1 : 0;
        table_is(&k, &r);
        got = r.lengths.committed;
    }
    compare(&k, got);
    close_talk(&k);
    return got;
}

/* Nothing is let go before the host has what it will get of it: with `all_copied` all of it. */
static void write_all(bool all_copied)
{
    for (uint32_t id = 1; id <= CONVERSATIONS; id++) {
        struct tern_result r;
        struct talk k;

        open_talk(&k, id, &r);
        write_talk(&k);
        if (all_copied)
            copies_reach(id * PAGES);
        else
            copies_settle();
        close_talk(&k);
    }
}

/* AWAY sessions go to the host, others take their pages, and they come back. How many did. */
static uint32_t there_and_back(void)
{
    struct talk k[AWAY];
    struct tern_retracted gone;
    struct tern_result r;
    uint32_t back = 0;

    for (uint32_t i = 0; i < AWAY; i++) {
        open_talk(&k[i], 1000 + i, &r);
        if (k[i].n < PAGES)
            write_talk(&k[i]);
        copies_settle();
        assert_ok(engine, tern_retract(engine, k[i].session, TERN_RETRACT_HOST, step, 0, &gone));
        copies_settle();
    }
    for (uint32_t id = 2000; id < 2000 + 2 * 256 / PAGES; id++) {
        struct talk other;

        open_talk(&other, id, &r);
        write_talk(&other);
        close_talk(&other);
    }
    for (uint32_t i = 0; i < AWAY; i++) {
        enum tern_err err = tern_recover(engine, k[i].session, RIG_WAIT_MS, &r);

        if (err == TERN_OK) {
            assert_int_equal(r.lengths.committed, TOKENS);
            memset(k[i].index, 0xff, sizeof k[i].index);
            table_is(&k[i], &r);
            compare(&k[i], TOKENS);
            back++;
        } else if (err == TERN_CORRUPT) {
            corrupt_answers++;
        } else {
            fail_msg("recover: %s: %s", err_name(err), tern_error_text(engine));
        }
        close_talk(&k[i]);
    }
    return back;
}

/* ---- tests ---- */

TEST(host_memory_gives_back_what_was_written)
{
    start("");
    write_all(true);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t id = 1; id <= CONVERSATIONS; id++)
            assert_int_equal(visit(id), TOKENS);
    assert_int_equal(right_pages, 2 * CONVERSATIONS * PAGES);
    assert_int_equal(there_and_back(), AWAY);
    assert_int_equal(wrong_pages, 0);
    assert_int_equal(corrupt_answers, 0);
    assert_int_equal(figure("host_copies_failed"), 0);
    /* Two rounds over three times what the device holds: most of it had to be loaded. */
    assert_true(figure("host_loads") >= CONVERSATIONS * PAGES);
    printf("host_memory: copies=%llu loads=%llu pages_compared=%u wrong=0\n",
           (unsigned long long)figure("host_copies"), (unsigned long long)figure("host_loads"),
           right_pages);
    stop();
}

TEST(host_memory_with_spoilt_copies_gives_back_nothing_wrong)
{
    start("faults:\n  copy_corrupt_every: 31\n");
    for (uint32_t round = 0; round < 2; round++) {
        /* The first time all of it comes to the host: what was damaged is copied again. The second
         * time, what was lost since. */
        write_all(round == 0);
        if (round == 0)
            assert_int_equal(figure("host_copies_again"), CONVERSATIONS * PAGES / 30);
        for (uint32_t id = 1; id <= CONVERSATIONS; id++)
            visit(id);
        there_and_back();
    }
    assert_int_equal(wrong_pages, 0);
    assert_true(right_pages > CONVERSATIONS * PAGES / 2);
    assert_true(figure("host_copies_failed") > 0);
    assert_true(corrupt_answers > 0);
    copies_settle();
    assert_int_equal(figure_of("memory", "copies_corrupt"), figure_of("memory", "copies_spoilt"));
    printf("host_memory: fault=copy_corrupt failed=%llu corrupt_answers=%u pages_compared=%u "
           "wrong=0 daemon_alive=%d\n",
           (unsigned long long)figure("host_copies_failed"), corrupt_answers, right_pages,
           rig_alive(&rig));
    stop();
}
