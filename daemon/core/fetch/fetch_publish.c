/* The results of a session's fetch, from a peer or from the disk: the source's offer, chunks that
 * are published as they arrive, in order (X3), and the end. Invariant: every transfer ends in
 * fetch_end, once: with the answer, PULL_DONE if the link is up, and pull_stop. */
#include "core/fetch/fetch.h"

#include "core/disk/stores.h"
#include "core/fetch/asks.h"
#include "core/memory/pages.h"
#include "core/session/commits.h"
#include "core/session/record.h"
#include "core/session/retires.h"
#include "core/session/room.h"
#include "core/transfer/handed.h"
#include "core/transfer/peer_words.h"
#include "core/transfer/pulls.h"
#include "core/transfer/spans.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

/* --- arrival --- */

/* End of the next chunk, or of what follows the last whole chunk of a ticket. */
static uint32_t chunk_end(const struct core *c, const struct pull *p, const struct session *s)
{
    const uint32_t align = pool_at(c, p->pool)->align;

    return p->to - s->allocated < align ? p->to : s->allocated + align;
}

/* For a chunk that another engine is about to publish, or that is not whole: what arrived becomes
 * the session's own, uncommitted, with the earlier window pages that no node took. If the transfer
 * published chunks before it, the path has of their windows only what the transfer's end needs. */
static void chunk_own(struct core *c, struct pull *p, struct session *s)
{
    const struct pool *pool = pool_at(c, p->pool);
    const uint32_t end = chunk_end(c, p, s);
    const bool ends = end == p->to && s->committed > p->start;
    uint32_t pages[GROUPS_MAX];

    pull_chunk_pages(pool, p, end, pages);
    for (uint32_t g = 0; g < pool->ngroups; g++) {
        uint32_t n = pages[g];

        if (n > 0 && s->owned[g].n == 0)
            s->base[g] = p->base[g];
        for (; n > 0; n--) {
            uint32_t record = page_list_pop(c, &p->pages[g]);

            p->base[g]++;
            page_move(c, page_at(c, record), PAGE_OWNED, session_slot(c, s));
            page_list_push(c, &s->owned[g], record);
        }
        if (ends && pool->group[g].layout.family == FAMILY_WINDOW)
            session_slid_to(s, (struct group_page){g, window_first(&pool->group[g], end)}, 0);
    }
    s->written = s->allocated = end;
    s->whole_from = pull_whole_from(c, p);
}

/* S11: the depth that must be resident before the next chunk is published. The first chunk replaces
 * the session's tail: what arrives with it is at least as long and, if the session could not resume
 * from HISTORY alone, reaches beyond what was resident. */
static uint32_t next_depth(const struct core *c, const struct pull *p, const struct session *s)
{
    const struct pool *pool = pool_at(c, p->pool);
    uint32_t depth = s->allocated + pool->align, fresh = p->history + pool->align;

    if (!p->tail)
        return chunk_end(c, p, s);
    depth = div_up(s->written, pool->align) * pool->align;
    if (depth == s->committed)
        depth += pool->align;
    if (pool->nstate > 0 && depth < fresh)
        depth = fresh;
    return depth < p->to ? depth : p->to;
}

/* A part of a fetch, published in one step of the core. */
struct publishing {
    uint32_t covers;       /* chunks up to here replace the tail, all at once (S11) */
    uint32_t pending;      /* nodes to publish, chained */
    uint64_t pending_step; /* by that step */
};

/* S11: returns true if the next chunks up to `depth` have all their records. A tail is freed with
 * the first of the chunks that replace it, so the last must lack nothing. Chunks behind the first
 * wait for a step if the engine has yet to publish the first. */
static bool publish_ready(struct core *c, const struct pull *p, const struct session *s,
                          uint32_t depth, enum pull_busy *ret_why)
{
    const uint32_t tenant = engine_at(c, s->engine)->tenant, align = pool_at(c, p->pool)->align,
                   there = p->history > s->committed ? p->history : s->committed;
    uint32_t retires =
        (p->tail ? tail_records(c, s, p->tail_step) : 0) +
        (node_visible(node_at(c, s->node)) && depth <= s->committed + align ? 0u : 1u);
    uint32_t nodes = p->tail && depth > there ? (depth - there) / align : 0,
             end = piece_whole(c); /* a fetch without a record ends */
    bool room = nodes == 0 || records_room(c, p->pool, SHARE_NODES, nodes);

    c->piece_end = end;
    *ret_why = room ? PULL_BUSY_RETIRES : PULL_BUSY_NODES;
    return room && (retires == 0 || share_room(c, SHARE_RETIRES, tenant) >= retires);
}

