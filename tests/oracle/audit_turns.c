/* The audit of turns: the sessions that have one in flight or wait to be closed behind one, and the
 * counts of their tenants. See audit.h. */
#include "oracle/audit.h"

static bool in_flight(const struct session *s)
{
    return s->gate == GATE_CLAIMED || s->gate == GATE_CLOSING;
}

static void audit_turn(const struct core *c, uint32_t slot, uint64_t begun_before)
{
    const struct session *s = session_at(c, slot);
    const struct conn *cn = conn_at(c, s->turn_conn);

    if (!in_flight(s) || s->state == SESSION_EMPTY || s->state == SESSION_CLOSING)
        oracle_fail("audit: M5: session %u in state %u is among the turns, gate %u", slot, s->state,
                    s->gate);
    if (s->turn_begun_ns < begun_before)
        oracle_fail("audit: M7: the turn of session %u began before one that ends earlier", slot);
    if (!cn->open || (cn->engine != s->engine && engine_at(c, s->engine)->state != ENGINE_ENDING))
        oracle_fail("audit: M7: connection %u, which has the turn of session %u, is gone",
                    s->turn_conn, slot);
    if (s->turn_gen == s->gen)
        oracle_fail("audit: M7: session %u and its turn have one handle", slot);
}

static void audit_closes(const struct core *c, const struct tenant *t, uint32_t tenant)
{
    uint32_t n = 0;

    for (uint32_t i = t->closes.head; i != NONE && n <= t->closes.n; i = closes_list_next(c, i)) {
        const struct session *s = session_at(c, i);

        n++;
        if (engine_at(c, s->engine)->tenant != tenant ||
            (s->gate != GATE_CLOSED && s->gate != GATE_UNCLOSED) || s->state == SESSION_CLOSING)
            oracle_fail("audit: M12: session %u, gate %u, is among those to be closed", i, s->gate);
    }
    if (n != t->closes.n)
        oracle_fail("audit: M12: %u of %u sessions are to be closed", n, t->closes.n);
}

void audit_turns(struct audit *a)
{
    const struct core *c = a->c;
    uint32_t *turns = audit_scratch(c->limits.tenants, sizeof *turns), n = 0, closes = 0,
             of_conns = 0;
    uint64_t begun = 0;

    for (uint32_t i = c->turns.head; i != NONE && n <= c->turns.n; i = turn_list_next(c, i)) {
        audit_turn(c, i, begun);
        begun = session_at(c, i)->turn_begun_ns;
        n++;
    }
    for (uint32_t i = 0; i < c->limits.conns; i++)
        of_conns += conn_at(c, i)->open ? conn_at(c, i)->turns.n : 0;
    if (n != c->turns.n || n != of_conns)
        oracle_fail("audit: M5: %u of %u turns are in their list, %u in those of connections", n,
                    c->turns.n, of_conns);
    for (uint32_t i = 0; i < c->limits.sessions; i++) {
        const struct session *s = session_at(c, i);

        if (s->gate != GATE_FREE && (s->state == SESSION_EMPTY || s->state == SESSION_CLOSING))
            oracle_fail("audit: M12: session %u is closed, gate %u", i, s->gate);
        if (in_flight(s))
            turns[engine_at(c, s->engine)->tenant]++;
        closes += s->gate == GATE_CLOSED || s->gate == GATE_UNCLOSED;
    }
    for (uint32_t t = 0; t < c->limits.tenants; t++) {
        if (tenant_at(c, t)->turns.in_flight != turns[t])
            oracle_fail("audit: M5: tenant %u counts %u turns and has %u", t,
                        (unsigned)tenant_at(c, t)->turns.in_flight, turns[t]);
        n -= turns[t];
        audit_closes(c, tenant_at(c, t), t);
        closes -= tenant_at(c, t)->closes.n;
    }
    if (n != 0 || closes != 0)
        oracle_fail("audit: M5: turns or closes of no tenant");
}
