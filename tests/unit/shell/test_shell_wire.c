/* The shell's own encoder against the generated decoder, and bodies into requests: every field of
 * every answer, at both sides of each varint length; peer messages there and back; what the core
 * may be given. */
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "proto/ticket.h"
#include "shell/wire/wire_in.h"
#include "shell/wire/wire_out.h"
#include "testing/test.h"

#define BODY_MAX (1u << 20)
#define ROUNDS   2000

static uint8_t frame[FRAME_HEADER_BYTES + BODY_MAX + 64];
static uint8_t mem[BUDGET_BYTES(BODY_MAX)] __attribute__((aligned(64)));
static struct table_run runs[64];
static struct page_ref refs[TABLE_PAGES];
static struct op_result results[STEP_OPS_MAX];
static struct prng prng;
static struct wire_in in;
static struct config config;
static const char *refusal; /* the words of the last one */

FIXTURE(start)
{
    prng_init(&prng, 4);
    for (uint32_t i = 0; i < 65536; i++)
        refs[i] = (struct page_ref){.index = i * 7 + 1, .gen = i};
    config.ntenants = 2;
    strcpy(config.tenants[0].name, "red");
    strcpy(config.tenants[1].name, "blue");
    config.npeers = 2;
    strcpy(config.peers[0].name, "east");
    strcpy(config.peers[1].name, "west");
    assert_int_equal(wire_in_init(&in, &config, BODY_MAX), TERN_OK);
    return 0;
}

FIXTURE(stop)
{
    wire_in_finish(&in);
    return 0;
}

/* Of every length that a varint has, 0 among them. */
static uint64_t number(uint32_t bits)
{
    uint32_t shift = prng_below(&prng, bits + 1);

    return shift == 0 ? 0 : prng_u64(&prng) >> (64 - shift);
}

static uint32_t number32(void)
{
    return (uint32_t)number(32);
}

static struct shortage some_shortage(void)
{
    return (struct shortage){number32(), number32(), number32(),
                             number32(), number32(), number(64)};
}

static struct lengths some_lengths(void)
{
    return (struct lengths){number32(), number32(), number32()};
}

static uint32_t some_runs(uint32_t max, uint32_t from)
{
    uint32_t n = prng_below(&prng, max + 1);

    for (uint32_t i = from; i < from + n; i++) {
        uint32_t len = prng_below(&prng, 2) ? prng_below(&prng, 40) : 0;

        runs[i] = (struct table_run){
            number32(), number32(), len, refs + prng_below(&prng, 1000), {number32(), number32()}};
    }
    return n;
}

static const ProtobufCMessage *decoded(size_t n, uint16_t type, uint64_t id)
{
    const ProtobufCMessage *msg;
    struct frame_header h;
    struct budget budget;

    assert_true(n > FRAME_HEADER_BYTES);
    assert_int_equal(frame_decode(frame, BODY_MAX, &h), TERN_OK);
    assert_int_equal(h.length, n - FRAME_HEADER_BYTES);
    assert_int_equal(h.type, type);
    assert_int_equal(h.request_id, id);
    budget_init(&budget, mem, sizeof(mem));
    assert_int_equal(wire_decode(&budget, type, frame + FRAME_HEADER_BYTES, h.length, &msg),
                     TERN_OK);
    return msg;
}

static void same_shortage(const Tern__Wire__Shortage *m, const struct shortage *s)
{
    assert_non_null(m);
    assert_int_equal(m->group, s->group);
    assert_int_equal(m->needed, s->needed);
    assert_int_equal(m->free, s->free);
    assert_int_equal(m->evictable, s->evictable);
    assert_int_equal(m->retiring, s->retiring);
    assert_int_equal(m->until_step, s->until_step);
}

static void same_status(const Tern__Wire__Status *m, enum tern_err err, const char *text,
                        const struct shortage *s)
{
    if (err == TERN_OK) {
        assert_null(m);
        return;
    }
    assert_non_null(m);
    assert_int_equal(m->err, err);
    assert_string_equal(m->text ? m->text : "", text);
    if (err == TERN_POOL_EXHAUSTED)
        same_shortage(m->shortage, s);
    else
        assert_null(m->shortage);
}

static void same_runs(Tern__Wire__Run *const *m, size_t n, const struct table_run *r, uint32_t nr)
{
    assert_int_equal(n, nr);
    for (uint32_t i = 0; i < nr; i++) {
        assert_int_equal(m[i]->group, r[i].group);
        assert_int_equal(m[i]->first, r[i].first);
        assert_int_equal(m[i]->from_index, r[i].from.index);
        assert_int_equal(m[i]->from_generation, r[i].from.gen);
        assert_int_equal(m[i]->refs.len, r[i].n * sizeof(struct page_ref));
        if (r[i].n)
            assert_memory_equal(m[i]->refs.data, r[i].refs, r[i].n * sizeof(struct page_ref));
    }
}

static void same_lengths(const Tern__Wire__Lengths *m, const struct lengths *l)
{
    assert_non_null(m);
    assert_int_equal(m->committed, l->committed);
    assert_int_equal(m->written, l->written);
    assert_int_equal(m->allocated, l->allocated);
}

static struct reply some_reply(enum op op)
{
    static const char *const texts[] = {"", "do that",
                                        "do something else, which takes more words than "
                                        "fit into a length of one byte, so that the "
                                        "length of what is around it has two of them"};
    struct reply r = {.op = op, .err = (enum tern_err)prng_below(&prng, TERN_ERR_COUNT)};

    if (prng_below(&prng, 2))
        r.err = TERN_OK;
    r.request_id = number(64);
    r.text = r.err == TERN_OK ? "" : texts[prng_below(&prng, 3)];
    r.shortage = some_shortage();
    r.runs = runs;
    return r;
}

#define AS(name) ((const Tern__Wire__##name *)(const void *)msg)

