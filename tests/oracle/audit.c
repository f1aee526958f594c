/* The audit of an arena: every page, token block, key and slot is in exactly one place, and every
 * count agrees with what it counts. Invariant: the audit trusts no value that it can derive by a
 * walk of its own. See audit.h. */
#include "oracle/audit.h"

#include <stdlib.h>
#include <string.h>

#define BIT(state) (1u << PAGE_##state)

/* Scratch memory of the current audit. The next audit frees it: a failing audit leaves by a jump.
 */
struct scratch {
    struct scratch *next;
    _Alignas(8) uint8_t bytes[];
};

static struct scratch *taken;

void *audit_scratch(uint32_t n, size_t each)
{
    struct scratch *s = calloc(1, sizeof *s + n * each);

    if (!s)
        abort();
    s->next = taken;
    taken = s;
    return s->bytes;
}

static void give_scratch_back(void)
{
    while (taken) {
        struct scratch *next = taken->next;

        free(taken);
        taken = next;
    }
}

static void *marks(uint32_t n)
{
    return audit_scratch(n, 1);
}

void audit_meet(uint8_t *seen, uint32_t i, uint32_t limit, const char *what, const char *where)
{
    if (i >= limit)
        oracle_fail("audit: %s %u in %s does not exist", what, i, where);
    if (seen[i]++)
        oracle_fail("audit: %s %u in %s is in two places", what, i, where);
}

void audit_chain(struct audit *a, uint32_t head, uint32_t blocks, const char *where)
{
    const uint32_t limit = block_limit(a->c);

    for (uint32_t n = 0; n < blocks; n++, head = *block_next(a->c, head))
        audit_meet(a->block_seen, head, limit, "token block", where);
    if (head != NONE)
        oracle_fail("audit: the token chain of %s is longer than %u blocks", where, blocks);
}

void audit_keys(struct audit *a, uint32_t head, uint32_t from, uint32_t to, const char *where)
{
    uint64_t last = 0;

    for (; head != NONE; head = key_at(a->c, head)->next) {
        uint32_t position;

        audit_meet(a->key_seen, head, key_limit(a->c), "extra key", where);
        position = key_at(a->c, head)->position;
        if (position < from || position >= to || position < last)
            oracle_fail("audit: key at %u of %s, which holds [%u, %u)", position, where, from, to);
        last = (uint64_t)position + 1;
    }
}

void audit_page_list(struct audit *a, const struct list *l, uint32_t states, uint32_t owner,
                     const char *where)
{
    uint32_t n = 0, prev = page_list_last(a->c, l), last = NONE;

    for (uint32_t at = l->head; at != NONE; at = page_list_next(a->c, at), n++) {
        const struct page *p;

        audit_meet(a->page_seen, at, a->c->limits.pages, "page", where);
        p = page_at(a->c, at);
        if (!(states & 1u << p->state) || p->owner != owner)
            oracle_fail("audit: page %u in %s has state %u and owner %u", at, where, p->state,
                        p->owner);
        if (p->in_list.prev != prev)
            oracle_fail("audit: page %u in %s is linked wrongly", at, where);
        if (p->gen == 0)
            oracle_fail("audit: page %u in %s is in use with generation 0", at, where);
        prev = last = at;
    }
    if (page_list_last(a->c, l) != last || l->n != n)
        oracle_fail("audit: %s counts %u pages and has %u", where, l->n, n);
}

/* --- slabs --- */

static void audit_free_pages(struct audit *a, const struct pool *p, uint32_t slot, uint32_t *tally)
{
    const struct slab *s = slab_at(a->c, slot);
    const struct group *g = &p->group[s->group];
    uint32_t local = slot - p->slab_base, base = p->page_base + local * p->pages_per_slab_max,
             nfree = 0;

    for (uint32_t at = s->free_head; at != NONE; at = page_list_next(a->c, at), nfree++) {
        if (at < base || at >= base + g->pages_per_slab)
            oracle_fail("audit: page %u is free in slab %u, which is not its", at, slot);
        audit_meet(a->page_seen, at, a->c->limits.pages, "page", "a slab's free list");
        if (page_at(a->c, at)->state != PAGE_FREE)
            oracle_fail("audit: page %u is in a free list with state %u", at,
                        page_at(a->c, at)->state);
    }
    if (nfree != s->nfree)
        oracle_fail("audit: slab %u counts %u free pages and has %u", slot, s->nfree, nfree);
    for (uint32_t i = 0; i < g->pages_per_slab; i++) {
        const struct page *page = page_at(a->c, base + i);

        if (page->pool != pool_slot(a->c, p) || page->group != s->group ||
            page->index != local * g->pages_per_slab + i || page->index == 0)
            oracle_fail("audit: page %u of slab %u is not formatted for group %u", base + i, slot,
                        s->group);
        tally[page->state]++;
    }
}

