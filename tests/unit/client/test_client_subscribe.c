/* The changes of a subscription that libtern keeps while nobody polls, and its reaction to invalid
 * answers. The daemon is scripted; a real one is in tests/e2e/test_subscribe.c. */
#include "unit/rig/rig_client.h"

#define COOKIE 5
#define CHUNKS 8                                     /* of an answer, at most */
#define CHUNK  (FRAME_BODY_MAX / 4 / 4 / CHUNKS * 3) /* tokens of one: all of them fit a frame */

/* One answer of the stream. */
struct said {
    uint32_t n; /* changes, numbered in order */
    uint64_t lost;
    uint32_t err;
    uint32_t spoil;          /* surplus bytes */
    uint32_t tokens, chunks; /* of each change, with that many chunks and one key each */
};

struct script {
    const struct said *v;
    uint32_t n;
};

static void say(struct fake *f, uint64_t id, const struct said *s, uint64_t number)
{
    static struct wire_event v[WIRE_EVENTS_MAX + 1];
    static uint8_t frame[FRAME_HEADER_BYTES + FRAME_BODY_MAX];
    static uint32_t first[CHUNKS + CHUNK];
    static struct tern_extra_key key[CHUNKS];
    static Tern__Wire__Tokens chunk[CHUNKS], *chunks[CHUNKS];
    Tern__Wire__SubscribeReply m = TERN__WIRE__SUBSCRIBE_REPLY__INIT;
    Tern__Wire__Status status = fake_status(s->err, NULL, NULL);

    for (uint32_t i = 0; i < s->n; i++)
        v[i] = (struct wire_event){.number = number + i,
                                   .chain = ~(number + i),
                                   .parent_chain = 3,
                                   .ns_hi = 4,
                                   .ns_lo = 5,
                                   .pool = 6,
                                   .depth = 7,
                                   .kind = TERN_TIER,
                                   .tiers = 2};
    for (uint32_t i = 0; i < s->chunks; i++) {
        first[i] = (uint32_t)(number + i);
        key[i] = (struct tern_extra_key){.position = 9, .hi = number + i, .lo = 8};
        tern__wire__tokens__init(&chunk[i]);
        chunk[i].has_tokens = chunk[i].has_keys = s->tokens > 0;
        chunk[i].tokens = wire_bytes(&first[i], s->tokens * sizeof(first[0]));
        chunk[i].keys = wire_bytes(&key[i], s->tokens > 0 ? sizeof(key[0]) : 0);
        chunks[i] = &chunk[i];
    }
    m.chunks = chunks;
    m.n_chunks = s->chunks;
    m.has_events = m.has_next = m.has_lost = 1;
    m.events = wire_bytes(v, s->n * sizeof(v[0]) + s->spoil);
    m.next = number + s->n;
    m.lost = s->lost;
    m.status = s->err ? &status : NULL;
    fake_write(f, frame, fake_pack(FRAME_SUBSCRIBE_REPLY, id, &m, frame, sizeof(frame)));
}

/* Sends the whole script behind the Subscribe, and a Ping's answer behind that. */
static void serve(struct fake *f)
{
    const struct script *script = f->ctx;
    uint64_t id = 0, number = 1;
    const ProtobufCMessage *msg;

    while ((msg = fake_read(f))) {
        if (f->h.type == FRAME_SUBSCRIBE && ((const Tern__Wire__Subscribe *)msg)->cancel == 0) {
            id = f->h.request_id;
        } else if (f->h.type == FRAME_SUBSCRIBE) {
            check(((const Tern__Wire__Subscribe *)msg)->cancel == id);
            fake_reply_empty(f);
        } else {
            for (uint32_t i = 0; i < script->n; i++) {
                number += script->v[i].lost;
                say(f, id, &script->v[i], number);
                number += script->v[i].n;
            }
            fake_reply_empty(f);
        }
    }
}

static void subscribed(const struct script *script)
{
    start(serve, (void *)(uintptr_t)script);
    assert_ok(tern_subscribe(t, NULL, COOKIE));
}

