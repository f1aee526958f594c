/* Requests beside the ordinary ones: of the operator, repeated, with old handles, of another
 * tenant, or without sense. Each has one right answer, and none has other effects. */
#include "sim.h"

/* The same Match and the same Commit again change nothing. */
void ask_again(struct sim *w, uint32_t d, uint32_t i)
{
    struct session *s = &w->d[d].session[i];
    uint32_t conn = engine_conn(w, d, s->engine);
    struct step_op op = {.kind = STEP_COMMIT, .session = s->handle, .length = s->committed};
    struct event ev;
    const struct op_result *r;

    if (conn == NO || w->d[d].engine[s->engine].dying)
        return;
    op.step = s->last_step;
    request_init(w, d, &ev, OP_STEP, conn);
    ev.request.step.ops = &op;
    ev.request.step.n = 1;
    sim_step(w, d, &ev);
    EXPECT(w->reply && w->reply->step.n == 1, "repeat_answer", "no answer");
    r = &w->reply->step.results[0];
    EXPECT(r->err == TERN_OK && r->nruns == 0, "commit_repeated", "err %u, %u runs", r->err,
           r->nruns);
    same_lengths(w, s, &r->lengths, "commit_repeated");
    same_tokens(w, s, r->tokens, "commit_repeated");
}

/* Nodes that sessions pin, on either tier, and that the host also has and keeps. */
static uint32_t held_on_host(struct sim *w, uint32_t d, struct node_id *ret)
{
    const struct daemon *m = &w->d[d];
    struct session_view s;
    struct node_view n;
    uint32_t k = 0;

    for (uint32_t i = 0; i < SESSIONS; i++) {
        uint32_t left = CHUNKS;

        if (!m->session[i].live || !core_session_view(m->core, m->session[i].id.slot, &s) ||
            !session_id_equal(s.id, m->session[i].id))
            continue;
        if (w->cfg.host_behind && s.ref != REF_HOST)
            continue; /* the device has it: the host may need the room */
        for (uint32_t at = s.node; core_node_view(m->core, at, &n) && n.depth > 0; at = n.parent) {
            EXPECT(left-- > 0, "path_too_deep", "depth %u", n.depth);
            if (n.on_host)
                ret[k++] = n.id;
        }
    }
    return k;
}

/* A ticket that ended in an earlier step may release its pages in this one. */
static uint32_t pages_used(const struct sim *w, uint32_t d, enum tier tier, uint32_t *tickets)
{
    struct pool_view p;
    uint32_t n = 0;

    *tickets = 0;

    for (uint32_t i = 0; i < w->limits.pools; i++) {
        if (!core_pool_view(w->d[d].core, i, &p) || p.tier != tier)
            continue;
        for (uint32_t g = 0; g < p.ngroups; g++) {
            n += p.group[g].session + p.group[g].snapshot + p.group[g].reclaimable +
                 p.group[g].transfer + p.group[g].ticket + p.group[g].retiring +
                 p.group[g].quarantine;
            *tickets += p.group[g].ticket;
        }
    }
    return n;
}