TEST_GROUP(start, stop);

TEST(wire_out_small_answers_decode_as_given)
{
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct reply r = some_reply(OP_ENGINE_JOIN);
        uint64_t bytes = number(64);
        const ProtobufCMessage *msg;

        r.join.engine = (struct engine_id){number32(), number32()};
        msg =
            decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_ENGINE_JOIN_REPLY, r.request_id);
        assert_int_equal(AS(EngineJoinReply)->engine, engine_id_pack(r.join.engine));
        same_status(AS(EngineJoinReply)->status, r.err, r.text, &r.shortage);

        r.op = OP_POOL_OPEN;
        r.pool_open.pool = (struct pool_id){number32(), number32()};
        r.pool_open.align_tokens = number32();
        r.pool_open.bytes = number(64);
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_POOL_OPEN_REPLY, r.request_id);
        assert_int_equal(AS(PoolOpenReply)->pool, pool_id_pack(r.pool_open.pool));
        assert_int_equal(AS(PoolOpenReply)->align_tokens, r.pool_open.align_tokens);
        assert_int_equal(AS(PoolOpenReply)->bytes, r.pool_open.bytes);

        r.op = OP_POOL_MAP;
        r.pool_map.region = number32();
        r.pool_map.offset = number(64);
        r.pool_map.bytes = number(64);
        msg =
            decoded(wire_out_reply(&r, bytes, BODY_MAX, frame), FRAME_POOL_MAP_REPLY, r.request_id);
        assert_int_equal(AS(PoolMapReply)->region, r.pool_map.region);
        assert_int_equal(AS(PoolMapReply)->offset, r.pool_map.offset);
        assert_int_equal(AS(PoolMapReply)->bytes, r.pool_map.bytes);
        assert_int_equal(AS(PoolMapReply)->region_bytes, bytes);

        r.op = OP_SESSION_OPEN;
        r.session_open.session = (struct session_id){number32(), number32()};
        msg =
            decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_SESSION_OPEN_REPLY, r.request_id);
        assert_int_equal(AS(SessionOpenReply)->session, session_id_pack(r.session_open.session));

        r.op = OP_PEEK;
        r.peek.depth = number32();
        r.peek.history_depth = number32();
        r.peek.host_depth = number32();
        r.peek.disk_depth = number32();
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_PEEK_REPLY, r.request_id);
        assert_int_equal(AS(PeekReply)->depth, r.peek.depth);
        assert_int_equal(AS(PeekReply)->history_depth, r.peek.history_depth);
        assert_int_equal(AS(PeekReply)->host_depth, r.peek.host_depth);
        assert_int_equal(AS(PeekReply)->disk_depth, r.peek.disk_depth);

        r.op = OP_NAMESPACE_RESET;
        r.namespace_reset.nodes = number32();
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_NAMESPACE_RESET_REPLY,
                      r.request_id);
        same_status(AS(NamespaceResetReply)->status, r.err, r.text, &r.shortage);
        assert_int_equal(AS(NamespaceResetReply)->nodes, r.namespace_reset.nodes);

        r.op = OP_STORE;
        r.store.depth = number32();
        r.store.written = number(64);
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_STORE_REPLY, r.request_id);
        same_status(AS(StoreReply)->status, r.err, r.text, &r.shortage);
        assert_int_equal(AS(StoreReply)->depth, r.store.depth);
        assert_int_equal(AS(StoreReply)->written, r.store.written);
    }
}

TEST(wire_out_retract_and_recover_decode_as_given)
{
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct reply r = some_reply(OP_RETRACT);
        const ProtobufCMessage *msg;

        r.retract.lengths = some_lengths();
        r.retract.free_now = number32();
        r.retract.free_at_step = number32();
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_RETRACT_REPLY, r.request_id);
        same_status(AS(RetractReply)->status, r.err, r.text, &r.shortage);
        same_lengths(AS(RetractReply)->lengths, &r.retract.lengths);
        assert_int_equal(AS(RetractReply)->free_now, r.retract.free_now);
        assert_int_equal(AS(RetractReply)->free_at_step, r.retract.free_at_step);

        r.op = OP_RECOVER;
        r.nruns = some_runs(8, 0);
        r.recover.lengths = some_lengths();
        r.recover.tokens = number32();
        r.recover.kib = number32();
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_RECOVER_REPLY, r.request_id);
        same_status(AS(RecoverReply)->status, r.err, r.text, &r.shortage);
        same_lengths(AS(RecoverReply)->lengths, &r.recover.lengths);
        assert_int_equal(AS(RecoverReply)->tokens, r.recover.tokens);
        assert_int_equal(AS(RecoverReply)->kib, r.recover.kib);
        same_runs(AS(RecoverReply)->runs, AS(RecoverReply)->n_runs, runs, r.nruns);
    }
}

TEST(wire_out_bare_answers_are_never_empty)
{
    static const enum op ops[] = {OP_ENGINE_LEAVE, OP_POOL_CLOSE, OP_FETCH_CANCEL};
    static const uint16_t types[] = {FRAME_ENGINE_LEAVE_REPLY, FRAME_POOL_CLOSE_REPLY,
                                     FRAME_FETCH_CANCEL_REPLY};

    for (int i = 0; i < 30; i++) {
        struct reply r = some_reply(ops[i % 3]);
        const ProtobufCMessage *msg =
            decoded(wire_out_reply(&r, 0, BODY_MAX, frame), types[i % 3], r.request_id);

        same_status(AS(Empty)->status, r.err, r.text, &r.shortage);
    }
}

