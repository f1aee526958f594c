/* Commit-chunk (T6-T8): a session's next whole chunk becomes a prefix node, or the session adopts
 * the node that is there. Engines commit what they wrote; transfers publish what arrived; both go
 * through chunk_attach. */
#include "core/machine.h"

uint32_t chunk_pages(const struct pool *p, uint32_t group)
{
    return p->align / p->group[group].layout.page_tokens;
}

static void node_take_pages(struct core *c, const struct pool *p, uint32_t slot,
                            struct page_list *from)
{
    struct node *n = node_at(c, slot);

    for (uint32_t g = 0; g < p->ngroups; g++) {
        struct page_list pages;

        list_init(&pages);
        for (uint32_t i = 0; i < chunk_pages(p, g); i++) {
            uint32_t record = list_pop_head(c, &from[g]);

            page_move(c, page_at(c, record), PAGE_COMMITTED, slot);
            list_push(c, &pages, record);
        }
        n->pages[g] = pages.head;
    }
}

static void move_pin(struct core *c, struct session *s, uint32_t node)
{
    node_pin(c, node, REF_DEVICE);
    node_unpin(c, s->node, REF_DEVICE);
    s->node = node;
    s->t += session_pool(c, s)->align;
}

static enum tern_err attach_new(struct core *c, struct session *s, struct token_view *w,
                                struct chunk_source *src)
{
    const struct pool *p = session_pool(c, s);
    const struct node *parent;
    uint32_t slot = node_create(c, s->node, w);
    struct node *n;

    if (slot == NONE)
        return TERN_BUSY;
    n = node_at(c, slot);
    tokens_take_chunk(c, &s->tokens, p->align, &n->tokens, &n->keys);
    node_take_pages(c, p, slot, src->pages);
    if (src->sealed)
        n->seal = SEAL_DONE;
    parent = node_at(c, s->node);
    if (!node_visible(parent) && *src->step < parent->pending_step)
        *src->step = parent->pending_step; /* a chunk is not seen before what it continues */
    n->pending_engine = s->engine;
    n->pending_step = *src->step;
    n->pending_next = *src->pending;
    *src->pending = slot;
    move_pin(c, s, slot);
    return TERN_OK;
}

enum tern_err chunk_attach(struct core *c, struct session *s, struct chunk_source *src,
                           bool *ret_adopted)
{
    const struct pool *p = session_pool(c, s);
    struct req_tokens none = {0};
    struct token_view w = session_view(c, s, s->tokens.end, &none);
    uint32_t child = node_child(c, s->node, &w), blocks, keys;

    *ret_adopted = child != NONE;
    if (child == NONE)
        return attach_new(c, s, &w, src);
    if (!node_visible(node_at(c, child)) && node_at(c, child)->pending_engine != s->engine)
        return TERN_GONE; /* T8: it may still vanish with the engine that wrote it */
    tokens_take_chunk(c, &s->tokens, p->align, &blocks, &keys);
    tokens_free_blocks(c, blocks);
    tokens_free_keys(c, keys);
    for (uint32_t g = 0; g < p->ngroups; g++)
        for (uint32_t i = 0; i < chunk_pages(p, g); i++)
            list_push(c, src->duplicates, list_pop_head(c, &src->pages[g]));
    move_pin(c, s, child);
    return TERN_OK;
}

/* The canonical pages of the chunk that ends at the session's T, one run a group. */
static void adopted_runs(struct core *c, struct actions *out, const struct session *s,
                         uint32_t first_run)
{
    const struct pool *p = session_pool(c, s);

    for (uint32_t g = 0; g < p->ngroups; g++) {
        uint32_t n = chunk_pages(p, g), first = s->t / p->group[g].layout.page_tokens - n;
        struct table_run *last = out->nruns > first_run ? &out->runs[out->nruns - 1] : NULL;
        struct page_ref *refs;

        if (p->ngroups == 1 && last && last->group == g && last->first + last->n == first &&
            last->refs + last->n == out->refs + out->nrefs) {
            refs = out->refs + out->nrefs; /* goes on where the last chunk's run ended */
            out->nrefs += n;
            last->n += n;
        } else {
            refs = run_add(out, g, first, n);
        }
        check(refs);
        node_refs(c, s->node, g, first, refs);
    }
}

/* For the duplicates and for the new nodes, where either may have to wait. Asked for each chunk:
 * one that is adopted may itself be pending, and then whatever follows it is. */
static bool records_ready(const struct core *c, const struct engine *e, const struct session *s,
                          uint64_t step)
{
    return c->free_retires.n >= 2 || (step <= e->done_min && node_visible(node_at(c, s->node)));
}

enum tern_err session_commit(struct core *c, struct actions *out, struct engine *e,
                             struct session *s, const struct step_op *op)
{
    const struct pool *p = session_pool(c, s);
    struct page_list duplicates;
    uint32_t pending = NONE, chunk = 0, first_run = out->nruns;
    uint64_t step = op->step;
    struct chunk_source src = {s->owned, &duplicates, &pending, &step, false};
    enum tern_err err = TERN_OK;
    bool adopted;

    list_init(&duplicates);
    for (uint32_t g = 0; g < p->ngroups; g++)
        chunk += chunk_pages(p, g);
    if (op->length <= s->t || s->state == SESSION_OPEN)
        return TERN_OK; /* T6 has no target: nothing to do */
    while (err == TERN_OK && s->t + p->align <= op->length) {
        if (s->t + p->align > s->c)
            err = TERN_INVALID; /* T6: what is not written cannot be committed; earlier targets stay
                                 */
        else if (!refs_fit(out, p->ngroups, chunk) || !records_ready(c, e, s, op->step))
            err = TERN_BUSY;
        else
            err = chunk_attach(c, s, &src, &adopted);
        if (err == TERN_OK && adopted)
            adopted_runs(c, out, s, first_run);
    }
    if (err == TERN_GONE)
        err = TERN_OK; /* the answer's lengths tell the depth reached */
    if (BUG(CORE_BUG_ADOPT_FREES_DUPS))
        pages_free(c, &duplicates);
    retire_release(c, e, op->step, &duplicates, NONE);
    retire_publish(c, e, step, pending);
    session_use(c, s);
    return err;
}
