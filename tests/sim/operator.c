/* Requests about whole namespaces and about nodes: NamespaceReset (N1), an operator's pins, and the
 * host depth in answers to Peek and Match. A namespace that was reset is another space from then
 * on: its former pages stay with the sessions that run in it, and no other answer may name them. */
#include "disk.h"

#define SPACE_CHUNKS (VARIANTS * CHUNKS)

bool space_current(const struct sim *w, uint32_t d, uint32_t tenant, uint32_t space)
{
    for (uint32_t n = 0; n < NAMESPACES; n++)
        if (w->d[d].space_of[tenant][n] == space)
            return true;
    return false;
}

/* --- reset --- */

static bool of_space(const struct sim *w, uint32_t d, uint32_t tenant, uint32_t pool,
                     uint32_t space, uint16_t chunk)
{
    return w->d[d].pool[pool].tenant == tenant && chunk / SPACE_CHUNKS == space;
}

/* Does no session run in the space, and no job or step use its pages? */
static bool space_unused(const struct sim *w, uint32_t d, uint32_t tenant, uint32_t space)
{
    const struct daemon *m = &w->d[d];

    if (space_current(w, d, tenant, space))
        return false;
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (m->session[i].live && m->session[i].tenant == tenant && m->session[i].space == space)
            return false;
    if (m->njobs) /* copies of it may wait in the queue behind these */
        return false;
    for (uint32_t i = 0; i < w->granules; i++) {
        const struct granule *g = &m->granule[tenant][i];

        if ((g->own == OWN_CHUNK || g->own == OWN_STATE || g->loaded) &&
            of_space(w, d, tenant, g->pool, space, g->chunk) &&
            (!g->sealed || g->borrows || g->serves || g->sealing || g->writers ||
             granule_busy(w, d, tenant, g)))
            return false;
    }
    for (uint32_t i = 0; i < w->hosts; i++) {
        const struct hpage *h = &m->host[tenant][i];

        if ((h->own == HOST_MOVING || h->readers) &&
            of_space(w, d, tenant, h->pool, space, h->chunk))
            return false;
    }
    return true;
}

/* Pages that may remain from the former space belong to nobody. */
static void space_take(struct sim *w, uint32_t d, uint32_t tenant, uint32_t space)
{
    struct daemon *m = &w->d[d];

    for (uint32_t i = 0; i < w->granules; i++) {
        struct granule *g = &m->granule[tenant][i];

        if ((g->own == OWN_CHUNK || g->own == OWN_STATE || g->loaded) &&
            of_space(w, d, tenant, g->pool, space, g->chunk)) {
            g->own = OWN_RESET;
            g->loaded = g->verified = 0;
        }
    }
    for (uint32_t i = 0; i < w->hosts; i++)
        if (m->host[tenant][i].own == HOST_NODE &&
            of_space(w, d, tenant, m->host[tenant][i].pool, space, m->host[tenant][i].chunk))
            m->host[tenant][i].own = HOST_FREE;
    for (uint32_t p = 0; p < POOLS; p++)
        for (uint32_t i = 0; m->pool[p].tenant == tenant && i < SPACE_CHUNKS; i++)
            m->known[p][(space * SPACE_CHUNKS + i) / 64] &=
                ~(1ull << (space * SPACE_CHUNKS + i) % 64);
}

uint32_t namespace_number(const struct sim *w, struct namespace_id ns)
{
    return (uint32_t)(w->cfg.seed_tokens & 1 ? ns.hi : ns.lo);
}

/* A namespace that was reset has no space until one is needed. Returns false if none is free. */
bool space_ready(struct sim *w, uint32_t d, uint32_t tenant, uint32_t ns)
{
    struct daemon *m = &w->d[d];
    uint32_t fresh = 0;

    if (m->space_of[tenant][ns] != NO_SPACE)
        return true;
    while (fresh < SPACES && !space_unused(w, d, tenant, fresh))
        fresh++;
    if (fresh == SPACES)
        return false;
    space_take(w, d, tenant, fresh);
    m->space_of[tenant][ns] = (uint8_t)fresh;
    return true;
}

static void model_reset(struct sim *w, uint32_t d, uint32_t tenant, uint32_t ns)
{
    struct daemon *m = &w->d[d];

    m->space_of[tenant][ns] = NO_SPACE;
    m->resets++;
    for (uint32_t i = 0; i < POOLS; i++)
        m->pool[i].evictions++;
    disk_reset_begun(w, d, tenant, ns);
}

/* A slot for a reset that waits for its answer; NULL: all are in use. */
static struct reset_asked *reset_slot(struct daemon *m)
{
    for (uint32_t i = 0; i < RESETS; i++)
        if (m->reset_asked[i].request_id == 0)
            return &m->reset_asked[i];
    return NULL;
}

