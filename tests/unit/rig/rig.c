/* The rig's core: events in, actions out, jobs, replies, links (rig.h). Owns the arena, the actions
 * buffer and copies of everything that outlives a step. Called by the other rig files, tests and
 * fuzzers. Invariant: every job that the core asked for is completed exactly once, or dropped by
 * the test. */
#include "base/err.h"
#include "unit/rig/rig_spill.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/record_check.h"
#include "testing/secret.h"

#define SETTLE_ROUNDS_MAX 100000
#define TIMER_ROUNDS_MAX  10000

void rig_fail(const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    oracle_fail("%s", text);
}

static void *must_copy(const void *v, size_t n)
{
    void *copy = malloc(n ? n : 1);

    if (!copy)
        abort();
    if (n)
        memcpy(copy, v, n);
    return copy;
}

struct rig_options rig_defaults(void)
{
    struct rig_options o = {
        .limits = {.tenants = 2,
                   .conns = 32,
                   .engines = 8,
                   .pools = 8,
                   .sessions = 64,
                   .nodes = 256,
                   .namespaces = 16,
                   .token_blocks = 1024,
                   .extra_keys = 128,
                   .pages = 16384,
                   .slabs = 4096,
                   .retires = 128,
                   .turn_records = 32,
                   .record_pages = 128,
                   .record_jobs = 4,
                   .resets = 64,
                   .asks = 4,
                   .links = 4,
                   .peers = 2,
                   .pulls = 8,
                   .serves = 8,
                   .seal_jobs = 8,
                   .copy_jobs = 4,
                   .events = 64,
                   .sums_per_page = 4,
                   .peer_bytes_in_flight = 1u << 20,
                   .tenant_bytes_in_flight = 1u << 20,
                   .transfer_deadline_ns = 5000000000u,
                   .ticket_deadline_ns = 20000000000u,
                   .busy_retry_ms = 10},
        .incarnation = 0x1001,
        .secret = 1,
    };

    for (uint32_t t = 0; t < 2; t++)
        o.tenant[t] = (struct tenant_config){.memory_bytes = 4u << 20,
                                             .host_bytes = 1u << 20,
                                             .record_bytes = 64 * RECORD_PAGE_BYTES,
                                             .regions = 4,
                                             .sessions_max = 64};
    return o;
}

struct rig_options rig_small(void)
{
    struct rig_options o = rig_defaults();

    o.limits.nodes = 24;
    o.limits.token_blocks = 96;
    o.limits.extra_keys = 8;
    o.limits.namespaces = 3;
    o.limits.sessions = 8;
    o.limits.retires = 5;
    o.limits.pages = 512;
    o.limits.slabs = 160;
    o.limits.pools = 6;
    o.limits.engines = 3;
    o.limits.pulls = o.limits.serves = 2;
    o.limits.seal_jobs = 2;
    o.limits.copy_jobs = 2;
    o.limits.events = 8;
    o.limits.conns = 64;
    o.limits.peer_bytes_in_flight = 700;
    for (uint32_t t = 0; t < 2; t++) {
        o.tenant[t].memory_bytes = o.tenant[t].host_bytes = 8192;
        o.tenant[t].sessions_max = 7;
    }
    return o;
}

static struct rig *live;
/* The actions of the present step, which are processed before the next step of any rig. */
static struct actions *asked;

struct rig *rig_create(const struct rig_options *options)
{
    struct rig_options defaults = rig_defaults();
    struct rig *rig = calloc(1, sizeof *rig);
    struct hash_secret secret;
    enum tern_err err;