/* Returns false, with nothing changed, if a record is missing. */
static bool publish_chunk(struct core *c, struct pull *p, struct session *s, struct publishing *now)
{
    const struct pool *pool = pool_at(c, p->pool);
    struct list duplicates = LIST_EMPTY;
    struct chunk_source src = {.pages = p->pages,
                               .base = p->base,
                               .duplicates = &duplicates,
                               .pending = &now->pending,
                               .step = &now->pending_step,
                               .state_at = p->to,
                               .arrived = NONE,
                               .whole_from = p->to % pool_at(c, p->pool)->align > 0
                                                 ? pull_whole_from(c, p)
                                                 : 0, /* no session resumes within a chunk */
                               .arriving = true};
    enum tern_err err = TERN_GONE;
    bool adopted = false;

    c->visits += NODE_VISITS;
    if ((p->tail || s->allocated == s->committed) && /* else the session owns the chunk before */
        p->to - s->committed >= pool->align) {
        uint32_t end = piece_whole(c);

        err = chunk_attach(c, s, &src, &adopted);
        c->piece_end = end;
    }
    if (err != TERN_OK && err != TERN_GONE)
        return false;
    if (p->tail)
        tail_give_way(c, s, p->tail_step);
    p->tail = 0;
    if (err == TERN_GONE) {
        chunk_own(c, p, s);
        return true;
    }
    s->written = s->allocated = s->committed;
    for (uint32_t g = 0; g < pool->ngroups; g++)
        s->base[g] = s->committed / pool->group[g].layout.page_tokens;
    c->counts.dup_chunks += adopted;
    pages_free(c, &duplicates); /* verified copies that no engine has seen */
    return true;
}

static void fetch_publish(struct core *c, struct pull *p)
{
    struct session *s = session_at(c, p->session);
    struct engine *e = engine_at(c, s->engine);
    struct publishing now = {.pending = NONE};

    p->publishes = 0;
    pull_drop_front(c, p);
    while ((p->tail || s->allocated < p->to) && pull_chunk_verified(c, p, next_depth(c, p, s))) {
        enum pull_busy why = PULL_BUSY_NODES;

        if (s->allocated >= now.covers || p->tail) {
            uint32_t depth = next_depth(c, p, s);

            if (piece_over(c)) {
                p->publishes = 1; /* fetch_flush continues in the next step */
                return;
            }
            if (!publish_ready(c, p, s, depth, &why)) {
                pull_set_busy(c, p, why);
                return;
            }
            now.covers = p->tail && depth - s->committed <=
                                        (TAIL_CHUNKS_MAX + 1) * pool_at(c, p->pool)->align
                             ? depth
                             : 0;
        }
        if (!publish_chunk(c, p, s, &now)) {
            pull_set_busy(c, p, PULL_BUSY_NODES);
            return;
        }
        if (s->allocated >= now.covers) {
            retire_publish(c, e, now.pending_step, now.pending);
            now = (struct publishing){.pending = NONE};
        }
    }
    if (p->tail || s->allocated < p->to)
        return;
    if (s->committed == p->to && state_resumable(c, s->node)) /* else the session steps back */
        state_terminal(c, s->node);
    pull_set_ending(c, p, TERN_OK);
}

void fetch_arrived(struct core *c, const struct event *ev)
{
    struct pull *p = pull_check_in(c, ev);

    if (p)
        fetch_publish(c, p);
}

/* --- end --- */

static const char *ticket_text(const struct pull *p)
{
    switch (p->err) {
    case TERN_GONE:
        return "the fetch was cancelled, or the ticket is gone (it was fetched or dropped, it "
               "expired, its session ended before the Handoff, its namespace was reset, or the "
               "source released its pages); the tokens published so far stay: compute the rest";
    case TERN_DENIED:
        return "the source issued no such ticket to this tenant: pass the unchanged text of the "
               "Handoff's answer, from an engine of the same tenant";
    case TERN_INVALID: return p->said > 0 ? TICKET_OTHER_TOKEN : TICKET_OTHER_TOKENS;
    case TERN_BUSY: return ticket_busy_text(p->said);
    default: return NULL;
    }
}

