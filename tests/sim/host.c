/* The host tier in the model, and the copies between the tiers (T16). A copy moves the bytes of one
 * node's pages when its job is finished, wherever they are by then; the pages themselves show the
 * model which chunk they belong to. The model learns that the core dropped a copy when the core
 * allocates its page again: then no session may have depended on it. A session that was retracted
 * to the host depends on its whole path (T14, T17). */
#include "bytes.h"

static struct pool *pool_of(struct sim *w, uint32_t d, uint32_t pool)
{
    return &w->d[d].pool[pool];
}

/* The host granule of a page. */
static uint32_t host_at(struct sim *w, uint32_t d, uint32_t pool, const struct page_at *at)
{
    const struct pool *p = pool_of(w, d, pool);
    uint32_t n = w->page_granules[at->group], first = at->index * n;

    EXPECT(at->index != 0 && first + n <= p->hgranules, "host_page_index", "group %u index %u",
           at->group, at->index);
    EXPECT(at->record < RECORDS, "record", "record %u", at->record);
    return p->hbase + first;
}

uint32_t chunk_pages(const struct sim *w, uint32_t d, uint32_t g, const struct chunk *c)
{
    if (g < w->cfg.ngroups)
        return w->L / w->page_tokens[d][g];
    return seg_pages(w, d, g, c->depth);
}

/* Does this session depend on the chunk's copy? */
static bool counts_on(const struct sim *w, uint32_t d, const struct session *s, uint32_t pool,
                      const struct chunk *c, uint32_t g)
{
    uint32_t k = c->depth;

    if (!s->live || s->away != AWAY_HOST || s->undone || s->pool != pool || s->space != c->space ||
        k * w->L > s->committed || w->canon[s->variant][k] != c->variant)
        return false;
    return g < w->cfg.ngroups || (!recurrent(w, g) && state_counts(w, d, s, g, k));
}

/* A retraction that cannot be finished, because a copy failed or STATE was refilled meanwhile, is
 * undone without a message: the session learns of it when it recovers. A recovery whose connection
 * was closed ends without a message too: then the session pins the device, and the host's copy may
 * go. The copy may also go in the step that ends the session, or its retraction: such a session
 * releases its path from its end up, in pieces. */
static bool still_away(const struct sim *w, uint32_t d, const struct session *s, uint32_t depth)
{
    struct session_view v;
    bool comes_or_ends = s->turn == TURN_LOADING || s->ending; /* the core may be ahead */

    return (!may_be_undone(w, d, s) && !comes_or_ends) ||
           (core_session_view(w->d[d].core, s->id.slot, &v) && v.ref == REF_HOST &&
            (!s->ending || depth <= v.lengths.committed));
}

bool host_pinned(const struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c, uint32_t g)
{
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (counts_on(w, d, &w->d[d].session[i], pool, c, g) &&
            still_away(w, d, &w->d[d].session[i], c->depth * w->L))
            return true;
    return false;
}

bool host_has(const struct chunk *c)
{
    return c->hhas[0] | c->hhas[1] | c->hhas[2] | c->hhas[3];
}

static void host_free_group(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c, uint32_t g)
{
    struct hpage *host = w->d[d].host[pool_of(w, d, pool)->tenant];
    uint16_t self = (uint16_t)(c - w->d[d].chunk[pool]);

    for (uint32_t i = 0; c->hhas[g] && i < chunk_pages(w, d, g, c); i++)
        for (uint32_t k = 0; k < w->page_granules[g]; k++) {
            struct hpage *h = &host[c->hgranule[g][i] + k];

            if (h->own == HOST_NODE && h->chunk == self && h->pool == pool)
                h->own = HOST_FREE;
        }
    c->hhas[g] = 0;
}

static void host_free_pages(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c)
{
    for (uint32_t g = 0; g < w->ngroups; g++)
        host_free_group(w, d, pool, c, g);
}

