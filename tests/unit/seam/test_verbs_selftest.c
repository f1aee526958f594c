/* The self-test of a rail at start, with a NIC that is played here: it moves bytes once in each way
 * between NIC and memory and names those that do not arrive as sent; a pair that fails is not used.
 * The GPUs are the stand-in's. */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "seam/xfer/verbs/verbs.h"
#include "standin/standin_open.h"
#include "testing/test.h"
#include "unit/rig/rig_mrs.h"

#define MIB     ((uint64_t)1 << 20)
#define FAR     0u /* tenants: on two GPUs, and in memory of the host */
#define NEAR    1u
#define TENANTS 2u
#define REGIONS 2u
#define HALF    (XFER_SELF_TEST_SCRATCH / 2)
#define MRS     64u
#define SLOW_NS (VERBS_TEST_NS / 4) /* duration of a look at an empty queue */

/* ------------------------------------------------------------------ time */

static uint64_t later_ns; /* added to the clock */

uint64_t __real_io_now_ns(void);
uint64_t __wrap_io_now_ns(void);
uint64_t __wrap_io_now_ns(void)
{
    return __real_io_now_ns() + later_ns;
}

/* ------------------------------------------------------------------ the NIC */

enum memory { GPU0, GPU1, HOST, RING, LOOP, MEMORIES };

/* The harm to memory of one kind, and the request that does it: the first such one. */
enum harm { NONE_AT_ALL = 0, FLIPS, REFUSES, NEVER_ENDS, NOT_POSTED, COMES_LATE };

static const char uuids[RANKS_MAX][MEM_DEVICE_BYTES] = {STANDIN_UUID(0), STANDIN_UUID(1)};
static struct standin in;
static struct mem *mem;
static struct ibv_context context;
static struct ibv_pd pds[TENANTS];
static struct ibv_cq cq;
static struct ibv_qp pairs[2];
static struct ibv_mw window;
static struct ibv_wc done[8];
static uint32_t npds, npairs, ndone, ncqs, nwindows;
static enum harm harm;
static enum memory harmed;
static enum ibv_wr_opcode harm_opcode;
static bool harm_in; /* only for bytes that go into that memory */
static int broken_create, broken_modify, broken_destroy;
static uint32_t harm_byte, requests, touched_else;
static uint64_t slow_ns; /* duration of each request */
static struct ibv_mw_bind_info bound;
static uint32_t bound_rkey;          /* 0: none */
static uint8_t late[HALF], *late_to; /* visible from the next request on; NULL: nothing */
static uint32_t nlate;
static bool both_far; /* NEAR is on the GPUs, too */
static uint64_t page_bytes = HALF;
static struct qp_moves {
    uint32_t dest;
    unsigned access;
} moves[2];

static struct known {
    uint8_t *addr, *map; /* address for the NIC, and in this process */
    uint64_t bytes;
    int access;
    enum memory what;
    const struct ibv_pd *pd;
} known[MRS];
static uint32_t nknown;

static enum memory memory_of(const struct registration *r)
{
    uint64_t bytes;

    if (r->fd >= 0)
        return r->addr == mem_region_base(mem, FAR, 0, &bytes) ||
                       r->addr == mem_region_base(mem, NEAR, 0, &bytes)
                   ? GPU0
                   : GPU1;
    if (r->bytes == XFER_SELF_TEST_SCRATCH)
        return LOOP;
    return r->bytes == XFER_RING_BYTES ? RING : HOST;
}

/* Asked on the test's own thread, which cannot fail a case: the last broken rule. */
static const char *rule;

static void must(bool kept, const char *text)
{
    if (!kept)
        rule = text;
}

static uint32_t no_gpus; /* a bit each: it takes no dma-buf */

