/* Transfers in: a session asks a peer for chunks (Fetch). ASKED: the source was asked. RUNNING:
 * pages are RESERVED and arriving, batch by batch. STOPPING: over for the session; pages that were
 * not published are in QUARANTINE until the data path proves that nothing can write them
 * (EV_PULL_QUIET): no other way leads out of there. Every way out of a pull goes through pull_end,
 * once: the answer, PULL_DONE if the link is up, ACT_PULL_STOP if it was RUNNING. */
#include "core/arena/machine.h"
#include "core/tree/state.h"

#include <string.h>

struct pull *pull_find(const struct core *c, struct pull_id id)
{
    struct pull *p;

    if (id.slot >= c->limits.pulls)
        return NULL;
    p = pull_at(c, id.slot);
    return p->state != PULL_EMPTY && p->gen == id.gen ? p : NULL;
}

struct pull_id pull_id(const struct core *c, const struct pull *p)
{
    return (struct pull_id){.slot = (uint32_t)(p - pull_at(c, 0)), .gen = p->gen};
}

static struct pull *pull_create(struct core *c)
{
    uint32_t slot = pull_slot_take(c), gen;
    struct pull *p = pull_at(c, slot);

    gen = gen_next(p->gen);
    memset(p, 0, sizeof *p);
    p->gen = gen;
    p->retry = NONE;
    pull_list_push_front(c, &c->pulls_active, slot);
    for (uint32_t g = 0; g < GROUPS_MAX; g++) {
        p->pages[g] = LIST_EMPTY;
        p->cursor[g] = NONE;
    }
    touch(c);
    return p;
}

static void history_unpin(struct core *c, struct pull *p)
{
    if (p->history_node != NONE)
        node_unpin(c, p->history_node, REF_TRANSFER);
    p->history_node = NONE;
}

static void pull_free(struct core *c, struct pull *p)
{
    uint32_t slot = (uint32_t)(p - pull_at(c, 0));

    pull_list_remove(c, &c->pulls_active, slot);
    history_unpin(c, p);
    p->state = PULL_EMPTY;
    pull_slot_put(c, slot);
    touch(c);
}

static struct peer_msg *msg_add(struct core *c, struct actions *out, const struct pull *p,
                                enum peer_msg_kind kind)
{
    struct action *a = action_add(out, ACT_PEER_SEND);

    a->peer.link = p->link;
    a->peer.msg.kind = kind;
    a->peer.msg.pull = pull_id(c, p);
    a->peer.msg.serve = p->serve;
    a->peer.msg.trace_id = p->trace_id;
    return &a->peer.msg;
}

/* --- asking --- */

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

enum tern_err fetch_ready(const struct session *s, struct reply *ret)
{
    if (s->state == SESSION_FETCHING || s->state == SESSION_LOADING)
        return refuse(ret, TERN_BUSY, "a fetch or a recovery is under way in this session already");
    if (session_away(s))
        return refuse(ret, TERN_INVALID, "the session is retracted: Recover it first");
    if (s->state == SESSION_OPEN || s->allocated != s->committed)
        return refuse(
            ret, TERN_INVALID,
            "Match the session's tokens first, and hold nothing beyond what is committed");
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        if (s->owned[g].n > 0)
            return refuse(ret, TERN_INVALID,
                          "the session has STATE pages of its own, which the fetch would make "
                          "stale: Abort it "
                          "and Match anew");
    return TERN_OK;
}

