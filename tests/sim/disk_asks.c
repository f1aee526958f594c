/* Requests of engines to the disk tier, and the required answers: Store, the disk depth of a
 * Match and the pages of a Fetch from the disk (D4), resets of namespaces (N1), and the end of a
 * daemon. */
#include "causes.h"
#include "disks.h"

/* --- what exists --- */

uint32_t disk_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t ns, uint32_t variant,
                    uint32_t n, bool then)
{
    struct disks *k = w->disk[d];
    enum look look = then ? LOOK_THEN : LOOK_NOW;
    struct ident id = {.tenant = w->d[d].pool[pool].tenant,
                       .ns = (uint8_t)ns,
                       .ranks = w->d[d].pool[pool].ranks,
                       .variant = (uint8_t)variant};
    uint32_t best = 0;

    for (uint32_t i = 1; disk_has_part(w, d, id.tenant) && i * w->L <= n; i++) {
        struct ident at = ident_at(w, id, i);

        if (!ext_find(k, at, DISK_HISTORY, look))
            break;
        if (w->cfg.nstate == 0 ||
            (ext_find(k, at, DISK_ENTRY, look) && state_whole(w, k, at, look)))
            best = i;
    }
    return best * w->L;
}

void check_disk_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t space, uint32_t variant,
                      uint32_t n, uint32_t depth, uint32_t told)
{
    const struct daemon *m = &w->d[d];
    uint32_t tenant = m->pool[pool].tenant, ns = 0, want;

    while (ns < NAMESPACES && m->space_of[tenant][ns] != space)
        ns++;
    want = ns == NAMESPACES ? 0 : disk_depth(w, d, pool, ns, variant, n, true);
    want = want > depth ? want : 0;
    EXPECT(told <= want, "disk_match_unknown",
           "%u of %u tokens are said to be on the disk, no more than %u are", told, n, want);
    EXPECT(told == want || w->disk[d]->unsure, "disk_match_too_short",
           "%u of %u tokens are said to be on the disk, but %u are", told, n, want);
    if (told)
        MARK(disk_match);
}

void check_disk_fetch(struct sim *w, uint32_t d, const struct session *s, const struct reply *r)
{
    const struct disks *k = w->disk[d];
    const struct lengths *l = &r->fetch.lengths;

    switch (r->err) {
    case TERN_OK:
        EXPECT(l->written >= s->disk_depth || w->cfg.nstate || k->unsure || s->fetch_tail,
               "disk_fetch_short", "%u tokens, but the disk had %u", l->written, s->disk_depth);
        EXPECT(l->committed <= s->disk_depth || l->committed == s->committed, "disk_fetch_long",
               "%u tokens, but the disk had %u", l->committed, s->disk_depth);
        if (l->committed > s->committed && l->committed + w->L > s->ntokens)
            MARK(disk_fetch_whole);
        else if (l->committed > s->committed)
            MARK(disk_fetch_part);
        return;
    case TERN_INVALID:
        EXPECT(s->fetch_before == TURN_NEW || s->fetch_before == TURN_AWAY || s->lame ||
                   (s->fetch_tail && state_needs_own(w, d, s)) ||
                   s->fetch_at_least > s->disk_depth || k->unsure,
               "disk_fetch_invalid", "%s", r->text);
        return;
    case TERN_UNSUPPORTED:
        EXPECT(!disk_has_part(w, d, s->tenant), "disk_fetch_unsupported", "%s", r->text);
        return;
    case TERN_GONE:
        EXPECT(s->cancel_sent || !space_current(w, d, s->tenant, s->space), "disk_fetch_gone", "%s",
               r->text);
        MARK(disk_fetch_cancelled);
        return;
    case TERN_CORRUPT: EXPECT(k->spoilt, "disk_fetch_corrupt", "%s", r->text); return;
    case TERN_DISK:
        EXPECT(k->broken, "disk_fetch_broken", "%s", r->text);
        MARK(disk_fetch_broken);
        return;
    case TERN_QUOTA:
    case TERN_POOL_EXHAUSTED:
        EXPECT(r->err != TERN_QUOTA || r->shortage.needed > r->shortage.free, "false_never", "%s",
               r->text);
        MARK(disk_fetch_no_room);
        return;
    case TERN_TIMED_OUT: return;
    case TERN_BUSY: check_busy_fetch(w, d, s, r); return;
    default: violation(w, "disk_fetch_refused", "err %u %s", r->err, r->text);
    }
}

