/* The seam's pulls, their batches, and the pages that arrive. A batch is offered to the transports
 * in their order; the transport that takes it requests its pages and reports the results. The core
 * gets the batch's result when every page was answered. Called by the shell's owner thread and by
 * the transports.
 *
 * Invariant: a pull is idle only when nothing holds it, and only then are its slot and the batches
 * that it dropped reused. So a device or a data thread that ends late finds the batch of its
 * request, or a free one that still belongs to the pull. */
#include <stdatomic.h>

#include "base/check.h"
#include "seam/xfer/flow/transfers.h"

/* ------------------------------------------------------------------ quiet and broken */

static struct pull_id pull_id(const struct xfer *xfer, uint32_t slot)
{
    return (struct pull_id){slot, xfer->pull[slot].gen};
}

static void batch_put(struct xfer *xfer, uint32_t *at)
{
    xfer->batch[*at].next = xfer->batch_free;
    xfer->batch_free = *at;
    *at = NONE;
}

uint32_t xfer_batches(const struct xfer_config *c)
{
    uint32_t most = c->pulls * PULL_BATCHES_MAX;

    return c->batches > 0 && c->batches < most ? c->batches : most;
}

void pulls_init(struct xfer *xfer)
{
    xfer->batch_free = NONE;
    for (uint32_t i = xfer_batches(&xfer->config); i-- > 0;) {
        uint32_t number = i;

        batch_put(xfer, &number);
    }
    for (uint32_t i = 0; i < xfer->config.pulls; i++)
        for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++)
            xfer->pull[i].batch[b] = NONE;
}

static void pull_idle(struct xfer *xfer, struct xfer_pull *pull)
{
    xfer_pull_state_move(&pull->state, XFER_PULL_IDLE);
    pair_put(&pull->pair);
    for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++) {
        if (pull->batch[b] == NONE)
            continue;
        check(!batch_used(&xfer->batch[pull->batch[b]]));
        batch_put(xfer, &pull->batch[b]);
    }
}

/* The only place that emits EV_PULL_QUIET. */
static void pull_quiet(struct xfer *xfer, uint32_t slot)
{
    struct xfer_pull *pull = &xfer->pull[slot];
    struct event event = {.kind = EV_PULL_QUIET, .pull_quiet = {.pull = pull_id(xfer, slot)}};

    if (pull->state != XFER_PULL_STOPPING || pull->holds > 0)
        return;
    for (uint32_t i = 0; i < xfer->ntransports; i++) {
        const struct transport *t = &xfer->transport[i];

        check(!t->own || !t->ops->holds(t, slot));
    }
    pull_idle(xfer, pull);
    xfer->config.emit(xfer->config.ctx, &event);
}

void pull_hold(struct xfer *xfer, uint32_t slot)
{
    xfer->pull[slot].holds++;
}

void pull_release(struct xfer *xfer, uint32_t slot)
{
    check(xfer->pull[slot].holds > 0);
    xfer->pull[slot].holds--;
    pull_quiet(xfer, slot);
}

/* Inserts after the other batches of its pull and before those of pulls that began later. */
static void queue_push(struct xfer *xfer, struct batch_queue *queue, uint32_t number)
{
    uint64_t began = xfer->pull[xfer->batch[number].pull].began;
    uint32_t *at = &queue->head;

    while (*at != NONE && xfer->pull[xfer->batch[*at].pull].began <= began)
        at = &xfer->batch[*at].next;
    xfer->batch[number].next = *at;
    *at = number;
}

static struct lane *lane_of(struct xfer *xfer, const struct batch *batch)
{
    return &xfer->link[xfer->pull[batch->pull].peer_link].lane[batch->lane];
}

static void queue_remove(struct xfer *xfer, uint32_t number)
{
    struct lane *lane = lane_of(xfer, &xfer->batch[number]);
    uint32_t *at = &lane->queue.head;

    while (*at != number) {
        check(*at != NONE);
        at = &xfer->batch[*at].next;
    }
    *at = xfer->batch[number].next;
    if (lane->queue.head == NONE)
        lane_wait(xfer, lane, 0);
}