static const char *busy_text(const struct pull *p)
{
    static const char *const texts[] = {
#define X(name, text) [PULL_BUSY_##name] = text,
        PULL_BUSY_TABLE(X)
#undef X
    };

    return texts[p->busy];
}

static const char *end_text(enum tern_err err)
{
    switch (err) {
    case TERN_GONE:
        return "the fetch was cancelled, its namespace was reset, or the source released its "
               "pages; the tokens published so far stay: compute the rest";
    case TERN_PEER_LOST:
        return "the connection to the peer ended; the tokens published so far stay: fetch again";
    case TERN_TIMED_OUT:
        return "the transfer timed out, or the source did not publish at_least tokens in time; the "
               "tokens that arrived stay: fetch again";
    case TERN_CORRUPT:
        return "a page arrived twice with bytes that do not match its checksum, and was not "
               "published";
    case TERN_POOL_EXHAUSTED:
        return "the pool has too few free pages: close or retract sessions, and fetch again";
    case TERN_UNSUPPORTED:
        return "the peer has these tokens in a pool of another layout: compute them, open pools of "
               "one layout on both hosts, or declare the same fields of pages and the same "
               "align_tokens in both";
    case TERN_DENIED:
        return "the peer denies this host the tenant: configure a tenant of that name at the peer, "
               "and list it in `tenants` of this host's entry in the peer's `peers`";
    case TERN_DISK:
        return "the disk could not be read, and the daemon's log has the cause; the tokens that "
               "arrived stay: compute the rest";
    case TERN_OK: return "";
    default:
        return "the peer rejected the request; the tokens published so far stay: compute the rest";
    }
}

static void answer(struct core *c, struct actions *out, struct pull *p,
                   const struct shortage *shortage, const struct reason *never)
{
    struct session *s = p->session == NONE ? NULL : session_at(c, p->session);
    struct reply *r;
    uint32_t first_run = out->nruns;

    const char *text = p->ticket.id.gen != 0 ? ticket_text(p) : NULL;

    if (p->chunk != NONE && p->err == TERN_CORRUPT)
        text = "a file of the disk tier is damaged or gone, and its extent is dropped; the tokens "
               "that arrived stay: compute the rest";
    if (shortage)
        p->busy = shortage->storing ? PULL_BUSY_STORES : PULL_BUSY_ROOM;
    if (p->err == TERN_BUSY && (!text || p->busy != PULL_BUSY_SOURCE))
        text = busy_text(p);

    if (!reply_waits(c, &p->reply))
        return;
    r = reply_late(out, p->reply, OP_FETCH, p->err, text ? text : end_text(p->err));
    if (p->err == TERN_INVALID) {
        r->fetch.handed = p->handed;
        r->number[0] = p->said > 0 ? p->said - 1 : 0;
    }
    if (p->err == TERN_BUSY && p->handed > 0) {
        r->text = TICKET_STILL_RUNS;
        r->number[0] = p->handed;
        r->number[1] = p->to;
    }
    if (p->err == TERN_BUSY)
        r->fetch.retry_ms = p->retry_ms ? p->retry_ms : c->limits.busy_retry_ms;
    if (shortage)
        r->shortage = *shortage;
    if (p->err == TERN_QUOTA)
        (void)refuse_why(r, p->err, never);
    if (p->err == TERN_UNSUPPORTED) {
        r->fetch.layout_hash = pool_at(c, p->pool)->layout_hash;
        r->fetch.other_hash = p->layout_hash;
    }
    if (!s)
        return;
    if (!p->tail)
        fetch_gained_runs(c, out, s, p->start);
    r->runs = out->runs + first_run;
    r->nruns = out->nruns - first_run;
    reply_lengths(s, r);
    if (p->state == PULL_RUNNING_ENDS && p->link < c->limits.peers) {
        r->fetch.hosts = out->hosts + out->nhosts;
        r->fetch.nhosts = 1;
        out->hosts[out->nhosts++] = p->link;
    }
    r->fetch.kib = (uint32_t)((p->arrived_bytes + 1023) / 1024);
    if (p->err != TERN_OK || p->blob_bytes == 0)
        return;
    tokens_copy(c, &p->blob, out->tokens);
    r->fetch.blob = out->tokens;
    r->fetch.blob_bytes = p->blob_bytes;
    out->opens = true;
}

