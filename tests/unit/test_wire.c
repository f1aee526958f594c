/* The codec: every message there and back, and everything that a peer may send instead: cut short,
 * nested deep, full of empty submessages, above a limit, from a later version. Bodies end at a page
 * without access and so does the budget's memory: a byte too far is a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "proto/codec.h"
#include "rig_wire.h"

#define PAGE      4096u
#define FRAME_CAP (FRAME_HEADER_BYTES + FRAME_BODY_MAX)
#define NESTED    100000u

static struct budget budget;
static uint8_t *frame; /* what wire_encode fills */

static uint8_t *guarded(size_t n)
{
    size_t whole = (n + PAGE - 1) / PAGE * PAGE;
    uint8_t *p =
        mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + whole, PAGE, PROT_NONE), 0);
    return p + whole - n;
}

static void release(uint8_t *p, size_t n)
{
    size_t whole = (n + PAGE - 1) / PAGE * PAGE;

    munmap(p + n - whole, whole + PAGE);
}

static int set_up(void **state)
{
    (void)state;
    budget_init(&budget, guarded(BUDGET_BYTES(FRAME_BODY_MAX)), BUDGET_BYTES(FRAME_BODY_MAX));
    frame = guarded(FRAME_CAP);
    return 0;
}

/* Encodes into `frame`; the body's bytes. */
static size_t encode(uint16_t type, const ProtobufCMessage *msg)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = type, .request_id = 1}, back;
    size_t n = 0;

    assert_int_equal(wire_encode(&h, msg, FRAME_BODY_MAX, frame, FRAME_CAP, &n), TERN_OK);
    assert_int_equal(frame_decode(frame, FRAME_BODY_MAX, &back), TERN_OK);
    assert_int_equal(back.length + FRAME_HEADER_BYTES, n);
    assert_int_equal(back.type, type);
    return back.length;
}

/* Decodes from memory that ends at a guard page; the budget must hold whatever the answer is. */
static enum tern_err decode(uint16_t type, const void *bytes, size_t n,
                            const ProtobufCMessage **ret)
{
    uint8_t *body = guarded(n ? n : 1);
    const ProtobufCMessage *msg = NULL;
    enum tern_err err;

    memcpy(body, bytes, n);
    err = wire_decode(&budget, type, body, n, &msg);
    assert_true(budget.used <= BUDGET_BYTES(n));
    release(body, n ? n : 1); /* a message never points into its body */
    assert_int_equal(msg != NULL, err == TERN_OK);
    if (ret && msg)
        *ret = msg;
    return err;
}

static enum tern_err decode_bytes(uint16_t type, const struct rig_bytes *b)
{
    return decode(type, b->v, b->n, NULL);
}

static enum tern_err decode_message(uint16_t type, const void *msg)
{
    return decode(type, frame + FRAME_HEADER_BYTES, encode(type, msg), NULL);
}

static void wire_every_message_comes_back_as_sent(void **state)
{
    (void)state;
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        for (size_t repeat = 0; repeat < 5; repeat++) {
            const ProtobufCMessage *msg;
            size_t n = encode(*type, rig_wire_sample(*type, *type + repeat, repeat));
            uint8_t *sent = malloc(n);

            assert_non_null(sent);
            memcpy(sent, frame + FRAME_HEADER_BYTES, n);
            assert_int_equal(decode(*type, sent, n, &msg), TERN_OK);
            assert_int_equal(encode(*type, msg), n);
            assert_memory_equal(frame + FRAME_HEADER_BYTES, sent, n);
            free(sent);
        }
    }
}

static void wire_types_without_message_are_unsupported(void **state)
{
    const uint16_t *known = rig_wire_types;

    (void)state;
    for (uint32_t type = 0; type <= UINT16_MAX; type++) {
        const uint8_t body[] = {0x08, 0x01};

        if (type == *known && *known) {
            known++;
            assert_non_null(wire_descriptor((uint16_t)type));
        } else {
            assert_int_equal(decode((uint16_t)type, body, sizeof body, NULL), TERN_UNSUPPORTED);
        }
    }
    assert_int_equal(*known, 0);
}