/* Forgets all requests of the pull. */
static void pull_drop(struct xfer *xfer, uint32_t slot)
{
    const uint32_t *batch = xfer->pull[slot].batch;

    for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++) {
        if (batch[b] == NONE || !batch_used(&xfer->batch[batch[b]]))
            continue;
        if (xfer->batch[batch[b]].state == BATCH_QUEUED)
            queue_remove(xfer, batch[b]);
        batch_state_move(&xfer->batch[batch[b]].state, BATCH_FREE);
    }
    for (uint32_t i = 0; i < xfer->ntransports; i++)
        if (xfer->transport[i].own)
            xfer->transport[i].ops->drop(&xfer->transport[i], slot);
}

void pull_break(struct xfer *xfer, uint32_t slot, enum tern_err err)
{
    struct event event = {.kind = EV_PULL_BROKEN,
                          .broken = {.pull = pull_id(xfer, slot), .err = err}};

    if (xfer->pull[slot].state != XFER_PULL_ACTIVE)
        return;
    xfer_pull_state_move(&xfer->pull[slot].state, XFER_PULL_BROKEN);
    pull_drop(xfer, slot);
    xfer->config.emit(xfer->config.ctx, &event);
}

void queue_break(struct xfer *xfer, const struct batch_queue *queue, enum tern_err err)
{
    while (queue->head != NONE) {
        uint32_t head = queue->head;

        pull_break(xfer, xfer->batch[head].pull, err);
        check(queue->head != head); /* a queued batch belongs to an active pull */
    }
}

/* ------------------------------------------------------------------ for operators */

bool xfer_pull_view(const struct xfer *xfer, struct pull_id pull, struct xfer_flow_view *ret)
{
    if (pull.slot >= xfer->config.pulls || xfer->pull[pull.slot].gen != pull.gen)
        return false;
    *ret = xfer->pull[pull.slot].seen;
    return true;
}

/* ------------------------------------------------------------------ what the core asks for */

static struct xfer_pull *pull_of(struct xfer *xfer, struct pull_id id)
{
    check(id.slot < xfer->config.pulls);
    return &xfer->pull[id.slot];
}

static void pull_begin(struct xfer *xfer, struct pull_id id, uint32_t peer_link)
{
    struct xfer_pull *pull = pull_of(xfer, id);

    check(pull->state != XFER_PULL_STOPPING && pull->holds == 0);
    if (pull->state != XFER_PULL_IDLE)
        pull_idle(xfer, pull);
    xfer_pull_state_move(&pull->state, XFER_PULL_ACTIVE);
    pull->gen = id.gen;
    pull->peer_link = peer_link;
    pull->holds = 0;
    pull->seen = (struct xfer_flow_view){0};
    pull->began = ++xfer->pulls_begun;
    pull->decided = false;
}

/* Returns the pull's entry of that batch; NONE: a free entry. */
static uint32_t *place_of(struct xfer_pull *pull, uint32_t number)
{
    for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++)
        if (pull->batch[b] == number)
            return &pull->batch[b];
    check_failed("batches of a pull in flight <= PULL_BATCHES_MAX", __FILE__, __LINE__);
}

/* Takes a free batch. There is one, because the core requests at most xfer_batches at a time. */
static uint32_t batch_take(struct xfer *xfer, uint32_t slot)
{
    uint32_t number = xfer->batch_free;

    check(number != NONE);
    *place_of(&xfer->pull[slot], NONE) = number;
    xfer->batch_free = xfer->batch[number].next;
    return number;
}

/* Puts a batch into that transport's queue, with nothing requested yet. */
static void batch_queue(struct xfer *xfer, uint32_t number, const struct transport *t)
{
    struct batch *batch = &xfer->batch[number];

    batch->lane = t->lane;
    batch->gone = false;
    batch->asked = batch->answered = batch->lost = 0;
    memset(batch->ok, 0, sizeof batch->ok);
    memset(batch->again, 0, sizeof batch->again);
    batch_state_move(&batch->state, BATCH_QUEUED);
    queue_push(xfer, &lane_of(xfer, batch)->queue, number);
}

/* Equal layouts also need a plan if several ranks hold the same data. RDMA copies pages unchanged
 * and needs none. */
static bool comes_as_it_is(struct xfer *xfer, const struct action *act)
{
    const struct transport *t = transport_for(xfer, act->pull.link, act->pull.pool, NULL);

    return act->pull.layout_hash == 0 ||
           (t && !t->ops->reshards &&
            act->pull.layout_hash == pairs_own_hash(xfer, act->pull.pool));
}