    if (!rig)
        abort();
    rig->options = options ? *options : defaults;
    if (!asked) {
        const struct core_limits most = {.table_pages = TABLE_PAGES_MAX};

        asked = calloc(1, actions_bytes(&most));
        if (!asked)
            abort();
    }
    rig->out = asked;
    rig->now_ns = 1000000000u;
    rig->next_request = 1;
    rig->next_conn = 1; /* 0 is the value of an unset field */
    rig->automatic = RIG_ALL;
    err = core_size(&rig->options.limits, &rig->mem_bytes);
    if (err != TERN_OK)
        rig_fail("core_size answers %d", err);
    rig->mem = aligned_alloc(64, (rig->mem_bytes + 63) & ~(size_t)63);
    if (!rig->mem)
        abort();
    memset(rig->mem, 0, rig->mem_bytes);
    secret = secret_from(rig->options.secret);
    rig->core = core_init(rig->mem, &rig->options.limits, rig->options.tenant,
                          rig->options.incarnation, &secret);
    for (uint32_t t = 0; t < rig->options.limits.tenants; t++) {
        rig->bytes[t] = calloc(1, rig->options.tenant[t].memory_bytes);
        rig->host[t] = calloc(1, rig->options.tenant[t].host_bytes + 1);
        rig->records[t] = aligned_alloc(64, rig->options.tenant[t].record_bytes + 64);
    }
    rig->sums = calloc(rig->options.limits.pages, sizeof *rig->sums);
    rig->next_live = live;
    live = rig;
    return rig;
}

static void free_job(struct rig_job *job)
{
    free(job->pages);
    free(job->refs);
    free(job->to);
    free(job->from);
    free(job->spans);
    free((void *)(uintptr_t)job->write.extents);
    free((void *)(uintptr_t)job->write.pages);
    free((void *)(uintptr_t)job->write.tokens);
    free((void *)(uintptr_t)job->write.keys);
    if (job->kind == RIG_MSG) {
        for (uint32_t i = 0; i < job->msg.nruns; i++)
            free((void *)(uintptr_t)job->msg.runs[i].refs);
        free((void *)(uintptr_t)job->msg.runs);
        free((void *)(uintptr_t)job->msg.tokens);
        free((void *)(uintptr_t)job->msg.keys);
    }
}

static void free_reply(struct rig_reply *r)
{
    if (!r->used)
        return;
    for (uint32_t i = 0; i < r->reply.nruns; i++)
        free((void *)(uintptr_t)r->reply.runs[i].refs);
    free((void *)(uintptr_t)r->reply.runs);
    if (r->reply.op == OP_STEP)
        free((void *)(uintptr_t)r->reply.step.results);
    if (r->reply.op == OP_RECORD_PREPARE)
        free((void *)(uintptr_t)r->reply.record_prepare.body);
    if (r->reply.op == OP_RECORD_GET)
        free((void *)(uintptr_t)r->reply.record_get.list);
    if (r->reply.op == OP_FETCH && r->reply.err == TERN_OK && r->reply.fetch.blob_bytes > 0)
        free((void *)(uintptr_t)r->reply.fetch.blob);
    if (r->reply.op == OP_FETCH && r->reply.fetch.nhosts > 0)
        free((void *)(uintptr_t)r->reply.fetch.hosts);
    if (r->reply.op == OP_BLOCKS && r->reply.blocks.nhosts > 0)
        free((void *)(uintptr_t)r->reply.blocks.hosts);
    r->used = false;
}

void rig_destroy(struct rig *rig)
{
    struct rig **at = &live;

    if (!rig)
        return;
    while (*at != rig)
        at = &(*at)->next_live;
    *at = rig->next_live;
    while (rig->sessions)
        rig_session_free(rig->sessions);
    for (uint32_t i = 0; i < rig->njobs; i++)
        free_job(&rig->jobs[i]);
    for (uint32_t i = 0; i < RIG_REPLIES_MAX; i++)
        free_reply(&rig->replies[i]);
    for (uint32_t l = 0; l < RIG_LINKS_MAX; l++)
        if (rig->link[l].rig)
            rig->link[l].rig->link[rig->link[l].link].rig = NULL;
    for (uint32_t t = 0; t < RIG_TENANTS_MAX; t++) {
        free(rig->bytes[t]);
        for (uint32_t r = 0; r < RANKS_MAX; r++)
            free(rig->region[t][r]);
        free(rig->host[t]);
        free(rig->records[t]);
    }
    free(rig->sums);
    free(rig->mem);
    free(rig);
}

void rig_destroy_all(void)
{
    while (live)
        rig_destroy(live);
}

static struct table_run *copy_runs(const struct table_run *runs, uint32_t n)
{
    struct table_run *copy;

    if (!n)
        return NULL;
    copy = must_copy(runs, n * sizeof *runs);
    for (uint32_t i = 0; i < n; i++)
        copy[i].refs = must_copy(runs[i].refs, runs[i].n * sizeof(struct page_ref));
    return copy;
}

