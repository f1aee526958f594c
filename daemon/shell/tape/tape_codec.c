/* The walk over the fields of each kind of event; proto/messages.h lists those of a request. */
#include "shell/tape/tape_codec.h"

#include <string.h>

#include "base/check.h"
#include "shell/tape/tape.h"

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

static void codec_u64(struct codec *c, uint64_t *v)
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

/* A value that must be in [first, end): enums and counts. */
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

static void list(struct codec *c, struct codec_list v)
{
    check(c->nlists < STEP_OPS_MAX);
    c->lists[c->nlists++] = v;
}

/* own: the event's own field, which the list names; `v` may be a copy of it. */
static void tokens(struct codec *c, struct req_tokens *v, struct req_tokens *own)
{
    v->n = within(c, v->n, 0, SESSION_TOKENS_MAX + 1);
    codec_u32(c, &v->base);
    v->nkeys = within(c, v->nkeys, 0, EXTRA_KEYS_MAX + 1);
    list(c, (struct codec_list){&own->v, &own->keys, v->n, v->nkeys});
}

/* A name in a field of n bytes, a multiple of 4, including the NUL. */
static void text(struct codec *c, char *v, size_t n)
{
    for (size_t i = 0; i < n; i += sizeof(uint32_t)) {
        uint32_t word;

        memcpy(&word, v + i, sizeof word);
        codec_u32(c, &word);
        memcpy(v + i, &word, sizeof word);
    }
    if (memchr(v, '\0', n) == NULL) {
        c->bad = true;
        v[n - 1] = '\0';
    }
}

static void device(struct codec *c, struct req_device *v)
{
    v->named = truth(c, v->named);
    codec_u32(c, &v->region);
}

static void groups(struct codec *c, struct req_pool_open *v)
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
}

/* The refs are in the body, and a reader uses them in place. */
static struct table_run run_of(struct codec *c, const struct table_run *written)
{
    struct table_run run = c->reading ? (struct table_run){.n = 0} : *written;
    size_t n;

    codec_u32(c, &run.group);
    codec_u32(c, &run.first);
    codec_u32(c, &run.n);
    n = (size_t)run.n * 2;
    if (!c->reading) {
        codec_put_words(c, (const uint32_t *)(const void *)run.refs, n);
        return run;
    }
    c->bad = c->bad || n > c->n - c->at;
    run.n = c->bad ? 0 : run.n;
    run.refs = (const struct page_ref *)(const void *)(c->words + c->at);
    c->at += c->bad ? 0 : n;
    return run;
}

/* A reader's runs go into `room`; NULL when writing. */
static void runs(struct codec *c, const struct table_run **v, uint32_t n, struct table_run *room)
{
    for (uint32_t i = 0; i < n; i++) {
        struct table_run run = run_of(c, c->reading ? NULL : &(*v)[i]);

        if (c->reading)
            room[i] = run;
    }
    if (c->reading)
        *v = room;
}

/* *taken: used runs of the room. */
static void op_runs(struct codec *c, struct step_op *v, struct codec_room *room, uint32_t *taken)
{
    v->nruns = within(c, v->nruns, 0, WIRE_STEP_RUNS_MAX + 1);
    if (c->reading && v->nruns > WIRE_RUNS_MAX - *taken) {
        c->bad = true;
        v->nruns = 0;
    }
    runs(c, &v->runs, v->nruns, c->reading ? room->op_runs + *taken : NULL);
    *taken += c->reading ? v->nruns : 0;
}

static void operation(struct codec *c, struct step_op *v, struct req_tokens *own)
{
    v->kind = (enum step_op_kind)within(c, v->kind, STEP_EXTEND, STEP_KINDS);
    v->barrier = truth(c, v->barrier);
    handle(c, &v->session);
    codec_u64(c, &v->step);
    codec_u32(c, &v->length);
    codec_u32(c, &v->written);
    tokens(c, &v->tokens, own);
    handle(c, &v->pool);
}