/* Returns the tokens of a borrowed chunk to the session. If the token store has no room, its list
 * ends there, and the next Extend or Match reports that. */
static void untake_chunk(struct core *c, struct session *s, const struct node *n)
{
    const uint32_t align = session_pool(c, s)->align;

    const struct token_need need = {.blocks = tokens_blocks_per_chunk(align),
                                    .keys = tokens_count_keys(c, n->keys)};
    struct reason unused;

    if (tokens_room(c, s->pool, need, &unused) == TERN_OK) {
        tokens_prepend(c, &s->tokens, n, align);
        return;
    }
    tokens_truncate(c, &s->tokens, s->tokens.first);
    tokens_init(&s->tokens, n->depth - align);
}

/* Ends the session's borrow of its last chunk. */
static void chunk_back(struct core *c, struct session *s)
{
    const uint32_t from = s->node, parent = node_at(c, from)->parent,
                   depth = node_at(c, parent)->depth;

    untake_chunk(c, s, node_at(c, from));
    node_pin(c, parent, REF_DEVICE);
    state_unhold(c, (struct path){from, depth});
    s->node = parent;
    s->committed = s->written = s->allocated = depth;
    node_unpin(c, from, REF_DEVICE);
}

/* A transfer that ends early may have published HISTORY whose STATE never arrived. The tree keeps
 * it; the session steps back to where it can resume. */
static void step_back(struct core *c, const struct pull *p, struct session *s)
{
    const struct pool *pool = session_pool(c, s);

    if (pool->nstate == 0 || p->state != PULL_RUNNING_ENDS || p->tail ||
        (s->allocated > s->committed && s->allocated == p->to))
        return; /* the session can resume from its own pages */
    for (uint32_t g = 0; g < pool->ngroups; g++)
        pages_free(c, &s->owned[g]); /* all belong to this transfer, and no engine has seen them */
    s->whole_from = 0;
    s->written = s->allocated = s->committed;
    /* Released STATE may be superseded, so the search repeats from the depth found. */
    for (uint32_t to; s->committed > p->start && (to = state_above(c, s->node)) != s->node;)
        for (; s->committed > p->start && s->node != to; c->visits++)
            chunk_back(c, s);
    for (uint32_t g = 0; g < pool->ngroups; g++)
        s->base[g] = s->committed / pool->group[g].layout.page_tokens;
    if (s->finished > s->tokens.end)
        s->finished = s->tokens.end;
}

/* The session has less than planned: the source did not publish it, or STATE here was dropped. */
static void fell_short(const struct core *c, struct pull *p)
{
    const uint32_t least = p->ticket.id.gen != 0 ? p->to : p->at_least;
    const struct session *s = p->session == NONE ? NULL : session_at(c, p->session);

    if (p->err != TERN_OK || !s || s->written >= least)
        return;
    p->busy = PULL_BUSY_STATE;
    if (p->ticket.id.gen != 0) /* the ticket is valid: retry when others' STATE is published */
        p->err = space_at(c, s->space)->reset ? TERN_GONE : TERN_BUSY;
    else if (p->link == link_disk(&c->limits)) /* the disk still has it: retry */
        p->err = TERN_BUSY;
    else
        p->err = c->now_ns < p->wait_until_ns ? TERN_BUSY : TERN_TIMED_OUT;
}

/* Names the ticket that was used up, since the source may have ended the transfer. */
static void say_done(const struct core *c, struct actions *out, const struct pull *p)
{
    struct peer_msg *msg = pull_send(c, out, p, PEER_PULL_DONE);

    msg->err = p->err;
    if (p->err == TERN_OK)
        msg->ticket = p->ticket;
}

/* Counts what the session gained, as far as it can resume; and a failure, if the source or the path
 * to it caused it. */
