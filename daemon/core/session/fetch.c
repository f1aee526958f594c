/* A session fetches from a peer: what is asked. What comes of it is in fetch_publish.c. */
#include "core/session/fetch.h"

#include <string.h>

#include "core/arena/actions.h"
#include "core/session/record.h"
#include "core/session/retract.h"
#include "core/transfer/pulls.h"
#include "core/session/resets.h"
#include "core/tree/nodes.h"
#include "core/tree/tokens.h"

/* --- the tokens and keys that the peer is asked for --- */

static void copy_keys(const struct core *c, uint32_t head, struct extra_key *to, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, head = key_at(c, head)->next) {
        const struct key_record *k = key_at(c, head);

        to[i].position = k->position;
        to[i].zero = 0;
        to[i].hi = k->hi;
        to[i].lo = k->lo;
    }
}

static uint32_t tail_keys(const struct core *c, const struct session *s, uint32_t to)
{
    uint32_t n = 0;

    for (uint32_t k = s->tokens.keys; k != NONE && key_at(c, k)->position < to;
         k = key_at(c, k)->next)
        n++;
    return n;
}

static uint32_t path_keys(const struct core *c, uint32_t node)
{
    uint32_t n = 0;

    for (; node_at(c, node)->depth > 0; node = node_at(c, node)->parent)
        n += tokens_count_keys(c, node_at(c, node)->keys);
    return n;
}

static void gather_chunk(const struct core *c, const struct node *n, uint32_t align,
                         struct actions *out)
{
    uint32_t block = n->tokens;

    for (uint32_t off = 0; off < align; off += TOKEN_BLOCK, block = *block_next(c, block))
        memcpy(out->tokens + n->depth - align + off, block_at(c, block)->v,
               (align - off < TOKEN_BLOCK ? align - off : TOKEN_BLOCK) * sizeof(uint32_t));
}

/* The session's tokens and keys [0, to) in one piece. False: more keys than one message carries. */
static bool gather(const struct core *c, const struct session *s, uint32_t to, struct actions *out,
                   uint32_t *ret_nkeys)
{
    const uint32_t align = session_pool(c, s)->align, tail = tail_keys(c, s, to);
    struct req_tokens none = {0};
    struct token_view w = session_view(c, s, s->tokens.end, &none);
    uint32_t scratch[TOKEN_BLOCK], at_key = path_keys(c, s->node);

    if (at_key + tail > EXTRA_KEYS_MAX)
        return false;
    *ret_nkeys = at_key + tail;
    for (uint32_t start = s->committed; start < to; start += align)
        for (uint32_t off = 0; off < align; off += TOKEN_BLOCK) {
            uint32_t take = align - off < TOKEN_BLOCK ? align - off : TOKEN_BLOCK;

            memcpy(out->tokens + start + off, view_piece(&w, start + off, scratch, take),
                   take * sizeof(uint32_t));
        }
    copy_keys(c, s->tokens.keys, out->keys + at_key, tail);
    for (uint32_t at = s->node; node_at(c, at)->depth > 0; at = node_at(c, at)->parent) {
        uint32_t n = tokens_count_keys(c, node_at(c, at)->keys);

        gather_chunk(c, node_at(c, at), align, out);
        at_key -= n;
        copy_keys(c, node_at(c, at)->keys, out->keys + at_key, n);
    }
    return true;
}

/* --- asking --- */

static enum tern_err fetch_check(const struct core *c, const struct session *s,
                                 const struct req_fetch *r, struct reply *ret)
{
    TRY(session_may_fetch(s, ret));
    if (r->peer >= c->limits.peers)
        return refuse(ret, TERN_INVALID, "no such peer is configured");
    if (!link_at(c, r->peer)->up)
        return refuse(ret, TERN_PEER_LOST, "the peer is not connected; the daemon keeps trying");
    if (reset_is_due(c, r->peer))
        return refuse(ret, TERN_BUSY, "the peer is being told of resets: fetch again in a moment");
    if (share_room(c, SHARE_PULLS, pull_holder(c, engine_at(c, s->engine), r->peer)) == 0)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_PULLS));
    return TERN_OK;
}

