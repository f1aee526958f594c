/* See rig_event.h. */
#include "unit/rig/rig_event.h"

#include <stdio.h>
#include <string.h>

#include "proto/messages.h"
#include "shell/tape/tape_codec.h"
#include "testing/test.h"

#define PROCS 16

const struct core_limits event_limits = {
    .tenants = 3,
    .conns = 16,
    .engines = 4,
    .pools = 4,
    .sessions = 16,
    .nodes = 64,
    .namespaces = 4,
    .token_blocks = 64,
    .extra_keys = 16,
    .pages = 64,
    .slabs = 8,
    .retires = 16,
    .turn_records = 4,
    .record_jobs = 4,
    .resets = 64,
    .asks = 2,
    .links = 4,
    .peers = 2,
    .pulls = 4,
    .serves = 4,
    .seal_jobs = 4,
    .copy_jobs = 4,
    .events = 64,
    .sums_per_page = 1,
    .busy_retry_ms = 5,
    .peer_bytes_in_flight = 1 << 20,
    .tenant_bytes_in_flight = 1 << 20,
    .transfer_deadline_ns = 1000000000,
    .ticket_deadline_ns = 1000000000,
};

/* ---- filling ---- */

static uint64_t some_id(struct prng *p)
{
    uint64_t slot = prng_below(p, UINT32_MAX);

    return (uint64_t)prng_below(p, UINT32_MAX) << 32 | slot;
}

static struct req_tokens some_tokens(struct prng *p, struct lent *lent, uint32_t at)
{
    struct req_tokens t = {
        .v = lent->tokens[at], .keys = lent->keys[at], .base = prng_below(p, 1000)};

    t.n = prng_below(p, TOKENS_EACH + 1);
    t.nkeys = prng_below(p, KEYS_EACH + 1);
    for (uint32_t i = 0; i < t.n; i++)
        lent->tokens[at][i] = (uint32_t)prng_u64(p);
    for (uint32_t i = 0; i < t.nkeys; i++)
        lent->keys[at][i] =
            (struct extra_key){.position = i * 7, .hi = prng_u64(p), .lo = prng_u64(p)};
    return t;
}

static void fill_op_runs(struct prng *p, struct step_op *op, struct table_run *runs,
                         struct page_ref (*refs)[OP_REFS])
{
    op->nruns = prng_below(p, RUNS_EACH + 1);
    op->runs = runs;
    for (uint32_t i = 0; i < op->nruns; i++) {
        runs[i] = (struct table_run){.group = (uint32_t)prng_u64(p),
                                     .first = (uint32_t)prng_u64(p),
                                     .n = prng_below(p, OP_REFS + 1),
                                     .refs = refs[i]};
        for (uint32_t k = 0; k < runs[i].n; k++)
            refs[i][k] = (struct page_ref){(uint32_t)prng_u64(p), (uint32_t)prng_u64(p)};
    }
}

static void fill_step(struct prng *p, struct req_step *step, struct lent *lent)
{
    step->ops = lent->ops;
    step->n = prng_below(p, OPS_EACH + 1);
    for (uint32_t i = 0; i < step->n; i++) {
        memset(&lent->ops[i], 0, sizeof lent->ops[i]);
        lent->ops[i].kind =
            (enum step_op_kind)(STEP_EXTEND + prng_below(p, STEP_KINDS - STEP_EXTEND));
        lent->ops[i].barrier = prng_below(p, 2) != 0;
        lent->ops[i].session = session_id_unpack(some_id(p));
        lent->ops[i].step = prng_u64(p);
        lent->ops[i].length = (uint32_t)prng_u64(p);
        lent->ops[i].written = (uint32_t)prng_u64(p);
        lent->ops[i].tokens = some_tokens(p, lent, i);
        lent->ops[i].pool = pool_id_unpack(some_id(p));
        fill_op_runs(p, &lent->ops[i], lent->op_runs[i], lent->op_refs[i]);
    }
}

static void fill_groups(struct prng *p, struct req_pool_open *r)
{
    r->ngroups = 1 + prng_below(p, GROUPS_MAX);
    for (uint32_t i = 0; i < r->ngroups; i++)
        r->group[i] = (struct group_layout){.family = (enum family)prng_below(p, 3),
                                            .page_tokens = (uint32_t)prng_u64(p),
                                            .window = (uint32_t)prng_u64(p),
                                            .reserve = (uint32_t)prng_u64(p),
                                            .units = (uint32_t)prng_u64(p),
                                            .cap_pages = (uint32_t)prng_u64(p),
                                            .page_bytes = prng_u64(p)};
}

