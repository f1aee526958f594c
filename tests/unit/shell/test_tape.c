/* Tapes: every kind of event is read as it was recorded; the ring drops the oldest and reports it;
 * token ids leave only on request; and damaged bytes give only errors or well-formed events. */
#include <stdio.h>
#include <string.h>

#include "shell/tape/tape_codec.h"
#include "unit/rig/rig_event.h"
#include "unit/rig/rig_tape.h"

static const struct tenant_config tenants[2] = {
    {.memory_bytes = 1 << 20, .regions = 1, .sessions_max = 8},
    {.memory_bytes = 2 << 20, .regions = 2, .sessions_max = 9}};

/* The case's own, until it makes the next one of its kind or ends. */
static struct tape *tape;
static struct tape_reader *reader;
static uint8_t *bytes;

FIXTURE(drop_all)
{
    tape_close(reader);
    tape_destroy(tape);
    free(bytes);
    reader = NULL;
    tape = NULL;
    bytes = NULL;
    return 0;
}

TEST_EACH(NULL, drop_all);

static void make_tape(size_t ring_bytes)
{
    struct tape_config config = {.bytes = ring_bytes,
                                 .limits = event_limits,
                                 .tenant = tenants,
                                 .tenants = 2,
                                 .incarnation = 0x1122334455667788,
                                 .secret = {0xfeed, 0xbeef}};

    tape_destroy(tape);
    assert_int_equal(tape_create(&config, &tape), TERN_OK);
}

/* The tape's bytes. */
static size_t dump(bool keep_tokens)
{
    size_t n;

    free(bytes);
    bytes = dumped(tape, keep_tokens, &n);
    return n;
}

static enum tern_err reopen(const uint8_t *of, size_t n)
{
    tape_close(reader);
    reader = NULL;
    return tape_open(of, n, &reader);
}

static void reread(bool keep_tokens)
{
    size_t n = dump(keep_tokens);

    assert_int_equal(reopen(bytes, n), TERN_OK);
    free(bytes); /* the reader has its own */
    bytes = NULL;
}

/* ---- tests ---- */

/* The token lists of an event, found by the codec's walk over its fields. */
static struct codec lists_of(const struct event *e)
{
    static struct codec_list lists[STEP_OPS_MAX];
    static uint32_t words[1 << 16];
    static struct event copy;
    struct codec c = {.words = words, .n = sizeof words / sizeof *words, .lists = lists};

    copy = *e;
    codec_event(&c, &copy, NULL);
    return c;
}

/* The ring reserves this much room before it writes. */
static void expect_within_room(const struct event *e)
{
    size_t words = RECORD_HEAD_WORDS + codec_body_max(e) + 4;
    const struct codec c = lists_of(e);
    struct tape_stats stats;

    for (uint32_t i = 0; i < c.nlists; i++)
        words += c.lists[i].n + c.lists[i].nkeys * KEY_WORDS;
    tape_stats(tape, &stats);
    assert_in_range(stats.bytes_used, 1, words * sizeof(uint32_t));
}

TEST(tape_every_kind_and_every_op_comes_back)
{
    struct event in, out;
    struct lent lent;
    struct prng p;

    prng_init(&p, 1);
    for (uint32_t kind = 1; kind < EV_COUNT; kind++) {
        for (uint32_t op = 1; op < (kind == EV_REQUEST ? OP_COUNT : 2); op++) {
            for (uint32_t again = 0; again < 20; again++) {
                make_tape(1 << 16);
                event_fill(&p, &in, (enum event_kind)kind, (enum op)op, &lent);
                in.now_ns = prng_u64(&p) / 2;
                tape_record(tape, &in);
                expect_within_room(&in);
                reread(true);
                assert_int_equal(tape_next(reader, &out), TERN_OK);
                event_same(&in, &out);
                assert_int_equal(tape_next(reader, &out), TERN_OK);
                assert_int_equal(out.kind, 0);
            }
        }
    }
}

TEST(tape_header_says_what_the_daemon_was)
{
    struct event e = {.kind = EV_TIMER};
    const struct tape_header *h;

    make_tape(1 << 14);
    tape_record(tape, &e);
    reread(false);
    h = tape_header(reader);
    assert_true(h->complete);
    assert_false(h->tokens_kept);
    assert_int_equal(h->events, 1);
    assert_int_equal(h->first, 0);
    assert_true(h->incarnation == 0x1122334455667788);
    assert_memory_equal(&h->limits, &event_limits, sizeof event_limits);
    assert_int_equal(h->tenants, 2);
    assert_memory_equal(h->tenant, tenants, sizeof tenants);
}

