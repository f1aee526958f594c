/* The walk over the fields of each event kind. See tape_codec.h. */
#include "shell/tape/tape_codec.h"

#include <string.h>

#include "base/check.h"

void codec_u32(struct codec *c, uint32_t *v)
{
    if (c->reading) {
        c->bad = c->bad || c->at >= c->n;
        *v = c->bad ? 0 : c->words[c->at++];
        return;
    }
    c->words[c->at++] = *v;
    if (c->at == c->n)
        c->at = 0;
}

void codec_u64(struct codec *c, uint64_t *v)
{
    uint32_t low = (uint32_t)*v, high = (uint32_t)(*v >> 32);

    codec_u32(c, &low);
    codec_u32(c, &high);
    *v = (uint64_t)high << 32 | low;
}

void codec_put_words(struct codec *c, const uint32_t *words, size_t n)
{
    size_t first = n < c->n - c->at ? n : c->n - c->at;

    if (n == 0)
        return;
    memcpy(c->words + c->at, words, first * sizeof *words);
    memcpy(c->words, words + first, (n - first) * sizeof *words);
    c->at = (c->at + n) % c->n;
}

/* A value that has to be in [first, end): enums and counts. */
static uint32_t within(struct codec *c, uint32_t v, uint32_t first, uint32_t end)
{
    codec_u32(c, &v);
    if (c->reading && (v < first || v >= end)) {
        c->bad = true;
        v = first;
    }
    return v;
}

static bool truth(struct codec *c, bool v)
{
    return within(c, v, 0, 2) != 0;
}

/* A handle of any kind. */
#define handle(c, v) (codec_u32(c, &(v)->slot), codec_u32(c, &(v)->gen))

static void namespace(struct codec *c, struct namespace_id *v)
{
    codec_u64(c, &v->hi);
    codec_u64(c, &v->lo);
}

static void tokens(struct codec *c, struct req_tokens *v)
{
    v->n = within(c, v->n, 0, SESSION_TOKENS_MAX + 1);
    codec_u32(c, &v->base);
    v->nkeys = within(c, v->nkeys, 0, EXTRA_KEYS_MAX + 1);
}

