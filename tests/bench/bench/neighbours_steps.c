/* Costly work that tenant A of `tern-bench neighbours` causes: long commits and their closes,
 * publishing and evicting under a window that covers the prompt, stores of such prefixes, thousands
 * of tickets, chunks with one public hash, and checks of a pool's layout. None of it is refused for
 * lack of room. The A within its share asks as often for a little of the same. */
#include <stdio.h>
#include <string.h>

#include "engine/bytes.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "neighbours_tables.h"

#define PAGE_BYTES     256
#define TOKENS_MOST    131072u
#define WHOLE_WINDOW   4194304u    /* the longest possible session */
#define STORED_WINDOW  (500u * 16) /* as many chunks of it as one disk entry may need */
#define LONG_LIMITS    "  nodes: 200000\n  token_blocks: 600000\n  pages: 700000\n"
#define WAIT_MS        20000
#define PER_S          4
#define STEP_MS        1
#define PREFILL_TOKENS 8192u /* of one extend */

/* ---- prompts: matched, computed, committed and published, then closed ---- */

struct prompts {
    uint32_t page_tokens, window; /* window 0: no group has one */
    uint32_t chunks, few;         /* of the costly A, and of the one within its share */
    uint32_t pages;               /* of the pool, for each group */
    bool keeps;                   /* its prefixes in the tree are evicted for new ones */
    bool stores;
};

static bool prompts_open(struct tenant_a *a, const struct prompts *p)
{
    struct profile profile = {.name = "prompts",
                              .group = "kv",
                              .page_tokens = p->page_tokens,
                              .page_bytes = PAGE_BYTES,
                              .layers = 1,
                              .heads = 1,
                              .more = {{"sw", TERN_WINDOW, p->page_tokens, p->window, PAGE_BYTES}},
                              .nmore = p->window > 0};
    struct geometry g;

    geometry_init(&g, &profile, 0, 1, p->pages);
    a->engine = (struct engine){.ns = {.model = "bench"}};
    return member_ok(
        &a->engine, "joining",
        engine_open(&a->engine, a->hosts->here.socket, "a-here", &g.layout, MEMBER_CALL_MS));
}

/* Extends as an engine does that prefills in chunks. Freed pages become usable within
 * a step. An engine asks once a step, and no step is shorter than STEP_MS. */
static enum tern_err extend(struct engine_session *s, uint32_t n)
{
    uint64_t until = clock_ns() + WAIT_MS * UINT64_C(1000000);
    enum tern_err err = TERN_OK;

    for (uint32_t to = 0; err == TERN_OK && to < n;) {
        to = to + PREFILL_TOKENS < n ? to + PREFILL_TOKENS : n;
        for (;; sleep_ms(STEP_MS)) {
            engine_publish(s->engine);
            err = engine_extend(s, to, to);
            if ((err != TERN_POOL_EXHAUSTED && err != TERN_BUSY) || clock_ns() >= until)
                break;
        }
    }
    return err;
}

static enum tern_err compute(struct engine_session *s, uint32_t n)
{
    enum tern_err err = extend(s, n);

    if (err != TERN_OK)
        return err;
    return engine_do_within(
        s, (struct engine_op){.kind = ENGINE_COMMIT, .length = n, .step = s->engine->step + 1},
        WAIT_MS);
}

static enum tern_err store(struct engine_session *s)
{
    struct tern_stored stored;
    enum tern_err err = tern_store(s->engine->tern, s->id, s->len.committed, WAIT_MS, &stored);

    /* Prefixes evicted before they were written, or too large for the disk, are no fault. */
    return err == TERN_BUSY || err == TERN_GONE || err == TERN_QUOTA ? TERN_OK : err;
}

static enum a_answer prompt(struct tenant_a *a, const struct prompts *p, uint32_t chunks)
{
    static uint32_t tokens[TOKENS_MOST];
    uint32_t n = chunks * p->page_tokens, nodes;
    struct engine *e = &a->engine;
    struct engine_session s;
    enum tern_err err;

    block_tokens(++a->serial, 0, n, tokens);
    err = engine_begin(&s, e, tokens, n);
    if (err == TERN_OK)
        err = compute(&s, n);
    if (err == TERN_OK)
        err = engine_publish(e);
    if (err == TERN_OK)
        err = tern_wait_published(e->tern, e->step, WAIT_MS);
    if (err == TERN_OK && p->stores)
        err = store(&s);
    if (err == TERN_OK)
        err = engine_end(&s);
    else
        engine_free(&s);
    if (err == TERN_OK && !p->keeps)
        err = tern_namespace_reset(e->tern, &e->ns, WAIT_MS, &nodes, NULL);
    return a_answer_of(a, e->tern, err);
}