static void audit_slab_list(struct audit *a, const struct list *l, const char *where)
{
    uint32_t n = 0, prev = slab_list_last(a->c, l);

    for (uint32_t at = l->head; at != NONE; at = slab_list_next(a->c, at), n++) {
        audit_meet(a->slab_seen, at, a->c->limits.slabs, "slab", where);
        if (slab_at(a->c, at)->in_list.prev != prev)
            oracle_fail("audit: slab %u in %s is linked wrongly", at, where);
        prev = at;
    }
    if (n != l->n)
        oracle_fail("audit: %u slabs are in %s, %u counted", n, where, l->n);
}

static void audit_slabs(struct audit *a, const struct pool *p)
{
    uint32_t tally[GROUPS_MAX][PAGE_STATES] = {{0}}, held[GROUPS_MAX] = {0}, used = 0;

    audit_slab_list(a, &p->free_slabs, "the pool's free list");
    for (uint32_t g = 0; g < p->ngroups; g++)
        audit_slab_list(a, &p->group[g].partial, "a group's partial list");
    for (uint32_t slot = p->slab_base + 1; slot < p->slab_base + p->nslabs; slot++) {
        const struct slab *s = slab_at(a->c, slot);

        if (s->assigned && s->group >= p->ngroups)
            oracle_fail("audit: slab %u belongs to group %u", slot, s->group);
        if (a->slab_seen[slot] != (!s->assigned || s->nfree > 0))
            oracle_fail("audit: slab %u, assigned %u with %u free pages, is listed %u times", slot,
                        s->assigned, s->nfree, a->slab_seen[slot]);
        if (!s->assigned)
            continue;
        if (s->nfree == p->group[s->group].pages_per_slab)
            oracle_fail("audit: slab %u is held although nothing of it is used", slot);
        held[s->group]++;
        used++;
        audit_free_pages(a, p, slot, tally[s->group]);
    }
    if (used + p->free_slabs.n != p->nslabs - 1 || a->slab_seen[p->slab_base])
        oracle_fail("audit: %u slabs used, %u free, of %u and the reserved one", used,
                    p->free_slabs.n, p->nslabs);
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (held[g] != p->group[g].held ||
            memcmp(tally[g], p->group[g].count, sizeof tally[g]) != 0)
            oracle_fail("audit: the counts of pool %u group %u are wrong", pool_slot(a->c, p), g);
}

/* --- owners of pages and tokens other than nodes --- */

/* The owned part of a table covers base to A without a gap (T5: pages that left are below base). */
static void audit_owned(const struct session *s, uint32_t slot, const struct pool *p, uint32_t g)
{
    const struct group_layout *l = &p->group[g].layout;
    uint32_t n = s->owned[g].n, end = div_up(s->allocated, l->page_tokens);
    bool right = true;

    if (s->releasing && s->base[g] + n > end)
        return; /* the pages behind the allocated length are being freed */
    switch (l->family) {
    case FAMILY_HISTORY:
        right = s->base[g] == s->committed / l->page_tokens && s->base[g] + n == end;
        break;
    case FAMILY_WINDOW:
        right = s->base[g] + n == end || (s->state == SESSION_FETCHING && n == 0);
        break;
    case FAMILY_RECURRENT:
        right = n == 1 || (n == 0 && (s->written == s->committed || s->state == SESSION_FETCHING));
        break;
    }
    if (!right)
        oracle_fail("audit: session %u owns [%u, +%u) of group %u for committed %u, written %u, "
                    "allocated %u",
                    slot, s->base[g], n, g, s->committed, s->written, s->allocated);
}

/* Returns the time at which a ticket ends by itself. */
static uint64_t time_of(const struct session *s)
{
    return s->ticket_ends || (s->ticket_state == TICKET_PROMISED && s->follower != NONE)
               ? UINT64_MAX
               : s->ticket_until_ns;
}

