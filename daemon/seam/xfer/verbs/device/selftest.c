/* The self-test of a rail, at start. Each pair of a region and the device moves known bytes in the
 * ways that pages will move, by RDMA between two queue pairs of the device, and compares them. The
 * test detects a registration that succeeded over a bus that carries nothing or wrong bytes, before
 * any page depends on it. Called by rail.c when the rail's memory is registered; qp.c makes the
 * queue pairs.
 *
 * Invariants:
 * - The test runs before "ready", on its own thread, which has ended when self_test returns: no
 *   engine or peer exists yet, and after the start the owner never waits for the test.
 * - The test touches no page that anybody can hold, now or later: only the bytes of index 0 of a
 *   region (mem_unheld_bytes), the first slot of a ring, which is not taken before peers exist, and
 *   its own memory. So a late write of a device that does not destroy a queue pair hits nobody: the
 *   test's own memory is not freed then, and that slot is never taken.
 * - The test opens nothing: it uses keys to tenants' memory that are registered anyway, and windows
 *   of 4 KiB that it closes again. Its own memory stands in for a peer's memory.
 * - Before memory is blamed, the same moves run between two buffers of the test. If they are not
 *   possible (for instance, the device has no loopback), the memory remains untested: it is used as
 *   if there were no test, and operators are informed. If they are possible, a pair that fails is
 *   not used. If only memory windows fail on host memory, the device is used as one without windows
 *   (view.memory_windows); if a ring fails, its tenant has no ring with that device.
 * - Once memory of a GPU has failed with a device, no other GPU's memory is used with it untested.
 * - Each work request has a deadline. After the rail's deadline no test of a pair begins. */
#include "seam/xfer/verbs/verbs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "base/prng.h"
#include "seam/mem/mem_touch.h"
#include "seam/own_threads.h"

struct self_test {
    struct verbs *v; /* borrowed, and so is the next */
    struct verbs_rail *rail;
    uint64_t until_ns;
    struct prng random;
    bool gpu_failed;                /* some GPU's memory failed with this device */
    bool stuck;                     /* a queue pair cannot be destroyed: it may still write */
    char none[XFER_SELF_TEST_TEXT]; /* why testing of the device stopped; "": it did not */
};

/* Memory to test, and how the device may touch it. */
struct place {
    const struct verbs_mr *mr;
    uint8_t *at;   /* in it */
    uint8_t *page; /* of a ring: the GPU's memory that its bytes are copied to; NULL: not a ring */
    bool windows;
};

enum end { ASKS, ANSWERS, ENDS }; /* the queue pair that posts; the one whose memory is used */

/* Two queue pairs connected to each other, and two buffers: the known bytes, and the bytes that
 * return. */
struct loop {
    struct self_test *t;
    struct ibv_pd *pd;
    struct ibv_cq *cq;       /* owned, and so are those that follow */
    struct ibv_qp *qp[ENDS]; /* by enum end */
    struct ibv_mw *mw;
    struct ibv_mr *mr;
    uint8_t *known, *back;
    uint32_t bytes; /* of each */
    /* The result to record if a work request fails. */
    enum xfer_self_test_result broken;
    struct xfer_self_test *test;
};

/* Records a result. Always returns false. */
__attribute__((format(printf, 3, 4))) static bool
ends(struct loop *l, enum xfer_self_test_result result, const char *format, ...)
{
    va_list args;

    l->test->result = result;
    va_start(args, format);
    vsnprintf(l->test->why, sizeof l->test->why, format, args);
    va_end(args);
    return false;
}

/* ------------------------------------------------------------------ the loop */