/* --- Store --- */

/* D2 */
static uint32_t cold_depth(const struct sim *w, uint32_t tokens)
{
    uint32_t align = w->cfg.disk_align * w->L,
             at = tokens > w->cfg.disk_trim ? tokens - w->cfg.disk_trim : 0;

    at -= at % align;
    if (at < w->cfg.disk_least)
        at = tokens;
    return at - at % w->L;
}

/* The depth that the Store named, in whole chunks. */
static uint32_t wanted_depth(const struct sim *w, const struct store_ask *a)
{
    uint32_t want = a->depth ? a->depth : cold_depth(w, a->tokens);

    want = want < a->committed ? want : a->committed;
    return want - want % w->L;
}

/* D2, where there is STATE. */
static void note_points(struct sim *w, uint32_t d, const struct session *s, struct store_ask *a)
{
    uint32_t want = wanted_depth(w, a);

    for (uint32_t k = 1; w->cfg.nstate && k * w->L <= s->committed; k++) {
        if ((k * w->L > want && a->behind) ||
            !state_resumes(w, d, s->pool, s->space, s->variant, k))
            continue;
        if (k * w->L <= want)
            a->sure = k * w->L;
        else
            a->behind = k * w->L;
    }
}

void ask_store(struct sim *w, uint32_t d, uint32_t i)
{
    struct disks *k = w->disk[d];
    struct session *s = &w->d[d].session[i];
    uint32_t conn = engine_conn(w, d, s->engine), depth;
    struct store_ask *a = k->ask;
    struct event ev;

    while (a < k->ask + DISK_ASKS && a->request != 0)
        a++;
    if (a == k->ask + DISK_ASKS || !s->live || conn == NO || w->d[d].engine[s->engine].dying ||
        s->deaf || s->lame || s->turn == TURN_FETCHING || s->turn == TURN_LOADING ||
        may_be_undone(w, d, s))
        return;
    depth = chance(w, 40) ? 0 : pick(w, s->committed + 1);
    if (chance(w, 8))
        depth = s->committed + 1 + pick(w, 2 * w->L);
    request_init(w, d, &ev, OP_STORE, conn);
    ev.request.store = (struct req_store){.session = s->handle, .depth = depth};
    *a = (struct store_ask){.request = ev.request.request_id,
                            .conn = conn,
                            .depth = depth,
                            .committed = s->committed,
                            .tokens = s->ntokens,
                            .space = s->space,
                            .id = {.tenant = s->tenant,
                                   .ns = s->ns,
                                   .ranks = w->d[d].pool[s->pool].ranks,
                                   .variant = s->variant}};
    note_points(w, d, s, a);
    TRACE("  daemon %u stores session %u: variant %u, depth %u of %u committed and %u tokens\n", d,
          i, s->variant, depth, s->committed, s->ntokens);
    sim_step(w, d, &ev);
}

static void stored(struct sim *w, uint32_t d, const struct store_ask *a, const struct reply *r)
{
    struct disks *k = w->disk[d];
    uint32_t want = wanted_depth(w, a), depth = r->store.depth;
    const struct ext *x = NULL;

    EXPECT(depth > 0 && depth % w->L == 0 && depth <= a->committed &&
               (w->cfg.nstate || depth == want),
           "stored_depth", "%u, not %u of %u committed", depth, want, a->committed);
    EXPECT(!w->cfg.nstate || (depth <= want && depth >= a->sure) ||
               (depth > want && !a->sure && (!a->behind || depth <= a->behind)),
           "stored_depth", "%u, not %u; one can go on from %u and from %u", depth, want, a->sure,
           a->behind);
    if (depth > want)
        MARK(stored_behind);
    if (!space_current(w, d, a->id.tenant, a->space))
        return;       /* the namespace was reset meanwhile */
    for (EXTS(k, at)) /* the extent that it replaces may lie beside it */
        if (at->e.part == DISK_ENTRY && at->e.reason == DISK_COLD && ext_known(at) && !at->bad &&
            !at->doomed && ident_equal(at->id, ident_at(w, a->id, r->store.depth / w->L)))
            x = at;
    EXPECT(x && entry_whole(w, k, x, LOOK_NOW), "stored_not_durable",
           "D3: depth %u of variant %u was answered", r->store.depth, a->id.variant);
    MARK(store_answered);
}

