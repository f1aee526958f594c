/* Turn records through ternd and libtern: the scenarios M-a to M-c with every byte compared (M1 to
 * M4), malformed records (M10), and the owner of pages after a process was killed and between
 * tenants (M11). */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "engine/proc.h"
#include "proto/messages.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define L           16   /* tokens of a page and of a chunk */
#define PAGES       512u /* of each tenant's record memory */
#define MEMORY      ((uint64_t)PAGES * WIRE_RECORD_PAGE)
#define TURN_TOKENS 500u  /* added by a turn */
#define BLOB_TOKEN  1000u /* bytes of a blob for each token of the whole list */
#define TURNS_MOST  4u
#define BODY_TOKENS 170400u /* 1.3 MiB of token ids and log-probabilities */
#define BODY_BYTES  ((uint64_t)BODY_TOKENS * 8)

/* A client of one engine, with its own connection, pool and mapping of the record memory. */
struct client {
    struct tern *t;
    struct tern_pool *map;
    uint64_t pool;
};

static struct daemon rig;
static char other_socket[SPAWN_PATH_BYTES]; /* of t1 */
static struct client own;                   /* an engine of t0 */

static const struct tern_namespace ns = {.model = "m"};

static struct client client_of(const char *socket, const char *name)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = RIG_PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 1u << 20};
    struct client c = {.t = rig_connected(socket)};
    enum tern_err err;

    wait_until((err = tern_join(c.t, name, TERN_WORKER, 0, 1, NULL, 0)) != TERN_BUSY);
    assert_ok(c.t, err);
    assert_ok(c.t, tern_pool_open(c.t, &layout, RIG_WAIT_MS, &c.pool, NULL));
    assert_ok(c.t, tern_pool_map(c.t, c.pool, RIG_WAIT_MS, &c.map));
    return c;
}

FIXTURE(start)
{
    rig_record_memory = MEMORY;
    rig_start_two(&rig, other_socket, NULL);
    rig_record_memory = 0;
    own = client_of(rig.socket, "chat");
    return 0;
}

FIXTURE(stop)
{
    tern_destroy(own.t);
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

TEST_EACH(start, stop);

static tern_session opened(struct client *c, uint32_t blobs_kept, bool merging)
{
    struct tern_session_options options = {.blobs_kept = blobs_kept, .merging = merging};
    tern_session s;

    assert_ok(c->t, tern_session_open(c->t, c->pool, &ns, &options, RIG_WAIT_MS, &s));
    return s;
}

static tern_session begun(struct client *c, tern_session s)
{
    tern_session turn;

    assert_ok(c->t, tern_turn_begin(c->t, s, RIG_WAIT_MS, &turn));
    return turn;
}

static void ended(struct client *c, tern_session turn)
{
    assert_ok(c->t, tern_turn_end(c->t, turn, TERN_STEP_NONE, RIG_WAIT_MS));
}

static void closed(struct client *c, tern_session s)
{
    struct tern_result r;

    assert_ok(c->t, tern_session_close(c->t, s, TERN_STEP_NONE, RIG_WAIT_MS, &r));
}

/* ---- records whose bytes identify them ---- */

static uint32_t token_at(uint32_t i)
{
    return i * 2654435761u >> 1;
}

static float logprob_at(uint32_t i)
{
    return -(float)(i % 977) / 64;
}

static uint8_t blob_byte(uint32_t length, uint64_t at)
{
    return (uint8_t)(length * 7 + at / 251 + at);
}

static uint32_t tokens[BODY_TOKENS];
static float logprobs[BODY_TOKENS];
static uint8_t blob[TURNS_MOST * TURN_TOKENS * BLOB_TOKEN];

static void make_lists(void)
{
    for (uint32_t i = 0; i < BODY_TOKENS; i++) {
        tokens[i] = token_at(i);
        logprobs[i] = logprob_at(i);
    }
}

/* Appends in a turn a record of the tokens [from, length), with one blob of 1,000 B a token. */
static enum tern_err append(struct client *c, tern_session turn, uint32_t from, uint32_t length,
                            struct tern_recorded *ret)
{
    struct tern_blob hidden = {"hidden", (uint64_t)length * BLOB_TOKEN, blob};
    struct tern_new_record record = {.tokens = tokens,
                                     .ntokens = length,
                                     .logprobs = logprobs + from,
                                     .nlogprobs = length - from,
                                     .blobs = &hidden,
                                     .nblobs = 1};

    make_lists();
    for (uint64_t at = 0; at < hidden.bytes; at++)
        blob[at] = blob_byte(length, at);
    return tern_record_put(c->t, turn, &record, RIG_WAIT_MS, ret);
}

/* Runs n turns that leave a record each. */
static void turns(struct client *c, tern_session s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        tern_session turn = begun(c, s);
        struct tern_recorded r;

        assert_ok(c->t, append(c, turn, i * TURN_TOKENS, (i + 1) * TURN_TOKENS, &r));
        assert_int_equal(r.length, (i + 1) * TURN_TOKENS);
        assert_int_equal(r.records, i + 1);
        ended(c, turn);
    }
}