static struct tern_answer polled_ours(void)
{
    struct tern_answer answer = polled();

    assert_int_equal(answer.cookie, COOKIE);
    return answer;
}

/* The result of the whole script, in one answer. */
static struct tern_answer first_of(const struct script *script)
{
    subscribed(script);
    assert_ok(tern_ping(t, 2000));
    return polled_ours();
}

static void assert_kept(const struct tern_answer *a, uint64_t first, uint32_t n, uint64_t lost)
{
    assert_ok(a->err);
    assert_int_equal(a->n, 0);
    assert_int_equal(a->events->n, n);
    assert_int_equal(a->events->lost, lost);
    for (uint32_t i = 0; i < n; i++) {
        const struct tern_event *e = &a->events->v[i];

        assert_int_equal(e->number, first + i);
        assert_true(e->chain == ~(first + i));
        assert_true(e->parent_chain == 3 && e->ns_hi == 4 && e->ns_lo == 5 && e->pool == 6);
        assert_true(e->depth == 7 && e->kind == TERN_TIER && !e->on_device && e->on_host);
    }
}

TEST(answers_that_come_during_a_call_are_one)
{
    static const struct said v[] = {{.n = 0}, {.n = 3}, {.n = TERN_EVENTS_KEPT - 3}};
    struct tern_answer a = first_of(&(struct script){v, 3});

    assert_kept(&a, 1, TERN_EVENTS_KEPT, 0);
    assert_int_equal(a.events->next, 1 + TERN_EVENTS_KEPT);
    assert_err(TERN_BUSY, tern_poll(t, &a));
    assert_ok(tern_ping(t, 2000)); /* later ones start anew */
    a = polled_ours();
    assert_kept(&a, 1 + TERN_EVENTS_KEPT, TERN_EVENTS_KEPT, 0);
}

TEST(oldest_are_lost_when_nobody_polls)
{
    static const struct said v[] = {{.n = 10}, {.n = TERN_EVENTS_KEPT - 4}};
    struct tern_answer a = first_of(&(struct script){v, 2});

    assert_kept(&a, 7, TERN_EVENTS_KEPT, 6);
}

TEST(answer_that_is_larger_than_what_is_kept_keeps_its_end)
{
    static const struct said v[] = {{.n = 10}, {.n = WIRE_EVENTS_MAX}};
    struct tern_answer a = first_of(&(struct script){v, 2});

    assert_kept(&a, 11 + WIRE_EVENTS_MAX - TERN_EVENTS_KEPT, TERN_EVENTS_KEPT,
                10 + WIRE_EVENTS_MAX - TERN_EVENTS_KEPT);
}

/* Changes before a gap may be outdated by those in it. */
TEST(what_is_kept_before_a_gap_is_lost_with_it)
{
    static const struct said v[] = {{.n = 10}, {.n = 2, .lost = 100}, {.n = 1}};
    struct tern_answer a = first_of(&(struct script){v, 3});

    assert_kept(&a, 111, 3, 110);
}

/* Checks the tokens of change `number`, as say() makes them, and its key. */
static void assert_chunk(const struct tern_event *e, uint32_t tokens)
{
    assert_int_equal(e->ntokens, tokens);
    assert_int_equal(e->nkeys, tokens > 0 ? 1 : 0);
    if (tokens == 0)
        return;
    assert_int_equal(e->tokens[0], e->number);
    assert_true(e->keys->position == 9 && e->keys->hi == e->number && e->keys->lo == 8);
}