TEST(wire_out_match_and_fetch_decode_as_given)
{
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct reply r = some_reply(OP_MATCH);
        const ProtobufCMessage *msg;

        r.nruns = some_runs(8, 0);
        r.match.lengths = some_lengths();
        r.match.tokens = number32();
        r.match.matched = number32();
        r.match.host_depth = number32();
        r.match.disk_depth = number32();
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_MATCH_REPLY, r.request_id);
        same_status(AS(MatchReply)->status, r.err, r.text, &r.shortage);
        same_lengths(AS(MatchReply)->lengths, &r.match.lengths);
        assert_int_equal(AS(MatchReply)->tokens, r.match.tokens);
        assert_int_equal(AS(MatchReply)->matched, r.match.matched);
        assert_int_equal(AS(MatchReply)->host_depth, r.match.host_depth);
        assert_int_equal(AS(MatchReply)->disk_depth, r.match.disk_depth);
        same_runs(AS(MatchReply)->runs, AS(MatchReply)->n_runs, runs, r.nruns);

        r.op = OP_FETCH;
        r.fetch.lengths = some_lengths();
        r.fetch.kib = number32();
        r.fetch.blob = (const uint32_t[]){7, 8};
        r.fetch.blob_bytes = i % 9;
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_FETCH_REPLY, r.request_id);
        same_lengths(AS(FetchReply)->lengths, &r.fetch.lengths);
        assert_int_equal(AS(FetchReply)->kib, r.fetch.kib);
        assert_int_equal(AS(FetchReply)->blob.len, r.fetch.blob_bytes);
        if (r.fetch.blob_bytes > 0)
            assert_memory_equal(AS(FetchReply)->blob.data, r.fetch.blob, r.fetch.blob_bytes);
        same_runs(AS(FetchReply)->runs, AS(FetchReply)->n_runs, runs, r.nruns);
    }
}

TEST(wire_out_step_results_decode_as_given)
{
    for (uint32_t round = 0; round < ROUNDS / 10; round++) {
        struct reply r = some_reply(OP_STEP);
        const ProtobufCMessage *msg;

        r.step.results = results;
        r.step.n = prng_below(&prng, 12);
        for (uint32_t i = 0; i < r.step.n; i++) {
            results[i].err = (enum tern_err)prng_below(&prng, TERN_ERR_COUNT);
            results[i].lengths = some_lengths();
            results[i].tokens = number32();
            results[i].shortage = some_shortage();
            results[i].align = number32();
            results[i].first_run = r.nruns;
            results[i].nruns = some_runs(4, r.nruns);
            r.nruns += results[i].nruns;
        }
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_STEP_REPLY, r.request_id);
        same_status(AS(StepReply)->status, r.err, r.text, &r.shortage);
        assert_int_equal(AS(StepReply)->n_results, r.step.n);
        for (uint32_t i = 0; i < r.step.n; i++) {
            const Tern__Wire__OpResult *m = AS(StepReply)->results[i];

            same_status(m->status, results[i].err, "", &results[i].shortage);
            assert_int_equal(m->align, results[i].align);
            assert_int_equal(m->committed, results[i].lengths.committed);
            assert_int_equal(m->written, results[i].lengths.written);
            assert_int_equal(m->allocated, results[i].lengths.allocated);
            assert_int_equal(m->tokens, results[i].tokens);
            same_runs(m->runs, m->n_runs, runs + results[i].first_run, results[i].nruns);
        }
    }
}

/* Every limit below what is needed gives 0, and nothing is written behind it. */
/* Each # is the next number; a text without one is told as it is, and one that is too long is cut.
 */
TEST(wire_out_text_has_its_numbers)
{
    char buf[WIRE_OUT_WORDS], text[WIRE_OUT_WORDS + 50];
    struct reply r = {.text = "# of #, and #", .number = {12, UINT32_MAX}};

    assert_string_equal(wire_out_text(&r, buf), "12 of 4294967295, and #");
    r.text = "none";
    assert_ptr_equal(wire_out_text(&r, buf), r.text);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (uint32_t at = WIRE_OUT_WORDS - 20; at < WIRE_OUT_WORDS; at++) {
        text[at] = '#';
        r.text = text;
        assert_in_range(strlen(wire_out_text(&r, buf)), WIRE_OUT_WORDS - 20, WIRE_OUT_WORDS - 1);
        text[at] = 'x';
    }
}

TEST(wire_out_too_small_a_limit_gives_nothing)
{
    struct reply r = {
        .op = OP_MATCH, .err = TERN_POOL_EXHAUSTED, .text = "wait", .runs = runs, .nruns = 2};
    size_t whole;

    r.shortage = (struct shortage){1, 2000, 3, 4, 5, 1u << 30};
    runs[0] = (struct table_run){0, 5, 20, refs, {7, 1u << 31}};
    runs[1] = (struct table_run){1, 300, 33, refs, {0, 0}};
    r.match.lengths = (struct lengths){64, 128, 1u << 20};
    whole = wire_out_reply(&r, 0, BODY_MAX, frame) - FRAME_HEADER_BYTES;
    for (uint32_t max = 1; max < whole; max++) {
        memset(frame, 0xee, FRAME_HEADER_BYTES + whole + 64);
        assert_int_equal(wire_out_reply(&r, 0, max, frame), 0);
        for (size_t i = FRAME_HEADER_BYTES + max; i < FRAME_HEADER_BYTES + whole + 64; i++)
            assert_int_equal(frame[i], 0xee);
    }
}

TEST(wire_out_largest_answer_fits_the_default_limit)
{
    struct reply r = {.op = OP_MATCH, .text = "", .runs = runs, .nruns = 1};

    runs[0] = (struct table_run){0, 0, TABLE_PAGES, refs, {0, 0}};
    assert_true(wire_out_reply(&r, 0, FRAME_BODY_MAX, frame) >
                TABLE_PAGES * sizeof(struct page_ref));
}

/* ---- requests ---- */