#define PROMPTS(id, title, to_disk, ...)                                                           \
    static const struct prompts id = {__VA_ARGS__};                                                \
    static bool id##_open(struct tenant_a *a)                                                      \
    {                                                                                              \
        return prompts_open(a, &(id));                                                             \
    }                                                                                              \
    static enum a_answer id##_long(struct tenant_a *a)                                             \
    {                                                                                              \
        return prompt(a, &(id), (id).chunks);                                                      \
    }                                                                                              \
    static enum a_answer id##_short(struct tenant_a *a)                                            \
    {                                                                                              \
        return prompt(a, &(id), (id).few);                                                         \
    }                                                                                              \
    const struct a_table a_##id = {.name = title,                                                  \
                                   .limits = LONG_LIMITS,                                          \
                                   .costs = true,                                                  \
                                   .per_s = PER_S,                                                 \
                                   .spills = to_disk,                                              \
                                   .open = id##_open,                                              \
                                   .over = id##_long,                                              \
                                   .within = id##_short};

PROMPTS(commits, "long commits", false, .page_tokens = 1, .chunks = 60000, .few = 60,
        .pages = 130000, .keeps = true)
PROMPTS(publishing, "publishing", false, .page_tokens = 16, .window = WHOLE_WINDOW, .chunks = 8192,
        .few = 8, .pages = 20000)
PROMPTS(evictions, "evictions", false, .page_tokens = 16, .window = WHOLE_WINDOW, .chunks = 8192,
        .few = 8, .pages = 12000, .keeps = true)
PROMPTS(stores, "disk entries", true, .page_tokens = 16, .window = STORED_WINDOW, .chunks = 2048,
        .few = 8, .pages = 12000, .keeps = true, .stores = true)

/* ---- tickets: thousands that stand; one is renewed at A's rate ---- */

#define TICKETS   4000
#define STANDS_MS 60000

static uint64_t holder[TICKETS];
static struct tern_ticket first;

static bool join(struct tenant_a *a)
{
    return a_join(a, 64);
}

static bool ticket_make(struct tenant_a *a)
{
    uint32_t token = 7;
    struct tern_tokens list = {.v = &token, .n = 1};
    struct tern *t = a->engine.tern;
    struct tern_result r;
    struct tern_ticket ticket;

    if (!member_ok(&a->engine, "a session",
                   tern_session_open(t, a->engine.pool, &a->engine.ns, NULL, MEMBER_CALL_MS,
                                     &holder[a->nheld])) ||
        !member_ok(&a->engine, "a Match",
                   tern_match(t, holder[a->nheld], &list, TERN_STEP_NONE, MEMBER_CALL_MS, &r)) ||
        !member_ok(
            &a->engine, "a ticket",
            tern_ticket_open(t, holder[a->nheld], STANDS_MS + a->nheld, MEMBER_CALL_MS, &ticket)))
        return false;
    if (a->nheld++ == 0)
        first = ticket;
    return true;
}

static bool tickets_prepare(struct tenant_a *a, bool over)
{
    uint32_t want = over ? TICKETS : 1;
    struct tern_result r;

    while (a->nheld < want)
        if (!ticket_make(a))
            return false;
    while (a->nheld > want) {
        struct engine_op op = {
            .kind = ENGINE_CLOSE, .step = TERN_STEP_NONE, .session = holder[--a->nheld]};

        if (op_do(a->engine.tern, &op, MEMBER_CALL_MS, &r) != TERN_OK)
            return false;
    }
    return true;
}

static enum a_answer ticket_renew(struct tenant_a *a)
{
    uint32_t stands_ms;

    return a_answer_of(
        a, a->engine.tern,
        tern_ticket_renew(a->engine.tern, first.text, STANDS_MS, MEMBER_CALL_MS, &stands_ms));
}

const struct a_table a_tickets = {.name = "tickets",
                                  .limits = "  sessions: 8192\n",
                                  .costs = true,
                                  .open = join,
                                  .prepare = tickets_prepare,
                                  .over = ticket_renew,
                                  .within = ticket_renew};

/* ---- chunks with one public hash; the one looked for is not stored ---- */