static void wire_message_cut_anywhere_is_harmless(void **state)
{
    (void)state;
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        size_t n = encode(*type, rig_wire_sample(*type, 7, 2)), refused = 0;

        for (size_t cut = 0; cut < n; cut++) {
            enum tern_err err = decode(*type, frame + FRAME_HEADER_BYTES, cut, NULL);

            assert_true(err == TERN_OK || err == TERN_MALFORMED);
            refused += err == TERN_MALFORMED;
        }
        assert_true(refused > n / 4); /* only cuts between two fields leave a message */
    }
}

static void wire_unknown_fields_are_ignored(void **state)
{
    static const uint8_t later[] = {0xb8, 0x3e, 0x2a, /* field 999: varint */
                                    0xc1, 0x3e, 1,    2,   3,   4,   5, 6, 7, 8, /* 1000: 64 bits */
                                    0xca, 0x3e, 3,    'n', 'e', 'w',             /* 1001: bytes */
                                    0xd5, 0x3e, 1,    2,   3,   4};              /* 1002: 32 bits */

    (void)state;
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        const ProtobufCMessage *msg;
        ProtobufCMessage *known;
        size_t n = encode(*type, rig_wire_sample(*type, 3, 2));
        struct rig_bytes b = {0};

        rig_put(&b, later, sizeof later); /* before and behind what is known */
        rig_put(&b, frame + FRAME_HEADER_BYTES, n);
        rig_put(&b, later, sizeof later);
        assert_int_equal(decode(*type, b.v, b.n, &msg), TERN_OK);
        known = (ProtobufCMessage *)(uintptr_t)msg;
        known->n_unknown_fields = 0;
        assert_int_equal(encode(*type, known), n);
        assert_memory_equal(frame + FRAME_HEADER_BYTES, b.v + sizeof later, n);
        rig_bytes_finish(&b);
    }
}

static void wire_deep_nesting_is_skipped_not_followed(void **state)
{
    (void)state;
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        const ProtobufCMessageDescriptor *d = wire_descriptor(*type);

        for (uint32_t field = 1; field <= d->n_fields + 1; field++) {
            struct rig_bytes b = {0};
            enum tern_err err;

            rig_put_nested(&b, field, NESTED);
            err = decode_bytes(*type, &b);
            assert_true(err == TERN_OK || err == TERN_MALFORMED);
            rig_bytes_finish(&b);
        }
    }
}

static void wire_deep_groups_are_malformed(void **state)
{
    (void)state;
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        struct rig_bytes b = {0};

        for (size_t i = 0; i < NESTED; i++)
            rig_put_tag(&b, 200, 3);
        for (size_t i = 0; i < NESTED; i++)
            rig_put_tag(&b, 200, 4);
        assert_int_equal(decode_bytes(*type, &b), TERN_MALFORMED);
        rig_bytes_finish(&b);
    }
}

/* A body of FRAME_BODY_MAX bytes that is one field over and over, with nothing inside. */
static void empty_pieces(uint16_t type, uint32_t field)
{
    struct rig_bytes b = {0};
    enum tern_err err;

    while (b.n + 4 <= FRAME_BODY_MAX)
        rig_put_field(&b, field, "", 0);
    budget.high_water = 0;
    err = decode_bytes(type, &b);
    assert_true(err == TERN_MALFORMED || err == TERN_OK);
    assert_true(budget.high_water <= BUDGET_BYTES(b.n));
    rig_bytes_finish(&b);
}

static void wire_megabyte_of_empty_submessages_stays_in_budget(void **state)
{
    (void)state;
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        const ProtobufCMessageDescriptor *d = wire_descriptor(*type);

        for (unsigned i = 0; i < d->n_fields; i++)
            if (d->fields[i].type == PROTOBUF_C_TYPE_MESSAGE ||
                d->fields[i].type == PROTOBUF_C_TYPE_STRING)
                empty_pieces(*type, d->fields[i].id);
        empty_pieces(*type, 999);
    }
    assert_int_equal(budget.exceeded, true); /* the last was one of those that need too much */
}