static void count_fetch(struct core *c, const struct pull *p)
{
    const struct session *s = session_at(c, p->session);
    const bool disk = p->link == link_disk(&c->limits);
    struct peer_figures *peer = &link_at(c, p->link)->figures;

    peer->failed += p->err == TERN_PEER_LOST || p->err == TERN_TIMED_OUT || p->err == TERN_CORRUPT;
    if (s->written <= p->start)
        return;
    count_figure(c, s->space, disk ? FIGURE_DISK : FIGURE_PEER, s->written - p->start);
    if (disk && p->err == TERN_OK) {
        disk_entry_use(c, p->chunk);
        tenant_at(c, p->tenant)->disk.hits++;
    }
    peer->tokens += s->written - p->start;
    histogram_add(&peer->brought, c->now_ns - p->started_ns);
    count_since(c, LATENCY_FETCH, p->started_ns);
    count_time(c, LATENCY_FETCH_QUEUED, transfer_stage_ns(&p->times, STAGE_QUEUED, c->now_ns));
    count_time(c, LATENCY_FETCH_WIRE, transfer_stage_ns(&p->times, STAGE_WIRE, c->now_ns));
    count_time(c, LATENCY_FETCH_CREDIT, transfer_wait_ns(&p->times, WAIT_CREDIT, c->now_ns));
}

/* Turns a BUSY whose records can never suffice into QUOTA. *ret: the reason, if QUOTA. */
static void never_fits(const struct core *c, struct pull *p, const struct shortage *shortage,
                       struct reason *ret)
{
    const struct share_of blocks = {SHARE_TOKEN_BLOCKS, p->tenant};

    if (p->err == TERN_QUOTA)
        *ret = room_never(shortage);
    else if (p->err == TERN_BUSY && p->busy == PULL_BUSY_NODES)
        p->err = nodes_lack(c, pool_at(c, p->pool), p->to, ret);
    else if (p->err == TERN_BUSY && p->busy == PULL_BUSY_BLOB)
        p->err = share_lacks(c, blocks, div_up(p->blob_bytes, 4 * TOKEN_BLOCK), ret);
}

/* The fetch needs no other peer: it has its source, or it ends. */
static void fetch_sought(struct core *c, struct pull *p)
{
    if (p->ask != NONE)
        asks_close(c, ask_at(c, p->ask));
    p->ask = NONE;
}

/* Requires room for four actions and the answer's runs. */
static void fetch_end(struct core *c, struct actions *out, struct pull *p,
                      const struct shortage *shortage)
{
    const bool asked = p->ask == NONE || p->asks > 0;
    struct reason never;

    never_fits(c, p, shortage, &never);
    fetch_sought(c, p);
    if (p->session != NONE)
        step_back(c, p, session_at(c, p->session));
    fell_short(c, p);
    if (p->session != NONE)
        count_fetch(c, p);
    fetch_wait_end(c, out, p);
    answer(c, out, p, shortage, &never);
    if (p->session != NONE) {
        struct session *s = session_at(c, p->session);

        s->pull = NONE;
        session_state_move(&s->state, SESSION_TURN);
        p->session = NONE;
    }
    if (asked && link_at(c, p->link)->up)
        say_done(c, out, p);
    pull_stop(c, out, p);
}

/* --- the source's answer --- */

/* The source named pages; requests the following names if some are left. */
static void offer_told(struct core *c, struct actions *out, struct pull *p,
                       const struct peer_msg *msg)
{
    pull_told(c, p, msg);
    if (p->told < p->to)
        pull_send(c, out, p, PEER_PULL_NEXT)->at = p->told;
}

/* Makes room for all pages that the fetch will bring, and for the pages `beside` these. */
static enum tern_err make_room(struct core *c, struct pull *p, uint32_t to, const uint32_t *beside,
                               struct shortage *ret)
{
    struct pool *pool = pool_at(c, p->pool);
    uint32_t need[GROUPS_MAX] = {0}, held[GROUPS_MAX] = {0};

    for (uint32_t g = 0; g < pool->ngroups; g++) {
        need[g] =
            transfer_pages(pool, &pool->group[g], (struct transfer_span){p->from, p->history, to})
                .n +
            (beside ? beside[g] : 0);
        if (p->session != NONE && !group_is_state(&pool->group[g]))
            held[g] = session_at(c, p->session)->base[g];
    }
    return pages_make_room(c, engine_at(c, p->engine), pool, (struct page_need){need, held}, ret);
}