/* T1 on the host: the core allocates a page there, as the target of a copy. */
static uint32_t host_hand_out(struct sim *w, uint32_t d, uint32_t pool, const struct page_at *at,
                              uint16_t chunk)
{
    struct hpage *host = w->d[d].host[pool_of(w, d, pool)->tenant];
    uint32_t first = host_at(w, d, pool, at);

    EXPECT(at->gen != 0, "generation_zero", "host, group %u index %u", at->group, at->index);
    for (uint32_t k = 0; k < w->page_granules[at->group]; k++) {
        struct hpage *h = &host[first + k];

        EXPECT(h->own != HOST_MOVING, "host_page_may_be_written",
               "daemon %u host granule %u: a copy that writes it is not acknowledged", d,
               first + k);
        if (h->own == HOST_NODE) {
            struct chunk *c = &w->d[d].chunk[h->pool][h->chunk];

            EXPECT(!host_pinned(w, d, h->pool, c, h->group), "host_page_in_use",
                   "daemon %u host granule %u: depth %u, on which a retracted session counts", d,
                   first + k, c->depth * w->L);
            EXPECT(!h->readers, "host_page_read", "daemon %u host granule %u: a copy reads it", d,
                   first + k);
            if (h->group < w->cfg.ngroups) {
                TRACE("    depth %u has left the host\n", c->depth * w->L);
                host_free_pages(w, d, h->pool, c);
                w->d[d].host_left = 1;
                MARK(host_evicted);
            } else {
                host_free_group(w, d, h->pool, c, h->group); /* STATE may go alone */
            }
        }
        EXPECT(!h->readers, "host_page_read", "daemon %u host granule %u: a copy reads it", d,
               first + k);
        if (h->gen && h->group == at->group && h->index == at->index)
            EXPECT(h->gen != at->gen, "generation_reused", "host, group %u index %u gen %u",
                   at->group, at->index, at->gen);
        *h = (struct hpage){.own = HOST_MOVING,
                            .pool = (uint8_t)pool,
                            .group = (uint8_t)at->group,
                            .chunk = chunk,
                            .index = at->index,
                            .gen = at->gen};
    }
    return first;
}

uint32_t host_read(struct sim *w, uint32_t d, uint32_t pool, const struct page_at *at)
{
    uint32_t first = host_at(w, d, pool, at);
    struct hpage *h = &w->d[d].host[pool_of(w, d, pool)->tenant][first];

    EXPECT(h->own == HOST_NODE && h->gen == at->gen && h->pool == pool && h->group == at->group,
           "host_read_unknown",
           "host granule %u is of kind %u, generation %u, not %u: it was never acknowledged, or "
           "has gone",
           first, h->own, h->gen, at->gen);
    for (uint32_t k = 0; k < w->page_granules[at->group]; k++)
        h[k].readers++;
    return first;
}

void host_read_end(struct sim *w, uint32_t d, uint32_t tenant, uint32_t group, uint32_t granule)
{
    for (uint32_t k = 0; k < w->page_granules[group]; k++)
        w->d[d].host[tenant][granule + k].readers--;
}

static uint32_t known_pages(const struct sim *w, uint32_t d, const struct chunk *c)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < w->ngroups; g++)
        n += c->hhas[g] ? chunk_pages(w, d, g, c) : 0;
    return n;
}

/* No answer named the copies that the core dropped from the host before this session depended on
 * it: the tree shows them. From now on the others must stay. */
void host_sync(struct sim *w, uint32_t d, struct session *s)
{
    struct session_view sv;
    struct node_view nv;
    struct chunk *c;
    uint32_t at;

    EXPECT(core_session_view(w->d[d].core, s->id.slot, &sv), "view_session", "slot %u", s->id.slot);
    at = sv.node;
    for (uint32_t k = s->committed / w->L; k > 0; k--, at = nv.parent) {
        EXPECT(core_node_view(w->d[d].core, at, &nv) && nv.depth == k * w->L, "view_path",
               "depth %u", k * w->L);
        c = chunk_at(w, d, s->pool, s->space, s->variant, k);
        if (!nv.on_host) /* a copy under way was not acknowledged */
            host_free_pages(w, d, s->pool, c);
        else if (nv.host_pages != known_pages(w, d, c))
            for (STATE_GROUPS(w, g))
                host_free_group(w, d, s->pool, c, g);
    }
}

