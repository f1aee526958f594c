/* The record of a session, its own pages, and its table as runs of pages. The borrowed part of the
 * table is the path to the pinned node and is never stored twice. */
#include "core/session/record.h"

#include "core/memory/pages.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

bool session_turn_is(const struct session *s, struct session_id id)
{
    return (s->gate == GATE_CLAIMED || s->gate == GATE_CLOSING) && id.gen == s->turn_gen;
}

bool session_rolls_back(const struct core *c, const struct session *s)
{
    const struct turn_record *r = s->prepared == NONE ? NULL : turn_record_at(c, s->prepared);

    return r && r->kind == RECORD_ROLLBACK && r->state == TURN_RECORD_CHECKING;
}

enum tern_err session_of(const struct core *c, const struct engine *e, struct session_id id,
                         struct session **ret, const char **ret_text)
{
    struct session *s = id.slot < c->limits.sessions ? session_at(c, id.slot) : NULL;

    *ret_text = "no such session or turn: it was closed or ended, or the daemon was restarted";
    if (!s || s->state == SESSION_EMPTY || s->state == SESSION_CLOSING ||
        s->state == SESSION_HANDED || s->engine != engine_slot(c, e))
        return TERN_GONE;
    if (!session_turn_is(s, id)) {
        if (id.gen != s->gen || s->gate == GATE_CLOSING || s->gate == GATE_CLOSED)
            return TERN_GONE;
    }
    *ret = s;
    *ret_text = TURN_IN_FLIGHT;
    return s->gate == GATE_CLAIMED && id.gen == s->gen ? TERN_BUSY : TERN_OK;
}

struct lengths session_lengths(const struct session *s)
{
    return (struct lengths){
        .committed = s->committed, .written = s->written, .allocated = s->allocated};
}

void reply_lengths(const struct session *s, struct reply *ret)
{
    struct lengths l = session_lengths(s);
    uint32_t tokens = s->tokens.end;

    switch (ret->op) {
    case OP_MATCH: ret->match.lengths = l, ret->match.tokens = tokens; return;
    case OP_FETCH: ret->fetch.lengths = l, ret->fetch.tokens = tokens; return;
    case OP_FETCH_WAIT: ret->fetch_wait.lengths = l, ret->fetch_wait.tokens = tokens; return;
    case OP_RETRACT: ret->retract.lengths = l; return;
    case OP_RECOVER: ret->recover.lengths = l, ret->recover.tokens = tokens; return;
    case OP_RECORD_PUT: ret->record_put.lengths = l, ret->record_put.tokens = tokens; return;
    case OP_ROLLBACK: ret->rollback.lengths = l, ret->rollback.tokens = tokens; return;
    default: return;
    }
}

struct token_view session_view(const struct core *c, const struct session *s, uint32_t base,
                               const struct req_tokens *req)
{
    return (struct token_view){.c = c,
                               .buf = s ? &s->tokens : NULL,
                               .align = s ? session_pool(c, s)->align : 0,
                               .base = base,
                               .end = base + req->n,
                               .v = req->v,
                               .keys = req->keys,
                               .nkeys = req->nkeys,
                               .cursor_block = NONE};
}

uint32_t session_table_refs(const struct core *c, const struct session *s, uint32_t tokens)
{
    const struct pool *p = session_pool(c, s);
    uint32_t n = pool_table_refs(p, tokens);

    for (uint32_t g = 0; g < p->ngroups; g++)
        n += p->group[g].layout.family == FAMILY_WINDOW ? s->owned[g].n : 0;
    return n;
}

bool session_too_deep(const struct core *c, const struct session *s, uint32_t tokens)
{
    const struct pool *p = session_pool(c, s);

    return (p->nstate > 0 || p->tiers[TIER_HOST] != NONE) && tokens / p->align > STEP_TABLE_MAX;
}

bool session_away(const struct session *s)
{
    return s->state == SESSION_RETRACTING || s->state == SESSION_RETRACTED ||
           s->state == SESSION_LOADING;
}

uint64_t session_step(const struct session *s, uint64_t step)
{
    step = step < s->away_step ? s->away_step : step;
    step = step < s->slid_step ? s->slid_step : step;
    return step < s->turn_step ? s->turn_step : step;
}

enum tern_err session_is_matched(const struct session *s, struct reply *ret)
{
    return s->state == SESSION_MATCHING ? refuse(ret, TERN_INVALID, MATCH_INCOMPLETE) : TERN_OK;
}

enum tern_err session_fetches_nothing(const struct session *s, struct reply *ret)
{
    return s->state == SESSION_FETCHING || s->state == SESSION_LOADING
               ? refuse(ret, TERN_BUSY, FETCH_UNDER_WAY)
               : TERN_OK;
}

bool has_recurrent(const struct pool *p)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (p->group[g].layout.family == FAMILY_RECURRENT)
            return true;
    return false;
}

uint32_t session_keeps(const struct core *c, uint32_t p, const struct session *s, uint32_t group)
{
    const struct group_layout *l = &session_pool(c, s)->group[group].layout;
    uint32_t end = div_up(p, l->page_tokens);

    if (l->family == FAMILY_RECURRENT)
        return p < s->written || p == 0 ? 0 : 1; /* its only state is that of the written length */
    return end > s->base[group] ? end - s->base[group] : 0;
}

