/* ternctl shows transfers and tickets between two daemons while they exist: the documented keys,
 * and tables that fit a terminal of 100 columns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/proc.h"
#include "rig_daemon.h"
#include "tern.h"
#include "testing/test.h"

#define PAGE    4096u
#define TOKENS  128u
#define COLUMNS 100

static struct daemon_options options[2] = {{.node = "the-prefill-host-of-rack-7",
                                            .memory_bytes = 16u << 20,
                                            .page_bytes_min = PAGE,
                                            .core = -1},
                                           {.node = "the-decode-host-of-rack-7",
                                            .memory_bytes = 16u << 20,
                                            .page_bytes_min = PAGE,
                                            .core = -1}};

static json_t *rows(const struct daemon *d, const char *list)
{
    char arguments[300];
    json_t *told, *rows;

    snprintf(arguments, sizeof arguments, "--socket %s %s", d->admin, list);
    told = rig_ctl(arguments);
    rows = json_incref(json_object_get(told, list));
    json_decref(told);
    return rows;
}

static const char *word(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));

    return text ? text : "";
}

/* Returns a bit i for the i-th of these words if the table of that list has it in a line. No line
 * may be too wide. */
static uint32_t words_of_table(const char *command, const char *const *words)
{
    char line[512];
    uint32_t seen = 0;
    FILE *out = popen(command, "r");

    assert_non_null(out);
    while (fgets(line, sizeof line, out)) {
        assert_in_range(strlen(line), 1, COLUMNS + 1);
        for (uint32_t i = 0; words[i]; i++)
            seen |= (uint32_t)(strstr(line, words[i]) != NULL) << i;
    }
    assert_int_equal(pclose(out), 0);
    return seen;
}

/* The table shows all of these words in the end: the listed transfers continue meanwhile. */
static void table_has(const struct daemon *d, const char *list, const char *const *words)
{
    const char *bin = getenv("TERN_BIN");
    char command[512];
    uint32_t n = 0, seen;

    snprintf(command, sizeof command, "%s/ternctl --socket %s %s", bin ? bin : "build/bin",
             d->admin, list);
    while (words[n])
        n++;
    for (uint64_t end = rig_now_ms() + RIG_WAIT_MS;
         (seen = words_of_table(command, words)) + 1 != 1u << n;)
        if (rig_now_ms() >= end)
            fail_msg("ternctl %s says nothing of %s", list, words[__builtin_ctz(~seen)]);
}

static void prefill(struct engine_session *s, struct engine *e, const uint32_t *tokens, uint32_t n)
{
    assert_ok(e->tern, engine_begin(s, e, tokens, TOKENS));
    assert_ok(e->tern, engine_extend(s, n, n));
    engine_write(s, 0, n);
    e->step++;
    assert_ok(e->tern, engine_commit(s, n / 64 * 64));
    assert_ok(e->tern, tern_done_step(e->map, e->step));
}

/* The refusal has the numbers and names that the asker needs; the operator reads the last one. */
static void fetches_are_refused_in_words(const struct daemon *d, const struct engine *b,
                                         const struct engine_session *s)
{
    struct tern_result r;
    char arguments[300];
    json_t *status, *refusals;

    assert_err(TERN_INVALID,
               tern_fetch(b->tern, s->id,
                          &(struct tern_fetch){
                              .peer = options[0].node, .at_least = 1000, .step = TERN_STEP_NONE},
                          RIG_WAIT_MS, &r));
    assert_non_null(strstr(tern_error_text(b->tern, NULL), "at_least is 1000 tokens"));
    assert_non_null(strstr(tern_error_text(b->tern, NULL), "have only 128: "));
    assert_err(TERN_INVALID,
               tern_fetch(b->tern, s->id,
                          &(struct tern_fetch){.peer = "nobody", .step = TERN_STEP_NONE},
                          RIG_WAIT_MS, &r));
    assert_non_null(strstr(tern_error_text(b->tern, NULL),
                           "no such peer is configured: 'nobody'; there "
                           "are the-prefill-host-of-rack-7"));
    snprintf(arguments, sizeof arguments, "--socket %s status", d->admin);
    status = rig_ctl(arguments);
    refusals = json_object_get(status, "refusals");
    assert_string_equal(word(json_array_get(refusals, 0), "last_op"), "fetch");
    assert_non_null(strstr(word(json_array_get(refusals, 0), "last_text"), "'nobody'"));
    json_decref(status);
}