static void *section_read(const struct tern_section *s)
{
    void *bytes = mem_need(1, s->bytes + 1);

    assert_err(TERN_OK, tern_section_read(s, 0, bytes, s->bytes));
    return bytes;
}

static void assert_small_data(const struct tern_record *r)
{
    uint32_t *ids = section_read(&r->tokens), n = r->length - r->from;
    float *values = section_read(&r->logprobs);

    assert_int_equal(r->before.bytes, 0);
    assert_int_equal(r->tokens.bytes, 4 * n);
    assert_int_equal(r->logprobs.bytes, 4 * n);
    make_lists();
    assert_memory_equal(ids, tokens + r->from, 4 * n);
    assert_memory_equal(values, logprobs + r->from, 4 * n);
    free(ids);
    free(values);
}

static void assert_blob(const struct tern_record *r)
{
    uint8_t *bytes = section_read(&r->blobs[0].at);

    assert_int_equal(r->blobs[0].at.bytes, (uint64_t)r->length * BLOB_TOKEN);
    for (uint64_t at = 0; at < r->blobs[0].at.bytes; at++)
        assert_int_equal(bytes[at], blob_byte(r->length, at));
    free(bytes);
}

/* Compares every byte of all records. Returns bit i for each record that has its blobs. */
static uint32_t read_all(struct client *c, tern_session turn, uint32_t records)
{
    struct tern_record r[TURNS_MOST];
    uint32_t n, all, whole = 0;

    assert_ok(c->t, tern_record_get(c->t, turn, 0, r, TURNS_MOST, RIG_WAIT_MS, &n, &all));
    assert_int_equal(all, records);
    assert_int_equal(n, records);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(r[i].from, i * TURN_TOKENS);
        assert_int_equal(r[i].length, (i + 1) * TURN_TOKENS);
        assert_small_data(&r[i]);
        assert_int_equal(r[i].nblobs, 1);
        assert_string_equal(r[i].blobs[0].name, "hidden");
        if (r[i].blobs[0].dropped) {
            assert_int_equal(r[i].blobs[0].at.bytes, 0);
            continue;
        }
        assert_blob(&r[i]);
        whole |= 1u << i;
    }
    return whole;
}

static uint32_t whole_records(struct client *c, tern_session s, uint32_t records)
{
    tern_session turn = begun(c, s);
    uint32_t whole = read_all(c, turn, records);

    ended(c, turn);
    return whole;
}

/* ---- M-a, M-b, M-c ---- */

TEST(m_a_blobs_of_the_last_two_and_small_data_everywhere)
{
    tern_session s = opened(&own, 0, false);

    turns(&own, s, 4);
    assert_int_equal(whole_records(&own, s, 4), 0xc);
}

static enum tern_err back_to(tern_session s, uint32_t length, struct tern_recorded *ret)
{
    tern_session turn = begun(&own, s);
    enum tern_err err;

    make_lists();
    err = tern_record_rollback(own.t, turn, &(struct tern_tokens){.v = tokens, .n = length},
                               TERN_STEP_NONE, RIG_WAIT_MS, ret);
    if (err == TERN_INVALID)
        assert_non_null(strstr(tern_error_text(own.t, NULL),
                               "goes back beyond the records whose blobs are kept"));
    ended(&own, turn);
    return err;
}

TEST(m_b_one_rollback_keeps_its_blob_and_a_second_is_invalid)
{
    tern_session s = opened(&own, 2, false), turn;
    struct tern_recorded r;

    turns(&own, s, 3);
    assert_ok(own.t, back_to(s, 2 * TURN_TOKENS + 7, &r));
    assert_int_equal(r.length, 2 * TURN_TOKENS);
    assert_int_equal(r.records, 2);
    assert_int_equal(whole_records(&own, s, 2), 2);
    assert_err(TERN_INVALID, back_to(s, TURN_TOKENS, &r));
    assert_int_equal(r.records, 2);
    assert_ok(own.t, back_to(s, 2 * TURN_TOKENS, &r)); /* repeated: nothing to roll back */
    assert_int_equal(whole_records(&own, s, 2), 2);
    turn = begun(&own, s); /* an append, after which it may roll back again */
    assert_ok(own.t, append(&own, turn, 2 * TURN_TOKENS, 3 * TURN_TOKENS, &r));
    ended(&own, turn);
    assert_ok(own.t, back_to(s, 2 * TURN_TOKENS, &r));
    assert_int_equal(r.records, 2);
}