/* A session that was handed over belongs to no engine once its step has passed. */
static void audit_ticket(struct audit *a, const struct session *s, uint32_t slot)
{
    bool nobodys = s->state == SESSION_HANDED ? s->ticket_state != TICKET_WAITING
                                              : s->state == SESSION_CLOSING && s->engine == NONE;

    if (nobodys != (s->engine == NONE) ||
        (!nobodys && engine_at(a->c, s->engine)->state == ENGINE_EMPTY))
        oracle_fail("audit: session %u belongs to no engine", slot);
    if ((s->ticket_state > TICKET_PROMISED) != (s->state == SESSION_HANDED) ||
        (s->ticket_state == TICKET_PROMISED &&
         (s->state == SESSION_EMPTY || s->state == SESSION_CLOSING)) ||
        (s->follower != NONE &&
         (s->ticket_state == TICKET_NONE || s->ticket_state == TICKET_SERVED)) ||
        (s->held == REF_HANDOFF) != (s->state == SESSION_HANDED))
        oracle_fail("audit: session %u in state %u has a ticket in state %u", slot, s->state,
                    s->ticket_state);
    if (s->ticket_state == TICKET_NONE)
        return;
    if (s->ticket_at >= a->c->tickets || *ticket_heap(a->c, s->ticket_at) != slot ||
        time_of(s) < time_of(session_at(
                         a->c, *ticket_heap(a->c, (s->ticket_at - 1) / 2 * (s->ticket_at > 0)))))
        oracle_fail("audit: ticket %u ends before the one that is before it", slot);
    if (s->state != SESSION_HANDED)
        return;
    audit_chain(a, s->blob.head, div_up(s->blob.end, TOKEN_BLOCK), "a ticket's blob");
    if (s->blob.end != div_up(s->blob_bytes, 4) || s->allocated != s->written)
        oracle_fail("audit: ticket %u has %u words of a blob of %u bytes", slot, s->blob.end,
                    s->blob_bytes);
}

/* Checks a serve that follows a session. The pages that it offered are those of its own path. */
static void audit_follower(const struct core *c, uint32_t slot, uint32_t *followed)
{
    const struct serve *s = serve_at(c, slot);
    const struct session *t;

    if (s->state == SERVE_EMPTY || !s->follow)
        return;
    t = session_at(c, s->handed.slot);
    if (!s->served && t->gen == s->handed.gen && t->follower == slot)
        (*followed)--;
    if (s->told > s->avail || s->avail > s->to || (s->avail == s->to && !s->served) ||
        (s->avail < s->to && s->avail > node_at(c, s->node)->depth))
        oracle_fail("audit: Y4: serve %u has told %u of %u that may be told, of %u", slot, s->told,
                    s->avail, s->to);
}

/* An engine counts its sessions that are followed. */
static void audit_followed(const struct core *c)
{
    for (uint32_t i = 0; i < c->limits.engines; i++) {
        const struct engine *e = engine_at(c, i);
        uint32_t n = 0;

        for (uint32_t at = e->sessions.head; e->state != ENGINE_EMPTY && at != NONE;
             at = session_list_next(c, at))
            n += session_at(c, at)->follower != NONE;
        if (e->state != ENGINE_EMPTY && n != e->nfollowed)
            oracle_fail("audit: Y4: %u sessions of engine %u are followed, and it counts %u", n, i,
                        e->nfollowed);
    }
}

static void audit_tickets(const struct core *c)
{
    uint32_t n = 0, handed = 0, due = 0, served = 0, serves = 0, followed = 0;

    for (uint32_t at = c->tickets_due.head; at != NONE && n <= c->limits.sessions;
         at = ticket_list_next(c, at), n++)
        if (session_at(c, at)->state != SESSION_HANDED || !ticket_list_has(c, at))
            oracle_fail("audit: session %u is among the tickets that are due", at);
    for (uint32_t i = 0; i < c->limits.sessions; i++) {
        handed += session_at(c, i)->state != SESSION_EMPTY &&
                  session_at(c, i)->ticket_state != TICKET_NONE;
        due += session_at(c, i)->state != SESSION_EMPTY && ticket_list_has(c, i);
        followed += session_at(c, i)->state != SESSION_EMPTY && session_at(c, i)->follower != NONE;
        served += session_at(c, i)->ticket_state == TICKET_SERVED;
    }
    for (uint32_t i = 0; i < c->limits.serves; i++) {
        audit_follower(c, i, &followed);
        if (serve_at(c, i)->state != SERVE_EMPTY && serve_at(c, i)->served) {
            serves++;
            if (session_at(c, serve_at(c, i)->handed.slot)->ticket_state != TICKET_SERVED)
                oracle_fail("audit: serve %u serves what is no ticket", i);
        }
    }
    if (followed != 0)
        oracle_fail("audit: %u sessions are followed by nobody", followed);
    audit_followed(c);
    if (handed != c->tickets || n != due || n != c->tickets_due.n || served != serves)
        oracle_fail(
            "audit: %u tickets, %u in the heap; %u due, %u in the list; %u are served by %u",
            handed, c->tickets, due, n, served, serves);
}