static enum tern_err fetch_check(const struct core *c, const struct session *s,
                                 const struct req_fetch *r, struct reply *ret)
{
    TRY(fetch_ready(s, ret));
    if (r->peer >= c->limits.peers)
        return refuse(ret, TERN_INVALID, "no such peer is configured");
    if (!link_at(c, r->peer)->up)
        return refuse(ret, TERN_PEER_LOST, "the peer is not connected; the daemon keeps trying");
    if (c->free_pulls.n == 0)
        return refuse(ret, TERN_BUSY,
                      "all transfer slots are in use: come back when a fetch has ended, or raise "
                      "limits.pulls");
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

enum tern_err pull_fetch(struct core *c, struct actions *out, struct call *call, struct reply *ret)
{
    const struct request *req = call->req;
    const struct req_fetch *r = &req->fetch;
    const struct engine *e = call->engine;
    struct session *s = call->session;
    struct pull *p;
    struct peer_msg *msg;
    uint32_t to, nkeys;

    ret->fetch.lengths = session_lengths(s);
    TRY(fetch_check(c, s, r, ret));
    to = r->depth && r->depth < s->tokens.end ? r->depth : s->tokens.end;
    to -= to % session_pool(c, s)->align;
    if (to <= s->committed)
        return TERN_OK; /* it is all here */
    if (to > FETCH_TOKENS_MAX || !gather(c, s, to, out, &nkeys))
        return refuse(ret, TERN_INVALID,
                      "one fetch carries at most 245,760 tokens and 1,024 extra keys: fetch in "
                      "pieces by `depth`");
    p = pull_create(c);
    p->state = PULL_ASKED;
    p->session = session_slot(c, s);
    p->pool = s->pool;
    p->transfer_regions = session_pool(c, s)->transfer_regions;
    p->engine = s->engine;
    p->tenant = e->tenant;
    p->link = r->peer;
    p->conn = req->conn;
    p->from = p->start = s->committed;
    p->to = to;
    p->request_id = req->request_id;
    p->trace_id = req->trace_id;
    p->started_ns = c->now_ns;
    p->deadline_ns = c->now_ns + c->limits.transfer_deadline_ns;
    s->pull = (uint32_t)(p - pull_at(c, 0));
    s->state = SESSION_FETCHING;
    history_pin(c, p, s);
    msg = msg_add(c, out, p, PEER_PULL_OPEN);
    msg->tenant = e->tenant;
    msg->ns = space_at(c, s->space)->ns;
    msg->layout_hash = session_pool(c, s)->layout_hash;
    msg->from = p->from;
    msg->history = p->history;
    msg->to = to;
    msg->tokens = out->tokens;
    msg->keys = out->keys;
    msg->nkeys = nkeys;
    call->later = true;
    return TERN_OK;
}

/* --- ending --- */

void pull_doom(struct core *c, struct pull *p, enum tern_err err)
{
    if (p->ending || p->state == PULL_STOPPING)
        return; /* whoever came first has won (Y6) */
    p->ending = 1;
    p->err = err;
    touch(c);
}

void pull_orphan(struct core *c, uint32_t slot)
{
    struct pull *p = pull_at(c, slot);

    session_at(c, p->session)->pull = NONE;
    p->session = NONE;
    history_unpin(c, p); /* it publishes no more; a chunk that waits for a dying engine has to go */
    pull_doom(c, p, TERN_GONE);
}

enum tern_err pull_cancel(struct core *c, struct actions *out, struct call *call, struct reply *ret)
{
    struct session *s = call->session;

    (void)ret;
    if (s->pull != NONE)
        pull_doom(c, pull_at(c, s->pull), TERN_GONE);
    load_end(c, out, s, true);
    return TERN_OK;
}

void pull_conn_closed(struct core *c, uint32_t conn)
{
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i))
        if (pull_at(c, i)->conn == conn)
            pull_at(c, i)->conn = NONE;
}

void pull_link_down(struct core *c, uint32_t link)
{
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i))
        if (pull_at(c, i)->link == link)
            pull_doom(c, pull_at(c, i), TERN_PEER_LOST);
}

void pull_broken(struct core *c, struct pull_id id, enum tern_err err)
{
    struct pull *p = pull_find(c, id);

    if (p && p->state == PULL_RUNNING)
        pull_doom(c, p, err);
}

