/* libtern's own writers and readers of the hot path: they agree with the generated code on valid
 * bytes, and return a typed error for others. Then whole connections that receive invalid bytes. */

#include <stdatomic.h>

#include "base/prng.h"
#include "client/libtern/quick.h"
#include "unit/rig/rig_client.h"

#define BODY_MAX 65536u
#define HEARD_MS 30000u /* for a daemon to notice an event */

static uint8_t body[BODY_MAX], packed[BODY_MAX];

/* ---- arrays for the readers ---- */

static struct tern_run runs[QUICK_RUNS_MAX];
static struct tern_page pages[BODY_MAX / 8];
static char text[QUICK_TEXT_MAX];
static struct tern_result results[TERN_BATCH_OPS_MAX];

static struct quick_store *store(void)
{
    static char texts[QUICK_TEXTS_MAX];
    static uint32_t text_at[TERN_BATCH_OPS_MAX];
    static struct quick_store s;

    s = (struct quick_store){.runs = runs,
                             .pages = pages,
                             .pages_max = BODY_MAX / 8,
                             .text = text,
                             .texts = texts,
                             .text_at = text_at};
    text[0] = '\0';
    return &s;
}

/* ---- writers ---- */

/* Writes the request to `body`: exactly the announced bytes, and none if there is one byte less
 * room. */
static size_t put_exactly(const struct quick_request *q)
{
    size_t size = quick_size(q);
    struct writer w = writer_of(body, size);

    assert_true(size > 0 && size < BODY_MAX);
    quick_put(&w, q);
    assert_true(writer_ok(&w));
    assert_ptr_equal(w.p, body + size);
    w = writer_of(packed, size - 1);
    packed[size - 1] = 0xee;
    quick_put(&w, q);
    assert_false(writer_ok(&w));
    assert_int_equal(packed[size - 1], 0xee);
    return size;
}

static void same_tokens(const Tern__Wire__Tokens *got, const struct tern_tokens *want)
{
    assert_int_equal(got->kept, want->base);
    assert_int_equal(got->tokens.len, want->n * 4u);
    assert_memory_equal(got->tokens.data ? got->tokens.data : packed,
                        want->n ? (const void *)want->v : packed, want->n * 4u);
    assert_int_equal(got->keys.len, want->nkeys * sizeof(struct tern_extra_key));
    if (want->nkeys)
        assert_memory_equal(got->keys.data, want->keys, got->keys.len);
}

/* Values around each change of a varint's length. */
static uint64_t edge(struct prng *p)
{
    uint32_t bits = prng_below(p, 65);
    uint64_t v = bits == 64 ? UINT64_MAX : (1ull << bits) - prng_below(p, 2);

    return prng_below(p, 4) ? v : 0;
}

TEST(quick_match_put_same_as_generated)
{
    static uint32_t tokens[300];
    static struct tern_extra_key keys[4];
    struct prng p;

    prng_init(&p, 1);
    for (int i = 0; i < 3000; i++) {
        struct tern_tokens list = {
            .v = tokens,
            .n = prng_below(&p, 300),
            .base = (uint32_t)edge(&p),
            .keys = keys,
            .nkeys = prng_below(&p, 5),
        };
        uint64_t step = edge(&p);
        struct quick_request q = {.type = FRAME_MATCH, .match = {.tokens = &list, .step = step}};
        Tern__Wire__Match *m;
        size_t size;

        tokens[prng_below(&p, 300)] = (uint32_t)prng_u64(&p);
        size = put_exactly(&q);
        m = tern__wire__match__unpack(NULL, size, body);
        assert_non_null(m);
        assert_true(m->step == wire_step(step));
        same_tokens(m->tokens, &list);
        assert_int_equal(m->base.n_unknown_fields, 0);
        tern__wire__match__free_unpacked(m, NULL);
    }
}