static void audit_session(struct audit *a, uint32_t slot)
{
    const struct session *s = session_at(a->c, slot);
    const struct pool *p = pool_at(a->c, s->pool);
    const struct node *n = node_at(a->c, s->node);
    const struct token_buf *b = &s->tokens;
    uint32_t per_chunk = div_up(p->align, TOKEN_BLOCK), length = b->end - b->first;

    if (s->committed > s->written || s->written > s->allocated)
        oracle_fail("audit: S1: committed %u, written %u, allocated %u", s->committed, s->written,
                    s->allocated);
    if (!n->used || n->depth != s->committed || n->pool != s->pool || n->space != s->space)
        oracle_fail("audit: session %u, committed %u, pins node %u of depth %u", slot, s->committed,
                    s->node, n->depth);
    for (uint32_t g = 0; g < p->ngroups; g++) {
        audit_page_list(a, &s->owned[g],
                        s->state == SESSION_HANDED    ? BIT(HANDED)
                        : s->state == SESSION_CLOSING ? BIT(OWNED) | BIT(HANDED)
                                                      : BIT(OWNED),
                        slot, "a session's table");
        if (s->state != SESSION_CLOSING) /* its pages go first, then its tokens */
            audit_owned(s, slot, p, g);
    }
    if (s->state_from > s->committed || s->state_from % p->align ||
        (p->nstate == 0 && s->state_from != s->committed))
        oracle_fail("audit: session %u, committed %u, borrows the STATE deeper than %u", slot,
                    s->committed, s->state_from);
    if (b->first > b->end ||
        (s->committed > 0 && b->first != s->committed && s->state != SESSION_CLOSING) ||
        (b->end < s->written && s->state != SESSION_CLOSING) || b->first % p->align)
        oracle_fail("audit: session %u holds tokens [%u, %u) with committed %u, written %u", slot,
                    b->first, b->end, s->committed, s->written);
    audit_chain(a, b->head, length / p->align * per_chunk + div_up(length % p->align, TOKEN_BLOCK),
                "a session");
    audit_keys(a, b->keys, b->first, b->end, "a session");
    audit_ticket(a, s, slot);
}

static void audit_retires(struct audit *a)
{
    const struct core *c = a->c;
    uint8_t *pending = marks(c->limits.nodes);
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->limits.engines; i++) {
        const struct engine *e = engine_at(c, i);
        uint64_t last = 0;

        if (e->state == ENGINE_EMPTY)
            continue;
        for (uint32_t at = e->retires.head, prev = retire_list_last(c, &e->retires); at != NONE;
             prev = at, at = retire_list_next(c, at)) {
            const struct retire *r = retire_at(c, at);

            if (r->step < last || r->step <= e->done_min || r->in_engine.prev != prev ||
                n++ == c->limits.retires)
                oracle_fail("audit: retire record %u of step %llu is out of order", at,
                            (unsigned long long)r->step);
            last = r->step;
            audit_page_list(a, &r->pages, BIT(RETIRING), at, "a retire record");
            for (uint32_t p = r->pending; p != NONE; p = node_at(c, p)->work.publish_next) {
                const struct node *m = node_at(c, p);
                bool new = m->pending_engine == i && m->work.publish_step <= r->step;

                if (!new && !(node_visible(m) && m->state.refilling))
                    oracle_fail("audit: node %u is pending in a record that is not its", p);
                audit_meet(pending, p, c->limits.nodes, "node", "the lists of pending ones");
            }
        }
    }
    for (uint32_t i = 0; i < c->limits.nodes; i++)
        if (node_at(c, i)->used &&
            pending[i] != (!node_visible(node_at(c, i)) || node_at(c, i)->state.refilling != 0))
            oracle_fail("audit: node %u waits for a step in %u records", i, pending[i]);
        else if (node_at(c, i)->used && !pending[i] && node_at(c, i)->work.publish_step > 0)
            oracle_fail("audit: node %u names a step that it does not wait for", i);
    if (n != c->nretires || n + c->free_retires.n != c->limits.retires)
        oracle_fail("audit: %u retire records live, %u counted, %u free", n, c->nretires,
                    c->free_retires.n);
}

