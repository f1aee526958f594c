/* Memory of GPUs and a NIC that is played here: how it is registered, with which descriptor, offset
 * and address; the effect of each failure and its report to operators; and when its pages are
 * pushed to a ring. The GPUs are the stand-in's. */

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "seam/mem/mem_touch.h"
#include "seam/xfer/verbs/verbs.h"
#include "standin/standin_open.h"
#include "testing/test.h"
#include "unit/rig/rig_mrs.h"

#define MIB        ((uint64_t)1 << 20)
#define FAR        0u /* tenants: on two GPUs, and in memory of the host */
#define NEAR       1u
#define TENANTS    2u
#define REGIONS    2u
#define BYTES      (10 * MIB)
#define PIECE      (4 * MIB) /* so each region is cut into three */
#define PIECES     (REGIONS * 3)
#define PAGE_BYTES 4096u

static const char uuids[RANKS_MAX][MEM_DEVICE_BYTES] = {STANDIN_UUID(0), STANDIN_UUID(1)};
static struct standin in;

/* ------------------------------------------------------------------ the NIC */

static struct ibv_pd pds[2 * TENANTS]; /* of two rails */
static uint32_t npds, exported, by_address;
static uint32_t dmabufs_that_work, addresses_that_work; /* before the first that fails */
static int last_access;
static bool ring_fails;

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
    (void)ctx;
    assert_true(npds < 2 * TENANTS);
    return &pds[npds++];
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    (void)pd;
    npds--;
    return 0;
}

/* The descriptor's memory at that offset is the GPU's at that address. */
static void descriptor_is_right(const struct registration *r)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), iova = (uintptr_t)r->addr;
    static uint8_t there[PIECE];
    struct stat st;
    uint8_t *map;

    assert_int_equal(fstat(r->fd, &st), 0);
    assert_true(r->offset % page == iova % page && r->offset + r->bytes <= (uint64_t)st.st_size);
    assert_true(r->bytes <= sizeof there);
    map = mmap(NULL, r->bytes, PROT_READ, MAP_SHARED, r->fd, (off_t)r->offset);
    assert_ptr_not_equal(map, MAP_FAILED);
    in.look(there, iova, r->bytes);
    assert_memory_equal(map, there, r->bytes);
    munmap(map, r->bytes);
}

/* The stand-in's memory is no memory of this process, so a NIC knows it only by its descriptor, or
 * if a kernel module identifies it. */
static int registration_error(const struct registration *r)
{
    if ((r->pd - pds) % TENANTS != FAR)
        return 0;
    if (r->access & IBV_ACCESS_MW_BIND) /* no NIC binds windows over a GPU's memory */
        return ring_fails ? ENOMEM : 0;
    last_access = r->access;
    if (r->fd < 0 && !(r->access & IBV_ACCESS_LOCAL_WRITE))
        return 0; /* a kernel may pin zero pages there, whatever the address is */
    if (r->fd < 0)
        return by_address++ >= addresses_that_work ? EFAULT : 0;
    descriptor_is_right(r);
    return exported++ >= dmabufs_that_work ? EOPNOTSUPP : 0;
}

/* ------------------------------------------------------------------ the rig */

static struct mem *mem;
static struct xfer xfer;
static struct verbs v;
static struct verbs_rail *rail = &v.rail[0];
static char why[160];
static pthread_t worker;

/* Each 8 bytes differ from the next, so that a wrong offset shows. */
static void *fill(void *ctx)
{
    static uint64_t words[BYTES / 8];
    uint64_t bytes;

    (void)ctx;
    for (uint32_t r = 0; r < REGIONS; r++) {
        for (uint64_t i = 0; i < BYTES / 8; i++)
            words[i] = i * 0x9e3779b97f4a7c15u + r;
        assert_true(mem_put(mem, mem_region_base(mem, FAR, r, &bytes), words, sizeof words));
    }
    return NULL;
}

static void on_a_thread(void *(*work)(void *ctx), void *ctx)
{
    assert_int_equal(pthread_create(&worker, NULL, work, ctx), 0);
    pthread_join(worker, NULL);
}