void store_answered(struct sim *w, uint32_t d, const struct reply *r)
{
    struct disks *k = w->disk[d];
    struct store_ask *a = k->ask, was;

    while (a < k->ask + DISK_ASKS && a->request != r->request_id)
        a++;
    EXPECT(a < k->ask + DISK_ASKS, "store_answered_twice", "request %llu",
           (unsigned long long)r->request_id);
    TRACE("  store of request %llu answered: err %u depth %u %s\n",
          (unsigned long long)r->request_id, r->err, r->store.depth, r->text);
    was = *a;
    a->request = 0;
    switch (r->err) {
    case TERN_OK: stored(w, d, &was, r); return;
    case TERN_UNSUPPORTED:
        EXPECT(!disk_has_part(w, d, was.id.tenant), "store_unsupported", "%s", r->text);
        return;
    case TERN_INVALID:
        EXPECT(was.depth - was.depth % w->L > was.committed || was.committed == 0 ||
                   (w->cfg.nstate ? !was.sure && !was.behind : wanted_depth(w, &was) == 0),
               "store_invalid", "%s", r->text);
        return;
    case TERN_GONE: MARK(store_gone); return;
    case TERN_QUOTA: MARK(store_refused); return;
    case TERN_POOL_EXHAUSTED:
    case TERN_DISK:
    case TERN_CORRUPT:
        EXPECT(k->written == r->err, "store_failed", "err %u, and the disk said %u", r->err,
               k->written);
        MARK(store_failed);
        return;
    case TERN_BUSY: check_busy_store(w, d, r); return;
    default: violation(w, "store_answer", "err %u %s", r->err, r->text);
    }
}

void disk_conn_left(struct sim *w, uint32_t d, uint32_t conn)
{
    for (uint32_t i = 0; i < DISK_ASKS; i++)
        if (w->disk[d]->ask[i].conn == conn)
            w->disk[d]->ask[i].request = 0;
}

/* --- N1 --- */

void disk_reset_begun(struct sim *w, uint32_t d, uint32_t tenant, uint32_t ns)
{
    struct disks *k = w->disk[d];
    bool any = false;

    for (EXTS(k, x))
        if (x->state != EXT_FREE && x->id.tenant == tenant && x->id.ns == ns) {
            any |= ext_known(x);
            x->doomed = 1;
        }
    if (any)
        MARK(reset_with_disk);
}

void disk_reset_told(struct sim *w, uint32_t d, const struct peer_msg *msg, bool on)
{
    struct disks *k = w->disk[d];

    k->resetting = on && msg->kind == PEER_RESET;
    k->troubled |= k->resetting;
    k->reset_tenant = (uint8_t)msg->tenant;
    k->reset_ns = (uint8_t)(k->resetting ? namespace_number(w, msg->ns) : 0);
}

static void check_reset(struct sim *w, uint32_t d, const struct reset_asked *a)
{
    struct disks *k = w->disk[d];

    for (EXTS(k, x))
        EXPECT(x->state == EXT_FREE || x->rotten || x->id.tenant != a->tenant ||
                   x->id.ns != a->ns || x->content >= a->number,
               "reset_on_disk",
               "reset %u is answered, and depth %u of before lies on the disk of daemon %u, in "
               "state %u",
               a->number, x->e.depth, d, x->state);
}

void disk_reset_answered(struct sim *w, uint32_t d, const struct reset_asked *a, bool all)
{
    check_reset(w, d, a);
    if (all)
        check_reset(w, sim_far(w, d), a);
}

/* --- the end of a daemon --- */

void disk_shut(struct sim *w, uint32_t d)
{
    struct event ev = {.kind = EV_SHUTDOWN};

    if (!disk_is_on(w, d) || w->disk[d]->shutting)
        return;
    TRACE("  daemon %u is about to end\n", d);
    w->disk[d]->shutting = 1;
    ev.shutdown.deadline_ns = w->now + (1 + pick(w, 60)) * MS;
    sim_step(w, d, &ev);
}

bool disk_shutting(const struct sim *w, uint32_t d)
{
    return disk_is_on(w, d) && w->disk[d]->shutting;
}

void disk_told_to_end(struct sim *w, uint32_t d)
{
    struct event ev = {.kind = EV_SHUTDOWN, .shutdown.deadline_ns = w->now + 1000000 * MS};
    struct disk_view v;

    if (!disk_is_on(w, d))
        return;
    for (uint32_t t = 0; t < w->cfg.tenants; t++) {
        core_disk(w->d[d].core, t, &v);
        w->disk[d]->denied[t] = v.counts.refused + v.counts.evicted;
    }
    w->disk[d]->unwritten = 0;
    sim_step(w, d, &ev);
}

