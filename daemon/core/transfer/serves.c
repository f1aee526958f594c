/* Transfers out: a peer asked for a prefix. WALKING: its tokens arrive in pieces, and all that were
 * sent match; the prefix is pinned as far as they led. SEALING: its pages are pinned (X4), some
 * checksums are still being computed. OPEN: offered, the peer reads; it asks for the names of the
 * pages piece by piece. STOPPING: over; the pin stays until the data path proves that nothing
 * reads. UNTOLD: a ticket was offered, and this end gave up: the ticket serves no other fetch until
 * the peer has reported how its own ended (Y6). */
#include "core/transfer/serves.h"

#include "core/arena/actions.h"
#include "core/memory/pages.h"
#include "core/transfer/handed.h"
#include "core/transfer/peer_words.h"
#include "core/transfer/pulls.h"
#include "core/transfer/serve_record.h"
#include "core/transfer/spans.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

/* --- requests --- */

/* The destination's pool, if this daemon asks itself; else NONE. */
static uint32_t asking_pool(const struct core *c, uint32_t link, const struct peer_msg *m)
{
    const struct pull *p =
        link_at(c, link)->incarnation == c->incarnation ? pull_find(c, m->pull) : NULL;

    return p ? p->pool : NONE;
}

static void find_prefix(struct core *c, uint32_t link, const struct peer_msg *m, struct found *ret)
{
    const uint32_t asking = asking_pool(c, link, m);

    *ret = (struct found){.pool = NONE, .node = NONE};
    for (uint32_t i = 0; i < c->limits.pools && !ret->more && visits_left(c) > 0; i++) {
        const struct pool *p = pool_at(c, i);
        struct token_view w = serve_view(c, m, p->align);
        uint32_t root, node;

        if (p->state != POOL_OPEN || p->tenant != m->tenant || i == asking ||
            m->to / p->align > STEP_TABLE_MAX)
            continue;
        root = space_root(c, i, m->ns);
        if (root == NONE)
            continue;
        if (!serve_suits(p, m)) {
            ret->other_layout = p->layout_hash;
            continue;
        }
        node = node_walk(c, root, &w);
        c->visits += node_at(c, node)->depth / p->align;
        ret->more = serve_more_follow(c, m, node);
        if (!ret->more)
            node = state_above(c, node);
        if (ret->more || ret->node == NONE ||
            node_at(c, node)->depth > node_at(c, ret->node)->depth) {
            ret->pool = i;
            ret->node = node;
        }
    }
}

/* Answers a question: how much of each of its prefixes would be offered. Pins nothing. */
static void serve_asked(struct core *c, struct actions *out, uint32_t link,
                        const struct peer_msg *m)
{
    const uint32_t n = m->to / m->each;
    struct peer_msg one = *m, *answer;
    struct found f;

    if (m->from != 0 || m->until != 0 || m->to != n * m->each || n > BLOCKS_ASKED_MAX ||
        (n > 1 && m->nkeys > 0)) {
        serve_offer_nothing(c, out, link, m, TERN_INVALID);
        return;
    }
    answer = serve_offer_nothing(c, out, link, m, TERN_OK);
    answer->each = one.to = m->each;
    for (uint32_t i = 0; i < n; i++, c->visits++, one.tokens += m->each) {
        find_prefix(c, link, &one, &f);
        out->tokens[i] = f.node == NONE ? 0 : node_at(c, f.node)->depth;
    }
    answer->tokens = out->tokens;
    answer->blob_bytes = n * (uint32_t)sizeof out->tokens[0];
    out->opens = true;
}

/* All tokens were looked up: pins the STATE needed to resume from their end, or from the next
 * shallower resume point. */
static void serve_walked(struct core *c, struct serve *s)
{
    serve_move(c, s, state_above(c, s->node));
    node_use(c, s->node);
    s->to = node_at(c, s->node)->depth;
    s->state_from = state_low(c, s->node) > s->from ? state_low(c, s->node) : s->from;
    state_hold(c, (struct path){s->node, s->state_from});
    s->wait_node = s->node;
    serve_state_move(&s->state, SERVE_SEALING);
    serve_advance(c, s);
}

/* A peer repeats an open whose tokens did not all arrive: drops the earlier walk. */
static void forget_walk(struct core *c, uint32_t link, struct pull_id pull)
{
    for (uint32_t i = c->serves_active.head, next; i != NONE; i = next) {
        struct serve *s = serve_at(c, i);

        next = s->active.next;
        if (s->state == SERVE_WALKING && s->link == link && pull_id_equal(s->pull, pull))
            serve_free(c, s);
    }
}

