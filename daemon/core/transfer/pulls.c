/* The records of transfers in, and their end. ASKED: the source was asked. PUT_OFF: the source is
 * busy and is asked again; of a tenant's transfers over one link only the oldest asks, so that
 * later ones do not overtake it. WAITING: the source has not published enough and is asked again;
 * or peers are asked who has the tokens, and one of them becomes the source. RUNNING: pages are
 * RESERVED and arrive batch by batch (pull_data.c). GIVEN_UP: the source refused a page, and its
 * message with the cause is awaited for a bounded time. STOPPING: over for the session; unpublished
 * pages are in QUARANTINE until the data path proves that nothing can write them (EV_PULL_QUIET).
 * Invariant: no other way leads out of quarantine. fetch/fetch.c handles a session's requests and
 * results; it calls pull_stop for every transfer, once. */
#include "core/transfer/pulls.h"

#include <string.h>

#include "core/arena/actions.h"
#include "core/disk/entries.h"
#include "core/memory/pages.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

uint32_t pull_holder(const struct core *c, const struct engine *e, uint32_t peer)
{
    return e->tenant * sources_of(&c->limits) + (peer < c->limits.peers ? peer : c->limits.peers);
}

bool pull_may_begin(const struct core *c, uint32_t holder, bool prefetch)
{
    return prefetch ? share_leaves(c, SHARE_PULLS, holder) : share_room(c, SHARE_PULLS, holder) > 0;
}

void pull_bytes_add(const struct core *c, const struct pull *p, uint64_t bytes)
{
    link_at(c, p->link)->bytes_in_flight += bytes;
    tenant_at(c, p->tenant)->bytes_in_flight += bytes;
    flow_at(c, p->holder)->bytes_in_flight += bytes;
}

struct pull *pull_create(struct core *c, const struct engine *e, uint32_t peer)
{
    const uint32_t holder = pull_holder(c, e, peer);
    uint32_t slot = pull_slot_take(c, holder), gen;
    struct pull *p = pull_at(c, slot);

    gen = gen_next(p->gen);
    memset(p, 0, sizeof *p);
    p->gen = gen;
    p->retry = NONE;
    p->engine = engine_slot(c, e);
    p->tenant = e->tenant;
    p->link = peer;
    p->chunk = p->ask = NONE;
    p->blob = (struct token_buf){.align = TOKEN_BLOCK, .owner = {.tenant = (uint16_t)e->tenant}};
    tokens_init(&p->blob, 0);
    p->holder = holder;
    p->times.stage_since_ns = p->times.wait_since_ns = c->now_ns;
    pull_state_move(&p->state, PULL_ASKED);
    pull_list_push(c, &c->pulls_active, slot);
    for (uint32_t g = 0; g < c->limits.groups; g++) {
        p->pages[g] = LIST_EMPTY;
        p->cursor[g] = NONE;
    }
    touch(c);
    return p;
}

bool pull_goes_to(struct core *c, struct pull *p, uint32_t peer)
{
    const uint32_t holder = pull_holder(c, engine_at(c, p->engine), peer);

    if (holder != p->holder && !pull_may_begin(c, holder, p->prefetch))
        return false;
    share_put(c, SHARE_PULLS, p->holder);
    share_take(c, SHARE_PULLS, holder);
    p->gen = gen_next(p->gen); /* later messages of the former source name no transfer */
    p->holder = holder;
    p->link = peer;
    p->asks = p->seeks = 0;
    p->ask_ns = c->now_ns;
    p->give_up_ns = 0;
    touch(c);
    return true;
}

/* Unpins the resident HISTORY that the fetch found. */
static void pull_history_unpin(struct core *c, struct pull *p)
{
    if (p->history_node != NONE)
        node_unpin(c, p->history_node, REF_TRANSFER);
    p->history_node = NONE;
}

/* --- a busy source --- */

/* A fetch that a decode waits for does not queue behind a prefetch. */
static bool beside(const struct pull *a, const struct pull *b)
{
    return a->tenant == b->tenant && a->link == b->link && a->prefetch == b->prefetch;
}

bool pull_is_behind(const struct core *c, const struct pull *p)
{
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i))
        if (pull_at(c, i)->leads && beside(pull_at(c, i), p))
            return pull_at(c, i) != p;
    return false;
}