static void memory_open(void)
{
    struct mem_config c = {.tenants = TENANTS,
                           .tenant = {{.memory_bytes = BYTES, .regions = REGIONS},
                                      {.memory_bytes = 2 * MIB, .regions = 1}},
                           .engines = 1,
                           .pools = 1,
                           .page_records = 8,
                           .sums_per_page = REGIONS,
                           .page_bytes_min = 4096,
                           .workers = 1,
                           .jobs = 4,
                           .cuda_library = STANDIN_MEMORY,
                           .device_wait_ms = 10000};
    const char *text = "";

    c.device[FAR] = uuids;
    if (mem_create(&c, &mem, &text) != TERN_OK)
        fail_msg("%s", text);
    on_a_thread(fill, NULL);
}

FIXTURE(begin)
{
    in = standin_open(STANDIN_MEMORY);
    in.let_fail("", 0, CUDA_SUCCESS);
    memory_open();
    registered = 0;
    npds = exported = by_address = 0;
    dmabufs_that_work = addresses_that_work = UINT32_MAX;
    ring_fails = false;
    xfer = (struct xfer){
        .config = {
            .mem = mem,
            .rdma = {.serves = true, .pulls = 1, .tenants = TENANTS, .mr_bytes_max = PIECE}}};
    xfer.ntransports = 1;
    xfer.transport[0] = (struct transport){.ops = &verbs_transport, .xfer = &xfer, .own = &v};
    v = (struct verbs){.xfer = &xfer, .tenants = TENANTS, .nrails = 1, .rails = XFER_RAILS_MAX};
    *rail = (struct verbs_rail){
        .v = &v, .view = {.max_mr_bytes = UINT64_MAX, .memory_windows = true, .device = "nic0"}};
    return 0;
}

FIXTURE(end)
{
    memory_close(&v, rail);
    assert_int_equal(registered + npds, 0);
    rings_close(&v);
    mem_destroy(mem);
    mem = NULL;
    unsetenv("STANDIN_CUDA_LACKS");
    dlclose(in.library);
    return 0;
}

TEST_EACH(begin, end);

static uint32_t descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    uint32_t n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* The NIC is used whatever happens to the GPUs' memory, and no descriptor is left open. */
static void register_all(void)
{
    uint32_t before = descriptors();

    assert_true(memory_register(&v, rail, why, sizeof why));
    assert_int_equal(descriptors(), before);
    assert_int_equal(rail->domain[NEAR].n, 1);
    assert_int_equal(registered, rail->domain[FAR].n + 1 + !ring_fails);
    assert_int_equal(rail->view.registrations, registered);
}

static struct xfer_registration_view row(uint32_t i)
{
    struct xfer_registration_view view;

    assert_true(xfer_registration_view(&xfer, i, &view));
    return view;
}

/* All of the tenant's regions are registered so; the reasons name why not in a better way. */
static void registered_as(enum xfer_registered how, const char *const *words, uint32_t nwords)
{
    assert_int_equal(rail->domain[FAR].n, PIECES);
    for (uint32_t r = 0; r < REGIONS; r++) {
        struct xfer_registration_view view = row(r);

        assert_int_equal(view.tenant * RANKS_MAX + view.region, FAR * RANKS_MAX + r);
        assert_string_equal(view.gpu, uuids[r]);
        assert_string_equal(view.device, "nic0");
        assert_int_equal(view.how, how);
        assert_int_equal(view.why[0] == '\0', nwords == 0);
        for (uint32_t i = 0; i < nwords; i++)
            assert_non_null(strstr(view.why, words[i]));
    }
}

/* The reason of the region that could not be registered, which took the other one with it. */
static const char *why_unregistered(void)
{
    return strstr(row(0).why, "cannot be registered") ? row(1).why : row(0).why;
}

static void not_registered(const char *const *words, uint32_t nwords)
{
    const char *text = why_unregistered();

    assert_int_equal(rail->domain[FAR].n, 0);
    assert_int_equal(registered, 2); /* its ring, and the other tenant's memory */
    assert_non_null(text);
    for (uint32_t i = 0; i < nwords; i++)
        if (!strstr(text, words[i]))
            fail_msg("no '%s' in: %s", words[i], text);
    for (uint32_t r = 0; r < REGIONS; r++) {
        assert_int_equal(row(r).how, XFER_REGISTERED_NO);
        assert_true(row(r).why[0] != '\0');
    }
    assert_int_equal(row(REGIONS).how, XFER_REGISTERED_MEMORY);
}