/* The data that the last turn gets: small data of all records, and the last one's blob. */
static uint8_t *merged(tern_session s, uint64_t *ret_bytes)
{
    tern_session turn = begun(&own, s);
    struct tern_record r[TURNS_MOST];
    uint64_t room = (uint64_t)TURNS_MOST * TURN_TOKENS * (8 + BLOB_TOKEN), at = 0;
    uint8_t *bytes = mem_need(1, room);
    uint32_t n;

    assert_ok(own.t, tern_record_get(own.t, turn, 0, r, TURNS_MOST, RIG_WAIT_MS, &n, NULL));
    for (int part = 0; part < 3; part++)
        for (uint32_t i = part < 2 ? 0 : n - 1; i < n; i++) {
            const struct tern_section *from = part == 0   ? &r[i].tokens
                                              : part == 1 ? &r[i].logprobs
                                                          : &r[i].blobs[0].at;

            assert_true(from->bytes > 0);
            assert_err(TERN_OK, tern_section_read(from, 0, bytes + at, from->bytes));
            at += from->bytes;
        }
    ended(&own, turn);
    *ret_bytes = at;
    return bytes;
}

TEST(m_c_a_merge_is_the_same_with_and_without_stripping)
{
    tern_session stripped = opened(&own, 1, false), all = opened(&own, 0, true);
    uint64_t n, m;
    uint8_t *a, *b;

    turns(&own, stripped, 3);
    turns(&own, all, 3);
    assert_int_equal(whole_records(&own, stripped, 3), 4);
    assert_int_equal(whole_records(&own, all, 3), 7);
    a = merged(stripped, &n);
    b = merged(all, &m);
    assert_int_equal(n, m);
    assert_int_equal(n, 3 * TURN_TOKENS * (8 + BLOB_TOKEN));
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
}

/* ---- refusals ---- */

/* Prepares a record of one token and one blob of that many pages. */
static enum tern_err prepare_pages(struct client *c, tern_session turn, uint32_t pages,
                                   struct tern_record *ret)
{
    struct tern_blob bytes = {.name = "b", .bytes = (uint64_t)pages * WIRE_RECORD_PAGE};

    return tern_record_prepare(
        c->t, turn, &(struct tern_new_record){.ntokens = 1, .blobs = &bytes, .nblobs = 1},
        RIG_WAIT_MS, ret);
}

static enum tern_err append_body(tern_session turn, struct tern_recorded *ret)
{
    struct tern_new_record record = {
        .tokens = tokens, .ntokens = BODY_TOKENS, .logprobs = logprobs, .nlogprobs = BODY_TOKENS};

    return tern_record_put(own.t, turn, &record, RIG_WAIT_MS, ret);
}

/* words: text before the index, which is that of the last element. */
static void assert_malformed(tern_session turn, enum tern_record_part part, const char *words)
{
    const uint32_t index = BODY_TOKENS - 1;
    struct tern_recorded r;
    uint32_t n, records;
    char text[128];

    assert_err(TERN_MALFORMED, append_body(turn, &r));
    assert_int_equal(r.part, part);
    assert_int_equal(r.index, index);
    snprintf(text, sizeof text, "%s %u of", words, index);
    assert_non_null(strstr(tern_error_text(own.t, NULL), text));
    assert_ok(own.t, tern_record_get(own.t, turn, 0, NULL, 0, RIG_WAIT_MS, &n, &records));
    assert_int_equal(records, 0);
}

TEST(one_bad_element_at_the_end_of_a_large_body_is_named)
{
    static const float bad[3] = {NAN, INFINITY, -INFINITY};
    tern_session turn = begun(&own, opened(&own, 0, false));
    struct tern_recorded r;

    assert_true(BODY_BYTES >= 13u * (1u << 20) / 10);
    for (int i = 0; i < 3; i++) {
        make_lists();
        logprobs[BODY_TOKENS - 1] = bad[i];
        assert_malformed(turn, TERN_PART_LOGPROBS, "log-probability");
    }
    make_lists();
    tokens[BODY_TOKENS - 1] = 1u << 31;
    assert_malformed(turn, TERN_PART_TOKENS, "token");
    make_lists();
    assert_ok(own.t, append_body(turn, &r)); /* the slot is free */
    assert_int_equal(r.length, BODY_TOKENS);
    ended(&own, turn);
}