/* NONE, the host tier, the disk, any peer, or a configured one. */
static uint32_t some_peer(struct prng *p)
{
    const uint32_t odd[] = {NONE, PEER_HOST, PEER_DISK, PEER_ANY};
    uint32_t which = prng_below(p, 8);

    return which < 4 ? odd[which] : prng_below(p, event_limits.peers);
}

static void fill_blobs(struct prng *p, struct req_blobs *b)
{
    memset(b, 0, sizeof *b);
    b->n = prng_below(p, RECORD_BLOBS_MAX + 1);
    for (uint32_t i = 0; i < b->n; i++) {
        memset(b->v[i].name, 'a' + (int)i, 1 + prng_below(p, BLOB_NAME_MAX - 1));
        b->v[i].bytes = prng_u64(p);
    }
}

/* How each kind of field of messages.h is filled; `of` is the struct of its request. */
#define FILL_SESSION(of, member, limit) (of).member = session_id_unpack(some_id(p));
#define FILL_POOL(of, member, limit)    (of).member = pool_id_unpack(some_id(p));
#define FILL_NODE(of, member, limit)    (of).member = node_id_unpack(some_id(p));
#define FILL_ENGINE(of, member, limit)  (of).member = engine_id_unpack(some_id(p));
#define FILL_NAMESPACE(of, member, limit)                                                          \
    (of).member = (struct namespace_id){prng_u64(p), prng_u64(p)};
#define FILL_TOKENS(of, member, limit) (of).member = some_tokens(p, lent, lists++);
#define FILL_U32(of, member, limit)    (of).member = (uint32_t)prng_u64(p);
#define FILL_U64(of, member, limit)    (of).member = prng_u64(p);
#define FILL_CHOICE(of, member, limit)                                                             \
    (of).member = (__typeof__((of).member))prng_below(p, (limit) + 1);
#define FILL_TRUTH(of, member, limit) (of).member = prng_below(p, 2) != 0;
#define FILL_NAME(of, member, limit)                                                               \
    snprintf((of).member, sizeof(of).member, "engine-%u", prng_below(p, 1000000));
#define FILL_PEER(of, member, limit) (of).member = some_peer(p);
#define FILL_DEVICE(of, member, limit)                                                             \
    (of).member.named = prng_below(p, 2) != 0, (of).member.region = (uint32_t)prng_u64(p);
#define FILL_GROUPS(of, member, limit) fill_groups(p, &(of));
#define FILL_HASH(of, member, limit)   (of).member = (uint32_t)prng_u64(p);
#define FILL_HASH64(of, member, limit) (of).member = prng_u64(p);
#define FILL_OPS(of, member, limit)    fill_step(p, &(of), lent);
#define FILL_BLOBS(of, member, limit)  fill_blobs(p, &(of).member);
#define FILL_TICKET(of, member, limit)                                                             \
    (of).member = (struct ticket){.id = session_id_unpack(some_id(p)),                             \
                                  .key = {prng_u64(p), prng_u64(p)},                               \
                                  .incarnation = prng_u64(p),                                      \
                                  .length = (uint32_t)prng_u64(p)};
#define FILL_BLOB(of, member, limit)                                                               \
    (of).member = some_tokens(p, lent, lists++);                                                   \
    (of).member##_bytes = (uint32_t)prng_u64(p);
#define FILL_KEY(of, member, limit) (of).member[0] = prng_u64(p), (of).member[1] = prng_u64(p);

static void fill_checked(struct prng *p, struct record_checked *v)
{
    v->id = record_id_unpack(some_id(p));
    v->err = prng_below(p, 2) ? TERN_OK : TERN_MALFORMED;
    v->part = prng_below(p, 3);
    v->index = (uint32_t)prng_u64(p);
    v->nhashes = prng_below(p, BLOBS_KEPT_MAX + 2);
    for (uint32_t i = 0; i < v->nhashes; i++)
        v->hash[i] = (struct list_hash){prng_u64(p), prng_u64(p)};
}

