/* An engine and its sessions: see engine.h. */
#include "engine/engine.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bytes.h"
#include "engine/pages.h"
#include "engine/proc.h"
#include "engine/stats.h"

#define MS UINT64_C(1000000)

static enum tern_err open_pool(struct engine *e, const char *socket, const char *name,
                               const char *device, const struct tern_layout *layout,
                               uint32_t call_ms)
{
    struct tern_namespace ns = e->ns;
    enum tern_err err;

    *e = (struct engine){.ns = ns, .ngroups = layout->ngroups, .call_ms = call_ms};
    if (!e->ns.model)
        e->ns.model = "m";
    memcpy(e->groups, layout->groups, layout->ngroups * sizeof e->groups[0]);
    err = tern_connect(socket, call_ms, &e->tern);
    if (err == TERN_OK)
        err = tern_batch_create(e->tern, &e->batch);
    if (err == TERN_OK)
        err = tern_join(e->tern, name, TERN_BOTH, 0, 1, device, call_ms);
    if (err == TERN_OK)
        err = tern_pool_open(e->tern, layout, call_ms, &e->pool, NULL);
    return err;
}

enum tern_err engine_open_pool(struct engine *e, const char *socket, const char *name,
                               const struct tern_layout *layout, uint32_t call_ms)
{
    return open_pool(e, socket, name, NULL, layout, call_ms);
}

enum tern_err engine_open_on(struct engine *e, const char *socket, const char *name,
                             const char *device, const struct tern_layout *layout, uint32_t call_ms)
{
    enum tern_err err = open_pool(e, socket, name, device, layout, call_ms);

    return err == TERN_OK ? tern_pool_map(e->tern, e->pool, call_ms, &e->map) : err;
}

enum tern_err engine_open(struct engine *e, const char *socket, const char *name,
                          const struct tern_layout *layout, uint32_t call_ms)
{
    return engine_open_on(e, socket, name, NULL, layout, call_ms);
}

void engine_close(struct engine *e)
{
    tern_batch_destroy(e->batch);
    tern_destroy(e->tern);
    e->batch = NULL;
    e->tern = NULL;
    e->map = NULL;
}

const char *engine_why(const struct engine *e)
{
    return tern_error_text(e->tern, NULL);
}

uint8_t *engine_page(const struct engine *e, uint32_t group, uint32_t index)
{
    return tern_pool_info(e->map)->base + index * e->groups[group].page_bytes;
}

enum tern_err engine_publish(struct engine *e)
{
    return tern_done_step(e->map, ++e->step);
}

enum tern_err answer_wait(struct tern *t, uint32_t wait_ms, struct tern_answer *ret)
{
    enum tern_err err = tern_poll(t, ret);

    for (uint64_t now = clock_ns(), until = now + wait_ms * MS; err == TERN_BUSY && now < until;
         now = clock_ns()) {
        struct pollfd fd = {.fd = -1};

        fd.fd = tern_fd(t, &fd.events);
        poll(&fd, 1, (int)((until - now) / MS + 1));
        err = tern_poll(t, ret);
    }
    return err;
}

static void load(struct engine_session *s, const uint32_t *tokens, uint32_t n, uint32_t all)
{
    const struct engine *e = s->engine;
    uint64_t root[TERN_GROUPS_MAX];

    table_init(&s->table, e->groups, e->ngroups, all);
    s->tokens = mem_need(all, sizeof *tokens);
    if (all)
        memcpy(s->tokens, tokens, all * sizeof *tokens);
    s->ntokens = n;
    for (uint32_t g = 0; g < e->ngroups; g++)
        root[g] = content_root("", e->ns.model, e->ns.salt ? e->ns.salt : "", e->groups[g].name);
    table_load(&s->table, root, s->tokens, all);
}

enum tern_err engine_begin(struct engine_session *s, struct engine *e, const uint32_t *tokens,
                           uint32_t n)
{
    return engine_begin_with(s, e, tokens, n, 0);
}

enum tern_err engine_begin_with(struct engine_session *s, struct engine *e, const uint32_t *tokens,
                                uint32_t n, uint32_t more)
{
    struct tern_tokens list = {.v = tokens, .n = n};
    enum tern_err err;

    *s = (struct engine_session){.engine = e};
    load(s, tokens, n, n + more);
    err = tern_session_open(e->tern, e->pool, &e->ns, NULL, e->call_ms, &s->id);
    if (err == TERN_OK)
        err = tern_match(e->tern, s->id, &list, TERN_STEP_NONE, e->call_ms, &s->last);
    if (err != TERN_OK)
        return err;
    s->matched = s->last.matched;
    s->host_depth = s->last.host_depth;
    return engine_take(s, &s->last);
}

enum tern_err engine_take(struct engine_session *s, const struct tern_result *r)
{
    s->len = r->lengths;
    return table_take(&s->table, r, NULL) ? TERN_OK : TERN_INTERNAL;
}