/* ---- limits: the largest that is allowed passes, one more does not ---- */

static void wire_step_of_most_operations_passes(void **state)
{
    static Tern__Wire__StepOp ops[WIRE_OPS_MAX + 1];
    static Tern__Wire__StepOp *list[WIRE_OPS_MAX + 1];
    static Tern__Wire__Tokens tokens[WIRE_OPS_MAX + 1];
    Tern__Wire__Step step = TERN__WIRE__STEP__INIT;

    (void)state;
    for (size_t i = 0; i <= WIRE_OPS_MAX; i++) {
        tern__wire__step_op__init(&ops[i]);
        tern__wire__tokens__init(&tokens[i]);
        ops[i].tokens = &tokens[i];
        list[i] = &ops[i];
    }
    step.ops = list;
    step.n_ops = WIRE_OPS_MAX; /* the smallest body for so many: the budget's base must do */
    assert_int_equal(decode_message(FRAME_STEP, &step), TERN_OK);
    step.n_ops = WIRE_OPS_MAX + 1;
    assert_int_equal(decode_message(FRAME_STEP, &step), TERN_MALFORMED);
}

static void wire_step_reply_of_most_results_passes(void **state)
{
    static Tern__Wire__OpResult results[WIRE_OPS_MAX + 1];
    static Tern__Wire__OpResult *list[WIRE_OPS_MAX + 1];
    static Tern__Wire__Run *runs[WIRE_RUNS_MAX / WIRE_OPS_MAX];
    Tern__Wire__Run run = TERN__WIRE__RUN__INIT;
    Tern__Wire__Status status = TERN__WIRE__STATUS__INIT;
    Tern__Wire__Shortage shortage = TERN__WIRE__SHORTAGE__INIT;
    Tern__Wire__StepReply reply = TERN__WIRE__STEP_REPLY__INIT;

    (void)state;
    status.shortage = &shortage;
    for (size_t i = 0; i < WIRE_RUNS_MAX / WIRE_OPS_MAX; i++)
        runs[i] = &run;
    for (size_t i = 0; i <= WIRE_OPS_MAX; i++) {
        tern__wire__op_result__init(&results[i]);
        results[i].runs = runs;
        results[i].n_runs = WIRE_RUNS_MAX / WIRE_OPS_MAX;
        results[i].status = &status;
        list[i] = &results[i];
    }
    reply.results = list;
    reply.n_results = WIRE_OPS_MAX;
    assert_int_equal(decode_message(FRAME_STEP_REPLY, &reply), TERN_OK);
    for (size_t i = 0; i <= WIRE_OPS_MAX; i++)
        results[i].n_runs = 0;
    reply.n_results = WIRE_OPS_MAX + 1;
    assert_int_equal(decode_message(FRAME_STEP_REPLY, &reply), TERN_MALFORMED);
}