void pull_put_off(struct core *c, struct pull *p, enum pull_busy why, uint32_t retry_ms)
{
    p->busy = why;
    if (retry_ms > PULL_RETRY_MS_MAX)
        retry_ms = PULL_RETRY_MS_MAX;
    p->retry_ms = retry_ms;
    p->ask_ns = c->now_ns + (p->asks > 0 ? retry_ms * NS_PER_MS : 0);
    if (p->give_up_ns == 0)
        p->give_up_ns = c->now_ns + PULL_BUSY_MS_MAX * NS_PER_MS;
    p->leads = !pull_is_behind(c, p);
    pull_state_move(&p->state, PULL_PUT_OFF);
    touch(c);
}

void pull_take_first(struct core *c, struct pull *p)
{
    p->ask_ns = c->now_ns;
    pull_state_move(&p->state, PULL_WAITING);
    touch(c);
}

bool pull_takes_first(const struct pull *p)
{
    return p->follow && p->state == PULL_WAITING && p->npages == 0;
}

void pull_led(struct core *c, struct pull *p)
{
    if (!p->leads)
        return;
    p->leads = 0;
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        struct pull *next = pull_at(c, i);

        if (next->state != PULL_PUT_OFF || !beside(next, p))
            continue;
        next->leads = 1;
        return;
    }
}

bool pull_asks_again(const struct pull *p)
{
    return (p->state == PULL_WAITING && !p->seeks) || (p->state == PULL_PUT_OFF && p->leads);
}

void pull_wait(struct core *c, struct pull *p)
{
    p->wait_ms = p->wait_ms ? 2 * p->wait_ms : 1;
    if (p->wait_ms > PULL_WAIT_MS_MAX)
        p->wait_ms = PULL_WAIT_MS_MAX;
    p->ask_ns = c->now_ns + p->wait_ms * NS_PER_MS;
    p->asks = 0; /* the source is not busy */
    p->give_up_ns = 0;
    pull_state_move(&p->state, PULL_WAITING);
    pull_led(c, p);
    touch(c);
}

uint32_t pull_awaits(const struct core *c, const struct pull *p)
{
    return c->now_ns < p->wait_until_ns ? p->at_least : 0;
}

static void pull_free(struct core *c, struct pull *p)
{
    uint32_t slot = pull_slot(c, p);

    pull_led(c, p);
    pull_list_remove(c, &c->pulls_active, slot);
    pull_history_unpin(c, p);
    if (p->chunk != NONE)
        disk_unpin(c, p->chunk);
    p->chunk = NONE;
    tokens_truncate(c, &p->blob, 0);
    pull_state_move(&p->state, PULL_EMPTY);
    tenant_at(c, p->tenant)->batches -= p->batches;
    p->batches = 0;
    pull_slot_put(c, slot, p->holder);
    touch(c);
}

struct peer_msg *pull_send(const struct core *c, struct actions *out, const struct pull *p,
                           enum peer_msg_kind kind)
{
    struct peer_msg *m = peer_msg_add(out, p->link, kind);

    m->pull = pull_id(c, p);
    m->serve = p->serve;
    m->trace_id = p->reply.trace_id;
    return m;
}

/* --- the source's offer --- */

static struct transfer_span span_to(const struct pull *p, uint32_t to)
{
    return (struct transfer_span){p->from, p->history, to};
}

static struct group as_there(const struct group *g, uint32_t their_tokens)
{
    struct group there = *g;

    if (their_tokens != 0)
        there.layout.page_tokens = their_tokens;
    return there;
}

static bool runs_fit(const struct pool *pool, const struct pull *p, const struct peer_msg *msg)
{
    const struct transfer_piece piece = {msg->at, peer_msg_until(msg), p->follow};

    if (msg->nruns != pool->ngroups || msg->serve.gen == 0 || !spans_suit(pool, msg->page_tokens))
        return false;
    for (uint32_t g = 0; g < msg->nruns; g++) {
        const struct table_run *run = &msg->runs[g];
        const struct group there = as_there(&pool->group[g], msg->page_tokens[g]);
        const struct transfer_range range =
            transfer_piece_pages(pool, &there, span_to(p, msg->to), piece);

        if (run->group != g ||
            run->n != spans_of(range, span_shape(&pool->group[g], msg->page_tokens[g]).theirs))
            return false;
        for (uint32_t i = 0; i < run->n; i++)
            if (run->refs[i].gen == 0)
                return false; /* it names no page */
    }
    return true;
}

/* The blob is sent once: first of all, or for a followed session last of all. */
static uint32_t blob_most(const struct pull *p, const struct peer_msg *msg)
{
    bool in_turn = p->follow ? peer_msg_until(msg) == msg->to : p->state == PULL_ASKED;

    return p->ticket.id.gen != 0 && in_turn ? TICKET_BLOB_BYTES : 0;
}