TEST(chunks_are_kept_with_their_changes)
{
    static const struct said v[] = {{.n = 2, .chunks = 2, .tokens = 3},
                                    {.n = 1, .chunks = 1},
                                    {.n = 1, .chunks = 1, .tokens = 4}};
    struct tern_answer a = first_of(&(struct script){v, 3});

    assert_kept(&a, 1, 4, 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_chunk(&a.events->v[i], i < 2 ? 3 : i < 3 ? 0 : 4);
}

TEST(oldest_are_lost_when_their_chunks_are_too_many)
{
    enum {
        FIT = TERN_CHUNKS_KEPT / (CHUNK * 4 + sizeof(struct tern_extra_key)),
        ANSWERS = FIT / CHUNKS + 2,
        LOST = ANSWERS * CHUNKS - FIT
    };
    struct said v[ANSWERS];
    struct tern_answer a;

    for (uint32_t i = 0; i < ANSWERS; i++)
        v[i] = (struct said){.n = CHUNKS, .chunks = CHUNKS, .tokens = CHUNK};
    a = first_of(&(struct script){v, ANSWERS});
    assert_kept(&a, LOST + 1, FIT, LOST);
    for (uint32_t i = 0; i < a.events->n; i++)
        assert_chunk(&a.events->v[i], CHUNK);
}

TEST(error_is_the_last_answer)
{
    static const struct said v[] = {{.n = 0, .err = TERN_QUOTA}};
    struct tern_answer a = first_of(&(struct script){v, 1});

    assert_err(TERN_QUOTA, a.err);
    assert_null(a.events);
    assert_string_not_equal(tern_error_text(t, NULL), "");
    assert_err(TERN_GONE, tern_unsubscribe(t, COOKIE, 2000));
    assert_ok(tern_subscribe(t, NULL, COOKIE));
}

TEST(unsubscribe_forgets_what_is_kept)
{
    static const struct said v[] = {{.n = 3}};
    struct tern_answer a;

    subscribed(&(struct script){v, 1});
    assert_ok(tern_ping(t, 2000));
    assert_ok(tern_unsubscribe(t, COOKIE, 2000));
    assert_err(TERN_BUSY, tern_poll(t, &a));
    for (uint32_t i = 0; i < TERN_INFLIGHT_MAX; i++) /* its place is free again */
        assert_ok(tern_subscribe(t, NULL, i));
    assert_err(TERN_BUSY, tern_subscribe(t, NULL, 1));
}

/* A subscription with all fields, then two with none. */
static void serve_fields(struct fake *f)
{
    for (uint32_t i = 0; i < 3; i++) {
        const Tern__Wire__Subscribe *m = (const Tern__Wire__Subscribe *)fake_read(f);

        check(m && f->h.type == FRAME_SUBSCRIBE && m->has_from);
        check(i == 0 ? m->from == 9 && m->tokens && strcmp(m->ns->model, "m") == 0
                     : m->from == 0 && !m->has_tokens && !m->ns);
    }
    check(fake_read(f) != NULL && f->h.type == FRAME_PING);
    fake_reply_empty(f);
}

TEST(subscription_asks_for_its_fields)
{
    const struct tern_namespace ns = {.model = "m"};

    start(serve_fields, NULL);
    assert_ok(tern_subscribe(t, &(struct tern_subscription){.ns = &ns, .from = 9, .tokens = true},
                             COOKIE));
    assert_ok(tern_subscribe(t, &(struct tern_subscription){0}, 2));
    assert_ok(tern_subscribe(t, NULL, 3));
    assert_ok(tern_ping(t, 2000));
}

TEST(answer_that_is_none_ends_the_connection)
{
    static const struct said v[] = {{.n = 3, .spoil = 3}};
    static const struct said many[] = {{.n = WIRE_EVENTS_MAX + 1}};
    static const struct said few[] = {{.n = 3, .chunks = 2, .tokens = 1}};
    const struct script scripts[] = {{v, 1}, {many, 1}, {few, 1}};

    for (uint32_t i = 0; i < 3; i++) {
        struct tern_answer a;

        subscribed(&scripts[i]);
        (void)tern_ping(t, 2000); /* its answer may be there already */
        a = polled_ours();
        assert_err(TERN_DAEMON_LOST, a.err);
        assert_null(a.events);
        assert_err(TERN_DAEMON_LOST, tern_poll(t, &a));
        assert_err(TERN_DAEMON_LOST, tern_subscribe(t, NULL, 1));
        stop();
    }
}