static void operations(struct codec *c, struct req_step *v, struct codec_room *room)
{
    uint32_t taken = 0;

    v->n = within(c, v->n, 0, STEP_OPS_MAX + 1);
    v->pieces = truth(c, v->pieces);
    for (uint32_t i = 0; i < v->n; i++) {
        struct step_op op = c->reading ? (struct step_op){.kind = STEP_EXTEND} : v->ops[i],
                       *own = c->reading ? &room->ops[i] : (struct step_op *)(uintptr_t)&v->ops[i];

        operation(c, &op, &own->tokens);
        op_runs(c, &op, room, &taken);
        if (c->reading)
            room->ops[i] = op;
    }
    if (c->reading)
        v->ops = room->ops;
}

static void blobs(struct codec *c, struct req_blobs *v)
{
    v->n = within(c, v->n, 0, RECORD_BLOBS_MAX + 1);
    for (uint32_t i = 0; i < v->n; i++) {
        text(c, v->v[i].name, BLOB_NAME_MAX);
        codec_u64(c, &v->v[i].bytes);
    }
}

static void ticket(struct codec *c, struct ticket *v)
{
    handle(c, &v->id);
    codec_u64(c, &v->key[0]);
    codec_u64(c, &v->key[1]);
    codec_u64(c, &v->incarnation);
    codec_u32(c, &v->length);
}

/* The form of each kind of field of messages.h on the tape; `of` is the request's struct. */
#define TAPE_SESSION(of, member, limit)   handle(c, &(of).member);
#define TAPE_POOL(of, member, limit)      handle(c, &(of).member);
#define TAPE_NODE(of, member, limit)      handle(c, &(of).member);
#define TAPE_ENGINE(of, member, limit)    handle(c, &(of).member);
#define TAPE_NAMESPACE(of, member, limit) namespace(c, &(of).member);
#define TAPE_TOKENS(of, member, limit)    tokens(c, &(of).member, &(of).member);
#define TAPE_U32(of, member, limit)       codec_u32(c, &(of).member);
#define TAPE_U64(of, member, limit)       codec_u64(c, &(of).member);
#define TAPE_CHOICE(of, member, limit)                                                             \
    (of).member = (__typeof__((of).member))within(c, (of).member, 0, (limit) + 1);
