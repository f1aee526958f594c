/* See actions.h. struct actions is never cleared as a whole: most steps use little of it. */
#include "core/arena/actions.h"

#include <string.h>

static uint32_t refs_of(const struct core_limits *limits)
{
    return limits->table_pages ? limits->table_pages : TABLE_PAGES;
}

size_t actions_bytes(const struct core_limits *limits)
{
    return sizeof(struct actions) + refs_of(limits) * sizeof(struct page_ref);
}

void actions_init(struct actions *out, const struct core_limits *limits)
{
    out->n = 0;
    out->refs_max = refs_of(limits);
}

uint32_t actions_room(const struct actions *out)
{
    return ACTIONS_MAX - out->n;
}

struct action *action_add(struct actions *out, enum action_kind kind)
{
    struct action *a;

    check(out->n < ACTIONS_MAX);
    a = &out->v[out->n++];
    memset(a, 0, sizeof *a);
    a->kind = kind;
    return a;
}

struct peer_msg *peer_msg_add(struct actions *out, uint32_t link, enum peer_msg_kind kind)
{
    struct action *a = action_add(out, ACT_PEER_SEND);

    a->peer.link = link;
    a->peer.msg.kind = kind;
    return &a->peer.msg;
}

bool refs_fit(const struct actions *out, struct runs_wanted wanted)
{
    return out->nruns + wanted.runs <= REPLY_RUNS_MAX && wanted.refs <= out->refs_max &&
           out->nrefs <= out->refs_max - wanted.refs;
}

struct page_ref *run_add(struct actions *out, struct table_run wanted)
{
    struct page_ref *refs = out->refs + out->nrefs;

    check(refs_fit(out, (struct runs_wanted){.runs = 1, .refs = wanted.n}));
    wanted.refs = refs;
    out->runs[out->nruns++] = wanted;
    out->nrefs += wanted.n;
    return refs;
}

struct reply *reply_late(struct actions *out, struct reply_to to, enum op op, enum tern_err err,
                         const char *text)
{
    struct reply *r = &action_add(out, ACT_REPLY)->reply;

    r->op = op;
    r->err = err;
    r->conn = to.conn;
    r->request_id = to.request_id;
    r->trace_id = to.trace_id;
    r->text = text;
    return r;
}