static int registration_error(const struct registration *r)
{
    enum memory what = memory_of(r);
    uint8_t *map = r->addr;
    uint64_t bytes;

    if (r->fd < 0 && (r->addr == mem_region_base(mem, FAR, 0, &bytes) ||
                      r->addr == mem_region_base(mem, FAR, 1, &bytes)))
        return EFAULT;
    if (what <= GPU1 && (no_gpus >> what & 1))
        return EOPNOTSUPP;
    if (r->fd >= 0)
        map = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, (off_t)r->offset);
    must(map != MAP_FAILED && nknown < MRS, "memory that can be mapped");
    known[nknown++] = (struct known){r->addr, map, r->bytes, r->access, what, r->pd};
    return 0;
}

/* The newest registration there; earlier ones are gone. */
static const struct known *known_at(uint64_t addr, uint64_t bytes, const struct ibv_pd *pd)
{
    for (uint32_t i = nknown; i-- > 0;) {
        const struct known *k = &known[i];

        if (k->pd == pd && (uintptr_t)k->addr <= addr &&
            addr + bytes <= (uintptr_t)k->addr + k->bytes)
            return k;
    }
    must(false, "memory that is registered");
    return &known[0];
}

static uint8_t *map_of(const struct known *k, uint64_t addr)
{
    return k->map + (addr - (uintptr_t)k->addr);
}

/* Only the bytes of index 0, or the first slot. */
static void touches(const struct known *k, uint64_t addr, uint64_t bytes)
{
    touched_else += k->what != LOOP && addr - (uintptr_t)k->addr + bytes > HALF;
}

static enum ibv_wc_status move(const struct ibv_qp *qp, const struct ibv_send_wr *wr, enum harm now)
{
    bool write = wr->opcode == IBV_WR_RDMA_WRITE;
    uint64_t far_at = wr->wr.rdma.remote_addr, near_at = wr->sg_list->addr, n = wr->sg_list->length;
    const struct known *local = known_at(near_at, n, qp->pd), *remote = known_at(far_at, n, qp->pd);
    int needs = (int)(write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ);
    bool opened = write && bound_rkey && wr->wr.rdma.rkey == bound_rkey && far_at == bound.addr &&
                  n <= bound.length;
    uint8_t *to;

    touches(local, near_at, n);
    touches(remote, far_at, n);
    if (!opened && !(remote->access & needs))
        return IBV_WC_REM_ACCESS_ERR;
    if (!write && !(local->access & (int)IBV_ACCESS_LOCAL_WRITE))
        return IBV_WC_LOC_PROT_ERR;
    if (!(moves[1].access & (unsigned)needs))
        return IBV_WC_REM_INV_REQ_ERR;
    if (late_to)
        memcpy(late_to, late, HALF);
    late_to = NULL;
    to = write ? map_of(remote, far_at) : map_of(local, near_at);
    if (now == COMES_LATE) {
        must(n == HALF, "all of what is known");
        memcpy(late, map_of(local, near_at), n);
        late_to = to;
        nlate++;
        return IBV_WC_SUCCESS;
    }
    memmove(to, write ? map_of(local, near_at) : map_of(remote, far_at), n);
    if (now == FLIPS)
        to[harm_byte] ^= 0x10;
    return IBV_WC_SUCCESS;
}