static void keep_reply(struct rig *rig, const struct reply *reply)
{
    struct rig_reply *slot = &rig->replies[reply->request_id % RIG_REPLIES_MAX];

    if (slot->used && slot->reply.request_id == reply->request_id)
        rig_fail("request %llu answered twice", (unsigned long long)reply->request_id);
    if ((unsigned)reply->err >= TERN_ERR_COUNT || !reply->text)
        rig_fail("a reply without an error of the table or without a text");
    if (reply->err != TERN_OK && reply->text[0] == 0)
        rig_fail("%s, and nothing is said about it", err_name(reply->err));
    free_reply(slot);
    slot->used = true;
    slot->reply = *reply;
    slot->reply.runs = copy_runs(reply->runs, reply->nruns);
    if (reply->op == OP_STEP)
        slot->reply.step.results =
            must_copy(reply->step.results, reply->step.n * sizeof(struct op_result));
    if (reply->op == OP_RECORD_PREPARE && reply->record_prepare.body)
        slot->reply.record_prepare.body =
            must_copy(reply->record_prepare.body, sizeof(struct record_body));
    if (reply->op == OP_RECORD_GET)
        slot->reply.record_get.list =
            must_copy(reply->record_get.list, reply->record_get.n * sizeof(struct record_body));
    if (reply->op == OP_FETCH && reply->err == TERN_OK && reply->fetch.blob_bytes > 0)
        slot->reply.fetch.blob =
            must_copy(reply->fetch.blob, (reply->fetch.blob_bytes + 3) / 4 * 4);
    if (reply->op == OP_FETCH && reply->fetch.nhosts > 0)
        slot->reply.fetch.hosts =
            must_copy(reply->fetch.hosts, reply->fetch.nhosts * sizeof(uint32_t));
    if (reply->op == OP_BLOCKS && reply->blocks.nhosts > 0)
        slot->reply.blocks.hosts =
            must_copy(reply->blocks.hosts, reply->blocks.nhosts * sizeof(uint32_t));
    rig->last = &slot->reply;
    rig->replies_seen++;
}

static struct rig_job *add_job(struct rig *rig, enum rig_job_kind kind)
{
    struct rig_job *job = &rig->jobs[rig->njobs];

    if (rig->njobs == RIG_JOBS_MAX)
        rig_fail("more than %d jobs wait", RIG_JOBS_MAX);
    rig->njobs++;
    *job = (struct rig_job){.kind = kind};
    return job;
}

static void keep_msg(struct rig *rig, uint32_t link, const struct peer_msg *msg)
{
    struct rig_job *job;

    if (link >= RIG_LINKS_MAX || !rig->link[link].rig)
        rig_fail("the core sends on link %u, which is down", link);
    job = add_job(rig, RIG_MSG);
    job->link = link;
    job->msg = *msg;
    job->msg.runs = copy_runs(msg->runs, msg->nruns);
    job->msg.tokens = NULL;
    if (peer_msg_tokens(msg) > 0)
        job->msg.tokens = must_copy(msg->tokens, peer_msg_tokens(msg) * sizeof(uint32_t));
    job->msg.keys = msg->nkeys ? must_copy(msg->keys, msg->nkeys * sizeof(struct extra_key)) : NULL;
}

/* A page of a span: its bytes, and their offset in the span. */
struct rig_span_page {
    uint8_t *v;
    uint64_t at, bytes;
};

static void keep_pull(struct rig *rig, const struct action *act)
{
    struct rig_job *job = add_job(rig, RIG_PULL);
    uint32_t pages = 0;

    job->pull = act->pull.pull;
    job->serve = act->pull.serve;
    job->link = act->pull.link;
    job->pool = act->pull.pool;
    job->batch = act->pull.batch;
    job->resharded = act->pull.layout_hash != 0;
    job->n = act->pull.n;
    if (!job->n || job->n > PULL_BATCH_PAGES)
        rig_fail("a pull batch of %u pages", job->n);
    for (uint32_t i = 0; i < job->n; i++)
        pages += act->pull.spans ? act->pull.spans[i].pages : 1;
    job->pages = must_copy(act->pull.pages, pages * sizeof *job->pages);
    job->refs = must_copy(act->pull.refs, job->n * sizeof *job->refs);
    if (act->pull.spans)
        job->spans = must_copy(act->pull.spans, job->n * sizeof *job->spans);
    if (job->link == link_disk(&rig->options.limits))
        job->from = must_copy(act->pull.from, job->n * sizeof *job->from);
    rig->pages_in_flight += job->n;
    if (rig->pages_in_flight > rig->max_pages_in_flight)
        rig->max_pages_in_flight = rig->pages_in_flight;
}

