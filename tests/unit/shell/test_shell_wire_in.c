/* Frames as requests: the core gets the client's request, or it is refused with a reason. */
#include "unit/shell/test_shell_wire_rig.h"

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
    name[ENGINE_NAME_MAX - 1] = 'n'; /* without room for the NUL */
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

/* E6: the pages that operations name arrive unchanged, also those of many operations; an operation
 * with more runs than a pool can have groups is refused. */
TEST(wire_in_step_pages_of_operations)
{
    static Tern__Wire__StepOp op[100], *ops[100];
    static Tern__Wire__Run run[100], *list[100][1], *many[WIRE_STEP_RUNS_MAX + 1];
    static struct page_ref pages[100][2];
    Tern__Wire__Step step = TERN__WIRE__STEP__INIT;
    struct request r;

    for (uint32_t i = 0; i < 100; i++) {
        tern__wire__step_op__init(&op[i]);
        tern__wire__run__init(&run[i]);
        pages[i][0] = (struct page_ref){i + 1, 7};
        pages[i][1] = (struct page_ref){i + 2, 9};
        run[i].has_group = run[i].has_first = run[i].has_refs = true;
        run[i].group = i % 3;
        run[i].first = i;
        run[i].refs = (ProtobufCBinaryData){sizeof pages[i], (uint8_t *)pages[i]};
        list[i][0] = &run[i];
        op[i].has_kind = op[i].has_pool = true;
        op[i].kind = i % 2 ? STEP_ASSIGN : STEP_UNLEASE;
        op[i].pool = (uint64_t)(i + 1) << 32 | 4;
        op[i].n_runs = 1;
        op[i].runs = list[i];
        ops[i] = &op[i];
    }
    step.n_ops = 100;
    step.ops = ops;
    assert_int_equal(request(FRAME_STEP, &step.base, &r), TERN_OK);
    for (uint32_t i = 0; i < 100; i++) {
        const struct step_op *got = &r.step.ops[i];

        assert_int_equal(got->pool.gen, i + 1);
        assert_int_equal(got->nruns, 1);
        assert_int_equal(got->runs[0].group, i % 3);
        assert_int_equal(got->runs[0].first, i);
        assert_int_equal(got->runs[0].n, 2);
        assert_memory_equal(got->runs[0].refs, pages[i], sizeof pages[i]);
    }
    for (uint32_t i = 0; i <= WIRE_STEP_RUNS_MAX; i++)
        many[i] = &run[i];
    op[5].n_runs = WIRE_STEP_RUNS_MAX;
    op[5].runs = many;
    assert_int_equal(request(FRAME_STEP, &step.base, &r), TERN_OK);
    op[5].n_runs++;
    assert_int_equal(request(FRAME_STEP, &step.base, &r), TERN_INVALID);
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
    m.has_pieces = m.pieces = true;
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
        assert_true(r.match.pieces && !r.match.more);
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
    assert_string_equal(refusal, "no such peer is configured: 'north\\x0a'; there are east, west");
    m.peer = NULL;
    assert_int_equal(request(FRAME_FETCH, &m.base, &r), TERN_OK);
    assert_int_equal(r.fetch.peer, NONE);
    m.peer = (char *)(uintptr_t) "";
    assert_int_equal(request(FRAME_FETCH, &m.base, &r), TERN_OK);
    assert_int_equal(r.fetch.peer, PEER_HOST);
    m.peer = (char *)(uintptr_t) "/disk";
    assert_int_equal(request(FRAME_FETCH, &m.base, &r), TERN_OK);
    assert_int_equal(r.fetch.peer, PEER_DISK);
    m.peer = (char *)(uintptr_t) "/any";
    assert_int_equal(request(FRAME_FETCH, &m.base, &r), TERN_OK);
    assert_int_equal(r.fetch.peer, PEER_ANY);
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

/* A ticket is text outside, and each has a new random key. */
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
    for (size_t i = 0; text[i]; i++) { /* any change makes another ticket, or none */
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
    assert_int_equal(r.ticket_drop.ticket.id.gen, 0); /* the core answers that it is gone */
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

/* Also if the rest of the message is invalid, so that the log can name the request. */
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
