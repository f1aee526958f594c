/* Shared by the tests of messages in and out: values of all kinds, frames made and read. Header
 * only. */
#ifndef TEST_SHELL_WIRE_RIG_H
#define TEST_SHELL_WIRE_RIG_H

#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "proto/ticket.h"
#include "shell/config/config.h"
#include "shell/wire/wire_in.h"
#include "shell/wire/wire_out.h"
#include "testing/test.h"

#define BODY_MAX (1u << 20)
#define ROUNDS   2000

static uint8_t frame[FRAME_HEADER_BYTES + BODY_MAX + 64];
static uint8_t mem[BUDGET_BYTES(BODY_MAX)] __attribute__((aligned(64)));
static struct table_run runs[64];
static struct page_ref refs[TABLE_PAGES];
static struct prng prng;
static struct wire_in in;
static struct config config;
static const char *refusal; /* text of the last one */

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

/* A number of any length that a varint has, including 0. */
static inline uint64_t number(uint32_t bits)
{
    uint32_t shift = prng_below(&prng, bits + 1);

    return shift == 0 ? 0 : prng_u64(&prng) >> (64 - shift);
}

static inline uint32_t number32(void)
{
    return (uint32_t)number(32);
}

static inline struct shortage some_shortage(void)
{
    return (struct shortage){.group = number32(),
                             .needed = number32(),
                             .free = number32(),
                             .evictable = number32(),
                             .retiring = number32(),
                             .until_step = number(64)};
}

static inline struct lengths some_lengths(void)
{
    return (struct lengths){number32(), number32(), number32()};
}

static inline uint32_t some_runs(uint32_t max, uint32_t from)
{
    uint32_t n = prng_below(&prng, max + 1);

    for (uint32_t i = from; i < from + n; i++) {
        uint32_t len = prng_below(&prng, 2) ? prng_below(&prng, 40) : 0;

        runs[i] = (struct table_run){number32(),
                                     number32(),
                                     len,
                                     0,
                                     refs + prng_below(&prng, 1000),
                                     {number32(), number32()}};
    }
    return n;
}

static inline const ProtobufCMessage *decoded(size_t n, uint16_t type, uint64_t id)
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

static inline void same_shortage(const Tern__Wire__Shortage *m, const struct shortage *s)
{
    assert_non_null(m);
    assert_int_equal(m->group, s->group);
    assert_int_equal(m->needed, s->needed);
    assert_int_equal(m->free, s->free);
    assert_int_equal(m->evictable, s->evictable);
    assert_int_equal(m->retiring, s->retiring);
    assert_int_equal(m->until_step, s->until_step);
}

static inline void same_status(const Tern__Wire__Status *m, enum tern_err err, const char *text,
                               const struct shortage *s)
{
    if (err == TERN_OK) {
        assert_null(m);
        return;
    }
    assert_non_null(m);
    assert_int_equal(m->err, err);
    assert_string_equal(m->text ? m->text : "", text);
    if (err == TERN_POOL_EXHAUSTED || err == TERN_QUOTA)
        same_shortage(m->shortage, s);
    else
        assert_null(m->shortage);
}

static inline void same_runs(Tern__Wire__Run *const *m, size_t n, const struct table_run *r,
                             uint32_t nr)
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

static inline void same_lengths(const Tern__Wire__Lengths *m, const struct lengths *l)
{
    assert_non_null(m);
    assert_int_equal(m->committed, l->committed);
    assert_int_equal(m->written, l->written);
    assert_int_equal(m->allocated, l->allocated);
}

static inline struct reply some_reply(enum op op)
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

static inline enum tern_err request(uint16_t type, const ProtobufCMessage *m, struct request *ret)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = type, .session = 0x300000004};
    size_t n;

    assert_int_equal(wire_encode(&h, m, BODY_MAX, frame, sizeof(frame), &n), TERN_OK);
    assert_int_equal(frame_decode(frame, BODY_MAX, &h), TERN_OK);
    return wire_in_request(&in, 0, &h, frame + FRAME_HEADER_BYTES, ret, &refusal);
}

static inline struct namespace_id ns_of(const char *model, const char *revision, const char *salt)
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

static inline bool ns_equal(struct namespace_id a, struct namespace_id b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

#endif