TEST(a_repeated_put_or_append_stores_nothing_twice)
{
    tern_session turn = begun(&own, opened(&own, 0, false));
    struct tern_recorded r;
    uint32_t n, records;

    assert_ok(own.t, append(&own, turn, 0, TURN_TOKENS, &r));
    assert_err(TERN_INVALID, tern_record_put(own.t, turn, NULL, RIG_WAIT_MS, &r));
    assert_non_null(strstr(tern_error_text(own.t, NULL), "no record is prepared"));
    assert_err(TERN_CONFLICT, append(&own, turn, 0, TURN_TOKENS, &r));
    assert_ok(own.t, tern_record_get(own.t, turn, 0, NULL, 0, RIG_WAIT_MS, &n, &records));
    assert_int_equal(records, 1);
    ended(&own, turn);
}

TEST(another_list_is_a_conflict_and_stores_nothing)
{
    tern_session turn = begun(&own, opened(&own, 0, false));
    struct tern_new_record longer = {.tokens = tokens, .ntokens = TURN_TOKENS + 1};
    struct tern_recorded r;

    assert_ok(own.t, append(&own, turn, 0, TURN_TOKENS, &r));
    tokens[TURN_TOKENS - 1] ^= 1;
    assert_err(TERN_CONFLICT, tern_record_put(own.t, turn, &longer, RIG_WAIT_MS, &r));
    assert_int_equal(r.records, 1);
    tokens[TURN_TOKENS - 1] ^= 1;
    assert_ok(own.t, tern_record_put(own.t, turn, &longer, RIG_WAIT_MS, &r));
    assert_int_equal(r.records, 2);
    ended(&own, turn);
}

TEST(records_belong_to_a_turn)
{
    tern_session s = opened(&own, 0, false), turn = begun(&own, s);
    struct tern_record at;
    struct tern_recorded r;

    ended(&own, turn);
    assert_err(TERN_INVALID, prepare_pages(&own, s, 1, &at));
    assert_err(TERN_GONE, prepare_pages(&own, turn, 1, &at));
    turn = begun(&own, s);
    assert_ok(own.t, prepare_pages(&own, turn, 1, &at));
    ended(&own, turn);
    assert_err(TERN_GONE, tern_record_put(own.t, turn, NULL, RIG_WAIT_MS, &r));
    assert_int_equal(r.records, 0);
    assert_err(TERN_MALFORMED,
               tern_record_prepare(own.t, begun(&own, s),
                                   &(struct tern_new_record){.ntokens = 5, .nlogprobs = 4},
                                   RIG_WAIT_MS, &at));
    assert_non_null(strstr(tern_error_text(own.t, NULL), "or none at all"));
}

/* ---- their memory ---- */

/* Every second page of the record memory is free, so sections lie in pieces. */
TEST(a_blob_in_pieces_is_written_and_read_whole)
{
    enum { SESSIONS = 24, BYTES = 10 * WIRE_RECORD_PAGE };
    static uint8_t bytes[BYTES];
    struct tern_blob small = {"s", 3 * WIRE_RECORD_PAGE, bytes}, large = {"l", BYTES, bytes};
    struct tern_new_record record = {.tokens = tokens, .ntokens = 1, .blobs = &small, .nblobs = 1};
    tern_session s[SESSIONS], turn;
    struct tern_recorded told;
    struct tern_record r;
    uint32_t n;
    uint8_t *there;

    for (uint32_t i = 0; i < SESSIONS; i++) {
        turn = begun(&own, s[i] = opened(&own, 0, false));
        assert_ok(own.t, tern_record_put(own.t, turn, &record, RIG_WAIT_MS, &told));
        ended(&own, turn);
    }
    turn = begun(&own, opened(&own, 0, false)); /* the rest: free pages are those between */
    assert_ok(own.t, prepare_pages(&own, turn, PAGES - 4 * SESSIONS - 1, &r));
    for (uint32_t i = 0; i < SESSIONS; i += 2)
        closed(&own, s[i]);
    for (uint32_t i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 13 + i / 257);
    record.blobs = &large;
    turn = begun(&own, opened(&own, 0, false));
    assert_ok(own.t, tern_record_put(own.t, turn, &record, RIG_WAIT_MS, &told));
    assert_ok(own.t, tern_record_get(own.t, turn, 0, &r, 1, RIG_WAIT_MS, &n, NULL));
    assert_in_range(r.blobs[0].at.nspans, 2, TERN_RECORD_SPANS_MAX);
    there = section_read(&r.blobs[0].at);
    assert_memory_equal(there, bytes, BYTES);
    free(there);
}

