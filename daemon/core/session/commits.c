/* Commit-chunk (T6-T8): a session's next whole chunk becomes a prefix node, or the session adopts
 * the existing node. Engines commit what they wrote, and transfers publish what arrived; both use
 * chunk_attach. */
#include "core/session/commits.h"

#include "core/arena/actions.h"
#include "core/disk/stores.h"
#include "core/memory/pages.h"
#include "core/session/record.h"
#include "core/session/retires.h"
#include "core/session/room.h"
#include "core/transfer/serves.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

/* A node's part of a group. */
struct segment {
    uint32_t node, group;
};

/* Moves the group's next n pages into the segment. */
static void segment_fill(struct core *c, struct segment to, struct chunk_source *src, uint32_t n)
{
    struct list pages = LIST_EMPTY;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t record = page_list_pop(c, &src->pages[to.group]);
        struct page *pg = page_at(c, record);

        page_move(c, pg, PAGE_COMMITTED, to.node);
        pg->step = src->named;
        if (src->arriving)
            page_seal_state_move(&pg->seal, PAGE_SEAL_DONE);
        page_list_push(c, &pages, record);
    }
    node_at(c, to.node)->group[to.group].pages[TIER_DEVICE] = pages.head;
    node_changed(c, to.node);
}

/* Drops the group's pages before the page `before`. */
static void drop_head(struct core *c, struct chunk_source *src, struct group_page before)
{
    uint32_t g = before.group;

    while (src->pages[g].n > 0 && src->base[g] < before.page) {
        page_list_push(c, src->duplicates, page_list_pop(c, &src->pages[g]));
        src->base[g]++;
    }
}

/* T18: returns true if a segment written at the source's step may be added to an existing node. */
static bool refill_allowed(struct core *c, const struct engine *e, struct segment to,
                           struct chunk_source *src)
{
    struct node *n = node_at(c, to.node);

    if (!node_visible(n))
        return *src->step <= n->work.publish_step;
    if (n->state.refilling && n->work.publish_step > 0)
        return false; /* another commit's refill waits for its step */
    if (n->group[to.group].copying != NONE)
        return false; /* it is being copied from the host, for a waiting load */
    if (*src->step <= e->done_min)
        return true;
    if (!n->state.refilling) {
        n->work.publish_next = *src->pending;
        *src->pending = to.node;
    }
    n->state.refilling = (uint16_t)(n->state.refilling | 1u << to.group);
    node_changed(c, to.node);
    return true;
}

/* If the step has already passed, the refill may complete the window of a resume point below. A
 * page added to a sealed node is not sealed yet; an unpublished node came from a peer. */
static void refilled(struct core *c, uint32_t slot, struct chunk_source *src)
{
    struct node *n = node_at(c, slot);

    if (n->state.refilling)
        return;
    if (node_visible(n))
        state_arrived(c, slot, true, &src->arrived);
    if (src->arriving || n->work.seal != SEAL_DONE)
        return;
    seal_state_move(&n->work.seal, SEAL_NONE);
    if (node_visible(n))
        seal_queue(c, slot);
}

/* A RECURRENT page is the state at one depth. The session hands its page over and continues with a
 * fresh one, into which the engine copies the state (T21). */
static void recurrent_hand_over(struct core *c, struct session *s, struct segment to,
                                struct chunk_source *src)
{
    struct pool *p = session_pool(c, s);
    uint32_t need[GROUPS_MAX] = {0}, fresh;

    need[to.group] = 1;
    if (src->state_at != node_at(c, to.node)->depth || src->pages[to.group].n != 1)
        return;
    if (!src->arriving && pages_make_room_now(c, p, need) != TERN_OK)
        return; /* better to continue without STATE than not at all */
    if (!refill_allowed(c, engine_at(c, s->engine), to, src))
        return;
    segment_fill(c, to, src, 1);
    refilled(c, to.node, src);
    if (src->arriving)
        return;
    fresh = page_take(c, p, to.group, PAGE_OWNED, session_slot(c, s));
    page_list_push(c, &s->owned[to.group], fresh);
    src->handed |= 1u << to.group;
}

/* The first page may have arrived in part. Returns true if no window that ends at the node or
 * behind it needs the missing part. */
static bool segment_whole(const struct pool *p, const struct node *n,
                          const struct chunk_source *src, uint32_t g)
{
    const struct group_layout *l = &p->group[g].layout;

    return n->depth >= src->whole_from ||
           src->base[g] * l->page_tokens + l->window >= src->whole_from;
}