void evict(struct sim *w, uint32_t d, bool all)
{
    struct daemon *m = &w->d[d];
    struct node_id held[SESSIONS * CHUNKS];
    uint32_t tickets, left, none, nheld = held_on_host(w, d, held),
                                  device = pages_used(w, d, TIER_DEVICE, &tickets),
                                  host = pages_used(w, d, TIER_HOST, &none);
    bool due = core_deadline(m->core) <= w->now + 1000; /* of a fetch, which took pages ahead */
    struct node_view n;
    struct event ev;

    request_init(w, d, &ev, OP_EVICT, 0);
    ev.request.evict.pool = (struct pool_id){.slot = NONE};
    ev.request.evict.nodes = all ? 0 : 1 + pick(w, 4);
    for (uint32_t i = 0; i < POOLS; i++)
        m->pool[i].evictions++;
    sim_ask_in_pieces(w, d, &ev, "evict_refused");
    EXPECT(w->reply->err == TERN_OK, "evict_refused", "err %u", w->reply->err);
    EXPECT(all || w->reply->evict.nodes <= ev.request.evict.nodes, "evict_too_many", "%u nodes",
           w->reply->evict.nodes);
    for (uint32_t i = 0; i < nheld; i++)
        EXPECT(core_node_view(m->core, held[i].slot, &n) && node_id_equal(n.id, held[i]) &&
                   n.on_host,
               "evict_took_held", "node %u.%u has left the host", held[i].slot, held[i].gen);
    device -= pages_used(w, d, TIER_DEVICE, &left);
    host -= pages_used(w, d, TIER_HOST, &none);
    /* Not in the answer: prefixes of a reset namespace that were on the device alone, superseded
     * STATE that a copy kept, and the next nodes to be evicted, which are copied to the host. */
    EXPECT(due || m->resets || w->cfg.disk ||
                   (w->cfg.host_behind && w->cfg.supersede == SUPERSEDE_EAGER)
               ? device >= w->reply->evict.pages
               : device >= w->reply->evict.pages &&
                     device <= w->reply->evict.pages + (tickets - left),
           "evict_pages", "%u were told, %u went", w->reply->evict.pages, device);
    EXPECT(w->cfg.host_behind || (m->resets ? host >= w->reply->evict.host_pages
                                            : host == w->reply->evict.host_pages),
           "evict_pages", "%u of the host were told, %u went", w->reply->evict.host_pages, host);
    if (w->reply->evict.nodes)
        MARK(evict_on_demand);
    if (nheld)
        MARK(evict_past_held);
}

void drain(struct sim *w, uint32_t d)
{
    struct event ev;

    request_init(w, d, &ev, OP_DRAIN, 0);
    w->d[d].draining = !w->d[d].draining;
    ev.request.drain.on = w->d[d].draining;
    sim_step(w, d, &ev);
    EXPECT(w->reply && w->reply->err == TERN_OK, "drain_refused", "err %u",
           w->reply ? w->reply->err : 99);
}

static uint32_t any_conn(struct sim *w, uint32_t d, uint32_t *ret_engine)
{
    uint32_t e = pick(w, ENGINES);

    for (uint32_t i = 0; i < ENGINES; i++, e = (e + 1) % ENGINES) {
        const struct engine *g = &w->d[d].engine[e];
        uint32_t conn = engine_conn(w, d, e);

        if (conn != NO && !g->dying && g->seen == (1u << g->nprocs) - 1) {
            *ret_engine = e;
            return conn;
        }
    }
    return NO;
}

static void ask_with_handle(struct sim *w, uint32_t d, uint32_t conn, struct session_id id,
                            const char *what)
{
    struct event ev;
    struct step_op op;

    switch (pick(w, 4)) {
    case 0:
        request_init(w, d, &ev, OP_MATCH, conn);
        ev.request.match = (struct req_match){.session = id};
        ev.request.match.tokens = tokens_of(w, 0, 0, 1 + pick(w, 8));
        ev.request.match.step = 0;
        break;
    case 1:
        request_init(w, d, &ev, OP_FETCH_CANCEL, conn);
        ev.request.fetch_cancel.session = id;
        break;
    default:
        request_init(w, d, &ev, OP_STEP, conn);
        memset(&op, 0, sizeof op);
        op.kind = chance(w, 50) ? STEP_CLOSE : STEP_EXTEND;
        op.session = id;
        op.length = 4;
        ev.request.step.ops = &op;
        ev.request.step.n = 1;
    }
    sim_ask(w, d, &ev, "stale_answer");
    if (ev.request.op == OP_STEP)
        EXPECT(w->reply->step.n == 1 && w->reply->step.results[0].err == TERN_GONE, what,
               "handle %u.%u: err %u", id.slot, id.gen, w->reply->step.results[0].err);
    else
        EXPECT(w->reply->err == TERN_GONE, what, "handle %u.%u: err %u", id.slot, id.gen,
               w->reply->err);
}

