/* A core by itself: see core_rig.h. Called by index.c, supersede.c and retention.c on one thread.
 * The rig adds nothing to a measured step except the search for the reply among at most ACTIONS_MAX
 * actions. */
#include "core_rig.h"

#include <stdlib.h>
#include <string.h>

#include "engine/stats.h"
#include "testing/secret.h"

#define PAGE_BYTES   4096
#define SETTLE_LIMIT 100000
#define SEAL_JOBS    64

static const struct namespace_id ns = {.hi = 1, .lo = 2};

static struct core_limits limits_for(uint32_t pages, const struct core_rig_records *records)
{
    return (struct core_limits){
        .tenants = 1,
        .conns = 4,
        .engines = 2,
        .pools = 2,
        .sessions = records->sessions,
        .nodes = pages + 64,
        .namespaces = 4,
        .token_blocks = 4 * pages + 4096,
        .extra_keys = 64,
        .pages = pages,
        .slabs = pages,
        .retires = 1024,
        .turn_records = records->records,
        .record_pages = records->pages,
        .record_jobs = 4,
        .resets = 64,
        .links = 2,
        .peers = 1,
        .pulls = 2,
        .serves = 2,
        .seal_jobs = SEAL_JOBS,
        .copy_jobs = 16,
        .events = 64,
        .sums_per_page = 1,
        .peer_bytes_in_flight = 1u << 20,
        .tenant_bytes_in_flight = 1u << 20,
        .transfer_deadline_ns = 1000000000u,
        .ticket_deadline_ns = 1000000000u,
        .busy_retry_ms = 1,
    };
}

const struct reply *core_rig_ask(struct core_rig *rig, struct request *request)
{
    struct event event = {.kind = EV_REQUEST, .now_ns = ++rig->now_ns};

    request->request_id = ++rig->request_id;
    event.request = *request;
    core_step(rig->core, &event, rig->out);
    for (uint32_t i = 0; i < rig->out->n; i++) {
        if (rig->out->v[i].kind == ACT_REPLY && rig->out->v[i].reply.request_id == rig->request_id)
            return &rig->out->v[i].reply;
    }
    return NULL;
}

/* The seals that the last step began. */
static uint32_t seals_begun(const struct core_rig *rig, struct seal_id *jobs, uint32_t n)
{
    for (uint32_t i = 0; i < rig->out->n; i++) {
        if (rig->out->v[i].kind == ACT_SEAL)
            jobs[n++] = rig->out->v[i].seal.job;
    }
    return n;
}

void core_rig_settle(struct core_rig *rig)
{
    struct seal_id jobs[SEAL_JOBS];
    uint32_t njobs = seals_begun(rig, jobs, 0);

    for (uint32_t round = 0; round < SETTLE_LIMIT; round++) {
        struct event event = {.kind = EV_TIMER, .now_ns = ++rig->now_ns};

        if (njobs > 0) {
            event.kind = EV_SEALED;
            event.sealed.job[0] = jobs[--njobs];
            event.sealed.n = 1;
        } else if (core_deadline(rig->core) > rig->now_ns) {
            return;
        }
        core_step(rig->core, &event, rig->out);
        njobs = seals_begun(rig, jobs, njobs);
    }
}

bool core_rig_open(struct core_rig *rig, struct session_id *ret_session)
{
    struct request open = {.op = OP_SESSION_OPEN, .session_open = {.pool = rig->pool, .ns = ns}};
    const struct reply *r = core_rig_ask(rig, &open);

    if (!r || r->err != TERN_OK)
        return false;
    *ret_session = r->session_open.session;
    return true;
}

bool core_rig_close(struct core_rig *rig, struct session_id session)
{
    struct step_op op = {.kind = STEP_CLOSE, .session = session};
    struct request step = {.op = OP_STEP, .step = {.ops = &op, .n = 1}};
    const struct reply *r = core_rig_ask(rig, &step);
    bool ok = r && r->err == TERN_OK && r->step.n == 1 && r->step.results[0].err == TERN_OK;

    core_rig_settle(rig);
    return ok;
}