/* ------------------------------------------------------------------ registration */

TEST(verbs_far_regions_are_registered_as_dma_bufs_at_their_own_addresses)
{
    register_all();
    registered_as(XFER_REGISTERED_DMABUF, NULL, 0);
    assert_int_equal(exported, PIECES);
    assert_int_equal(last_access, 0); /* a NIC reads it, and writes to the ring */
    for (uint32_t i = 0; i < PIECES; i++) {
        const struct verbs_mr *mr = &rail->domain[FAR].mr[i];
        uint64_t bytes;

        assert_int_equal(mr->offset, i % 3 * PIECE);
        assert_ptr_equal(mr->base, mem_region_base(mem, FAR, i / 3, &bytes) + mr->offset);
        assert_ptr_equal(mr->mr->addr, mr->base);
        assert_int_equal(mr->mr->length, mr->bytes);
    }
    assert_int_equal(rail->view.registered_bytes, REGIONS * BYTES + 2 * MIB + XFER_RING_BYTES);
    assert_int_equal(row(REGIONS).how, XFER_REGISTERED_MEMORY);
    assert_null(row(REGIONS).gpu);
    assert_false(xfer_registration_view(&xfer, REGIONS + 1, &(struct xfer_registration_view){0}));
}

TEST(verbs_far_memory_is_none_of_what_is_locked_but_its_ring_is)
{
    struct xfer_rdma_view view = {.rails_wanted = 0};

    xfer_memlock(&xfer, &view);
    assert_int_equal(view.memlock_needed, 2 * MIB + XFER_RING_BYTES);
    assert_int_equal(view.memlock_devices, 1);
    view.rails_wanted = 3;
    xfer_memlock(&xfer, &view);
    assert_int_equal(view.memlock_devices, 3);
    assert_int_equal(view.memlock_needed, 3 * (2 * MIB + XFER_RING_BYTES));
    xfer.config.rdma.pulls = 0; /* there are no pushes, and a NIC knows the served memory */
    assert_true(memory_register(&v, rail, why, sizeof why));
    assert_null(rail->domain[FAR].ring.mr);
    xfer.config.rdma.serves = false;
    xfer_memlock(&xfer, &view);
    assert_int_equal(view.memlock_needed, 3 * 2 * MIB);
}

TEST(verbs_far_pages_are_pushed_through_the_ring)
{
    register_all();
    assert_int_equal(row(0).ring_bytes, XFER_RING_BYTES);
    assert_string_equal(row(0).no_ring, "");
    assert_int_equal(row(REGIONS).ring_bytes, 0); /* host memory takes windows itself */
    assert_null(tenant_pathless(&v, FAR));
    assert_null(tenant_pathless(&v, NEAR));
}

TEST(verbs_far_that_no_nic_knows_is_pushed_to_all_the_same)
{
    dmabufs_that_work = addresses_that_work = 0;
    register_all();
    assert_null(tenant_pathless(&v, FAR));
}

/* Each reason is reported, and its pages then take another way. */
TEST(verbs_far_fault_20_without_a_ring_nothing_is_pushed_to_a_gpu)
{
    ring_fails = true;
    register_all();
    assert_string_equal(tenant_pathless(&v, FAR), "ibv_reg_mr: Cannot allocate memory");
    assert_null(tenant_pathless(&v, NEAR));
    assert_int_equal(row(0).ring_bytes, 0);
    assert_string_equal(row(0).no_ring, "ibv_reg_mr: Cannot allocate memory");
    memory_close(&v, rail);
    rail->view.memory_windows = ring_fails = false;
    assert_true(memory_register(&v, rail, why, sizeof why));
    assert_string_equal(row(0).no_ring, "the device has no memory windows of type 2B");
    assert_string_equal(tenant_pathless(&v, FAR),
                        "a device of this host has no memory windows of type 2B");
    assert_non_null(tenant_pathless(&v, NEAR));
}