static void serve_open(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *m)
{
    struct serve *s;
    struct found f;
    enum tern_err err;

    if (m->tenant >= c->limits.tenants || !peer_tokens_fit(m)) {
        serve_offer_nothing(c, out, link, m,
                            m->tenant >= c->limits.tenants ? TERN_DENIED : TERN_INVALID);
        return;
    }
    if (m->each != 0) {
        serve_asked(c, out, link, m);
        return;
    }
    forget_walk(c, link, m->pull);
    if (m->ticket.id.gen != 0) {
        if (m->follow)
            serve_follow_open(c, out, link, m);
        else
            serve_ticket_open(c, out, link, m);
        return;
    }
    find_prefix(c, link, m, &f);
    if (f.node == NONE || (!f.more && node_at(c, f.node)->depth < serve_least(m))) {
        bool other = f.node == NONE && f.other_layout != 0;

        serve_offer_nothing(c, out, link, m, other ? TERN_UNSUPPORTED : TERN_OK)->layout_hash =
            other ? f.other_layout : 0;
        return;
    }
    err = serve_may_begin(c, link, m, f.pool);
    if (err != TERN_OK) {
        serve_offer_nothing(c, out, link, m, err);
        return;
    }
    s = serve_create(c, link, m, &f);
    if (f.more)
        serve_ask_more(c, out, s);
    else
        serve_walked(c, s);
}

/* The tokens that follow s->node's arrived. If the namespace was reset meanwhile, they match
 * nothing. */
static void serve_tokens(struct core *c, struct actions *out, struct serve *s,
                         const struct peer_msg *m)
{
    struct token_view w = serve_view(c, m, pool_at(c, s->pool)->align);
    uint32_t link = s->link;

    if (!peer_tokens_fit(m) ||
        (!s->follow && (m->to != s->to || m->at != node_at(c, s->node)->depth))) {
        serve_set_ending(c, s, TERN_INVALID);
        return;
    }
    if (s->follow) {
        serve_follow_tokens(c, out, s, m);
        return;
    }
    serve_move(c, s, node_walk(c, s->node, &w));
    touch(c);
    if (space_at(c, node_at(c, s->node)->space)->reset) {
        enum tern_err err = s->handed.gen != 0 ? TERN_GONE : TERN_OK;

        serve_free(c, s);
        serve_offer_nothing(c, out, link, m, err);
    } else if (serve_more_follow(c, m, s->node)) {
        serve_ask_more(c, out, s);
    } else if (s->handed.gen != 0) {
        serve_ticket_tokens(c, out, s, m);
    } else if (node_at(c, state_above(c, s->node))->depth < s->least) {
        serve_free(c, s);
        serve_offer_nothing(c, out, link, m, TERN_OK);
    } else {
        serve_walked(c, s);
    }
}

/* Finds the transfer of a peer's message on this link. */
static struct serve *serve_of(const struct core *c, uint32_t link, const struct peer_msg *m)
{
    struct serve *s = serve_find(c, m->serve);

    return s && s->link == link && pull_id_equal(s->pull, m->pull) ? s : NULL;
}

/* The peer no longer waits for it. */
static void peer_is_over(struct core *c, struct serve *s)
{
    s->peer_over = 1;
    if (s->state == SERVE_UNTOLD)
        serve_free(c, s);
    else
        serve_set_ending(c, s, TERN_OK);
}

void serve_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *m)
{
    struct serve *s = serve_of(c, link, m);
    bool taken;

    if (m->kind == PEER_PULL_OPEN)
        serve_open(c, out, link, m);
    if (m->kind == PEER_PULL_TOKENS && s && s->state == SERVE_WALKING)
        serve_tokens(c, out, s, m);
    if (m->kind == PEER_PULL_NEXT && s && s->state == SERVE_OPEN && m->at == s->told &&
        s->told < s->to) {
        s->wants = 1;
        if (s->follow)
            serve_follow_time(c, s, true);
        touch(c);
    }
    if (m->kind != PEER_PULL_DONE)
        return;
    taken = m->err == TERN_OK && m->ticket.id.gen != 0 && handed_done(c, &m->ticket);
    for (uint32_t i = c->serves_active.head, next; i != NONE; i = next) {
        s = serve_at(c, i);
        next = s->active.next;
        if (s->link == link && pull_id_equal(s->pull, m->pull))
            peer_is_over(c, s);
        else if (taken && session_id_equal(s->handed, m->ticket.id))
            serve_set_ending(c, s, TERN_GONE); /* its connection had ended before */
    }
}

void serve_link_down(struct core *c, uint32_t link)
{
    for (uint32_t i = c->serves_active.head, next; i != NONE; i = next) {
        struct serve *s = serve_at(c, i);

        next = s->active.next;
        if (s->link == link)
            peer_is_over(c, s);
    }
}

void serve_end_pool(struct core *c, uint32_t pool)
{
    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i))
        if (serve_at(c, i)->pool == pool)
            serve_set_ending(c, serve_at(c, i), TERN_GONE);
}

