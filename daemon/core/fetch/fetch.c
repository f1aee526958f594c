/* Requests of a session that fetches from a peer. fetch_publish.c handles what arrives. */
#include "core/fetch/fetch.h"

#include <string.h>

#include "core/fetch/asks.h"
#include "core/session/record.h"
#include "core/session/resets.h"
#include "core/session/sessions.h"
#include "core/transfer/pulls.h"
#include "core/transfer/spans.h"
#include "core/tree/nodes.h"
#include "core/tree/tokens.h"

/* Copies the keys of a chain whose positions lie in the range `in` to `to`, which may be NULL.
 * Returns their number. */
static uint32_t copy_keys(const struct core *c, uint32_t head, struct tokens_range in,
                          struct extra_key *to)
{
    uint32_t n = 0;

    for (; head != NONE && key_at(c, head)->position < in.until; head = key_at(c, head)->next) {
        const struct key_record *k = key_at(c, head);

        if (k->position < in.at)
            continue;
        if (to)
            to[n] = (struct extra_key){.position = k->position, .hi = k->hi, .lo = k->lo};
        n++;
    }
    return n;
}

/* The deepest node of the session's path that has tokens before `until`. */
static uint32_t path_from(const struct core *c, const struct session *s, uint32_t until)
{
    const uint32_t align = session_pool(c, s)->align;

    return node_above(c, (struct path){s->node, div_up(until, align) * align});
}

static uint32_t count_keys(const struct core *c, const struct session *s, struct tokens_range in)
{
    uint32_t n = copy_keys(c, s->tokens.keys, in, NULL);

    for (uint32_t at = path_from(c, s, in.until); node_at(c, at)->depth > in.at;
         at = node_at(c, at)->parent)
        n += tokens_count_keys(c, node_at(c, at)->keys);
    return n;
}

/* *ret: the first part of `all` that fits into one message: whole chunks or, if everything fits,
 * all of it. A message also limits the number of keys. Returns false if not even one chunk fits. */
static bool next_piece(const struct core *c, const struct session *s, struct tokens_range all,
                       struct tokens_range *ret)
{
    const uint32_t align = session_pool(c, s)->align;
    uint32_t chunks = (c->limits.open_tokens ? c->limits.open_tokens : OPEN_TOKENS_MAX) / align;

    if (chunks > div_up(all.until - all.at, align))
        chunks = div_up(all.until - all.at, align);
    for (chunks = chunks ? chunks : 1;; chunks /= 2) {
        *ret = (struct tokens_range){all.at, all.at + chunks * align};
        if (ret->until > all.until)
            ret->until = all.until;
        if (count_keys(c, s, *ret) <= EXTRA_KEYS_MAX)
            return true;
        if (chunks == 1)
            return false;
    }
}

/* Returns true if the tokens up to `to` can be sent in pieces. If one message could have all keys,
 * every piece fits, and no piece is counted here. */
static bool pieces_fit(const struct core *c, const struct session *s, uint32_t to)
{
    struct tokens_range p = {0, 0};

    if (count_keys(c, s, (struct tokens_range){0, to}) <= EXTRA_KEYS_MAX)
        return true;
    while (p.until < to)
        if (!next_piece(c, s, (struct tokens_range){p.until, to}, &p))
            return false;
    return true;
}

void fetch_gather(const struct core *c, const struct session *s, struct tokens_range in,
                  struct actions *out, uint32_t *ret_nkeys)
{
    const uint32_t align = session_pool(c, s)->align;
    struct token_view w = session_rest(c, s);
    uint32_t scratch[TOKEN_BLOCK], at_key = count_keys(c, s, in);