static bool concerns(const struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
    enum memory a, b;

    if (harm == NONE_AT_ALL || wr->opcode != harm_opcode)
        return false;
    if (wr->opcode == IBV_WR_LOCAL_INV)
        return known_at(bound.addr, 1, qp->pd)->what == harmed;
    if (wr->opcode == IBV_WR_BIND_MW)
        return known_at(wr->bind_mw.bind_info.addr, 1, qp->pd)->what == harmed;
    a = known_at(wr->sg_list->addr, 1, qp->pd)->what;
    b = known_at(wr->wr.rdma.remote_addr, 1, qp->pd)->what;
    return harm_in ? b == harmed : (a == LOOP ? b : a) == harmed;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
    bool now = concerns(qp, wr);

    (void)bad;
    requests++;
    must(wr->send_flags & IBV_SEND_SIGNALED, "each request tells its end");
    must(moves[0].dest == 71 && moves[1].dest == 70, "each pair is connected to the other one");
    if (now && harm == NOT_POSTED)
        return ENOMEM;
    if (now && harm == NEVER_ENDS)
        return 0;
    if (now && harm == REFUSES) {
        wc.status = IBV_WC_LOC_PROT_ERR;
    } else if (wr->opcode == IBV_WR_BIND_MW) {
        must(qp == &pairs[1], "a window is of the pair that is written to");
        must(known_at(wr->bind_mw.bind_info.addr, 1, qp->pd)->access & (int)IBV_ACCESS_MW_BIND,
             "memory that takes windows");
        bound = wr->bind_mw.bind_info;
        bound_rkey = wr->bind_mw.rkey;
    } else if (wr->opcode == IBV_WR_LOCAL_INV) {
        must(wr->invalidate_rkey == bound_rkey, "the window that was bound is closed");
        bound_rkey = 0;
    } else {
        must(qp == &pairs[0], "one pair asks");
        wc.status = move(qp, wr, now ? harm : NONE_AT_ALL);
    }
    later_ns += slow_ns;
    done[ndone++] = wc;
    return 0;
}

static int poll_cq(struct ibv_cq *at, int most, struct ibv_wc *wc)
{
    (void)at;
    must(most == 1, "room for one");
    if (ndone == 0) {
        later_ns += SLOW_NS;
        return 0;
    }
    *wc = done[--ndone];
    return 1;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    (void)pd;
    must(type == IBV_MW_TYPE_2, "windows of type 2");
    window = (struct ibv_mw){.context = &context, .rkey = 0x1200};
    nwindows++;
    return &window;
}

static int dealloc_mw(struct ibv_mw *mw)
{
    (void)mw;
    nwindows--;
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
    assert_true(npds < TENANTS);
    pds[npds].context = ctx;
    return &pds[npds++];
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    (void)pd;
    npds--;
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int depth, void *cq_context,
                             struct ibv_comp_channel *channel, int vector)
{
    (void)depth, (void)cq_context, (void)channel, (void)vector;
    cq.context = ctx;
    ndone = 0;
    ncqs++;
    return &cq;
}

int ibv_destroy_cq(struct ibv_cq *at)
{
    (void)at;
    ncqs--;
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct ibv_qp *qp = &pairs[npairs];

    must(init->send_cq == &cq, "a completion queue of its own");
    if (broken_create) {
        errno = broken_create;
        return NULL;
    }
    must(npairs < 2, "two pairs at a time");
    *qp = (struct ibv_qp){.context = &context, .pd = pd, .qp_num = 70 + npairs};
    npairs++;
    return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    (void)qp;
    if (!broken_destroy)
        npairs--;
    return broken_destroy;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct qp_moves *m = &moves[qp - pairs];

    (void)mask;
    if (attr->qp_state == IBV_QPS_INIT)
        m->access = attr->qp_access_flags;
    if (attr->qp_state == IBV_QPS_RTR)
        m->dest = attr->dest_qp_num;
    return attr->qp_state == IBV_QPS_RTR ? broken_modify : 0;
}

/* ------------------------------------------------------------------ the rig */

static struct xfer xfer;
static struct verbs v;
static struct verbs_rail *rail = &v.rail[0];
static char why[160], last[XFER_SELF_TEST_TEXT];
static uint32_t told[XFER_SELF_TEST_RESULTS];

static void self_tested(void *ctx, const struct xfer_registration_view *of)
{
    (void)ctx;
    assert_string_equal(of->device, "nic0");
    told[of->test->result] += of->regions;
    assert_int_equal(of->test->result == XFER_SELF_TEST_PASSED, of->tenant == NONE);
    if (of->tenant == NONE)
        return;
    assert_int_equal(of->gpu != NULL, of->tenant == FAR || both_far);
    if (of->gpu)
        assert_string_equal(of->gpu, uuids[of->region]);
    assert_true(of->test->why[0] != '\0');
    snprintf(last, sizeof last, "%s", of->test->why);
}