static void wire_runs_and_references_are_limited_over_all_results(void **state)
{
    static uint8_t refs[WIRE_REFS_MAX * WIRE_REF_BYTES];
    Tern__Wire__Run half = TERN__WIRE__RUN__INIT, one = TERN__WIRE__RUN__INIT;
    Tern__Wire__Run *halves[] = {&half, &one}, *many[WIRE_RUNS_MAX + 1];
    Tern__Wire__OpResult a = TERN__WIRE__OP_RESULT__INIT, b = TERN__WIRE__OP_RESULT__INIT;
    Tern__Wire__OpResult *results[] = {&a, &b};
    Tern__Wire__StepReply reply = TERN__WIRE__STEP_REPLY__INIT;
    Tern__Wire__MatchReply match = TERN__WIRE__MATCH_REPLY__INIT;

    (void)state;
    reply.results = results;
    reply.n_results = 2;
    half.has_refs = one.has_refs = 1;
    half.refs = wire_bytes(refs, sizeof refs / 2);
    one.refs = wire_bytes(refs, WIRE_REF_BYTES);
    a.runs = b.runs = halves;
    a.n_runs = b.n_runs = 1;
    assert_int_equal(decode_message(FRAME_STEP_REPLY, &reply), TERN_OK);
    b.n_runs = 2; /* one reference too many, and only all together */
    assert_int_equal(decode_message(FRAME_STEP_REPLY, &reply), TERN_MALFORMED);

    one.has_refs = 0;
    for (size_t i = 0; i <= WIRE_RUNS_MAX; i++)
        many[i] = &one;
    a.runs = b.runs = match.runs = many;
    a.n_runs = b.n_runs = WIRE_RUNS_MAX / 2;
    assert_int_equal(decode_message(FRAME_STEP_REPLY, &reply), TERN_OK);
    b.n_runs++;
    assert_int_equal(decode_message(FRAME_STEP_REPLY, &reply), TERN_MALFORMED);
    match.n_runs = WIRE_RUNS_MAX;
    assert_int_equal(decode_message(FRAME_MATCH_REPLY, &match), TERN_OK);
    match.n_runs++;
    assert_int_equal(decode_message(FRAME_MATCH_REPLY, &match), TERN_MALFORMED);
}

static void wire_pool_open_is_limited_in_groups_and_axes(void **state)
{
    Tern__Wire__Axis axis = TERN__WIRE__AXIS__INIT;
    Tern__Wire__Axis *axes[WIRE_AXES_MAX + 1];
    Tern__Wire__Group group = TERN__WIRE__GROUP__INIT;
    Tern__Wire__Group *groups[WIRE_GROUPS_MAX + 1];
    Tern__Wire__PoolOpen open = TERN__WIRE__POOL_OPEN__INIT;

    (void)state;
    for (size_t i = 0; i <= WIRE_AXES_MAX; i++)
        axes[i] = &axis;
    for (size_t i = 0; i <= WIRE_GROUPS_MAX; i++)
        groups[i] = &group;
    group.axes = axes;
    group.n_axes = WIRE_AXES_MAX;
    open.groups = groups;
    open.n_groups = WIRE_GROUPS_MAX;
    assert_int_equal(decode_message(FRAME_POOL_OPEN, &open), TERN_OK);
    open.n_groups++;
    assert_int_equal(decode_message(FRAME_POOL_OPEN, &open), TERN_MALFORMED);
    open.n_groups--;
    group.n_axes++;
    assert_int_equal(decode_message(FRAME_POOL_OPEN, &open), TERN_MALFORMED);
}

static void wire_token_lists_are_whole_elements_and_limited(void **state)
{
    static uint8_t bytes[(WIRE_KEYS_MAX + 1) * WIRE_KEY_BYTES];
    Tern__Wire__Tokens tokens = TERN__WIRE__TOKENS__INIT;
    Tern__Wire__Match match = TERN__WIRE__MATCH__INIT;
    Tern__Wire__PeerMsg peer = TERN__WIRE__PEER_MSG__INIT;

    (void)state;
    match.tokens = &tokens;
    tokens.has_tokens = tokens.has_keys = peer.has_tokens = peer.has_keys = 1;
    for (size_t n = 0; n <= 2 * WIRE_KEY_BYTES; n++) {
        enum tern_err keys_ok = n % WIRE_KEY_BYTES ? TERN_MALFORMED : TERN_OK;
        enum tern_err tokens_ok = n % WIRE_TOKEN_BYTES ? TERN_MALFORMED : TERN_OK;

        tokens.tokens = peer.tokens = wire_bytes(bytes, n);
        tokens.keys = peer.keys = wire_bytes(bytes, 0);
        assert_int_equal(decode_message(FRAME_MATCH, &match), tokens_ok);
        assert_int_equal(decode_message(FRAME_PEER_MSG, &peer), tokens_ok);
        tokens.tokens = peer.tokens = wire_bytes(bytes, 0);
        tokens.keys = peer.keys = wire_bytes(bytes, n);
        assert_int_equal(decode_message(FRAME_MATCH, &match), keys_ok);
        assert_int_equal(decode_message(FRAME_PEER_MSG, &peer), keys_ok);
    }
    tokens.keys = peer.keys = wire_bytes(bytes, WIRE_KEYS_MAX * WIRE_KEY_BYTES);
    assert_int_equal(decode_message(FRAME_MATCH, &match), TERN_OK);
    tokens.keys = peer.keys = wire_bytes(bytes, sizeof bytes);
    assert_int_equal(decode_message(FRAME_MATCH, &match), TERN_MALFORMED);
    assert_int_equal(decode_message(FRAME_PEER_MSG, &peer), TERN_MALFORMED);
}

