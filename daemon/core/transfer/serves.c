/* Transfers out: a peer asked for a prefix. SEALING: its pages are pinned (X4), some checksums are
 * still being computed. OPEN: offered, the peer reads. STOPPING: over; the pin stays until the data
 * path proves that nothing reads. */
#include "core/transfer/serves.h"

#include <string.h>

#include "core/arena/actions.h"
#include "core/memory/pages.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

static struct serve *serve_find(const struct core *c, struct serve_id id)
{
    struct serve *s;

    if (id.slot >= c->limits.serves)
        return NULL;
    s = serve_at(c, id.slot);
    return s->state != SERVE_EMPTY && s->gen == id.gen ? s : NULL;
}

static struct serve_id serve_id(const struct core *c, const struct serve *s)
{
    return (struct serve_id){.slot = serve_slot(c, s), .gen = s->gen};
}

/* Links of one peer follow each other; what the older one began counts as the peer's. */
static uint32_t serve_holder(const struct core *c, const struct peer_msg *m, uint32_t link)
{
    uint32_t peers = c->limits.peers ? c->limits.peers : 1;

    return m->tenant * peers + link_at(c, link)->peer;
}

static void serve_free(struct core *c, struct serve *s)
{
    uint32_t slot = serve_slot(c, s);

    state_unhold(c, (struct path){s->node, s->state_from});
    node_unpin(c, s->node, REF_TRANSFER);
    pool_at(c, s->pool)->serves--;
    share_put(c, SHARE_SERVES, s->holder);
    serve_list_remove(c, &c->serves_active, slot);
    serve_state_move(&s->state, SERVE_EMPTY);
    serve_slot_put(c, slot);
    touch(c);
}

static void serve_set_ending(struct core *c, struct serve *s, enum tern_err tell)
{
    if (s->state != SERVE_SEALING && s->state != SERVE_OPEN)
        return;
    serve_state_move(&s->state, s->state == SERVE_SEALING ? SERVE_SEALING_ENDS : SERVE_OPEN_ENDS);
    s->err = tell;
    touch(c);
}

/* --- asked --- */

struct found {
    uint32_t pool, node;
    bool other_layout;
};

static void find_prefix(struct core *c, const struct peer_msg *m, struct found *ret)
{
    ret->pool = ret->node = NONE;
    ret->other_layout = false;
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        const struct pool *p = pool_at(c, i);
        struct token_view w = {.c = c,
                               .align = p->align,
                               .end = m->to,
                               .v = m->tokens,
                               .keys = m->keys,
                               .nkeys = m->nkeys,
                               .cursor_block = NONE};
        uint32_t root, node;

        if (p->state != POOL_OPEN || p->tenant != m->tenant)
            continue;
        root = space_root(c, i, m->ns);
        if (root == NONE)
            continue;
        if (p->layout_hash != m->layout_hash) {
            ret->other_layout = true;
            continue;
        }
        node = state_walk(c, root, &w);
        if (ret->node == NONE || node_at(c, node)->depth > node_at(c, ret->node)->depth) {
            ret->pool = i;
            ret->node = node;
        }
    }
}

static void offer_nothing(struct actions *out, uint32_t link, const struct peer_msg *m,
                          enum tern_err err, uint32_t retry_ms)
{
    struct peer_msg *reply;
    struct action *a = action_add(out, ACT_PEER_SEND);

    a->peer.link = link;
    reply = &a->peer.msg;
    reply->kind = PEER_PULL_OFFER;
    reply->pull = m->pull;
    reply->trace_id = m->trace_id;
    reply->err = err;
    reply->retry_ms = retry_ms;
    reply->from = reply->to = m->from;
    reply->history = m->history;
}