/* Takes the plan that both ends follow for another layout. Returns false if the pull broke. */
static bool pull_pair(struct xfer *xfer, const struct action *act)
{
    struct xfer_pull *pull = pull_of(xfer, act->pull.pull);
    const struct pair_ask ask = {
        .pool = act->pull.pool, .peer = act->pull.link, .other_hash = act->pull.layout_hash};
    enum tern_err err = TERN_OK;

    if (!pull->decided && !comes_as_it_is(xfer, act))
        err = pair_take(xfer, &ask, &pull->pair);
    pull->decided = true;
    if (err != TERN_OK)
        pull_break(xfer, act->pull.pull.slot, err);
    else if (pull->pair)
        xfer_link_resharded(xfer, act->pull.link, act->pull.pool);
    return err == TERN_OK;
}

/* Returns true if the action's spans match the pair. Both follow from the source's messages. */
static bool spans_agree(const struct xfer *xfer, const struct action *act)
{
    const struct pair *pair = xfer->pull[act->pull.pull.slot].pair;
    const struct page_at *page = act->pull.pages;

    if (!pair)
        return !act->pull.spans;
    for (uint32_t i = 0; i < act->pull.n; i++) {
        const struct pair_group *g = &pair->group[page->group];
        const struct pull_span span =
            act->pull.spans ? act->pull.spans[i] : (struct pull_span){.pages = 1, .n = 1};

        if (span.pages != g->to_pages || span.n == 0 ||
            (uint32_t)span.first + span.n > g->from_pages ||
            (!act->pull.spans && g->from_pages > 1))
            return false;
        page += span.pages;
    }
    return true;
}

static void batch_fill(struct batch *batch, const struct action *act)
{
    uint32_t pages = 0;

    for (uint32_t i = 0; i < act->pull.n; i++) {
        const struct pull_span one = {.pages = 1, .n = 1},
                               span = act->pull.spans ? act->pull.spans[i] : one;

        check(pages + span.pages <= PULL_BATCH_PAGES);
        batch->span[i] =
            (struct batch_span){.page = (uint16_t)pages, .first = span.first, .n = span.n};
        pages += span.pages;
    }
    memcpy(batch->page, act->pull.pages, pages * sizeof *batch->page);
    memcpy(batch->ref, act->pull.refs, act->pull.n * sizeof *batch->ref);
}

static struct transport *transport_of_pull(struct xfer *xfer, const struct action *act)
{
    if (!xfer->link[act->pull.link].up)
        return NULL;
    if (xfer->pull[act->pull.pull.slot].pair)
        return transport_reshards(xfer);
    return transport_for(xfer, act->pull.link, act->pull.pool, NULL);
}

void xfer_pull(struct xfer *xfer, const struct action *act)
{
    struct xfer_pull *pull = pull_of(xfer, act->pull.pull);
    uint32_t slot = act->pull.pull.slot, number;
    struct transport *t;
    struct batch *batch;

    check(act->pull.link < xfer->config.links);
    check(act->pull.n >= 1 && act->pull.n <= PULL_BATCH_PAGES);
    if (pull->gen != act->pull.pull.gen || pull->state == XFER_PULL_IDLE)
        pull_begin(xfer, act->pull.pull, act->pull.link);
    if (pull->state != XFER_PULL_ACTIVE)
        return; /* broken; the core does not know yet */
    if (!pull_pair(xfer, act))
        return;
    if (!spans_agree(xfer, act)) {
        pull_break(xfer, slot, TERN_UNSUPPORTED);
        return;
    }
    t = transport_of_pull(xfer, act);
    if (!t) {
        pull_break(xfer, slot, TERN_PEER_LOST);
        return;
    }
    number = batch_take(xfer, slot);
    batch = &xfer->batch[number];
    batch->pull = slot;
    batch->pool = act->pull.pool;
    batch->tenant = mem_place(xfer->config.mem, act->pull.pool)->tenant;
    batch->number = act->pull.batch;
    batch->n = act->pull.n;
    batch->serve = act->pull.serve;
    batch->prefetch = act->pull.prefetch;
    batch_fill(batch, act);
    batch_queue(xfer, number, t);
    t->ops->pump(t, act->pull.link);
}