static void join(struct codec *c, struct req_join *v)
{
    uint32_t words[ENGINE_NAME_MAX / sizeof(uint32_t)];

    memcpy(words, v->name, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        codec_u32(c, &words[i]);
    memcpy(v->name, words, sizeof words);
    if (memchr(v->name, '\0', sizeof v->name) == NULL) {
        c->bad = true;
        v->name[sizeof v->name - 1] = '\0';
    }
    v->role = (enum role)within(c, v->role, 0, ROLE_BOTH + 1);
    codec_u32(c, &v->rank);
    codec_u32(c, &v->world);
}

static void pool_open(struct codec *c, struct req_pool_open *v)
{
    v->ngroups = within(c, v->ngroups, 0, GROUPS_MAX + 1);
    for (uint32_t i = 0; i < v->ngroups; i++) {
        struct group_layout *g = &v->group[i];

        g->family = (enum family)within(c, g->family, 0, FAMILY_RECURRENT + 1);
        codec_u32(c, &g->page_tokens);
        codec_u32(c, &g->window);
        codec_u32(c, &g->reserve);
        codec_u32(c, &g->units);
        codec_u32(c, &g->cap_pages);
        codec_u64(c, &g->page_bytes);
    }
    v->shard = (enum shard_axis)within(c, v->shard, 0, SHARD_TOKENS + 1);
    v->supersede = (enum supersede)within(c, v->supersede, 0, SUPERSEDE_OFF + 1);
    codec_u32(c, &v->axes_hash);
    codec_u64(c, &v->bytes);
    codec_u64(c, &v->host_bytes);
}

static void operation(struct codec *c, struct step_op *v)
{
    v->kind = (enum step_op_kind)within(c, v->kind, STEP_EXTEND, STEP_RELEASE + 1);
    v->barrier = truth(c, v->barrier);
    handle(c, &v->session);
    codec_u64(c, &v->step);
    codec_u32(c, &v->length);
    codec_u32(c, &v->written);
    tokens(c, &v->tokens);
}

static void step(struct codec *c, struct req_step *v, struct codec_room *room)
{
    v->n = within(c, v->n, 0, STEP_OPS_MAX + 1);
    for (uint32_t i = 0; i < v->n; i++) {
        struct step_op op = c->reading ? (struct step_op){.kind = STEP_EXTEND} : v->ops[i];

        operation(c, &op);
        if (c->reading)
            room->ops[i] = op;
    }
    if (c->reading)
        v->ops = room->ops;
}

static void request(struct codec *c, struct request *v, struct codec_room *room)
{
    v->op = (enum op)within(c, v->op, 0, OP_COUNT);
    codec_u32(c, &v->conn);
    codec_u64(c, &v->request_id);
    codec_u64(c, &v->trace_id);
    switch (v->op) {
    case OP_NONE:
    case OP_ENGINE_LEAVE:
    case OP_COUNT: break;
    case OP_ENGINE_JOIN: join(c, &v->join); break;
    case OP_POOL_OPEN: pool_open(c, &v->pool_open); break;
    case OP_POOL_MAP: handle(c, &v->pool_map.pool); break;
    case OP_POOL_CLOSE: handle(c, &v->pool_close.pool); break;
    case OP_SESSION_OPEN:
        handle(c, &v->session_open.pool);
        namespace(c, &v->session_open.ns);
        break;
    case OP_PEEK:
        handle(c, &v->peek.pool);
        namespace(c, &v->peek.ns);
        tokens(c, &v->peek.tokens);
        break;
    case OP_MATCH:
        handle(c, &v->match.session);
        tokens(c, &v->match.tokens);
        codec_u64(c, &v->match.step);
        break;
    case OP_STEP: step(c, &v->step, room); break;
    case OP_FETCH:
        handle(c, &v->fetch.session);
        codec_u32(c, &v->fetch.peer);
        codec_u32(c, &v->fetch.depth);
        break;
    case OP_FETCH_CANCEL: handle(c, &v->fetch_cancel.session); break;
    case OP_EVICT:
        handle(c, &v->evict.pool);
        codec_u32(c, &v->evict.nodes);
        break;
    case OP_DRAIN: v->drain.on = truth(c, v->drain.on); break;
    case OP_RETRACT:
        handle(c, &v->retract.session);
        v->retract.mode = (enum retract_mode)within(c, v->retract.mode, 0, RETRACT_DROP + 1);
        codec_u64(c, &v->retract.step);
        break;
    case OP_RECOVER: handle(c, &v->recover.session); break;
    case OP_NAMESPACE_RESET:
        namespace
        (c, &v->namespace_reset.ns);
        break;
    case OP_PIN:
        handle(c, &v->pin.node);
        v->pin.on = truth(c, v->pin.on);
        break;
    }
}

/* The refs stand in the body, where a reader uses them in place. */
static void runs(struct codec *c, struct peer_msg *v, struct codec_room *room)
{
    v->nruns = within(c, v->nruns, 0, GROUPS_MAX + 1);
    for (uint32_t i = 0; i < v->nruns; i++) {
        struct table_run run = c->reading ? (struct table_run){.n = 0} : v->runs[i];
        size_t n;

        codec_u32(c, &run.group);
        codec_u32(c, &run.first);
        codec_u32(c, &run.n);
        n = (size_t)run.n * 2;
        if (!c->reading) {
            codec_put_words(c, (const uint32_t *)(const void *)run.refs, n);
            continue;
        }
        c->bad = c->bad || n > c->n - c->at;
        run.n = c->bad ? 0 : run.n;
        run.refs = (const struct page_ref *)(const void *)(c->words + c->at);
        c->at += c->bad ? 0 : n;
        room->runs[i] = run;
    }
    if (c->reading)
        v->runs = room->runs;
}

static void peer_msg(struct codec *c, struct peer_msg *v, struct codec_room *room)
{
    v->kind = (enum peer_msg_kind)within(c, v->kind, PEER_PULL_OPEN, PEER_MSG_COUNT);
    handle(c, &v->pull);
    handle(c, &v->serve);
    codec_u64(c, &v->trace_id);
    v->err = (enum tern_err)within(c, v->err, 0, TERN_ERR_COUNT);
    codec_u32(c, &v->retry_ms);
    codec_u32(c, &v->tenant);
    namespace(c, &v->ns);
    codec_u64(c, &v->layout_hash);
    codec_u32(c, &v->history);
    codec_u32(c, &v->from);
    codec_u32(c, &v->to);
    if (c->reading && v->from > v->to)
        c->bad = true;
    if (v->kind == PEER_PULL_OPEN) {
        c->bad = c->bad || (c->reading && v->to > SESSION_TOKENS_MAX);
        v->nkeys = within(c, v->nkeys, 0, EXTRA_KEYS_MAX + 1);
    }
    runs(c, v, room);
}

static void small_event(struct codec *c, struct event *e)
{
    switch (e->kind) {
    case EV_STEP_DONE:
        handle(c, &e->step_done.engine);
        e->step_done.rank = within(c, e->step_done.rank, 0, RANKS_MAX);
        codec_u64(c, &e->step_done.step);
        break;
    case EV_SEALED: handle(c, &e->sealed.job); break;
    case EV_ZEROED: handle(c, &e->zeroed.pool); break;
    case EV_COPIED:
        handle(c, &e->copied.job);
        e->copied.err = (enum tern_err)within(c, e->copied.err, TERN_OK, TERN_ERR_COUNT);
        break;
    case EV_LINK_UP:
    case EV_LINK_DOWN:
        codec_u32(c, &e->link.link);
        codec_u64(c, &e->link.incarnation);
        break;
    case EV_PULLED:
        handle(c, &e->pulled.pull);
        e->pulled.batch = within(c, e->pulled.batch, 0, PULL_BATCHES_MAX);
        for (size_t i = 0; i < sizeof e->pulled.ok / sizeof *e->pulled.ok; i++)
            codec_u64(c, &e->pulled.ok[i]);
        break;
    case EV_PULL_BROKEN:
        handle(c, &e->broken.pull);
        e->broken.err = (enum tern_err)within(c, e->broken.err, TERN_OK + 1, TERN_ERR_COUNT);
        break;
    case EV_PULL_QUIET: handle(c, &e->pull_quiet.pull); break;
    case EV_SERVE_QUIET: handle(c, &e->serve_quiet.serve); break;
    default: break;
    }
}

void codec_event(struct codec *c, struct event *e, struct codec_room *room)
{
    e->kind = (enum event_kind)within(c, e->kind, EV_TIMER, EV_COUNT);
    codec_u64(c, &e->now_ns);
    switch (e->kind) {
    case EV_CONN_OPENED:
    case EV_CONN_CLOSED:
        codec_u32(c, &e->conn.conn);
        codec_u32(c, &e->conn.tenant);
        codec_u32(c, &e->conn.proc);
        e->conn.admin = truth(c, e->conn.admin);
        break;
    case EV_PROC_GONE: codec_u32(c, &e->proc.proc); break;
    case EV_REQUEST: request(c, &e->request, room); break;
    case EV_PEER_MSG:
        codec_u32(c, &e->peer.link);
        peer_msg(c, &e->peer.msg, room);
        break;
    default: small_event(c, e); break;
    }
}

/* ---- token lists ---- */

uint32_t codec_lists(const struct event *e)
{
    if (e->kind == EV_PEER_MSG)
        return e->peer.msg.kind == PEER_PULL_OPEN;
    if (e->kind != EV_REQUEST)
        return 0;
    if (e->request.op == OP_STEP)
        return e->request.step.n;
    return e->request.op == OP_MATCH || e->request.op == OP_PEEK;
}

struct req_tokens codec_list(const struct event *e, uint32_t i)
{
    if (e->kind == EV_PEER_MSG)
        return (struct req_tokens){.v = e->peer.msg.tokens,
                                   .n = e->peer.msg.to,
                                   .keys = e->peer.msg.keys,
                                   .nkeys = e->peer.msg.nkeys};
    if (e->request.op == OP_STEP)
        return e->request.step.ops[i].tokens;
    return e->request.op == OP_MATCH ? e->request.match.tokens : e->request.peek.tokens;
}

static void place(struct req_tokens *list, const uint32_t *v, const struct extra_key *keys)
{
    list->v = v;
    list->keys = keys;
}

void codec_list_set(struct event *e, uint32_t i, const uint32_t *v, const struct extra_key *keys)
{
    if (e->kind == EV_PEER_MSG) {
        e->peer.msg.tokens = v;
        e->peer.msg.keys = keys;
    } else if (e->request.op == OP_STEP) {
        place((struct req_tokens *)(uintptr_t)&e->request.step.ops[i].tokens, v,
              keys); /* in codec_room */
    } else {
        place(e->request.op == OP_MATCH ? &e->request.match.tokens : &e->request.peek.tokens, v,
              keys);
    }
}

size_t codec_body_max(const struct event *e)
{
    size_t words = EVENT_WORDS_MAX;

    if (e->kind == EV_REQUEST && e->request.op == OP_STEP)
        words += (size_t)e->request.step.n * OP_WORDS_MAX;
    if (e->kind == EV_PEER_MSG)
        for (uint32_t i = 0; i < e->peer.msg.nruns; i++)
            words += RUN_WORDS + (size_t)e->peer.msg.runs[i].n * 2;
    return words;
}