static void memory_open(void)
{
    struct mem_config c = {.tenants = TENANTS,
                           .tenant = {{.memory_bytes = 2 * MIB, .regions = REGIONS},
                                      {.memory_bytes = 2 * MIB, .regions = 2}},
                           .engines = 1,
                           .pools = 1,
                           .page_records = 8,
                           .sums_per_page = REGIONS,
                           .page_bytes_min = page_bytes,
                           .workers = 1,
                           .jobs = 4,
                           .cuda_library = STANDIN_MEMORY,
                           .device_wait_ms = 10000};
    const char *text = "";

    c.device[FAR] = uuids;
    c.device[NEAR] = both_far ? uuids : NULL;
    if (mem_create(&c, &mem, &text) != TERN_OK)
        fail_msg("%s", text);
}

static void nic_is_new(void)
{
    npds = npairs = ndone = ncqs = nwindows = nknown = 0;
    registered = 0;
    no_gpus = 0;
    harm = NONE_AT_ALL;
    harm_in = false;
    late_to = NULL;
    nlate = 0;
    broken_create = broken_modify = broken_destroy = 0;
    later_ns = slow_ns = 0;
    harm_byte = requests = touched_else = 0;
    context = (struct ibv_context){.device = NULL};
    context.ops.post_send = post_send;
    context.ops.poll_cq = poll_cq;
    context.ops.alloc_mw = alloc_mw;
    context.ops.dealloc_mw = dealloc_mw;
    memset(told, 0, sizeof told);
    last[0] = why[0] = '\0';
    rule = NULL;
}

FIXTURE(begin)
{
    in = standin_open(STANDIN_MEMORY);
    in.let_fail("", 0, CUDA_SUCCESS);
    memory_open();
    nic_is_new();
    xfer = (struct xfer){.config = {.mem = mem,
                                    .rdma = {.serves = true,
                                             .pulls = 1,
                                             .self_test = true,
                                             .self_tested = self_tested,
                                             .tenants = TENANTS}}};
    xfer.ntransports = 1;
    xfer.transport[0] = (struct transport){.ops = &verbs_transport, .xfer = &xfer, .own = &v};
    v = (struct verbs){.xfer = &xfer, .tenants = TENANTS, .nrails = 1, .rails = XFER_RAILS_MAX};
    *rail = (struct verbs_rail){
        .v = &v,
        .ctx = &context,
        .tuning = &xfer_rdma_tuning_initial,
        .view = {.max_mr_bytes = UINT64_MAX, .memory_windows = true, .device = "nic0"}};
    return 0;
}

FIXTURE(end)
{
    memory_close(&v, rail);
    rings_close(&v);
    mem_destroy(mem);
    mem = NULL;
    unsetenv("STANDIN_CUDA_LACKS");
    dlclose(in.library);
    both_far = false;
    page_bytes = HALF;
    return 0;
}

TEST_EACH(begin, end);

/* No byte, key or pair of the test is left, whatever it found. */
static void clean(void)
{
    static const uint8_t zero[HALF];
    static uint8_t got[HALF];
    uint64_t bytes;

    assert_int_equal(npairs + ncqs + nwindows, 0);
    assert_int_equal(touched_else, 0);
    assert_int_equal(registered, rail->view.registrations);
    for (uint32_t r = 0; r < REGIONS; r++) {
        in.look(got, (CUdeviceptr)(uintptr_t)mem_region_base(mem, FAR, r, &bytes), HALF);
        assert_memory_equal(got, zero, HALF);
        assert_memory_equal(mem_region_base(mem, NEAR, r, &bytes), zero, HALF);
    }
    if (v.ring[FAR].base)
        assert_memory_equal(v.ring[FAR].base, zero, HALF);
}