TEST(quick_step_put_same_as_generated)
{
    static struct client_op ops[64];
    static uint32_t tokens[200];
    struct prng p;

    prng_init(&p, 2);
    for (int i = 0; i < 500; i++) {
        uint32_t n = 1 + prng_below(&p, 64);
        struct quick_request q = {.type = FRAME_STEP, .step = {.ops = ops, .n = n}};
        Tern__Wire__Step *m;
        size_t size;

        for (uint32_t k = 0; k < n; k++)
            ops[k] = (struct client_op){
                .kind = (enum client_op_kind)(1 + prng_below(&p, 6)),
                .barrier = prng_below(&p, 2),
                .session = prng_u64(&p),
                .step = edge(&p),
                .length = (uint32_t)edge(&p),
                .written = (uint32_t)edge(&p),
                .tokens = {.v = tokens, .n = prng_below(&p, 200), .base = (uint32_t)edge(&p)},
            };
        size = put_exactly(&q);
        m = tern__wire__step__unpack(NULL, size, body);
        assert_non_null(m);
        assert_int_equal(m->n_ops, n);
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(m->ops[k]->kind, ops[k].kind);
            assert_int_equal(m->ops[k]->barrier, ops[k].barrier);
            assert_true(m->ops[k]->session == ops[k].session);
            assert_true(m->ops[k]->step == wire_step(ops[k].step));
            assert_int_equal(m->ops[k]->length, ops[k].length);
            assert_int_equal(m->ops[k]->written, ops[k].written);
            if (m->ops[k]->tokens)
                same_tokens(m->ops[k]->tokens, &ops[k].tokens);
            else
                assert_true(ops[k].tokens.n == 0 && ops[k].tokens.base == 0);
        }
        tern__wire__step__free_unpacked(m, NULL);
    }
}

TEST(quick_fetch_put_same_as_generated)
{
    struct tern_fetch of = {.peer = "decode-7", .depth = 300, .step = 70000};
    struct quick_request q = {.type = FRAME_FETCH, .fetch = {.of = &of}};
    size_t size = put_exactly(&q);
    Tern__Wire__Fetch *m = tern__wire__fetch__unpack(NULL, size, body);

    assert_non_null(m);
    assert_string_equal(m->peer, "decode-7");
    assert_int_equal(m->depth, 300);
    assert_int_equal(m->step, 70000);
    tern__wire__fetch__free_unpacked(m, NULL);
    /* The host tier: an empty name. */
    of.peer = NULL;
    of.depth = 0;
    size = put_exactly(&q);
    m = tern__wire__fetch__unpack(NULL, size, body);
    assert_non_null(m);
    assert_non_null(m->peer);
    assert_string_equal(m->peer, "");
    tern__wire__fetch__free_unpacked(m, NULL);
}

TEST(quick_recover_put_same_as_generated)
{
    struct quick_request q = {.type = FRAME_RECOVER};
    size_t size = put_exactly(&q);
    Tern__Wire__Recover *m = tern__wire__recover__unpack(NULL, size, body);

    assert_non_null(m);
    assert_int_equal(m->base.n_unknown_fields, 0);
    tern__wire__recover__free_unpacked(m, NULL);
}

/* ---- readers ---- */

static size_t pack_step_reply(void)
{
    static const struct tern_page refs[] = {{1, 2}, {3, 4}, {5, 6}};
    Tern__Wire__StepReply m = TERN__WIRE__STEP_REPLY__INIT;
    Tern__Wire__OpResult op[3], *list[3];
    Tern__Wire__Run run[3], *run_list[3];
    Tern__Wire__Shortage shortage = fake_shortage();
    Tern__Wire__Status status = fake_status(TERN_POOL_EXHAUSTED, "wait for step 9", &shortage);

    for (uint32_t i = 0; i < 3; i++) {
        tern__wire__op_result__init(&op[i]);
        op[i].has_committed = op[i].has_written = op[i].has_allocated = op[i].has_tokens = 1;
        op[i].committed = 64 * i;
        op[i].written = 64 * i + 1;
        op[i].allocated = 64 * i + 2;
        op[i].tokens = 64 * i + 3;
        op[i].has_align = i == 2;
        op[i].align = 16;
        run[i] = fake_run(i, 1000 + i, refs, i + 1);
        run[i].has_from_index = run[i].has_from_generation = i == 1;
        run[i].from_index = 77;
        run[i].from_generation = UINT32_MAX;
        run_list[i] = &run[i];
        op[i].n_runs = 1;
        op[i].runs = &run_list[i];
        list[i] = &op[i];
    }
    op[1].status = &status;
    m.n_results = 3;
    m.results = list;
    return tern__wire__step_reply__pack(&m, packed);
}

