/* A fetch by the daemon that issued the ticket (Y2): no byte moves. The fetching session borrows
 * the path of the handed-over session and takes over the pages that it owns. Then the handed-over
 * session is closed. All of it happens in one step, or nothing does. Called by request_fetch. */
#include "core/fetch/fetch.h"

#include "core/memory/pages.h"
#include "core/session/record.h"
#include "core/session/sessions.h"
#include "core/transfer/handed.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

/* Returns true if the ticket's pages lie in another pool and this daemon has a link to itself: then
 * they move over that link, as between two daemons. */
bool fetch_moves_here(const struct core *c, const struct call *call)
{
    const struct ticket *t = &call->req->fetch.ticket;
    struct session *from;

    if (handed_find(c, call->engine->tenant, t, &from) != TERN_OK ||
        from->pool == call->session->pool)
        return false;
    for (uint32_t i = 0; i < c->limits.peers; i++)
        if (link_at(c, i)->up && link_at(c, i)->incarnation == c->incarnation)
            return true;
    return false;
}

static enum tern_err find(const struct core *c, const struct call *call, struct session **ret_from,
                          struct reply *ret)
{
    enum tern_err err = handed_find(c, call->engine->tenant, &call->req->fetch.ticket, ret_from);
    uint32_t why = TICKET_BUSY_UNSAID;

    if (err == TERN_DENIED)
        return refuse(ret, err, TICKET_DENIED);
    if (err != TERN_OK)
        return refuse(ret, err, TICKET_GONE);
    if ((*ret_from)->pool != call->session->pool)
        return refuse(ret, TERN_UNSUPPORTED,
                      "the ticket's pages lie in another pool of this daemon: list this daemon "
                      "among its own `peers`, under its own name, and fetch when that link is up");
    if ((*ret_from)->ticket_state == TICKET_PROMISED && call->req->fetch.follow)
        return refuse(ret, TERN_UNSUPPORTED,
                      "this daemon issued the ticket and its session still runs: Match its "
                      "committed tokens, or fetch the ticket after its Handoff");
    err = handed_ready(c, *ret_from, &why);
    if (err == TERN_BUSY)
        ret->fetch.retry_ms = c->limits.busy_retry_ms;
    if (err == TERN_BUSY && (*ret_from)->ticket_state == TICKET_PROMISED)
        return refuse_numbers(ret, err, TICKET_STILL_RUNS, (*ret_from)->committed,
                              (*ret_from)->tokens.end);
    return err == TERN_OK
               ? TERN_OK
               : refuse(ret, err, err == TERN_BUSY ? ticket_busy_text(why) : TICKET_GONE);
}

/* Number of the session's tokens that agree with those handed over. Both lists have the same length
 * and namespace, and the source's path is visible. Only the chunk behind the deepest common node is
 * compared token by token. */
static uint32_t tokens_agree(struct core *c, struct actions *out, const struct session *s,
                             const struct session *from)
{
    struct req_tokens tail = {0};
    struct token_view w = session_rest(c, s);
    uint32_t a = node_walk(c, s->node, &w), b = from->node, left;

    for (; a != b; c->visits++)
        if (node_at(c, a)->depth > node_at(c, b)->depth)
            a = node_at(c, a)->parent;
        else
            b = node_at(c, b)->parent;
    tail.base = node_at(c, b)->depth;
    left = s->tokens.end - tail.base;
    tail.n = left < s->tokens.align ? left : s->tokens.align;
    fetch_gather(c, s, (struct tokens_range){tail.base, tail.base + tail.n}, out, &tail.nkeys);
    tail.v = out->tokens;
    tail.keys = out->keys;
    return tokens_list_common(c, from, &tail);
}

/* Y2: returns true if only the blob moves. local_check refuses a ticket of other tokens. */
static bool has_all(const struct session *s)
{
    return s->written == s->tokens.end;
}

static enum tern_err local_check(struct core *c, const struct call *call, struct session **ret_from,
                                 struct reply *ret)
{
    const struct req_fetch *r = &call->req->fetch;
    const struct session *s = call->session;
    uint32_t agree;