void ask_reset(struct sim *w, uint32_t d, uint32_t e)
{
    struct daemon *m = &w->d[d];
    const struct engine *g = &m->engine[e];
    uint32_t conn = engine_conn(w, d, e), ns = pick(w, w->cfg.namespaces), n = 0;
    struct reset_asked *slot = reset_slot(m);
    struct event ev;

    if (conn == NO || g->dying || !slot)
        return;
    request_init(w, d, &ev, OP_NAMESPACE_RESET, conn);
    ev.request.namespace_reset.ns = namespace_of(ns, w->cfg.seed_tokens & 1);
    TRACE("  daemon %u tenant %u resets namespace %u, reset %u\n", d, g->tenant, ns, w->resets + 1);
    for (uint32_t i = 0; i < SESSIONS; i++)
        n += m->session[i].live && m->session[i].tenant == g->tenant &&
             m->session[i].space == m->space_of[g->tenant][ns];
    model_reset(w, d, g->tenant, ns);
    *slot = (struct reset_asked){ev.request.request_id, g->tenant, ns, ++w->resets};
    m->content[g->tenant][ns] = m->own_reset[g->tenant][ns] = w->resets;
    sim_step(w, d, &ev);
    EXPECT(!w->reply || w->reply->err != TERN_OK || slot->request_id == 0, "reset_answer", "twice");
    MARK(reset);
    if (n)
        MARK(reset_with_running_session);
}

void reset_answered(struct sim *w, uint32_t d, const struct reply *r)
{
    struct daemon *m = &w->d[d];

    EXPECT(r->err == TERN_OK, "reset_refused", "err %u %s", r->err, r->text);
    for (uint32_t i = 0; i < RESETS; i++) {
        struct reset_asked *a = &m->reset_asked[i];

        if (a->request_id != r->request_id)
            continue;
        disk_reset_answered(w, d, a, r->namespace_reset.unreached == 0);
        if (r->namespace_reset.unreached == 0) {
            MARK(reset_heard_by_all);
            if (m->heard_reset[a->tenant][a->ns] < a->number)
                m->heard_reset[a->tenant][a->ns] = a->number;
        }
        a->request_id = 0;
        return;
    }
}

/* A peer sent a reset, and the core accepted it. The reset has the peer's last number, or an
 * earlier one: the content here is younger than the reset that the peer asked for. */
void reset_heard(struct sim *w, uint32_t d, const struct peer_msg *msg)
{
    uint32_t ns = namespace_number(w, msg->ns);

    TRACE("  daemon %u heard of a reset of namespace %u of tenant %u\n", d, ns, msg->tenant);
    model_reset(w, d, msg->tenant, ns);
    w->d[d].content[msg->tenant][ns] = w->resets;
    MARK(reset_by_peer);
}

/* --- pins --- */

static void pin_pages(struct sim *w, uint32_t d, const struct pin *p, int by)
{
    for (uint32_t k = 1; k <= p->depth; k++) {
        const struct chunk *c = chunk_at(w, d, p->pool, p->space, p->variant, k);

        for (uint32_t g = 0; g < w->cfg.ngroups; g++)
            for (uint32_t i = 0; i < w->L / w->page_tokens[d][g]; i++)
                for (uint32_t n = 0; n < w->page_granules[g]; n++) {
                    struct granule *at = &w->d[d].granule[p->tenant][c->granule[g][i] + n];

                    at->borrows = (uint8_t)(at->borrows + by);
                }
    }
}

static void admin_pin(struct sim *w, uint32_t d, struct node_id node, bool on)
{
    struct event ev;

    request_init(w, d, &ev, OP_PIN, 0);
    ev.request.pin.node = node;
    ev.request.pin.on = on;
    sim_ask(w, d, &ev, "pin_answer");
}

