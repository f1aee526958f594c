/* The beginning and the end of a session's table, which move without a request of their own. At the
 * beginning is the window of the session's STATE (T5): this file knows which pages have left the
 * window, and to which lengths the session can return. At the end is the tail that a fetch replaces
 * (S11): the session's own pages behind the committed length stay until more than the written
 * length has arrived, and are then freed by the step that the fetch named. */

#include "core/session/record.h"
#include "core/session/retires.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

/* Tokens below which no page of that layout is needed to continue from `at`, to commit or to
 * rewind. */
static uint32_t lower_bound(const struct pool *p, const struct group_layout *l, uint32_t at)
{
    uint64_t keep = l->family == FAMILY_RECURRENT ? p->align : (uint64_t)l->window + l->reserve;

    return at > keep ? at - (uint32_t)keep : 0;
}

/* Borrows are counted by node, so a borrow may outlast the page's entry in the table: slid_step
 * protects that page. */
void session_slid_to(struct session *s, struct group_page first, uint64_t step)
{
    uint32_t g = first.group;

    if (s->first[g] >= first.page)
        return;
    if (s->first[g] < s->base[g] && s->slid_step < step)
        s->slid_step = step;
    s->first[g] = first.page;
}

uint32_t session_slide(struct core *c, struct session *s, uint64_t step, uint32_t next,
                       struct list *list)
{
    const struct pool *p = session_pool(c, s);
    const uint64_t furthest = s->state_from + (uint64_t)PIECE_VISITS_MAX * p->align;
    uint64_t held = s->slid_step;
    uint32_t state_from = s->committed, most = PIECE_VISITS_MAX, node;

    if (p->nstate == 0)
        return NONE;
    for (uint32_t g = 0; g < p->ngroups; g++) {
        uint32_t lower, pt = p->group[g].layout.page_tokens;

        if (!group_is_state(&p->group[g]))
            continue;
        lower = lower_bound(p, &p->group[g].layout, s->written < next ? s->written : next);
        if (p->group[g].reach > 1 && s->owned[g].n > 0 && s->base[g] * pt < s->committed)
            lower -= lower % p->align; /* a node may still get the whole segment (T18) */
        if (lower / p->align * p->align < state_from)
            state_from = lower / p->align * p->align;
        if (p->group[g].layout.family == FAMILY_RECURRENT)
            continue;
        session_slid_to(s, (struct group_page){g, lower / pt}, step);
        for (; s->owned[g].n > 0 && s->base[g] < lower / pt && most > 0; most--, c->visits++) {
            page_list_push(c, list, page_list_pop(c, &s->owned[g]));
            s->base[g]++;
        }
    }
    if (state_from > furthest)
        state_from = (uint32_t)furthest;
    if (state_from <= s->state_from || (held > step && held > engine_at(c, s->engine)->done_min))
        return NONE; /* earlier slid pages are still being read: a later slide ends the borrows */
    node = node_above(c, (struct path){s->node, state_from});
    node_pin(c, node, REF_DEVICE);
    s->state_from = state_from;
    touch(c);
    return node;
}

/* Returns true if the table has the STATE at p. */
static bool has_state_at(const struct core *c, const struct session *s, uint32_t p)
{
    const struct pool *pool = session_pool(c, s);

    if (p < s->whole_from)
        return false;
    for (uint32_t g = 0; g < pool->ngroups; g++) {
        const struct group_layout *l = &pool->group[g].layout;
        uint32_t first = window_first(&pool->group[g], p), t = s->committed / l->page_tokens;

        if (l->family == FAMILY_HISTORY)
            continue;
        if (l->family == FAMILY_RECURRENT) {
            const struct node *n = node_at(c, s->node);

            if (p != s->committed ||
                (p > 0 && (s->state_from >= p || n->group[g].pages[TIER_DEVICE] == NONE ||
                           n->state.refilling & 1u << g)))
                return false;
            continue;
        }
        if (s->first[g] > first)
            return false;
        /* The session's own pages must include those behind the path, and a fetch may have omitted
         * some. The committed length needs no own page. */
        if (div_up(p, l->page_tokens) > t && s->base[g] > (first > t ? first : t))
            return false;
    }
    return true;
}

bool session_can_return(const struct core *c, const struct session *s, uint32_t p)
{
    return p >= s->written || /* frees only what was not written */
           has_state_at(c, s, p);
}

uint32_t session_owns(const struct core *c, const struct session *s)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < session_pool(c, s)->ngroups; g++)
        n += s->owned[g].n;
    return n;
}

bool tail_is_there(const struct core *c, const struct session *s)
{
    return session_owns(c, s) > 0 || s->allocated > s->committed;
}

/* A fetch that fails may leave the session at its committed length: it can resume there only if it
 * borrows the STATE of that length. */
static bool tail_is_replaceable(const struct core *c, const struct session *s)
{
    const struct pool *pool = session_pool(c, s);

    if (!tail_is_there(c, s))
        return true;
    for (uint32_t g = 0; g < pool->ngroups; g++)
        if (s->owned[g].n > 0 && pool->group[g].layout.family == FAMILY_WINDOW &&
            s->base[g] < s->committed / pool->group[g].layout.page_tokens)
            return false; /* a part of the window that no node took (T18) */
    return has_state_at(c, s, s->committed);
}

enum tern_err session_may_fetch_nothing(const struct session *s, struct reply *ret)
{
    TRY(session_fetches_nothing(s, ret));
    if (session_away(s))
        return refuse(ret, TERN_INVALID, "the session is retracted: Recover it first");
    TRY(session_is_matched(s, ret));
    if (s->state == SESSION_OPEN)
        return refuse(ret, TERN_INVALID, "Match the session's tokens first");
    return TERN_OK;
}

enum tern_err session_may_fetch(const struct core *c, const struct session *s, struct reply *ret)
{
    TRY(session_may_fetch_nothing(s, ret));
    if (session_owns(c, s) > TAIL_PAGES_MAX ||
        (s->written - s->committed) / session_pool(c, s)->align > TAIL_CHUNKS_MAX)
        return refuse(ret, TERN_INVALID, TAIL_TOO_LONG);
    if (!tail_is_replaceable(c, s))
        return refuse(
            ret, TERN_INVALID,
            "the session's table has no STATE of its committed length, or only in pages of its "
            "own: continue with the tokens that it has, or Abort it and Match again");
    return TERN_OK;
}

enum tern_err at_least_fits(const struct session *s, const struct req_fetch *r, uint32_t most,
                            struct reply *ret)
{
    if (r->at_least > most && r->at_least > s->written)
        return refuse_numbers(ret, TERN_INVALID,
                              "at_least is # tokens, and the whole chunks of the session's tokens "
                              "up to depth have only #: ask for at most that many",
                              r->at_least, most);
    return TERN_OK;
}

uint32_t tail_records(const struct core *c, const struct session *s, uint64_t step)
{
    return tail_is_there(c, s) && step > engine_at(c, s->engine)->done_min ? 1 : 0;
}

void tail_give_way(struct core *c, struct session *s, uint64_t step)
{
    struct list pages = LIST_EMPTY;

    for (uint32_t g = 0; g < session_pool(c, s)->ngroups; g++) {
        page_list_append(c, &pages, &s->owned[g]);
        s->base[g] = s->committed / session_pool(c, s)->group[g].layout.page_tokens;
    }
    s->written = s->allocated = s->committed;
    retire_release(c, engine_at(c, s->engine), step, &pages, (struct path){NONE, 0});
}