/* T7. If no node took the pages before the segment, only whole segments leave: window_give tries
 * the others again. */
static uint32_t leaves_below(const struct pool *p, const struct node *n,
                             const struct chunk_source *src, uint32_t g)
{
    const struct group *gr = &p->group[g];
    uint32_t first = window_first(gr, n->depth);

    if (src->arriving || gr->reach < 2 || src->base[g] >= segment_first(p, gr, n->depth))
        return first;
    return first * gr->layout.page_tokens / p->align * p->align / gr->layout.page_tokens;
}

static void segment_attach(struct core *c, struct session *s, struct segment to,
                           struct chunk_source *src)
{
    const struct pool *p = session_pool(c, s);
    const struct node *n = node_at(c, to.node);
    uint32_t g = to.group;
    uint32_t first = segment_first(p, &p->group[g], n->depth),
             end = segment_end(&p->group[g], n->depth);

    if (p->group[g].layout.family == FAMILY_RECURRENT) {
        if (n->group[g].pages[TIER_DEVICE] == NONE)
            recurrent_hand_over(c, s, to, src);
        return;
    }
    drop_head(c, src, (struct group_page){g, leaves_below(p, n, src, g)});
    if (src->base[g] < first)
        return; /* no node has these pages: the session still needs and keeps them */
    if (n->state.refilling & 1u << g) {
        src->unread |= 1u << g;
        return; /* no session may read that refill yet: this one keeps its own pages */
    }
    if (n->group[g].pages[TIER_DEVICE] != NONE)
        drop_head(c, src, (struct group_page){g, end}); /* the node's are canonical */
    else if (src->base[g] == first && src->base[g] + src->pages[g].n >= end &&
             segment_whole(p, n, src, g) && refill_allowed(c, engine_at(c, s->engine), to, src)) {
        segment_fill(c, to, src, end - first);
        refilled(c, to.node, src);
        src->base[g] = end;
    }
}

/* Moves the session's committed length to the end of node `slot`: pins the node and borrows its
 * STATE. */
static void move_on(struct core *c, struct session *s, uint32_t slot, struct chunk_source *src)
{
    const struct pool *p = session_pool(c, s);

    node_pin(c, slot, REF_DEVICE);
    node_unpin(c, s->node, REF_DEVICE);
    s->node = slot;
    s->committed += p->align;
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (!group_is_state(&p->group[g]))
            s->base[g] = s->committed / p->group[g].layout.page_tokens;
    if (p->nstate == 0) {
        s->state_from = s->committed;
        return;
    }
    src->unread = 0;
    state_hold(c, (struct path){slot, s->committed - p->align});
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (group_is_state(&p->group[g]))
            segment_attach(c, s, (struct segment){slot, g}, src);
}

static void set_pending(struct core *c, struct session *s, uint32_t slot, struct chunk_source *src)
{
    struct node *n = node_at(c, slot);
    const struct node *parent = node_at(c, s->node);

    if (!node_visible(parent) && *src->step < parent->work.publish_step)
        *src->step = parent->work.publish_step; /* a chunk is not visible before its parent */
    if (src->arriving)
        seal_state_move(&n->work.seal, SEAL_DONE);
    n->pending_engine = s->engine;
    n->work.publish_step = *src->step;
    n->work.since_ns = src->arriving ? 0 : c->now_ns;
    n->work.publish_next = *src->pending;
    *src->pending = slot;
    node_changed(c, slot);
}

static void history_fill(struct core *c, const struct pool *p, uint32_t slot,
                         struct chunk_source *src)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (!group_is_state(&p->group[g])) {
            segment_fill(c, (struct segment){slot, g}, src, p->group[g].segment);
            src->base[g] += p->group[g].segment;
        }
}

/* T7: removes what is below the last target's window from the table, except the session's own pages
 * of the segment where the window begins. */
static void leave_below(const struct core *c, struct session *s, uint64_t step)
{
    const struct pool *p = session_pool(c, s);

    for (uint32_t g = 0; g < p->ngroups; g++) {
        uint32_t first = window_first(&p->group[g], s->committed);

        if (s->owned[g].n > 0 && s->base[g] < first)
            first = s->base[g];
        if (p->group[g].layout.family == FAMILY_WINDOW)
            session_slid_to(s, (struct group_page){g, first}, step);
    }
}

static enum tern_err attach_new(struct core *c, struct session *s, struct token_view *w,
                                struct chunk_source *src)
{
    const struct pool *p = session_pool(c, s);
    uint32_t slot = node_create(c, s->node, w);