/* --- which chunk a page belongs to --- */

/* Finds the chunk by the page's bytes, where a transfer fetched it and no answer has named it. */
static uint32_t chunk_by_bytes(struct sim *w, uint32_t d, uint32_t pool, uint32_t g,
                               uint32_t granule)
{
    const struct pool *p = pool_of(w, d, pool);
    uint32_t pt = w->page_tokens[d][g], per = w->L / pt, last;

    EXPECT(tag_prefix(w, d, &(struct token_at){pool, g, granule, pt - 1}, &last), "copied_torn",
           "group %u granule %u: ranks that hold the same do not", g, granule);
    for (uint32_t n = 0; n < w->cfg.namespaces; n++)
        for (uint32_t v = 0; v < w->cfg.variants; v++)
            for (uint32_t at = pt; at <= w->span; at += pt)
                if (w->prefix[p->tenant][n][v][at] == last) {
                    struct chunk *c =
                        chunk_at(w, d, pool, w->d[d].granule[p->tenant][granule].space, v,
                                 (at / pt + per - 1) / per);

                    return (uint32_t)(c - w->d[d].chunk[pool]);
                }
    violation(w, "copied_unknown", "group %u granule %u: bytes of no prefix", g, granule);
}

static uint32_t chunk_of_page(struct sim *w, uint32_t d, uint32_t pool, const struct page_at *at)
{
    struct granule *p = page_granule(w, d, pool, at->group, at->index);

    if (p->own == OWN_CHUNK || p->own == OWN_STATE)
        return p->chunk;
    if (p->loaded)
        return p->chunk;
    return chunk_by_bytes(w, d, pool, at->group,
                          (uint32_t)(p - w->d[d].granule[pool_of(w, d, pool)->tenant]));
}

/* --- a copy begins --- */

/* T16: a page to be copied is committed, its step has passed, and its checksum is known. */
static void back_page(struct sim *w, uint32_t d, struct job *j, const struct action *act,
                      uint32_t i)
{
    const struct page_at *from = &act->copy.from[i], *to = &act->copy.to[i];
    struct granule *p = page_granule(w, d, j->pool, from->group, from->index);
    const struct chunk *c = &w->d[d].chunk[j->pool][j->chunk];
    uint32_t n = w->page_granules[from->group];

    EXPECT(p->gen == from->gen, "copy_stale", "group %u index %u generation %u, which is %u",
           from->group, from->index, from->gen, p->gen);
    if (p->own == OWN_CHUNK || p->own == OWN_STATE) {
        EXPECT(p->chunk == j->chunk && p->pool == j->pool, "copy_mixed",
               "a job of depth %u copies a page of another chunk", c->depth * w->L);
        EXPECT(chunk_visible(w, d, c) &&
                   (p->own == OWN_CHUNK || state_visible_of(w, d, c, from->group)),
               "copy_pending", "depth %u group %u: its step has not passed", c->depth * w->L,
               from->group);
    } else {
        EXPECT((p->own == OWN_ORPHAN || p->own == OWN_PULL) && p->verified, "copy_foreign_page",
               "group %u index %u is of kind %u", from->group, from->index, p->own);
    }
    EXPECT(w->d[d].sum_known[from->record], "copy_unsealed",
           "group %u index %u: its checksum is not known", from->group, from->index);
    j->granule[i] = (uint16_t)(p - w->d[d].granule[w->d[d].pool[j->pool].tenant]);
    j->hgranule[i] = (uint16_t)host_hand_out(w, d, j->pool, to, j->chunk);
    w->d[d].backing[from->group]++;
    for (uint32_t k = 0; k < n; k++)
        p[k].sealing++;
}