bool pull_offer_fits(const struct core *c, const struct pull *p, const struct peer_msg *msg)
{
    const struct pool *pool = pool_at(c, p->pool);
    uint32_t until = peer_msg_until(msg);

    if (msg->from != p->from || msg->history != p->history || msg->to < msg->from ||
        msg->to > p->to || (p->ticket.id.gen == 0 && msg->to % pool->align != 0) ||
        msg->blob_bytes > blob_most(p, msg))
        return false;
    if (p->state == PULL_RUNNING &&
        (msg->to != p->to || !serve_id_equal(msg->serve, p->serve) ||
         memcmp(msg->page_tokens, p->source_tokens, sizeof p->source_tokens) != 0))
        return false;
    if (p->state == PULL_ASKED && msg->to == msg->from && until == msg->to)
        return true; /* no page moves, and named pages are ignored */
    if (msg->to < p->awaited || (p->ticket.id.gen != 0 && msg->to != p->to))
        return false;
    return msg->at == (p->state == PULL_RUNNING ? p->told : 0) && until > msg->at &&
           until <= msg->to &&
           (until == msg->to || (until > p->from && until % pool->align == 0)) &&
           runs_fit(pool, p, msg);
}

/* Restarts a follower's time: a transfer's while pages are in flight, a ticket's while the source
 * computes. */
void pull_time(const struct core *c, struct pull *p)
{
    if (p->follow)
        p->deadline_ns = c->now_ns + (p->done_pages < p->told_pages ? c->limits.transfer_deadline_ns
                                                                    : c->limits.ticket_deadline_ns);
}

void pull_told(struct core *c, struct pull *p, const struct peer_msg *msg)
{
    for (uint32_t g = 0; g < pool_at(c, p->pool)->ngroups; g++) {
        for (uint32_t i = 0; i < msg->runs[g].n; i++) {
            page_at(c, p->untold[g])->source = msg->runs[g].refs[i];
            page_at(c, p->untold[g])->named = 1;
            p->untold[g] = pull_span_after(c, p, p->untold[g]);
            p->told_pages += pull_span_shape(c, p, g).ours;
        }
    }
    p->told = peer_msg_until(msg);
    pull_time(c, p);
    touch(c);
}

static uint32_t take_page(struct core *c, struct pull *p, uint32_t g)
{
    struct pool *pool = pool_at(c, p->pool);
    uint32_t record = page_take(c, pool, g, PAGE_RESERVED, pull_slot(c, p));

    page_at(c, record)->source = (struct page_ref){0};
    page_at(c, record)->named = 0;
    p->npages++;
    p->taken_bytes += pool->group[g].layout.page_bytes * p->transfer_regions;
    return record;
}

void pull_reserve(struct core *c, struct pull *p, uint32_t to)
{
    struct pool *pool = pool_at(c, p->pool);

    for (uint32_t g = 0; g < pool->ngroups; g++) {
        struct transfer_range range = transfer_pages(pool, &pool->group[g], span_to(p, to));

        for (uint32_t i = 0; i < range.n; i++)
            page_list_push(c, &p->pages[g], take_page(c, p, g));
        c->visits += range.n;
        p->cursor[g] = p->untold[g] = p->pages[g].head;
        p->base[g] = range.first;
    }
    p->to = to;
    p->told = 0;
}

/* --- spans --- */

struct span_shape pull_span_shape(const struct core *c, const struct pull *p, uint32_t g)
{
    return span_shape(&pool_at(c, p->pool)->group[g], p->source_tokens[g]);
}

uint32_t pull_span_after(const struct core *c, const struct pull *p, uint32_t record)
{
    for (uint32_t n = pull_span_shape(c, p, page_at(c, record)->group).ours; n > 0; n--)
        record = page_list_next(c, record);
    return record;
}

/* Pages that the range lacks of whole spans, at its beginning and at its end. */
static void range_lacks(struct transfer_range range, uint32_t pages, uint32_t *ret_front,
                        uint32_t *ret_back)
{
    const uint32_t over = (range.first + range.n) % pages;

    *ret_front = range.n > 0 ? range.first % pages : 0;
    *ret_back = range.n > 0 && over > 0 ? pages - over : 0;
}

void pull_spans_told(const struct core *c, struct pull *p, const struct peer_msg *msg, uint32_t to,
                     uint32_t ret_need[GROUPS_MAX])
{
    const struct pool *pool = pool_at(c, p->pool);

    memcpy(p->source_tokens, msg->page_tokens, sizeof p->source_tokens);
    for (uint32_t g = 0; g < pool->ngroups; g++) {
        range_lacks(transfer_pages(pool, &pool->group[g], span_to(p, to)),
                    pull_span_shape(c, p, g).ours, &p->front[g], &p->back[g]);
        ret_need[g] = p->front[g] + p->back[g];
    }
}