static void fill_request(struct prng *p, struct request *r, enum op op, struct lent *lent)
{
    uint32_t lists = 0;

    r->op = op;
    r->conn = prng_below(p, event_limits.conns);
    r->request_id = prng_u64(p);
    r->trace_id = prng_u64(p);
    switch (op) {
#define F(of, member, KIND, limit) FILL_##KIND(r->of, member, limit)
        REQUEST_TABLE(REQUEST_CASE)
        COMMAND_TABLE(COMMAND_CASE)
#undef F
    default: fail_msg("operation %u is in no table of messages.h", op);
    }
    assert_true(lists <= OPS_EACH);
}

static void fill_peer(struct prng *p, struct peer_msg *m, struct lent *lent)
{
    m->kind = (enum peer_msg_kind)(1 + prng_below(p, PEER_MSG_COUNT - 1));
    m->pull = pull_id_unpack(some_id(p));
    m->serve = serve_id_unpack(some_id(p));
    m->trace_id = prng_u64(p);
    m->err = (enum tern_err)prng_below(p, TERN_ERR_COUNT);
    m->retry_ms = (uint32_t)prng_u64(p);
    m->tenant = prng_below(p, 4) == 0 ? NONE : prng_below(p, event_limits.tenants);
    m->ns = (struct namespace_id){prng_u64(p), prng_u64(p)};
    m->layout_hash = prng_u64(p);
    m->fields_hash = prng_u64(p);
    m->history = (uint32_t)prng_u64(p);
    m->each = (uint32_t)prng_u64(p);
    m->to = 100;
    m->from = prng_below(p, 100);
    if (m->kind == PEER_PULL_OPEN || m->kind == PEER_PULL_TOKENS) {
        struct req_tokens t = some_tokens(p, lent, 0);

        m->at = m->kind == PEER_PULL_TOKENS ? 1 + prng_below(p, 100) : 0;
        m->to = m->at + t.n;
        m->until = prng_below(p, 2) ? m->to : 0;
        m->from = prng_below(p, m->to + 1);
        m->tokens = t.v;
        m->keys = t.keys;
        m->nkeys = t.nkeys;
    }
    m->nruns = prng_below(p, 3);
    m->runs = lent->runs;
    for (uint32_t i = 0; i < m->nruns; i++) {
        lent->runs[i] = (struct table_run){.group = (uint32_t)prng_u64(p),
                                           .first = (uint32_t)prng_u64(p),
                                           .n = prng_below(p, REFS_EACH + 1),
                                           .refs = lent->refs[i]};
        for (uint32_t j = 0; j < lent->runs[i].n; j++)
            lent->refs[i][j] = (struct page_ref){(uint32_t)prng_u64(p), (uint32_t)prng_u64(p)};
    }
}

static void fill_found(struct prng *p, struct event *e, struct lent *lent)
{
    struct req_tokens t = some_tokens(p, lent, 0);

    e->found.extent = (struct disk_extent){
        .part = prng_below(p, DISK_PARTS),
        .tenant = prng_below(p, event_limits.tenants),
        .ns = {prng_u64(p), prng_u64(p)},
        .layout_hash = prng_u64(p),
        .chain = prng_u64(p),
        .parent_chain = prng_u64(p),
        .depth = (uint32_t)prng_u64(p),
        .align = (uint32_t)prng_u64(p),
        .tokens = t.n,
        .nkeys = t.nkeys,
        .npages = (uint32_t)prng_u64(p),
        .nsums = (uint32_t)prng_u64(p),
        .groups = (uint32_t)prng_u64(p),
        .reach = (uint32_t)prng_u64(p),
        .page_bytes = prng_u64(p),
        .reason = prng_below(p, DISK_REASONS),
        .hits = (uint32_t)prng_u64(p),
        .served_ns = prng_u64(p),
        .place = {prng_u64(p), prng_u64(p)},
        .above = {prng_u64(p), prng_u64(p)},
    };
    e->found.tokens = t.v;
    e->found.keys = t.keys;
}

static void fill_disk(struct prng *p, struct event *e, struct lent *lent)
{
    switch (e->kind) {
    case EV_DISK_FOUND: fill_found(p, e, lent); break;
    case EV_DISK_READY:
        e->ready.next_file = prng_u64(p);
        e->ready.served_ns = prng_u64(p);
        break;
    case EV_DISK_WRITTEN:
        e->written.store = store_id_unpack(some_id(p));
        e->written.err = (enum tern_err)prng_below(p, TERN_ERR_COUNT);
        break;
    case EV_DISK_DROPPED: e->dropped.file = prng_u64(p); break;
    case EV_SHUTDOWN: e->shutdown.deadline_ns = prng_u64(p); break;
    default: break;
    }
}