/* X5: HISTORY beyond the committed length that is here without the STATE to go on from it is not
 * moved again, and must stay. */
static void history_pin(struct core *c, struct pull *p, const struct session *s)
{
    struct req_tokens none = {0};
    struct token_view w = session_view(c, s, s->tokens.end, &none);

    w.end = p->to;
    p->history_node = node_walk(c, s->node, &w);
    p->history = node_at(c, p->history_node)->depth;
    node_pin(c, p->history_node, REF_TRANSFER);
}

/* Asks the source; the tokens and keys were gathered. */
static void fetch_open(const struct core *c, struct actions *out, struct pull *p, uint32_t nkeys)
{
    const struct session *s = session_at(c, p->session);
    struct peer_msg *msg = pull_send(c, out, p, PEER_PULL_OPEN);

    msg->tenant = p->tenant;
    msg->ns = space_at(c, s->space)->ns;
    msg->layout_hash = session_pool(c, s)->layout_hash;
    msg->from = p->from;
    msg->history = p->history;
    msg->to = p->to;
    msg->tokens = out->tokens;
    msg->keys = out->keys;
    msg->nkeys = nkeys;
    out->opens = true;
    p->asks++;
}

bool fetch_ask_again(struct core *c, struct actions *out)
{
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        struct pull *p = pull_at(c, i);
        uint32_t nkeys;

        if (p->state != PULL_PUT_OFF || !p->leads || c->now_ns < p->ask_ns)
            continue;
        if (out->opens || actions_room(out) == 0 || reset_is_due(c, p->link))
            return false;
        if (space_at(c, session_at(c, p->session)->space)->reset) {
            pull_set_ending(c, p, TERN_OK);
            return false;
        }
        check(gather(c, session_at(c, p->session), p->to, out, &nkeys)); /* as before */
        pull_state_move(&p->state, PULL_ASKED);
        fetch_open(c, out, p, nkeys);
        touch(c);
    }
    return true;
}

enum tern_err fetch_from_peer(struct core *c, struct actions *out, struct call *call,
                              struct reply *ret)
{
    const struct request *req = call->req;
    const struct req_fetch *r = &req->fetch;
    const struct engine *e = call->engine;
    struct session *s = call->session;
    struct pull *p;
    uint32_t to, nkeys;

    ret->fetch.lengths = session_lengths(s);
    TRY(fetch_check(c, s, r, ret));
    to = r->depth && r->depth < s->tokens.end ? r->depth : s->tokens.end;
    to -= to % session_pool(c, s)->align;
    if (to <= s->committed || space_at(c, s->space)->reset)
        return TERN_OK; /* it is all here; or the peer has the name's new content alone */
    if (to > FETCH_TOKENS_MAX || !gather(c, s, to, out, &nkeys))
        return refuse(ret, TERN_INVALID,
                      "one fetch carries at most 245,760 tokens and 1,024 extra keys: fetch in "
                      "pieces by `depth`");
    p = pull_create(c, e, r->peer);
    p->session = session_slot(c, s);
    p->pool = s->pool;
    p->transfer_regions = session_pool(c, s)->transfer_regions;
    p->conn = req->conn;
    p->from = p->start = s->committed;
    p->to = to;
    p->request_id = req->request_id;
    p->trace_id = req->trace_id;
    p->started_ns = c->now_ns;
    p->deadline_ns = c->now_ns + c->limits.transfer_deadline_ns;
    s->pull = pull_slot(c, p);
    session_state_move(&s->state, SESSION_FETCHING);
    history_pin(c, p, s);
    if (pull_is_behind(c, p))
        pull_put_off(c, p, c->limits.busy_retry_ms);
    else
        fetch_open(c, out, p, nkeys);
    call->later = true;
    return TERN_OK;
}

enum tern_err fetch_cancel(struct core *c, struct actions *out, struct call *call,
                           struct reply *ret)
{
    struct session *s = call->session;

    (void)ret;
    if (s->pull != NONE)
        pull_set_ending(c, pull_at(c, s->pull), TERN_GONE);
    load_end(c, out, s, true);
    return TERN_OK;
}
