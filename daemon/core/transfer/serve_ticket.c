/* See serves.h. */
#include "core/transfer/serves.h"

#include "core/transfer/handed.h"
#include "core/transfer/serve_record.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

/* Returns true if the tokens, which end in this message, lead to what was handed over. */
static bool leads_to(const struct core *c, const struct peer_msg *m, const struct session *s,
                     uint32_t node, uint32_t *ret_differs)
{
    *ret_differs = handed_differs(c, s, m);
    return node == s->node && peer_msg_until(m) == s->written && m->at <= s->committed &&
           *ret_differs == 0;
}

/* Finds the session that a ticket names. *no: details of a refusal. */
static enum tern_err find_handed(const struct core *c, const struct peer_msg *m, struct found *ret,
                                 struct peer_msg *no)
{
    struct token_view w;
    struct session *s;

    *ret = (struct found){.pool = NONE, .node = NONE};
    TRY(handed_find(c, m->tenant, &m->ticket, &s));
    if (s->ticket_state == TICKET_PROMISED)
        no->handed = s->committed;
    TRY(handed_ready(c, s, &no->busy));
    no->busy = TICKET_BUSY_SERVES; /* if no record is free */
    if (!serve_suits(pool_at(c, s->pool), m)) {
        ret->other_layout = pool_at(c, s->pool)->layout_hash;
        return TERN_UNSUPPORTED;
    }
    if (m->to != s->written) {
        no->handed = s->written;
        return TERN_INVALID;
    }
    w = serve_view(c, m, pool_at(c, s->pool)->align);
    *ret = (struct found){.pool = s->pool,
                          .node = node_walk(c, space_at(c, s->space)->root, &w),
                          .handed = m->ticket.id};
    ret->more = serve_more_follow(c, m, ret->node);
    return ret->more || leads_to(c, m, s, ret->node, &no->differs) ? TERN_OK : TERN_INVALID;
}

/* As serve_walked for a ticket, whose STATE is needed and which only one transfer serves. Returns
 * false if another transfer came first, or the ticket ends. */
static bool handed_walked(struct core *c, struct serve *s, uint32_t *ret_why)
{
    struct session *t = session_at(c, s->handed.slot);

    if (handed_ready(c, t, ret_why) != TERN_OK)
        return false;
    serve_move(c, s, t->node);
    node_use(c, s->node);
    s->state_from = t->state_from > s->from ? t->state_from : s->from;
    state_hold(c, (struct path){s->node, s->state_from});
    s->wait_node = s->node;
    serve_state_move(&s->state, SERVE_SEALING);
    s->served = 1;
    handed_serve(c, t, true);
    serve_advance(c, s);
    return true;
}

void serve_ticket_open(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *m)
{
    struct found f;
    struct peer_msg why = {.err = TERN_OK};
    enum tern_err err = find_handed(c, m, &f, &why);
    struct serve *s;

    if (err == TERN_OK)
        err = serve_may_begin(c, link, m, f.pool);
    if (err != TERN_OK) {
        struct peer_msg *no = serve_offer_nothing(c, out, link, m, err);

        no->layout_hash = err == TERN_UNSUPPORTED ? f.other_layout : 0;
        no->handed = why.handed;
        no->busy = err == TERN_BUSY ? why.busy : TICKET_BUSY_UNSAID;
        no->differs = err == TERN_INVALID ? why.differs : 0;
        return;
    }
    s = serve_create(c, link, m, &f);
    if (f.more)
        serve_ask_more(c, out, s);
    else
        check(handed_walked(c, s, &why.busy));
}

void serve_ticket_tokens(struct core *c, struct actions *out, struct serve *s,
                         const struct peer_msg *m)
{
    struct session *t = session_at(c, s->handed.slot);
    uint32_t link = s->link;
    enum tern_err err = TERN_BUSY;
    uint32_t why = TICKET_BUSY_UNSAID;
    uint32_t differs = 0;
    struct peer_msg *no;

    if (t->state != SESSION_HANDED || t->gen != s->handed.gen || t->ticket_ends)
        err = TERN_GONE;
    else if (!leads_to(c, m, t, s->node, &differs))
        err = TERN_INVALID;
    else if (handed_walked(c, s, &why))
        return;
    serve_free(c, s);
    no = serve_offer_nothing(c, out, link, m, err);
    no->busy = why;
    no->differs = differs;
}

void serve_ticket_ends(struct core *c, const struct session *t)
{
    const uint32_t slot = session_slot(c, t);

    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i)) {
        struct serve *s = serve_at(c, i);

        if (s->state != SERVE_UNTOLD || s->handed.slot != slot)
            continue;
        serve_free(c, s);
        return; /* only one serves it */
    }
}
