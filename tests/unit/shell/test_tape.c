/* Tapes: every kind of event comes back as it went in; the ring drops the oldest and says so; token
 * ids leave only when asked for; and no damage to the bytes gets past the reader as anything but an
 * error or a well-formed event. */
#include <string.h>

#include <stdio.h>

#include "base/prng.h"
#include "proto/messages.h"
#include "shell/tape/tape_codec.h"
#include "unit/rig/rig_tape.h"

#define TOKENS_EACH 33
#define KEYS_EACH   3
#define OPS_EACH    5
#define REFS_EACH   9
#define RUNS_EACH   2
#define OP_REFS     40 /* of a run of an operation: more than all else that an operation has */
#define PROCS       16

static const struct core_limits limits = {
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
static const struct tenant_config tenants[2] = {
    {.memory_bytes = 1 << 20, .regions = 1, .sessions_max = 8},
    {.memory_bytes = 2 << 20, .regions = 2, .sessions_max = 9}};

/* What an event under test borrows. */
struct lent {
    uint32_t tokens[OPS_EACH][TOKENS_EACH];
    struct extra_key keys[OPS_EACH][KEYS_EACH];
    struct step_op ops[OPS_EACH];
    struct table_run op_runs[OPS_EACH][RUNS_EACH];
    struct page_ref op_refs[OPS_EACH][RUNS_EACH][OP_REFS];
    struct table_run runs[2];
    struct page_ref refs[2][REFS_EACH];
};

/* The case's own, until it makes the next one of its kind or ends. */
static struct tape *tape;
static struct tape_reader *reader;
static uint8_t *bytes;

FIXTURE(drop_all)
{
    tape_close(reader);
    tape_destroy(tape);
    free(bytes);
    reader = NULL;
    tape = NULL;
    bytes = NULL;
    return 0;
}

TEST_EACH(NULL, drop_all);

static void make_tape(size_t ring_bytes)
{
    struct tape_config config = {.bytes = ring_bytes,
                                 .limits = limits,
                                 .tenant = tenants,
                                 .tenants = 2,
                                 .incarnation = 0x1122334455667788,
                                 .secret = {0xfeed, 0xbeef}};

    tape_destroy(tape);
    assert_int_equal(tape_create(&config, &tape), TERN_OK);
}

/* The tape's bytes. */
static size_t dump(bool keep_tokens)
{
    size_t n;

    free(bytes);
    bytes = dumped(tape, keep_tokens, &n);
    return n;
}

static enum tern_err reopen(const uint8_t *of, size_t n)
{
    tape_close(reader);
    reader = NULL;
    return tape_open(of, n, &reader);
}

static void reread(bool keep_tokens)
{
    size_t n = dump(keep_tokens);

    assert_int_equal(reopen(bytes, n), TERN_OK);
    free(bytes); /* the reader has its own */
    bytes = NULL;
}

/* ---- events with a value of its own in every field ---- */

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
        lent->ops[i].kind = (enum step_op_kind)(STEP_EXTEND + prng_below(p, STEP_UNLEASE));
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

/* NONE, the host tier, the disk, or one that is configured. */
static uint32_t some_peer(struct prng *p)
{
    const uint32_t odd[] = {NONE, PEER_HOST, PEER_DISK};
    uint32_t which = prng_below(p, 6);

    return which < 3 ? odd[which] : prng_below(p, limits.peers);
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

/* What each kind of field of messages.h is filled with: `of` is the struct of its request. */
#define FILL_SESSION(of, member, limit) (of).member = session_id_unpack(some_id(p));
#define FILL_POOL(of, member, limit)    (of).member = pool_id_unpack(some_id(p));
#define FILL_NODE(of, member, limit)    (of).member = node_id_unpack(some_id(p));
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
    r->conn = prng_below(p, limits.conns);
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
    m->tenant = prng_below(p, 4) == 0 ? NONE : prng_below(p, limits.tenants);
    m->ns = (struct namespace_id){prng_u64(p), prng_u64(p)};
    m->layout_hash = prng_u64(p);
    m->history = (uint32_t)prng_u64(p);
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
        .tenant = prng_below(p, limits.tenants),
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

static void fill_event(struct prng *p, struct event *e, enum event_kind kind, enum op op,
                       struct lent *lent)
{
    memset(e, 0, sizeof *e);
    e->kind = kind;
    switch (kind) {
    case EV_CONN_OPENED:
    case EV_CONN_CLOSED:
        e->conn.conn = prng_below(p, limits.conns);
        e->conn.tenant = prng_below(p, limits.tenants);
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
    case EV_SEALED: e->sealed.job = seal_id_unpack(some_id(p)); break;
    case EV_ZEROED: e->zeroed.pool = pool_id_unpack(some_id(p)); break;
    case EV_COPIED:
        e->copied.job = copy_id_unpack(some_id(p));
        e->copied.err = (enum tern_err)prng_below(p, TERN_ERR_COUNT);
        break;
    case EV_LINK_UP:
    case EV_LINK_DOWN:
        e->link.link = prng_below(p, limits.links);
        e->link.incarnation = prng_u64(p);
        break;
    case EV_PEER_MSG:
        e->peer.link = prng_below(p, limits.links);
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

static void random_event(struct prng *p, struct event *e, struct lent *lent)
{
    fill_event(p, e, (enum event_kind)(1 + prng_below(p, EV_COUNT - 1)),
               (enum op)(1 + prng_below(p, OP_COUNT - 1)), lent);
}

/* ---- comparing: arrays by what they hold, then the rest byte for byte ---- */

static void same_tokens(struct req_tokens *a, struct req_tokens *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->nkeys, b->nkeys);
    assert_int_equal(a->base, b->base);
    if (a->n > 0)
        assert_memory_equal(a->v, b->v, a->n * sizeof *a->v);
    if (a->nkeys > 0)
        assert_memory_equal(a->keys, b->keys, a->nkeys * sizeof *a->keys);
    memset(a, 0, sizeof *a); /* and the padding, which a copy need not keep */
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

/* Kinds of field that hold no pointer are compared with the whole event. */
#define SAME_BYTES(of, member, limit)
#define SAME_SESSION                   SAME_BYTES
#define SAME_POOL                      SAME_BYTES
#define SAME_NODE                      SAME_BYTES
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

static void same_event(const struct event *wanted, const struct event *got)
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

/* ---- tests ---- */

TEST(tape_every_kind_and_every_op_comes_back)
{
    struct event in, out;
    struct lent lent;
    struct prng p;

    prng_init(&p, 1);
    for (uint32_t kind = 1; kind < EV_COUNT; kind++) {
        for (uint32_t op = 1; op < (kind == EV_REQUEST ? OP_COUNT : 2); op++) {
            for (uint32_t again = 0; again < 20; again++) {
                make_tape(1 << 16);
                fill_event(&p, &in, (enum event_kind)kind, (enum op)op, &lent);
                in.now_ns = prng_u64(&p);
                tape_record(tape, &in);
                reread(true);
                assert_int_equal(tape_next(reader, &out), TERN_OK);
                same_event(&in, &out);
                assert_int_equal(tape_next(reader, &out), TERN_OK);
                assert_int_equal(out.kind, 0);
            }
        }
    }
}

TEST(tape_header_says_what_the_daemon_was)
{
    struct event e = {.kind = EV_TIMER};
    const struct tape_header *h;

    make_tape(1 << 14);
    tape_record(tape, &e);
    reread(false);
    h = tape_header(reader);
    assert_true(h->complete);
    assert_false(h->tokens_kept);
    assert_int_equal(h->events, 1);
    assert_int_equal(h->first, 0);
    assert_true(h->incarnation == 0x1122334455667788);
    assert_memory_equal(&h->limits, &limits, sizeof limits);
    assert_int_equal(h->tenants, 2);
    assert_memory_equal(h->tenant, tenants, sizeof tenants);
}

/* A ring of a few KiB and many events: what is left is exactly the last ones, at every wrap. */
TEST(tape_full_ring_keeps_the_last_events)
{
    struct tape_stats stats;
    struct event in, out;
    struct lent lent;
    struct prng p;

    for (uint32_t total = 1; total < 400; total += 13) {
        make_tape(1 << 14);
        prng_init(&p, 7);
        for (uint32_t i = 0; i < total; i++) {
            random_event(&p, &in, &lent);
            in.now_ns = i;
            tape_record(tape, &in);
        }
        tape_stats(tape, &stats);
        assert_int_equal(stats.recorded, total);
        assert_true(total < 300 || stats.dropped > 0);
        reread(true);
        assert_int_equal(tape_header(reader)->complete, stats.dropped == 0);
        assert_int_equal(tape_header(reader)->first, stats.dropped);
        assert_int_equal(tape_header(reader)->events, total - stats.dropped);
        prng_init(&p, 7);
        for (uint32_t i = 0; i < total; i++) {
            random_event(&p, &in, &lent);
            in.now_ns = i;
            if (i < stats.dropped)
                continue;
            assert_int_equal(tape_next(reader, &out), TERN_OK);
            same_event(&in, &out);
        }
        assert_int_equal(tape_next(reader, &out), TERN_OK);
        assert_int_equal(out.kind, 0);
    }
}

TEST(tape_event_larger_than_the_ring_empties_it)
{
    static uint32_t tokens[4096];
    struct event e = {.kind = EV_TIMER};
    struct tape_stats stats;

    make_tape(TAPE_BYTES_MIN);
    tape_record(tape, &e);
    e.kind = EV_REQUEST;
    e.request = (struct request){.op = OP_MATCH, .match = {.tokens = {.v = tokens, .n = 4096}}};
    tape_record(tape, &e);
    tape_stats(tape, &stats);
    assert_int_equal(stats.dropped, 2);
    assert_int_equal(stats.bytes_used, 0);
    reread(true);
    assert_false(tape_header(reader)->complete);
    assert_int_equal(tape_next(reader, &e), TERN_OK);
    assert_int_equal(e.kind, 0);
}

/* What operations name needs room beside what they are: the oldest events make way for it. */
TEST(tape_full_of_steps_that_name_pages)
{
    static struct page_ref pages[170];
    struct table_run run = {.group = 1, .n = 170, .refs = pages};
    struct step_op op = {.kind = STEP_ASSIGN, .nruns = 1, .runs = &run};
    struct event e = {.kind = EV_REQUEST}, out;
    struct tape_stats stats;

    e.request = (struct request){.op = OP_STEP, .step = {.ops = &op, .n = 1}};
    make_tape(TAPE_BYTES_MIN);
    for (uint32_t i = 0; i < 50; i++) {
        e.now_ns = i;
        for (uint32_t k = 0; k < 170; k++)
            pages[k] = (struct page_ref){.index = i, .gen = k};
        tape_record(tape, &e);
    }
    tape_stats(tape, &stats);
    assert_true(stats.dropped > 40 && stats.dropped < 50);
    reread(true);
    for (uint64_t i = stats.dropped; i < 50; i++) {
        assert_int_equal(tape_next(reader, &out), TERN_OK);
        assert_int_equal(out.now_ns, i);
        assert_int_equal(out.request.step.n, 1);
        assert_int_equal(out.request.step.ops[0].runs[0].n, 170);
        assert_int_equal(out.request.step.ops[0].runs[0].refs[169].index, i);
        assert_int_equal(out.request.step.ops[0].runs[0].refs[169].gen, 169);
    }
}

/* Mapped tokens: equal stays equal, different stays different, and no real value is to be found in
 * the bytes. */
TEST(tape_tokens_are_mapped_one_to_one)
{
    struct extra_key keys[2] = {{.position = 3, .hi = 0xabcdef0123456789, .lo = 5},
                                {.position = 9, .hi = 0xabcdef0123456789, .lo = 6}};
    uint32_t tokens[2000];
    struct event e = {.kind = EV_REQUEST}, out;
    const struct req_tokens *t;
    size_t n;

    make_tape(1 << 16);
    for (uint32_t i = 0; i < 2000; i++)
        tokens[i] = 0x00c0ffee + i % 1000;
    e.request = (struct request){
        .op = OP_MATCH, .match = {.tokens = {.v = tokens, .n = 2000, .keys = keys, .nkeys = 2}}};
    tape_record(tape, &e);
    reread(false);
    assert_int_equal(tape_next(reader, &out), TERN_OK);
    t = &out.request.match.tokens;
    assert_int_equal(t->n, 2000);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(t->v[i], t->v[i + 1000]);
        for (uint32_t j = i + 1; j < 1000; j++)
            assert_int_not_equal(t->v[i], t->v[j]);
    }
    assert_int_equal(t->keys[0].position, 3);
    assert_int_equal(t->keys[1].position, 9);
    assert_true(t->keys[0].hi != t->keys[1].hi && t->keys[0].lo != t->keys[1].lo);

    n = dump(false);
    for (size_t i = 0; i + 4 <= n; i += 4) {
        uint32_t word;

        memcpy(&word, bytes + i, sizeof word);
        assert_false(word >= 0x00c0ffee && word < 0x00c0ffee + 1000);
        assert_false(word == 0x23456789 || word == 0xabcdef01);
    }
}

TEST(tape_write_that_fails_is_told)
{
    struct event e = {.kind = EV_TIMER};
    FILE *full = fopen("/dev/full", "w");

    make_tape(1 << 14);
    assert_non_null(full);
    tape_record(tape, &e);
    assert_int_equal(tape_dump(tape, fileno(full), true), TERN_DISK);
    fclose(full);
}

/* Reads to the end or to the first error; the number of events. Every array handed out is touched.
 */
static uint32_t play(const uint8_t *of, size_t n, enum tern_err *ret_err)
{
    struct event e = {.kind = 0};
    uint32_t events = 0;
    volatile uint32_t sum = 0;

    *ret_err = reopen(of, n);
    if (*ret_err != TERN_OK)
        return 0;
    for (;;) {
        *ret_err = tape_next(reader, &e);
        if (*ret_err != TERN_OK || e.kind == 0)
            break;
        events++;
        for (uint32_t i = 0; i < codec_lists(&e); i++) {
            const struct req_tokens list = codec_list(&e, i);

            for (uint32_t j = 0; j < list.n; j++)
                sum = sum + list.v[j];
        }
    }
    if (*ret_err != TERN_OK)
        assert_int_equal(tape_next(reader, &e), TERN_MALFORMED); /* an error is not passed over */
    return events;
}

static size_t sample(void)
{
    struct event e;
    struct lent lent;
    struct prng p;

    make_tape(1 << 16);
    prng_init(&p, 3);
    for (uint32_t i = 0; i < 60; i++) {
        random_event(&p, &e, &lent);
        e.now_ns = i;
        tape_record(tape, &e);
    }
    return dump(true);
}

TEST(tape_cut_anywhere_is_malformed)
{
    enum tern_err err;
    size_t n = sample();

    assert_int_equal(play(bytes, n, &err), 60);
    assert_int_equal(err, TERN_OK);
    for (size_t cut = 0; cut < n; cut += 1 + cut % 3) {
        uint32_t events = play(bytes, cut, &err);

        assert_int_equal(err, TERN_MALFORMED);
        assert_true(events < 60);
    }
}

TEST(tape_with_bytes_behind_its_end_is_malformed)
{
    enum tern_err err;
    size_t n = sample();
    uint8_t *longer = calloc(1, n + 16);

    memcpy(longer, bytes, n);
    for (size_t more = 1; more <= 16; more++) {
        assert_int_equal(play(longer, n + more, &err), 60);
        assert_int_equal(err, TERN_MALFORMED);
    }
    free(longer);
}

TEST(tape_of_another_version_is_unsupported)
{
    enum tern_err err;
    size_t n = sample();

    bytes[8]++;
    play(bytes, n, &err);
    assert_int_equal(err, TERN_UNSUPPORTED);
    bytes[0]++;
    play(bytes, n, &err);
    assert_int_equal(err, TERN_MALFORMED);
}

/* Under the sanitizers this is what proves the reader's bounds. */
TEST(tape_damaged_bytes_are_an_error_or_an_event)
{
    enum tern_err err;
    struct prng p;
    size_t n = sample();
    uint8_t *copy = malloc(n);

    prng_init(&p, 11);
    for (uint32_t i = 0; i < 20000; i++) {
        memcpy(copy, bytes, n);
        for (uint32_t k = 0; k <= prng_below(&p, 3); k++)
            copy[prng_below(&p, (uint32_t)n)] = (uint8_t)prng_u64(&p);
        play(copy, n, &err);
        assert_true(err == TERN_OK || err == TERN_MALFORMED || err == TERN_UNSUPPORTED);
    }
    free(copy);
}

TEST(tape_time_that_goes_back_is_malformed)
{
    struct event e = {.kind = EV_TIMER, .now_ns = 5};
    enum tern_err err;
    size_t n;

    make_tape(1 << 14);
    tape_record(tape, &e);
    e.now_ns = 4;
    tape_record(tape, &e);
    n = dump(true);
    assert_int_equal(play(bytes, n, &err), 1);
    assert_int_equal(err, TERN_MALFORMED);
}

/* The core takes the shell's slots on trust, so the reader may not. The ring itself takes anything.
 */
TEST(tape_slots_outside_the_limits_are_malformed)
{
    static const uint32_t tokens[2];
    const struct event bad[] = {
        {.kind = EV_CONN_OPENED, .conn = {.conn = 16}},
        {.kind = EV_CONN_OPENED, .conn = {.tenant = 3}},
        {.kind = EV_CONN_CLOSED, .conn = {.conn = 16}},
        {.kind = EV_STEP_DONE, .step_done = {.rank = RANKS_MAX}},
        {.kind = EV_LINK_UP, .link = {.link = 4}},
        {.kind = EV_LINK_DOWN, .link = {.link = 4}},
        {.kind = EV_PULLED, .pulled = {.batch = PULL_BATCHES_MAX}},
        {.kind = EV_PULL_BROKEN, .broken = {.err = TERN_OK}},
        {.kind = EV_REQUEST, .request = {.op = OP_ENGINE_LEAVE, .conn = 16}},
        {.kind = EV_REQUEST, .request = {.op = OP_NONE}},
        {.kind = EV_REQUEST, .request = {.op = OP_FETCH, .fetch = {.peer = 2}}},
        {.kind = EV_REQUEST, .request = {.op = OP_FETCH, .fetch = {.peer = PEER_DISK - 1}}},
        {.kind = EV_REQUEST,
         .request = {.op = OP_RETRACT, .retract = {.mode = (enum retract_mode)2}}},
        {.kind = EV_COPIED, .copied = {.err = TERN_ERR_COUNT}},
        {.kind = EV_DISK_FOUND, .found = {.extent = {.tenant = 3}}},
        {.kind = EV_DISK_FOUND, .found = {.extent = {.part = DISK_PARTS}}},
        {.kind = EV_DISK_FOUND, .found = {.extent = {.reason = DISK_REASONS}}},
        {.kind = EV_DISK_WRITTEN, .written = {.err = TERN_ERR_COUNT}},
        {.kind = EV_PEER_MSG, .peer = {.link = 4, .msg = {.kind = PEER_PULL_DONE}}},
        {.kind = EV_PEER_MSG, .peer = {.msg = {.kind = PEER_PULL_DONE, .tenant = 3}}},
        {.kind = EV_PEER_MSG, .peer = {.msg = {.kind = PEER_PULL_OFFER, .from = 2, .to = 1}}},
        {.kind = EV_PEER_MSG,
         .peer = {.msg = {.kind = PEER_PULL_OPEN, .from = 3, .to = 2, .tokens = tokens}}},
        {.kind = EV_PEER_MSG,
         .peer = {.msg = {.kind = PEER_PULL_TOKENS, .at = 3, .to = 2, .tokens = tokens}}},
        {.kind = EV_PEER_MSG, .peer = {.msg = {.kind = PEER_MSG_COUNT}}},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        enum tern_err err;
        size_t n;

        make_tape(1 << 14);
        tape_record(tape, &bad[i]);
        n = dump(true);
        if (play(bytes, n, &err) != 0 || err != TERN_MALFORMED)
            fail_msg("event %zu was read", i);
    }
}

TEST(tape_of_no_bytes_records_nothing)
{
    struct event e = {.kind = EV_TIMER};

    make_tape(0);
    tape_record(tape, &e);
    tape_record(NULL, &e);
    assert_int_equal(tape_dump(tape, 1, true), TERN_INVALID);
    assert_int_equal(tape_dump(NULL, 1, true), TERN_INVALID);
    tape_destroy(NULL);
}