#define MOST (PAGES * 3 / 4)

/* A process of the engine is killed while it writes its prepared record. Nobody else gets those
 * pages while another process of the engine, which has them mapped, lives; then they are free. */
TEST(pages_of_a_killed_process_come_back_when_its_engine_has_ended)
{
    struct client second = client_of(rig.socket, "second");
    tern_session s = opened(&own, 0, false), turn = 0;
    tern_session free_one = opened(&second, 0, false), next = begun(&second, free_one);
    struct tern_record at;
    struct tern_recorded r;
    struct tern_result unused;
    int fd;
    pid_t pid = proc_fork_linked(&fd);

    if (pid == 0) {
        struct client by;

        check(tern_connect(rig.socket, RIG_WAIT_MS, &by.t) == TERN_OK);
        check(tern_join(by.t, "chat", TERN_SCHEDULER, 0, 1, NULL, RIG_WAIT_MS) == TERN_OK);
        check(tern_turn_begin(by.t, s, RIG_WAIT_MS, &turn) == TERN_OK);
        check(prepare_pages(&by, turn, MOST, &at) == TERN_OK);
        memset(at.blobs[0].at.span[0].at, 1, WIRE_RECORD_PAGE);
        check(proc_send(fd, &turn, sizeof turn));
        pause();
    }
    assert_true(pid > 0);
    assert_true(proc_recv(fd, &turn, sizeof turn));
    assert_err(TERN_QUOTA, prepare_pages(&second, next, MOST, &at));
    proc_end(&pid); /* SIGKILL */
    close(fd);
    wait_until(tern_abort(own.t, s, TERN_STEP_NONE, 0, &unused) == TERN_GONE);
    assert_err(TERN_GONE, tern_record_put(own.t, turn, NULL, RIG_WAIT_MS, &r));
    for (int i = 0; i < 20; i++) { /* HELD: `own` has it mapped */
        assert_err(TERN_QUOTA, prepare_pages(&second, next, MOST, &at));
        usleep(5000);
    }
    tern_destroy(own.t);
    wait_until(prepare_pages(&second, next, MOST, &at) == TERN_OK);
    ended(&second, next);
    turns(&second, free_one, 2);
    assert_int_equal(whole_records(&second, free_one, 2), 3);
    tern_destroy(second.t);
    own = client_of(rig.socket, "chat"); /* and an engine of that name */
    turns(&own, opened(&own, 0, false), 1);
}

/* Prepares all but two pages of a client's record memory, in one section. */
static struct tern_section nearly_all(struct client *c, tern_session *ret_turn)
{
    struct tern_record r;

    *ret_turn = begun(c, opened(c, 0, false));
    assert_ok(c->t, prepare_pages(c, *ret_turn, PAGES - 2, &r));
    assert_int_equal(r.blobs[0].at.nspans, 1);
    return r.blobs[0].at;
}

static void assert_all(const struct tern_section *s, uint8_t byte)
{
    const uint8_t *at = s->span[0].at;

    assert_int_equal(at[0], byte);
    assert_memory_equal(at, at + 1, s->bytes - 1);
}

TEST(one_tenants_record_memory_is_not_in_the_others_mapping)
{
    struct client theirs = client_of(other_socket, "chat");
    struct tern_section mine, their_own;
    tern_session turn, their_turn;

    mine = nearly_all(&own, &turn);
    memset(mine.span[0].at, 0xa5, mine.bytes);
    their_own = nearly_all(&theirs, &their_turn); /* counted for t1's quota, not t0's */
    assert_all(&their_own, 0);
    memset(their_own.span[0].at, 0x5a, their_own.bytes);
    assert_all(&mine, 0xa5);
    tern_destroy(theirs.t);
}

FIXTURE(start_without)
{
    rig_start(&rig, NULL, NULL);
    own = (struct client){.t = rig_connected(rig.socket)};
    return 0;
}

TEST_WITH(a_tenant_without_record_memory_is_told_so, start_without, stop)
{
    uint32_t n;

    assert_err(TERN_INVALID, tern_record_get(own.t, 1, 0, NULL, 0, 0, &n, NULL)); /* no engine */
    assert_ok(own.t, tern_join(own.t, "chat", TERN_BOTH, 0, 1, NULL, 0));
    assert_err(TERN_UNSUPPORTED, tern_record_get(own.t, 1, 0, NULL, 0, 0, &n, NULL));
    assert_non_null(strstr(tern_error_text(own.t, NULL), "set its record_memory"));
}