static bool loop_memory(struct loop *l)
{
    void *at = mmap(NULL, XFER_SELF_TEST_SCRATCH, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return ends(l, XFER_SELF_TEST_NOT_POSSIBLE, "mmap: %s", strerror(errno));
    l->known = at;
    l->back = l->known + XFER_SELF_TEST_SCRATCH / 2;
    l->mr = (ibv_reg_mr)(l->pd, l->known, XFER_SELF_TEST_SCRATCH,
                         (int)IBV_ACCESS_LOCAL_WRITE | (int)IBV_ACCESS_REMOTE_WRITE |
                             (int)IBV_ACCESS_REMOTE_READ);
    if (!l->mr)
        return ends(l, XFER_SELF_TEST_NOT_POSSIBLE, "ibv_reg_mr of %u bytes: %s",
                    XFER_SELF_TEST_SCRATCH, strerror(errno));
    return true;
}

static bool loop_connect(struct loop *l, const struct qp_endpoint *end)
{
    const char *what = "";

    for (uint32_t i = 0; i < ENDS; i++) {
        int rc = qp_connect(l->t->rail, l->qp[i], &end[i], &end[!i], &what);

        if (rc)
            return ends(l, XFER_SELF_TEST_NOT_POSSIBLE,
                        "%s, connected to one of the same device: %s", what, strerror(rc));
    }
    return true;
}

static bool loop_open(struct loop *l)
{
    const struct verbs_rail *rail = l->t->rail;
    struct qp_endpoint end[ENDS];
    const char *what = "";

    if (!loop_memory(l))
        return false;
    l->cq = ibv_create_cq(rail->ctx, ENDS * 4, NULL, NULL, 0);
    if (!l->cq)
        return ends(l, XFER_SELF_TEST_NOT_POSSIBLE, "ibv_create_cq: %s", strerror(errno));
    for (uint32_t i = 0; i < ENDS; i++) {
        struct qp_wish wish = {.pd = l->pd, .cq = l->cq, .sends = 4};
        int rc;

        if (i == ANSWERS)
            wish.access = (unsigned)IBV_ACCESS_REMOTE_WRITE | (unsigned)IBV_ACCESS_REMOTE_READ;
        rc = qp_make(rail, &wish, &l->qp[i], &what);
        if (rc)
            return ends(l, XFER_SELF_TEST_NOT_POSSIBLE, "%s: %s", what, strerror(rc));
        end[i] = (struct qp_endpoint){.qpn = l->qp[i]->qp_num,
                                      .psn = (uint32_t)prng_u64(&l->t->random) & 0xffffffu,
                                      .mtu = rail->mtu,
                                      .lid = rail->lid,
                                      .gid = rail->gid};
    }
    return loop_connect(l, end);
}

/* Returns 0, or the errno of the first failure, and then stops there. A window must be freed before
 * its pair. */
static int loop_quiet(struct loop *l)
{
    int rc = l->mw ? ibv_dealloc_mw(l->mw) : 0;

    for (uint32_t i = 0; rc == 0 && i < ENDS; i++)
        rc = l->qp[i] ? ibv_destroy_qp(l->qp[i]) : 0;
    return rc;
}

/* Returns false if the device may still write. */
static bool loop_close(struct loop *l)
{
    int rc = loop_quiet(l);

    l->t->stuck = l->t->stuck || rc != 0;
    if (rc)
        return ends(l, XFER_SELF_TEST_FAILED, "a queue pair cannot be destroyed: %s", strerror(rc));
    if (l->cq)
        ibv_destroy_cq(l->cq);
    if (l->mr)
        (void)ibv_dereg_mr(l->mr); /* fails if the device is lost */
    if (l->known)
        munmap(l->known, XFER_SELF_TEST_SCRATCH);
    return true;
}

/* ------------------------------------------------------------------ one move */

/* Fills in new known bytes, and their complement in `back`. */
static void renew(struct loop *l)
{
    for (uint32_t i = 0; i < l->bytes; i += sizeof(uint64_t)) {
        uint64_t word = prng_u64(&l->t->random);
        uint32_t n = l->bytes - i < sizeof word ? l->bytes - i : (uint32_t)sizeof word;

        memcpy(l->known + i, &word, n);
    }
    for (uint32_t i = 0; i < l->bytes; i++)
        l->back[i] = (uint8_t)~l->known[i];
}

static bool same(struct loop *l, const uint8_t *got, const char *what)
{
    for (uint32_t i = 0; i < l->bytes; i++)
        if (got[i] != l->known[i])
            return ends(l, XFER_SELF_TEST_FAILED, "%s: byte %u of %u is 0x%02x in place of 0x%02x",
                        what, i, l->bytes, got[i], l->known[i]);
    l->test->bytes += l->bytes;
    return true;
}

static bool posted(struct loop *l, enum end by, struct ibv_send_wr *wr, const char *what)
{
    const struct timespec pause = {.tv_nsec = VERBS_TEST_POLL_NS};
    uint64_t begun = io_now_ns(), since;
    struct ibv_send_wr *bad;
    struct ibv_wc wc;
    int n, rc;

    wr->send_flags = IBV_SEND_SIGNALED;
    rc = ibv_post_send(l->qp[by], wr, &bad);
    if (rc)
        return ends(l, l->broken, "%s: ibv_post_send: %s", what, strerror(rc));
    while ((n = ibv_poll_cq(l->cq, 1, &wc)) == 0) {
        since = io_now_ns() - begun;
        if (since >= VERBS_TEST_NS)
            return ends(l, l->broken, "%s: no completion within %llu ms", what,
                        VERBS_TEST_NS / 1000000ull);
        if (since >= VERBS_SPIN_NS)
            nanosleep(&pause, NULL);
    }
    if (n < 0)
        return ends(l, l->broken, "%s: ibv_poll_cq failed", what);
    if (wc.status != IBV_WC_SUCCESS)
        return ends(l, l->broken, "%s: %s", what, ibv_wc_status_str(wc.status));
    return true;
}

/* ASKS moves the bytes between `local` and `remote`, which `rkey` opens. */
static bool moved(struct loop *l, enum ibv_wr_opcode opcode, const void *local, uint32_t lkey,
                  const void *remote, uint32_t rkey, const char *what)
{
    struct ibv_sge sge = {.addr = (uintptr_t)local, .length = l->bytes, .lkey = lkey};
    struct ibv_send_wr wr = {.opcode = opcode, .sg_list = &sge, .num_sge = 1};

    wr.wr.rdma.remote_addr = (uintptr_t)remote;
    wr.wr.rdma.rkey = rkey;
    return posted(l, ASKS, &wr, what);
}

/* Compares what ASKS wrote to `back`. A completed write does not prove that its bytes are visible;
 * a later read of these bytes does. */
static bool came_back(struct loop *l, const char *what)
{
    bool read = memcmp(l->back, l->known, l->bytes) == 0 ||
                moved(l, IBV_WR_RDMA_READ, l->back, l->mr->lkey, l->back, l->mr->rkey, what);

    return same(l, l->back, what) && read;
}

/* Moves bytes between the two buffers, both ways. A failure here is not the memory's fault. */
static bool loop_works(struct loop *l)
{
    static const char into[] = "RDMA write in loopback, between buffers of the daemon",
                      from[] = "RDMA read in loopback, between buffers of the daemon";

    renew(l);
    if (!moved(l, IBV_WR_RDMA_WRITE, l->known, l->mr->lkey, l->back, l->mr->rkey, into) ||
        !came_back(l, into))
        return false;
    renew(l);
    return moved(l, IBV_WR_RDMA_READ, l->back, l->mr->lkey, l->known, l->mr->rkey, from) &&
           same(l, l->back, from);
}

/* ------------------------------------------------------------------ the memory */

static bool gone(struct loop *l)
{
    return ends(l, XFER_SELF_TEST_NOT_POSSIBLE,
                "the daemon itself cannot reach the memory: its GPU is lost, or the machine has "
                "lost that memory");
}

/* Compares what the device wrote to the place with the known bytes. */
static bool landed(struct loop *l, const struct place *p, const char *what)
{
    const struct mem *mem = l->t->v->xfer->config.mem;

    if (p->page && !mem_put(mem, p->page, p->at, l->bytes))
        return gone(l);
    return mem_get(mem, l->back, p->page ? p->page : p->at, l->bytes) ? same(l, l->back, what)
                                                                      : gone(l);
}

/* Puts new known bytes into the place. */
static bool put(struct loop *l, const struct place *p)
{
    const struct mem *mem = l->t->v->xfer->config.mem;

    renew(l);
    return mem_put(mem, p->at, l->known, l->bytes) || gone(l);
}

/* Writes as peers push: through a window, which is closed before the bytes are compared. */
static bool is_written_in(struct loop *l, const struct place *p)
{
    static const char what[] = "RDMA write into the tested memory through a memory window";
    struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW}, close = {.opcode = IBV_WR_LOCAL_INV};

    renew(l);
    l->mw = ibv_alloc_mw(l->pd, IBV_MW_TYPE_2);
    if (!l->mw)
        return ends(l, l->broken, "%s: ibv_alloc_mw: %s", what, strerror(errno));
    bind.bind_mw.mw = l->mw;
    bind.bind_mw.rkey = ibv_inc_rkey(l->mw->rkey);
    bind.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = p->mr->mr,
                                                       .addr = (uintptr_t)p->at,
                                                       .length = l->bytes,
                                                       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    close.invalidate_rkey = bind.bind_mw.rkey;
    return posted(l, ANSWERS, &bind, "bind of a memory window over the tested memory") &&
           moved(l, IBV_WR_RDMA_WRITE, l->known, l->mr->lkey, p->at, bind.bind_mw.rkey, what) &&
           posted(l, ANSWERS, &close, "close of a memory window over the tested memory") &&
           landed(l, p, what);
}