static enum tern_err taken(struct engine_session *s, enum tern_err err)
{
    return err == TERN_OK ? engine_take(s, &s->last) : err;
}

enum tern_err engine_do(struct engine_session *s, struct engine_op op)
{
    op.session = s->id;
    op.step = op.step ? op.step : TERN_STEP_NONE; /* no kernel runs unless a test sets a step */
    return taken(s, op_do(s->engine->tern, &op, s->engine->call_ms, &s->last));
}

enum tern_err engine_do_within(struct engine_session *s, struct engine_op op, uint32_t wait_ms)
{
    uint64_t until = clock_ns() + wait_ms * MS;
    enum tern_err err;

    while (((err = engine_do(s, op)) == TERN_POOL_EXHAUSTED || err == TERN_BUSY) &&
           clock_ns() < until)
        sleep_ms(1);
    return err;
}

enum tern_err engine_extend(struct engine_session *s, uint32_t allocated, uint32_t written)
{
    return engine_do(
        s, (struct engine_op){.kind = ENGINE_EXTEND, .length = allocated, .written = written});
}

enum tern_err engine_commit(struct engine_session *s, uint32_t depth)
{
    return engine_do(
        s, (struct engine_op){.kind = ENGINE_COMMIT, .length = depth, .step = s->engine->step});
}

enum tern_err engine_run(struct engine_session *s)
{
    uint32_t from = s->len.written;
    enum tern_err err = engine_extend(s, s->ntokens, s->ntokens);

    if (err != TERN_OK)
        return err;
    engine_write(s, from, s->ntokens);
    err = engine_publish(s->engine);
    return err == TERN_OK ? engine_commit(s, s->ntokens - s->ntokens % s->table.align) : err;
}

enum tern_err engine_fetch(struct engine_session *s, const char *peer, uint32_t depth,
                           uint32_t wait_ms)
{
    enum tern_err err, took;

    /* Pages returned with an error belong to the session, too; without an answer there are none. */
    s->last = (struct tern_result){.lengths = s->len};
    err = tern_fetch(s->engine->tern, s->id,
                     &(struct tern_fetch){.peer = peer, .depth = depth, .step = TERN_STEP_NONE},
                     wait_ms, &s->last);
    took = engine_take(s, &s->last);
    return err == TERN_OK ? took : err;
}

enum tern_err engine_recover(struct engine_session *s, uint32_t wait_ms)
{
    enum tern_err err = tern_recover(s->engine->tern, s->id, wait_ms, &s->last);

    if (err == TERN_OK)
        table_forget(&s->table);
    return taken(s, err);
}

enum tern_err engine_end(struct engine_session *s)
{
    enum tern_err err =
        engine_do(s, (struct engine_op){.kind = ENGINE_CLOSE, .step = s->engine->step});

    engine_free(s);
    return err;
}

void engine_free(struct engine_session *s)
{
    table_finish(&s->table);
    free(s->tokens);
    s->tokens = NULL;
}

/* The seed of page i, or of the RECURRENT page with its state at `at` tokens. */
static uint64_t seed_of(const struct engine_session *s, uint32_t g, uint32_t i, uint32_t at)
{
    if (s->table.groups[g].family == TERN_RECURRENT)
        i = (at - 1) / s->table.align;
    return page_seed(s->table.group[g].prefix[i], i, 0);
}

static uint32_t pages_to(const struct engine_session *s, uint32_t g, uint32_t at)
{
    const struct tern_group *group = &s->table.groups[g];

    if (group->family == TERN_RECURRENT)
        return at > 0;
    return at / group->page_tokens + (at % group->page_tokens != 0);
}

void engine_write(struct engine_session *s, uint32_t from, uint32_t to)
{
    for (uint32_t g = 0; g < s->table.ngroups; g++) {
        const struct tern_group *group = &s->table.groups[g];
        const struct table_group *tg = &s->table.group[g];
        uint32_t first = group->family == TERN_RECURRENT ? 0 : from / group->page_tokens;

        for (uint32_t i = first; i < pages_to(s, g, to); i++)
            if (tg->index[i])
                pool_page_fill(s->engine->map, engine_page(s->engine, g, tg->index[i]),
                               group->page_bytes, seed_of(s, g, i, to));
    }
}

uint64_t engine_wrong(const struct engine_session *s, uint32_t at)
{
    uint64_t wrong = 0;

    for (uint32_t g = 0; g < s->table.ngroups; g++) {
        const struct tern_group *group = &s->table.groups[g];
        const struct table_group *tg = &s->table.group[g];

        for (uint32_t i = table_window_first(group, at); i < pages_to(s, g, at); i++)
            wrong += !tg->index[i] ? group->page_bytes
                                   : pool_page_compare(s->engine->map,
                                                       engine_page(s->engine, g, tg->index[i]),
                                                       group->page_bytes, seed_of(s, g, i, at));
    }
    return wrong;
}
