/* The source's core: which pages a peer may ask for, and until when. */
#include "world.h"

#include "base/check.h"

struct rserve *serves_start(const struct rpull *pull, uint32_t puller)
{
    struct rnode *node = &rw.node[pull->source];
    struct action act = {.kind = ACT_SERVE_START};
    struct rserve *s;
    uint32_t i = 0;

    while (i < SERVES && node->serve[i].used)
        i++;
    if (i == SERVES)
        return NULL;
    s = &node->serve[i];
    *s = (struct rserve){.used = true,
                         .live = true,
                         .gen = s->gen + 1 + node->life * 4096,
                         .pool = pull->pool,
                         .link = link_in(puller, pull->source),
                         .n = pull->n};
    memcpy(s->place, pull->from_place, sizeof s->place);
    memcpy(s->page_gen, pull->from_gen, sizeof s->page_gen);
    act.serve.serve = (struct serve_id){i, s->gen};
    act.serve.pool = s->pool;
    rw.current = node->number;
    xfer_serve_start(node->xfer, &act);
    return s;
}

void serves_stop(struct rnode *node, struct rserve *s)
{
    struct action act = {.kind = ACT_SERVE_STOP};

    if (!s->used || !s->live)
        return;
    s->live = false;
    act.serve.serve = (struct serve_id){(uint32_t)(s - node->serve), s->gen};
    rw.current = node->number;
    xfer_serve_stop(node->xfer, &act);
}

void serves_pull_over(uint32_t at, uint32_t gen)
{
    struct rnode *node = &rw.node[at / SERVES];
    struct rserve *s = &node->serve[at % SERVES];

    if (node->alive && s->gen == gen)
        serves_stop(node, s);
}

void serves_link_down(uint32_t number, uint32_t link)
{
    struct rnode *node = &rw.node[number];

    for (uint32_t i = 0; i < SERVES; i++)
        if (node->serve[i].used && node->serve[i].link == link)
            serves_stop(node, &node->serve[i]);
}

bool serves_cover(uint32_t number, uint32_t pool, uint32_t place, bool stopping_too)
{
    const struct rnode *node = &rw.node[number];

    for (uint32_t i = 0; i < SERVES; i++) {
        const struct rserve *s = &node->serve[i];

        if (!s->used || s->pool != pool || s->quiet || !(s->live || stopping_too))
            continue;
        for (uint32_t k = 0; k < s->n; k++)
            if (s->place[k] == place)
                return true;
    }
    return false;
}

enum tern_err serves_page(void *ctx, struct serve_id id, uint32_t group, struct page_ref ref,
                          uint32_t *ret_record)
{
    const struct rnode *node = ctx;
    const struct rserve *s = &node->serve[id.slot];
    uint32_t place = rmem_place(group, ref.index);

    check(id.slot < SERVES);
    if (!s->used || !s->live || s->gen != id.gen || place == NONE32)
        return TERN_GONE;
    for (uint32_t k = 0; k < s->n; k++) {
        const struct rpage *page = &node->pool[s->pool].page[place];

        if (s->place[k] != place || s->page_gen[k] != ref.gen)
            continue;
        if (page->kind != PG_COMMITTED || page->gen != ref.gen)
            return TERN_GONE;
        *ret_record = s->pool * PAGES + place;
        return TERN_OK;
    }
    return TERN_GONE;
}

bool serves_allowed(void *ctx, struct serve_id id, uint32_t link)
{
    const struct rnode *node = ctx;

    return id.slot >= SERVES || !node->serve[id.slot].used || !node->serve[id.slot].live ||
           node->serve[id.slot].gen != id.gen || node->serve[id.slot].link == link;
}