static void wire_token_lists_are_checked_in_every_request(void **state)
{
    Tern__Wire__Tokens tokens = TERN__WIRE__TOKENS__INIT;
    Tern__Wire__Peek peek = TERN__WIRE__PEEK__INIT;
    Tern__Wire__StepOp op = TERN__WIRE__STEP_OP__INIT;
    Tern__Wire__StepOp *ops[] = {&op};
    Tern__Wire__Step step = TERN__WIRE__STEP__INIT;
    Tern__Wire__Run run = TERN__WIRE__RUN__INIT;
    Tern__Wire__Run *runs[] = {&run};
    Tern__Wire__FetchReply fetch = TERN__WIRE__FETCH_REPLY__INIT;
    Tern__Wire__PeerMsg peer = TERN__WIRE__PEER_MSG__INIT;

    (void)state;
    tokens.has_tokens = run.has_refs = 1;
    tokens.tokens = wire_bytes("abc", 3);
    run.refs = wire_bytes("abcdef", 6);
    peek.tokens = op.tokens = &tokens;
    step.ops = ops;
    fetch.runs = peer.runs = runs;
    step.n_ops = fetch.n_runs = peer.n_runs = 1;
    assert_int_equal(decode_message(FRAME_PEEK, &peek), TERN_MALFORMED);
    assert_int_equal(decode_message(FRAME_STEP, &step), TERN_MALFORMED);
    assert_int_equal(decode_message(FRAME_FETCH_REPLY, &fetch), TERN_MALFORMED);
    assert_int_equal(decode_message(FRAME_PEER_MSG, &peer), TERN_MALFORMED);
}

static char text[WIRE_TEXT_MAX + 2];

/* A string of every request, n bytes long: the same answer from each. */
static enum tern_err strings_of(size_t n)
{
    Tern__Wire__Hello hello = TERN__WIRE__HELLO__INIT;
    Tern__Wire__EngineJoin join = TERN__WIRE__ENGINE_JOIN__INIT;
    Tern__Wire__Namespace ns = TERN__WIRE__NAMESPACE__INIT;
    Tern__Wire__SessionOpen open = TERN__WIRE__SESSION_OPEN__INIT;
    Tern__Wire__Fetch fetch = TERN__WIRE__FETCH__INIT;
    Tern__Wire__Admin admin = TERN__WIRE__ADMIN__INIT;
    Tern__Wire__PeerHello peer = TERN__WIRE__PEER_HELLO__INIT;
    Tern__Wire__PeerMsg msg = TERN__WIRE__PEER_MSG__INIT;
    char *args[] = {text};
    enum tern_err err;