/* Y5: takes the pages for everything that the fetch will bring, before its source is asked; or ends
 * it. Requires room for four actions and the answer's runs. Returns false if more must be evicted
 * than this step may. */
static bool take_first(struct core *c, struct actions *out, struct pull *p)
{
    struct shortage shortage = {0};

    p->err = make_room(c, p, p->to, NULL, &shortage);
    if (p->err == TERN_OK) {
        pull_reserve(c, p, p->to);
        return true;
    }
    if (p->err == TERN_BUSY && shortage.goes_on)
        return false;
    pull_state_move(&p->state, PULL_ASKED_ENDS);
    fetch_end(c, out, p, &shortage);
    return true;
}

/* Keeps the blob of the source's engine. Returns false if the token store has no room. */
static bool blob_keep(struct core *c, struct pull *p, const struct peer_msg *msg)
{
    p->blob_bytes = msg->blob_bytes;
    return tokens_append(c, &p->blob, msg->tokens, peer_msg_tokens(msg), NULL, 0) == TERN_OK;
}

/* Y2: returns true if no page of the offer has to move, and the offer is complete about the ticket:
 * for a followed session only the last message states the handoff. */
static bool has_all(const struct core *c, const struct pull *p, const struct peer_msg *msg)
{
    return msg->to <= session_at(c, p->session)->written &&
           (!p->follow || peer_msg_until(msg) == msg->to);
}

/* Resharding is needed, and no pair of layouts is free: the source releases its pages, and the pull
 * is put off as for a busy source. All else that the source sent about this transfer precedes its
 * answer to the next question, so one id is remembered. */
static void offer_later(struct core *c, struct actions *out, struct pull *p,
                        const struct peer_msg *msg)
{
    p->serve = p->given_back = msg->serve;
    pull_send(c, out, p, PEER_PULL_DONE)->err = TERN_BUSY;
    if (p->asks < PULL_ASKS_MAX)
        pull_put_off(c, p, PULL_BUSY_LAYOUTS, c->limits.busy_retry_ms);
    else
        pull_set_busy(c, p, PULL_BUSY_LAYOUTS);
}

static bool offer_has_room(const struct core *c, const struct pull *p, const struct peer_msg *msg)
{
    struct layout_pair pair = {.from = msg->layout_hash, .to = pool_at(c, p->pool)->layout_hash};

    return msg->err != TERN_OK || msg->layout_hash == 0 || resharded_room(c, p->link, pair);
}

/* Takes the pages for all of it. A follower has them already, except those for whole spans. */
static enum tern_err take_offered(struct core *c, struct pull *p, const struct peer_msg *msg,
                                  struct shortage *shortage)
{
    uint32_t beside[GROUPS_MAX] = {0};

    pull_spans_told(c, p, msg, msg->to, beside);
    if (p->follow)
        TRY(pages_make_room(c, engine_at(c, p->engine), pool_at(c, p->pool),
                            (struct page_need){beside, NULL}, shortage));
    else
        TRY(make_room(c, p, msg->to, beside, shortage));
    if (!p->follow)
        pull_reserve(c, p, msg->to);
    pull_reserve_spans(c, p);
    return TERN_OK;
}

/* The session needs nothing of the offer; if peers were asked, another may have more. */
static void offer_of_nothing(struct core *c, struct actions *out, struct pull *p,
                             const struct peer_msg *msg)
{
    if (!pull_tries_next(c, p))
        pull_set_ending(c, p, peer_err_heard(msg->kind, msg->err));
    else if (msg->serve.gen != 0)
        pull_send(c, out, p, PEER_PULL_DONE)->err = TERN_GONE;
}