/* True if the peer may have all of the ticket, and report that. An ending ticket does not wait. */
static bool may_be_taken(const struct core *c, const struct serve *s)
{
    return s->served && !s->peer_over && (!s->follow || s->told == s->to) &&
           !session_at(c, s->handed.slot)->ticket_ends;
}

void serve_proved_quiet(struct core *c, struct serve_id id)
{
    struct serve *s = serve_find(c, id);

    if (!s || s->state != SERVE_STOPPING)
        return;
    if (may_be_taken(c, s)) {
        serve_state_move(&s->state, SERVE_UNTOLD);
        touch(c);
    } else {
        serve_free(c, s);
    }
}

/* --- offers and ends, as there is room --- */

/* The next piece of the offer: as many chunks as one message can name. */
static struct transfer_piece next_piece(const struct core *c, const struct serve *s)
{
    const struct pool *p = pool_at(c, s->pool);
    uint32_t low = s->history < s->state_from ? s->history : s->state_from, each = 0,
             pages = c->limits.offer_pages ? c->limits.offer_pages : OFFER_PAGES_MAX;
    struct transfer_piece piece = {
        .at = s->told, .until = s->follow ? s->avail : s->to, .state_last = s->follow};
    uint64_t chunks;

    if (s->follow)
        low = s->history;
    for (uint32_t g = 0; g < p->ngroups; g++)
        each += p->group[g].segment;
    chunks = pages / each ? pages / each : 1;
    if (low < s->told)
        low = s->told; /* no pages to name below it */
    if (piece.until > low && div_up(piece.until - low, p->align) > chunks)
        piece.until = low + (uint32_t)chunks * p->align;
    return piece;
}

/* Reduces the last run, which has all pages of the range, to the first page of each span. */
static void name_spans(struct actions *out, struct transfer_range range, uint32_t pages,
                       struct page_ref *refs)
{
    uint32_t n = 0;

    if (pages == 1)
        return;
    for (uint32_t i = 0; i < range.n; i++)
        if (i == 0 || (range.first + i) % pages == 0)
            refs[n++] = refs[i];
    out->runs[out->nruns - 1].n = n;
    out->nrefs -= range.n - n;
}

static void name_pages(struct core *c, struct actions *out, const struct serve *s,
                       struct transfer_piece piece)
{
    const struct pool *p = pool_at(c, s->pool);
    const struct transfer_span span = {s->from, s->asked_history, s->to};
    uint32_t node = s->node;

    for (; node_at(c, node)->depth > piece.until; c->visits++)
        node = node_at(c, node)->parent;
    for (uint32_t g = 0; g < p->ngroups; g++) {
        struct transfer_range mv = transfer_piece_pages(p, &p->group[g], span, piece);
        struct page_ref *refs =
            run_add(out, (struct table_run){.group = g, .first = mv.first, .n = mv.n});

        if (s->served)
            handed_refs(c, session_at(c, s->handed.slot), &p->group[g],
                        (struct handed_range){node, mv.first, mv.n}, refs);
        else if (mv.n > 0)
            node_refs(c, node, &p->group[g], mv.first, refs);
        name_spans(out, mv, span_shape(&p->group[g], s->peer_tokens[g]).ours, refs);
        c->counts.pages_served += mv.n;
        c->visits += mv.n;
    }
}

/* Returns false without room. Tells the data path first, before any request can arrive. */
static bool offer(struct core *c, struct actions *out, struct serve *s)
{
    const struct pool *p = pool_at(c, s->pool);
    const struct transfer_piece piece = next_piece(c, s);
    const struct transfer_span span = {s->from, s->asked_history, s->to};
    struct runs_wanted wanted = {.runs = p->ngroups};
    struct peer_msg *m;
    bool blob;

    for (uint32_t g = 0; g < p->ngroups; g++)
        wanted.refs += transfer_piece_pages(p, &p->group[g], span, piece).n;
    blob = s->served && (s->follow ? piece.until == s->to : s->state == SERVE_SEALING) &&
           session_at(c, s->handed.slot)->blob_bytes > 0;
    if (actions_room(out) < 2 || !refs_fit(out, wanted) || (blob && out->opens))
        return false;
    if (s->state == SERVE_SEALING)
        serve_start(c, out, s);
    m = serve_msg_add(c, out, s, PEER_PULL_OFFER);
    m->from = s->from;
    m->history = s->asked_history;
    m->to = s->to;
    m->layout_hash = s->layout_hash ? p->layout_hash : 0;
    if (m->layout_hash != 0)
        spans_tell(p, m->page_tokens);
    m->at = piece.at;
    m->until = piece.until < s->to ? piece.until : 0;
    m->runs = out->runs + out->nruns;
    m->nruns = p->ngroups;
    name_pages(c, out, s, piece);
    if (blob) {
        m->blob_bytes = session_at(c, s->handed.slot)->blob_bytes;
        m->tokens = out->tokens;
        tokens_copy(c, &session_at(c, s->handed.slot)->blob, out->tokens);
        out->opens = true;
    }
    s->told = piece.until;
    s->wants = 0;
    if (s->follow)
        serve_follow_time(c, s, false);
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
        struct peer_msg *m = serve_msg_add(c, out, s, kind);

        m->err = s->err;
        m->from = m->to = s->from;
        m->handed = s->handed_length;
    }
    if (s->state == SERVE_SEALING_ENDS) {
        serve_free(c, s);
        return true;
    }
    count_since(c, LATENCY_SERVE, s->started_ns);
    count_time(c, LATENCY_SERVE_SEALING, transfer_stage_ns(&s->times, STAGE_SEALING, c->now_ns));
    a = action_add(out, ACT_SERVE_STOP);
    a->serve.serve = serve_id(c, s);
    serve_state_move(&s->state, SERVE_STOPPING);
    touch(c);
    return true;
}