    *ret_nkeys = at_key;
    for (uint32_t start = s->committed > in.at ? s->committed : in.at; start < in.until;
         start += align)
        for (uint32_t off = 0, n = in.until - start < align ? in.until - start : align; off < n;
             off += TOKEN_BLOCK) {
            uint32_t take = n - off < TOKEN_BLOCK ? n - off : TOKEN_BLOCK;

            memcpy(out->tokens + (start - in.at) + off, view_piece(&w, start + off, scratch, take),
                   take * sizeof(uint32_t));
        }
    at_key -= copy_keys(c, s->tokens.keys, in, NULL);
    copy_keys(c, s->tokens.keys, in, out->keys + at_key);
    for (uint32_t at = path_from(c, s, in.until); node_at(c, at)->depth > in.at;
         at = node_at(c, at)->parent) {
        const struct node *n = node_at(c, at);

        tokens_copy_chunk(c, n, out->tokens + (n->depth - align - in.at), NULL);
        at_key -= tokens_count_keys(c, n->keys);
        copy_keys(c, n->keys, in, out->keys + at_key);
    }
}

/* Finds the peer that issued the ticket, among those connected. */
static enum tern_err ticket_source(const struct core *c, const struct ticket *t, uint32_t *ret_peer,
                                   struct reply *ret)
{
    uint32_t up = 0;
    bool restarted = false;

    for (uint32_t i = 0; i < c->limits.peers; i++) {
        up += link_at(c, i)->up;
        restarted |= link_at(c, i)->former == t->incarnation;
        if (!link_at(c, i)->up || link_at(c, i)->incarnation != t->incarnation)
            continue;
        *ret_peer = i;
        return TERN_OK;
    }
    if (restarted || up == c->members)
        return refuse(
            ret, TERN_GONE,
            "the daemon that issued the ticket was restarted, or is not a peer of this daemon");
    return refuse(ret, TERN_PEER_LOST,
                  "no connected peer issued the ticket, and some peers are not connected; the "
                  "daemon keeps trying");
}

/* Y2: true if only the ticket's blob is fetched, since all its tokens are written here. A followed
 * ticket is offered before its end is known. */
static bool blob_alone(const struct session *s, const struct req_fetch *r)
{
    return r->ticket.id.gen != 0 && !r->follow && s->written == s->tokens.end;
}

/* *ret_peer: a peer that can be asked and whose share has room. The fetch counts in that share
 * until its source is chosen. NONE: no peer can be asked. */
static enum tern_err any_check(const struct core *c, const struct engine *e,
                               const struct req_fetch *r, uint32_t *ret_peer, struct reply *ret)
{
    uint32_t peer = ask_reaches(c, (struct tenant_peer){e->tenant, 0});
    const bool nobody = peer == NONE;

    if (r->at_least > 0)
        return refuse(ret, TERN_INVALID,
                      "at_least waits for one source: name the peer, or leave out at_least");
    if (!nobody && share_room(c, SHARE_ASKS, e->tenant) == 0)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_ASKS));
    while (peer != NONE && !pull_may_begin(c, pull_holder(c, e, peer), r->prefetch))
        peer = ask_reaches(c, (struct tenant_peer){e->tenant, peer + 1});
    *ret_peer = peer;
    return nobody || peer != NONE ? TERN_OK : refuse(ret, TERN_BUSY, share_refused(SHARE_PULLS));
}

static enum tern_err fetch_check(const struct core *c, const struct session *s,
                                 const struct req_fetch *r, uint32_t *ret_peer, struct reply *ret)
{
    uint32_t peer = r->peer;

    TRY(blob_alone(s, r) ? session_may_fetch_nothing(s, ret) : session_may_fetch(c, s, ret));
    if (r->ticket.id.gen != 0)
        TRY(ticket_source(c, &r->ticket, &peer, ret));
    else if (peer == PEER_ANY)
        return any_check(c, engine_at(c, s->engine), r, ret_peer, ret);
    if (peer >= c->limits.peers || link_at(c, peer)->vacant)
        return refuse(ret, TERN_INVALID, "no such peer is configured");
    if (!link_at(c, peer)->up)
        return refuse(ret, TERN_PEER_LOST, "the peer is not connected; the daemon keeps trying");
    if (reset_is_due(c, peer))
        return refuse(ret, TERN_BUSY, PEER_HEARS_RESETS);
    if (!pull_may_begin(c, pull_holder(c, engine_at(c, s->engine), peer), r->prefetch))
        return refuse(ret, TERN_BUSY, share_refused(SHARE_PULLS));
    *ret_peer = peer;
    return TERN_OK;
}