/* A ring of a few KiB and many events: what is left is exactly the last ones, at every wrap. */
TEST(tape_full_ring_keeps_the_last_events)
{
    struct tape_stats stats;
    struct event in, out;
    struct lent lent;
    struct prng p;

    for (uint32_t total = 1; total < 400; total += 13) {
        make_tape(1 << 14);
        prng_init(&p, 7);
        for (uint32_t i = 0; i < total; i++) {
            event_random(&p, &in, &lent);
            in.now_ns = i;
            tape_record(tape, &in);
        }
        tape_stats(tape, &stats);
        assert_int_equal(stats.recorded, total);
        assert_true(total < 300 || stats.dropped > 0);
        reread(true);
        assert_int_equal(tape_header(reader)->complete, stats.dropped == 0);
        assert_int_equal(tape_header(reader)->first, stats.dropped);
        assert_int_equal(tape_header(reader)->events, total - stats.dropped);
        prng_init(&p, 7);
        for (uint32_t i = 0; i < total; i++) {
            event_random(&p, &in, &lent);
            in.now_ns = i;
            if (i < stats.dropped)
                continue;
            if (i == stats.dropped)
                assert_int_equal(stats.oldest_ns, in.now_ns);
            assert_int_equal(tape_next(reader, &out), TERN_OK);
            event_same(&in, &out);
        }
        assert_int_equal(tape_next(reader, &out), TERN_OK);
        assert_int_equal(out.kind, 0);
    }
}

TEST(tape_event_larger_than_the_ring_empties_it)
{
    static uint32_t tokens[4096];
    struct event e = {.kind = EV_TIMER};
    struct tape_stats stats;

    make_tape(TAPE_BYTES_MIN);
    tape_record(tape, &e);
    e.kind = EV_REQUEST;
    e.request = (struct request){.op = OP_MATCH, .match = {.tokens = {.v = tokens, .n = 4096}}};
    tape_record(tape, &e);
    tape_stats(tape, &stats);
    assert_int_equal(stats.dropped, 2);
    assert_int_equal(stats.bytes_used, 0);
    reread(true);
    assert_false(tape_header(reader)->complete);
    assert_int_equal(tape_next(reader, &e), TERN_OK);
    assert_int_equal(e.kind, 0);
}

/* Pages that operations name need room besides these: the oldest events are dropped for it. */
TEST(tape_full_of_steps_that_name_pages)
{
    static struct page_ref pages[170];
    struct table_run run = {.group = 1, .n = 170, .refs = pages};
    struct step_op op = {.kind = STEP_ASSIGN, .nruns = 1, .runs = &run};
    struct event e = {.kind = EV_REQUEST}, out;
    struct tape_stats stats;

    e.request = (struct request){.op = OP_STEP, .step = {.ops = &op, .n = 1}};
    make_tape(TAPE_BYTES_MIN);
    for (uint32_t i = 0; i < 50; i++) {
        e.now_ns = i;
        for (uint32_t k = 0; k < 170; k++)
            pages[k] = (struct page_ref){.index = i, .gen = k};
        tape_record(tape, &e);
    }
    tape_stats(tape, &stats);
    assert_true(stats.dropped > 40 && stats.dropped < 50);
    reread(true);
    for (uint64_t i = stats.dropped; i < 50; i++) {
        assert_int_equal(tape_next(reader, &out), TERN_OK);
        assert_int_equal(out.now_ns, i);
        assert_int_equal(out.request.step.n, 1);
        assert_int_equal(out.request.step.ops[0].runs[0].n, 170);
        assert_int_equal(out.request.step.ops[0].runs[0].refs[169].index, i);
        assert_int_equal(out.request.step.ops[0].runs[0].refs[169].gen, 169);
    }
}

/* Mapped tokens: equal stays equal, different stays different, and no real value occurs in the
 * bytes. */