    TRY(has_all(s) ? session_may_fetch_nothing(s, ret) : session_may_fetch(c, s, ret));
    TRY(find(c, call, ret_from, ret));
    TRY(fetch_ticket_fits(c, s, r, ret));
    TRY(fetch_at_once(c, s, s->tokens.end, ret));
    if (s->tokens.end != (*ret_from)->written)
        ret->fetch.handed = (*ret_from)->written;
    if (s->tokens.end != (*ret_from)->written || s->space != (*ret_from)->space)
        return refuse(ret, TERN_INVALID, TICKET_OTHER_TOKENS);
    agree = tokens_agree(c, call->out, s, *ret_from);
    if (agree < s->tokens.end)
        return refuse_numbers(ret, TERN_INVALID, TICKET_OTHER_TOKEN, agree, 0);
    if (!has_all(s) &&
        share_room(c, SHARE_RETIRES, call->engine->tenant) < tail_records(c, s, r->step))
        return refuse(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
    if (!refs_fit(call->out,
                  (struct runs_wanted){.runs = 2 * GROUPS_MAX,
                                       .refs = pool_table_refs(session_pool(c, s), s->tokens.end)}))
        return TERN_BUSY;
    return TERN_OK;
}

/* If the session borrows no STATE yet, its borrows begin where those of the other session began. */
static void borrow_path(struct core *c, struct session *s, const struct session *from)
{
    const struct pool *p = session_pool(c, s);
    const uint32_t before = s->committed;
    uint32_t state_from = before;

    if (s->state_from == before && from->state_from > before)
        s->state_from = state_from = from->state_from;
    for (; s->committed < from->committed; s->committed += p->align, c->visits++)
        tokens_drop_chunk(c, &s->tokens);
    node_pin(c, from->node, REF_DEVICE);
    node_unpin(c, s->node, REF_DEVICE);
    s->node = from->node;
    if (p->nstate > 0)
        state_hold(c, (struct path){s->node, state_from});
    else
        s->state_from = s->committed;
}

/* Moves the pages behind the other session's committed length. They will be written again, so their
 * checksums are void. If the path grew, a WINDOW group keeps only the part of the path's window
 * that the end needs. */
static void take_pages(struct core *c, struct session *s, struct session *from, bool grew)
{
    const struct group *groups = session_pool(c, s)->group;

    for (uint32_t g = 0; g < session_pool(c, s)->ngroups; g++) {
        c->visits += from->owned[g].n;
        while (from->owned[g].n > 0) {
            uint32_t record = page_list_pop(c, &from->owned[g]);

            page_move(c, page_at(c, record), PAGE_OWNED, session_slot(c, s));
            page_seal_state_move(&page_at(c, record)->seal, PAGE_SEAL_NONE);
            page_list_push(c, &s->owned[g], record);
        }
        s->base[g] = from->base[g];
        if (s->first[g] < from->first[g])
            s->first[g] = from->first[g];
        if (grew && groups[g].layout.family == FAMILY_WINDOW)
            session_slid_to(s, (struct group_page){g, window_first(&groups[g], from->written)}, 0);
    }
    s->written = s->allocated = from->written;
}

static void take_over(struct core *c, const struct call *call, struct session *from)
{
    struct session *s = call->session;
    const uint32_t before = s->committed;

    tail_give_way(c, s, call->req->fetch.step);
    borrow_path(c, s, from);
    take_pages(c, s, from, s->committed > before);
    count_figure(c, s->space, FIGURE_HANDED, s->written - before);
    session_runs(c, call->out, s, before);
}

static void give_blob(const struct core *c, struct actions *out, const struct session *from,
                      struct reply *ret)
{
    if (from->blob_bytes == 0)
        return;
    tokens_copy(c, &from->blob, out->tokens);
    ret->fetch.blob = out->tokens;
    ret->fetch.blob_bytes = from->blob_bytes;
    out->opens = true;
}

enum tern_err fetch_from_here(struct core *c, struct call *call, struct reply *ret)
{
    struct session *s = call->session, *from;

    TRY(local_check(c, call, &from, ret));
    if (!has_all(s))
        take_over(c, call, from);
    session_state_move(&s->state, SESSION_TURN);
    session_use(c, s);
    give_blob(c, call->out, from, ret);
    reply_lengths(s, ret);
    handed_taken(c, from);
    session_close(c, from, from->ticket_step, true);
    return TERN_OK;
}