void stale_request(struct sim *w, uint32_t d)
{
    struct daemon *m = &w->d[d];
    uint32_t e, conn = any_conn(w, d, &e);
    const struct session *s = &m->session[pick(w, SESSIONS)];
    const struct pool *p = &m->pool[pick(w, POOLS)];
    struct event ev;

    if (conn == NO)
        return;
    if (p->open && p->tenant != m->engine[e].tenant && chance(w, 50)) { /* another tenant's */
        FAULT(stale_handle);
        request_init(w, d, &ev, chance(w, 50) ? OP_POOL_MAP : OP_POOL_CLOSE, conn);
        ev.request.pool_map.pool = p->id;
        ev.request.pool_map.sums = false;
        sim_step(w, d, &ev);
        EXPECT(w->reply && w->reply->err != TERN_OK, "foreign_pool_used", "op %u", ev.request.op);
        MARK(tenant_separates);
        return;
    }
    if (m->restarts && m->old_session.gen && chance(w, 50)) {
        FAULT(stale_handle);
        ask_with_handle(w, d, conn, m->old_session, "old_session_lives");
        MARK(gone_after_restart);
    } else if (m->restarts && m->old_pool.gen && chance(w, 50)) {
        FAULT(stale_handle);
        request_init(w, d, &ev, OP_POOL_MAP, conn);
        ev.request.pool_map.pool = m->old_pool;
        ev.request.pool_map.sums = false;
        sim_step(w, d, &ev);
        EXPECT(w->reply && w->reply->err == TERN_GONE, "old_pool_lives", "err %u",
               w->reply ? w->reply->err : 99);
        MARK(gone_after_restart);
    } else if (s->used && (!s->live || s->turn == TURN_HANDED || s->engine != e)) {
        FAULT(stale_handle);
        ask_with_handle(w, d, conn, s->id,
                        s->live ? "foreign_session_used" : "closed_session_used");
        MARK(gone_after_close);
    }
}

static void bad_op(struct sim *w, const struct session *s, struct step_op *op)
{
    memset(op, 0, sizeof *op);
    op->session = s->handle;
    op->kind = STEP_EXTEND;
    switch (pick(w, 6)) {
    case 0: op->length = 0x80000000u + pick(w, 100); break;
    case 1: op->written = s->allocated + 1 + pick(w, 9); break;
    case 2:
        op->tokens = tokens_of(w, s->variant, s->ntokens > 3 ? s->ntokens - 3 : s->ntokens + 1,
                               s->ntokens + 2);
        break;
    case 3: op->kind = (enum step_op_kind)77; break;
    case 4:
        op->kind = STEP_REWIND;
        op->length = s->allocated + 1 + pick(w, 3);
        break;
    default: op->written = 0xffffffffu; break;
    }
}

void bad_request(struct sim *w, uint32_t d)
{
    struct daemon *m = &w->d[d];
    const struct session *s = &m->session[pick(w, SESSIONS)];
    uint32_t conn = s->live && s->gate < GATE_CLOSED ? engine_conn(w, d, s->engine) : NO;
    struct extra_key twice[2] = {{.position = 1}, {.position = 1}};
    struct event ev;
    struct step_op op;

    if (conn == NO || m->engine[s->engine].dying || m->pool[s->pool].closing || s->deaf)
        return;
    FAULT(malformed_request);
    if (chance(w, 70)) {
        bad_op(w, s, &op);
        request_init(w, d, &ev, OP_STEP, conn);
        ev.request.step.ops = &op;
        ev.request.step.n = 1;
        sim_step(w, d, &ev);
        EXPECT(w->reply && w->reply->err == TERN_OK && w->reply->step.n == 1 &&
                   w->reply->step.results[0].err != TERN_OK,
               "bad_op_taken", "kind %u length %u written %u", op.kind, op.length, op.written);
        return;
    }
    request_init(w, d, &ev, OP_MATCH, conn);
    ev.request.match = (struct req_match){.session = s->handle};
    ev.request.match.step = 0;
    ev.request.match.tokens = tokens_of(w, s->variant, 0, 4);
    if (chance(w, 50)) {
        ev.request.match.tokens.base = s->ntokens + 1;
    } else {
        ev.request.match.tokens.keys = twice;
        ev.request.match.tokens.nkeys = 2;
    }
    sim_step(w, d, &ev);
    EXPECT(w->reply && w->reply->err != TERN_OK, "bad_match_taken", "session %u.%u", s->id.slot,
           s->id.gen);
}