    if (slot == NONE)
        return TERN_BUSY;
    node_take_chunk(c, slot, &s->tokens);
    if (c->limits.disk_chunks > 0)
        disk_node_new(c, slot);
    history_fill(c, p, slot, src);
    set_pending(c, s, slot, src);
    move_on(c, s, slot, src);
    return TERN_OK;
}

/* The chunk is in the tree, on the host only: the session's pages return it to the device. */
static enum tern_err attach_again(struct core *c, struct session *s, uint32_t slot,
                                  struct chunk_source *src)
{
    const struct pool *p = session_pool(c, s);
    struct node *n = node_at(c, slot);

    if (n->work.copy != COPY_NONE)
        return TERN_GONE; /* it is being loaded */
    tokens_drop_chunk(c, &s->tokens);
    history_fill(c, p, slot, src);
    node_arrive(c, slot);
    set_pending(c, s, slot, src);
    move_on(c, s, slot, src);
    if (n->host_corrupt && n->children.n == 0 && n->refs[REF_HOST] == 0 &&
        n->work.copy == COPY_NONE && n->work.loaders == 0)
        node_leave_host(c, slot);
    return TERN_OK;
}

enum tern_err chunk_attach(struct core *c, struct session *s, struct chunk_source *src,
                           bool *ret_adopted)
{
    const struct pool *p = session_pool(c, s);
    struct token_view w = session_rest(c, s);
    uint32_t child = node_child(c, s->node, &w);

    *ret_adopted = child != NONE;
    if (child == NONE)
        return attach_new(c, s, &w, src);
    if (!node_on_device(node_at(c, child))) {
        *ret_adopted = false;
        return attach_again(c, s, child, src);
    }
    if (!node_visible(node_at(c, child)) && node_at(c, child)->pending_engine != s->engine)
        return TERN_GONE; /* T8: it is dropped if the engine that wrote it ends */
    tokens_drop_chunk(c, &s->tokens);
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (!group_is_state(&p->group[g]))
            drop_head(c, src,
                      (struct group_page){g, segment_end(&p->group[g], s->committed + p->align)});
    move_on(c, s, child, src);
    return TERN_OK;
}

/* The canonical pages of the last committed chunk, one run for each group. */
static void adopted_runs(struct core *c, struct actions *out, const struct session *s,
                         const struct chunk_source *src, uint32_t first_run)
{
    const struct pool *p = session_pool(c, s);

    for (uint32_t g = 0; g < p->ngroups; g++) {
        uint32_t first = segment_first(p, &p->group[g], s->committed),
                 n = segment_end(&p->group[g], s->committed) - first;
        struct table_run *last = out->nruns > first_run ? &out->runs[out->nruns - 1] : NULL;
        struct page_ref *refs;

        if (p->group[g].layout.family == FAMILY_RECURRENT ||
            node_at(c, s->node)->group[g].pages[TIER_DEVICE] == NONE || s->base[g] < first + n ||
            src->unread & 1u << g)
            continue; /* no page that the session may read, or it keeps its own */
        if (p->ngroups == 1 && last && last->group == g && last->first + last->n == first &&
            last->refs + last->n == out->refs + out->nrefs) {
            refs = out->refs + out->nrefs; /* continues the last chunk's run */
            out->nrefs += n;
            last->n += n;
        } else {
            refs = run_add(out, (struct table_run){.group = g, .first = first, .n = n});
        }
        node_refs(c, s->node, &p->group[g], first, refs);
    }
}

/* The visits of a chunk: its node, its pages and its tokens. */
static uint32_t chunk_visits(const struct pool *p)
{
    return NODE_VISITS + (chunk_pages(p) + tokens_blocks_per_chunk(p->align)) / 4;
}

/* True if the session's own pages begin with a segment at *ret_at that the path's node lacks. */
static bool gives_at(const struct core *c, const struct session *s, uint32_t g, uint32_t *ret_at)
{
    const struct pool *p = session_pool(c, s);

    *ret_at = s->base[g] * p->group[g].layout.page_tokens;
    return p->group[g].reach > 1 && *ret_at < s->committed && *ret_at >= s->state_from &&
           *ret_at % p->align == 0;
}

/* T18: gives the session's own pages to the path's nodes whose segments begin with them, from the
 * highest node on, as far as the step's visits allow; the next commit continues. A ticket's window
 * may begin within a chunk. No node takes the first pages of such a window: they stay the session's
 * own, and delay the other pages, until the window has left them. */