/* X5. */
void fetch_pins_history(struct core *c, struct pull *p)
{
    const struct session *s = session_at(c, p->session);
    struct token_view w = session_rest(c, s);

    w.end = p->to;
    p->history_node = node_walk(c, s->node, &w);
    p->history = node_at(c, p->history_node)->depth;
    node_pin(c, p->history_node, REF_TRANSFER);
}

/* Sends the session's tokens from `at` on, as many as one message has. */
static struct peer_msg *send_tokens(const struct core *c, struct actions *out, struct pull *p,
                                    enum peer_msg_kind kind, uint32_t at)
{
    const struct session *s = session_at(c, p->session);
    struct peer_msg *msg = pull_send(c, out, p, kind);
    struct tokens_range piece;

    check(next_piece(c, s, (struct tokens_range){at, p->to}, &piece)); /* pieces_fit checked it */
    fetch_gather(c, s, piece, out, &msg->nkeys);
    msg->from = p->from;
    msg->history = p->history;
    msg->to = p->to;
    msg->at = at;
    msg->until = piece.until < p->to ? piece.until : 0;
    msg->tokens = out->tokens;
    msg->keys = out->keys;
    out->opens = true;
    p->sent = piece.until;
    return msg;
}

/* Ends a fetch after a reset: the peer has only the namespace's new content. */
static void end_of_reset(struct core *c, struct pull *p)
{
    const bool lacks = p->ticket.id.gen != 0 || p->at_least > session_at(c, p->session)->written;

    pull_set_ending(c, p, lacks ? TERN_GONE : TERN_OK);
}

/* Asks the source, with the first of the tokens. */
static void fetch_open(const struct core *c, struct actions *out, struct pull *p)
{
    const struct session *s = session_at(c, p->session);
    struct peer_msg *msg;

    p->serve = (struct serve_id){0};
    msg = send_tokens(c, out, p, PEER_PULL_OPEN, 0);
    msg->tenant = p->tenant;
    msg->ns = space_at(c, s->space)->ns;
    msg->layout_hash = session_pool(c, s)->layout_hash;
    msg->fields_hash = session_pool(c, s)->fields_hash;
    if (msg->fields_hash != 0)
        spans_tell(session_pool(c, s), msg->page_tokens);
    msg->at_least = p->awaited = pull_awaits(c, p);
    msg->ticket = p->ticket;
    msg->follow = p->follow;
    msg->prefetch = p->prefetch;
    p->asks++;
}

/* Returns how many of the pull's first tokens a question has: fewer if it goes to many peers. */
static uint32_t seek_tokens(const struct ask *a, const struct pull *p, uint32_t align)
{
    const uint32_t each = ASK_TOKENS_SENT / a->npeers;
    uint32_t most = (each < ASK_TOKENS_MAX ? each : ASK_TOKENS_MAX) / align * align;

    most = most > 0 ? most : align;
    return p->to < most ? p->to : most;
}

/* Asks the peers who has the tokens. */
static void fetch_seek(struct core *c, struct actions *out, struct pull *p)
{
    const struct session *s = session_at(c, p->session);
    const struct pool *pool = session_pool(c, s);
    struct tokens_range piece;
    struct peer_msg *msg;
    struct ask *a = asks_open(c, out, (struct question){p->tenant, PEER_ANY, 0}, &msg);

    check(next_piece(c, s, (struct tokens_range){0, seek_tokens(a, p, pool->align)}, &piece));
    msg->trace_id = p->reply.trace_id;
    msg->ns = space_at(c, s->space)->ns;
    msg->layout_hash = pool->layout_hash;
    msg->fields_hash = pool->fields_hash;
    msg->tokens = out->tokens;
    msg->keys = out->keys;
    fetch_gather(c, s, piece, out, &msg->nkeys);
    out->opens = true;
    msg->to = msg->each = piece.until;
    if (msg->fields_hash != 0)
        spans_tell(pool, msg->page_tokens);
    asks_send(out, a, msg);
    p->ask = ask_slot(c, a);
    pull_take_first(c, p);
    p->seeks = 1;
    p->ask_ns = a->until_ns;
}