/* A load reads acknowledged copies, and writes free pages. */
static void load_page(struct sim *w, uint32_t d, struct job *j, const struct action *act,
                      uint32_t i)
{
    const struct page_at *from = &act->copy.from[i], *to = &act->copy.to[i];
    uint32_t tenant = w->d[d].pool[j->pool].tenant, first = host_at(w, d, j->pool, from), at;
    struct hpage *h = &w->d[d].host[tenant][first];
    struct page_ref ref = {.index = to->index, .gen = to->gen};
    struct granule *p;

    EXPECT(h->own == HOST_NODE && h->gen == from->gen && h->pool == j->pool && h->chunk == j->chunk,
           "load_unknown",
           "host granule %u is of kind %u, generation %u, not %u: it was never acknowledged, or "
           "has gone",
           first, h->own, h->gen, from->gen);
    at = hand_out(w, d, j->pool, to->group, ref, OWN_PULL, LOAD_OWNER);
    p = &w->d[d].granule[tenant][at];
    for (uint32_t k = 0; k < w->page_granules[from->group]; k++) {
        h[k].readers++;
        p[k].writers = 1;
        p[k].chunk = j->chunk;
    }
    j->granule[i] = (uint16_t)at;
    j->hgranule[i] = (uint16_t)first;
}

static uint32_t pool_by_slots(struct sim *w, uint32_t d, uint32_t device, uint32_t host)
{
    for (uint32_t p = 0; p < POOLS; p++)
        if (w->d[d].pool[p].open && w->d[d].pool[p].id.slot == device &&
            w->d[d].pool[p].host_slot == host)
            return p;
    return NO;
}

static uint16_t load_chunk(struct sim *w, uint32_t d, uint32_t pool, const struct page_at *from)
{
    return w->d[d].host[pool_of(w, d, pool)->tenant][host_at(w, d, pool, from)].chunk;
}

/* The former copy was gone, unless it is known to be bad: a bad one is replaced when the new one is
 * acknowledged. If its HISTORY was gone, so was all its STATE. */
static void copied_again(struct sim *w, uint32_t d, const struct job *j, const struct action *act)
{
    struct chunk *c = &w->d[d].chunk[j->pool][j->chunk];
    bool gone[GROUPS] = {false}, all = false;

    for (uint32_t i = 0; i < act->copy.n; i++) {
        gone[act->copy.from[i].group] = true;
        all |= act->copy.from[i].group < w->cfg.ngroups;
    }
    for (uint32_t g = 0; g < w->ngroups; g++) {
        if (!c->hhas[g] || c->hbad || !(all || gone[g]))
            continue;
        EXPECT(!host_pinned(w, d, j->pool, c, g), "host_copy_lost",
               "depth %u is copied again, but a retracted session counts on its copy",
               c->depth * w->L);
        host_free_group(w, d, j->pool, c, g);
    }
}

/* Residency is prefix-closed: a chunk is loaded below a parent. */
static void check_parent(struct sim *w, uint32_t d, const struct job *j)
{
    const struct chunk *c = &w->d[d].chunk[j->pool][j->chunk], *up;

    if (c->depth == 1)
        return;
    up = chunk_at(w, d, j->pool, c->space, c->variant, c->depth - 1u);
    EXPECT(up->present || host_has(up) || chunk_loading(w, d, j->pool, up), "load_without_parent",
           "depth %u comes back, but nothing is known of depth %u", c->depth * w->L,
           up->depth * w->L);
}