/* The fetch waits for tokens that the source has not committed: the one row shows it, in JSON and
 * in the table. Once they are committed the fetch ends and the list is empty. */
TEST(ternctl_transfers_tells_what_a_fetch_waits_for)
{
    static const char *const table[] = {"commit",   "queued", "the-prefill-h", "decode",
                                        "0 of 128", "B/s",    "0 of 0",        NULL};
    char dir[RIG_DIR_BYTES];
    struct daemon source, dest;
    struct engine a, b;
    struct engine_session from, to;
    struct tern_answer answer = {.cookie = 0};
    uint32_t tokens[TOKENS];
    json_t *list, *row;

    rig_start_pair(&source, &dest, dir, options);
    a = rig_engine(source.socket, "prefill", 64, 64 * PAGE);
    b = rig_engine(dest.socket, "decode", 64, 64 * PAGE);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i + 1;
    assert_ok(b.tern, engine_begin(&to, &b, tokens, TOKENS));
    fetches_are_refused_in_words(&dest, &b, &to);
    assert_ok(b.tern, tern_submit_fetch(b.tern, to.id,
                                        &(struct tern_fetch){.peer = options[0].node,
                                                             .at_least = TOKENS,
                                                             .step = TERN_STEP_NONE},
                                        7));
    for (bool waits = false; !waits; json_decref(list)) {
        list = rows(&dest, "transfers");
        row = json_array_get(list, 0);
        waits = strcmp(word(row, "waits_for"), "commit") == 0 &&
                strcmp(word(row, "stage"), "queued") == 0; /* the fetch asks again now and then */
        if (!waits)
            continue;
        assert_string_equal(word(row, "tier"), "peer");
        assert_string_equal(word(row, "tenant"), "bench");
        assert_string_equal(word(row, "peer"), options[0].node);
        assert_true(json_is_false(json_object_get(row, "ticket")));
        assert_string_equal(word(row, "class"), "decode");
        assert_true(json_real_value(json_object_get(json_object_get(row, "stage_s"), "queued")) >
                    0);
    }
    table_has(&dest, "transfers", table);
    prefill(&from, &a, tokens, TOKENS);
    wait_until(tern_poll(b.tern, &answer) == TERN_OK && answer.cookie == 7);
    assert_int_equal(answer.err, TERN_OK);
    wait_until(json_array_size(list = rows(&dest, "transfers")) == 0);
    engine_close(&b);
    engine_close(&a);
    assert_true(daemon_stop(&dest));
    assert_true(daemon_stop(&source));
    tempdir_remove(dir);
}

/* A ticket that stands has a row; a dropped one is counted. */
TEST(ternctl_tickets_tells_of_those_that_stand)
{
    static const char *const table[] = {"open", "160", "128", "t0", NULL};
    static const char *const counted[] = {"1 created, 0 fetched, 1 dropped, 0 expired",
                                          "no ticket is valid", NULL};
    uint32_t tokens[TOKENS + 32];
    struct engine_session from;
    struct tern_ticket ticket;
    struct daemon d;
    struct engine a;
    json_t *list;

    rig_start(&d, NULL, NULL);
    a = rig_engine(d.socket, "prefill-engine-7", 64, 64 * PAGE);
    for (uint32_t i = 0; i < TOKENS + 32; i++)
        tokens[i] = i + 1;
    assert_ok(a.tern, engine_begin(&from, &a, tokens, TOKENS + 32));
    assert_ok(a.tern, engine_extend(&from, TOKENS + 32, TOKENS + 32));
    engine_write(&from, 0, TOKENS + 32);
    a.step++;
    assert_ok(a.tern, engine_commit(&from, TOKENS));
    assert_ok(a.tern, tern_done_step(a.map, a.step));
    assert_ok(a.tern, tern_handoff(a.tern, from.id, a.step, "blob", 4, 0, RIG_WAIT_MS, &ticket));
    for (bool open = false; !open; json_decref(list)) {
        list = rows(&d, "tickets");
        assert_int_equal(json_array_size(list), 1);
        open = strcmp(word(json_array_get(list, 0), "ticket"), "open") == 0;
    }
    table_has(&d, "tickets", table);
    assert_ok(a.tern, tern_ticket_drop(a.tern, ticket.text, RIG_WAIT_MS));
    table_has(&d, "tickets", counted);
    engine_close(&a);
    assert_true(rig_stop(&d) == 0);
}