TEST(verbs_far_without_dma_bufs_goes_by_address_and_says_why)
{
    static const char *const words[] = {"dma-buf: ", "open kernel modules"};
    static const char *const refused[] = {"dma-buf: ibv_reg_dmabuf_mr: Operation not supported",
                                          "dma-buf-pcie: cuMemGetHandleForAddressRange: "
                                          "CUDA_ERROR_INVALID_VALUE"};

    setenv("STANDIN_CUDA_LACKS", "124", 1); /* dma-bufs */
    register_all();
    registered_as(XFER_REGISTERED_PEERMEM, words, 2);
    assert_int_equal(exported, 0);
    memory_close(&v, rail);
    unsetenv("STANDIN_CUDA_LACKS");
    dmabufs_that_work = 0;
    rail->view.registrations = 0;
    register_all();
    registered_as(XFER_REGISTERED_PEERMEM, refused, 2);
}

TEST(verbs_far_that_is_registered_in_no_way_leaves_the_nic_to_others)
{
    static const char *const words[] = {
        "dma-buf: ibv_reg_dmabuf_mr: Operation not supported",
        "dma-buf-pcie: ", "nvidia-peermem: ibv_reg_mr: Bad address"};

    dmabufs_that_work = addresses_that_work = 0;
    register_all();
    not_registered(words, 3);
}

/* Fault 20: each failing export and registration, by its number, leads to the next way for that
 * region, and no further than to none for the tenant. */
TEST(verbs_far_fault_20_each_failure_leads_to_the_next_way)
{
    uint32_t points = 0, fell = 0;

    for (uint32_t nth = 1; nth <= REGIONS; nth++, points++) { /* of exports */
        in.let_fail("cuMemGetHandleForAddressRange", nth, CUDA_ERROR_OUT_OF_MEMORY);
        register_all();
        assert_int_equal(rail->domain[FAR].n, PIECES);
        assert_int_equal(row(nth - 1).how, XFER_REGISTERED_PEERMEM);
        assert_non_null(strstr(row(nth - 1).why, "CUDA_ERROR_OUT_OF_MEMORY"));
        assert_int_equal(row(nth % REGIONS).how, XFER_REGISTERED_DMABUF);
        fell += row(nth - 1).how == XFER_REGISTERED_PEERMEM;
        end(state);
        begin(state);
    }
    for (uint32_t k = 0; k < PIECES; k++, points++) { /* of registrations, both ways */
        dmabufs_that_work = k;
        addresses_that_work = k % 3;
        register_all();
        not_registered(NULL, 0);
        assert_non_null(strstr(why_unregistered(), "nvidia-peermem: ibv_reg_mr: "));
        fell += rail->domain[FAR].n == 0;
        end(state);
        begin(state);
    }
    print_message("fault=20 runs=%u injected=%u violations=%u points=%u/%u\n", points, points,
                  points - fell, fell, points);
    assert_int_equal(fell, points);
}

/* ------------------------------------------------------------------ paths */

static const struct xfer_path_msg offer = {.kind = XFER_PATH_OFFER,
                                           .tenant = FAR,
                                           .epoch = 7,
                                           .mtu = IBV_MTU_1024,
                                           .push = true,
                                           .nmrs = 1,
                                           .mr = {{.bytes = PAGE_BYTES}},
                                           .nmws = 1};
static struct xfer_path_msg answer;
static uint32_t noted;
static char note[XFER_REGISTRATION_TEXT];
static bool fell_back;

static void on_send(void *ctx, uint32_t link, const struct xfer_path_msg *msg)
{
    (void)ctx, (void)link;
    answer = *msg;
}

static void on_note(void *ctx, uint32_t link, const struct xfer_note *told)
{
    (void)ctx, (void)link;
    assert_int_equal(told->tenant, FAR);
    snprintf(note, sizeof note, "%s", told->reason);
    fell_back = told->kind == XFER_NOTE_FALLBACK;
    noted++;
}

static struct verbs_path paths[TENANTS * XFER_RAILS_MAX];
static struct verbs_link link_verbs;

/* Both tenants' pages may use a link, which has come up. */
static void link_up(void)
{
    static struct xfer_link peer;

    memset(paths, 0, sizeof paths);
    noted = 0;
    peer = (struct xfer_link){.wanted = XFER_AUTO};
    link_verbs = (struct verbs_link){0};
    xfer.link = &peer;
    xfer.config.links = 1;
    xfer.config.rdma.path_send = on_send;
    xfer.config.rdma.path_note = on_note;
    v.transport = &xfer.transport[0];
    v.link = &link_verbs;
    v.path = paths;
    v.piece_sums = 1;
    assert_true(link_pieces(&v, 0));
    xfer_link_transport(&xfer, 0, XFER_AUTO, 1u << FAR | 1u << NEAR, true);
}

