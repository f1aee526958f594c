/* See serve_record.h. */
#include "core/transfer/serve_record.h"

#include <string.h>

#include "core/arena/actions.h"
#include "core/transfer/handed.h"
#include "core/transfer/spans.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

/* The share of the transfer that this message opens. A peer's successive links share it: transfers
 * of an older link still count. */
static uint32_t serve_holder(const struct core *c, const struct peer_msg *m, uint32_t link)
{
    uint32_t peers = c->limits.peers ? c->limits.peers : 1;

    return m->tenant * peers + link_at(c, link)->peer;
}

void serve_free(struct core *c, struct serve *s)
{
    uint32_t slot = serve_slot(c, s);

    state_unhold(c, (struct path){s->node, s->state_from});
    node_unpin(c, s->node, REF_TRANSFER);
    if (s->served)
        handed_serve(c, session_at(c, s->handed.slot), false);
    else if (s->follow && session_at(c, s->handed.slot)->follower == slot)
        handed_follow(c, session_at(c, s->handed.slot), NONE);
    pool_at(c, s->pool)->serves--;
    serve_list_remove(c, &c->serves_active, slot);
    serve_state_move(&s->state, SERVE_EMPTY);
    serve_slot_put(c, slot, s->holder);
    touch(c);
}

void serve_set_ending(struct core *c, struct serve *s, enum tern_err tell)
{
    if (s->state != SERVE_WALKING && s->state != SERVE_SEALING && s->state != SERVE_OPEN)
        return;
    serve_state_move(&s->state, s->state == SERVE_OPEN ? SERVE_OPEN_ENDS : SERVE_SEALING_ENDS);
    s->err = tell;
    touch(c);
}

struct peer_msg *serve_msg_add(struct core *c, struct actions *out, const struct serve *s,
                               enum peer_msg_kind kind)
{
    struct peer_msg *m = peer_msg_add(out, s->link, kind);

    m->pull = s->pull;
    m->serve = serve_id(c, s);
    m->trace_id = s->trace_id;
    return m;
}

bool serve_suits(const struct pool *p, const struct peer_msg *m)
{
    return p->layout_hash == m->layout_hash ||
           (p->fields_hash != 0 && p->fields_hash == m->fields_hash &&
            spans_suit(p, m->page_tokens));
}

struct token_view serve_view(const struct core *c, const struct peer_msg *m, uint32_t align)
{
    return (struct token_view){.c = c,
                               .align = align,
                               .base = m->at,
                               .end = peer_msg_until(m),
                               .v = m->tokens,
                               .keys = m->keys,
                               .nkeys = m->nkeys,
                               .cursor_block = NONE};
}

bool serve_more_follow(const struct core *c, const struct peer_msg *m, uint32_t node)
{
    return peer_msg_until(m) < m->to && node_at(c, node)->depth == peer_msg_until(m);
}

uint32_t serve_least(const struct peer_msg *m)
{
    return m->at_least > m->from ? m->at_least : m->from + 1;
}

/* Layout of the destination if the data path uses a plan; 0: pages are sent unchanged. */
static uint64_t other_layout(const struct pool *p, const struct peer_msg *m)
{
    return m->layout_hash != p->layout_hash || p->copies ? m->layout_hash : 0;
}

enum tern_err serve_may_begin(const struct core *c, uint32_t link, const struct peer_msg *m,
                              uint32_t pool)
{
    const struct pool *p = pool_at(c, pool);
    struct layout_pair pair = {.from = p->layout_hash, .to = other_layout(p, m)};
    uint32_t holder = serve_holder(c, m, link);

    if (m->from % p->align != 0 || m->history % p->align != 0)
        return TERN_INVALID;
    if (pair.to != 0 && !resharded_room(c, link, pair))
        return TERN_BUSY;
    if (m->prefetch)
        return share_leaves(c, SHARE_SERVES, holder) ? TERN_OK : TERN_BUSY;
    return share_room(c, SHARE_SERVES, holder) > 0 ? TERN_OK : TERN_BUSY;
}

struct serve *serve_create(struct core *c, uint32_t link, const struct peer_msg *m,
                           const struct found *f)
{
    const uint32_t holder = serve_holder(c, m, link);
    uint32_t slot = serve_slot_take(c, holder), gen;
    struct serve *s = serve_at(c, slot);

    gen = gen_next(s->gen);
    memset(s, 0, sizeof *s);
    s->gen = gen;
    serve_state_move(&s->state, SERVE_WALKING);
    serve_list_push(c, &c->serves_active, slot);
    s->link = link;
    s->holder = holder;
    s->pool = f->pool;
    s->node = f->node;
    s->wait_node = NONE;
    s->handed = f->handed;
    s->from = m->from;
    s->asked_history = m->history;
    s->least = serve_least(m);
    s->prefetch = m->prefetch;
    s->history = m->history > m->from ? m->history : m->from;
    s->to = m->to;
    s->pull = m->pull;
    s->trace_id = m->trace_id;
    s->started_ns = c->now_ns;
    s->times.stage = STAGE_WALKING;
    s->times.stage_since_ns = s->times.wait_since_ns = c->now_ns;
    s->deadline_ns = c->now_ns + c->limits.transfer_deadline_ns;
    s->state_from = node_at(c, f->node)->depth; /* no STATE yet */
    s->layout_hash = other_layout(pool_at(c, f->pool), m);
    if (m->layout_hash != pool_at(c, f->pool)->layout_hash)
        memcpy(s->peer_tokens, m->page_tokens, sizeof s->peer_tokens);
    node_pin(c, f->node, REF_TRANSFER);
    pool_at(c, f->pool)->serves++;
    return s;
}

void serve_move(struct core *c, struct serve *s, uint32_t node)
{
    node_pin(c, node, REF_TRANSFER);
    node_unpin(c, s->node, REF_TRANSFER);
    s->node = node;
    s->state_from = node_at(c, node)->depth;
}

void serve_advance(struct core *c, struct serve *s)
{
    for (; s->wait_node != NONE; c->visits++) {
        const struct node *n = node_at(c, s->wait_node);

        if (visits_left(c) == 0)
            return; /* serve_flush continues */

        if (n->depth <= s->history && n->depth <= s->state_from)
            s->wait_node = NONE;
        else if (n->work.seal == SEAL_DONE)
            s->wait_node = n->parent;
        else
            return;
    }
}

void serve_ask_more(struct core *c, struct actions *out, const struct serve *s)
{
    serve_msg_add(c, out, s, PEER_PULL_MORE)->at = node_at(c, s->node)->depth;
}

void serve_start(const struct core *c, struct actions *out, struct serve *s)
{
    struct action *a = action_add(out, ACT_SERVE_START);

    a->serve.serve = serve_id(c, s);
    a->serve.pool = s->pool;
    a->serve.peer = link_at(c, s->link)->peer;
    a->serve.layout_hash = s->layout_hash;
    serve_state_move(&s->state, SERVE_OPEN);
}

struct peer_msg *serve_offer_nothing(const struct core *c, struct actions *out, uint32_t link,
                                     const struct peer_msg *m, enum tern_err err)
{
    struct peer_msg *reply = peer_msg_add(out, link, PEER_PULL_OFFER);

    reply->pull = m->pull;
    reply->trace_id = m->trace_id;
    reply->err = err;
    reply->retry_ms = err == TERN_BUSY ? c->limits.busy_retry_ms : 0;
    reply->from = reply->to = m->from;
    reply->history = m->history;
    return reply;
}