static void keep_copy(struct rig *rig, const struct action *act)
{
    struct rig_job *job = add_job(rig, RIG_COPY);

    job->copy = act->copy.job;
    job->pool = act->copy.from_pool;
    job->to_pool = act->copy.to_pool;
    job->n = act->copy.n;
    if (!job->n || job->n > SEAL_PAGES_MAX)
        rig_fail("a copy job of %u pages", job->n);
    job->pages = must_copy(act->copy.from, job->n * sizeof *job->pages);
    job->to = must_copy(act->copy.to, job->n * sizeof *job->to);
}

static void keep_write(struct rig *rig, const struct disk_write *w)
{
    struct rig_job *job = add_job(rig, RIG_DISK_WRITE);

    if (w->nextents == 0 || w->nextents > DISK_WRITE_EXTENTS || w->npages > DISK_WRITE_PAGES)
        rig_fail("a file of %u extents and %u pages", w->nextents, w->npages);
    job->write = *w;
    job->write.extents = must_copy(w->extents, w->nextents * sizeof *w->extents);
    job->write.pages = w->npages ? must_copy(w->pages, w->npages * sizeof *w->pages) : NULL;
    job->write.tokens = w->ntokens ? must_copy(w->tokens, w->ntokens * sizeof *w->tokens) : NULL;
    job->write.keys = w->nkeys ? must_copy(w->keys, w->nkeys * sizeof *w->keys) : NULL;
}

static void start_serve(struct rig *rig, const struct action *act)
{
    uint32_t slot = act->serve.serve.slot % RIG_SERVES_MAX;

    rig->serve[slot].id = act->serve.serve;
    rig->serve[slot].pool = act->serve.pool;
    rig->serve[slot].live = true;
}

uint32_t rig_serve_pool(const struct rig *rig, struct serve_id serve)
{
    uint32_t slot = serve.slot % RIG_SERVES_MAX;

    return serve_id_equal(rig->serve[slot].id, serve) ? rig->serve[slot].pool : NONE;
}

static void take_action(struct rig *rig, const struct action *act)
{
    switch (act->kind) {
    case ACT_REPLY: keep_reply(rig, &act->reply); break;
    case ACT_CLOSE_CONN: rig->closes_seen++; break;
    case ACT_SEAL: {
        struct rig_job *job = add_job(rig, RIG_SEAL);

        if (act->seal.n > SEAL_PAGES_MAX)
            rig_fail("a seal job of %u pages", act->seal.n);
        job->seal = act->seal.job;
        job->pool = act->seal.pool;
        job->n = act->seal.n;
        job->pages = must_copy(act->seal.pages, job->n * sizeof *job->pages);
        break;
    }
    case ACT_ZERO: add_job(rig, RIG_ZERO)->zero = act->zero.pool; break;
    case ACT_RECORD_CHECK: add_job(rig, RIG_RECORD)->record = *act->record; break;
    case ACT_COPY: keep_copy(rig, act); break;
    case ACT_DISK_WRITE: keep_write(rig, &act->disk_write); break;
    case ACT_DISK_DROP: add_job(rig, RIG_DISK_DROP)->drop = act->disk_drop; break;
    case ACT_PEER_SEND: keep_msg(rig, act->peer.link, &act->peer.msg); break;
    case ACT_LINK_CLOSE: rig->link_closes++; break;
    case ACT_PULL: keep_pull(rig, act); break;
    case ACT_PULL_STOP: add_job(rig, RIG_PULL_STOP)->pull = act->pull_stop.pull; break;
    case ACT_SERVE_START: start_serve(rig, act); break;
    case ACT_SERVE_STOP: add_job(rig, RIG_SERVE_STOP)->serve = act->serve.serve; break;
    case ACT_ENGINE_GONE:
        rig->engines_gone++;
        rig->engine_gone = act->engine.engine;
        break;
    case ACT_ENGINE_STUCK: rig->engines_stuck++; break;
    case ACT_STEP_WANTED: rig->step_wanted = act->wanted.step; break;
    default: rig_fail("an action of kind %d", act->kind);
    }
}