static void link_end(void)
{
    for (uint32_t i = 0; i < VERBS_PIECES; i++)
        free(link_verbs.piece[i].sums);
    free(link_verbs.piece);
}

/* Incoming pages use the ring; a peer that would be written to learns why it is not. */
TEST(verbs_far_that_no_nic_knows_has_paths_to_it_alone)
{
    dmabufs_that_work = addresses_that_work = 0;
    register_all();
    link_up();
    assert_true(path_of(&v, 0, FAR, 0)->wanted);
    assert_int_equal(noted, 0);
    xfer_path_msg(&xfer, 0, &offer);
    assert_int_equal(answer.kind, XFER_PATH_REFUSE);
    assert_int_equal(answer.epoch, 7);
    assert_non_null(strstr(answer.text, "not registered"));
    assert_false(path_of(&v, 0, FAR, 0)->source);
    link_end();
}

/* No path is offered or answered for that tenant; the other tenant's paths are made. */
TEST(verbs_far_tenant_without_registrations_has_no_paths_and_one_note)
{
    struct xfer_link_view view = {0};

    dmabufs_that_work = addresses_that_work = 0;
    ring_fails = true;
    register_all();
    link_up();
    assert_int_equal(path_of(&v, 0, FAR, 0)->state, PATH_NONE);
    assert_false(path_of(&v, 0, FAR, 0)->wanted);
    assert_true(path_of(&v, 0, NEAR, 0)->wanted);
    assert_int_equal(noted, 1);
    assert_string_equal(note, row(0).no_ring);
    assert_true(fell_back);
    verbs_link_view(&xfer.transport[0], 0, &view);
    assert_null(view.transport);
    assert_string_equal(view.reason, note);
    xfer_path_msg(&xfer, 0, &offer);
    assert_int_equal(answer.kind, XFER_PATH_REFUSE);
    assert_int_equal(answer.epoch, 7);
    assert_false(answer.push);
    assert_non_null(strstr(answer.text, "not registered"));
    link_end();
}

/* A daemon of an older version makes the offer, and may then offer to be pushed to. */
TEST(verbs_far_offer_to_read_is_refused_by_name)
{
    register_all();
    link_up();
    xfer_path_msg(&xfer, 0,
                  &(struct xfer_path_msg){
                      .kind = XFER_PATH_OFFER, .tenant = NEAR, .epoch = 8, .mtu = IBV_MTU_1024});
    assert_int_equal(answer.kind, XFER_PATH_REFUSE);
    assert_int_equal(answer.epoch, 8);
    assert_true(answer.push);
    assert_non_null(strstr(answer.text, "lets no peer read them"));
    assert_int_equal(answer.nmrs, 0);
    assert_int_equal(path_of(&v, 0, NEAR, 0)->state, PATH_PAUSED); /* ours, which was not touched */
    link_end();
}

void __wrap_io_threads_submit(struct io_threads *t, struct io_task *task, enum io_task_kind kind,
                              uint32_t lane, int fd);

void __wrap_io_threads_submit(struct io_threads *t, struct io_task *task, enum io_task_kind kind,
                              uint32_t lane, int fd)
{
    (void)t, (void)task, (void)kind, (void)lane, (void)fd;
}

/* The peer is a daemon of an older version, which agrees to no push: its pages take another way,
 * and the path is not made again while the link is up. */
TEST(verbs_far_peer_that_can_only_be_read_is_refused_by_name_and_offered_once)
{
    static struct ibv_qp pair;
    struct verbs_path *p;

    register_all();
    link_up();
    xfer.link[0].up = true;
    verbs_lane(&v, 0)->queue.head = verbs_lane(&v, 0)->path[0].conn = NONE;
    p = path_of(&v, 0, FAR, 0);
    p->state = PATH_OFFERED;
    p->epoch = 5;
    p->qp = &pair;
    xfer_path_msg(&xfer, 0,
                  &(struct xfer_path_msg){
                      .kind = XFER_PATH_ANSWER, .tenant = FAR, .epoch = 5, .mtu = IBV_MTU_1024});
    assert_int_equal(p->state, PATH_STOPPING);
    assert_int_equal(p->job, JOB_STOP);
    assert_int_equal(p->retry_ns, UINT64_MAX);
    assert_string_equal(p->reason,
                        "the peer cannot push pages, and this daemon does not read them by RDMA");
    assert_int_equal(noted, 1);
    assert_string_equal(note, p->reason);
    assert_true(fell_back);
    link_end();
}