#define CHUNK_TOKENS 16
#define COLLIDING    20000u
#define LANES        4

/* Makes tokens with the public hash of all such chunks. The product of a lane is 0 if the upper
 * half of its word is the key's, and then the word itself is added: x in the first round, and the
 * value that cancels x in the second. */
static void colliding(uint32_t x, uint32_t *tokens)
{
    static const uint64_t start[LANES] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu,
                                          0x165667b19e3779f9u, 0x27d4eb2f165667c5u};

    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t lane = 0; lane < LANES; lane++) {
            uint64_t key = start[lane] + round * start[0];
            uint32_t *word = tokens + 2 * (LANES * round + lane);

            word[0] = lane > 0 ? 5 : round == 0 ? x : UINT32_MAX - x;
            word[1] = (uint32_t)(key >> 32);
        }
}

static bool chunks_open(struct tenant_a *a)
{
    uint32_t tokens[CHUNK_TOKENS];
    struct engine *e = &a->engine;
    struct engine_session s;
    bool ok =
        member_start(e, a->hosts->here.socket, "a-here", CHUNK_TOKENS, PAGE_BYTES, COLLIDING + 64);

    for (uint32_t i = 0; ok && i < COLLIDING; i++) {
        colliding(i, tokens);
        ok = member_ok(e, "a chunk", engine_begin(&s, e, tokens, CHUNK_TOKENS)) &&
             member_ok(e, "a chunk", engine_extend(&s, CHUNK_TOKENS, CHUNK_TOKENS)) &&
             member_ok(e, "a chunk", engine_commit(&s, CHUNK_TOKENS)) &&
             member_ok(e, "a chunk", engine_end(&s));
        if (i % 256 == 0)
            engine_publish(e);
    }
    return ok && engine_publish(e) == TERN_OK;
}

static enum a_answer look(struct tenant_a *a, bool collides)
{
    uint32_t tokens[CHUNK_TOKENS];
    struct tern_tokens list = {.v = tokens, .n = CHUNK_TOKENS};
    struct tern_depths depths;

    colliding(UINT32_MAX / 2, tokens);
    if (!collides)
        tokens[1] = 77;
    return a_answer_of(
        a, a->engine.tern,
        tern_peek(a->engine.tern, a->engine.pool, &a->engine.ns, &list, MEMBER_CALL_MS, &depths));
}

static enum a_answer look_colliding(struct tenant_a *a)
{
    return look(a, true);
}

static enum a_answer look_ordinary(struct tenant_a *a)
{
    return look(a, false);
}

const struct a_table a_collisions = {.name = "collisions",
                                     .limits = LONG_LIMITS,
                                     .costs = true,
                                     .open = chunks_open,
                                     .over = look_colliding,
                                     .within = look_ordinary};

/* ---- layouts of half a million rows ---- */

static bool engine_alone(struct tenant_a *a)
{
    return a_join(a, 1);
}

/* The daemon checks a layout before anything else and refuses it then: elements of one byte of
 * which every other one is of no field, or, without fields, more elements than A may have. */
static enum a_answer pool_refused(struct tenant_a *a, bool rows)
{
    static const struct tern_axis axes[] = {{"token", 4096, 256}, {"dim", 128, 2}};
    static const struct tern_field field = {
        .name = "f", .over = TERN_OVER_REPLICATED, .element_bytes = 1, .axes = axes, .naxes = 2};
    struct tern_group group = {.name = "kv", .page_tokens = 4096, .page_bytes = 4096 * 256};
    struct tern_layout layout = {.groups = &group, .ngroups = 1, .bytes = 1ull << 40};
    enum tern_err err;
    uint64_t pool;

    group.fields = rows ? &field : NULL;
    group.nfields = rows;
    err = tern_pool_open(a->engine.tern, &layout, MEMBER_CALL_MS, &pool, NULL);
    return err == TERN_INVALID || err == TERN_QUOTA ? A_DONE : a_answer_of(a, a->engine.tern, err);
}

static enum a_answer open_rows(struct tenant_a *a)
{
    return pool_refused(a, true);
}

static enum a_answer open_plain(struct tenant_a *a)
{
    return pool_refused(a, false);
}

const struct a_table a_layouts = {.name = "pool opens",
                                  .limits = LONG_LIMITS,
                                  .costs = true,
                                  .open = engine_alone,
                                  .over = open_rows,
                                  .within = open_plain};