/* Pins a node that a session pins on the device: the operator reads its id from the tree. */
void ask_pin(struct sim *w, uint32_t d)
{
    struct daemon *m = &w->d[d];
    const struct session *s = &m->session[pick(w, SESSIONS)];
    struct session_view sv;
    struct node_view nv;
    struct pin *p = NULL;

    for (uint32_t i = 0; i < PINS; i++)
        if (!m->pin[i].used)
            p = &m->pin[i];
    if (!p || !s->live || s->committed == 0 || s->deaf || s->turn == TURN_FETCHING ||
        s->turn == TURN_LOADING || s->unpinned || m->pool[s->pool].closing)
        return;
    EXPECT(core_session_view(m->core, s->id.slot, &sv) && session_id_equal(sv.id, s->id) &&
               core_node_view(m->core, sv.node, &nv) && nv.depth == s->committed,
           "view_node", "session %u.%u has committed %u", s->id.slot, s->id.gen, s->committed);
    if (chance(w, 10)) {
        nv.id.gen--;
        admin_pin(w, d, nv.id, true);
        EXPECT(w->reply->err == TERN_GONE, "pin_stale", "err %u", w->reply->err);
        return;
    }
    if (nv.refs[REF_ADMIN] == 0 && chance(w, 15)) {
        admin_pin(w, d, nv.id, false);
        EXPECT(w->reply->err == TERN_CONFLICT, "unpin_nothing", "err %u", w->reply->err);
        return;
    }
    TRACE("  daemon %u pins depth %u\n", d, s->committed);
    admin_pin(w, d, nv.id, true);
    if (w->reply->err == TERN_INVALID &&
        !chunk_visible(w, d, chunk_at(w, d, s->pool, s->space, s->variant, s->committed / w->L)))
        return; /* nobody else may match it yet */
    EXPECT(w->reply->err == TERN_OK, "pin_refused", "err %u %s", w->reply->err, w->reply->text);
    *p = (struct pin){.used = 1,
                      .pool = s->pool,
                      .tenant = s->tenant,
                      .space = s->space,
                      .variant = s->variant,
                      .depth = (uint8_t)(s->committed / w->L),
                      .node = nv.id};
    pin_pages(w, d, p, 1);
    MARK(pinned);
}

void ask_unpin(struct sim *w, uint32_t d, uint32_t i)
{
    struct pin *p = &w->d[d].pin[i % PINS];

    bool perhaps_closed = w->d[d].pool[p->pool].closing; /* then the pin has ended with it */

    if (!p->used)
        return;
    TRACE("  daemon %u unpins depth %u\n", d, p->depth * w->L);
    pin_pages(w, d, p, -1);
    p->used = 0;
    admin_pin(w, d, p->node, false);
    EXPECT(w->reply->err == TERN_OK ||
               (perhaps_closed && (w->reply->err == TERN_GONE || w->reply->err == TERN_CONFLICT)),
           "unpin_refused", "err %u %s", w->reply->err, w->reply->text);
}

void unpin_all(struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; i < PINS; i++)
        ask_unpin(w, d, i);
}

/* Pins end with their pool. */
void pins_forget(struct sim *w, uint32_t d, uint32_t pool)
{
    for (uint32_t i = 0; i < PINS; i++)
        if (w->d[d].pin[i].pool == pool)
            w->d[d].pin[i].used = 0;
}

/* --- what the host could load --- */

static bool unseen(const struct sim *w, uint32_t d, uint32_t tenant)
{
    for (uint32_t i = 0; i < w->granules; i++)
        if (w->d[d].granule[tenant][i].own == OWN_ORPHAN ||
            w->d[d].granule[tenant][i].own == OWN_PULL)
            return true;
    return false;
}

/* T16: at most what was acknowledged or is on the device, at least what a retracted session depends
 * on. */
void check_host_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t space, uint32_t variant,
                      uint32_t n, uint32_t depth, uint32_t host_depth)
{
    uint32_t tenant = w->d[d].pool[pool].tenant, least = 0;

    EXPECT(host_depth % w->L == 0 && host_depth >= depth && host_depth <= n, "host_depth",
           "%u of %u tokens, the device has %u", host_depth, n, depth);
    for (uint32_t k = depth / w->L + 1; k * w->L <= host_depth; k++) {
        const struct chunk *c = chunk_at(w, d, pool, space, variant, k);

        if (host_has(c) || unseen(w, d, tenant) || w->d[d].host_left) /* it existed then */
            continue;
        EXPECT(c->present, "host_match_unknown",
               "host depth %u, but no copy of depth %u was acknowledged", host_depth, k * w->L);
        EXPECT(chunk_visible(w, d, c), "host_match_pending", "host depth %u, but depth %u waits",
               host_depth, k * w->L);
    }
    if (w->cfg.nstate || w->d[d].spoilt)
        return;
    for (uint32_t k = 1; k * w->L <= n; k++) {
        struct chunk *c = chunk_at(w, d, pool, space, variant, k);

        if (c->present && !chunk_visible(w, d, c))
            break;
        if (!(c->hhas[0] && host_pinned(w, d, pool, c, 0)) &&
            !(chunk_certain(w, d, pool, c) && chunk_visible(w, d, c)))
            break;
        least = k * w->L;
    }
    EXPECT(host_depth >= least, "host_match_too_short", "%u, but %u is on one tier or the other",
           host_depth, least);
}
