/* See operator.h. Ids have the form that lists show: at most 16 hexadecimal digits. */
#include "shell/admin/operator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/admin/admin_rows.h"

static bool id_of(const char *text, uint64_t *ret)
{
    size_t n = text ? strlen(text) : 0;

    if (n == 0 || n > 16 || strspn(text, "0123456789abcdefABCDEF") != n)
        return false;
    *ret = strtoull(text, NULL, 16);
    return true;
}

static enum tern_err evict(struct daemon *d, struct asked *a, struct request *ret)
{
    uint32_t pool = NONE, nodes = 0; /* 0: all that can be evicted */
    const struct admin_arg takes[] = {{.key = "pool", .number = &pool, .max = NONE - 1},
                                      {.key = "nodes", .number = &nodes, .max = UINT32_MAX}};
    struct pool_view view;

    TRY(ASKED_ARGS(a, takes));
    ret->evict.pool = (struct pool_id){.slot = NONE};
    ret->evict.nodes = nodes;
    if (pool == NONE)
        return TERN_OK;
    if (pool >= d->limits.pools || !core_pool_view(d->core, pool, &view))
        return admin_refuse(a->why, TERN_GONE, "no pool is open in that slot");
    if (view.tier == TIER_HOST)
        return admin_refuse(
            a->why, TERN_INVALID,
            "pool %u is the host tier of pool %u: use evict --pool %u, which evicts on both tiers",
            pool, view.other, view.other);
    ret->evict.pool = view.id;
    return TERN_OK;
}

static enum tern_err pin(struct daemon *d, struct asked *a, struct request *ret)
{
    const char *node = NULL;
    uint32_t on = 1;
    const struct admin_arg takes[] = {{.key = "node", .text = &node},
                                      {.key = "on", .number = &on, .max = 1}};
    uint64_t id;

    (void)d;
    TRY(ASKED_ARGS(a, takes));
    if (!id_of(node, &id))
        return admin_refuse(a->why, TERN_INVALID,
                            "pin node=ID [on=0|1]; ternctl tree shows the ids");
    ret->pin.node = node_id_unpack(id);
    ret->pin.on = on == 1;
    return TERN_OK;
}

/* The host tier of a pool closes with that pool. */
static bool closes_with(const struct daemon *d, struct pool_id id, uint32_t *ret_pool)
{
    struct pool_view view;

    if (id.slot >= d->limits.pools || !core_pool_view(d->core, id.slot, &view) ||
        view.id.gen != id.gen || view.tier != TIER_HOST)
        return false;
    *ret_pool = view.other;
    return true;
}

/* Requests with one id as the only argument: the end of a session, an engine or a pool. */
static enum tern_err end(struct daemon *d, struct asked *a, struct request *ret)
{
    const char *what = ret->op == OP_SESSION_END   ? "session"
                       : ret->op == OP_ENGINE_KICK ? "engine"
                                                   : "pool";
    const char *text = NULL;
    const struct admin_arg takes[] = {{.key = what, .text = &text}};
    uint32_t pool;
    uint64_t id;

    TRY(ASKED_ARGS(a, takes));
    if (!id_of(text, &id))
        return admin_refuse(a->why, TERN_INVALID, "%s %s=ID; ternctl %ss shows the ids",
                            a->m->command, what, what);
    if (ret->op == OP_SESSION_END)
        ret->session_end.session = session_id_unpack(id);
    else if (ret->op == OP_ENGINE_KICK)
        ret->engine_kick.engine = engine_id_unpack(id);
    else
        ret->pool_end.pool = pool_id_unpack(id);
    if (ret->op != OP_POOL_END || !closes_with(d, ret->pool_end.pool, &pool))
        return TERN_OK;
    return admin_refuse(a->why, TERN_INVALID,
                        "pool %u is the host tier of pool %u: close that pool, and both close",
                        ret->pool_end.pool.slot, pool);
}

static const struct act {
    const char *command;
    enum op op;
    enum tern_err (*make)(struct daemon *d, struct asked *a, struct request *ret);
} acts[] = {
    {"evict", OP_EVICT, evict},
    {"pin", OP_PIN, pin},
    {"session-close", OP_SESSION_END, end},
    {"engine-kick", OP_ENGINE_KICK, end},
    {"pool-close", OP_POOL_END, end},
};

#define ACTS (sizeof acts / sizeof *acts)

static const struct act *act_of(const char *command)
{
    for (size_t i = 0; i < ACTS; i++)
        if (strcmp(command, acts[i].command) == 0)
            return &acts[i];
    return NULL;
}

bool core_act_is(const char *command)
{
    return act_of(command) != NULL;
}

const char *core_act_name(enum op op)
{
    for (size_t i = 0; i < ACTS; i++)
        if (acts[i].op == op)
            return acts[i].command;
    return NULL;
}

enum tern_err core_act(struct daemon *d, struct asked *a)
{
    const struct act *act = act_of(a->m->command);
    struct event ev = {.kind = EV_REQUEST};

    check(act); /* core_act_is */
    ev.request.op = act->op;
    TRY(act->make(d, a, &ev.request));
    ev.request.conn = a->c->slot;
    ev.request.request_id = a->h->request_id;
    daemon_event(d, &ev);
    return TERN_OK;
}

void core_act_result(const struct reply *r, char ret[CORE_ACT_RESULT_BYTES])
{
    const size_t cap = CORE_ACT_RESULT_BYTES;

    if (r->err != TERN_OK)
        snprintf(ret, cap, "%s", r->text ? r->text : "");
    else if (r->op == OP_PIN)
        snprintf(ret, cap, "%u pins", r->pin.refs);
    else if (r->op == OP_SESSION_END)
        snprintf(ret, cap, "pages are free after step %llu",
                 (unsigned long long)r->session_end.until_step);
    else if (r->op == OP_ENGINE_KICK)
        snprintf(ret, cap, "%u processes alive", r->engine_kick.alive);
    else if (r->op == OP_POOL_END)
        snprintf(ret, cap, "%u nodes will be evicted", r->pool_end.nodes);
    else
        snprintf(ret, cap, "%u nodes, %u pages, %u host pages", r->evict.nodes, r->evict.pages,
                 r->evict.host_pages);
}

static void kicked(const struct daemon *d, const struct reply *r, struct text_out *out)
{
    struct engine_view e;

    TEXT(out, NUM(r->engine_kick, alive));
    if (core_engine_view(d->core, r->engine_kick.engine.slot, &e))
        admin_engine_pids(d, &e, out);
    else
        TEXT(out, OPEN_ARRAY("pids"), CLOSE_ARRAY);
}

void core_act_answer(const struct daemon *d, const struct reply *r, struct text_out *out)
{
    switch (r->op) {
    case OP_PIN: TEXT(out, NUM(r->pin, refs)); break;
    case OP_SESSION_END:
        TEXT(out, text_or_null(r->session_end.until_step,
                               text_u63("until_step", r->session_end.until_step)));
        break;
    case OP_ENGINE_KICK: kicked(d, r, out); break;
    case OP_POOL_END: TEXT(out, NUM(r->pool_end, nodes)); break;
    default:
        TEXT(out, NUM(r->evict, nodes));
        TEXT(out, NUM(r->evict, pages), NUM(r->evict, host_pages));
    }
}