static const char *end_text(enum tern_err err)
{
    switch (err) {
    case TERN_GONE: return "the fetch was cancelled; what was published before stays";
    case TERN_PEER_LOST:
        return "the connection to the peer ended; what was published before stays: fetch again";
    case TERN_TIMED_OUT:
        return "the transfer's deadline passed; what was published before stays: fetch again";
    case TERN_CORRUPT:
        return "a page arrived twice with bytes that do not match its checksum; nothing of it was "
               "published";
    case TERN_BUSY:
        return "the peer serves as many transfers as it may, or records have run out here; what "
               "was published before stays: fetch again in a moment";
    case TERN_POOL_EXHAUSTED:
        return "the pool has not that many free pages: close or retract sessions, and fetch again";
    case TERN_UNSUPPORTED:
        return "the peer has these tokens in a pool of another layout: compute them, or open pools "
               "of one layout on both hosts";
    case TERN_DENIED: return "the peer does not know the tenant: both hosts name the same tenants";
    case TERN_OK: return "";
    default:
        return "the peer did not accept the request; what was published before stays: compute the "
               "rest";
    }
}

/* What the session gained, as runs; empty if the answer is full (the lengths tell, and a Match
 * repeats them). */
static void gained_runs(const struct core *c, struct actions *out, const struct pull *p,
                        const struct session *s)
{
    const struct pool *pool = session_pool(c, s);

    for (uint32_t g = 0; g < pool->ngroups; g++) {
        uint32_t pt = pool->group[g].layout.page_tokens, first = p->start / pt,
                 end = s->committed / pt;
        bool recurrent = pool->group[g].layout.family == FAMILY_RECURRENT;
        struct page_ref *refs;

        if (first < window_first(&pool->group[g], s->allocated))
            first = window_first(&pool->group[g], s->allocated);
        if (end > first && !recurrent &&
            state_path_has(c, s->node, &pool->group[g],
                           first)) { /* of a RECURRENT group the first Extend brings the page */
            refs = run_add(out, (struct table_run){.group = g, .first = first, .n = end - first});
            check(refs); /* a step that ends a pull has room: pull_flush looked */
            node_refs(c, s->node, &pool->group[g], first, refs);
        }
        session_owned_run(c, out, s, g);
    }
}

static void answer(struct core *c, struct actions *out, struct pull *p,
                   const struct shortage *shortage)
{
    struct session *s = p->session == NONE ? NULL : session_at(c, p->session);
    struct reply *r;
    uint32_t first_run = out->nruns;

    c->errors[p->err]++;
    if (p->conn == NONE)
        return;
    r = &action_add(out, ACT_REPLY)->reply;
    r->op = OP_FETCH;
    r->err = p->err;
    r->conn = p->conn;
    r->request_id = p->request_id;
    r->trace_id = p->trace_id;
    r->text = end_text(p->err);
    if (shortage)
        r->shortage = *shortage;
    if (!s)
        return;
    gained_runs(c, out, p, s);
    r->runs = out->runs + first_run;
    r->nruns = out->nruns - first_run;
    r->fetch.lengths = session_lengths(s);
    r->fetch.kib = (uint32_t)((p->arrived_bytes + 1023) / 1024);
}

/* The tokens of a chunk that the session had taken from are its own again; where the store has no
 * room for them its list ends there, and the next Extend or Match is told. */
static void untake_chunk(struct core *c, struct session *s, const struct node *n)
{
    const uint32_t align = session_pool(c, s)->align;

    if (tokens_blocks_per_chunk(align) <= c->free_blocks.n &&
        tokens_count_keys(c, n->keys) <= c->free_keys.n) {
        tokens_prepend(c, &s->tokens, n, align);
        return;
    }
    tokens_truncate(c, &s->tokens, s->tokens.first);
    tokens_init(&s->tokens, n->depth - align);
}

/* A transfer that ends early may have published HISTORY whose STATE never came. It stays in the
 * tree; the session goes back to where it can go on from. */