#define TAPE_TRUTH(of, member, limit)  (of).member = truth(c, (of).member);
#define TAPE_NAME(of, member, limit)   text(c, (of).member, ENGINE_NAME_MAX);
#define TAPE_PEER(of, member, limit)   codec_u32(c, &(of).member);
#define TAPE_DEVICE(of, member, limit) device(c, &(of).member);
#define TAPE_GROUPS(of, member, limit) groups(c, &(of));
#define TAPE_HASH(of, member, limit)   codec_u32(c, &(of).member);
#define TAPE_HASH64(of, member, limit) codec_u64(c, &(of).member);
#define TAPE_OPS(of, member, limit)    operations(c, &(of), room);
#define TAPE_BLOBS(of, member, limit)  blobs(c, &(of).member);
#define TAPE_TICKET(of, member, limit) ticket(c, &(of).member);
#define TAPE_BLOB(of, member, limit)                                                               \
    tokens(c, &(of).member, &(of).member);                                                         \
    codec_u32(c, &(of).member##_bytes);
#define TAPE_KEY(of, member, limit)                                                                \
    codec_u64(c, &(of).member[0]);                                                                 \
    codec_u64(c, &(of).member[1]);

/* Operators' requests have no message in tern.proto, so no comparison with it finds a field that
 * messages.h lacks, and a tape without that field would replay a different request. So check that
 * the named fields fill the struct. */
#define F(of, member, KIND, limit) +sizeof(((struct request *)0)->of.member)
#define ALL_NAMED(NAME, of)                                                                        \
    static_assert(sizeof((struct request *)0)->of - (0 REQUEST_##NAME(F)) <                        \
                      _Alignof(__typeof__(((struct request *)0)->of)),                             \
                  "messages.h forgets a field of " #of)
ALL_NAMED(EVICT, evict);
ALL_NAMED(DRAIN, drain);
ALL_NAMED(PIN, pin);
ALL_NAMED(SESSION_END, session_end);
ALL_NAMED(ENGINE_KICK, engine_kick);
ALL_NAMED(POOL_END, pool_end);
#undef F

static void request(struct codec *c, struct request *v, struct codec_room *room)
{
    v->op = (enum op)within(c, v->op, 0, OP_COUNT);
    codec_u32(c, &v->conn);
    codec_u64(c, &v->request_id);
    codec_u64(c, &v->trace_id);
    switch (v->op) {
#define F(op, member, KIND, limit) TAPE_##KIND(v->op, member, limit)
        REQUEST_TABLE(REQUEST_CASE)
        COMMAND_TABLE(COMMAND_CASE)
#undef F
    case OP_NONE:
    case OP_COUNT: break;
    }
}

static void peer_msg(struct codec *c, struct peer_msg *v, struct codec_room *room)
{
    v->kind = (enum peer_msg_kind)within(c, v->kind, PEER_PULL_OPEN, PEER_MSG_COUNT);
    handle(c, &v->pull);
    handle(c, &v->serve);
    v->err = (enum tern_err)within(c, v->err, 0, TERN_ERR_COUNT);
    codec_u32(c, &v->tenant);
    namespace(c, &v->ns);
#define F(member, KIND) TAPE_##KIND(*v, member, 0)
    PEER_MSG_NUMBERS(F)
#undef F
    if (v->kind == PEER_PULL_OPEN || v->kind == PEER_PULL_DONE)
        ticket(c, &v->ticket);
    if (v->kind == PEER_PULL_OFFER)
        v->blob_bytes = within(c, v->blob_bytes, 0, TICKET_BLOB_BYTES + 1);
    if (c->reading && v->from > v->to)
        c->bad = true;
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        if (v->kind == PEER_PULL_OPEN || v->kind == PEER_PULL_OFFER)
            codec_u32(c, &v->page_tokens[g]);
    if (v->kind == PEER_PULL_OPEN || v->kind == PEER_PULL_TOKENS) {
        c->bad = c->bad || (c->reading &&
                            (peer_msg_until(v) > SESSION_TOKENS_MAX || peer_msg_until(v) < v->at));
        v->nkeys = within(c, v->nkeys, 0, EXTRA_KEYS_MAX + 1);
    }
    if (v->kind == PEER_PULL_OPEN || v->kind == PEER_PULL_TOKENS ||
        (v->kind == PEER_PULL_OFFER && v->blob_bytes > 0))
        list(c, (struct codec_list){&v->tokens, &v->keys, peer_msg_tokens(v), v->nkeys});
    v->nruns = within(c, v->nruns, 0, GROUPS_MAX + 1);
    runs(c, &v->runs, v->nruns, c->reading ? room->runs : NULL);
}

static void checked(struct codec *c, struct record_checked *v)
{
    handle(c, &v->id);
    v->err = (enum tern_err)within(c, v->err, TERN_OK, TERN_ERR_COUNT);
    codec_u32(c, &v->part);
    codec_u32(c, &v->index);
    v->nhashes = within(c, v->nhashes, 0, BLOBS_KEPT_MAX + 2);
    for (uint32_t i = 0; i < v->nhashes; i++) {
        codec_u64(c, &v->hash[i].hi);
        codec_u64(c, &v->hash[i].lo);
    }
}

static_assert(sizeof(struct disk_extent) == 136, "the tape has all fields of an extent");

static void place(struct codec *c, struct disk_place *v)
{
    codec_u64(c, &v->file);
    codec_u64(c, &v->offset);
}

static void extent(struct codec *c, struct disk_extent *v)
{
    v->part = within(c, v->part, 0, DISK_PARTS);
    codec_u32(c, &v->tenant);
    namespace(c, &v->ns);
    codec_u64(c, &v->layout_hash);
    codec_u64(c, &v->chain);
    codec_u64(c, &v->parent_chain);
    codec_u32(c, &v->depth);
    codec_u32(c, &v->align);
    v->tokens = within(c, v->tokens, 0, ALIGN_TOKENS_MAX + 1);
    v->nkeys = within(c, v->nkeys, 0, EXTRA_KEYS_MAX + 1);
    codec_u32(c, &v->npages);
    codec_u32(c, &v->nsums);
    codec_u32(c, &v->groups);
    codec_u32(c, &v->reach);
    codec_u64(c, &v->page_bytes);
    v->reason = within(c, v->reason, 0, DISK_REASONS);
    codec_u32(c, &v->hits);
    codec_u64(c, &v->served_ns);
    place(c, &v->place);
    place(c, &v->above);
}

static void disk_event(struct codec *c, struct event *e)
{
    switch (e->kind) {
    case EV_DISK_FOUND:
        extent(c, &e->found.extent);
        list(c, (struct codec_list){&e->found.tokens, &e->found.keys, e->found.extent.tokens,
                                    e->found.extent.nkeys});
        break;
    case EV_DISK_READY:
        codec_u64(c, &e->ready.next_file);
        codec_u64(c, &e->ready.served_ns);
        break;
    case EV_DISK_WRITTEN:
        handle(c, &e->written.store);
        e->written.err = (enum tern_err)within(c, e->written.err, TERN_OK, TERN_ERR_COUNT);
        break;
    case EV_DISK_DROPPED: codec_u64(c, &e->dropped.file); break;
    case EV_SHUTDOWN: codec_u64(c, &e->shutdown.deadline_ns); break;
    default: break;
    }
}

static void small_event(struct codec *c, struct event *e)
{
    switch (e->kind) {
    case EV_STEP_DONE:
        handle(c, &e->step_done.engine);
        e->step_done.rank = within(c, e->step_done.rank, 0, RANKS_MAX);
        codec_u64(c, &e->step_done.step);
        break;
    case EV_SEALED:
        e->sealed.n = within(c, e->sealed.n, 1, SEALED_JOBS_MAX + 1);
        for (uint32_t i = 0; i < e->sealed.n; i++)
            handle(c, &e->sealed.job[i]);
        break;
    case EV_ZEROED: handle(c, &e->zeroed.pool); break;
    case EV_COPIED:
        handle(c, &e->copied.job);
        e->copied.err = (enum tern_err)within(c, e->copied.err, TERN_OK, TERN_ERR_COUNT);
        break;
    case EV_LINK_UP:
    case EV_LINK_DOWN:
        codec_u32(c, &e->link.link);
        codec_u64(c, &e->link.incarnation);
        codec_u32(c, &e->link.peer);
        codec_u64(c, &e->link.tenants);
        break;
    case EV_PEER_LEFT:
    case EV_PEER_JOINED: codec_u32(c, &e->member.peer); break;
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
    case EV_RECORD_CHECKED: checked(c, &e->checked); break;
    default: disk_event(c, e); break;
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

static size_t runs_words(const struct table_run *runs, uint32_t n)
{
    size_t words = 0;

    for (uint32_t i = 0; i < n; i++)
        words += RUN_WORDS + (size_t)runs[i].n * 2;
    return words;
}

size_t codec_body_max(const struct event *e)
{
    size_t words = EVENT_WORDS_MAX;

    if (e->kind == EV_REQUEST && e->request.op == OP_STEP)
        for (uint32_t i = 0; i < e->request.step.n; i++)
            words += OP_WORDS_MAX +
                     runs_words(e->request.step.ops[i].runs, e->request.step.ops[i].nruns);
    if (e->kind == EV_PEER_MSG)
        words += runs_words(e->peer.msg.runs, e->peer.msg.nruns);
    return words;
}

/* ---- words ---- */

static const char *const names[EV_COUNT] = {
#define X(NAME, word) [EV_##NAME] = #word,
    EVENT_TABLE(X)
#undef X
};

const char *tape_event_word(uint32_t kind)
{
    return kind < EV_COUNT && names[kind] ? names[kind] : "unknown";
}