static enum tern_err request(uint16_t type, const ProtobufCMessage *m, struct request *ret)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = type, .session = 0x300000004};
    size_t n;

    assert_int_equal(wire_encode(&h, m, BODY_MAX, frame, sizeof(frame), &n), TERN_OK);
    assert_int_equal(frame_decode(frame, BODY_MAX, &h), TERN_OK);
    return wire_in_request(&in, 0, &h, frame + FRAME_HEADER_BYTES, ret, &refusal);
}

static struct namespace_id ns_of(const char *model, const char *revision, const char *salt)
{
    Tern__Wire__SessionOpen m = TERN__WIRE__SESSION_OPEN__INIT;
    Tern__Wire__Namespace ns = TERN__WIRE__NAMESPACE__INIT;
    struct request r;

    ns.model = (char *)(uintptr_t)model;
    ns.revision = (char *)(uintptr_t)revision;
    ns.salt = (char *)(uintptr_t)salt;
    m.ns = &ns;
    assert_int_equal(request(FRAME_SESSION_OPEN, &m.base, &r), TERN_OK);
    return r.session_open.ns;
}

static bool ns_equal(struct namespace_id a, struct namespace_id b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* A path that an operator gave may be longer than a status's text; the smallest frame holds it. */
/* Whatever frame_body_max is: who reads records goes on behind those that came. */
TEST(wire_out_records_that_do_not_fit_are_left_for_the_next_answer)
{
    static struct record_body list[RECORDS_TOLD_MAX];
    struct reply r = {.op = OP_RECORD_GET, .request_id = 5, .text = ""};

    for (uint32_t i = 0; i < RECORDS_TOLD_MAX; i++) {
        list[i] = (struct record_body){.from = UINT32_MAX - 1, .length = UINT32_MAX, .nblobs = 4};
        for (uint32_t b = 0; b < 4; b++) {
            memset(list[i].blob[b].name, 'x', BLOB_NAME_MAX - 1);
            list[i].blob[b].at.bytes = UINT64_MAX;
            list[i].blob[b].at.nruns = RECORD_RUNS_MAX;
        }
        list[i].own = list[i].blob[0].at;
    }
    r.record_get.list = list;
    r.record_get.n = r.record_get.records = RECORDS_TOLD_MAX;
    for (uint32_t max = 4096, last = 0; max <= BODY_MAX; max *= 2) {
        const Tern__Wire__RecordGetReply *m =
            (const void *)decoded(wire_out_reply(&r, 0, max, frame), FRAME_RECORD_GET_REPLY, 5);

        assert_int_equal(m->records, RECORDS_TOLD_MAX);
        assert_true(m->n_list > last || m->n_list == RECORDS_TOLD_MAX);
        last = (uint32_t)m->n_list;
    }
}

TEST(wire_out_status_of_a_long_text_can_be_read)
{
    struct frame_header h, request = {.type = FRAME_ADMIN, .request_id = 7};
    const Tern__Wire__AdminReply *reply;
    const ProtobufCMessage *msg;
    struct budget budget;
    char text[5000];
    size_t n;

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    n = wire_out_status(&request, TERN_DISK, text, 4096, frame);
    assert_true(n > FRAME_HEADER_BYTES);
    assert_int_equal(frame_decode(frame, 4096, &h), TERN_OK);
    budget_init(&budget, mem, sizeof mem);
    assert_int_equal(wire_decode(&budget, h.type, frame + FRAME_HEADER_BYTES, h.length, &msg),
                     TERN_OK);
    reply = (const Tern__Wire__AdminReply *)(const void *)msg;
    assert_int_equal(reply->status->err, TERN_DISK);
    assert_int_equal(strlen(reply->status->text), WIRE_TEXT_MAX);
}

TEST(wire_in_namespace_fields_do_not_run_into_one_another)
{
    assert_true(ns_equal(ns_of("ab", "c", "d"), ns_of("ab", "c", "d")));
    assert_false(ns_equal(ns_of("ab", "c", "d"), ns_of("a", "bc", "d")));
    assert_false(ns_equal(ns_of("ab", "c", "d"), ns_of("ab", "cd", "")));
    assert_false(ns_equal(ns_of("ab", "", "c"), ns_of("ab", "c", "")));
    assert_true(ns_equal(ns_of("ab", "", "c"), ns_of("ab", NULL, "c")));
}

TEST(wire_in_unknown_values_are_invalid)
{
    Tern__Wire__EngineJoin join = TERN__WIRE__ENGINE_JOIN__INIT;
    Tern__Wire__PoolOpen pool = TERN__WIRE__POOL_OPEN__INIT;
    Tern__Wire__Group group = TERN__WIRE__GROUP__INIT, *groups[1] = {&group};
    Tern__Wire__StepOp op = TERN__WIRE__STEP_OP__INIT, *ops[1] = {&op};
    Tern__Wire__Step step = TERN__WIRE__STEP__INIT;
    char name[ENGINE_NAME_MAX + 1] = {0};
    struct request r;

    memset(name, 'n', ENGINE_NAME_MAX - 1);
    join.name = name;
    join.has_role = true;
    join.role = ROLE_BOTH;
    assert_int_equal(request(FRAME_ENGINE_JOIN, &join.base, &r), TERN_OK);
    join.role = ROLE_BOTH + 1;
    assert_int_equal(request(FRAME_ENGINE_JOIN, &join.base, &r), TERN_INVALID);
    join.role = ROLE_BOTH;
    name[ENGINE_NAME_MAX - 1] = 'n'; /* no room for the NUL */
    assert_int_equal(request(FRAME_ENGINE_JOIN, &join.base, &r), TERN_INVALID);

    pool.n_groups = 1;
    pool.groups = groups;
    assert_int_equal(request(FRAME_POOL_OPEN, &pool.base, &r), TERN_OK);
    assert_int_equal(r.pool_open.group[0].units, 1);
    assert_int_equal(r.pool_open.host_bytes, 0);
    pool.has_host_bytes = true;
    pool.host_bytes = 1ull << 40;
    assert_int_equal(request(FRAME_POOL_OPEN, &pool.base, &r), TERN_OK);
    assert_true(r.pool_open.host_bytes == 1ull << 40);
    group.has_family = true;
    group.family = FAMILY_RECURRENT + 1;
    assert_int_equal(request(FRAME_POOL_OPEN, &pool.base, &r), TERN_INVALID);
    group.family = FAMILY_WINDOW;
    group.has_window = group.has_reserve = pool.has_supersede = true;
    group.window = 128;
    group.reserve = 3;
    pool.supersede = SUPERSEDE_OFF;
    assert_int_equal(request(FRAME_POOL_OPEN, &pool.base, &r), TERN_OK);
    assert_int_equal(r.pool_open.group[0].family, FAMILY_WINDOW);
    assert_int_equal(r.pool_open.group[0].window, 128);
    assert_int_equal(r.pool_open.group[0].reserve, 3);
    assert_int_equal(r.pool_open.supersede, SUPERSEDE_OFF);
    pool.supersede = SUPERSEDE_OFF + 1;
    assert_int_equal(request(FRAME_POOL_OPEN, &pool.base, &r), TERN_INVALID);
    pool.has_supersede = false;
    group.family = FAMILY_HISTORY;
    pool.has_shard = true;
    pool.shard = SHARD_TOKENS + 1;
    assert_int_equal(request(FRAME_POOL_OPEN, &pool.base, &r), TERN_INVALID);

    step.n_ops = 1;
    step.ops = ops;
    op.has_kind = true;
    for (uint32_t kind = 0; kind < 12; kind++) {
        bool known = kind >= STEP_EXTEND && kind < STEP_KINDS;

        op.kind = kind;
        assert_int_equal(request(FRAME_STEP, &step.base, &r), known ? TERN_OK : TERN_INVALID);
    }
}

TEST(wire_in_layout_axes_make_another_hash)
{
    Tern__Wire__PoolOpen pool = TERN__WIRE__POOL_OPEN__INIT;
    Tern__Wire__Axis a = TERN__WIRE__AXIS__INIT, b = TERN__WIRE__AXIS__INIT, *axes[2] = {&a, &b};
    Tern__Wire__Group group = TERN__WIRE__GROUP__INIT, *groups[1] = {&group};
    struct request first, other;

    a.name = (char *)(uintptr_t) "head";
    b.name = (char *)(uintptr_t) "token";
    a.has_stride_bytes = b.has_stride_bytes = true;
    a.stride_bytes = 64;
    group.n_axes = 2;
    group.axes = axes;
    pool.n_groups = 1;
    pool.groups = groups;
    assert_int_equal(request(FRAME_POOL_OPEN, &pool.base, &first), TERN_OK);
    assert_int_equal(request(FRAME_POOL_OPEN, &pool.base, &other), TERN_OK);
    assert_int_equal(first.pool_open.axes_hash, other.pool_open.axes_hash);
    axes[0] = &b;
    axes[1] = &a;
    assert_int_equal(request(FRAME_POOL_OPEN, &pool.base, &other), TERN_OK);
    assert_int_not_equal(first.pool_open.axes_hash, other.pool_open.axes_hash);
    axes[0] = &a;
    axes[1] = &b;
    a.stride_bytes = 128;
    assert_int_equal(request(FRAME_POOL_OPEN, &pool.base, &other), TERN_OK);
    assert_int_not_equal(first.pool_open.axes_hash, other.pool_open.axes_hash);
}

TEST(wire_in_tokens_are_aligned_wherever_they_lie)
{
    static uint8_t shifted[FRAME_HEADER_BYTES + BODY_MAX + 8];
    static const uint32_t v[5] = {9, 8, 7, 6, 5};
    static const struct extra_key keys[2] = {{.position = 3, .hi = 1, .lo = 2},
                                             {.position = 4, .lo = 5}};
    Tern__Wire__Tokens tokens = TERN__WIRE__TOKENS__INIT;
    Tern__Wire__Match m = TERN__WIRE__MATCH__INIT;
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_MATCH, .session = 0x300000004};
    size_t n;

    tokens.has_kept = tokens.has_tokens = tokens.has_keys = true;
    tokens.kept = 1;
    tokens.tokens = wire_bytes(v, sizeof(v));
    tokens.keys = wire_bytes(keys, sizeof(keys));
    m.tokens = &tokens;
    m.has_step = true;
    m.step = 12;
    assert_int_equal(wire_encode(&h, &m.base, BODY_MAX, frame, sizeof(frame), &n), TERN_OK);
    assert_int_equal(frame_decode(frame, BODY_MAX, &h), TERN_OK);
    for (size_t at = 0; at < 8; at++) {
        struct request r;

        memcpy(shifted + at, frame, n);
        assert_int_equal(
            wire_in_request(&in, 0, &h, shifted + at + FRAME_HEADER_BYTES, &r, &refusal), TERN_OK);
        assert_int_equal(r.op, OP_MATCH);
        assert_int_equal(session_id_pack(r.match.session), 0x300000004);
        assert_int_equal(r.match.step, 12);
        assert_int_equal(r.match.tokens.base, 1);
        assert_int_equal(r.match.tokens.n, 5);
        assert_int_equal((uintptr_t)r.match.tokens.v % sizeof(uint32_t), 0);
        assert_int_equal((uintptr_t)r.match.tokens.keys % sizeof(uint64_t), 0);
        assert_memory_equal(r.match.tokens.v, v, sizeof(v));
        assert_int_equal(r.match.tokens.nkeys, 2);
        assert_memory_equal(r.match.tokens.keys, keys, sizeof(keys));
    }
}