void event_fill(struct prng *p, struct event *e, enum event_kind kind, enum op op,
                struct lent *lent)
{
    memset(e, 0, sizeof *e);
    e->kind = kind;
    switch (kind) {
    case EV_CONN_OPENED:
    case EV_CONN_CLOSED:
        e->conn.conn = prng_below(p, event_limits.conns);
        e->conn.tenant = prng_below(p, event_limits.tenants);
        e->conn.proc = prng_below(p, 8) == 0 ? NONE : prng_below(p, PROCS);
        e->conn.admin = prng_below(p, 2) != 0;
        break;
    case EV_PROC_GONE: e->proc.proc = prng_below(p, PROCS); break;
    case EV_STEP_DONE:
        e->step_done.engine = engine_id_unpack(some_id(p));
        e->step_done.rank = prng_below(p, RANKS_MAX);
        e->step_done.step = prng_u64(p);
        break;
    case EV_REQUEST: fill_request(p, &e->request, op, lent); break;
    case EV_SEALED:
        e->sealed.n = 1 + prng_below(p, SEALED_JOBS_MAX);
        for (uint32_t i = 0; i < e->sealed.n; i++)
            e->sealed.job[i] = seal_id_unpack(some_id(p));
        break;
    case EV_ZEROED: e->zeroed.pool = pool_id_unpack(some_id(p)); break;
    case EV_COPIED:
        e->copied.job = copy_id_unpack(some_id(p));
        e->copied.err = (enum tern_err)prng_below(p, TERN_ERR_COUNT);
        break;
    case EV_LINK_UP:
    case EV_LINK_DOWN:
        e->link.link = prng_below(p, event_limits.links);
        e->link.incarnation = prng_u64(p);
        e->link.tenants = prng_u64(p);
        break;
    case EV_PEER_LEFT:
    case EV_PEER_JOINED: e->member.peer = prng_below(p, event_limits.peers); break;
    case EV_PEER_MSG:
        e->peer.link = prng_below(p, event_limits.links);
        fill_peer(p, &e->peer.msg, lent);
        break;
    case EV_PULLED:
        e->pulled.pull = pull_id_unpack(some_id(p));
        e->pulled.batch = prng_below(p, PULL_BATCHES_MAX);
        for (size_t i = 0; i < PULL_BATCH_PAGES / 64; i++)
            e->pulled.ok[i] = prng_u64(p);
        break;
    case EV_PULL_BROKEN:
        e->broken.pull = pull_id_unpack(some_id(p));
        e->broken.err = (enum tern_err)(1 + prng_below(p, TERN_ERR_COUNT - 1));
        break;
    case EV_PULL_QUIET: e->pull_quiet.pull = pull_id_unpack(some_id(p)); break;
    case EV_SERVE_QUIET: e->serve_quiet.serve = serve_id_unpack(some_id(p)); break;
    case EV_RECORD_CHECKED: fill_checked(p, &e->checked); break;
    default: fill_disk(p, e, lent); break;
    }
}

void event_random(struct prng *p, struct event *e, struct lent *lent)
{
    event_fill(p, e, (enum event_kind)(1 + prng_below(p, EV_COUNT - 1)),
               (enum op)(1 + prng_below(p, OP_COUNT - 1)), lent);
}
/* ---- comparing ---- */

static void same_tokens(struct req_tokens *a, struct req_tokens *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->nkeys, b->nkeys);
    assert_int_equal(a->base, b->base);
    if (a->n > 0)
        assert_memory_equal(a->v, b->v, a->n * sizeof *a->v);
    if (a->nkeys > 0)
        assert_memory_equal(a->keys, b->keys, a->nkeys * sizeof *a->keys);
    memset(a, 0, sizeof *a); /* clears the padding, too, which a copy may lose */
    memset(b, 0, sizeof *b);
}

static void same_runs(const struct table_run *a, const struct table_run *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(a[i].group, b[i].group);
        assert_int_equal(a[i].first, b[i].first);
        assert_int_equal(a[i].n, b[i].n);
        assert_memory_equal(a[i].refs, b[i].refs, a[i].n * sizeof(struct page_ref));
    }
}