void take_copy(struct sim *w, uint32_t d, const struct action *act)
{
    uint32_t pool = pool_by_slots(w, d, act->copy.from_pool, act->copy.to_pool), running = 0,
             last = 0;
    bool back = pool != NO;
    struct job *j;

    if (!back)
        pool = pool_by_slots(w, d, act->copy.to_pool, act->copy.from_pool);
    EXPECT(pool != NO, "copy_pools", "a copy between %u and %u", act->copy.from_pool,
           act->copy.to_pool);
    EXPECT(act->copy.n > 0 && act->copy.n <= BATCH_PAGES * 2, "copy_pages", "%u pages",
           act->copy.n);
    j = job_add(w, d, JOB_COPY, copy_id_pack(act->copy.job), pool);
    for (uint32_t i = 0; i < w->d[d].njobs; i++)
        running += w->d[d].job[i].kind == JOB_COPY;
    EXPECT(running <= w->limits.copy_jobs, "copy_jobs", "%u copies, the limit is %u", running,
           w->limits.copy_jobs);
    j->back = back;
    while (last + 1 < act->copy.n && act->copy.from[last + 1].group == act->copy.from[0].group)
        last++; /* chunks that begin alike differ in it */
    j->chunk = back ? (uint16_t)chunk_of_page(w, d, pool, &act->copy.from[last])
                    : load_chunk(w, d, pool, &act->copy.from[0]);
    TRACE("  daemon %u copies depth %u %s: %u pages, job %u.%u\n", d,
          w->d[d].chunk[pool][j->chunk].depth * w->L, back ? "to the host" : "back", act->copy.n,
          (uint32_t)j->id, (uint32_t)(j->id >> 32));
    if (back)
        copied_again(w, d, j, act);
    if (!back)
        check_parent(w, d, j);
    for (uint32_t i = 0; i < act->copy.n; i++) {
        EXPECT(act->copy.from[i].group == act->copy.to[i].group, "copy_groups", "page %u", i);
        j->group[i] = (uint8_t)act->copy.from[i].group;
        j->record[i] = (uint16_t)(back ? act->copy.from : act->copy.to)[i].record;
        j->hrecord[i] = (uint16_t)(back ? act->copy.to : act->copy.from)[i].record;
        if (back)
            back_page(w, d, j, act, i);
        else
            load_page(w, d, j, act, i);
        j->n++;
    }
}

/* --- a copy ends --- */

/* The bytes move now. Returns false if the written bytes do not match the checksum. `spoil`: a bit
 * flips, at the source or during the copy. */
static bool move_page(struct sim *w, uint32_t d, const struct job *j, uint32_t i, bool spoil)
{
    struct daemon *m = &w->d[d];
    const struct pool *p = pool_of(w, d, j->pool);
    uint32_t n = w->page_granules[j->group[i]], flip = spoil ? pick(w, p->ranks) : NO;
    bool good = true, rotten = !j->back && chance(w, 50);

    for (uint32_t r = 0; r < p->ranks; r++) {
        struct tag *dev = tag_at(w, d, j->pool, r, j->granule[i]),
                   *host = htag_at(w, d, j->pool, r, j->hgranule[i]), *from = j->back ? dev : host,
                   *to = j->back ? host : dev;
        uint32_t a = j->back ? j->record[i] : j->hrecord[i],
                 b = j->back ? j->hrecord[i] : j->record[i];

        if (r == flip && rotten)
            from->v[0] ^= 1u << pick(w, 32);
        for (uint32_t k = 0; k < n; k++)
            to[k] = from[k];
        if (r == flip && !rotten)
            to->v[0] ^= 1u << pick(w, 32);
        m->sum[b][r] = m->sum[a][r];
        m->sum_known[b] = 1;
        good &= memcmp(&m->sum[a][r], to, w->page_tokens[d][j->group[i]] * sizeof(uint32_t)) == 0;
    }
    return good;
}

/* The sessions that waited for this copy are resumed, or learn of it later. */
static void undo(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c)
{
    MARK(copy_failed);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct session *s = &w->d[d].session[i];

        if (s->live && s->away == AWAY_HOST && s->pool == pool && s->space == c->space &&
            !s->unpinned && c->depth * w->L <= s->committed &&
            w->canon[s->variant][c->depth] == c->variant)
            s->undone = 1;
    }
}