static bool tested(void)
{
    bool used;

    assert_true(memory_register(&v, rail, why, sizeof why));
    used = self_test(&v, rail, why, sizeof why);
    if (rule)
        fail_msg("not kept: %s", rule);
    return used;
}

static struct xfer_registration_view row(uint32_t i)
{
    struct xfer_registration_view view;

    assert_true(xfer_registration_view(&xfer, i, &view));
    return view;
}

static void said(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no '%s' in: %s", part, text);
}

/* ------------------------------------------------------------------ cases */

/* Each way counts its bytes: out of a GPU, and through the ring by a window; for two regions of
 * host memory, in by a window and out again. */
TEST(verbs_selftest_moves_known_bytes_in_every_way_that_pages_go)
{
    assert_true(tested());
    clean();
    assert_int_equal(told[XFER_SELF_TEST_PASSED], 4);
    assert_int_equal(rail->domain[FAR].n, REGIONS);
    for (uint32_t r = 0; r < REGIONS; r++) {
        assert_int_equal(row(r).how, XFER_REGISTERED_DMABUF);
        assert_int_equal(row(r).test->bytes, (1 + 1) * HALF);
    }
    assert_int_equal(row(REGIONS).test->bytes, 2 * 2 * HALF);
    assert_true(row(0).test->ns > 0 && row(0).test->at_ns > 0);
    assert_int_equal(row(0).ring_bytes, XFER_RING_BYTES);
}

/* Memory is registered for no more than without a test. */
TEST(verbs_selftest_goes_no_way_that_pages_do_not)
{
    xfer.config.rdma.pulls = 0;
    assert_true(tested());
    clean();
    assert_int_equal(row(0).test->bytes, HALF);
    assert_int_equal(row(REGIONS).test->bytes, 2 * HALF);
}

TEST(verbs_selftest_is_made_only_where_it_is_asked_for)
{
    xfer.config.rdma.self_test = false;
    assert_true(tested());
    assert_int_equal(requests, 0);
    assert_int_equal(row(0).test->result, XFER_SELF_TEST_NONE);
}

/* Pushes to it use the ring, and nothing of it leaves by the NIC. */
TEST(verbs_selftest_of_a_gpu_that_no_nic_knows_is_of_its_ring)
{
    const uint64_t before = in.calls("cuMemcpyDtoHAsync");

    no_gpus = 1;
    assert_true(tested());
    assert_int_equal(in.calls("cuMemcpyDtoHAsync") - before, REGIONS); /* what arrived */
    clean();
    for (uint32_t r = 0; r < REGIONS; r++) {
        assert_int_equal(row(r).how, XFER_REGISTERED_NO);
        assert_int_equal(row(r).test->result, XFER_SELF_TEST_PASSED);
        assert_int_equal(row(r).test->bytes, HALF);
    }
}

/* A failing pair, by what the NIC does to one kind of request on one kind of memory. */
static const struct {
    enum memory at;
    enum ibv_wr_opcode opcode;
    enum harm harm;
    uint32_t byte;
    const char *text; /* of its test */
} fails[] = {
    {GPU0, IBV_WR_RDMA_WRITE, FLIPS, 0, "RDMA write from the tested memory: byte 0 of 4096 is 0x"},
    {GPU0, IBV_WR_RDMA_WRITE, FLIPS, 4095,
     "RDMA write from the tested memory: byte 4095 of 4096 is 0x"},
    {GPU1, IBV_WR_RDMA_WRITE, FLIPS, 77,
     "RDMA write from the tested memory: byte 77 of 4096 is 0x"},
    {GPU1, IBV_WR_RDMA_WRITE, REFUSES, 0,
     "RDMA write from the tested memory: local protection error"},
    {GPU1, IBV_WR_RDMA_WRITE, NEVER_ENDS, 0,
     "RDMA write from the tested memory: no completion within 5000 ms"},
    {GPU1, IBV_WR_RDMA_WRITE, NOT_POSTED, 0,
     "RDMA write from the tested memory: ibv_post_send: Cannot allocate memory"},
    {RING, IBV_WR_RDMA_WRITE, FLIPS, 9,
     "RDMA write into the tested memory through a memory window: byte 9 of 4096"},
    {RING, IBV_WR_BIND_MW, REFUSES, 0,
     "bind of a memory window over the tested memory: local protection error"},
    {RING, IBV_WR_LOCAL_INV, NEVER_ENDS, 0,
     "close of a memory window over the tested memory: no completion within 5000 ms"},
    {HOST, IBV_WR_RDMA_WRITE, FLIPS, 2,
     "region 0: RDMA write into the tested memory through a memory window: byte 2 of 4096 is 0x"},
};