static void step_back(struct core *c, const struct pull *p, struct session *s)
{
    const struct pool *pool = session_pool(c, s);

    if (pool->nstate == 0 || p->state != PULL_RUNNING || (p->owning && s->allocated == p->to))
        return; /* what it owns, it can go on from */
    for (uint32_t g = 0; g < pool->ngroups; g++)
        pages_free(c, &s->owned[g]); /* all are this transfer's, and no engine has seen them */
    s->written = s->allocated = s->committed;
    while (s->committed > p->start && !state_resumable(c, s->node)) {
        uint32_t from = s->node, parent = node_at(c, from)->parent;

        untake_chunk(c, s, node_at(c, from));
        node_pin(c, parent, REF_DEVICE);
        state_unhold(c, (struct path){from, s->committed - pool->align});
        s->node = parent;
        s->committed = s->written = s->allocated = s->committed - pool->align;
        node_unpin(c, from, REF_DEVICE);
    }
    for (uint32_t g = 0; g < pool->ngroups; g++)
        s->base[g] = s->committed / pool->group[g].layout.page_tokens;
    if (s->good > s->tokens.end)
        s->good = s->tokens.end;
}

static void forget_batches(struct core *c, struct pull *p)
{
    for (uint32_t i = 0; i < PULL_BATCHES_MAX; i++) {
        struct batch *b = &p->batch[i];

        if (!b->used)
            continue;
        link_at(c, p->link)->bytes_in_flight -= b->bytes;
        tenant_at(c, p->tenant)->bytes_in_flight -= b->bytes;
        b->used = 0;
    }
}

static void quarantine(struct core *c, struct pull *p)
{
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        for (uint32_t at = p->pages[g].head; at != NONE; at = page_list_next(c, at)) {
            page_move(c, page_at(c, at), PAGE_QUARANTINE, (uint32_t)(p - pull_at(c, 0)));
            p->quarantined_ns = c->now_ns;
        }
}

/* Needs room for three actions and the answer's runs. */
static void pull_end(struct core *c, struct actions *out, struct pull *p,
                     const struct shortage *shortage)
{
    if (p->session != NONE)
        step_back(c, p, session_at(c, p->session));
    answer(c, out, p, shortage);
    if (p->session != NONE) {
        struct session *s = session_at(c, p->session);

        s->pull = NONE;
        s->state = SESSION_TURN;
        p->session = NONE;
    }
    if (link_at(c, p->link)->up)
        msg_add(c, out, p, PEER_PULL_DONE)->err = p->err;
    p->ending = 0;
    if (p->state == PULL_ASKED) { /* nothing was asked to write */
        pull_free(c, p);
        return;
    }
    history_unpin(c, p); /* it publishes no more */
    forget_batches(c, p);
    quarantine(c, p);
    action_add(out, ACT_PULL_STOP)->pull_stop.pull = pull_id(c, p);
    p->state = PULL_STOPPING;
    touch(c);
}

void pull_proved_quiet(struct core *c, struct pull_id id)
{
    struct pull *p = pull_find(c, id);

    if (!p || p->state != PULL_STOPPING)
        return;
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        pages_free(c, &p->pages[g]);
    pull_free(c, p);
}

/* --- the source's answer --- */

static bool offer_fits(const struct pool *pool, const struct pull *p, const struct peer_msg *msg)
{
    if (msg->from != p->from || msg->history != p->history || msg->to < msg->from ||
        msg->to > p->to || msg->to % pool->align != 0)
        return false;
    if (msg->to == msg->from)
        return true;
    if (msg->nruns != pool->ngroups || msg->serve.gen == 0)
        return false;
    for (uint32_t g = 0; g < msg->nruns; g++)
        if (msg->runs[g].group != g ||
            msg->runs[g].n != transfer_pages(pool, &pool->group[g],
                                             (struct transfer_span){p->from, p->history, msg->to})
                                  .n)
            return false;
    return true;
}