void fetch_choose(struct core *c, struct pull *p)
{
    const uint32_t written = p->seeks ? session_at(c, p->session)->written : 0;
    uint32_t peer;

    if (!p->seeks || !ask_is_over(c, ask_at(c, p->ask)))
        return;
    while ((peer = ask_best(c, ask_at(c, p->ask), written)) != NONE)
        if (pull_goes_to(c, p, peer))
            return;
    pull_set_ending(c, p, TERN_OK);
}

void fetch_more(struct core *c, struct actions *out, struct pull *p, const struct peer_msg *msg)
{
    if (msg->at != p->sent || p->sent >= p->to || msg->serve.gen == 0) {
        pull_broke_protocol(c, out, p);
        return;
    }
    p->serve = msg->serve;
    if (space_at(c, session_at(c, p->session)->space)->reset)
        end_of_reset(c, p);
    else
        send_tokens(c, out, p, PEER_PULL_TOKENS, p->sent);
    touch(c);
}

bool fetch_ask_again(struct core *c, struct actions *out)
{
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        struct pull *p = pull_at(c, i);

        if (!pull_asks_again(p) || c->now_ns < p->ask_ns)
            continue;
        if (p->state == PULL_WAITING && pull_is_behind(c, p)) {
            pull_put_off(c, p, PULL_BUSY_QUEUE, c->limits.busy_retry_ms);
            continue;
        }
        if (out->opens || actions_room(out) == 0 || reset_is_due(c, p->link))
            return false;
        if (space_at(c, session_at(c, p->session)->space)->reset) {
            end_of_reset(c, p);
            return false;
        }
        pull_state_move(&p->state, PULL_ASKED);
        fetch_open(c, out, p);
        if (p->follow)
            pull_led(c, p); /* its source may answer late and must not hold back other fetches */
        touch(c);
    }
    return true;
}

/* Sets the time to wait for the source to publish; the rest of the deadline is for the transfer
 * after it. Tokens that the session already has need no wait. */
static void wait_begin(const struct core *c, struct pull *p, const struct req_fetch *r)
{
    uint64_t longest = c->limits.transfer_deadline_ns / 8 * 7,
             wanted = r->wait_ms ? r->wait_ms * NS_PER_MS : longest;

    p->at_least = r->at_least > p->start ? r->at_least : 0;
    if (p->at_least <= session_at(c, p->session)->written)
        wanted = 0;
    p->wait_until_ns = c->now_ns + (wanted < longest ? wanted : longest);
}

enum tern_err fetch_at_once(const struct core *c, const struct session *s, uint32_t to,
                            struct reply *ret)
{
    const struct pool *p = session_pool(c, s);
    const uint32_t pages = pool_table_refs(p, to), chunks = to / p->align;

    return pages <= STEP_TABLE_MAX && chunks <= STEP_TABLE_MAX
               ? TERN_OK
               : refuse_numbers(ret, TERN_UNSUPPORTED,
                                "the session's table is too long to fetch: it has # chunks and # "
                                "pages, and at most 131,072 of each are allowed; fetch less "
                                "(depth), or open the pool with larger pages",
                                chunks, pages);
}