static void window_give(struct core *c, struct actions *out, struct session *s,
                        struct chunk_source *src)
{
    const struct pool *p = session_pool(c, s);
    uint32_t given = 0, at;

    for (uint32_t next = 0; next < s->committed; next = given + p->align) {
        uint32_t node;

        given = s->committed;
        for (uint32_t g = 0; g < p->ngroups; g++)
            if (gives_at(c, s, g, &at) && at >= next && at < given)
                given = at;
        if (given == s->committed || c->visits >= give_back_end(c) ||
            !refs_fit(out, (struct runs_wanted){.runs = p->ngroups, .refs = chunk_pages(p)}))
            return;
        c->visits += chunk_visits(p);
        node = node_above(c, (struct path){s->node, given + p->align});
        for (uint32_t g = 0; g < p->ngroups; g++) {
            uint32_t first = s->base[g], n = p->group[g].segment;

            if (!gives_at(c, s, g, &at) || at != given)
                continue;
            segment_attach(c, s, (struct segment){node, g}, src);
            if (s->base[g] > first)
                node_refs(c, node, &p->group[g], first,
                          run_add(out, (struct table_run){.group = g, .first = first, .n = n}));
        }
    }
}

/* For each RECURRENT page that was handed over: the fresh page, and what to copy into it. */
static void handed_runs(struct core *c, struct actions *out, const struct session *s,
                        uint32_t handed)
{
    for (uint32_t g = 0; g < c->limits.groups; g++)
        if (handed & 1u << g)
            *run_add(out, (struct table_run){.group = g, .n = 1, .from = recurrent_from(c, s, g)}) =
                page_ref_of(c, s->owned[g].head);
}

/* Returns true if the duplicates and the new nodes have records, or need none. Checked for each
 * chunk, since an adopted chunk may be pending; then each chunk after it is pending, too. */
static bool records_ready(const struct core *c, const struct engine *e, const struct session *s,
                          uint64_t step)
{
    return share_room(c, SHARE_RETIRES, e->tenant) >= 2 ||
           (step <= e->done_min && node_visible(node_at(c, s->node)));
}

/* T6: checks that the session may commit to the depth. */
static enum tern_err commit_check(const struct session *s, const struct pool *p, uint32_t depth,
                                  struct op_result *ret)
{
    if (depth % p->align == 0)
        return depth <= s->written ? TERN_OK : TERN_INVALID;
    ret->align = p->align;
    return TERN_INVALID;
}

/* --- stores to the disk --- */

void session_stores_from(struct core *c, struct session *s)
{
    const struct pool *p = session_pool(c, s);

    if (!disk_on(c, p))
        return;
    s->disk_stored = disk_boundary(&c->limits, p, s->committed);
    s->disk_cold = disk_cold_depth(&c->limits, p, s->tokens.end);
    if (s->disk_cold <= s->committed)
        s->disk_cold = 0; /* it was stored when computed */
}

/* Begins a store. *ret_node: the node where the store ends; the root if no depth can be resumed.
 * Returns false if no store begins, but true if the prefix is too long for the disk. */
static bool begin(struct core *c, struct session *s, uint32_t depth, enum disk_reason reason,
                  uint32_t *ret_node)
{
    struct disk_wanted w = {.node = disk_node_at(c, (struct disk_cut){s->node, depth}),
                            .reason = reason,
                            .session = {session_slot(c, s), s->gen},
                            .before = s->disk_stored};

    *ret_node = w.node;
    if (w.node == NONE) {
        tenant_at(c, session_pool(c, s)->tenant)->disk.refused++;
        return true;
    }
    return node_at(c, w.node)->depth > 0 && disk_store_begin(c, &w);
}

/* D1: a boundary was passed. */
static void store_continued(struct core *c, struct session *s)
{
    const struct pool *p = session_pool(c, s);
    uint32_t boundary, node;

    if (!disk_on(c, p) || space_at(c, s->space)->reset)
        return;
    boundary = disk_boundary(&c->limits, p, s->committed);
    if (boundary > s->disk_stored && begin(c, s, boundary, DISK_CONTINUED, &node))
        s->disk_stored = boundary;
}

void session_store_prompt(struct core *c, struct session *s)
{
    const struct pool *p = session_pool(c, s);
    uint32_t node;

    if (disk_on(c, p) && s->disk_cold > 0 && s->committed >= s->disk_cold &&
        !space_at(c, s->space)->reset && !begin(c, s, s->disk_cold, DISK_COLD, &node) &&
        node_at(c, node)->depth > 0)
        disk_store_owe(c, node);
    s->disk_cold = 0;
}