TEST(wire_in_fetch_names_a_configured_peer)
{
    Tern__Wire__Fetch m = TERN__WIRE__FETCH__INIT;
    struct request r;

    m.peer = (char *)(uintptr_t) "west";
    assert_int_equal(request(FRAME_FETCH, &m.base, &r), TERN_OK);
    assert_int_equal(r.fetch.peer, 1);
    m.peer = (char *)(uintptr_t) "north\n";
    assert_int_equal(request(FRAME_FETCH, &m.base, &r), TERN_INVALID);
    assert_string_equal(refusal, "no such peer is configured: 'north?'; there are east, west");
    m.peer = NULL;
    assert_int_equal(request(FRAME_FETCH, &m.base, &r), TERN_OK);
    assert_int_equal(r.fetch.peer, NONE);
    m.peer = (char *)(uintptr_t) "";
    assert_int_equal(request(FRAME_FETCH, &m.base, &r), TERN_OK);
    assert_int_equal(r.fetch.peer, PEER_HOST);
    m.peer = (char *)(uintptr_t) "/disk";
    assert_int_equal(request(FRAME_FETCH, &m.base, &r), TERN_OK);
    assert_int_equal(r.fetch.peer, PEER_DISK);
}

TEST(wire_in_store_names_the_headers_session)
{
    Tern__Wire__Store m = TERN__WIRE__STORE__INIT;
    struct request r;

    m.has_depth = m.has_trace_id = true;
    m.depth = 11008;
    m.trace_id = 80;
    assert_int_equal(request(FRAME_STORE, &m.base, &r), TERN_OK);
    assert_int_equal(r.op, OP_STORE);
    assert_int_equal(r.trace_id, 80);
    assert_int_equal(r.store.depth, 11008);
    assert_int_equal(session_id_pack(r.store.session), 0x300000004);
    m.has_depth = false;
    m.depth = 0;
    assert_int_equal(request(FRAME_STORE, &m.base, &r), TERN_OK);
    assert_int_equal(r.store.depth, 0);
}