static void gpu_failed(uint32_t gpu, const char *text)
{
    for (uint32_t r = 0; r < REGIONS; r++) {
        assert_int_equal(row(r).how, XFER_REGISTERED_NO); /* all of the tenant's */
        assert_int_equal(row(r).test->result,
                         r == gpu ? XFER_SELF_TEST_FAILED : XFER_SELF_TEST_PASSED);
        said(row(r).why, r == gpu ? "dma-buf: self-test: " : "cannot be registered");
    }
    said(row(gpu).test->why, text);
    assert_int_equal(rail->domain[FAR].n, 0);
    assert_int_equal(told[XFER_SELF_TEST_FAILED], 1);
}

static void ring_failed(const char *text)
{
    assert_int_equal(row(0).how, XFER_REGISTERED_DMABUF); /* which is unchanged */
    assert_int_equal(row(0).ring_bytes, 0);
    said(row(0).no_ring, "self-test: ");
    said(row(0).no_ring, text);
    said(row(0).test->why, "its ring: ");
    said(row(0).test->why, text);
    assert_int_equal(row(0).test->result, XFER_SELF_TEST_PART);
    assert_int_equal(row(1).test->result, XFER_SELF_TEST_PASSED);
    assert_null(rail->domain[FAR].ring.mr);
    assert_int_equal(told[XFER_SELF_TEST_PART], 1);
}

TEST(verbs_selftest_that_fails_says_what_and_the_pair_is_not_used)
{
    for (size_t i = 0; i < sizeof fails / sizeof fails[0]; i++) {
        harm = fails[i].harm;
        harmed = fails[i].at;
        harm_opcode = fails[i].opcode;
        harm_byte = fails[i].byte;
        harm_in = fails[i].at >= HOST && harm_opcode == IBV_WR_RDMA_WRITE;
        assert_int_equal(tested(), fails[i].at != HOST);
        clean();
        said(last, fails[i].text);
        if (fails[i].at <= GPU1)
            gpu_failed((uint32_t)fails[i].at, fails[i].text);
        else if (fails[i].at == RING)
            ring_failed(fails[i].text);
        else
            said(why, fails[i].text); /* so rail_open does not use the device */
        end(state);
        begin(state);
    }
}

/* A device that takes no window over host memory, and moves all else, is used like one without
 * windows: nothing is pushed, and there are no rings. */