static void reserve(struct core *c, struct pull *p, const struct peer_msg *msg)
{
    struct pool *pool = pool_at(c, p->pool);

    for (uint32_t g = 0; g < pool->ngroups; g++) {
        for (uint32_t i = 0; i < msg->runs[g].n; i++) {
            uint32_t record = page_take(c, pool, g, PAGE_RESERVED, (uint32_t)(p - pull_at(c, 0)));

            page_at(c, record)->source = msg->runs[g].refs[i];
            page_list_push(c, &p->pages[g], record);
        }
        p->cursor[g] = p->pages[g].head;
        p->base[g] = transfer_pages(pool, &pool->group[g],
                                    (struct transfer_span){p->from, p->history, msg->to})
                         .first;
        p->npages += msg->runs[g].n;
    }
    p->to = msg->to;
    p->state = PULL_RUNNING;
}

static void offer_take(struct core *c, struct actions *out, struct pull *p,
                       const struct peer_msg *msg)
{
    struct pool *pool = pool_at(c, p->pool);
    uint32_t need[GROUPS_MAX] = {0};
    struct shortage shortage = {0};
    enum tern_err err;

    p->serve = msg->serve;
    if (msg->err != TERN_OK || msg->to == msg->from) {
        pull_doom(c, p, (unsigned)msg->err < TERN_ERR_COUNT ? msg->err : TERN_PEER_LOST);
        return;
    }
    for (uint32_t g = 0; g < pool->ngroups; g++)
        need[g] = msg->runs[g].n;
    err = pages_make_room(c, engine_at(c, p->engine), pool, need, &shortage);
    if (err == TERN_OK) {
        reserve(c, p, msg);
        if (p->npages == 0)
            pull_publish(c, p); /* it was all committed here since the Match */
        return;
    }
    p->err = err;
    pull_end(c, out, p, &shortage);
}

void pull_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg)
{
    struct pull *p = pull_find(c, msg->pull);

    if (p && p->link != link) {
        action_add(out, ACT_LINK_CLOSE)->link.link = link;
        return;
    }
    if (msg->kind == PEER_PULL_ABORT) {
        if (p)
            pull_doom(c, p,
                      (unsigned)msg->err < TERN_ERR_COUNT && msg->err ? msg->err : TERN_PEER_LOST);
        return;
    }
    if (!p || p->state != PULL_ASKED || p->ending) {
        /* Too late: tell the source to let go. Where p is there, pull_end does. */
        if (!p && msg->err == TERN_OK && msg->serve.gen != 0) {
            struct action *a = action_add(out, ACT_PEER_SEND);

            a->peer.link = link;
            a->peer.msg.kind = PEER_PULL_DONE;
            a->peer.msg.pull = msg->pull;
            a->peer.msg.serve = msg->serve;
        } else if (p && p->state == PULL_ASKED) {
            p->serve = msg->serve;
        }
        return;
    }
    if (msg->err == TERN_OK && !offer_fits(pool_at(c, p->pool), p, msg)) {
        action_add(out, ACT_LINK_CLOSE)->link.link = link;
        pull_doom(c, p, TERN_PEER_LOST);
        return;
    }
    offer_take(c, out, p, msg);
}

/* --- as there is room --- */

bool pull_flush(struct core *c, struct actions *out)
{
    bool all = true;

    for (uint32_t i = c->pulls_active.head, next; i != NONE; i = next) {
        struct pull *p = pull_at(c, i);

        next = p->active.next;
        if (p->state != PULL_STOPPING && c->now_ns >= p->deadline_ns)
            pull_doom(c, p, TERN_TIMED_OUT);
        if (p->ending) {
            if (actions_room(out) < 3 ||
                !refs_fit(out, 2 * GROUPS_MAX, session_table_refs(pool_at(c, p->pool), p->to)))
                all = false;
            else
                pull_end(c, out, p, NULL);
        }
    }
    /* Only now: one that ended gave its bytes in flight back, and no event may follow to tell. */
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i))
        if (pull_at(c, i)->state == PULL_RUNNING && !pull_at(c, i)->ending)
            all = pull_issue(c, out, pull_at(c, i)) && all;
    return all;
}

uint64_t pull_deadline(const struct core *c)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        const struct pull *p = pull_at(c, i);

        if (p->state != PULL_STOPPING && p->deadline_ns < first)
            first = p->deadline_ns;
    }
    return first;
}