/* The peer has more devices than this daemon has paths for. */
TEST(verbs_far_offer_of_a_rail_beyond_the_limit_is_refused_with_the_limit)
{
    register_all();
    link_up();
    xfer_path_msg(&xfer, 0,
                  &(struct xfer_path_msg){.kind = XFER_PATH_OFFER,
                                          .tenant = NEAR,
                                          .rail = XFER_RAILS_MAX,
                                          .epoch = 9,
                                          .mtu = IBV_MTU_1024});
    assert_int_equal(answer.kind, XFER_PATH_REFUSE);
    assert_int_equal(answer.epoch, 9);
    assert_string_equal(answer.text, "limits.rdma_rails of the source is 16, too low for rail "
                                     "number 16 of the destination: raise it");
    link_end();
}

/* The tenant's pages use these NICs even if another NIC is nearer. */
TEST(verbs_far_tenant_has_paths_over_the_nics_that_know_its_ring_alone)
{
    static const struct group_layout group = {
        .page_tokens = 64, .units = 1, .page_bytes = PAGE_BYTES};
    static struct batch batch = {.tenant = FAR};

    mem_pool_set(mem, 0, TIER_DEVICE, FAR, 0, BYTES, REGIONS, NULL, REGIONS, 1, &group);
    for (uint32_t r = 0; r < REGIONS; r++) /* the other one is nearer */
        xfer.region[FAR][r] = (struct xfer_region){.binds = true, .rail = 0};
    v.rail[1] = *rail;
    dmabufs_that_work = addresses_that_work = 0;
    ring_fails = true;
    register_all();
    dmabufs_that_work = UINT32_MAX;
    ring_fails = false;
    assert_true(memory_register(&v, &v.rail[1], why, sizeof why));
    v.nrails = 2;
    assert_int_equal(row(0).how, XFER_REGISTERED_NO); /* each region with each NIC */
    assert_int_equal(row(1).how, XFER_REGISTERED_DMABUF);
    assert_int_equal(row(1).region, 0);
    assert_int_equal(row(2).region, 1);
    link_up();
    assert_false(path_of(&v, 0, FAR, 0)->wanted);
    assert_true(path_of(&v, 0, FAR, 1)->wanted);
    assert_true(path_of(&v, 0, NEAR, 0)->wanted && path_of(&v, 0, NEAR, 1)->wanted);
    assert_int_equal(noted, 0);
    xfer.batch = &batch;
    path_of(&v, 0, FAR, 1)->state = PATH_READY;
    assert_ptr_equal(path_for(&v, 0, 0, NULL), path_of(&v, 0, FAR, 1));
    link_end();
    memory_close(&v, &v.rail[1]);
}

/* ------------------------------------------------------------------ a GPU that is lost */

static void *write_in_vain(void *ctx)
{
    uint64_t word = 0, bytes;

    (void)ctx;
    assert_false(mem_put(mem, mem_region_base(mem, FAR, 1, &bytes), &word, sizeof word));
    return NULL;
}

/* Fault 21: no page of it leaves any more. */
TEST(verbs_far_fault_21_no_page_leaves_a_gpu_that_is_lost)
{
    static const struct group_layout group = {
        .page_tokens = 64, .units = 1, .page_bytes = PAGE_BYTES};

    register_all();
    mem_pool_set(mem, 0, TIER_DEVICE, FAR, 0, BYTES, REGIONS, NULL, REGIONS, 1, &group);
    assert_true(memory_leaves(&v, 0));
    in.let_fail("cuMemcpyHtoDAsync", 1, CUDA_ERROR_LAUNCH_FAILED);
    on_a_thread(write_in_vain, NULL);
    assert_false(memory_leaves(&v, 0));
    print_message("fault=21 runs=1 injected=1 violations=0 devices_lost=1\n");
}