TEST(tape_tokens_are_mapped_one_to_one)
{
    struct extra_key keys[2] = {{.position = 3, .hi = 0xabcdef0123456789, .lo = 5},
                                {.position = 9, .hi = 0xabcdef0123456789, .lo = 6}};
    uint32_t tokens[2000];
    struct event e = {.kind = EV_REQUEST}, out;
    const struct req_tokens *t;
    size_t n;

    make_tape(1 << 16);
    for (uint32_t i = 0; i < 2000; i++)
        tokens[i] = 0x00c0ffee + i % 1000;
    e.request = (struct request){
        .op = OP_MATCH, .match = {.tokens = {.v = tokens, .n = 2000, .keys = keys, .nkeys = 2}}};
    tape_record(tape, &e);
    reread(false);
    assert_int_equal(tape_next(reader, &out), TERN_OK);
    t = &out.request.match.tokens;
    assert_int_equal(t->n, 2000);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(t->v[i], t->v[i + 1000]);
        for (uint32_t j = i + 1; j < 1000; j++)
            assert_int_not_equal(t->v[i], t->v[j]);
    }
    assert_int_equal(t->keys[0].position, 3);
    assert_int_equal(t->keys[1].position, 9);
    assert_true(t->keys[0].hi != t->keys[1].hi && t->keys[0].lo != t->keys[1].lo);

    n = dump(false);
    for (size_t i = 0; i + 4 <= n; i += 4) {
        uint32_t word;

        memcpy(&word, bytes + i, sizeof word);
        assert_false(word >= 0x00c0ffee && word < 0x00c0ffee + 1000);
        assert_false(word == 0x23456789 || word == 0xabcdef01);
    }
}

TEST(tape_write_that_fails_is_told)
{
    struct event e = {.kind = EV_TIMER};
    FILE *full = fopen("/dev/full", "w");

    make_tape(1 << 14);
    assert_non_null(full);
    tape_record(tape, &e);
    assert_int_equal(tape_dump(tape, fileno(full), true), TERN_DISK);
    fclose(full);
}

/* Reads to the end or to the first error. Returns the number of events; touches every array. */
static uint32_t play(const uint8_t *of, size_t n, enum tern_err *ret_err)
{
    struct event e = {.kind = 0};
    uint32_t events = 0;
    volatile uint32_t sum = 0;
    struct codec c;

    *ret_err = reopen(of, n);
    if (*ret_err != TERN_OK)
        return 0;
    for (;;) {
        *ret_err = tape_next(reader, &e);
        if (*ret_err != TERN_OK || e.kind == 0)
            break;
        events++;
        c = lists_of(&e);
        for (uint32_t i = 0; i < c.nlists; i++)
            for (uint32_t j = 0; j < c.lists[i].n; j++)
                sum = sum + (*c.lists[i].tokens)[j];
    }
    if (*ret_err != TERN_OK)
        assert_int_equal(tape_next(reader, &e), TERN_MALFORMED); /* an error is not skipped */
    return events;
}

static size_t sample(void)
{
    struct event e;
    struct lent lent;
    struct prng p;

    make_tape(1 << 16);
    prng_init(&p, 3);
    for (uint32_t i = 0; i < 60; i++) {
        event_random(&p, &e, &lent);
        e.now_ns = i;
        tape_record(tape, &e);
    }
    return dump(true);
}

TEST(tape_cut_anywhere_is_malformed)
{
    enum tern_err err;
    size_t n = sample();

    assert_int_equal(play(bytes, n, &err), 60);
    assert_int_equal(err, TERN_OK);
    for (size_t cut = 0; cut < n; cut += 1 + cut % 3) {
        uint32_t events = play(bytes, cut, &err);

        assert_int_equal(err, TERN_MALFORMED);
        assert_true(events < 60);
    }
}

TEST(tape_with_bytes_behind_its_end_is_malformed)
{
    enum tern_err err;
    size_t n = sample();
    uint8_t *longer = calloc(1, n + 16);

    memcpy(longer, bytes, n);
    for (size_t more = 1; more <= 16; more++) {
        assert_int_equal(play(longer, n + more, &err), 60);
        assert_int_equal(err, TERN_MALFORMED);
    }
    free(longer);
}

TEST(tape_of_another_version_is_unsupported)
{
    enum tern_err err;
    size_t n = sample();

    bytes[8]++;
    play(bytes, n, &err);
    assert_int_equal(err, TERN_UNSUPPORTED);
    bytes[0]++;
    play(bytes, n, &err);
    assert_int_equal(err, TERN_MALFORMED);
}

/* Under the sanitizers this proves the reader's bounds. */
TEST(tape_damaged_bytes_are_an_error_or_an_event)
{
    enum tern_err err;
    struct prng p;
    size_t n = sample();
    uint8_t *copy = malloc(n);

    prng_init(&p, 11);
    for (uint32_t i = 0; i < 20000; i++) {
        memcpy(copy, bytes, n);
        for (uint32_t k = 0; k <= prng_below(&p, 3); k++)
            copy[prng_below(&p, (uint32_t)n)] = (uint8_t)prng_u64(&p);
        play(copy, n, &err);
        assert_true(err == TERN_OK || err == TERN_MALFORMED || err == TERN_UNSUPPORTED);
    }
    free(copy);
}