/* A ticket is text outside, and its key is drawn anew for each. */
TEST(wire_ticket_goes_out_and_comes_in_as_text)
{
    static const uint8_t blob[5] = {1, 2, 3, 4, 5};
    Tern__Wire__Handoff m = TERN__WIRE__HANDOFF__INIT;
    Tern__Wire__TicketDrop drop = TERN__WIRE__TICKET_DROP__INIT;
    Tern__Wire__Fetch fetch = TERN__WIRE__FETCH__INIT;
    char text[WIRE_TICKET_MAX];
    struct request r, again;
    struct reply answer = {.op = OP_HANDOFF, .text = "", .request_id = 7};
    const ProtobufCMessage *msg;

    m.has_step = m.has_deadline_ms = m.has_blob = true;
    m.step = 9;
    m.deadline_ms = 20;
    m.blob = (ProtobufCBinaryData){.len = sizeof blob, .data = (uint8_t *)(uintptr_t)blob};
    assert_int_equal(request(FRAME_HANDOFF, &m.base, &r), TERN_OK);
    assert_int_equal(r.handoff.step, 9);
    assert_int_equal(r.handoff.deadline_ms, 20);
    assert_int_equal(session_id_pack(r.handoff.session), 0x300000004);
    assert_int_equal(r.handoff.blob_bytes, 5);
    assert_int_equal(r.handoff.blob.n, 2);
    assert_int_equal(r.handoff.blob.v[0], 0x04030201);
    assert_int_equal(r.handoff.blob.v[1], 5);
    assert_int_equal(request(FRAME_HANDOFF, &m.base, &again), TERN_OK);
    assert_memory_not_equal(r.handoff.key, again.handoff.key, sizeof r.handoff.key);

    answer.handoff.ticket = (struct ticket){.id = {4, 3},
                                            .key = {r.handoff.key[0], r.handoff.key[1]},
                                            .incarnation = 0xfedcba9876543210,
                                            .length = 48960};
    answer.handoff.deadline_ms = 19;
    msg = decoded(wire_out_reply(&answer, 0, BODY_MAX, frame), FRAME_HANDOFF_REPLY, 7);
    assert_int_equal(AS(HandoffReply)->deadline_ms, 19);
    assert_true(strlen(AS(HandoffReply)->ticket) < 256);
    snprintf(text, sizeof text, "%s", AS(HandoffReply)->ticket);
    drop.ticket = text;
    assert_int_equal(request(FRAME_TICKET_DROP, &drop.base, &r), TERN_OK);
    assert_memory_equal(&r.ticket_drop.ticket, &answer.handoff.ticket, sizeof(struct ticket));
    fetch.ticket = text;
    assert_int_equal(request(FRAME_FETCH, &fetch.base, &r), TERN_OK);
    assert_memory_equal(&r.fetch.ticket, &answer.handoff.ticket, sizeof(struct ticket));
    for (size_t i = 0; text[i]; i++) { /* whatever is changed makes another of it, or none */
        char was = text[i];

        text[i] = was == '1' ? '2' : '1';
        if (request(FRAME_TICKET_DROP, &drop.base, &r) == TERN_OK)
            assert_memory_not_equal(&r.ticket_drop.ticket, &answer.handoff.ticket,
                                    sizeof(struct ticket));
        text[i] = '/';
        assert_int_equal(request(FRAME_TICKET_DROP, &drop.base, &r), TERN_INVALID);
        text[i] = was;
    }
    text[strlen(text) - 1] = '\0';
    assert_int_equal(request(FRAME_TICKET_DROP, &drop.base, &r), TERN_INVALID);
    drop.ticket = NULL;
    assert_int_equal(request(FRAME_TICKET_DROP, &drop.base, &r), TERN_OK);
    assert_int_equal(r.ticket_drop.ticket.id.gen, 0); /* the core says that it is gone */
}