static bool is_written_out(struct loop *l, const struct place *p)
{
    static const char what[] = "RDMA write from the tested memory";

    return put(l, p) &&
           moved(l, IBV_WR_RDMA_WRITE, p->at, p->mr->mr->lkey, l->back, l->mr->rkey, what) &&
           came_back(l, what);
}

/* Clears the random bytes. */
static void wipe(const struct mem *mem, const struct place *p, uint32_t bytes)
{
    static const uint8_t zero[XFER_SELF_TEST_SCRATCH / 2];

    (void)mem_put(mem, p->page ? p->page : p->at, zero, bytes);
    if (p->page)
        memset(p->at, 0, bytes);
}

/* ------------------------------------------------------------------ pairs */

static void place_test(struct self_test *t, struct ibv_pd *pd, const struct place *p,
                       struct xfer_self_test *ret)
{
    const struct mem *mem = t->v->xfer->config.mem;
    uint64_t most = mem_unheld_bytes(mem);
    struct loop l = {.t = t,
                     .pd = pd,
                     .bytes = most < XFER_SELF_TEST_SCRATCH / 2 ? (uint32_t)most
                                                                : XFER_SELF_TEST_SCRATCH / 2,
                     .broken = XFER_SELF_TEST_NOT_POSSIBLE,
                     .test = ret};

