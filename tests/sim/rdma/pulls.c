/* The destination's core: reserves pages, asks for them in batches, receives the results, repeats
 * the requests for damaged pages, and stops, at the end or before it. Pages that a pull leaves
 * unpublished are reused at the moment at which the seam reports QUIET (model.c). */
#include "world.h"

#include "base/check.h"

static void step_later(struct rnode *node, struct rpull *pull)
{
    uint32_t at = node->number * PULLS + (uint32_t)(pull - node->pull);

    rw_post(rw_soon(), T_PULL, at, ++pull->step);
}

/* Pages of that kind and group, from a random place on; in order, so that many are adjacent. */
static uint32_t collect(const struct rnode *node, uint32_t pool, uint32_t group,
                        enum page_kind kind, uint32_t most, uint32_t *ret)
{
    uint32_t places = rmem_places(), from = rw_below(places), n = 0;

    for (uint32_t i = 0; i < places && n < most; i++) {
        uint32_t place = (from + i) % places;

        if (rmem_group(place) == group && node->pool[pool].page[place].kind == kind)
            ret[n++] = place;
    }
    return n;
}

static void reserve(struct rnode *node, struct rpull *pull)
{
    const struct rnode *source = &rw.node[pull->source];

    for (uint32_t i = 0; i < pull->n; i++) {
        struct rpage *page = &node->pool[pull->pool].page[pull->place[i]];
        const struct rpage *from = &source->pool[pull->pool].page[pull->from_place[i]];

        pull->from_gen[i] = from->gen;
        pull->from_tag[i] = from->tag;
        pull->todo[pull->ntodo++] = i;
        *page = (struct rpage){.kind = PG_RESERVED,
                               .gen = page->gen + 1,
                               .tag = page->tag,
                               .owner = pull->uid,
                               .from_node = pull->source,
                               .from_place = pull->from_place[i],
                               .from_gen = from->gen,
                               .from_tag = from->tag};
    }
}

struct rpull *pulls_start(uint32_t number, uint32_t source, uint32_t pool, uint32_t pages)
{
    struct rnode *node = &rw.node[number];
    struct rpull *pull;
    const struct rserve *serve;
    uint32_t slot = 0, gen, n = 0;

    while (slot < PULLS && node->pull[slot].phase != PULL_NOT)
        slot++;
    if (slot == PULLS || !node->alive || !rw.node[source].alive ||
        !rw.link[number][source].up_here || !rw.link[number][source].up_there)
        return NULL;
    pull = &node->pull[slot];
    gen = pull->gen + 1;
    memset(pull, 0, sizeof *pull);
    for (uint32_t g = 0; g < rw.cfg.groups; g++) {
        uint32_t had = n, from, to;

        from = collect(&rw.node[source], pool, g, PG_COMMITTED, pages - had, pull->from_place + n);
        to = collect(node, pool, g, PG_FREE, from, pull->place + n);
        n += to;
    }
    pull->gen = gen;
    if (n == 0)
        return NULL;
    pull->n = n;
    pull->source = source;
    pull->pool = pool;
    pull->link = link_out(number, source);
    pull->uid = ++rw.uids;
    pull->calm = !rw.faults;
    reserve(node, pull);
    serve = serves_start(pull, number);
    if (!serve) { /* the source is full */
        for (uint32_t i = 0; i < n; i++)
            node->pool[pool].page[pull->place[i]].kind = PG_FREE;
        return NULL;
    }
    pull->serve = (struct serve_id){(uint32_t)(serve - rw.node[source].serve), serve->gen};
    pull->phase = PULL_RUNS;
    step_later(node, pull);
    return pull;
}

/* ------------------------------------------------------------------ asking and stopping */

static void ask(struct rnode *node, struct rpull *pull)
{
    struct page_at pages[PULL_PAGES];
    struct page_ref refs[PULL_PAGES];
    struct action act = {.kind = ACT_PULL};
    struct rbatch *b = pull->batch;
    uint32_t n = rw_between(1, pull->ntodo < 8 ? pull->ntodo : 8);

    if (rw_one_in(2) && pull->ntodo <= PULL_PAGES)
        n = pull->ntodo;
    while (b->used)
        b++;
    *b = (struct rbatch){.used = true, .number = pull->batches++, .n = n};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = pull->todo[i], place = pull->place[at];
        struct rpage *page = &node->pool[pull->pool].page[place];

        b->at[i] = at;
        page->excused = 0;
        page->came_by = 0;
        pages[i] = (struct page_at){.group = rmem_group(place),
                                    .index = rmem_index(place),
                                    .gen = page->gen,
                                    .record = pull->pool * PAGES + place};
        refs[i] = (struct page_ref){rmem_index(pull->from_place[at]), pull->from_gen[at]};
        pull->tries[at]++;
    }
    pull->ntodo -= n;
    memmove(pull->todo, pull->todo + n, pull->ntodo * sizeof pull->todo[0]);
    act.pull.pull = (struct pull_id){(uint32_t)(pull - node->pull), pull->gen};
    act.pull.serve = pull->serve;
    act.pull.link = pull->link;
    act.pull.pool = pull->pool;
    act.pull.batch = b->number;
    act.pull.n = n;
    act.pull.pages = pages;
    act.pull.refs = refs;
    rw.current = node->number;
    xfer_pull(node->xfer, &act);
}

static bool batch_free(const struct rpull *pull)
{
    for (uint32_t i = 0; i < PULL_BATCHES_MAX; i++)
        if (!pull->batch[i].used)
            return true;
    return false;
}

