/* Sessions: tokens, lengths and the pages that a session owns (S1-S9, T2-T5). The borrowed part of
 * a session's table is the path to its pinned node and is never stored twice. */
#include "core/session/sessions.h"

#include <string.h>

#include "core/session/record.h"
#include "core/session/retract.h"
#include "core/transfer/pulls.h"
#include "core/tree/nodes.h"
#include "core/tree/tokens.h"

/* --- opening --- */

static void session_link(struct core *c, struct engine *e, struct session *s)
{
    session_list_push_front(c, &e->sessions, session_slot(c, s));
    tenant_at(c, e->tenant)->sessions++;
    session_pool(c, s)->sessions++;
}

enum tern_err session_open(struct core *c, struct actions *out, struct call *call,
                           struct reply *ret)
{
    const struct req_session_open *r = &call->req->session_open;
    struct engine *e = call->engine;
    const struct tenant *tenant = tenant_at(c, e->tenant);
    struct pool *p;
    struct session *s;
    const char *text;
    uint32_t root, slot, gen;

    (void)out;
    TRY(session_pool_find(c, e, r->pool, &p, ret));
    if (c->draining)
        return refuse(ret, TERN_BUSY, "the daemon is draining: open sessions elsewhere");
    if (tenant->sessions >= tenant->config.sessions_max)
        return refuse(ret, TERN_QUOTA,
                      "the tenant's limit of open sessions is reached: close some, or raise "
                      "sessions_max");
    if (share_room(c, SHARE_SESSIONS, e->tenant) == 0)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_SESSIONS));
    if (space_open(c, pool_slot(c, p), r->ns, &root, &text) != TERN_OK)
        return refuse(ret, TERN_BUSY, text);
    share_take(c, SHARE_SESSIONS, e->tenant);
    slot = session_slot_take(c);
    s = session_at(c, slot);
    gen = gen_next(s->gen);
    check(s->state == SESSION_EMPTY);
    memset(s, 0, sizeof(*s)); /* whatever a request keeps with a session begins as 0 */
    s->gen = gen;
    s->engine = engine_slot(c, e);
    s->pool = pool_slot(c, p);
    s->space = node_at(c, root)->space;
    s->node = root;
    s->pull = s->load_pin = s->target = NONE;
    s->held = REF_DEVICE;
    s->in_away = (struct list_links){.next = NONE, .prev = NONE};
    s->last_use_ns = s->ref_since_ns = c->now_ns;
    s->tokens.align = p->align;
    s->tokens.tenant = e->tenant;
    session_state_move(&s->state, SESSION_OPEN);
    tokens_init(&s->tokens, 0);
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        s->owned[g] = LIST_EMPTY;
    node_pin(c, root,
             REF_DEVICE); /* an empty table pins its root, which pins nothing but the namespace */
    session_link(c, e, s);
    ret->session_open.session = (struct session_id){.slot = slot, .gen = s->gen};
    return TERN_OK;
}

/* --- giving back --- */

void session_close(struct core *c, struct session *s, uint64_t step, bool engine_gone)
{
    struct engine *e = engine_at(c, s->engine);
    struct list pages;

    if (s->pull != NONE)
        pull_orphan(c, pull_at(c, s->pull));
    s->pull = NONE;
    pages = LIST_EMPTY;
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        page_list_append(c, &pages, &s->owned[g]);
    session_let_go(c, s, step, &pages, engine_gone);
    tokens_truncate(c, &s->tokens, s->tokens.first);
    session_list_remove(c, &e->sessions, session_slot(c, s));
    tenant_at(c, e->tenant)->sessions--;
    session_pool(c, s)->sessions--;
    session_state_move(&s->state, SESSION_EMPTY);
    s->node = NONE;
    share_put(c, SHARE_SESSIONS, e->tenant);
    session_slot_put(c, session_slot(c, s));
    touch(c);
}