void pull_reserve_spans(struct core *c, struct pull *p)
{
    for (uint32_t g = 0; g < pool_at(c, p->pool)->ngroups; g++) {
        for (uint32_t i = 0; i < p->front[g]; i++)
            page_list_push_front(c, &p->pages[g], take_page(c, p, g));
        for (uint32_t i = 0; i < p->back[g]; i++)
            page_list_push(c, &p->pages[g], take_page(c, p, g));
        p->cursor[g] = p->untold[g] = p->pages[g].head;
        p->base[g] -= p->front[g];
    }
}

void pull_drop_front(struct core *c, struct pull *p)
{
    for (uint32_t g = 0; g < pool_at(c, p->pool)->ngroups; g++) {
        struct list dropped;

        dropped = LIST_EMPTY;
        for (; p->front[g] > 0 && page_at(c, p->pages[g].head)->state == PAGE_VERIFIED;
             p->front[g]--, p->base[g]++)
            page_list_push(c, &dropped, page_list_pop(c, &p->pages[g]));
        pages_free(c, &dropped);
    }
}

/* A range counted in the source's pages may begin and end within a span. */
struct pull_span pull_span_at(const struct core *c, const struct pull *p, uint32_t record)
{
    const struct pool *pool = pool_at(c, p->pool);
    const uint32_t g = page_at(c, record)->group;
    const struct group *here = &pool->group[g], there = as_there(here, p->source_tokens[g]);
    const struct span_shape shape = pull_span_shape(c, p, g);
    struct pull_span span = {.pages = (uint8_t)shape.ours, .n = (uint8_t)shape.theirs};
    struct transfer_range range;
    uint32_t over;

    if (shape.theirs == 1)
        return span;
    range = transfer_pages(pool, &there, span_to(p, p->to));
    over = (range.first + range.n) % shape.theirs;
    if (record == page_list_last(c, &p->pages[g]) && over > 0)
        span.n = (uint8_t)over;
    if (record == p->pages[g].head &&
        p->base[g] == transfer_pages(pool, here, span_to(p, p->to)).first)
        span.first = (uint8_t)(range.first % shape.theirs);
    span.n -= span.first;
    return span;
}

uint32_t pull_whole_from(const struct core *c, const struct pull *p)
{
    const struct pool *pool = pool_at(c, p->pool);
    uint32_t whole_from = 0;

    for (uint32_t g = 0; g < pool->ngroups; g++) {
        const struct group *here = &pool->group[g], there = as_there(here, p->source_tokens[g]);
        const struct transfer_range ours = transfer_pages(pool, here, span_to(p, p->to)),
                                    theirs = transfer_pages(pool, &there, span_to(p, p->to));
        const uint32_t came = theirs.first * there.layout.page_tokens,
                       at = came + here->layout.window;

        if (here->layout.family == FAMILY_WINDOW && ours.first * here->layout.page_tokens < came &&
            at > whole_from)
            whole_from = at;
    }
    return whole_from;
}

void pull_run(struct core *c, struct pull *p)
{
    pull_state_move(&p->state, PULL_RUNNING);
    pull_led(c, p);
}

/* --- end --- */

void pull_set_ending(struct core *c, struct pull *p, enum tern_err err)
{
    const bool runs = p->state == PULL_RUNNING || p->state == PULL_GIVEN_UP;

    if (!runs && p->state != PULL_ASKED && p->state != PULL_PUT_OFF && p->state != PULL_WAITING)
        return; /* the first cause counts (Y6) */
    pull_state_move(&p->state, runs ? PULL_RUNNING_ENDS : PULL_ASKED_ENDS);
    p->seeks = 0;
    p->err = err;
    touch(c);
}

void pull_set_busy(struct core *c, struct pull *p, enum pull_busy why)
{
    p->busy = why;
    pull_set_ending(c, p, TERN_BUSY);
}

void pull_broke_protocol(struct core *c, struct actions *out, struct pull *p)
{
    action_add(out, ACT_LINK_CLOSE)->link.link = p->link;
    pull_set_ending(c, p, TERN_PEER_LOST);
}

/* Ends an expired transfer: as TIMED_OUT; as BUSY if it waits for a busy source; as GONE if the
 * source gave no reason for refusing a page. */
void pull_check_time(struct core *c, struct pull *p)
{
    if (p->state == PULL_PUT_OFF && (c->now_ns >= p->give_up_ns || c->now_ns >= p->deadline_ns))
        pull_set_ending(c, p, TERN_BUSY);
    else if (p->state != PULL_STOPPING && c->now_ns >= p->deadline_ns)
        pull_set_ending(c, p, p->state == PULL_GIVEN_UP ? TERN_GONE : TERN_TIMED_OUT);
}