void xfer_pull_stop(struct xfer *xfer, const struct action *act)
{
    struct xfer_pull *pull = pull_of(xfer, act->pull_stop.pull);
    uint32_t slot = act->pull_stop.pull.slot;

    if (pull->gen != act->pull_stop.pull.gen || pull->state == XFER_PULL_IDLE) {
        check(pull->holds == 0); /* nothing was requested, or all was answered */
        if (pull->gen != act->pull_stop.pull.gen)
            pull->seen = (struct xfer_flow_view){0};
        pull->gen = act->pull_stop.pull.gen;
        xfer_pull_state_move(&pull->state, XFER_PULL_STOPPING);
    } else if (pull->state != XFER_PULL_STOPPING) {
        xfer_pull_state_move(&pull->state, XFER_PULL_STOPPING);
        pull_drop(xfer, slot);
    }
    pull_quiet(xfer, slot);
}

/* ------------------------------------------------------------------ asking and answering */

uint64_t batch_page_bytes(const struct xfer *xfer, const struct batch *batch, uint32_t i)
{
    const struct pair *pair = xfer->pull[batch->pull].pair;
    const uint32_t group = batch_pages(batch, i)->group;

    if (pair)
        return pair_plan_of(pair, group, batch->ref[i].index)->bytes * batch->span[i].n;
    return mem_transfer_bytes(xfer->config.mem, batch->pool, group);
}

uint32_t batch_page_sums(const struct xfer *xfer, const struct batch *batch, uint32_t i)
{
    const struct pair *pair = xfer->pull[batch->pull].pair;
    const uint32_t group = batch_pages(batch, i)->group;

    if (pair)
        return pair->group[group].sums * batch->span[i].n;
    return mem_transfer_sums(xfer->config.mem, batch->pool, group);
}

/* Returns the next page to request, lost ones first. *ret_end: end of the pages to request with
 * it. */
static uint32_t next_of(const struct batch *batch, uint32_t *ret_end)
{
    uint32_t first = 0, end;

    while (first < batch->asked && !xfer_bit(batch->again, first))
        first++;
    for (end = first; end < batch->asked && xfer_bit(batch->again, end);)
        end++;
    *ret_end = first < batch->asked ? end : batch->n;
    return first;
}

struct batch_part batch_cut(const struct xfer *xfer, uint32_t number, uint64_t bytes_max,
                            uint32_t sums_max)
{
    const struct batch *batch = &xfer->batch[number];
    uint32_t regions = mem_place(xfer->config.mem, batch->pool)->transfer_regions, sums = 0, end,
             stretches = 0;
    struct batch_part part = {.batch = number, .first = next_of(batch, &end)};
    bool resharded = xfer->pull[batch->pull].pair != NULL; /* its stretches are not counted here */

    for (uint32_t i = part.first; i < end; i++) {
        uint64_t bytes = batch_page_bytes(xfer, batch, i);
        uint32_t more = batch_page_sums(xfer, batch, i);

        if (!resharded)
            stretches += regions;
        if (part.n > 0 && (part.page_bytes + bytes > bytes_max || sums + more > sums_max ||
                           stretches > XFER_PIECE_PARTS))
            break;
        part.n++;
        part.page_bytes += bytes;
        sums += more;
    }
    part.sums_bytes = sums * (uint32_t)sizeof(uint64_t);
    return part;
}

/* X8, as in the core: a prefetch whose turn it is, then batches that a decode waits for, then other
 * prefetches. */
static uint32_t rank_of(const struct xfer *xfer, const struct batch *batch)
{
    if (!batch->prefetch)
        return 1;
    return xfer->urgent_run[batch->tenant] + 1 >= PREFETCH_EVERY ? 0 : 2;
}

uint32_t batch_in_turn(const struct transport *t, uint32_t peer_link,
                       bool (*ready)(const struct transport *t, uint32_t peer_link,
                                     uint32_t tenant))
{
    const struct lane *lane = transport_lane(t, peer_link);
    const struct batch *batch = t->xfer->batch;
    uint32_t first = NONE, turns = 4 * MEM_TENANTS_MAX;

    for (uint32_t b = lane->queue.head; b != NONE && turns > 0; b = batch[b].next) {
        uint32_t before = (batch[b].tenant + MEM_TENANTS_MAX - 1 - lane->turn) % MEM_TENANTS_MAX;

        before = 4 * before + rank_of(t->xfer, &batch[b]);

        if (before >= turns || (ready && !ready(t, peer_link, batch[b].tenant)))
            continue;
        first = b;
        turns = before;
    }
    return first;
}