/* Length of the prefix in memory, on any tier, that a session can resume. A Peek in one piece,
 * since an eviction may come between pieces. */
static uint32_t in_memory(struct sim *w, uint32_t d, uint32_t e, uint32_t ns, uint32_t variant)
{
    uint32_t piece = w->cfg.piece, cut = w->cfg.cut;
    bool any;

    w->cfg.piece = w->cfg.cut = 0;
    any = peek_at(w, d, e, ns, variant, w->span);
    w->cfg.piece = piece;
    w->cfg.cut = cut;
    if (!any)
        return 0;
    return w->reply->peek.host_depth > w->reply->peek.depth ? w->reply->peek.host_depth
                                                            : w->reply->peek.depth;
}

/* Can another sequence with the same prefix resume at a greater depth? */
static bool goes_on(struct sim *w, uint32_t d, uint32_t e, uint32_t ns, uint32_t variant,
                    uint32_t depth)
{
    for (uint32_t v = 0; v < w->cfg.variants; v++)
        if (w->canon[v][depth / w->L] == w->canon[variant][depth / w->L] &&
            in_memory(w, d, e, ns, v) > depth)
            return true;
    return false;
}

/* D6: the disk has every prefix that could be resumed from memory, on any tier, unless the disk
 * failed, or had no room for a store or evicted for one. In a pool with STATE only the ends of
 * paths count. */
void disk_check_ended(struct sim *w, uint32_t d)
{
    struct disk_view v;

    for (uint32_t e = 0; disk_is_on(w, d) && e < ENGINES; e++)
        for (uint32_t ns = 0; ns < w->cfg.namespaces; ns++)
            for (uint32_t variant = 0; variant < w->cfg.variants; variant++) {
                uint32_t tenant = w->d[d].engine[e].tenant, memory, disk;

                if (!disk_has_part(w, d, tenant))
                    continue;
                memory = in_memory(w, d, e, ns, variant);
                if (memory == 0 || (w->cfg.nstate && goes_on(w, d, e, ns, variant, memory)))
                    continue;
                disk = disk_depth(w, d, w->d[d].engine[e].pool, ns, variant, w->span, false);
                core_disk(w->d[d].core, tenant, &v);
                EXPECT(disk >= memory || w->disk[d]->unwritten ||
                           v.counts.refused + v.counts.evicted > w->disk[d]->denied[tenant],
                       "end_unstored", "memory has %u tokens of variant %u, the disk %u", memory,
                       variant, disk);
                if (disk >= memory)
                    MARK(stored_at_the_end);
            }
}

static void peek_all(struct sim *w, uint32_t d)
{
    for (uint32_t e = 0; e < ENGINES; e++)
        for (uint32_t ns = 0; ns < w->cfg.namespaces; ns++)
            for (uint32_t v = 0; v < w->cfg.variants; v++)
                peek_at(w, d, e, ns, v, w->span);
}

/* After one more crash, all prefixes on the disk are found, and fetched ones are right. */
void disk_last_start(struct sim *w, uint32_t d)
{
    uint32_t fetches = 3;

    if (!disk_is_on(w, d))
        return;
    daemon_restart(w, d);
    for (uint32_t e = 0; e < (w->cfg.tenants == 2 ? ENGINES : 2); e++)
        for (uint32_t i = 0; i < 3 * PROCS; i++)
            engine_advance(w, d, e);
    sim_timers(w, d);
    disk_check(w, d);
    peek_all(w, d);
    for (uint32_t i = 0; i < SESSIONS / 2; i++) {
        w->rng = ((uint64_t)i << 32) + w->cfg.seed_tokens + d;
        ask_open(w, d, pick(w, w->cfg.tenants == 2 ? ENGINES : 2));
    }
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct session *s = &w->d[d].session[i];

        if (!s->live || s->turn != TURN_NEW)
            continue;
        ask_match(w, d, i);
        s->ask_disk = 1;
        if (s->turn == TURN_OPEN && fetches > 0 && s->ntokens > s->written) {
            ask_fetch(w, d, i);
            fetches--;
        }
        s->ask_disk = 0;
    }
}