enum tern_err fetch_ticket_fits(const struct core *c, const struct session *s,
                                const struct req_fetch *r, struct reply *ret)
{
    if (r->ticket.id.gen == 0)
        return r->follow
                   ? refuse(ret, TERN_INVALID, "follow needs a ticket: name one, or use at_least")
                   : TERN_OK;
    if (space_at(c, s->space)->reset)
        return refuse(ret, TERN_GONE, "the namespace was reset: compute the tokens again");
    if (r->depth != 0 || r->at_least != 0)
        return refuse(ret, TERN_INVALID,
                      "a ticket is always fetched whole: leave out depth and at_least");
    return s->tokens.end > 0 ? TERN_OK
                             : refuse(ret, TERN_INVALID,
                                      "the session's tokens must be exactly the ticket's: Match "
                                      "those, and Extend by further tokens after the fetch");
}

struct pull *fetch_begin(struct core *c, struct call *call, uint32_t link)
{
    const struct req_fetch *r = &call->req->fetch;
    struct session *s = call->session;
    struct pull *p = pull_create(c, call->engine, link);

    p->session = session_slot(c, s);
    p->pool = s->pool;
    p->transfer_regions = session_pool(c, s)->transfer_regions;
    p->reply = call_later(call);
    p->from = p->start = s->committed;
    p->at_least = r->at_least;
    p->prefetch = r->prefetch;
    p->tail = tail_is_there(c, s);
    p->tail_step = r->step;
    p->started_ns = c->now_ns;
    p->deadline_ns = c->now_ns + c->limits.transfer_deadline_ns;
    s->pull = pull_slot(c, p);
    session_state_move(&s->state, SESSION_FETCHING);
    return p;
}

enum tern_err fetch_from_peer(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_fetch *r = &call->req->fetch;
    struct session *s = call->session;
    struct pull *p;
    uint32_t to, peer;

    TRY(fetch_check(c, s, r, &peer, ret));
    TRY(fetch_ticket_fits(c, s, r, ret));
    to = r->depth && r->depth < s->tokens.end ? r->depth : s->tokens.end;
    if (r->ticket.id.gen == 0)
        to -= to % session_pool(c, s)->align;
    TRY(at_least_fits(s, r, to, ret));
    if (space_at(c, s->space)->reset && r->at_least > s->written)
        return refuse(ret, TERN_GONE, "the namespace was reset: compute the tokens again");
    if (r->ticket.id.gen == 0 && (to <= s->written || space_at(c, s->space)->reset))
        return TERN_OK; /* all resident; or the peer has only the namespace's new content */
    if (peer == NONE)
        return TERN_OK;
    TRY(fetch_at_once(c, s, to, ret));
    c->visits += 2 * to / session_pool(c, s)->align;
    if (!pieces_fit(c, s, to))
        return refuse(ret, TERN_INVALID,
                      "a chunk has more than 1,024 extra keys: a fetch cannot request it");
    p = fetch_begin(c, call, peer);
    /* Y2: a session that has all tokens fetches no page, whoever computed them. */
    if (s->written >= to)
        p->from = to - to % session_pool(c, s)->align;
    p->to = to;
    p->ticket = r->ticket;
    p->follow = r->follow;
    if (p->follow)
        p->deadline_ns = c->now_ns + c->limits.ticket_deadline_ns;
    wait_begin(c, p, r);
    fetch_pins_history(c, p);
    if (p->ticket.id.gen == 0 && r->peer == PEER_ANY)
        fetch_seek(c, call->out, p);
    else if (p->follow && s->written < to)
        pull_take_first(c, p);
    else if (pull_is_behind(c, p))
        pull_put_off(c, p, PULL_BUSY_QUEUE, c->limits.busy_retry_ms);
    else
        fetch_open(c, call->out, p);
    return TERN_OK;
}

enum tern_err fetch_cancel(struct core *c, struct call *call, struct reply *ret)
{
    struct session *s = call->session;

    (void)ret;
    if (s->pull != NONE)
        pull_set_ending(c, pull_at(c, s->pull), TERN_GONE);
    load_end(c, call->out, s, true);
    return TERN_OK;
}