void batch_asked(struct xfer *xfer, uint32_t number, uint32_t n)
{
    struct batch *batch = &xfer->batch[number];
    uint32_t end, first = next_of(batch, &end);

    check(batch->state == BATCH_QUEUED && n <= end - first);
    lane_of(xfer, batch)->turn = batch->tenant;
    if (batch->prefetch)
        xfer->urgent_run[batch->tenant] = 0;
    else if (xfer->urgent_run[batch->tenant] < PREFETCH_EVERY)
        xfer->urgent_run[batch->tenant]++;
    if (first == batch->asked)
        batch->asked += n;
    else
        for (uint32_t i = first; i < first + n; i++)
            batch->again[i / 64] &= ~(1ull << (i % 64));
    if (batch->asked < batch->n || next_of(batch, &end) < batch->n)
        return;
    queue_remove(xfer, number);
    batch_state_move(&batch->state, BATCH_ASKED);
}

void batch_again(struct xfer *xfer, uint32_t number, uint32_t first, uint32_t n)
{
    struct batch *batch = &xfer->batch[number];

    check(first + n <= batch->asked && n > 0);
    for (uint32_t i = first; i < first + n; i++)
        xfer_set_bit(batch->again, i);
    xfer->stats.pages_again += n;
    if (batch->state == BATCH_QUEUED)
        return;
    batch_state_move(&batch->state, BATCH_QUEUED);
    queue_push(xfer, &lane_of(xfer, batch)->queue, number);
}

void batch_gone(struct xfer *xfer, uint32_t number)
{
    xfer->batch[number].gone = true;
    xfer->stats.gone_answers++;
}

static void batch_done(struct xfer *xfer, uint32_t number)
{
    struct batch *batch = &xfer->batch[number];
    struct event event = {.kind = EV_PULLED};

    if (batch->gone) {
        pull_break(xfer, batch->pull, TERN_GONE);
        return;
    }
    batch_state_move(&batch->state, BATCH_FREE);
    batch_put(xfer, place_of(&xfer->pull[batch->pull], number));
    event.pulled.pull = pull_id(xfer, batch->pull);
    event.pulled.batch = batch->number;
    memcpy(event.pulled.ok, batch->ok, sizeof batch->ok);
    xfer->config.emit(xfer->config.ctx, &event);
}

void batch_answered(struct xfer *xfer, uint32_t number, uint32_t n)
{
    struct batch *batch = &xfer->batch[number];

    batch->answered += n;
    check(batch->answered <= batch->asked);
    if (batch->answered == batch->n)
        batch_done(xfer, number);
}

/* ------------------------------------------------------------------ another transport */

static struct transport *another_for(struct xfer *xfer, const struct batch *batch)
{
    if (xfer->pull[batch->pull].pair)
        return NULL;
    return transport_for(xfer, xfer->pull[batch->pull].peer_link, batch->pool,
                         &xfer->transport[batch->lane]);
}

bool batch_has_another_way(struct xfer *xfer, uint32_t number)
{
    return another_for(xfer, &xfer->batch[number]) != NULL;
}

void batch_hand_on(struct xfer *xfer, uint32_t number, enum tern_err err)
{
    const struct batch *batch = &xfer->batch[number];
    const struct transport *t = another_for(xfer, batch);

    if (!t) {
        pull_break(xfer, batch->pull, err);
        return;
    }
    if (batch->state == BATCH_QUEUED)
        queue_remove(xfer, number);
    xfer->stats.batches_moved++;
    batch_queue(xfer, number, t);
}

void transports_pump_after(struct xfer *xfer, const struct transport *t, uint32_t peer_link)
{
    for (uint32_t i = t->lane + 1; i < xfer->ntransports; i++)
        if (xfer->transport[i].own)
            xfer->transport[i].ops->pump(&xfer->transport[i], peer_link);
}

/* ------------------------------------------------------------------ pages that arrive */

/* Returns how many of our pages the page or span has. */
static uint32_t pages_of(const struct xfer *xfer, const struct batch *batch, uint32_t i)
{
    const struct pair *pair = xfer->pull[batch->pull].pair;

    return pair ? pair->group[batch_pages(batch, i)->group].to_pages : 1;
}