TEST(wire_in_retract_and_recover_name_the_headers_session)
{
    Tern__Wire__Retract retract = TERN__WIRE__RETRACT__INIT;
    Tern__Wire__Recover recover = TERN__WIRE__RECOVER__INIT;
    struct request r;

    assert_int_equal(request(FRAME_RETRACT, &retract.base, &r), TERN_OK);
    assert_int_equal(r.op, OP_RETRACT);
    assert_int_equal(r.retract.mode, RETRACT_HOST);
    assert_int_equal(r.retract.step, 0);
    retract.has_mode = retract.has_step = retract.has_trace_id = true;
    retract.mode = RETRACT_DROP;
    retract.step = 1ull << 60;
    retract.trace_id = 77;
    assert_int_equal(request(FRAME_RETRACT, &retract.base, &r), TERN_OK);
    assert_int_equal(r.retract.mode, RETRACT_DROP);
    assert_true(r.retract.step == 1ull << 60);
    assert_int_equal(r.trace_id, 77);
    assert_int_equal(session_id_pack(r.retract.session), 0x300000004);
    retract.mode = RETRACT_DROP + 1;
    assert_int_equal(request(FRAME_RETRACT, &retract.base, &r), TERN_INVALID);

    recover.has_trace_id = true;
    recover.trace_id = 78;
    assert_int_equal(request(FRAME_RECOVER, &recover.base, &r), TERN_OK);
    assert_int_equal(r.op, OP_RECOVER);
    assert_int_equal(r.trace_id, 78);
    assert_int_equal(session_id_pack(r.recover.session), 0x300000004);
}

TEST(wire_in_namespace_reset_names_what_sessions_are_opened_in)
{
    Tern__Wire__NamespaceReset m = TERN__WIRE__NAMESPACE_RESET__INIT;
    Tern__Wire__Namespace ns = TERN__WIRE__NAMESPACE__INIT;
    struct request r;

    ns.model = (char *)(uintptr_t) "m";
    ns.revision = (char *)(uintptr_t) "7";
    m.ns = &ns;
    m.has_trace_id = true;
    m.trace_id = 79;
    assert_int_equal(request(FRAME_NAMESPACE_RESET, &m.base, &r), TERN_OK);
    assert_int_equal(r.op, OP_NAMESPACE_RESET);
    assert_int_equal(r.trace_id, 79);
    assert_true(ns_equal(r.namespace_reset.ns, ns_of("m", "7", "")));
    assert_false(ns_equal(r.namespace_reset.ns, ns_of("m", "8", "")));
}

/* Requests of engines are the odd types up to FETCH_CANCEL and from RETRACT to NAMESPACE_RESET. */
static bool is_operation(uint32_t type)
{
    switch (type) {
#define X(number, NAME, ...)                                                                       \
    case FRAME_##NAME: return true;
        REQUEST_TABLE(X)
#undef X
    default: return false;
    }
}

TEST(wire_in_takes_no_other_type_for_a_request)
{
    static const uint8_t pad[] = {0xa0, 0x06, 0x00};
    uint32_t taken = 0;

    for (uint32_t type = 0; type < 300; type++) {
        struct frame_header h = {
            .length = sizeof pad, .version = FRAME_VERSION, .type = (uint16_t)type};
        struct request r;
        enum tern_err err = wire_in_request(&in, 0, &h, pad, &r, &refusal);

        assert_int_equal(err == TERN_UNSUPPORTED, !is_operation(type));
        taken += err != TERN_UNSUPPORTED;
    }
    assert_true(taken >= 14);
}

/* Also where the rest of the message makes no sense, so that the log can say whose it was. */
TEST(wire_in_every_request_has_its_trace_id)
{
    for (uint32_t i = 0; i < messages_n; i++) {
        uint16_t type = messages[i].type;
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(messages[i].request, "trace_id");
        struct request r = {.trace_id = 1};
        uint8_t body[2] = {0, 77};
        struct frame_header h = {.length = sizeof body, .version = FRAME_VERSION, .type = type};

        if (!is_operation(type))
            continue;
        assert_non_null(f);
        body[0] = (uint8_t)(f->id << 3);
        (void)wire_in_request(&in, 0, &h, body, &r, &refusal);
        assert_int_equal(r.trace_id, 77);
    }
}

/* ---- peers ---- */

static enum tern_err there_and_back(const struct peer_msg *msg, const char *tenant,
                                    uint64_t allowed, struct peer_msg *ret, uint64_t *ret_sequence)
{
    size_t n = wire_out_peer_msg(msg, tenant, 41, BODY_MAX, frame);
    struct frame_header h;

    assert_true(n > 0);
    assert_int_equal(frame_decode(frame, BODY_MAX, &h), TERN_OK);
    return wire_in_peer_msg(&in, &h, frame + FRAME_HEADER_BYTES, allowed, ret, ret_sequence);
}