TEST(quick_step_get_reads_every_field)
{
    size_t n = pack_step_reply();
    enum tern_err err = TERN_INTERNAL;
    uint32_t done = 0;

    assert_true(quick_step_get(packed, (uint32_t)n, store(), results, 3, &done, &err));
    assert_ok(err);
    assert_int_equal(done, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_told_lengths(&results[i], 64 * i, 64 * i + 1, 64 * i + 2);
        assert_int_equal(results[i].tokens, 64 * i + 3);
        assert_int_equal(results[i].align, i == 2 ? 16 : 0);
        assert_int_equal(results[i].nruns, 1);
        assert_int_equal(results[i].runs->first, 1000 + i);
        assert_int_equal(results[i].runs->n, i + 1);
        assert_int_equal(results[i].runs->from.index, i == 1 ? 77 : 0);
        assert_int_equal(results[i].runs->from.generation, i == 1 ? UINT32_MAX : 0);
        assert_int_equal(results[i].runs->pages[i].index, 2 * i + 1);
        assert_int_equal(results[i].runs->pages[i].generation, 2 * i + 2);
    }
    assert_err(TERN_POOL_EXHAUSTED, results[1].err);
    assert_shortage_told(&results[1].shortage);
    assert_string_equal(text, ""); /* the text of an operation, not of the request */
    assert_string_equal(store()->texts + store()->text_at[1], "wait for step 9");
    assert_int_equal(store()->text_at[0] | store()->text_at[2], 0);
    /* An answer with one result too many is invalid. */
    assert_false(quick_step_get(packed, (uint32_t)n, store(), results, 2, &done, &err));
}

TEST(quick_match_get_reads_what_other_tiers_would_bring)
{
    Tern__Wire__MatchReply m = TERN__WIRE__MATCH_REPLY__INIT;

    m.has_matched = m.has_host_depth = m.has_disk_depth = 1;
    m.matched = 64;
    m.host_depth = 1u << 20;
    m.disk_depth = 1u << 21;
    assert_true(quick_get(FRAME_MATCH_REPLY, packed,
                          (uint32_t)tern__wire__match_reply__pack(&m, packed), store(), results));
    assert_int_equal(results[0].matched, 64);
    assert_int_equal(results[0].host_depth, 1u << 20);
    assert_int_equal(results[0].disk_depth, 1u << 21);
    m.has_host_depth = m.has_disk_depth = 0; /* an answer of an older daemon */
    assert_true(quick_get(FRAME_MATCH_REPLY, packed,
                          (uint32_t)tern__wire__match_reply__pack(&m, packed), store(), results));
    assert_int_equal(results[0].host_depth, 0);
    assert_int_equal(results[0].disk_depth, 0);
}

static size_t pack_recover_reply(void)
{
    static const struct tern_page refs[] = {{1, 2}, {3, 4}};
    Tern__Wire__RecoverReply m = TERN__WIRE__RECOVER_REPLY__INIT;
    Tern__Wire__Shortage shortage = TERN__WIRE__SHORTAGE__INIT;
    Tern__Wire__Status status = fake_status(TERN_POOL_EXHAUSTED, "not yet", &shortage);
    Tern__Wire__Lengths lengths = fake_lengths(64, 70, 80);
    Tern__Wire__Run run[2], *runs_of[2];

    shortage.has_needed = 1;
    shortage.needed = 300;
    for (uint32_t i = 0; i < 2; i++) {
        run[i] = fake_run(i, 5 * i, refs, i + 1);
        run[i].has_from_index = 1;
        run[i].from_index = 9 * i;
        runs_of[i] = &run[i];
    }
    m.status = &status;
    m.lengths = &lengths;
    m.has_tokens = m.has_kib = 1;
    m.tokens = 75;
    m.kib = 4000;
    m.n_runs = 2;
    m.runs = runs_of;
    return tern__wire__recover_reply__pack(&m, packed);
}