void arrival_begin(struct arrival *a, struct xfer *xfer, uint32_t number, uint32_t i,
                   const uint64_t *sums)
{
    const struct batch *batch = &xfer->batch[number];

    a->xfer = xfer;
    a->batch = number;
    a->i = i;
    a->at = 0;
    mem_verify_begin(&a->verify, xfer->config.mem, batch->pool, batch_pages(batch, i), sums);
}

/* Fault injection: flips a bit in fault_corrupt_pages distinct pages, once each. `page`: of the
 * batch, the first of a span; `at`: the page of the flipped bit. */
static void inject(struct xfer *xfer, uint32_t pool, const struct page_at *page,
                   const struct page_at *at, uint32_t region, uint64_t where)
{
    if (xfer->injected[page->record] == (uint64_t)page->gen + 1)
        return;
    if (atomic_fetch_add(&xfer->injections, 1) >= xfer->config.fault_corrupt_pages) {
        atomic_fetch_sub(&xfer->injections, 1);
        return;
    }
    xfer->injected[page->record] = (uint64_t)page->gen + 1;
    mem_verify_spoil(xfer->config.mem, pool, at, region, where);
}

/* Injects in one region, once the byte has arrived. */
static void inject_reached(const struct arrival *a, uint32_t region, uint64_t to)
{
    const struct batch *batch = &a->xfer->batch[a->batch];
    const struct page_at *page = batch_pages(batch, a->i);
    uint64_t where = (page->record * 2654435761u) % a->verify.page_bytes;

    if (region == page->record % a->verify.regions && where >= a->at && where < to)
        inject(a->xfer, batch->pool, page, page, region, where);
}

/* Injects in the first byte of a resharded span. */
static void inject_resharded(struct xfer *xfer, uint32_t number, uint32_t i,
                             const struct mem_reshard *way)
{
    const struct batch *batch = &xfer->batch[number];
    const struct page_at *page = batch_pages(batch, i);
    struct reshard_cursor c = {.piece = 0};
    struct reshard_run run;

    if (reshard_cursor_next(way->plan, way->part, &c, &run))
        inject(xfer, batch->pool, page, &page[run.to.page], run.to.rank, run.to.at);
}

bool arrival_resharded(struct xfer *xfer, uint32_t number, uint32_t i, const uint64_t *sums)
{
    const struct batch *batch = &xfer->batch[number];
    const struct page_at *pages = batch_pages(batch, i);
    const struct pair *pair = xfer->pull[batch->pull].pair;
    const struct pair_group *g = &pair->group[pages->group];
    const struct pair_plan *plan = pair_plan_of(pair, pages->group, batch->ref[i].index);
    const struct mem_reshard way = {.from = &g->from,
                                    .plan = &plan->plan,
                                    .map = &plan->map,
                                    .map_of = plan->map_of,
                                    .held = g->held,
                                    .turn = (uint64_t)batch->ref[i].index * g->from_pages,
                                    .part = {batch->span[i].first, batch->span[i].n},
                                    .pages = g->to_pages};

    if (xfer->injected)
        inject_resharded(xfer, number, i, &way);
    return mem_reshard_landed(xfer->config.mem, batch->pool, pages, &way, sums);
}

void arrival_reached(struct arrival *a, uint32_t region, uint64_t to)
{
    if (a->xfer->injected)
        inject_reached(a, region, to);
    mem_verify_arrived(&a->verify, region, to);
    a->at = to < a->verify.page_bytes ? to : 0;
}

void arrival_end(struct xfer *xfer, uint32_t number, uint32_t i, bool right)
{
    struct batch *batch = &xfer->batch[number];
    struct xfer_flow_view *seen = &xfer->pull[batch->pull].seen;
    uint64_t bytes = batch_page_bytes(xfer, batch, i);

    xfer->stats.payload_bytes_in += bytes;
    lane_of(xfer, batch)->bytes_in += bytes;
    seen->pages += pages_of(xfer, batch, i);
    seen->bytes += bytes;
    rate_add(&seen->rate, io_now_ns(), bytes);
    if (!right) {
        xfer->stats.corrupt_detected++;
        return;
    }
    xfer_set_bit(batch->ok, i);
    xfer->stats.pages_in += pages_of(xfer, batch, i);
    if (xfer->transport[batch->lane].ops->rdma) {
        xfer->stats.verbs_pages_in++;
        xfer->stats.verbs_bytes_in += bytes;
    }
}
