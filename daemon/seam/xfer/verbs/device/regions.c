/* Registers host memory that devices may touch; regions_far.c registers GPU memory, and bounce.c
 * its rings. On each rail every tenant has its own protection domain, so that a key opens one
 * tenant's memory only. The memory is registered there once, at start: for memory windows if peers
 * write to us, and never for remote access to all of it. Several threads register large memory and
 * end before memory_register returns. Called by rail.c. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "seam/own_threads.h"
#include "seam/xfer/verbs/verbs.h"

#define MR_ALIGN (2u << 20)

static uint64_t memory_of(const struct verbs *v, uint32_t tenant)
{
    uint64_t bytes, all = 0;

    for (uint32_t r = 0; r < mem_region_count(v->xfer->config.mem, tenant); r++) {
        mem_region_base(v->xfer->config.mem, tenant, r, &bytes);
        all += bytes;
    }
    return all;
}

bool memory_lockable(struct verbs *v, char *ret_why, size_t cap)
{
    xfer_memlock(v->xfer, &v->view);
    if (v->view.memlock_exempt || v->view.memlock_bytes >= v->view.memlock_needed)
        return true;
    snprintf(ret_why, cap,
             "RLIMIT_MEMLOCK is %llu bytes and registrations need %llu: set ulimit -l unlimited, "
             "LimitMEMLOCK=infinity in the service, or --ulimit memlock=-1 for a container",
             (unsigned long long)v->view.memlock_bytes, (unsigned long long)v->view.memlock_needed);
    return false;
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + MR_ALIGN - 1) / MR_ALIGN * MR_ALIGN;
}

/* Returns the size of one registration: what the device takes, but small enough for all threads. */
static uint64_t mr_bytes(const struct verbs *v, const struct verbs_rail *rail, uint32_t tenant)
{
    uint64_t most = rail->view.max_mr_bytes, asked = v->xfer->config.rdma.mr_bytes_max;
    uint64_t share = round_up(memory_of(v, tenant) / VERBS_REGISTER_THREADS);

    if (rail->domain[tenant].far)
        share = UINT64_MAX; /* its pages are not looked up one by one */
    if (share < VERBS_REGISTER_BYTES)
        share = VERBS_REGISTER_BYTES;
    if (asked > 0 && asked < most)
        most = asked;
    if (most > MR_ALIGN)
        most -= most % MR_ALIGN;
    return share < most ? share : most;
}

static bool cut_tenant(struct verbs *v, struct verbs_rail *rail, uint32_t tenant, char *ret_why,
                       size_t cap)
{
    struct verbs_domain *d = &rail->domain[tenant];
    uint64_t bytes, most = mr_bytes(v, rail, tenant);

    for (uint32_t r = 0; r < mem_region_count(v->xfer->config.mem, tenant); r++) {
        uint8_t *base = mem_region_base(v->xfer->config.mem, tenant, r, &bytes);

        for (uint64_t at = 0; at < bytes; at += most) {
            if (d->n == XFER_MRS_MAX) {
                snprintf(ret_why, cap,
                         "a tenant's memory takes more than %u registrations of %llu bytes",
                         XFER_MRS_MAX, (unsigned long long)most);
                return false;
            }
            d->mr[d->n++] = (struct verbs_mr){.region = r,
                                              .offset = at,
                                              .bytes = bytes - at < most ? bytes - at : most,
                                              .base = base + at};
        }
    }
    return true;
}

/* ------------------------------------------------------------------ registering */

/* Host memory while threads register it: each thread takes the next piece. */
struct registering {
    struct verbs *v;
    struct verbs_rail *rail;
    int access;
    uint32_t n, threads;
    uint64_t all, start_ns;
    atomic_uint next, running;
    atomic_ullong done; /* bytes */
    atomic_int failed;  /* errno of a failed piece */
    atomic_ullong failed_bytes;
};

static struct verbs_mr *piece_at(const struct registering *r, uint32_t k, struct ibv_pd **ret_pd)
{
    const struct verbs_rail *rail = r->rail;
    uint32_t t = 0;

    for (; rail->domain[t].far || k >= rail->domain[t].n; t++)
        k -= rail->domain[t].far ? 0 : rail->domain[t].n;
    *ret_pd = rail->domain[t].pd;
    return &rail->domain[t].mr[k];
}

static void register_next(struct registering *r)
{
    uint32_t k = atomic_fetch_add(&r->next, 1);
    struct verbs_mr *mr;
    struct ibv_pd *pd;

    if (k >= r->n)
        return;
    mr = piece_at(r, k, &pd);
    mr->mr = (ibv_reg_mr)(pd, mr->base, mr->bytes, r->access); /* the function: the macro does not
                                                                  compile with -Wsign-conversion */
    if (mr->mr) {
        atomic_fetch_add(&r->done, mr->bytes);
        return;
    }
    atomic_store(&r->failed_bytes, mr->bytes);
    atomic_store(&r->failed, errno ? errno : EIO);
}

static bool more_to_register(const struct registering *r)
{
    return atomic_load(&r->failed) == 0 && atomic_load(&r->next) < r->n;
}

static void *register_thread(void *ctx)
{
    struct registering *r = ctx;

    while (more_to_register(r))
        register_next(r);
    atomic_fetch_sub(&r->running, 1);
    return NULL;
}