TEST(quick_recover_get_reads_every_field)
{
    size_t n = pack_recover_reply();
    const struct tern_result *r = &results[0];

    assert_true(quick_get(FRAME_RECOVER_REPLY, packed, (uint32_t)n, store(), results));
    assert_err(TERN_POOL_EXHAUSTED, r->err);
    assert_int_equal(r->shortage.needed, 300);
    assert_string_equal(text, "not yet");
    assert_told_lengths(r, 64, 70, 80);
    assert_int_equal(r->tokens, 75);
    assert_int_equal(r->fetched_kib, 4000);
    assert_int_equal(r->nruns, 2);
    assert_run(&r->runs[1], 1, 5, 2);
    assert_int_equal(r->runs[1].from.index, 9);
    assert_int_equal(r->runs[1].pages[1].generation, 4);
    for (size_t cut = 0; cut < n; cut++) { /* ASan checks */
        uint8_t *exact = malloc(cut ? cut : 1);

        memcpy(exact, packed, cut);
        (void)quick_get(FRAME_RECOVER_REPLY, exact, (uint32_t)cut, store(), results);
        free(exact);
    }
}

/* Every truncation and every single changed byte is refused or read, but never leads beyond the
 * arrays (ASan checks that). */
TEST(quick_get_damaged_never_out_of_bounds)
{
    size_t n = pack_step_reply();
    uint32_t done, refused = 0, read = 0;
    enum tern_err err;

    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *exact = malloc(cut ? cut : 1);

        memcpy(exact, packed, cut);
        (void)quick_step_get(exact, (uint32_t)cut, store(), results, 3, &done, &err);
        (void)quick_get(FRAME_MATCH_REPLY, exact, (uint32_t)cut, store(), results);
        (void)quick_get(FRAME_FETCH_REPLY, exact, (uint32_t)cut, store(), results);
        free(exact);
    }
    for (size_t at = 0; at < n; at++) {
        for (uint32_t v = 0; v < 256; v++) {
            uint8_t *exact = malloc(n);

            memcpy(exact, packed, n);
            exact[at] = (uint8_t)v;
            if (quick_step_get(exact, (uint32_t)n, store(), results, 3, &done, &err))
                read++;
            else
                refused++;
            for (uint32_t i = 0; i < done && i < 3; i++) {
                for (uint32_t r = 0; r < results[i].nruns; r++)
                    assert_true(results[i].runs[r].group < TERN_GROUPS_MAX);
            }
            (void)quick_get(FRAME_MATCH_REPLY, exact, (uint32_t)n, store(), results);
            free(exact);
        }
    }
    assert_true(refused > 100 && read > 100);
}

static bool match_get(const void *bytes, size_t n)
{
    return quick_get(FRAME_MATCH_REPLY, bytes, (uint32_t)n, store(), results);
}

TEST(quick_get_each_rule_refused)
{
    static const uint8_t endless_varint[] = {0x18, 0xff, 0xff, 0xff, 0xff, 0xff,
                                             0xff, 0xff, 0xff, 0xff, 0xff, 1};
    static uint8_t many[4 * (QUICK_RUNS_MAX + 1)];

    assert_true(match_get("", 0));
    assert_true(match_get("\x18\x05", 2));     /* tokens = 5 */
    assert_true(match_get("\xa0\x06\x00", 3)); /* an unknown field */
    assert_false(match_get("\x18", 1));        /* truncated */
    assert_false(match_get(endless_varint, sizeof(endless_varint)));
    assert_false(match_get("\x1a\x01x", 3));                /* tokens as bytes */
    assert_false(match_get("\x18\xff\xff\xff\xff\x1f", 6)); /* tokens beyond 32 bits */
    assert_false(match_get("\x2a\x05\x1a", 3));             /* a run longer than the body */
    assert_false(match_get("\x2b", 1));                     /* a group, which is never sent */
    assert_false(match_get("\x00\x00", 2));                 /* field 0 */
    assert_false(match_get("\x2a\x02\x08\x10", 4));         /* a run of group 16 */
    assert_true(match_get("\x2a\x02\x08\x07", 4));
    assert_false(match_get("\x2a\x09\x1a\x07"
                           "abcdefg",
                           11));                    /* no whole number of refs */
    assert_false(match_get("\x0a\x02\x12\x05", 4)); /* a text longer than its status */
    for (uint32_t i = 0; i <= QUICK_RUNS_MAX; i++)
        memcpy(many + 4 * i, "\x2a\x02\x08\x01", 4);
    assert_true(match_get(many, 4 * QUICK_RUNS_MAX));
    assert_int_equal(results[0].nruns, QUICK_RUNS_MAX);
    assert_false(match_get(many, sizeof(many)));
}