/* Without work left over or time passed, the core has nothing to do. An action here was forgotten
 * before, and would have waited for an unrelated event. */
static void nothing_was_forgotten(struct rig *rig)
{
    struct event timer = {.kind = EV_TIMER, .now_ns = rig->now_ns};

    if (core_deadline(rig->core) <= rig->now_ns)
        return;
    if (rig->on_event)
        rig->on_event(rig->on_event_ctx, &timer);
    actions_init(rig->out, &rig->options.limits);
    core_step(rig->core, &timer, rig->out);
    if (rig->out->n > 0)
        rig_fail("an action of kind %d was forgotten", rig->out->v[0].kind);
}

static void one_event(struct rig *rig, const struct event *event)
{
    struct event e = *event;

    e.now_ns = rig->now_ns;
    if (rig->on_event)
        rig->on_event(rig->on_event_ctx, &e);
    actions_init(rig->out, &rig->options.limits);
    core_step(rig->core, &e, rig->out);
    if (core_steps_over(rig->core)->steps > 0 && rig->options.limits.step_visits == 0)
        rig_fail("a step looked at %u records", core_steps_over(rig->core)->visits);
    if (rig->out->n > ACTIONS_MAX)
        rig_fail("%u actions in one step", rig->out->n);
    for (uint32_t i = 0; i < rig->out->n; i++)
        take_action(rig, &rig->out->v[i]);
    if (rig->no_audit)
        return;
    nothing_was_forgotten(rig);
    oracle_audit(rig->core);
}

void rig_timers(struct rig *rig)
{
    struct event timer = {.kind = EV_TIMER};

    for (uint32_t i = 0; core_deadline(rig->core) <= rig->now_ns; i++) {
        if (i == TIMER_ROUNDS_MAX)
            rig_fail("the core's deadline stays in the past");
        one_event(rig, &timer);
    }
}

void rig_event(struct rig *rig, const struct event *event)
{
    one_event(rig, event);
    rig_timers(rig);
    rig_settle(rig);
}

void rig_advance(struct rig *rig, uint64_t ns)
{
    struct event timer = {.kind = EV_TIMER};

    rig->now_ns += ns;
    rig_event(rig, &timer);
}

uint32_t rig_jobs(const struct rig *rig, enum rig_job_kind kind)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < rig->njobs; i++)
        n += rig->jobs[i].kind == kind;
    return n;
}

struct rig_job *rig_job(struct rig *rig, enum rig_job_kind kind, uint32_t nth)
{
    for (uint32_t i = 0; i < rig->njobs; i++)
        if (rig->jobs[i].kind == kind && nth-- == 0)
            return &rig->jobs[i];
    return NULL;
}

static struct rig_job take_job(struct rig *rig, uint32_t at)
{
    struct rig_job job = rig->jobs[at];

    memmove(&rig->jobs[at], &rig->jobs[at + 1], (rig->njobs - at - 1) * sizeof job);
    rig->njobs--;
    if (job.kind == RIG_PULL)
        rig->pages_in_flight -= job.n;
    return job;
}

static bool find_job(const struct rig *rig, uint32_t kinds, uint32_t *ret_at)
{
    for (uint32_t i = 0; i < rig->njobs; i++)
        if (rig->jobs[i].kind & kinds) {
            *ret_at = i;
            return true;
        }
    return false;
}

void rig_drop(struct rig *rig, enum rig_job_kind kind)
{
    struct rig_job job;
    uint32_t at;

    if (!find_job(rig, kind, &at))
        rig_fail("no job of kind %d to drop", kind);
    job = take_job(rig, at);
    free_job(&job);
}

void rig_lose_messages(struct rig *rig, uint32_t link)
{
    for (uint32_t i = 0; i < rig->njobs; i++)
        if (rig->jobs[i].kind == RIG_MSG && rig->jobs[i].link == link) {
            struct rig_job job = take_job(rig, i--);

            free_job(&job);
        }
}