static void end_back(struct sim *w, uint32_t d, const struct job *j, bool good)
{
    struct daemon *m = &w->d[d];
    uint32_t tenant = pool_of(w, d, j->pool)->tenant, at[GROUPS] = {0};
    struct chunk *c = &m->chunk[j->pool][j->chunk];

    c->hfailed = good ? 0 : (uint8_t)(c->hfailed + (c->hfailed < COPY_TRIES_MAX));
    if (good)
        c->hbad = 0;
    for (uint32_t i = 0; good && i < j->n; i++)
        host_free_group(w, d, j->pool, c, j->group[i]);
    for (uint32_t i = 0; i < j->n; i++) {
        uint32_t g = j->group[i];

        for (uint32_t k = 0; k < w->page_granules[g]; k++) {
            m->granule[tenant][j->granule[i] + k].sealing--;
            m->host[tenant][j->hgranule[i] + k].own = good ? HOST_NODE : HOST_FREE;
            m->host[tenant][j->hgranule[i] + k].lacks = m->granule[tenant][j->granule[i] + k].lacks;
        }
        if (!good)
            continue;
        EXPECT(at[g] < CHUNK_PAGES, "copy_shape", "more pages of group %u than a chunk has", g);
        c->hgranule[g][at[g]++] = (uint8_t)j->hgranule[i];
        c->hhas[g] = 1;
    }
    for (uint32_t g = 0; good && g < w->ngroups; g++)
        EXPECT((at[g] == 0 && (g >= w->cfg.ngroups || c->hhas[g])) ||
                   at[g] == chunk_pages(w, d, g, c),
               "copy_shape", "depth %u group %u: %u pages", c->depth * w->L, g, at[g]);
    if (!good)
        undo(w, d, j->pool, c);
}

static void end_load(struct sim *w, uint32_t d, const struct job *j, bool good)
{
    struct daemon *m = &w->d[d];
    uint32_t tenant = pool_of(w, d, j->pool)->tenant;

    for (uint32_t i = 0; i < j->n; i++)
        for (uint32_t k = 0; k < w->page_granules[j->group[i]]; k++) {
            struct granule *p = &m->granule[tenant][j->granule[i] + k];

            m->host[tenant][j->hgranule[i] + k].readers--;
            p->lacks = m->host[tenant][j->hgranule[i] + k].lacks;
            p->writers = 0;
            p->own = good ? OWN_ORPHAN : OWN_FREE; /* or free, if nobody waits for it */
            p->owner = NO;
            p->verified = p->sealed = p->loaded = good;
        }
    for (uint32_t i = 0; good && i < j->n; i++)
        m->chunk[j->pool][j->chunk].maybe[j->group[i]] = 1;
    if (!good) {
        m->chunk[j->pool][j->chunk].hbad = 1;
        MARK(load_corrupt);
    }
}

void finish_copy(struct sim *w, uint32_t d, const struct job *j, struct event *ev, bool spoil)
{
    uint32_t which = spoil ? pick(w, j->n) : NO;
    bool good = true, ok;

    for (uint32_t i = 0; i < j->n; i++) {
        ok = move_page(w, d, j, i, i == which);
        EXPECT(ok || i == which || !j->back, "copy_torn",
               "depth %u group %u granule %u: not the bytes that were committed",
               w->d[d].chunk[j->pool][j->chunk].depth * w->L, j->group[i], j->granule[i]);
        good &= ok;
    }
    if (spoil) {
        FAULT(copy_spoilt);
        w->d[d].spoilt = 1;
    }
    if (j->back)
        end_back(w, d, j, good);
    else
        end_load(w, d, j, good);
    ev->kind = EV_COPIED;
    ev->copied.job = copy_id_unpack(j->id);
    ev->copied.err = good ? TERN_OK : TERN_CORRUPT;
    away_settle(w, d);
}

/* The core knows the outcome. A copy to the host that failed is begun again, a number of times in a
 * row, as long as the parent is on the host; its former pages are free. */
void copy_ended(struct sim *w, uint32_t d, const struct job *j, enum tern_err err)
{
    const struct daemon *m = &w->d[d];
    const struct chunk *c = &m->chunk[j->pool][j->chunk];
    struct node_view v, up;

    if (err == TERN_OK || !j->back || m->resets || w->cfg.nstate || !m->pool[j->pool].open ||
        m->pool[j->pool].closing || !core_node_view(m->core, (uint32_t)j->id, &v) ||
        v.depth != c->depth * w->L || !v.on_device)
        return;
    EXPECT(core_node_view(m->core, v.parent, &up), "view_path", "depth %u", v.depth);
    if (v.copying)
        MARK(copy_again);
    EXPECT(v.copying || c->hfailed >= COPY_TRIES_MAX ||
               (up.depth > 0 && !up.on_host && !up.copying),
           "copy_given_up", "depth %u: %u copies to the host failed, and no other is begun",
           v.depth, c->hfailed);
}

/* --- pools --- */