TEST(verbs_selftest_of_windows_that_fails_leaves_the_rest_of_the_device)
{
    static const struct {
        enum ibv_wr_opcode opcode;
        enum harm harm;
        const char *text;
    } ways[] = {
        {IBV_WR_BIND_MW, REFUSES,
         "region 0: bind of a memory window over the tested memory: local protection error"},
        {IBV_WR_BIND_MW, NOT_POSTED,
         "region 0: bind of a memory window over the tested memory: ibv_post_send: "},
        {IBV_WR_RDMA_WRITE, REFUSES,
         "region 0: RDMA write into the tested memory through a memory window: local protection "
         "error"},
        {IBV_WR_LOCAL_INV, NEVER_ENDS,
         "region 0: close of a memory window over the tested memory: no completion within 5000 "
         "ms"}};

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        harm = ways[i].harm;
        harmed = HOST;
        harm_opcode = ways[i].opcode;
        harm_in = true;
        assert_true(tested());
        clean();
        said(last, ways[i].text);
        assert_false(rail->view.memory_windows);
        assert_int_equal(told[XFER_SELF_TEST_PART], 2);
        assert_int_equal(told[XFER_SELF_TEST_PASSED], REGIONS);
        assert_int_equal(row(REGIONS).test->result, XFER_SELF_TEST_PART);
        assert_int_equal(row(REGIONS).test->bytes, 2 * 1 * HALF);
        assert_non_null(tenant_pathless(&v, NEAR));
        assert_non_null(tenant_pathless(&v, FAR));
        assert_int_equal(row(0).ring_bytes, 0);
        assert_string_equal(row(0).no_ring,
                            "self-test: the device refused a memory window over host memory");
        end(state);
        begin(state);
    }
}

/* Late visible bytes are no fault where the test's own memory is written. */
TEST(verbs_selftest_reads_behind_a_write_whose_bytes_are_not_seen_yet)
{
    harm = COMES_LATE;
    harmed = GPU1; /* out of it */
    harm_opcode = IBV_WR_RDMA_WRITE;
    assert_true(tested());
    clean();
    assert_int_equal(nlate, 1);
    assert_int_equal(row(1).test->result, XFER_SELF_TEST_PASSED);
    end(state);
    begin(state);
    harm = COMES_LATE;
    harmed = LOOP;
    harm_opcode = IBV_WR_RDMA_WRITE;
    harm_in = true;
    assert_true(tested());
    clean();
    assert_true(nlate > 0);
    assert_int_equal(told[XFER_SELF_TEST_PASSED], 4);
}

/* After memory of a GPU has failed, another tenant's is not used untested. */
TEST(verbs_selftest_of_a_gpu_fails_without_time_where_another_one_failed)
{
    end(state);
    both_far = true;
    begin(state);
    harm = FLIPS;
    harmed = GPU0;
    harm_opcode = IBV_WR_RDMA_WRITE;
    slow_ns = VERBS_TEST_NS;
    assert_true(tested());
    assert_int_equal(row(0).test->result, XFER_SELF_TEST_FAILED);
    assert_int_equal(row(REGIONS).test->result, XFER_SELF_TEST_FAILED);
    said(row(REGIONS).test->why,
         "memory of another GPU failed, and this GPU's could not be tested: "
         "the tests of this device took longer than 15000 ms");
    said(row(REGIONS).why, "self-test: memory of another GPU failed");
    assert_int_equal(rail->domain[NEAR].n, 0);
}

/* Without its ring, nothing is pushed over that device to memory that it does not know. */
TEST(verbs_selftest_of_a_ring_that_fails_leaves_what_no_nic_knows_to_other_ways)
{
    no_gpus = 1;
    harm = FLIPS;
    harmed = RING;
    harm_opcode = IBV_WR_RDMA_WRITE;
    assert_true(tested());
    clean();
    assert_int_equal(row(0).how, XFER_REGISTERED_NO);
    assert_non_null(tenant_pathless(&v, FAR));
    assert_int_equal(row(0).test->result, XFER_SELF_TEST_FAILED);
}

/* If a device does nothing in loopback, nothing is known of the memory: it is used, and no pair
 * behind the first waits. */