static void zero_pool(struct rig *rig, struct pool_id pool)
{
    struct pool_view v;

    if (!core_pool_view(rig->core, pool.slot, &v))
        rig_fail("zeroing a pool that is not there");
    if (v.tier == TIER_HOST)
        memset(rig->host[v.tenant] + v.offset, 0, v.bytes);
    for (uint32_t r = 0; r < v.regions && v.tier != TIER_HOST; r++)
        memset(rig_region(rig, v.tenant, v.region[r]) + v.offset, 0, v.bytes);
}

static uint64_t sum_of(struct rig *rig, uint32_t pool, const struct page_at *p)
{
    uint64_t bytes;
    const uint8_t *page = rig_page(rig, pool, p->group, p->index, &bytes);

    return hash_words(1, (const uint32_t *)(const void *)page, bytes / sizeof(uint32_t));
}

static void seal_pages(struct rig *rig, const struct rig_job *job)
{
    for (uint32_t i = 0; i < job->n; i++)
        rig->sums[job->pages[i].record] = sum_of(rig, job->pool, &job->pages[i]);
}

/* The seam's work for one copy: it copies bytes and checksums and verifies what was written. A copy
 * that fails leaves wrong bytes at the destination. */
static enum tern_err do_copy(struct rig *rig, const struct rig_job *job)
{
    enum tern_err err = TERN_OK;
    bool fails = rig->copies_to_fail > 0;
    struct pool_view to;

    oracle_audit_copy(rig->core, job->pages, job->to, job->n);
    for (uint32_t i = 0; i < job->n; i++) {
        uint64_t bytes, other;
        const uint8_t *source =
            rig_page(rig, job->pool, job->pages[i].group, job->pages[i].index, &bytes);
        uint8_t *page = rig_page(rig, job->to_pool, job->to[i].group, job->to[i].index, &other);

        if (bytes != other || job->to[i].group != job->pages[i].group)
            rig_fail("a copy between unlike pages");
        memcpy(page, source, bytes);
        if (fails)
            memset(page, 0xee, bytes);
        if (sum_of(rig, job->to_pool, &job->to[i]) != rig->sums[job->pages[i].record])
            err = TERN_CORRUPT;
        rig->sums[job->to[i].record] = rig->sums[job->pages[i].record];
    }
    if (!core_pool_view(rig->core, job->to_pool, &to))
        rig_fail("a copy into a pool that is not there");
    *(to.tier == TIER_HOST ? &rig->copies_back : &rig->copies_up) += 1;
    if (!fails)
        return err;
    rig->copies_to_fail--;
    return rig->copy_err;
}

/* Copies the bytes of a span that both pages have. */
static void copy_common(const struct rig_span_page *from, const struct rig_span_page *to)
{
    uint64_t first = from->at > to->at ? from->at : to->at, from_end = from->at + from->bytes,
             to_end = to->at + to->bytes, end = from_end < to_end ? from_end : to_end;

    if (end > first)
        memcpy(to->v + (first - to->at), from->v + (first - from->at), end - first);
}

/* Finds the pages of a span at both ends. Returns false if a page of the source is gone. */
static bool span_find(const struct rig_job *job, uint32_t i, const struct page_at *pages,
                      struct rig_move *io)
{
    const struct pull_span one = {.pages = 1, .n = 1}, *span = job->spans ? &job->spans[i] : &one;
    struct page_ref ref = job->refs[i];
    uint32_t record;

    io->group = pages->group;
    io->first = span->first;
    io->n = span->n;
    io->pages = span->pages;
    for (uint32_t k = 0; k < span->n; k++) {
        if ((k > 0 &&
             core_serve_next(io->from->core, job->serve, pages->group, ref, &ref) != TERN_OK) ||
            core_serve_page(io->from->core, job->serve, pages->group, ref, &record) != TERN_OK)
            return false;
        io->there[k] = ref.index;
    }
    for (uint32_t p = 0; p < span->pages; p++)
        io->here[p] = pages[p].index;
    return true;
}

/* Copies byte by byte: the source's pages follow one another. */
static void span_copy(const struct rig_move *m)
{
    for (uint32_t k = 0; k < m->n; k++) {
        struct rig_span_page from;

        from.v = rig_page(m->from, m->from_pool, m->group, m->there[k], &from.bytes);
        from.at = (m->first + k) * from.bytes;
        for (uint32_t p = 0; p < m->pages; p++) {
            struct rig_span_page to;

            to.v = rig_page(m->to, m->to_pool, m->group, m->here[p], &to.bytes);
            to.at = p * to.bytes;
            copy_common(&from, &to);
        }
    }
}

