/* Answers as frames: a client reads what the core's reply contains. */
#include "unit/shell/test_shell_wire_rig.h"

static struct op_result results[STEP_OPS_MAX];

static void maps_as_given(struct reply *r, uint32_t i)
{
    struct wire_region region = {.bytes = number(64),
                                 .device = i % 2 ? "GPU-1-2" : NULL,
                                 .sums = {.fd = i % 3 ? 0 : -1,
                                          .offset = number(64),
                                          .entry_bytes = number32(),
                                          .page_bytes = number(64)}};
    const ProtobufCMessage *msg;

    r->op = OP_POOL_MAP;
    r->pool_map.region = number32();
    r->pool_map.offset = number(64);
    r->pool_map.bytes = number(64);
    msg = decoded(wire_out_reply(r, &region, BODY_MAX, frame), FRAME_POOL_MAP_REPLY, r->request_id);
    assert_int_equal(AS(PoolMapReply)->region, r->pool_map.region);
    assert_int_equal(AS(PoolMapReply)->offset, r->pool_map.offset);
    assert_int_equal(AS(PoolMapReply)->bytes, r->pool_map.bytes);
    assert_int_equal(AS(PoolMapReply)->region_bytes, region.bytes);
    if (region.device)
        assert_string_equal(AS(PoolMapReply)->device, region.device);
    else
        assert_null(AS(PoolMapReply)->device);
    assert_true((AS(PoolMapReply)->sums != NULL) == (region.sums.fd >= 0));
    if (region.sums.fd >= 0) {
        assert_int_equal(AS(PoolMapReply)->sums->offset, region.sums.offset);
        assert_int_equal(AS(PoolMapReply)->sums->entry_bytes, region.sums.entry_bytes);
        assert_int_equal(AS(PoolMapReply)->sums->page_bytes, region.sums.page_bytes);
    }
}

TEST(wire_out_small_answers_decode_as_given)
{
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct reply r = some_reply(OP_ENGINE_JOIN);
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

        maps_as_given(&r, i);

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
        r.peek.taken = number32();
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_PEEK_REPLY, r.request_id);
        assert_int_equal(AS(PeekReply)->depth, r.peek.depth);
        assert_int_equal(AS(PeekReply)->history_depth, r.peek.history_depth);
        assert_int_equal(AS(PeekReply)->host_depth, r.peek.host_depth);
        assert_int_equal(AS(PeekReply)->disk_depth, r.peek.disk_depth);
        assert_int_equal(AS(PeekReply)->taken, r.peek.taken);

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
        r.retract.evictable = number32();
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_RETRACT_REPLY, r.request_id);
        same_status(AS(RetractReply)->status, r.err, r.text, &r.shortage);
        same_lengths(AS(RetractReply)->lengths, &r.retract.lengths);
        assert_int_equal(AS(RetractReply)->free_now, r.retract.free_now);
        assert_int_equal(AS(RetractReply)->free_at_step, r.retract.free_at_step);
        assert_int_equal(AS(RetractReply)->evictable, r.retract.evictable);

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
        r.match.taken = number32();
        msg = decoded(wire_out_reply(&r, 0, BODY_MAX, frame), FRAME_MATCH_REPLY, r.request_id);
        same_status(AS(MatchReply)->status, r.err, r.text, &r.shortage);
        same_lengths(AS(MatchReply)->lengths, &r.match.lengths);
        assert_int_equal(AS(MatchReply)->tokens, r.match.tokens);
        assert_int_equal(AS(MatchReply)->matched, r.match.matched);
        assert_int_equal(AS(MatchReply)->host_depth, r.match.host_depth);
        assert_int_equal(AS(MatchReply)->disk_depth, r.match.disk_depth);
        assert_int_equal(AS(MatchReply)->taken, r.match.taken);
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

/* Peers are named, in the order of the answer. */
TEST(wire_out_hosts_decode_by_their_names)
{
    static struct config_peer peers[3] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    static const uint32_t hosts[2] = {2, 0};
    const struct wire_region region = {.peers = peers};
    struct reply r = some_reply(OP_FETCH);
    const ProtobufCMessage *msg;

    r.fetch.hosts = hosts;
    r.fetch.nhosts = 1;
    msg = decoded(wire_out_reply(&r, &region, BODY_MAX, frame), FRAME_FETCH_REPLY, r.request_id);
    assert_int_equal(AS(FetchReply)->n_hosts, 1);
    assert_string_equal(AS(FetchReply)->hosts[0], "c");
    r = some_reply(OP_BLOCKS);
    r.nruns = some_runs(1, 0);
    r.blocks.hosts = hosts;
    r.blocks.nhosts = 2;
    msg = decoded(wire_out_reply(&r, &region, BODY_MAX, frame), FRAME_BLOCKS_REPLY, r.request_id);
    assert_int_equal(AS(BlocksReply)->n_hosts, 2);
    assert_string_equal(AS(BlocksReply)->hosts[0], "c");
    assert_string_equal(AS(BlocksReply)->hosts[1], "a");
    same_runs(AS(BlocksReply)->runs, AS(BlocksReply)->n_runs, runs, r.nruns);
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

/* Each # is replaced by the next number; a text without one is unchanged, and a too long one is
 * cut. */
TEST(wire_out_text_has_its_numbers)
{
    char buf[WIRE_OUT_WORDS], text[WIRE_OUT_WORDS + 50];
    struct reply r = {.text = "# of #, and #", .number = {12, UINT64_MAX}};

    assert_string_equal(wire_out_text(r.text, r.number, buf), "12 of 18446744073709551615, and #");
    r.text = "none";
    assert_ptr_equal(wire_out_text(r.text, r.number, buf), r.text);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (uint32_t at = WIRE_OUT_WORDS - 20; at < WIRE_OUT_WORDS; at++) {
        text[at] = '#';
        r.text = text;
        assert_in_range(strlen(wire_out_text(r.text, r.number, buf)), WIRE_OUT_WORDS - 20,
                        WIRE_OUT_WORDS - 1);
        text[at] = 'x';
    }
}

/* Every limit below the needed size gives 0, and nothing is written beyond the limit. */
TEST(wire_out_too_small_a_limit_gives_nothing)
{
    struct reply r = {
        .op = OP_MATCH, .err = TERN_POOL_EXHAUSTED, .text = "wait", .runs = runs, .nruns = 2};
    size_t whole;

    r.shortage = (struct shortage){1, 2000, 3, 4, 5, 1u << 30, false, false};
    runs[0] = (struct table_run){0, 5, 20, 0, refs, {7, 1u << 31}};
    runs[1] = (struct table_run){1, 300, 33, 0, refs, {0, 0}};
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

    runs[0] = (struct table_run){0, 0, TABLE_PAGES, 0, refs, {0, 0}};
    assert_true(wire_out_reply(&r, 0, FRAME_BODY_MAX, frame) >
                TABLE_PAGES * sizeof(struct page_ref));
}

/* Whatever frame_body_max is, a reader of records continues behind those that it got. */
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

/* An operator's path may be longer than a status's text; the smallest frame has room for it. */
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