TEST(verbs_selftest_is_not_possible_where_there_is_no_loopback)
{
    static const enum harm how[] = {REFUSES, NEVER_ENDS};

    for (uint32_t i = 0; i < 2; i++) {
        harm = how[i];
        harmed = LOOP;
        harm_opcode = IBV_WR_RDMA_READ;
        assert_true(tested());
        clean();
        assert_int_equal(told[XFER_SELF_TEST_NOT_POSSIBLE], 4);
        assert_int_equal(requests, 2);
        said(last,
             i ? "RDMA read in loopback, between buffers of the daemon: no completion "
                 "within 5000 ms"
               : "RDMA read in loopback, between buffers of the daemon: local protection error");
        assert_int_equal(rail->domain[FAR].n, REGIONS);
        assert_int_equal(row(0).ring_bytes, XFER_RING_BYTES);
        end(state);
        begin(state);
    }
    broken_create = ENOMEM;
    assert_true(tested());
    clean();
    said(last, "ibv_create_qp: Cannot allocate memory");
    end(state);
    begin(state);
    broken_modify = ETIMEDOUT;
    assert_true(tested());
    clean();
    said(last,
         "moving a queue pair to RTR, connected to one of the same device: Connection timed out");
    assert_int_equal(told[XFER_SELF_TEST_NOT_POSSIBLE], 4);
}

/* Bytes that differ there are the device's own fault, and it is not used. */
TEST(verbs_selftest_fails_where_bytes_of_the_loop_itself_differ)
{
    harm = FLIPS;
    harmed = LOOP;
    harm_opcode = IBV_WR_RDMA_READ;
    harm_byte = 5;
    assert_false(tested());
    said(why, "the self-test with host memory failed: ");
    said(last, "RDMA read in loopback, between buffers of the daemon: byte 5 of 4096");
    assert_int_equal(told[XFER_SELF_TEST_FAILED], 3); /* with the first GPU the other one went */
    assert_int_equal(rail->domain[FAR].n, 0);
    assert_null(rail->domain[FAR].ring.mr);
}

/* The rest of a rail is used without a test after its time has passed. */
TEST(verbs_selftest_begins_no_pair_of_a_rail_that_takes_too_long)
{
    slow_ns = VERBS_TEST_NS / 2;
    assert_true(tested());
    clean();
    assert_int_equal(row(0).test->result, XFER_SELF_TEST_NOT_POSSIBLE); /* its ring: too late */
    said(row(0).test->why, "the tests of this device took longer than 15000 ms");
    assert_int_equal(row(0).test->bytes, 1 * HALF);
    assert_int_equal(row(REGIONS).test->bytes, 0);
    assert_int_equal(told[XFER_SELF_TEST_NOT_POSSIBLE], 4);
    assert_int_equal(rail->domain[FAR].n, REGIONS);
}

/* Memory that such a pair may still write belongs to nobody, and is not freed. */
TEST(verbs_selftest_fails_where_a_queue_pair_does_not_go)
{
    broken_destroy = EIO;
    xfer.config.rdma.tenants = v.tenants = 1; /* the one on GPUs */
    no_gpus = 1;
    assert_true(tested());
    said(last, "a queue pair cannot be destroyed: Input/output error");
    assert_int_equal(row(0).how, XFER_REGISTERED_NO);
    assert_int_equal(npairs, 2);
    assert_int_equal(ncqs, 1);
    assert_int_equal(registered, 1); /* the buffers of the loop */
    assert_int_equal(v.ring[FAR].taken, 1);
    munmap(registration_newest->addr, XFER_SELF_TEST_SCRATCH);
    ibv_dereg_mr(registration_newest);
    npairs = ncqs = 0;
}

TEST(verbs_selftest_says_of_a_gpu_that_is_lost_that_it_was_not_possible)
{
    in.let_fail("cuMemcpyHtoDAsync", 1, CUDA_ERROR_LAUNCH_FAILED);
    assert_true(tested());
    assert_int_equal(row(0).test->result, XFER_SELF_TEST_NOT_POSSIBLE);
    said(row(0).test->why, "its GPU is lost");
    assert_int_equal(row(1).test->result, XFER_SELF_TEST_PASSED);
}