/* As in the data path: a page that the source refuses breaks its pull, even if others came. */
static void refused(const struct rig_job *job, struct event *event)
{
    *event =
        (struct event){.kind = EV_PULL_BROKEN, .broken = {.pull = job->pull, .err = TERN_GONE}};
}

static void do_spans(struct rig *rig, const struct rig_job *job, struct event *event)
{
    struct rig_move m = {.from = rig->link[job->link].rig, .to = rig, .to_pool = job->pool};
    const struct page_at *pages = job->pages;

    m.from_pool = m.from ? rig_serve_pool(m.from, job->serve) : NONE;
    for (uint32_t i = 0; i < job->n; pages += job->spans ? job->spans[i].pages : 1, i++) {
        if (m.from_pool == NONE || !span_find(job, i, pages, &m)) {
            refused(job, event);
            return;
        }
        if (rig->reshard)
            rig->reshard(&m);
        else
            span_copy(&m);
        if (rig->corrupt_pages) {
            rig->corrupt_pages--;
            continue;
        }
        rig->pulled_pages += m.pages;
        for (uint32_t p = 0; p < m.pages; p++)
            rig->sums[pages[p].record] = sum_of(rig, job->pool, &pages[p]);
        event->pulled.ok[i / 64] |= (uint64_t)1 << (i % 64);
    }
}

/* Copies a page of equal layout, in each rank's region. */
static void page_copy(const struct rig_move *m)
{
    const struct page_at there = {.group = m->group, .index = m->there[0]},
                         here = {.group = m->group, .index = m->here[0]};
    struct pool_view v;

    if (!core_pool_view(m->to->core, m->to_pool, &v))
        rig_fail("a page for pool %u, which is not there", m->to_pool);
    for (uint32_t r = 0; r < v.regions; r++) {
        uint64_t bytes, other;
        const uint8_t *from = rig_page_at(m->from, m->from_pool, r, there, &other);
        uint8_t *to = rig_page_at(m->to, m->to_pool, r, here, &bytes);

        if (other != bytes)
            rig_fail("unlike pages: %llu and %llu bytes", (unsigned long long)bytes,
                     (unsigned long long)other);
        memcpy(to, from, bytes);
    }
}

/* The seam's work for one batch: reports which pages arrived and are right. */
static void do_pull(struct rig *rig, const struct rig_job *job, struct event *event)
{
    struct rig *source = job->from ? NULL : rig->link[job->link].rig;
    uint32_t from_pool = source ? rig_serve_pool(source, job->serve) : NONE;

    if (job->spans || (job->resharded && rig->reshard)) {
        do_spans(rig, job, event);
        return;
    }
    for (uint32_t i = 0; i < job->n; i++) {
        uint32_t record, group = job->pages[i].group;
        uint64_t bytes;
        uint8_t *to = rig_page(rig, job->pool, group, job->pages[i].index, &bytes);

        if (from_pool == NONE ||
            core_serve_page(source->core, job->serve, group, job->refs[i], &record) != TERN_OK) {
            refused(job, event);
            return;
        }
        page_copy(&(struct rig_move){.from = source,
                                     .to = rig,
                                     .from_pool = from_pool,
                                     .to_pool = job->pool,
                                     .group = group,
                                     .there = {job->refs[i].index},
                                     .here = {job->pages[i].index}});
        rig->pulled_pages++;
        rig->pulled_bytes += bytes;
        if (rig->corrupt_pages &&
            (!rig->corrupt_group_index || rig->corrupt_group_index == job->pages[i].index)) {
            rig->corrupt_pages--;
            to[0] ^= 1;
            continue;
        }
        rig->sums[job->pages[i].record] = sum_of(rig, job->pool, &job->pages[i]);
        event->pulled.ok[i / 64] |= (uint64_t)1 << (i % 64);
    }
}