    *ret = (struct xfer_self_test){.at_ns = io_now_ns()};
    if (!t->none[0] && ret->at_ns >= t->until_ns)
        snprintf(t->none, sizeof t->none, "the tests of this device took longer than %llu ms",
                 VERBS_TEST_RAIL_NS / 1000000ull);
    if (t->none[0]) {
        ends(&l, XFER_SELF_TEST_NOT_POSSIBLE, "%s", t->none);
        return;
    }
    if (!loop_open(&l) || !loop_works(&l)) {
        if (ret->result == XFER_SELF_TEST_NOT_POSSIBLE)
            snprintf(t->none, sizeof t->none, "%s", ret->why);
    } else {
        l.broken = XFER_SELF_TEST_FAILED;
        ret->bytes = 0;                         /* loop_works does not count */
        if (p->page || is_written_out(&l, p)) { /* pages do not leave by a ring */
            l.broken = XFER_SELF_TEST_PART;     /* usable, but without windows */
            if (!p->windows || is_written_in(&l, p))
                ret->result = XFER_SELF_TEST_PASSED;
        }
    }
    if (loop_close(&l))
        wipe(mem, p, l.bytes);
    ret->ns = io_now_ns() - ret->at_ns;
}

/* Merges two tests of one row: keeps the worse result, or the first of equal ones. */
static void merge(struct xfer_self_test *to, const struct xfer_self_test *more, const char *of)
{
    static_assert(XFER_SELF_TEST_NONE < XFER_SELF_TEST_PASSED &&
                      XFER_SELF_TEST_PASSED < XFER_SELF_TEST_NOT_POSSIBLE &&
                      XFER_SELF_TEST_NOT_POSSIBLE < XFER_SELF_TEST_PART &&
                      XFER_SELF_TEST_PART < XFER_SELF_TEST_FAILED,
                  "each is worse than those before it");
    to->at_ns = more->at_ns;
    to->bytes += more->bytes;
    to->ns += more->ns;
    if (more->result <= to->result)
        return;
    to->result = more->result;
    snprintf(to->why, sizeof to->why, "%s%.*s", more->why[0] ? of : "", XFER_SELF_TEST_TEXT - 32,
             more->why);
}