TEST(quick_get_text_longer_than_kept_cut)
{
    Tern__Wire__MatchReply m = TERN__WIRE__MATCH_REPLY__INIT;
    char longer[600];
    Tern__Wire__Status s = fake_status(TERN_GONE, longer, NULL);
    size_t n;

    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    m.status = &s;
    n = tern__wire__match_reply__pack(&m, packed);
    assert_true(match_get(packed, n));
    assert_int_equal(strlen(text), QUICK_TEXT_MAX - 1);
}

/* ---- whole connections ---- */

enum nonsense {
    LENGTH_ZERO,
    LENGTH_ABOVE_CAP,
    LENGTH_ALL_ONES,
    VERSION_ZERO,
    WRONG_TYPE,
    NEVER_ASKED,
    BODY_RANDOM,
    BODY_TRUNCATED,
    NONSENSE_COUNT,
};

static atomic_bool hung_up; /* the connection's end has reached the daemon */

static void serve_nonsense(struct fake *f)
{
    struct frame_header h = {.length = 64, .version = FRAME_VERSION, .type = FRAME_MATCH_REPLY};
    uint8_t frame[FRAME_HEADER_BYTES + 64];

    check(fake_read(f) != NULL);
    memset(frame, 0xff, sizeof(frame));
    h.request_id = f->h.request_id;
    switch (*(enum nonsense *)f->ctx) {
    case LENGTH_ZERO: h.length = 0; break;
    case LENGTH_ABOVE_CAP: h.length = FRAME_BODY_MAX + 1; break;
    case LENGTH_ALL_ONES: h.length = UINT32_MAX; break;
    case VERSION_ZERO: h.version = 0; break;
    case WRONG_TYPE: /* the body is a valid MatchReply: tokens = 5 */
        h.type = FRAME_PING_REPLY;
        h.length = 2;
        memcpy(frame + FRAME_HEADER_BYTES, "\x18\x05", 2);
        break;
    case NEVER_ASKED: h.request_id += 1u << 20; break;
    case BODY_TRUNCATED: memcpy(frame + FRAME_HEADER_BYTES, "\x2a\x7f", 2); break;
    default: break;
    }
    frame_encode(&h, frame);
    fake_write(f, frame, sizeof(frame));
    while (read(f->fd, frame, sizeof(frame)) > 0)
        ;
    hung_up = true;
}

TEST(answer_is_nonsense_connection_ends_typed)
{
    for (int submitted = 0; submitted < 2; submitted++) {
        for (enum nonsense i = 0; i < NONSENSE_COUNT; i++) {
            struct tern_answer answer;
            struct tern_result r;
            enum tern_err err;

            hung_up = false;
            start(serve_nonsense, &i);
            if (submitted) {
                assert_ok(tern_submit_match(t, 1, &some_tokens, TERN_STEP_NONE, 5));
                answer = polled();
                assert_int_equal(answer.cookie, 5);
                err = answer.err;
            } else {
                err = tern_match(t, 1, &some_tokens, TERN_STEP_NONE, 2000, &r);
            }
            assert_true(err == TERN_MALFORMED || err == TERN_UNSUPPORTED ||
                        err == TERN_DAEMON_LOST);
            assert_err(TERN_DAEMON_LOST, tern_ping(t, 100));
            for (uint32_t ms = 0; ms < HEARD_MS && !hung_up; ms++)
                usleep(1000);
            assert_true(hung_up); /* before the client closes its socket */
            stop();
        }
    }
}

struct traced {
    uint64_t trace_id;
    uint32_t requests, others; /* others: with another id */
};

static uint64_t trace_of(const ProtobufCMessage *m)
{
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "trace_id");
    uint64_t v;

    check(f != NULL);
    memcpy(&v, (const uint8_t *)m + f->offset, sizeof v);
    return v;
}