/* The host tier of a new pool: a range of its own, which overlaps no other. */
void host_open(struct sim *w, uint32_t d, struct pool *p, uint32_t asked)
{
    struct pool_view v, h;

    p->host_slot = NONE;
    p->hgranules = 0;
    EXPECT(core_pool_view(w->d[d].core, p->id.slot, &v), "view_pool", "slot %u", p->id.slot);
    EXPECT((v.other != NONE) == (asked > 0), "host_missing", "asked for %u granules", asked);
    if (!asked)
        return;
    EXPECT(core_pool_view(w->d[d].core, v.other, &h) && h.tier == TIER_HOST &&
               h.other == p->id.slot,
           "view_host", "slot %u", v.other);
    p->host_slot = v.other;
    p->hgranules = (uint32_t)(h.bytes / GRANULE_BYTES);
    p->hbase = (uint32_t)(h.offset / GRANULE_BYTES) + pool_home(p) * w->cfg.host;
    EXPECT(p->hgranules <= asked && asked - p->hgranules < w->slab &&
               h.offset / GRANULE_BYTES + p->hgranules <= w->cfg.host,
           "host_bytes", "%u of %u granules at %u", p->hgranules, asked, p->hbase);
    for (uint32_t i = 0; i < POOLS; i++) {
        const struct pool *o = &w->d[d].pool[i];

        if (o != p && o->open && o->hgranules && pools_meet(o, p))
            EXPECT(apart(p->hbase, p->hgranules, o->hbase, o->hgranules, w->cfg.host),
                   "host_overlap", "pools %u and %u", i, (unsigned)(p - w->d[d].pool));
    }
    for (uint32_t i = 0; i < p->hgranules; i++) {
        struct hpage *g = &w->d[d].host[p->tenant][p->hbase + i];

        EXPECT(g->own == HOST_FREE && !g->readers, "host_range_used", "granule %u", p->hbase + i);
        memset(g, 0, sizeof *g);
    }
}

/* The pool is empty, and so is its host tier. */
void host_close(struct sim *w, uint32_t d, uint32_t pool)
{
    struct pool *p = pool_of(w, d, pool);

    for (uint32_t i = 0; i < w->d[d].njobs; i++)
        EXPECT(w->d[d].job[i].kind != JOB_COPY || w->d[d].job[i].pool != pool, "zero_while_copying",
               "pool %u", pool);
    for (uint32_t i = 0; i < p->hgranules; i++)
        w->d[d].host[p->tenant][p->hbase + i].own = HOST_FREE;
    p->hgranules = 0;
    p->host_slot = NONE;
}

/* Does the host certainly have room for these pages? Pages in use count as taken, even if they may
 * have gone. */
bool host_fits(struct sim *w, uint32_t d, uint32_t pool, const uint32_t need[GROUPS])
{
    const struct pool *p = pool_of(w, d, pool);
    const struct hpage *host = &w->d[d].host[p->tenant][p->hbase];
    uint32_t slabs = 0, wanted = 0;

    for (uint32_t at = w->slab; at + w->slab <= p->hgranules; at += w->slab) {
        bool free = true;

        for (uint32_t k = at; k < at + w->slab; k++)
            free &= host[k].own == HOST_FREE;
        slabs += free;
    }
    for (uint32_t g = 0; g < w->ngroups; g++) {
        uint32_t per = w->slab / w->page_granules[g];

        wanted += (need[g] + per - 1) / per;
    }
    return wanted <= slabs;
}

/* Is the chunk being loaded to the device, or about to be? */
bool chunk_loading(const struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c)
{
    const struct daemon *m = &w->d[d];

    for (uint32_t i = 0; i < m->njobs; i++)
        if (m->job[i].kind == JOB_COPY && !m->job[i].back && m->job[i].pool == pool &&
            &m->chunk[pool][m->job[i].chunk] == c)
            return true;
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (m->session[i].live && m->session[i].pool == pool && m->session[i].space == c->space &&
            (m->session[i].turn == TURN_LOADING ||
             (m->session[i].turn == TURN_FETCHING && m->session[i].fetch_host)))
            return true;
    return false;
}