/* If a device failed with one GPU's memory, another GPU's untested memory counts as failed. */
static void doubt(const struct self_test *t, struct xfer_self_test *test)
{
    if (!t->gpu_failed || !t->none[0] || test->result != XFER_SELF_TEST_NOT_POSSIBLE)
        return;
    test->result = XFER_SELF_TEST_FAILED;
    snprintf(test->why, sizeof test->why,
             "memory of another GPU failed, and this GPU's could not be tested: %.*s",
             XFER_SELF_TEST_TEXT - 80, t->none);
}

static void region_test(struct self_test *t, uint32_t tenant, uint32_t region)
{
    const struct xfer_rdma_config *c = &t->v->xfer->config.rdma;
    struct verbs_domain *d = &t->rail->domain[tenant];
    struct xfer_self_test test;
    char of[24] = "";
    uint64_t bytes;
    uint8_t *base = mem_region_base(t->v->xfer->config.mem, tenant, region, &bytes);
    struct place p = {.mr = local_mr(d, base),
                      .at = base,
                      .windows = !d->far && c->pulls > 0 && t->rail->view.memory_windows};

    place_test(t, d->pd, &p, &test);
    if (d->far)
        doubt(t, &test);
    else
        snprintf(of, sizeof of, "region %u: ", region);
    merge(&d->region[d->far ? region : 0].test, &test, of);
    if (test.result == XFER_SELF_TEST_PART) {
        t->rail->windows_refused = true;
        t->rail->view.memory_windows = false;
    }
    if (d->far && test.result == XFER_SELF_TEST_FAILED) {
        t->gpu_failed = true;
        memory_unregister_far(t->v, t->rail, tenant, region, test.why);
    }
}

static void ring_test(struct self_test *t, uint32_t tenant, uint32_t region)
{
    struct verbs_domain *d = &t->rail->domain[tenant];
    struct xfer_self_test test;
    uint64_t bytes;
    bool fails;
    struct place p = {.mr = &d->ring,
                      .at = d->ring.base,
                      .page = mem_region_base(t->v->xfer->config.mem, tenant, region, &bytes),
                      .windows = true};

    place_test(t, d->pd, &p, &test);
    fails = test.result >= XFER_SELF_TEST_PART;
    if (fails)
        test.result = d->n > 0 ? XFER_SELF_TEST_PART : XFER_SELF_TEST_FAILED;
    merge(&d->region[region].test, &test, "its ring: ");
    if (t->stuck)
        t->v->ring[tenant].taken |= 1; /* for ever: no piece takes that slot */
    if (fails)
        ring_unregister(t->rail, tenant, test.why);
}