static void serve_traced(struct fake *f)
{
    struct traced *seen = f->ctx;
    const ProtobufCMessage *m;

    while ((m = fake_read(f)) != NULL) {
        if (f->h.type == FRAME_ENGINE_LEAVE)
            continue;
        seen->requests++;
        seen->others += trace_of(m) != seen->trace_id;
        if (f->h.type == FRAME_ENGINE_JOIN)
            fake_reply_empty(f);
        else
            fake_reply_err(f, TERN_GONE, "gone");
    }
}

#define assert_gone(expr)                                                                          \
    do {                                                                                           \
        assert_err(TERN_GONE, expr);                                                               \
        asked++;                                                                                   \
    } while (0)

static uint32_t every_call(void)
{
    static const uint32_t v[70];
    struct tern_group kv = {.name = "kv", .page_tokens = 64, .page_bytes = 4096};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 1 << 20};
    struct tern_namespace ns = {.model = "m"};
    struct tern_tokens list = {.v = v, .n = 70};
    struct tern_batch *batch;
    struct tern_retracted away;
    struct tern_pool *mapped;
    struct tern_result r;
    const char *json;
    struct tern_depths depths;
    uint32_t asked = 0;
    uint64_t handle;

    assert_ok(tern_join(t, "e", TERN_BOTH, 0, 1, NULL, 0));
    asked++;
    assert_gone(tern_pool_open(t, &layout, 0, &handle, NULL));
    assert_gone(tern_pool_map(t, 1, 0, &mapped));
    assert_gone(tern_pool_close(t, 1, 0));
    assert_gone(tern_session_open(t, 1, &ns, NULL, 0, &handle));
    assert_gone(tern_peek(t, 1, &ns, &list, 0, &depths));
    assert_gone(tern_match(t, 1, &list, 3, 0, &r));
    assert_gone(tern_extend(t, 1, NULL, 0, 64, 0, &r));
    assert_gone(tern_rewind(t, 1, 64, 9, 0, &r));
    assert_gone(tern_commit(t, 1, 64, 9, 0, &r));
    assert_gone(tern_finish(t, 1, 64, 9, 0, &r));
    assert_gone(tern_abort(t, 1, 9, 0, &r));
    assert_gone(tern_session_close(t, 1, 9, 0, &r));
    assert_gone(tern_slide(t, 1, 64, 9, 0, &r));
    assert_gone(tern_snapshot_release(t, 1, 0, &r));
    assert_gone(
        tern_fetch(t, 1, &(struct tern_fetch){.peer = "host-a", .step = TERN_STEP_NONE}, 0, &r));
    assert_gone(tern_fetch_cancel(t, 1, 0));
    assert_gone(tern_retract(t, 1, TERN_RETRACT_DROP, TERN_STEP_NONE, 0, &away));
    assert_gone(tern_recover(t, 1, 0, &r));
    assert_gone(tern_namespace_reset(t, &ns, 0, NULL, NULL));
    assert_gone(tern_stats(t, 0, &json));
    assert_gone(tern_ping(t, 0));
    assert_ok(tern_submit_match(t, 1, &list, TERN_STEP_NONE, 1));
    assert_ok(tern_batch_create(t, &batch));
    assert_ok(tern_batch_session_close(batch, 1, TERN_STEP_NONE));
    assert_ok(tern_batch_submit(batch, 2));
    tern_batch_destroy(batch);
    assert_ok(
        tern_submit_fetch(t, 1, &(struct tern_fetch){.peer = "host-a", .step = TERN_STEP_NONE}, 3));
    assert_ok(tern_submit_recover(t, 1, 4));
    assert_ok(tern_submit_store(t, 1, 0, 5));
    for (uint32_t n = 0; n < 5;) {
        struct tern_answer answer;

        if (tern_poll(t, &answer) == TERN_BUSY)
            continue;
        assert_err(TERN_GONE, answer.err);
        n++;
    }
    return asked + 5;
}

TEST(every_request_carries_the_trace_id_that_was_set)
{
    static const uint64_t ids[] = {0, 1, 127, 128, UINT64_MAX};

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        struct traced seen = {.trace_id = ids[i]};

        start(serve_traced, &seen);
        tern_trace(t, ids[i]);
        assert_int_equal(every_call(), 27);
        stop();
        assert_int_equal(seen.requests, 27);
        assert_int_equal(seen.others, 0);
    }
}