    memset(text, 'x', n);
    text[n] = '\0';
    hello.client = join.name = ns.salt = fetch.peer = peer.node = msg.tenant = text;
    open.ns = &ns;
    admin.args = args;
    admin.n_args = 1;
    err = decode_message(FRAME_HELLO, &hello);
    assert_int_equal(decode_message(FRAME_ENGINE_JOIN, &join), err);
    assert_int_equal(decode_message(FRAME_SESSION_OPEN, &open), err);
    assert_int_equal(decode_message(FRAME_FETCH, &fetch), err);
    assert_int_equal(decode_message(FRAME_ADMIN, &admin), err);
    assert_int_equal(decode_message(FRAME_PEER_HELLO, &peer), err);
    assert_int_equal(decode_message(FRAME_PEER_MSG, &msg), err);
    return err;
}

static void wire_strings_are_limited(void **state)
{
    Tern__Wire__Status status = TERN__WIRE__STATUS__INIT;
    Tern__Wire__Empty empty = TERN__WIRE__EMPTY__INIT;

    (void)state;
    assert_int_equal(strings_of(0), TERN_OK);
    assert_int_equal(strings_of(WIRE_STRING_MAX), TERN_OK);
    assert_int_equal(strings_of(WIRE_STRING_MAX + 1), TERN_MALFORMED);
    status.text = text;
    empty.status = &status;
    memset(text, 'y', WIRE_TEXT_MAX);
    text[WIRE_TEXT_MAX] = '\0';
    assert_int_equal(decode_message(FRAME_PING_REPLY, &empty), TERN_OK);
    text[WIRE_TEXT_MAX] = 'y';
    text[WIRE_TEXT_MAX + 1] = '\0';
    assert_int_equal(decode_message(FRAME_PING_REPLY, &empty), TERN_MALFORMED);
}

static void wire_admin_is_limited_in_arguments(void **state)
{
    char *args[WIRE_ARGS_MAX + 1];
    Tern__Wire__Admin admin = TERN__WIRE__ADMIN__INIT;

    (void)state;
    for (size_t i = 0; i <= WIRE_ARGS_MAX; i++)
        args[i] = "a=b";
    admin.args = args;
    admin.n_args = WIRE_ARGS_MAX;
    assert_int_equal(decode_message(FRAME_ADMIN, &admin), TERN_OK);
    admin.n_args++;
    assert_int_equal(decode_message(FRAME_ADMIN, &admin), TERN_MALFORMED);
}

static void wire_longest_prompt_of_a_frame_passes(void **state)
{
    Tern__Wire__Tokens tokens = TERN__WIRE__TOKENS__INIT;
    Tern__Wire__Match match = TERN__WIRE__MATCH__INIT;
    uint32_t *prompt = calloc(1, FRAME_BODY_MAX);
    const ProtobufCMessage *msg;
    const void *array;
    uint32_t n;

    (void)state;
    assert_non_null(prompt);
    for (size_t i = 0; i < FRAME_BODY_MAX / 4; i++)
        prompt[i] = (uint32_t)i * 2654435761u;
    match.tokens = &tokens;
    tokens.has_tokens = 1;
    tokens.tokens = wire_bytes(prompt, FRAME_BODY_MAX - 16);
    assert_int_equal(
        decode(FRAME_MATCH, frame + FRAME_HEADER_BYTES, encode(FRAME_MATCH, &match.base), &msg),
        TERN_OK);
    assert_int_equal(wire_array(&budget, &((const Tern__Wire__Match *)msg)->tokens->tokens,
                                WIRE_TOKEN_BYTES, &array, &n),
                     TERN_OK);
    assert_int_equal(n, FRAME_BODY_MAX / 4 - 4);
    assert_memory_equal(array, prompt, n * 4u);
    free(prompt);
}

/* ---- encoding ---- */

static void wire_encode_writes_only_what_fits(void **state)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_STEP};
    size_t whole = FRAME_HEADER_BYTES + encode(FRAME_STEP, rig_wire_sample(FRAME_STEP, 1, 3));

    (void)state;
    for (size_t cap = 0; cap < whole; cap++) {
        uint8_t *out = guarded(cap ? cap : 1);
        const ProtobufCMessage *msg = rig_wire_sample(FRAME_STEP, 1, 3);
        size_t n = 12345;

        memset(out, 0xee, cap);
        assert_int_equal(wire_encode(&h, msg, FRAME_BODY_MAX, out, cap, &n), TERN_INVALID);
        assert_int_equal(n, 12345);
        for (size_t i = 0; i < cap; i++)
            assert_int_equal(out[i], 0xee);
        release(out, cap ? cap : 1);
    }
}