static struct serve *serve_create(struct core *c, uint32_t link, const struct peer_msg *m,
                                  const struct found *f)
{
    uint32_t slot = serve_slot_take(c), gen;
    struct serve *s = serve_at(c, slot);

    gen = gen_next(s->gen);
    memset(s, 0, sizeof *s);
    s->gen = gen;
    serve_state_move(&s->state, SERVE_SEALING);
    serve_list_push(c, &c->serves_active, slot);
    s->link = link;
    s->holder = serve_holder(c, m, link);
    share_take(c, SHARE_SERVES, s->holder);
    s->pool = f->pool;
    s->node = s->wait_node = f->node;
    s->from = m->from;
    s->asked_history = m->history;
    s->history = m->history > m->from ? m->history : m->from;
    s->to = node_at(c, f->node)->depth;
    s->pull = m->pull;
    s->trace_id = m->trace_id;
    s->started_ns = c->now_ns;
    s->deadline_ns = c->now_ns + c->limits.transfer_deadline_ns;
    s->state_from = state_low(c, f->node) > m->from ? state_low(c, f->node) : m->from;
    node_pin(c, f->node, REF_TRANSFER);
    state_hold(c, (struct path){f->node, s->state_from});
    pool_at(c, f->pool)->serves++;
    return s;
}

/* Goes up to the first node whose checksums are missing; NONE when all of [from, to) are there. */
static void serve_advance(const struct core *c, struct serve *s)
{
    while (s->wait_node != NONE) {
        const struct node *n = node_at(c, s->wait_node);

        if (n->depth <= s->history && n->depth <= s->state_from)
            s->wait_node = NONE;
        else if (n->work.seal == SEAL_DONE)
            s->wait_node = n->parent;
        else
            return;
    }
}

static void serve_open(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *m)
{
    struct req_tokens t = {.v = m->tokens, .n = m->to, .keys = m->keys, .nkeys = m->nkeys};
    struct found f;

    if (m->tenant >= c->limits.tenants) {
        offer_nothing(out, link, m, TERN_DENIED, 0);
        return;
    }
    if (m->from > m->to || m->history > m->to || m->to > FETCH_TOKENS_MAX ||
        m->nkeys > EXTRA_KEYS_MAX || !keys_in_order(&t)) {
        offer_nothing(out, link, m, TERN_INVALID, 0);
        return;
    }
    find_prefix(c, m, &f);
    if (f.node == NONE || node_at(c, f.node)->depth <= m->from) {
        offer_nothing(out, link, m, f.node == NONE && f.other_layout ? TERN_UNSUPPORTED : TERN_OK,
                      0);
        return;
    }
    if (m->from % pool_at(c, f.pool)->align != 0 || m->history % pool_at(c, f.pool)->align != 0) {
        offer_nothing(out, link, m, TERN_INVALID, 0);
        return;
    }
    if (share_room(c, SHARE_SERVES, serve_holder(c, m, link)) == 0) {
        offer_nothing(out, link, m, TERN_BUSY, c->limits.busy_retry_ms);
        return;
    }
    /* It was in the table of a session once, which has at most REPLY_REFS_MAX pages: so may an
     * offer. */
    node_use(c, f.node);
    serve_advance(c, serve_create(c, link, m, &f));
}

void serve_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *m)
{
    if (m->kind == PEER_PULL_OPEN) {
        serve_open(c, out, link, m);
        return;
    }
    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i)) {
        struct serve *s = serve_at(c, i);

        if (s->link == link && pull_id_equal(s->pull, m->pull))
            serve_set_ending(c, s, TERN_OK);
    }
}

void serve_sealed(struct core *c, uint32_t node)
{
    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i))
        if (serve_at(c, i)->state == SERVE_SEALING && serve_at(c, i)->wait_node == node)
            serve_advance(c, serve_at(c, i));
}

void serve_link_down(struct core *c, uint32_t link)
{
    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i))
        if (serve_at(c, i)->link == link)
            serve_set_ending(c, serve_at(c, i), TERN_OK);
}

void serve_end_pool(struct core *c, uint32_t pool)
{
    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i))
        if (serve_at(c, i)->pool == pool)
            serve_set_ending(c, serve_at(c, i), TERN_GONE);
}

void serve_proved_quiet(struct core *c, struct serve_id id)
{
    struct serve *s = serve_find(c, id);

    if (s && s->state == SERVE_STOPPING)
        serve_free(c, s);
}

/* --- offering and ending, as there is room --- */

static struct peer_msg *msg_add(struct core *c, struct actions *out, const struct serve *s,
                                enum peer_msg_kind kind)
{
    struct action *a = action_add(out, ACT_PEER_SEND);