static void same_ops(struct req_step *a, struct req_step *b)
{
    assert_int_equal(a->n, b->n);
    for (uint32_t i = 0; i < a->n; i++) {
        struct step_op x = a->ops[i], y = b->ops[i];

        same_tokens(&x.tokens, &y.tokens);
        assert_int_equal(x.kind, y.kind);
        assert_int_equal(x.barrier, y.barrier);
        assert_true(session_id_equal(x.session, y.session));
        assert_true(x.step == y.step);
        assert_int_equal(x.length, y.length);
        assert_int_equal(x.written, y.written);
        assert_true(pool_id_equal(x.pool, y.pool));
        assert_int_equal(x.nruns, y.nruns);
        same_runs(x.runs, y.runs, x.nruns);
    }
    a->ops = b->ops = NULL;
}

/* Kinds of field without a pointer are compared with the whole event. */
#define SAME_BYTES(of, member, limit)
#define SAME_SESSION                   SAME_BYTES
#define SAME_POOL                      SAME_BYTES
#define SAME_NODE                      SAME_BYTES
#define SAME_ENGINE                    SAME_BYTES
#define SAME_NAMESPACE                 SAME_BYTES
#define SAME_U32                       SAME_BYTES
#define SAME_U64                       SAME_BYTES
#define SAME_CHOICE                    SAME_BYTES
#define SAME_TRUTH                     SAME_BYTES
#define SAME_NAME                      SAME_BYTES
#define SAME_PEER                      SAME_BYTES
#define SAME_DEVICE                    SAME_BYTES
#define SAME_GROUPS                    SAME_BYTES
#define SAME_HASH                      SAME_BYTES
#define SAME_HASH64                    SAME_BYTES
#define SAME_BLOBS                     SAME_BYTES
#define SAME_TICKET                    SAME_BYTES
#define SAME_KEY                       SAME_BYTES
#define SAME_BLOB                      SAME_TOKENS
#define SAME_TOKENS(of, member, limit) same_tokens(&a->of.member, &b->of.member);
#define SAME_OPS(of, member, limit)    same_ops(&a->of, &b->of);

static void same_request(struct request *a, struct request *b)
{
    assert_int_equal(a->op, b->op);
    switch (a->op) {
#define F(of, member, KIND, limit) SAME_##KIND(of, member, limit)
        REQUEST_TABLE(REQUEST_CASE)
        COMMAND_TABLE(COMMAND_CASE)
#undef F
    default: break;
    }
}

static void same_peer(struct peer_msg *a, struct peer_msg *b)
{
    assert_int_equal(a->nruns, b->nruns);
    same_runs(a->runs, b->runs, a->nruns);
    assert_int_equal(a->nkeys, b->nkeys);
    assert_int_equal(a->to, b->to);
    assert_int_equal(a->at, b->at);
    assert_int_equal(a->until, b->until);
    if (a->kind == PEER_PULL_OPEN || a->kind == PEER_PULL_TOKENS) {
        assert_memory_equal(a->tokens, b->tokens, peer_msg_tokens(a) * sizeof *a->tokens);
        if (a->nkeys > 0)
            assert_memory_equal(a->keys, b->keys, a->nkeys * sizeof *a->keys);
    }
    a->runs = b->runs = NULL;
    a->tokens = b->tokens = NULL;
    a->keys = b->keys = NULL;
}

static void same_found(struct event *a, struct event *b)
{
    const struct disk_extent *e = &a->found.extent;

    assert_int_equal(e->tokens, b->found.extent.tokens);
    assert_int_equal(e->nkeys, b->found.extent.nkeys);
    if (e->tokens > 0)
        assert_memory_equal(a->found.tokens, b->found.tokens, e->tokens * sizeof(uint32_t));
    if (e->nkeys > 0)
        assert_memory_equal(a->found.keys, b->found.keys, e->nkeys * sizeof(struct extra_key));
    a->found.tokens = b->found.tokens = NULL;
    a->found.keys = b->found.keys = NULL;
}

void event_same(const struct event *wanted, const struct event *got)
{
    struct event a = *wanted, b = *got;

    assert_int_equal(a.kind, b.kind);
    if (a.kind == EV_PEER_MSG)
        same_peer(&a.peer.msg, &b.peer.msg);
    if (a.kind == EV_REQUEST)
        same_request(&a.request, &b.request);
    if (a.kind == EV_DISK_FOUND)
        same_found(&a, &b);
    assert_memory_equal(&a, &b, sizeof a);
}