static void audit_pulls(struct audit *a)
{
    const uint32_t states = BIT(RESERVED) | BIT(VERIFIED) | BIT(QUARANTINE);

    for (uint32_t i = 0; i < a->c->limits.pulls; i++) {
        const struct pull *p = pull_at(a->c, i);

        for (uint32_t g = 0; p->state != PULL_EMPTY && g < a->c->limits.groups; g++)
            audit_page_list(a, &p->pages[g], states, i, "a transfer");
        if (p->state != PULL_EMPTY)
            audit_chain(a, p->blob.head, div_up(p->blob.end, TOKEN_BLOCK), "a transfer's blob");
    }
}

static void audit_sessions(struct audit *a)
{
    const struct core *c = a->c;
    uint32_t n = 0, listed = 0, per_pool[POOLS_LIMIT] = {0};

    audit_tickets(c);

    for (uint32_t i = 0; i < c->limits.sessions; i++)
        if (session_at(c, i)->state != SESSION_EMPTY) {
            audit_session(a, i);
            per_pool[session_at(c, i)->pool] += session_at(c, i)->state != SESSION_CLOSING;
            listed += session_at(c, i)->engine == NONE;
            n++;
        }
    for (uint32_t i = 0; i < c->limits.engines; i++) {
        const struct engine *e = engine_at(c, i);
        uint32_t mine = 0;

        if (e->state == ENGINE_EMPTY)
            continue;
        for (uint32_t at = e->sessions.head; at != NONE && mine <= c->limits.sessions;
             at = session_list_next(c, at), mine++)
            if (session_at(c, at)->engine != i)
                oracle_fail("audit: session %u is listed by engine %u, which is not its", at, i);
        if (mine != e->sessions.n)
            oracle_fail("audit: engine %u counts %u sessions and has %u", i, e->sessions.n, mine);
        listed += mine;
    }
    if (n != listed || n + c->free_sessions.n != c->limits.sessions)
        oracle_fail("audit: %u sessions live, %u listed, %u free", n, listed, c->free_sessions.n);
    for (uint32_t i = 0; i < c->limits.pools; i++)
        if (pool_at(c, i)->state != POOL_EMPTY && pool_at(c, i)->sessions != per_pool[i])
            oracle_fail("audit: pool %u counts %u sessions and has %u", i, pool_at(c, i)->sessions,
                        per_pool[i]);
}

/* --- free lists, and records that were met nowhere --- */

static void audit_stores(struct audit *a)
{
    const struct core *c = a->c;
    uint32_t n = 0;

    for (uint32_t at = c->free_blocks.head; at != NONE; at = *block_next(c, at), n++)
        audit_meet(a->block_seen, at, block_limit(c), "token block", "the free list");
    if (n != c->free_blocks.n)
        oracle_fail("audit: %u token blocks are free, %u counted", n, c->free_blocks.n);
    n = 0;
    for (uint32_t at = c->free_keys.head; at != NONE; at = key_at(c, at)->next, n++)
        audit_meet(a->key_seen, at, key_limit(c), "extra key", "the free list");
    if (n != c->free_keys.n)
        oracle_fail("audit: %u extra keys are free, %u counted", n, c->free_keys.n);
    for (uint32_t i = 0; i < block_limit(c); i++)
        if (!a->block_seen[i])
            oracle_fail("audit: token block %u leaked", i);
    for (uint32_t i = 0; i < key_limit(c); i++)
        if (!a->key_seen[i])
            oracle_fail("audit: extra key %u leaked", i);
}