/* Returns false also after a region failed: then none of its domain is used. */
static bool registered(const struct verbs_domain *d)
{
    return d->n > 0 && (d->far || d->region[0].test.result != XFER_SELF_TEST_FAILED);
}

static void *run(void *ctx)
{
    struct self_test *t = ctx;

    for (uint32_t tenant = 0; tenant < t->v->tenants; tenant++) {
        const struct verbs_domain *d = &t->rail->domain[tenant];
        uint32_t regions = mem_region_count(t->v->xfer->config.mem, tenant);

        for (uint32_t r = 0; r < regions && registered(d); r++)
            region_test(t, tenant, r);
        for (uint32_t r = 0; r < regions && d->ring.mr; r++)
            ring_test(t, tenant, r);
    }
    for (uint32_t i = 0; i < t->v->tenants && t->rail->windows_refused; i++)
        if (t->rail->domain[i].ring.mr) /* none without windows */
            ring_unregister(t->rail, i, "the device refused a memory window over host memory");
    return NULL;
}

/* ------------------------------------------------------------------ the rail */

static void run_apart(struct self_test *t)
{
    pthread_t thread;
    int rc = own_thread_start(&thread, run, t);

    if (rc == 0) {
        pthread_join(thread, NULL);
        return;
    }
    snprintf(t->none, sizeof t->none, "no thread can be started for it: %s", strerror(rc));
    run(t); /* tests nothing, as t->none is set */
}

static void tell(const struct verbs *v, const struct verbs_rail *rail)
{
    const struct xfer_config *c = &v->xfer->config;
    struct xfer_self_test passed = {.result = XFER_SELF_TEST_PASSED};
    struct xfer_registration_view all = {
        .tenant = NONE, .device = rail->view.device, .test = &passed};

    for (uint32_t t = 0; c->rdma.self_tested && t < v->tenants; t++)
        for (uint32_t r = 0; r < mem_region_count(c->mem, t); r++) {
            const struct verbs_domain *d = &rail->domain[t];
            struct xfer_registration_view row = {
                .tenant = t,
                .region = r,
                .regions = d->far ? 1 : mem_region_count(c->mem, t), /* the first stands for all */
                .gpu = mem_region_device(c->mem, t, r, NULL, NULL),
                .device = rail->view.device,
                .test = &d->region[r].test};

            if (row.test->result > XFER_SELF_TEST_PASSED)
                c->rdma.self_tested(c->ctx, &row);
            if (row.test->result != XFER_SELF_TEST_PASSED)
                continue;
            all.regions += row.regions;
            passed.bytes += row.test->bytes;
            passed.ns += row.test->ns;
        }
    if (all.regions > 0 && c->rdma.self_tested)
        c->rdma.self_tested(c->ctx, &all);
}

bool self_test(struct verbs *v, struct verbs_rail *rail, char *ret_why, size_t cap)
{
    struct self_test t = {.v = v, .rail = rail, .until_ns = io_now_ns() + VERBS_TEST_RAIL_NS};
    uint64_t seed = t.until_ns;

    if (!v->xfer->config.rdma.self_test)
        return true;
    (void)!getrandom(&seed, sizeof seed, GRND_NONBLOCK); /* else seed with the time */
    prng_init(&t.random, seed);
    run_apart(&t);
    tell(v, rail);
    for (uint32_t i = 0; i < v->tenants; i++) {
        const struct xfer_self_test *test = &rail->domain[i].region[0].test;

        if (rail->domain[i].far || test->result != XFER_SELF_TEST_FAILED)
            continue;
        snprintf(ret_why, cap, "the self-test with host memory failed: %s", test->why);
        return false;
    }
    return true;
}