static void tell(struct registering *r, uint64_t *last_ns)
{
    const struct xfer_config *c = &r->v->xfer->config;
    uint64_t now = io_now_ns(), done = atomic_load(&r->done);

    if (!c->rdma.progress || (done < r->all && now - *last_ns < VERBS_REGISTER_TELL_NS))
        return;
    *last_ns = now;
    c->rdma.progress(c->ctx, r->rail->view.device, done, r->all, r->threads, now - r->start_ns);
}

/* Fewer threads than requested suffice: whichever runs takes the next piece. */
static uint32_t start_threads(struct registering *r, pthread_t *thread)
{
    uint32_t n = 0;

    atomic_store(&r->running, r->threads);
    while (n < r->threads && own_thread_start(&thread[n], register_thread, r) == 0)
        n++;
    atomic_fetch_sub(&r->running, r->threads - n);
    return n;
}

static void register_all(struct registering *r)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    pthread_t thread[VERBS_REGISTER_THREADS];
    uint64_t last_ns = r->start_ns;
    uint32_t n = r->threads > 1 ? start_threads(r, thread) : 0;

    r->threads = n > 0 ? n : 1;
    while (n > 0 && atomic_load(&r->running) > 0) {
        nanosleep(&pause, NULL);
        if (atomic_load(&r->done) < r->all)
            tell(r, &last_ns);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    while (more_to_register(r)) {
        register_next(r);
        if (atomic_load(&r->done) < r->all)
            tell(r, &last_ns);
    }
    if (atomic_load(&r->failed) == 0)
        tell(r, &last_ns);
}

static uint32_t register_threads(uint64_t bytes)
{
    uint64_t n = bytes / VERBS_REGISTER_BYTES;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    n = n < VERBS_REGISTER_THREADS ? n : VERBS_REGISTER_THREADS;
    return cpus > 0 && n > (uint64_t)cpus ? (uint32_t)cpus : (uint32_t)n;
}

/* Makes the domains, cuts their memory into pieces and counts the host's. */
static bool open_domains(struct verbs *v, struct verbs_rail *rail, struct registering *r,
                         char *ret_why, size_t cap)
{
    rail->domain = calloc(v->tenants, sizeof *rail->domain);
    for (uint32_t t = 0; t < v->tenants; t++) {
        if (rail->domain)
            rail->domain[t].pd = ibv_alloc_pd(rail->ctx);
        if (!rail->domain || !rail->domain[t].pd) {
            snprintf(ret_why, cap, "no protection domain can be made: %s", strerror(errno));
            return false;
        }
        rail->domain[t].far = mem_region_device(v->xfer->config.mem, t, 0, NULL, NULL) != NULL;
        if (!cut_tenant(v, rail, t, ret_why, cap))
            return false;
        r->n += rail->domain[t].far ? 0 : rail->domain[t].n;
        r->all += rail->domain[t].far ? 0 : memory_of(v, t);
    }
    return true;
}

bool memory_register(struct verbs *v, struct verbs_rail *rail, char *ret_why, size_t cap)
{
    const struct xfer_rdma_config *c = &v->xfer->config.rdma;
    bool windows = c->pulls > 0 && rail->view.memory_windows;
    int access = windows ? (int)IBV_ACCESS_LOCAL_WRITE | (int)IBV_ACCESS_MW_BIND : 0;
    struct registering r = {.v = v, .rail = rail, .access = access, .start_ns = io_now_ns()};

    if (!open_domains(v, rail, &r, ret_why, cap))
        return false;
    r.threads = register_threads(r.all);
    if (r.n > 0)
        register_all(&r);
    if (atomic_load(&r.failed) != 0) {
        snprintf(ret_why, cap, "%llu bytes cannot be registered: %s%s",
                 (unsigned long long)atomic_load(&r.failed_bytes), strerror(atomic_load(&r.failed)),
                 atomic_load(&r.failed) == ENOMEM
                     ? ": raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=)"
                     : "");
        return false;
    }
    rail->view.registrations = r.n;
    rail->view.registered_bytes = r.all;
    for (uint32_t t = 0; t < v->tenants; t++)
        if (rail->domain[t].far)
            memory_register_far(v, rail, t);
    return true;
}

void memory_close(struct verbs *v, struct verbs_rail *rail)
{
    for (uint32_t t = 0; rail->domain && t < v->tenants; t++) {
        struct verbs_domain *d = &rail->domain[t];

        for (uint32_t i = 0; i < d->n; i++)
            if (d->mr[i].mr)
                (void)ibv_dereg_mr(d->mr[i].mr); /* fails if the device is lost */
        if (d->ring.mr)
            (void)ibv_dereg_mr(d->ring.mr);
        if (d->pd)
            ibv_dealloc_pd(d->pd);
    }
    free(rail->domain);
    rail->domain = NULL;
}

bool memory_leaves(const struct verbs *v, uint32_t pool)
{
    return v->nrails > 0 && v->xfer->config.rdma.serves &&
           mem_place(v->xfer->config.mem, pool)->tier == TIER_DEVICE && !memory_far_lost(v, pool);
}

const struct verbs_mr *local_mr(const struct verbs_domain *d, const uint8_t *at)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (at >= d->mr[i].base && (uint64_t)(at - d->mr[i].base) < d->mr[i].bytes)
            return &d->mr[i];
    return NULL;
}