TEST(peer_open_comes_back_as_sent)
{
    static const uint32_t tokens[128] = {4, 5, 6};
    static const struct extra_key keys[1] = {{.position = 100, .hi = 3, .lo = 4}};
    struct peer_msg msg = {.kind = PEER_PULL_OPEN,
                           .pull = {7, 8},
                           .trace_id = 9,
                           .ns = {10, 11},
                           .layout_hash = 12,
                           .history = 96,
                           .from = 64,
                           .to = 128,
                           .tokens = tokens,
                           .keys = keys,
                           .nkeys = 1};
    struct peer_msg got;
    uint64_t sequence;

    assert_int_equal(there_and_back(&msg, "blue", 3, &got, &sequence), TERN_OK);
    assert_int_equal(got.ticket.id.gen, 0);
    msg.ticket = (struct ticket){
        .id = {1, 2}, .key = {3, 4}, .incarnation = 0xf000000000000005, .length = 128};
    assert_int_equal(there_and_back(&msg, "blue", 3, &got, &sequence), TERN_OK);
    assert_memory_equal(&got.ticket, &msg.ticket, sizeof got.ticket);
    assert_int_equal(sequence, 41);
    assert_int_equal(got.kind, PEER_PULL_OPEN);
    assert_true(pull_id_equal(got.pull, msg.pull) && serve_id_equal(got.serve, msg.serve));
    assert_int_equal(got.trace_id, 9);
    assert_int_equal(got.tenant, 1);
    assert_true(ns_equal(got.ns, msg.ns));
    assert_int_equal(got.layout_hash, 12);
    assert_int_equal(got.history, 96);
    assert_int_equal(got.from, 64);
    assert_int_equal(got.to, 128);
    assert_memory_equal(got.tokens, tokens, sizeof(tokens));
    assert_int_equal(got.nkeys, 1);
    assert_memory_equal(got.keys, keys, sizeof(keys));
    /* The peer may not name that tenant, or nobody is called so. */
    assert_int_equal(there_and_back(&msg, "blue", 1, &got, &sequence), TERN_OK);
    assert_int_equal(got.tenant, NONE);
    assert_int_equal(there_and_back(&msg, "green", 3, &got, &sequence), TERN_OK);
    assert_int_equal(got.tenant, NONE);
    assert_int_equal(there_and_back(&msg, NULL, 3, &got, &sequence), TERN_OK);
    assert_int_equal(got.tenant, NONE);
}

TEST(peer_offer_comes_back_as_sent)
{
    struct peer_msg msg = {.kind = PEER_PULL_OFFER,
                           .pull = {1, 2},
                           .serve = {3, 4},
                           .err = TERN_BUSY,
                           .retry_ms = 20,
                           .from = 0,
                           .to = 640,
                           .runs = runs,
                           .nruns = 2};
    struct peer_msg got;
    uint64_t sequence;

    runs[0] = (struct table_run){0, 0, 10, refs, {0, 0}};
    runs[1] = (struct table_run){1, 5, 3, refs + 100, {0, 0}};
    assert_int_equal(there_and_back(&msg, NULL, 3, &got, &sequence), TERN_OK);
    assert_int_equal(got.blob_bytes, 0);
    msg.tokens = (const uint32_t[]){0x04030201, 5}; /* its last word is filled up */
    msg.blob_bytes = 5;
    assert_int_equal(there_and_back(&msg, NULL, 3, &got, &sequence), TERN_OK);
    assert_int_equal(got.blob_bytes, 5);
    assert_memory_equal(got.tokens, msg.tokens, 8);
    assert_true(serve_id_equal(got.serve, msg.serve));
    assert_int_equal(got.err, TERN_BUSY);
    assert_int_equal(got.retry_ms, 20);
    assert_int_equal(got.to, 640);
    assert_int_equal(got.nruns, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(got.runs[i].group, runs[i].group);
        assert_int_equal(got.runs[i].first, runs[i].first);
        assert_int_equal(got.runs[i].n, runs[i].n);
        assert_memory_equal(got.runs[i].refs, runs[i].refs, runs[i].n * sizeof(struct page_ref));
    }
}

TEST(peer_tokens_that_follow_come_back_as_sent)
{
    static const uint32_t tokens[32] = {4, 5, 6};
    struct peer_msg msg = {.kind = PEER_PULL_TOKENS,
                           .serve = {3, 4},
                           .to = 128,
                           .at = 64,
                           .until = 96,
                           .tokens = tokens},
                    got;
    uint64_t sequence;

    assert_int_equal(there_and_back(&msg, NULL, 3, &got, &sequence), TERN_OK);
    assert_int_equal(got.at, 64);
    assert_int_equal(got.until, 96);
    assert_int_equal(peer_msg_tokens(&got), 32);
    assert_memory_equal(got.tokens, tokens, sizeof(tokens));
    msg.to = 95; /* below `until` */
    assert_int_equal(there_and_back(&msg, NULL, 3, &got, &sequence), TERN_MALFORMED);
}

TEST(peer_message_that_lies_is_malformed)
{
    static const uint32_t tokens[64];
    struct peer_msg msg = {.kind = PEER_PULL_OPEN, .from = 0, .to = 64, .tokens = tokens}, got;
    uint64_t sequence;
    struct frame_header h;
    size_t n;

    assert_int_equal(
        there_and_back(&(struct peer_msg){.kind = PEER_PULL_MORE, .at = 33, .until = 32, .to = 64},
                       "red", 3, &got, &sequence),
        TERN_MALFORMED);
    msg.from = 65; /* beyond `to` */
    assert_int_equal(there_and_back(&msg, "red", 3, &got, &sequence), TERN_MALFORMED);
    msg.from = 0;
    msg.kind = PEER_MSG_COUNT;
    assert_int_equal(there_and_back(&msg, "red", 3, &got, &sequence), TERN_MALFORMED);
    msg.kind = PEER_PULL_DONE;
    msg.err = TERN_ERR_COUNT;
    assert_int_equal(there_and_back(&msg, "red", 3, &got, &sequence), TERN_MALFORMED);
    /* Fewer tokens than `to` says: the core would read beyond them. */
    {
        Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;

        h = (struct frame_header){.version = FRAME_VERSION, .type = FRAME_PEER_MSG};
        m.has_kind = m.has_to = m.has_tokens = true;
        m.kind = PEER_PULL_OPEN;
        m.to = 65;
        m.tokens = wire_bytes(tokens, sizeof(tokens));
        assert_int_equal(wire_encode(&h, &m.base, BODY_MAX, frame, sizeof(frame), &n), TERN_OK);
        assert_int_equal(frame_decode(frame, BODY_MAX, &h), TERN_OK);
        assert_int_equal(wire_in_peer_msg(&in, &h, frame + FRAME_HEADER_BYTES, 3, &got, &sequence),
                         TERN_MALFORMED);
    }
}