static void wire_encode_respects_the_readers_cap(void **state)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_STEP};
    const ProtobufCMessage *msg = rig_wire_sample(FRAME_STEP, 1, 3);
    uint32_t body = (uint32_t)encode(FRAME_STEP, msg);
    size_t n;

    (void)state;
    assert_int_equal(wire_encode(&h, msg, body - 1, frame, FRAME_CAP, &n), TERN_INVALID);
    assert_int_equal(wire_encode(&h, msg, body, frame, FRAME_CAP, &n), TERN_OK);
}

static void wire_empty_message_has_a_body_that_readers_ignore(void **state)
{
    Tern__Wire__Empty empty = TERN__WIRE__EMPTY__INIT;
    const ProtobufCMessage *msg;
    size_t n = encode(FRAME_PING, &empty.base);

    (void)state;
    assert_true(n > 0);
    assert_int_equal(decode(FRAME_PING, frame + FRAME_HEADER_BYTES, n, &msg), TERN_OK);
    assert_null(((const Tern__Wire__Empty *)msg)->status);
    assert_int_equal(((const Tern__Wire__Empty *)msg)->has_trace_id, 0);
}

/* ---- arrays, budget, versions, schema ---- */

static void wire_array_is_in_place_where_it_can_be(void **state)
{
    static _Alignas(8) uint8_t bytes[64];
    ProtobufCBinaryData data = wire_bytes(bytes, 32);
    const void *array;
    uint32_t n;

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    budget_start(&budget, 0);
    assert_int_equal(wire_array(&budget, &data, WIRE_REF_BYTES, &array, &n), TERN_OK);
    assert_ptr_equal(array, bytes);
    assert_int_equal(n, 4);
    data = wire_bytes(bytes + 1, 32);
    assert_int_equal(wire_array(&budget, &data, WIRE_REF_BYTES, &array, &n), TERN_OK);
    assert_int_equal((uintptr_t)array % 8, 0);
    assert_memory_equal(array, bytes + 1, 32);
    data = wire_bytes(bytes, 30);
    assert_int_equal(wire_array(&budget, &data, WIRE_REF_BYTES, &array, &n), TERN_MALFORMED);
    data = wire_bytes(NULL, 0);
    assert_int_equal(wire_array(&budget, &data, WIRE_REF_BYTES, &array, &n), TERN_OK);
    assert_int_equal(n, 0);
    while (budget_take(&budget, 16))
        ;
    data = wire_bytes(bytes + 1, 32);
    assert_int_equal(wire_array(&budget, &data, WIRE_REF_BYTES, &array, &n), TERN_MALFORMED);
}

static void budget_gives_aligned_pieces_up_to_its_limit(void **state)
{
    uint8_t *last = NULL;
    size_t taken = 0;

    (void)state;
    budget_start(&budget, 100);
    assert_int_equal(budget.limit, BUDGET_BYTES(100));
    for (size_t n = 0; n < 64; n++) {
        uint8_t *p = budget_take(&budget, n);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % BUDGET_ALIGN, 0);
        assert_true(!last || p >= last + (n ? n - 1 : 0));
        last = p;
    }
    assert_null(budget_take(&budget, SIZE_MAX));
    assert_true(budget.exceeded);
    assert_null(budget_take(&budget, BUDGET_BYTES(100)));
    budget_start(&budget, 100);
    assert_false(budget.exceeded);
    for (uint8_t *p; (p = budget_take(&budget, 1000)) != NULL; taken += 1000)
        memset(p, 1, 1000);
    assert_true(taken <= BUDGET_BYTES(100) && taken > BUDGET_BYTES(100) - 3000 - taken / 60);
    budget_start(&budget, SIZE_MAX); /* a cap above the arena is the arena */
    assert_int_equal(budget.limit, budget.cap);
}