static void complete_at(struct rig *rig, uint32_t at)
{
    struct rig_job job = take_job(rig, at);
    struct event event = {.kind = EV_TIMER};
    struct rig *target = rig;

    switch (job.kind) {
    case RIG_SEAL:
        seal_pages(rig, &job);
        event = (struct event){.kind = EV_SEALED, .sealed = {.job = {job.seal}, .n = 1}};
        break;
    case RIG_ZERO:
        zero_pool(rig, job.zero);
        event = (struct event){.kind = EV_ZEROED, .zeroed.pool = job.zero};
        break;
    case RIG_COPY:
        event.kind = EV_COPIED;
        event.copied.job = job.copy;
        event.copied.err = do_copy(rig, &job);
        break;
    case RIG_PULL:
        event = (struct event){.kind = EV_PULLED, .pulled = {.pull = job.pull, .batch = job.batch}};
        if (job.from)
            spill_read(rig, &job, &event);
        else
            do_pull(rig, &job, &event);
        break;
    case RIG_DISK_WRITE:
        event = (struct event){.kind = EV_DISK_WRITTEN, .written.store = job.write.store};
        event.written.err = spill_write(rig, &job.write);
        break;
    case RIG_DISK_DROP:
        event = (struct event){.kind = EV_TIMER};
        if (spill_drop(rig->spill, &job.drop))
            event = (struct event){.kind = EV_DISK_DROPPED, .dropped.file = job.drop.place.file};
        break;
    case RIG_PULL_STOP:
        event = (struct event){.kind = EV_PULL_QUIET, .pull_quiet.pull = job.pull};
        for (uint32_t i = 0; i < rig->njobs; i++) /* a stopped pull completes no batch */
            if (rig->jobs[i].kind == RIG_PULL && pull_id_equal(rig->jobs[i].pull, job.pull)) {
                struct rig_job stale = take_job(rig, i--);

                free_job(&stale);
            }
        break;
    case RIG_SERVE_STOP:
        event = (struct event){.kind = EV_SERVE_QUIET, .serve_quiet.serve = job.serve};
        break;
    case RIG_RECORD:
        event.kind = EV_RECORD_CHECKED;
        record_check(&job.record, rig->records[job.record.tenant], mem_fault_bytes, &event.checked);
        break;
    case RIG_MSG:
        target = rig->link[job.link].rig;
        event = (struct event){.kind = EV_PEER_MSG,
                               .peer = {.link = rig->link[job.link].link, .msg = job.msg}};
        break;
    default: rig_fail("a job of kind %d", job.kind);
    }
    if (target) {
        one_event(target, &event);
        rig_timers(target);
    }
    free_job(&job);
}

void rig_complete(struct rig *rig, enum rig_job_kind kind)
{
    uint32_t at;

    if (!find_job(rig, kind, &at))
        rig_fail("no job of kind %d waits", kind);
    complete_at(rig, at);
    rig_settle(rig);
}

void rig_complete_seals(struct rig *rig, uint32_t n)
{
    struct event event = {.kind = EV_SEALED, .sealed.n = n};
    uint32_t at;

    for (uint32_t i = 0; i < n; i++) {
        struct rig_job job;

        if (!find_job(rig, RIG_SEAL, &at))
            rig_fail("%u checksum jobs wait, not %u", i, n);
        job = take_job(rig, at);
        seal_pages(rig, &job);
        event.sealed.job[i] = job.seal;
        free_job(&job);
    }
    rig_event(rig, &event);
}

void rig_complete_nth(struct rig *rig, enum rig_job_kind kind, uint32_t nth)
{
    struct rig_job *job = rig_job(rig, kind, nth);

    if (!job)
        rig_fail("no job of kind %d waits in place %u", kind, nth);
    complete_at(rig, (uint32_t)(job - rig->jobs));
    rig_settle(rig);
}

void rig_settle(struct rig *rig)
{
    uint32_t at;

    for (uint32_t round = 0; round < SETTLE_ROUNDS_MAX; round++) {
        bool moved = false;

        if (find_job(rig, rig->automatic, &at)) {
            complete_at(rig, at);
            moved = true;
        }
        for (uint32_t l = 0; l < RIG_LINKS_MAX; l++) {
            struct rig *other = rig->link[l].rig;

            if (other && find_job(other, other->automatic, &at)) {
                complete_at(other, at);
                moved = true;
            }
        }
        if (!moved)
            return;
    }
    rig_fail("the rig does not settle");
}
