/* The seam's events, each checked at once against what the models saw. The rules: a page reported
 * right has exactly the bytes of the (page, generation) that was asked for, and all of them were
 * read while that page was there and might leave (P1). A page reported wrong was damaged by a
 * fault. A pull ends QUIET once, after its stop, and nothing follows. From then on no device can
 * write its pages, no write lands there, and they are rewritten at once (P2, memory.c). */
#include "world.h"

static void page_right(struct rnode *node, const struct rpull *pull, uint32_t at)
{
    uint32_t place = pull->place[at];
    struct rpage *page = &node->pool[pull->pool].page[place];

    if (page->kind != PG_RESERVED || page->owner != pull->uid)
        rw_fail("reported_twice", "page %u of node %u", place, node->number);
    if (!rmem_holds(node->number, pull->pool, place, pull->from_tag[at]))
        rw_fail("wrong_bytes", "page %u of node %u is said to be page %u of node %u", place,
                node->number, pull->from_place[at], pull->source);
    if (page->stale)
        rw_fail("stale_published", "page %u of node %u was read when page %u had passed", place,
                node->number, pull->from_place[at]);
    if (!rmem_sums_right(node->number, pull->pool, place))
        rw_fail("wrong_sums", "page %u of node %u", place, node->number);
    page->kind = PG_VERIFIED;
    page->tag = pull->from_tag[at];
}

static bool something_is_gone(const struct rpull *pull)
{
    const struct rnode *source = &rw.node[pull->source];
    const struct rserve *serve = &source->serve[pull->serve.slot];

    if (!serve->used || !serve->live || serve->gen != pull->serve.gen)
        return true;
    for (uint32_t i = 0; i < pull->n; i++) {
        const struct rpage *page = &source->pool[pull->pool].page[pull->from_place[i]];

        if (page->kind != PG_COMMITTED || page->gen != pull->from_gen[i])
            return true;
    }
    return false;
}

static void page_wrong(const struct rnode *node, const struct rpull *pull, uint32_t at)
{
    const struct rpage *page = &node->pool[pull->pool].page[pull->place[at]];

    /* Pages that the source gave up may have changed on the way. The tail of the answer would have
     * reported that, but a path that dies takes the tail with it, and other paths continue. */
    if (page->excused == 0 && rw.cfg.connections > 1 && something_is_gone(pull))
        return;
    if (page->excused == 0)
        rw_fail("wrong_without_cause", "page %u of node %u is right, and reported wrong",
                pull->place[at], node->number);
    if (page->excused & EXCUSE_FLIP)
        rw_mark(RM_flip_detected);
    else if (page->excused & EXCUSE_LATE)
        rw_mark(RM_early_completion_detected);
}

static void said_pulled(struct rnode *node, struct rpull *pull, const struct event *event)
{
    const struct rbatch *b = pull->batch;

    if (pull->phase != PULL_RUNS || pull->broken)
        rw_fail("pulled_after_end", "node %u pull %u", node->number, event->pulled.pull.slot);
    while (b < pull->batch + PULL_BATCHES_MAX && (!b->used || b->number != event->pulled.batch))
        b++;
    if (b == pull->batch + PULL_BATCHES_MAX)
        rw_fail("pulled_unasked", "node %u batch %u", node->number, event->pulled.batch);
    for (uint32_t i = 0; i < b->n; i++) {
        if (event->pulled.ok[i / 64] >> (i % 64) & 1)
            page_right(node, pull, b->at[i]);
        else
            page_wrong(node, pull, b->at[i]);
    }
}

static void said_broken(const struct rnode *node, struct rpull *pull, enum tern_err err)
{
    if (pull->phase != PULL_RUNS || pull->broken)
        rw_fail("broken_after_end", "node %u pull uid %llu", node->number,
                (unsigned long long)pull->uid);
    if (err != TERN_GONE && err != TERN_PEER_LOST && err != TERN_BUSY)
        rw_fail("untyped_end", "node %u: error %d", node->number, (int)err);
    if (err == TERN_GONE && !something_is_gone(pull))
        rw_fail("gone_without_cause", "node %u: all pages of its pull are there", node->number);
    rw_mark(err == TERN_GONE ? RM_gone : RM_peer_lost);
    for (uint32_t i = 0; err == TERN_GONE && i < pull->n; i++)
        if (node->pool[pull->pool].page[pull->place[i]].stale) {
            rw_mark(RM_recycled_under_way);
            break;
        }
    pull->broken = true;
    pull->err = err;
}

static void said_quiet(struct rnode *node, struct rpull *pull)
{
    if (pull->phase != PULL_STOPS || pull->quiet)
        rw_fail("quiet_unasked", "node %u pull uid %llu", node->number,
                (unsigned long long)pull->uid);
    if (rnic_may_write(pull->uid))
        rw_fail("quiet_too_early", "node %u: a device may still write for pull uid %llu",
                node->number, (unsigned long long)pull->uid);
    pull->quiet = true;
    for (uint32_t i = 0; i < pull->n; i++) {
        struct rpage *page = &node->pool[pull->pool].page[pull->place[i]];

        if (page->owner != pull->uid)
            continue;
        if (page->kind == PG_RESERVED)
            rw_mark(RM_reused_at_quiet);
        page->kind = PG_FREE;
        page->owner = 0;
        page->gen++;
        rmem_write(node->number, pull->pool, pull->place[i], ++rw.tags);
    }
}

static struct rpull *pull_of(struct rnode *node, struct pull_id id)
{
    if (id.slot >= PULLS || node->pull[id.slot].phase == PULL_NOT ||
        node->pull[id.slot].gen != id.gen || node->pull[id.slot].quiet)
        rw_fail("said_after_quiet", "node %u pull %u of generation %u", node->number, id.slot,
                id.gen);
    return &node->pull[id.slot];
}

static void said_serve_quiet(struct rnode *node, struct serve_id id)
{
    struct rserve *s = &node->serve[id.slot];

    if (id.slot >= SERVES || !s->used || s->live || s->quiet || s->gen != id.gen)
        rw_fail("serve_quiet_unasked", "node %u serve %u", node->number, id.slot);
    s->quiet = true;
}

void model_said(struct rnode *node, const struct event *event)
{
    rw_mix((uint64_t)event->kind << 8 | node->number);
    switch ((int)event->kind) {
    case EV_PULLED: said_pulled(node, pull_of(node, event->pulled.pull), event); break;
    case EV_PULL_BROKEN:
        said_broken(node, pull_of(node, event->broken.pull), event->broken.err);
        break;
    case EV_PULL_QUIET: said_quiet(node, pull_of(node, event->pull_quiet.pull)); break;
    case EV_SERVE_QUIET: said_serve_quiet(node, event->serve_quiet.serve); break;
    default: rw_fail("unknown_event", "kind %d", (int)event->kind);
    }
}