static void wire_negotiate_takes_the_highest_common_version(void **state)
{
    static const struct {
        uint32_t min, max;
        enum tern_err err;
    } cases[] = {
        {WIRE_VERSION, WIRE_VERSION, TERN_OK},
        {WIRE_VERSION_MIN, WIRE_VERSION + 5, TERN_OK},
        {0, UINT32_MAX, TERN_OK},
        {0, WIRE_VERSION, TERN_OK},
        {WIRE_VERSION + 1, WIRE_VERSION + 2, TERN_UNSUPPORTED},
        {WIRE_VERSION + 1, UINT32_MAX, TERN_UNSUPPORTED},
        {0, WIRE_VERSION_MIN - 1, TERN_UNSUPPORTED},
        {0, 0, TERN_UNSUPPORTED}, /* a Hello without a range */
        {WIRE_VERSION + 1, WIRE_VERSION, TERN_INVALID},
        {UINT32_MAX, 0, TERN_INVALID},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t version = 77;

        assert_int_equal(wire_negotiate(cases[i].min, cases[i].max, &version), cases[i].err);
        assert_int_equal(version, cases[i].err == TERN_OK ? WIRE_VERSION : 77);
    }
}

/* What keeps unpack's recursion bounded: the descriptor graph has no path longer than this. */
static void walk(const ProtobufCMessageDescriptor *d, int depth)
{
    assert_true(depth < 6);
    for (unsigned i = 0; i < d->n_fields; i++) {
        assert_true(d->fields[i].label != PROTOBUF_C_LABEL_REQUIRED);
        assert_true(d->fields[i].id < 100); /* 100 is the padding field */
        if (d->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            walk(d->fields[i].descriptor, depth + 1);
    }
}

static void wire_schema_has_no_recursion_and_nothing_required(void **state)
{
    (void)state;
    for (const uint16_t *type = rig_wire_types; *type; type++)
        walk(wire_descriptor(*type), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(wire_every_message_comes_back_as_sent),
        cmocka_unit_test(wire_types_without_message_are_unsupported),
        cmocka_unit_test(wire_message_cut_anywhere_is_harmless),
        cmocka_unit_test(wire_unknown_fields_are_ignored),
        cmocka_unit_test(wire_deep_nesting_is_skipped_not_followed),
        cmocka_unit_test(wire_deep_groups_are_malformed),
        cmocka_unit_test(wire_megabyte_of_empty_submessages_stays_in_budget),
        cmocka_unit_test(wire_step_of_most_operations_passes),
        cmocka_unit_test(wire_step_reply_of_most_results_passes),
        cmocka_unit_test(wire_runs_and_references_are_limited_over_all_results),
        cmocka_unit_test(wire_pool_open_is_limited_in_groups_and_axes),
        cmocka_unit_test(wire_token_lists_are_whole_elements_and_limited),
        cmocka_unit_test(wire_token_lists_are_checked_in_every_request),
        cmocka_unit_test(wire_strings_are_limited),
        cmocka_unit_test(wire_admin_is_limited_in_arguments),
        cmocka_unit_test(wire_longest_prompt_of_a_frame_passes),
        cmocka_unit_test(wire_encode_writes_only_what_fits),
        cmocka_unit_test(wire_encode_respects_the_readers_cap),
        cmocka_unit_test(wire_empty_message_has_a_body_that_readers_ignore),
        cmocka_unit_test(wire_array_is_in_place_where_it_can_be),
        cmocka_unit_test(budget_gives_aligned_pieces_up_to_its_limit),
        cmocka_unit_test(wire_negotiate_takes_the_highest_common_version),
        cmocka_unit_test(wire_schema_has_no_recursion_and_nothing_required),
    };

    return cmocka_run_group_tests(cases, set_up, NULL);
}