void pull_orphan(struct core *c, struct pull *p)
{
    p->session = NONE;
    pull_history_unpin(
        c, p); /* no more is published; a chunk that waits for a dying engine must be dropped */
    pull_set_ending(c, p, TERN_GONE);
    p->err = TERN_GONE; /* no client received success: the ticket is not used up */
}

void pull_engine_gone(struct core *c, uint32_t engine)
{
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        struct pull *p = pull_at(c, i);

        if (p->session == NONE || session_at(c, p->session)->engine != engine)
            continue;
        session_at(c, p->session)->pull = NONE;
        pull_orphan(c, p);
    }
}

bool pull_tries_next(struct core *c, struct pull *p)
{
    if (p->ask == NONE || (p->state != PULL_ASKED && p->state != PULL_WAITING))
        return false;
    pull_led(c, p);
    if (p->state == PULL_ASKED)
        pull_take_first(c, p);
    p->seeks = 1;
    return true;
}

void pull_link_down(struct core *c, uint32_t link)
{
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i))
        if (pull_at(c, i)->link == link && !pull_tries_next(c, pull_at(c, i)))
            pull_set_ending(c, pull_at(c, i), TERN_PEER_LOST);
}

/* Pages and messages use different connections: a source that refuses a page has sent, or will soon
 * send, the message with the reason. */
static void pull_given_up(struct core *c, struct pull *p)
{
    const uint64_t until_ns = c->now_ns + PULL_WORD_MS_MAX * NS_PER_MS;

    p->deadline_ns = p->deadline_ns < until_ns ? p->deadline_ns : until_ns;
    pull_state_move(&p->state, PULL_GIVEN_UP);
    touch(c);
}

void pull_broken(struct core *c, struct pull_id id, enum tern_err err)
{
    struct pull *p = pull_find(c, id);

    if (p && p->state == PULL_RUNNING && err == TERN_GONE)
        pull_given_up(c, p);
    else if (p && p->state == PULL_RUNNING)
        pull_set_ending(c, p, err);
}

static void forget_batches(struct core *c, struct pull *p)
{
    for (uint32_t i = 0; i < PULL_BATCHES_MAX; i++) {
        struct pull_batch *b = &p->batch[i];

        if (!b->used)
            continue;
        pull_bytes_add(c, p, -b->bytes);
        b->used = 0;
    }
}

static void quarantine(struct core *c, struct pull *p)
{
    for (uint32_t g = 0; g < c->limits.groups; g++)
        for (uint32_t at = p->pages[g].head; at != NONE; at = page_list_next(c, at), c->visits++) {
            page_move(c, page_at(c, at), PAGE_QUARANTINE, pull_slot(c, p));
            p->quarantined_ns = c->now_ns;
        }
}

static void pull_give_back(struct core *c, struct pull *p)
{
    for (uint32_t g = 0; g < c->limits.groups; g++) {
        c->visits += p->pages[g].n;
        pages_free(c, &p->pages[g]);
    }
    pull_free(c, p);
}

/* Ends the transfer: at once if no write was requested, else when the data path has proven that
 * nothing writes any more. Requires room for one action. */
void pull_stop(struct core *c, struct actions *out, struct pull *p)
{
    struct action *stop;

    if (p->state != PULL_RUNNING_ENDS) { /* no write was requested */
        pull_give_back(c, p);
        return;
    }
    pull_history_unpin(c, p); /* no more is published */
    forget_batches(c, p);
    quarantine(c, p);
    stop = action_add(out, ACT_PULL_STOP);
    stop->pull_stop.pull = pull_id(c, p);
    stop->pull_stop.link = p->link;
    pull_state_move(&p->state, PULL_STOPPING);
    touch(c);
}

void pull_proved_quiet(struct core *c, struct pull_id id)
{
    struct pull *p = pull_find(c, id);

    if (!p || p->state != PULL_STOPPING)
        return;
    pull_give_back(c, p);
}

uint64_t pull_deadline(const struct core *c)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        const struct pull *p = pull_at(c, i);

        if (p->state != PULL_STOPPING && p->deadline_ns < first)
            first = p->deadline_ns;
        if ((pull_asks_again(p) || p->seeks) && p->ask_ns < first)
            first = p->ask_ns;
        if (p->state == PULL_PUT_OFF && p->give_up_ns < first)
            first = p->give_up_ns;
    }
    return first;
}