static void offer_take(struct core *c, struct actions *out, struct pull *p,
                       const struct peer_msg *msg)
{
    struct shortage shortage = {0};
    enum tern_err err;

    p->handed = msg->handed;
    p->said = msg->err == TERN_INVALID ? msg->differs : msg->busy;
    p->busy = PULL_BUSY_SOURCE;
    if (msg->err == TERN_BUSY && msg->retry_ms > 0 && p->asks < PULL_ASKS_MAX) {
        pull_put_off(c, p, PULL_BUSY_SOURCE, msg->retry_ms);
        return;
    }
    if (msg->err == TERN_OK && msg->to == msg->from && p->awaited > 0) {
        pull_wait(c, p);
        return;
    }
    if (!offer_has_room(c, p, msg)) {
        offer_later(c, out, p, msg);
        return;
    }
    p->serve = msg->serve;
    p->layout_hash = msg->layout_hash;
    if (msg->err == TERN_OK && msg->blob_bytes > 0 && !blob_keep(c, p, msg)) {
        pull_set_busy(c, p, PULL_BUSY_BLOB);
        return;
    }
    if (msg->err != TERN_OK || has_all(c, p, msg)) {
        offer_of_nothing(c, out, p, msg);
        return;
    }
    err = take_offered(c, p, msg, &shortage);
    if (err == TERN_OK) {
        fetch_sought(c, p);
        pull_run(c, p);
        offer_told(c, out, p, msg);
        if (p->npages == 0)
            fetch_publish(c, p); /* all of it was committed here since the Match */
        return;
    }
    p->err = err;
    fetch_end(c, out, p, &shortage);
}

/* Handles the source's messages about a running transfer: an offer, more names of offered pages, or
 * a request for more tokens. */
static void pull_msg(struct core *c, struct actions *out, struct pull *p,
                     const struct peer_msg *msg)
{
    if (msg->kind == PEER_PULL_MORE) {
        if (p->state == PULL_ASKED)
            fetch_more(c, out, p, msg);
        return;
    }
    if (msg->kind == PEER_PULL_EARLY)
        return; /* its source offers the same pages with their chunk */
    if (p->state == PULL_RUNNING && (p->told == p->to || msg->err != TERN_OK))
        return; /* a repetition */
    if (msg->err == TERN_OK && !pull_offer_fits(c, p, msg)) {
        pull_broke_protocol(c, out, p);
    } else if (p->state == PULL_RUNNING && msg->blob_bytes > 0 && !blob_keep(c, p, msg)) {
        pull_set_busy(c, p, PULL_BUSY_BLOB);
    } else if (p->state == PULL_RUNNING) {
        offer_told(c, out, p, msg);
    } else {
        offer_take(c, out, p, msg);
    }
}

void fetch_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg)
{
    struct pull *p = pull_find(c, msg->pull);

    if (msg->kind == PEER_PULL_OFFER)
        ask_heard(c, link, msg);
    if (p && p->link != link) {
        action_add(out, ACT_LINK_CLOSE)->link.link = link;
        return;
    }
    if (p && p->given_back.gen != 0 && serve_id_equal(msg->serve, p->given_back))
        return; /* it was under way when the source was told to release */
    if (msg->kind == PEER_PULL_ABORT) {
        if (!p)
            return;
        p->handed = msg->handed;
        p->said = 0;
        pull_set_ending(c, p, peer_err_heard(msg->kind, msg->err));
        return;
    }
    if (p && (p->state == PULL_ASKED || p->state == PULL_RUNNING)) {
        pull_msg(c, out, p, msg);
        return;
    }
    /* Too late: has the source release its pages. If p exists, fetch_end does. */
    if (!p && msg->err == TERN_OK && msg->serve.gen != 0) {
        struct peer_msg *done = peer_msg_add(out, link, PEER_PULL_DONE);

        done->err = TERN_GONE;
        done->pull = msg->pull;
        done->serve = msg->serve;
    } else if (p && p->state == PULL_ASKED_ENDS) {
        p->serve = msg->serve;
    }
}

/* --- from this daemon's own disk: a transfer whose source is the disk --- */

/* Takes the pages and begins, or ends. Requires room for four actions. */
static void take_from_disk(struct core *c, struct actions *out, struct pull *p)
{
    struct shortage shortage = {0};

    fetch_pins_history(c, p);
    p->err = make_room(c, p, p->to, NULL, &shortage);
    if (p->err != TERN_OK) {
        pull_state_move(&p->state, PULL_ASKED_ENDS);
        fetch_end(c, out, p, &shortage);
        return;
    }
    pull_reserve(c, p, p->to);
    pull_run(c, p);
    pull_told_disk(c, p);
    tenant_at(c, p->tenant)->disk.fetched_pages += p->npages;
    if (p->npages == 0)
        fetch_publish(c, p); /* all of it was committed here since the Match */
}

