/* Messages between daemons: decoded as they were encoded, and inconsistent ones are malformed. */
#include "unit/shell/test_shell_wire_rig.h"

static struct wire_layouts layouts; /* of the messages */

static enum tern_err there_and_back(const struct peer_msg *msg, const char *tenant,
                                    uint64_t allowed, struct peer_msg *ret, uint64_t *ret_sequence)
{
    size_t n = wire_out_peer_msg(msg, tenant, &layouts, 41, BODY_MAX, frame);
    struct frame_header h;

    assert_true(n > 0);
    assert_int_equal(frame_decode(frame, BODY_MAX, &h), TERN_OK);
    return wire_in_peer_msg(&in, &h, frame + FRAME_HEADER_BYTES, allowed, ret, ret_sequence);
}

/* Each number has a value of its own: one that is left out or swapped is noticed. */
TEST(peer_numbers_come_back_as_sent)
{
    const struct peer_msg msg = {.kind = PEER_RESET,
                                 .trace_id = 1,
                                 .reset = 1ull << 63 | 2,
                                 .origin = 1ull << 63 | 3,
                                 .number = 1ull << 63 | 4,
                                 .hops = 5,
                                 .retry_ms = 6,
                                 .layout_hash = 1ull << 63 | 7,
                                 .fields_hash = 1ull << 63 | 8,
                                 .history = 9,
                                 .at_least = 10,
                                 .prefetch = true,
                                 .from = 11,
                                 .to = 14,
                                 .at = 12,
                                 .until = 13,
                                 .follow = true,
                                 .handed = 15,
                                 .busy = 16,
                                 .differs = 17,
                                 .each = 19};
    struct peer_msg got;
    uint64_t sequence;

    assert_int_equal(there_and_back(&msg, "blue", 3, &got, &sequence), TERN_OK);
    assert_true(got.trace_id == msg.trace_id && got.reset == msg.reset);
    assert_true(got.origin == msg.origin && got.number == msg.number && got.hops == msg.hops);
    assert_true(got.retry_ms == msg.retry_ms && got.layout_hash == msg.layout_hash);
    assert_true(got.fields_hash == msg.fields_hash && got.history == msg.history);
    assert_true(got.at_least == msg.at_least && got.prefetch && got.follow);
    assert_true(got.from == msg.from && got.to == msg.to && got.at == msg.at);
    assert_true(got.until == msg.until && got.handed == msg.handed && got.busy == msg.busy);
    assert_true(got.differs == msg.differs && got.each == msg.each);
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
    /* The peer may not name that tenant, or no tenant has that name. */
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

    runs[0] = (struct table_run){0, 0, 10, 0, refs, {0, 0}};
    runs[1] = (struct table_run){1, 5, 3, 0, refs + 100, {0, 0}};
    assert_int_equal(there_and_back(&msg, NULL, 3, &got, &sequence), TERN_OK);
    assert_int_equal(got.blob_bytes, 0);
    msg.tokens = (const uint32_t[]){0x04030201, 5}; /* with padding in its last word */
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
    msg.kind = PEER_PULL_MORE;
    msg.err = TERN_GONE;
    assert_int_equal(there_and_back(&msg, "red", 3, &got, &sequence), TERN_MALFORMED);
    assert_string_equal(in.peer_unfit, "the message has an error, and its kind allows none");
    msg.kind = PEER_PULL_DONE;
    msg.err = TERN_ERR_COUNT; /* another version may have more errors */
    assert_int_equal(there_and_back(&msg, "red", 3, &got, &sequence), TERN_OK);
    assert_int_equal(got.err, TERN_PEER_LOST);
    assert_int_equal(in.peer_word, TERN_ERR_COUNT);
    /* Fewer tokens than `to`: the core would read beyond them. */
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