static bool batch_out(const struct rpull *pull)
{
    for (uint32_t i = 0; i < PULL_BATCHES_MAX; i++)
        if (pull->batch[i].used)
            return true;
    return false;
}

void pulls_step(uint32_t at, uint32_t step)
{
    struct rnode *node = &rw.node[at / PULLS];
    struct rpull *pull = &node->pull[at % PULLS];

    if (!node->alive || pull->phase != PULL_RUNS || pull->step != step)
        return;
    if (pull->heard_broken || pull->failed > 0 || (pull->ntodo == 0 && !batch_out(pull))) {
        pulls_stop(node, pull);
        return;
    }
    if (pull->ntodo > 0 && batch_free(pull)) {
        ask(node, pull);
        if (pull->ntodo > 0)
            step_later(node, pull);
    }
}

void pulls_stop(struct rnode *node, struct rpull *pull)
{
    struct action act = {.kind = ACT_PULL_STOP};

    check(pull->phase == PULL_RUNS);
    pull->phase = PULL_STOPS;
    if (pull->n == pull->right)
        rw_mark(RM_pulled_all);
    if (rnic_outstanding(node->number) > 0)
        rw_mark(RM_stopped_with_requests_out);
    act.pull_stop.pull = (struct pull_id){(uint32_t)(pull - node->pull), pull->gen};
    rw_post(rw_soon(), T_SERVE, pull->source * SERVES + pull->serve.slot, pull->serve.gen);
    rw.current = node->number;
    xfer_pull_stop(node->xfer, &act);
}

void pulls_link_down(uint32_t number, uint32_t link)
{
    struct rnode *node = &rw.node[number];

    for (uint32_t i = 0; i < PULLS; i++)
        if (node->pull[i].phase == PULL_RUNS && node->pull[i].link == link) {
            node->pull[i].heard_broken = true;
            step_later(node, &node->pull[i]);
        }
}

void pulls_node_gone(uint32_t number)
{
    struct rnode *node = &rw.node[number];

    for (uint32_t i = 0; i < PULLS; i++) {
        if (node->pull[i].phase != PULL_NOT && rnic_outstanding(number) > 0)
            rw_mark(RM_killed_with_requests_out);
        node->pull[i].phase = PULL_NOT;
        node->pull[i].step++;
    }
    for (uint32_t i = 0; i < SERVES; i++)
        node->serve[i].used = node->serve[i].live = false;
    node->nemitted = 0;
}

bool pulls_stopping(uint64_t owner)
{
    for (uint32_t n = 0; n < rw.cfg.nodes; n++)
        for (uint32_t i = 0; i < PULLS; i++)
            if (rw.node[n].pull[i].phase == PULL_STOPS && rw.node[n].pull[i].uid == owner)
                return true;
    return false;
}

/* ------------------------------------------------------------------ hearing */

static struct rpull *of(struct rnode *node, struct pull_id id)
{
    struct rpull *pull = &node->pull[id.slot];

    check(id.slot < PULLS && pull->gen == id.gen);
    return pull;
}

/* The page belongs to a snapshot now: peers may ask for it. */
static void publish(struct rnode *node, uint32_t pool, uint32_t place)
{
    struct rpage *page = &node->pool[pool].page[place];

    if (page->kind != PG_VERIFIED)
        return; /* the pull has ended, and the page with it */
    page->kind = PG_COMMITTED;
    page->gen++;
    page->owner = 0;
}

static void heard_pulled(struct rnode *node, struct rpull *pull, const struct event *event)
{
    struct rbatch *b = pull->batch;

    while (!b->used || b->number != event->pulled.batch)
        b++;
    b->used = false;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t at = b->at[i];

        if (event->pulled.ok[i / 64] >> (i % 64) & 1) {
            pull->right++;
            if (rw_one_in(2))
                publish(node, pull->pool, pull->place[at]);
        } else if (pull->tries[at] < PULL_TRIES_MAX) {
            pull->todo[pull->ntodo++] = at;
        } else {
            pull->failed++;
        }
    }
    if (pull->phase == PULL_RUNS)
        step_later(node, pull);
}

void pulls_heard(struct rnode *node, const struct event *event)
{
    struct rpull *pull;

    if (event->kind == EV_SERVE_QUIET) {
        node->serve[event->serve_quiet.serve.slot].used = false;
        return;
    }
    pull = of(node, event->kind == EV_PULLED        ? event->pulled.pull
                    : event->kind == EV_PULL_BROKEN ? event->broken.pull
                                                    : event->pull_quiet.pull);
    if (event->kind == EV_PULL_QUIET) {
        pull->phase = PULL_NOT;
    } else if (event->kind == EV_PULLED) {
        heard_pulled(node, pull, event);
    } else if (pull->phase == PULL_RUNS) {
        pull->heard_broken = true;
        step_later(node, pull);
    }
}

/* ------------------------------------------------------------------ pages that change */

void pulls_recycle(uint32_t number, uint32_t pool, uint32_t place)
{
    struct rpage *page = &rw.node[number].pool[pool].page[place];

    if (page->kind != PG_COMMITTED && page->kind != PG_FREE)
        return;
    page->gen++;
    if (rw_one_in(2))
        rmem_write(number, pool, place, ++rw.tags);
    page->kind = rw_one_in(2) ? PG_COMMITTED : PG_FREE;
    if (page->kind == PG_COMMITTED)
        rmem_commit(number, pool, place);
}