uint32_t session_tail_pages(const struct core *c, const struct session *s, uint32_t p)
{
    const struct pool *pool = session_pool(c, s);
    uint32_t n = 0;

    for (uint32_t g = 0; g < pool->ngroups; g++)
        if (pool->group[g].layout.family != FAMILY_RECURRENT &&
            s->owned[g].n > session_keeps(c, p, s, g))
            n += s->owned[g].n - session_keeps(c, p, s, g);
    return n;
}

/* If a fetch left a gap between T and its window's own pages, the next page is p's again. */
void session_free_tail(struct core *c, struct session *s, uint32_t p, bool all, struct list *list)
{
    const struct pool *pool = session_pool(c, s);

    *list = LIST_EMPTY;
    for (uint32_t g = 0; g < pool->ngroups; g++) {
        const struct group_layout *l = &pool->group[g].layout;
        const uint32_t keep = session_keeps(c, p, s, g), end = div_up(p, l->page_tokens);

        while ((all || l->family == FAMILY_RECURRENT) && s->owned[g].n > keep)
            page_list_push(c, list, page_list_pop_last(c, &s->owned[g]));
        if (l->family == FAMILY_WINDOW && s->base[g] > end)
            s->base[g] = end;
    }
    s->allocated = p < s->allocated ? p : s->allocated;
    s->written = s->written < s->allocated ? s->written : s->allocated;
}

void session_use(struct core *c, struct session *s)
{
    s->last_use_ns = c->now_ns;
    if (node_at(c, s->node)->depth > 0)
        node_use(c, s->node);
    touch(c);
}

uint32_t session_borrows_to(const struct core *c, const struct session *s, uint32_t group)
{
    const struct pool *p = session_pool(c, s);
    uint32_t end = s->base[group] * p->group[group].layout.page_tokens;

    return node_above(c, (struct path){s->node, end / p->align * p->align});
}

void session_path_run(const struct core *c, struct actions *out, const struct session *s,
                      struct group_page from)
{
    const struct group *g = &session_pool(c, s)->group[from.group];
    const uint32_t at = session_borrows_to(c, s, from.group),
                   end = segment_end(g, node_at(c, at)->depth);
    struct table_run run = {.group = from.group, .first = from.page};

    if (from.page >= end || !state_path_has(c, at, g, from.page))
        return;
    run.n = end - from.page;
    node_refs(c, at, g, from.page, run_add(out, run)); /* tokens were limited by table_refs */
}

void session_path_runs(const struct core *c, struct actions *out, const struct session *s,
                       uint32_t from)
{
    const struct pool *p = session_pool(c, s);

    for (uint32_t g = 0; g < p->ngroups && from < s->committed; g++) {
        uint32_t first = from / p->group[g].layout.page_tokens;

        if (p->group[g].layout.family == FAMILY_RECURRENT)
            continue; /* the first Extend returns its page, and what to copy into it */
        if (first < window_first(&p->group[g], s->committed))
            first = window_first(&p->group[g], s->committed);
        if (first < s->first[g]) /* a fetch omits what its end does not need */
            first = s->first[g];
        if (group_is_state(
                &p->group[g])) { /* the session no longer borrows what it slid over so far */
            if (s->state_from >= s->committed)
                continue;
            if (first < segment_first(p, &p->group[g], s->state_from + p->align))
                first = segment_first(p, &p->group[g], s->state_from + p->align);
        }
        session_path_run(c, out, s, (struct group_page){g, first});
    }
}

struct page_ref recurrent_from(const struct core *c, const struct session *s, uint32_t group)
{
    uint32_t at = node_at(c, s->node)->group[group].pages[TIER_DEVICE];

    if (session_pool(c, s)->group[group].layout.family != FAMILY_RECURRENT || s->committed == 0 ||
        s->written > s->committed || at == NONE)
        return (struct page_ref){0};
    return page_ref_of(c, at);
}

void session_owned_run(const struct core *c, struct actions *out, const struct session *s,
                       uint32_t group)
{
    bool recurrent = session_pool(c, s)->group[group].layout.family == FAMILY_RECURRENT;
    struct page_ref *refs;

    if (s->owned[group].n == 0)
        return;
    refs = run_add(out, (struct table_run){.group = group,
                                           .first = recurrent ? 0 : s->base[group],
                                           .n = s->owned[group].n,
                                           .from = recurrent_from(c, s, group)});
    for (uint32_t at = s->owned[group].head; at != NONE; at = page_list_next(c, at))
        *refs++ = page_ref_of(c, at);
}

void session_runs(const struct core *c, struct actions *out, const struct session *s, uint32_t from)
{
    session_path_runs(c, out, s, from);
    for (uint32_t g = 0; g < session_pool(c, s)->ngroups; g++)
        session_owned_run(c, out, s, g);
}

enum tern_err session_pool_find(const struct core *c, const struct engine *e, struct pool_id id,
                                struct pool **ret_pool, struct reply *ret)
{
    struct pool *p = pool_find(c, id);

    if (!p || p->tenant != e->tenant)
        return refuse(ret, TERN_GONE, "no such pool: open or map one with this incarnation");
    if (!(e->pools & 1ull << id.slot))
        return refuse(ret, TERN_INVALID, "this engine has not mapped that pool");
    if (p->state != POOL_OPEN)
        return refuse(ret, TERN_GONE, "the pool is closing");
    *ret_pool = p;
    return TERN_OK;
}