enum tern_err fetch_from_disk(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_fetch *r = &call->req->fetch;
    struct session *s = call->session;
    struct token_view w;
    uint32_t chunk, most;
    struct pull *p;

    TRY(session_may_fetch(c, s, ret));
    if (!disk_on(c, session_pool(c, s)))
        return refuse(ret, TERN_UNSUPPORTED,
                      "there is no disk tier for this tenant: start the daemon with --spill.dir, "
                      "and give the tenant spill_bytes");
    w = session_rest(c, s);
    if (r->depth && r->depth < w.end)
        w.end = r->depth > s->committed ? r->depth : s->committed;
    TRY(at_least_fits(s, r, w.end, ret));
    chunk = space_at(c, s->space)->reset ? NONE : disk_reach(c, s->node, &w, true);
    most = chunk == NONE ? 0 : disk_chunk_at(c, chunk)->depth;
    if (r->at_least > most && r->at_least > s->written)
        return refuse_numbers(ret, TERN_INVALID,
                              "at_least is #, and the disk has fewer tokens (Match returns their "
                              "number in disk_depth); a fetch would return #",
                              r->at_least, most);
    if (most <= s->written)
        return TERN_OK; /* the disk has no more */
    TRY(fetch_at_once(c, s, most, ret));
    if (share_room(c, SHARE_PULLS, pull_holder(c, call->engine, link_disk(&c->limits))) == 0)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_PULLS));
    p = fetch_begin(c, call, link_disk(&c->limits));
    p->to = most;
    p->chunk = chunk;
    disk_pin(c, chunk);
    take_from_disk(c, call->out, p);
    return TERN_OK;
}

/* --- work that waits for room --- */

/* Compares keys, too: with a wrong key a pull gets only the source's refusal. */
static bool shows_same(const struct pull *a, const struct pull *b)
{
    return a->tenant == b->tenant && a->ticket.incarnation == b->ticket.incarnation &&
           session_id_equal(a->ticket.id, b->ticket.id) && a->ticket.key[0] == b->ticket.key[0] &&
           a->ticket.key[1] == b->ticket.key[1];
}

/* Y2: the winner's ticket was used up here, so all other fetches of it here end, whatever the
 * source still sends. Returns false if there are none. */
static bool others_lose(struct core *c, const struct pull *winner)
{
    bool any = false;

    if (winner->ticket.id.gen == 0)
        return false;
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        struct pull *p = pull_at(c, i);

        if (p->state == PULL_STOPPING || !shows_same(p, winner))
            continue;
        pull_set_ending(c, p, TERN_GONE);
        any = true;
    }
    return any;
}

bool fetch_flush(struct core *c, struct actions *out)
{
    bool all = true;

    piece_begin(c);
    for (uint32_t i = c->pulls_active.head, next; i != NONE; i = next) {
        struct pull *p = pull_at(c, i);

        next = p->active.next;
        c->visits++;
        pull_check_time(c, p);
        fetch_choose(c, p);
        if (p->state == PULL_RUNNING && p->publishes)
            fetch_publish(c, p);
        all = all && !p->publishes;
        if (p->state == PULL_RUNNING)
            all = fetch_wait_tell(c, out, p) && all;
        if (p->state != PULL_ASKED_ENDS && p->state != PULL_RUNNING_ENDS && !pull_takes_first(p))
            continue;
        if (visits_left(c) == 0 || actions_room(out) < 4 || (p->blob_bytes > 0 && out->opens) ||
            !refs_fit(out,
                      (struct runs_wanted){.runs = 2 * GROUPS_MAX,
                                           .refs = pool_table_refs(pool_at(c, p->pool), p->to)}))
            all = false;
        else if (pull_takes_first(p))
            all = take_first(c, out, p) && all;
        else
            fetch_end(c, out, p, NULL);
        if ((p->state == PULL_STOPPING || p->state == PULL_EMPTY) && p->err == TERN_OK)
            all = !others_lose(c, p) && all;
    }
    /* Only now: a pull that ended released its bytes in flight, and no event may follow. */
    return all && fetch_ask_again(c, out) && pulls_issue(c, out);
}