bool core_rig_turn(struct core_rig *rig, struct session_id session, const uint32_t *tokens,
                   uint32_t from, uint32_t to, double *ret_us)
{
    struct req_tokens appended = {.v = tokens + from, .n = to - from, .base = from};
    struct step_op ops[] = {
        {.kind = STEP_EXTEND, .session = session, .length = to, .written = to, .tokens = appended},
        {.kind = STEP_COMMIT, .session = session, .length = to},
    };
    struct request step = {.op = OP_STEP, .step = {.ops = ops, .n = 2}};
    uint64_t start = clock_ns();
    const struct reply *r = core_rig_ask(rig, &step);
    uint32_t got = 0;

    *ret_us = (double)(clock_ns() - start) / 1e3;
    /* A long commit runs in pieces, and is repeated as libtern does. */
    while (r && r->err == TERN_OK && r->step.results[r->step.n - 1].err == TERN_BUSY &&
           r->step.results[r->step.n - 1].lengths.committed > got) {
        got = r->step.results[r->step.n - 1].lengths.committed;
        step.step.ops = &ops[1];
        step.step.n = 1;
        core_rig_settle(rig);
        start = clock_ns();
        r = core_rig_ask(rig, &step);
        *ret_us += (double)(clock_ns() - start) / 1e3;
    }
    return r && r->err == TERN_OK && r->step.results[r->step.n - 1].err == TERN_OK &&
           r->step.results[r->step.n - 1].lengths.committed == to;
}

bool core_rig_evict(struct core_rig *rig)
{
    struct request evict = {.op = OP_EVICT, .conn = CORE_RIG_ADMIN, .evict.pool.slot = NONE};
    const struct reply *r = core_rig_ask(rig, &evict);
    struct pool_view pool;

    if (r && r->err != TERN_OK) /* a long operation is answered later */
        return false;
    core_rig_settle(rig);
    return core_pool_view(rig->core, rig->pool.slot, &pool) && pool.nodes == 0;
}

static bool set_up(struct core_rig *rig, const struct req_pool_open *layout, uint32_t pages)
{
    struct event opened = {.kind = EV_CONN_OPENED, .now_ns = ++rig->now_ns};
    struct event admin = {.kind = EV_CONN_OPENED,
                          .now_ns = ++rig->now_ns,
                          .conn = {.conn = CORE_RIG_ADMIN, .proc = 1, .admin = true}};
    struct request join = {.op = OP_ENGINE_JOIN,
                           .join = {.name = "bench", .role = ROLE_BOTH, .world = 1}};
    struct request open = {.op = OP_POOL_OPEN, .pool_open = *layout};
    const struct reply *r;

    open.pool_open.bytes = (uint64_t)pages * PAGE_BYTES;
    for (uint32_t g = 0; g < layout->ngroups; g++) {
        open.pool_open.group[g].units = 1;
        open.pool_open.group[g].page_bytes = PAGE_BYTES;
    }
    core_step(rig->core, &opened, rig->out);
    core_step(rig->core, &admin, rig->out);
    r = core_rig_ask(rig, &join);
    if (!r || r->err != TERN_OK)
        return false;
    r = core_rig_ask(rig, &open);
    if (!r || r->err != TERN_OK)
        return false;
    rig->pool = r->pool_open.pool;
    core_rig_settle(rig);
    return true;
}

bool core_rig_init(struct core_rig *rig, const struct req_pool_open *open, uint32_t pages)
{
    static const struct core_rig_records none = {.sessions = 16, .records = 64};

    return core_rig_init_records(rig, open, pages, &none);
}

bool core_rig_init_records(struct core_rig *rig, const struct req_pool_open *open, uint32_t pages,
                           const struct core_rig_records *records)
{
    struct core_limits limits = limits_for(pages, records);
    struct tenant_config tenant = {.memory_bytes = (uint64_t)pages * PAGE_BYTES,
                                   .record_bytes = (uint64_t)records->pages * RECORD_PAGE_BYTES,
                                   .regions = 1,
                                   .sessions_max = limits.sessions};
    struct hash_secret secret = secret_from(1);
    size_t bytes;

    *rig = (struct core_rig){.now_ns = 1};
    if (core_size(&limits, &bytes) != TERN_OK)
        return false;
    bytes = (bytes + 63) & ~(size_t)63;
    rig->mem = aligned_alloc(64, bytes);
    rig->out = calloc(1, actions_bytes(&limits));
    if (!rig->mem || !rig->out)
        return false;
    actions_init(rig->out, &limits);
    memset(rig->mem, 0, bytes);
    rig->core = core_init(rig->mem, &limits, &tenant, 1, &secret);
    return set_up(rig, open, pages);
}

void core_rig_finish(struct core_rig *rig)
{
    free(rig->mem);
    free(rig->out);
}