TEST(tape_time_that_goes_back_is_malformed)
{
    struct event e = {.kind = EV_TIMER, .now_ns = 5};
    enum tern_err err;
    size_t n;

    make_tape(1 << 14);
    tape_record(tape, &e);
    e.now_ns = 4;
    tape_record(tape, &e);
    n = dump(true);
    assert_int_equal(play(bytes, n, &err), 1);
    assert_int_equal(err, TERN_MALFORMED);
}

/* The core adds deadlines to the time. */
TEST(tape_time_that_no_clock_shows_is_malformed)
{
    static const uint64_t times[] = {INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};

    for (uint32_t i = 0; i < 3; i++) {
        struct event e = {.kind = EV_TIMER, .now_ns = times[i]};
        enum tern_err err;
        size_t n;

        make_tape(1 << 14);
        tape_record(tape, &e);
        n = dump(true);
        assert_int_equal(play(bytes, n, &err), i == 0);
        assert_int_equal(err, i == 0 ? TERN_OK : TERN_MALFORMED);
    }
}

/* The core trusts the shell's slots, so the reader may not. The ring itself records anything. */
TEST(tape_slots_outside_the_limits_are_malformed)
{
    static const uint32_t tokens[2];
    const struct event bad[] = {
        {.kind = EV_CONN_OPENED, .conn = {.conn = 16}},
        {.kind = EV_CONN_OPENED, .conn = {.tenant = 3}},
        {.kind = EV_CONN_CLOSED, .conn = {.conn = 16}},
        {.kind = EV_STEP_DONE, .step_done = {.rank = RANKS_MAX}},
        {.kind = EV_LINK_UP, .link = {.link = 4}},
        {.kind = EV_LINK_DOWN, .link = {.link = 4}},
        {.kind = EV_PULLED, .pulled = {.batch = PULL_BATCHES_MAX}},
        {.kind = EV_PULL_BROKEN, .broken = {.err = TERN_OK}},
        {.kind = EV_REQUEST, .request = {.op = OP_ENGINE_LEAVE, .conn = 16}},
        {.kind = EV_REQUEST, .request = {.op = OP_NONE}},
        {.kind = EV_REQUEST, .request = {.op = OP_FETCH, .fetch = {.peer = 2}}},
        {.kind = EV_REQUEST, .request = {.op = OP_FETCH, .fetch = {.peer = PEER_ANY - 1}}},
        {.kind = EV_REQUEST,
         .request = {.op = OP_RETRACT, .retract = {.mode = (enum retract_mode)2}}},
        {.kind = EV_COPIED, .copied = {.err = TERN_ERR_COUNT}},
        {.kind = EV_DISK_FOUND, .found = {.extent = {.tenant = 3}}},
        {.kind = EV_DISK_FOUND, .found = {.extent = {.part = DISK_PARTS}}},
        {.kind = EV_DISK_FOUND, .found = {.extent = {.reason = DISK_REASONS}}},
        {.kind = EV_DISK_WRITTEN, .written = {.err = TERN_ERR_COUNT}},
        {.kind = EV_PEER_MSG, .peer = {.link = 4, .msg = {.kind = PEER_PULL_DONE}}},
        {.kind = EV_PEER_MSG, .peer = {.msg = {.kind = PEER_PULL_DONE, .tenant = 3}}},
        {.kind = EV_PEER_MSG, .peer = {.msg = {.kind = PEER_PULL_OFFER, .from = 2, .to = 1}}},
        {.kind = EV_PEER_MSG,
         .peer = {.msg = {.kind = PEER_PULL_OPEN, .from = 3, .to = 2, .tokens = tokens}}},
        {.kind = EV_PEER_MSG,
         .peer = {.msg = {.kind = PEER_PULL_TOKENS, .at = 3, .to = 2, .tokens = tokens}}},
        {.kind = EV_PEER_MSG, .peer = {.msg = {.kind = PEER_MSG_COUNT}}},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        enum tern_err err;
        size_t n;

        make_tape(1 << 14);
        tape_record(tape, &bad[i]);
        n = dump(true);
        if (play(bytes, n, &err) != 0 || err != TERN_MALFORMED)
            fail_msg("event %zu was read", i);
    }
}

TEST(tape_of_no_bytes_is_refused_and_no_tape_records_nothing)
{
    const struct tape_config none = {.bytes = 0};
    struct event e = {.kind = EV_TIMER};
    struct tape *made;

    assert_int_equal(tape_create(&none, &made), TERN_INVALID);
    tape_record(NULL, &e);
    assert_int_equal(tape_dump(NULL, 1, true), TERN_INVALID);
    tape_destroy(NULL);
}