    a->peer.link = s->link;
    a->peer.msg.kind = kind;
    a->peer.msg.pull = s->pull;
    a->peer.msg.serve = serve_id(c, s);
    a->peer.msg.trace_id = s->trace_id;
    return &a->peer.msg;
}

/* False: no room. The data path is told first, so that no request can come before it knows. */
static bool offer(struct core *c, struct actions *out, struct serve *s)
{
    const struct pool *p = pool_at(c, s->pool);
    struct peer_msg *m;
    struct action *a;

    if (actions_room(out) < 2 ||
        !refs_fit(out, (struct runs_wanted){
                           .runs = p->ngroups,
                           .refs = transfer_refs(
                               p, (struct transfer_span){s->from, s->asked_history, s->to})}))
        return false;
    a = action_add(out, ACT_SERVE_START);
    a->serve.serve = serve_id(c, s);
    a->serve.pool = s->pool;
    m = msg_add(c, out, s, PEER_PULL_OFFER);
    m->from = s->from;
    m->history = s->asked_history;
    m->to = s->to;
    m->runs = out->runs + out->nruns;
    m->nruns = p->ngroups;
    for (uint32_t g = 0; g < p->ngroups; g++) {
        struct transfer_range mv = transfer_pages(
            p, &p->group[g], (struct transfer_span){s->from, s->asked_history, s->to});

        node_refs(c, s->node, &p->group[g], mv.first,
                  run_add(out, (struct table_run){.group = g, .first = mv.first, .n = mv.n}));
        c->pages_served += mv.n;
    }
    serve_state_move(&s->state, SERVE_OPEN);
    touch(c);
    return true;
}

static bool finish(struct core *c, struct actions *out, struct serve *s)
{
    struct action *a;

    if (actions_room(out) < 2)
        return false;
    if (s->err != TERN_OK && link_at(c, s->link)->up) {
        enum peer_msg_kind kind = s->state == SERVE_OPEN_ENDS ? PEER_PULL_ABORT : PEER_PULL_OFFER;
        struct peer_msg *m = msg_add(c, out, s, kind);

        m->err = s->err;
        m->from = m->to = s->from;
    }
    if (s->state == SERVE_SEALING_ENDS) {
        serve_free(c, s);
        return true;
    }
    a = action_add(out, ACT_SERVE_STOP);
    a->serve.serve = serve_id(c, s);
    serve_state_move(&s->state, SERVE_STOPPING);
    touch(c);
    return true;
}

bool serve_flush(struct core *c, struct actions *out)
{
    bool all = true;

    for (uint32_t i = c->serves_active.head, next; i != NONE; i = next) {
        struct serve *s = serve_at(c, i);

        next = s->active.next;
        if (s->state != SERVE_STOPPING && c->now_ns >= s->deadline_ns)
            serve_set_ending(c, s, TERN_TIMED_OUT);
        if (s->state == SERVE_SEALING_ENDS || s->state == SERVE_OPEN_ENDS)
            all = finish(c, out, s) && all;
        else if (s->state == SERVE_SEALING && s->wait_node == NONE)
            all = offer(c, out, s) && all;
    }
    return all;
}

uint64_t serve_deadline(const struct core *c)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i)) {
        const struct serve *s = serve_at(c, i);

        if (s->state != SERVE_STOPPING && s->deadline_ns < first)
            first = s->deadline_ns;
    }
    return first;
}

enum tern_err core_serve_page(const struct core *c, struct serve_id serve, uint32_t group,
                              struct page_ref ref, uint32_t *ret_record)
{
    const struct serve *s = serve_find(c, serve);
    const struct page *pg;

    if (!s || (s->state != SERVE_OPEN && s->state != SERVE_OPEN_ENDS))
        return TERN_GONE;
    pg = page_find(c, pool_at(c, s->pool), group, ref);
    /* The page has to be of the namespace that was asked for, and its checksum has to be known, so
     * a peer cannot reach beside its transfer. */
    if (!pg || pg->state != PAGE_COMMITTED ||
        node_at(c, pg->owner)->space != node_at(c, s->node)->space || pg->seal != PAGE_SEAL_DONE)
        return TERN_GONE;
    *ret_record = page_record(c, pg);
    return TERN_OK;
}