enum tern_err request_store(struct core *c, struct call *call, struct reply *ret)
{
    struct session *s = call->session;
    const struct pool *p = session_pool(c, s);
    uint32_t depth = call->req->store.depth;
    struct disk_wanted w = {.reason = DISK_COLD};

    if (c->limits.disk_chunks == 0)
        return refuse(ret, TERN_UNSUPPORTED,
                      "the daemon has no disk tier: start it with --spill.dir");
    if (!disk_on(c, p))
        return refuse(ret, TERN_UNSUPPORTED,
                      "the tenant has no part of the disk tier: set its spill_bytes");
    if (depth - depth % p->align > s->committed)
        return refuse(ret, TERN_INVALID, "only committed tokens are stored: commit them first");
    if (space_at(c, s->space)->reset)
        return refuse(ret, TERN_GONE, "the namespace was reset: Match again in a new session");
    if (depth == 0) {
        depth = disk_cold_depth(&c->limits, p, s->tokens.end);
        depth = depth < s->committed ? depth : s->committed;
    }
    w.node = disk_node_at(c, (struct disk_cut){s->node, depth});
    if (w.node == NONE)
        return refuse_numbers(ret, TERN_UNSUPPORTED,
                              "a prefix on the disk has at most 65,536 chunks, of which its STATE "
                              "may cover 510; this one has #, and a window of its pool covers #: "
                              "store a shorter prefix, or open the pool with a larger align_tokens",
                              depth / p->align, p->reach);
    if (node_at(c, w.node)->depth == 0)
        return refuse(ret, TERN_INVALID,
                      "the depth is less than one chunk, or no resume point is committed: commit a "
                      "whole chunk first");
    if (share_room(c, SHARE_DISK_STORES, p->tenant) == 0)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_DISK_STORES));
    s->disk_cold = 0; /* the caller named the anchor */
    w.reply = call_later(call);
    (void)disk_store_begin(c, &w);
    return TERN_OK;
}

/* --- committing --- */

enum tern_err session_commit(struct core *c, struct actions *out, struct engine *e,
                             struct session *s, const struct step_op *op, struct op_result *ret)
{
    const struct pool *p = session_pool(c, s);
    struct list duplicates;
    uint32_t pending = NONE, first_run = out->nruns, begin = s->committed,
             state_from = s->state_from, node = NONE;
    uint64_t step = op->step;
    struct chunk_source src = {.pages = s->owned,
                               .base = s->base,
                               .duplicates = &duplicates,
                               .pending = &pending,
                               .step = &step,
                               .named = op->step,
                               .state_at = s->written,
                               .arrived = NONE,
                               .whole_from = s->whole_from};
    enum tern_err err = TERN_OK;
    struct reason why;
    bool adopted;

    duplicates = LIST_EMPTY;
    TRY(commit_check(s, p, op->length, ret));
    if (op->length <= s->committed)
        return TERN_OK; /* a repetition: T6 has no target */
    for (; err == TERN_OK && s->committed < op->length; c->visits += chunk_visits(p)) {
        if (c->visits >= give_back_end(c))
            err = piece_ended(ret, STEP_TOO_MUCH);
        else if (!records_ready(c, e, s, op->step))
            err = refuse_op(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
        else if (!refs_fit(out,
                           (struct runs_wanted){.runs = 2 * p->ngroups, .refs = chunk_pages(p)}))
            err = piece_ended(ret, NULL);
        else if ((err = chunk_attach(c, s, &src, &adopted)) == TERN_BUSY)
            err = refuse_op_why(ret, nodes_lack(c, p, op->length, &why), &why);
        if (err == TERN_OK && adopted)
            adopted_runs(c, out, s, &src, first_run);
        if (err == TERN_OK)
            window_give(c, out, s, &src);
    }
    if (err == TERN_GONE)
        err = TERN_OK; /* the answer's lengths have the reached depth */
    handed_runs(c, out, s, src.handed);
    if (s->committed > begin) {
        count_figure(c, s->space, FIGURE_COMMITTED, s->committed - begin);
        state_terminal(c, s->node);
        store_continued(c, s);
        leave_below(c, s, op->step);
    }
    if (err == TERN_OK && records_ready(c, e, s, op->step)) /* else a later commit slides */
        node = session_slide(c, s, op->step, s->committed + p->align, &duplicates);
    retire_release(c, e, op->step, &duplicates, (struct path){node, state_from});
    retire_publish(c, e, step, pending);
    session_use(c, s);
    return err;
}