static void audit_no_page_lost(struct audit *a)
{
    const struct core *c = a->c;

    for (uint32_t i = 0; i < c->limits.pools; i++) {
        const struct pool *p = pool_at(c, i);

        for (uint32_t s = 1; p->state != POOL_EMPTY && s < p->nslabs; s++) {
            const struct slab *slab = slab_at(c, p->slab_base + s);
            uint32_t base = p->page_base + s * p->pages_per_slab_max;

            for (uint32_t k = 0; slab->assigned && k < p->group[slab->group].pages_per_slab; k++)
                if (!a->page_seen[base + k])
                    oracle_fail("audit: T1: page %u, state %u, owner %u, is nowhere", base + k,
                                page_at(c, base + k)->state, page_at(c, base + k)->owner);
        }
    }
}

static void audit_view(const struct core *core, uint32_t slot)
{
    struct pool_view v;

    if (!core_pool_view(core, slot, &v))
        return;
    for (uint32_t g = 0; g < v.ngroups; g++) {
        const struct group_view *q = &v.group[g];
        uint64_t sum = (uint64_t)q->free + q->leased + q->session + q->snapshot + q->reclaimable +
                       q->transfer + q->ticket + q->retiring + q->zeroing + q->quarantine;

        if (sum != q->total)
            oracle_fail("T1: pool %u group %u: %llu pages are somewhere, %u exist", slot, g,
                        (unsigned long long)sum, q->total);
        if (q->layout.cap_pages && q->total - q->free > q->layout.cap_pages)
            oracle_fail("audit: group %u uses %u pages and may use %u", g, q->total - q->free,
                        q->layout.cap_pages);
    }
}

static void must_be(const struct core *core, const struct page_at *at, uint32_t state,
                    const char *end)
{
    const struct page *p = page_at(core, at->record);

    if (p->gen != at->gen || p->index != at->index || p->group != at->group || p->state != state)
        oracle_fail("audit: T16: page %u, the %s of a copy, has state %u, generation %u and not %u",
                    at->record, end, p->state, p->gen, at->gen);
}

/* A vacant slot of peers has no link; the others are counted. */
static void audit_members(const struct audit *a)
{
    uint32_t members = 0;

    for (uint32_t i = 0; i < a->c->limits.peers; i++) {
        members += !link_at(a->c, i)->vacant;
        if (link_at(a->c, i)->vacant && link_at(a->c, i)->up)
            oracle_fail("audit: there is a link to peer %u, which has left", i);
    }
    if (members != a->c->members)
        oracle_fail("audit: %u peers, %u counted", members, a->c->members);
}

void oracle_audit_copy(const struct core *core, const struct page_at *from,
                       const struct page_at *to, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        must_be(core, &from[i], PAGE_COMMITTED, "source");
        must_be(core, &to[i], PAGE_COPYING, "destination");
    }
}

void oracle_audit(const struct core *core)
{
    const struct core_limits *l = core_limits_of(core);
    struct audit a;
    uint32_t closing = 0, pools = 0;

    give_scratch_back();
    a = (struct audit){.c = core,
                       .page_seen = marks(l->pages),
                       .block_seen = marks(l->token_blocks + l->disk_blocks),
                       .key_seen = marks(l->extra_keys + l->disk_keys),
                       .node_seen = marks(l->nodes),
                       .slab_seen = marks(l->slabs)};

    for (uint32_t i = 0; i < l->pools; i++) {
        if (pool_at(core, i)->state != POOL_EMPTY)
            audit_slabs(&a, pool_at(core, i));
        closing += pool_at(core, i)->state == POOL_CLOSING;
        pools += pool_at(core, i)->state != POOL_EMPTY && pool_at(core, i)->tier == TIER_DEVICE;
        audit_view(core, i);
    }
    if (closing != core->nclosing || pools != core->npools)
        oracle_fail("audit: %u pools, %u of them closing; %u and %u counted", pools, closing,
                    core->npools, core->nclosing);
    audit_sessions(&a);
    audit_leases(&a);
    audit_retires(&a);
    audit_pulls(&a);
    audit_nodes(&a);
    audit_heaps(&a);
    audit_host(&a);
    audit_refs(&a);
    audit_state(&a);
    audit_obtain(&a);
    audit_turns(&a);
    audit_records(&a);
    audit_transfers(&a);
    audit_disk(&a);
    audit_tables(&a);
    audit_stores(&a);
    audit_no_page_lost(&a);
    audit_shares(&a);
    audit_members(&a);
    give_scratch_back();
}