/* Returns true if it has something that its peer waits for. */
static bool may_offer(const struct serve *s)
{
    if (s->state != SERVE_SEALING && !(s->state == SERVE_OPEN && s->wants))
        return false;
    return s->follow ? s->avail > s->told : s->state == SERVE_OPEN || s->wait_node == NONE;
}

/* Transfers that a decode waits for precede prefetches if there is not room for all. Several events
 * of a turn may report checksums, so followers are examined only once, at the next step without
 * such a report. */
static bool flush(struct core *c, struct actions *out, bool prefetch, bool sealed)
{
    bool all = true;

    for (uint32_t i = c->serves_active.head, next; i != NONE; i = next) {
        struct serve *s = serve_at(c, i);

        next = s->active.next;
        c->visits++;
        if (s->prefetch != prefetch)
            continue;
        if (c->now_ns >= s->deadline_ns)
            serve_set_ending(c, s, TERN_TIMED_OUT);
        if (s->follow && sealed)
            all = false;
        else if (s->follow)
            serve_follow_look(c, s);
        if (s->state == SERVE_SEALING && !s->follow)
            serve_advance(c, s);
        all = all && (s->wait_node == NONE || visits_left(c) > 0);
        if (s->state == SERVE_SEALING_ENDS || s->state == SERVE_OPEN_ENDS)
            all = finish(c, out, s) && all;
        else if (may_offer(s))
            all = offer(c, out, s) && all;
        if (s->follow && !sealed)
            serve_follow_look(c, s); /* pins what was offered, and perhaps more, at once */
    }
    return all;
}

bool serve_flush(struct core *c, struct actions *out, bool sealed)
{
    bool all = flush(c, out, false, sealed);

    return flush(c, out, true, sealed) && all;
}

uint64_t serve_deadline(const struct core *c)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i)) {
        const struct serve *s = serve_at(c, i);

        if (s->state != SERVE_STOPPING && s->state != SERVE_UNTOLD && s->deadline_ns < first)
            first = s->deadline_ns;
    }
    return first;
}

/* Returns NULL unless the page belongs to the requested namespace and has a checksum, so a peer
 * cannot read pages outside its transfer. */
static const struct page *served_page(const struct core *c, struct serve_id serve, uint32_t group,
                                      struct page_ref ref)
{
    const struct serve *s = serve_find(c, serve);
    const struct page *pg;

    if (!s || (s->state != SERVE_OPEN && s->state != SERVE_OPEN_ENDS))
        return NULL;
    pg = page_find(c, pool_at(c, s->pool), group, ref);
    if (!pg || pg->seal != PAGE_SEAL_DONE ||
        !(pg->state == PAGE_HANDED ? s->served && pg->owner == s->handed.slot
                                   : pg->state == PAGE_COMMITTED && node_at(c, pg->owner)->space ==
                                                                        node_at(c, s->node)->space))
        return NULL;
    return pg;
}

enum tern_err core_serve_page(const struct core *c, struct serve_id serve, uint32_t group,
                              struct page_ref ref, uint32_t *ret_record)
{
    const struct page *pg = served_page(c, serve, group, ref);

    if (!pg)
        return TERN_GONE;
    *ret_record = page_slot(c, pg);
    return TERN_OK;
}

enum tern_err core_serve_next(const struct core *c, struct serve_id serve, uint32_t group,
                              struct page_ref ref, struct page_ref *ret)
{
    const struct page *pg = served_page(c, serve, group, ref);

    if (!pg || pg->in_list.next == NONE)
        return TERN_GONE;
    *ret = page_ref_of(c, pg->in_list.next);
    return TERN_OK;
}
