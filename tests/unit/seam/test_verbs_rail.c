/* The choice of devices as rails, on a host with more of them than are looked at. The devices are
 * played here. */

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "seam/xfer/verbs/verbs.h"
#include "standin/standin_open.h"
#include "unit/rig/rig_dir.h"
#include "unit/rig/rig_mrs.h"

#undef ibv_query_port
#undef ibv_get_device_list

#define DEVICES (XFER_DEVICES_MAX + 4)

/* ------------------------------------------------------------------ the devices */

static struct ibv_device device[DEVICES];
static struct ibv_device *list[DEVICES + 1];
static struct ibv_context context[DEVICES];
static struct ibv_comp_channel channel[DEVICES];
static struct ibv_cq cq[DEVICES];
static struct ibv_pd pd[DEVICES];
static uint32_t regions_of[DEVICES]; /* regions that it registered */
static uint64_t no_gpus;             /* devices that do not know GPU memory, a bit each */
static int ndevices, open_fds, down; /* down: the device whose port is; -1: none */

static int number_of(const struct ibv_context *ctx)
{
    return (int)(ctx - context);
}

static int fd_of(void)
{
    open_fds++;
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void fd_close(int fd)
{
    open_fds--;
    close(fd);
}

struct ibv_device **ibv_get_device_list(int *n)
{
    for (int i = 0; i < ndevices; i++) {
        snprintf(device[i].name, sizeof device[i].name, "mlx5_%d", i);
        snprintf(device[i].ibdev_path, sizeof device[i].ibdev_path, "/nowhere");
        list[i] = &device[i];
    }
    *n = ndevices;
    return list;
}

void ibv_free_device_list(struct ibv_device **l)
{
    assert_ptr_equal(l, list);
}

const char *ibv_get_device_name(struct ibv_device *dev)
{
    return dev->name;
}

static int armed(struct ibv_cq *at, int solicited)
{
    (void)at, (void)solicited;
    return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
    struct ibv_context *ctx = &context[dev - device];

    *ctx = (struct ibv_context){.device = dev, .async_fd = fd_of()};
    ctx->ops.req_notify_cq = armed;
    return ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
    fd_close(ctx->async_fd);
    return 0;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    (void)ctx;
    *attr = (struct ibv_device_attr){
        .phys_port_cnt = 1, .max_cqe = 64, .max_mr_size = (uint64_t)1 << 40};
    return 0;
}

int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *ret)
{
    struct ibv_port_attr *attr = (struct ibv_port_attr *)(void *)ret;

    (void)port;
    attr->state = number_of(ctx) == down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    attr->gid_tbl_len = 2;
    attr->pkey_tbl_len = 3;
    attr->active_mtu = IBV_MTU_1024;
    return 0;
}

int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, __be16 *ret)
{
    (void)ctx, (void)port;
    *ret = index == 2 ? 0 : htobe16((uint16_t)(0xffff - index));
    return 0;
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
    return state == IBV_PORT_ACTIVE ? "active" : "down";
}

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
    (void)ctx, (void)port, (void)flags;
    memset(entry, 0, bytes);
    entry->gid.raw[15] = (uint8_t)(index + 1);
    return index == 1 ? ENODATA : 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
    channel[number_of(ctx)].fd = fd_of();
    return &channel[number_of(ctx)];
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
    fd_close(ch->fd);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int depth, void *cq_context,
                             struct ibv_comp_channel *ch, int vector)
{
    (void)depth, (void)cq_context, (void)ch, (void)vector;
    cq[number_of(ctx)].context = ctx;
    return &cq[number_of(ctx)];
}

int ibv_destroy_cq(struct ibv_cq *at)
{
    (void)at;
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
    pd[number_of(ctx)].context = ctx;
    return &pd[number_of(ctx)];
}

int ibv_dealloc_pd(struct ibv_pd *at)
{
    (void)at;
    return 0;
}

/* The limit of locked memory is the memory's size. The address sanitizer calls this while it
 * starts, before instrumented code can run. */
__attribute__((no_sanitize_address)) int getrlimit(__rlimit_resource_t what, struct rlimit *ret)
{
    (void)what;
    *ret = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    return 0;
}

/* ------------------------------------------------------------------ the rig */

static struct xfer xfer;
static struct verbs v;

static void open_named(int devices, const char *first, const char *second)
{
    const char *const names[] = {first, second};
    struct xfer_rdma_config *c = &xfer.config.rdma;

    xfer = (struct xfer){0};
    v = (struct verbs){.xfer = &xfer};
    for (; c->ndevices < 2 && names[c->ndevices]; c->ndevices++)
        snprintf(c->device[c->ndevices], sizeof c->device[0], "%s", names[c->ndevices]);
    ndevices = devices;
    down = -1;
    open_fds = 0;
    registered = 0;
}

static void close_all(void)
{
    rails_close(&v);
    assert_int_equal(open_fds, 0);
    assert_int_equal(registered, 0);
}

/* ------------------------------------------------------------------ cases */

TEST(verbs_rail_named_devices_are_found_among_many)
{
    open_named(DEVICES, "mlx5_35", "mlx5_3");
    rails_open(&v);
    assert_int_equal(v.nrails, 2);
    assert_string_equal(v.rail[0].view.device, "mlx5_35");
    assert_string_equal(v.rail[1].view.device, "mlx5_3");
    assert_string_equal(v.view.why, "mlx5_35, mlx5_3: named by rdma_device");
    assert_int_equal(v.view.ndevices, XFER_DEVICES_MAX);
    for (uint32_t i = 0; i < v.view.ndevices; i++) {
        const char *state_of = v.view.found[i].state;

        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(v.view.found[k].name, v.view.found[i].name);
        assert_non_null(strstr(state_of, i < 2 ? "port 1 is active" : "not named by rdma_device"));
    }
    close_all();
}

TEST(verbs_rail_a_name_that_is_not_there_has_a_line)
{
    open_named(3, "mlx5_33", "mlx5_1");
    rails_open(&v);
    assert_int_equal(v.nrails, 1);
    assert_string_equal(v.rail[0].view.device, "mlx5_1");
    assert_string_equal(v.view.why,
                        "mlx5_1: named by rdma_device; other devices that it names cannot be used");
    assert_int_equal(v.view.ndevices, 4);
    assert_string_equal(v.view.found[0].name, "mlx5_33");
    assert_string_equal(v.view.found[0].state, "no device has that name");
    close_all();
    open_named(3, "mlx_1", NULL);
    rails_open(&v);
    assert_int_equal(v.nrails, 0);
    assert_string_equal(v.view.why,
                        "none of the devices that rdma_device names can be used: mlx_1: "
                        "no device has that name");
    close_all();
    open_named(3, "mlx5_2", NULL);
    down = 2;
    rails_open(&v);
    assert_string_equal(v.view.why,
                        "none of the devices that rdma_device names can be used: mlx5_2: "
                        "port 1 is down");
    close_all();
    open_named(0, "mlx5_2", NULL);
    rails_open(&v);
    assert_non_null(strstr(v.view.why, "no RDMA device: load its driver"));
    close_all();
}

TEST(verbs_rail_without_names_it_is_the_first_that_can)
{
    open_named(DEVICES, NULL, NULL);
    down = 0;
    rails_open(&v);
    assert_int_equal(v.nrails, 1);
    assert_string_equal(v.rail[0].view.device, "mlx5_1");
    assert_string_equal(v.view.found[0].state, "port 1 is down");
    assert_string_equal(v.view.found[2].state, "not needed");
    close_all();
}

/* Settings for the fabric, and what the port reports about them. */
static const struct {
    struct xfer_rdma_tuning asked;
    const char *state; /* of the device */
} tunings[] = {
    {{.gid_index = 0, .mtu = 1024, .pkey_index = 1}, "rail 0: port 1 is active, gid 0"},
    {{.gid_index = 1, .mtu = 1024},
     "rdma.gid_index is 1, and port 1 has no GID at that index: its table has 2 entries, which "
     "/sys/class/infiniband shows"},
    {{.gid_index = 2, .mtu = 1024},
     "rdma.gid_index is 2, and port 1 has no GID at that index: its table has 2 entries, which "
     "/sys/class/infiniband shows"},
    {{.mtu = 2048},
     "rdma.mtu is 2048, and the active MTU of port 1 is 1024: lower it, or raise the MTU of its "
     "network device"},
    {{.mtu = 256, .pkey_index = 2},
     "rdma.pkey_index is 2, and port 1 has no P_Key at that index: its table has 3 entries"},
    {{.mtu = 256, .pkey_index = 3},
     "rdma.pkey_index is 3, and port 1 has no P_Key at that index: its table has 3 entries"},
};

TEST(verbs_rail_a_port_that_has_not_what_is_asked_for_is_not_used)
{
    for (size_t i = 0; i < sizeof tunings / sizeof *tunings; i++) {
        open_named(1, "mlx5_0", NULL);
        xfer.config.rdma.tuning = &tunings[i].asked;
        rails_open(&v);
        assert_string_equal(v.view.found[0].state, tunings[i].state);
        assert_int_equal(v.nrails, i == 0);
        close_all();
    }
}

TEST(verbs_rail_a_port_is_used_as_it_is_asked_for)
{
    static const uint32_t mtus[] = {256, 512, 1024, XFER_BY_PORT};

    for (uint32_t i = 0; i < 4; i++) {
        const struct xfer_rdma_tuning asked = {
            .gid_index = XFER_BY_PORT, .mtu = mtus[i], .pkey_index = 1};

        open_named(1, "mlx5_0", NULL);
        xfer.config.rdma.tuning = &asked;
        rails_open(&v);
        assert_int_equal(v.nrails, 1);
        assert_int_equal(v.rail[0].view.mtu, i < 3 ? mtus[i] : 1024);
        assert_int_equal(v.rail[0].mtu, i < 3 ? IBV_MTU_256 + i : IBV_MTU_1024);
        assert_int_equal(v.rail[0].view.pkey, 0xfffe);
        assert_ptr_equal(v.rail[0].tuning, &asked);
        close_all();
    }
    open_named(1, "mlx5_0", NULL);
    rails_open(&v);
    assert_ptr_equal(v.rail[0].tuning, &xfer_rdma_tuning_initial);
    assert_int_equal(v.rail[0].view.pkey, 0xffff);
    close_all();
}

/* ------------------------------------------------------------------ memory of GPUs */

#define GPU_PORT "devices/pci0000:a0/0000:a0:01.0/0000:10:00.0/"
#define MIB      ((uint64_t)1 << 20)

static const char gpus[2][MEM_DEVICE_BYTES] = {STANDIN_UUID(0), STANDIN_UUID(1)};
static struct mem *mem;
static struct xfer_rdma_view view;

static void put_link(const char *link, const char *to)
{
    char beside[256];

    snprintf(beside, sizeof beside, "%s", link);
    *strrchr(beside, '/') = '\0';
    put_file(strcat(beside, "/uevent"), "");
    assert_return_code(symlink(to, in_dir(link)), 0);
}

static void put_nic(int number, const char *path, const char *node)
{
    char name[256], link[64];

    snprintf(name, sizeof name, "%s/numa_node", path);
    put_file(name, node);
    snprintf(link, sizeof link, "class/infiniband/mlx5_%d/device", number);
    put_link(link, in_dir(path));
}

/* Two GPUs, each below a switch with a NIC: mlx5_1 is that of the first, mlx5_0 that of the second.
 * mlx5_2 is on their socket, mlx5_3 on the other one. */
FIXTURE(make_gpus)
{
    static const char *const gpu[] = {GPU_PORT "0000:11:00.0/0000:aa:00.0",
                                      "devices/pci0000:b0/0000:b0:01.0/0000:20:00.0/0000:21:00.0/"
                                      "0000:ab:00.0"};
    struct mem_config m = {.tenants = 2,
                           .tenant = {{.memory_bytes = 2 * MIB, .regions = 2},
                                      {.memory_bytes = 2 * MIB, .regions = 1}},
                           .engines = 1,
                           .pools = 1,
                           .page_records = 8,
                           .sums_per_page = 2,
                           .page_bytes_min = 4096,
                           .workers = 1,
                           .jobs = 4,
                           .incarnation = 1,
                           .device = {gpus},
                           .cuda_library = STANDIN_MEMORY};
    const char *why = "";
    char name[256];

    make_dir(NULL);
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s/numa_node", gpu[i]);
        put_file(name, "0\n");
        snprintf(name, sizeof name, "bus/pci/devices/0000:a%c:00.0", "ab"[i]);
        put_link(name, in_dir(gpu[i]));
    }
    put_nic(1, GPU_PORT "0000:11:01.0/0000:12:00.0", "0\n");
    put_nic(0, "devices/pci0000:b0/0000:b0:01.0/0000:20:00.0/0000:21:01.0/0000:22:00.0", "0\n");
    put_nic(2, "devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0", "0\n");
    put_nic(3, "devices/pci0000:d0/0000:d0:01.0/0000:d1:00.0", "1\n");
    if (mem_create(&m, &mem, &why) != TERN_OK)
        fail_msg("%s", why);
    return 0;
}

static uint64_t fails; /* devices whose self-test fails: a bit each */
static uint32_t tested;

bool __wrap_self_test(struct verbs *of, struct verbs_rail *rail, char *ret_why, size_t cap);
bool __wrap_self_test(struct verbs *of, struct verbs_rail *rail, char *ret_why, size_t cap)
{
    (void)of;
    tested++;
    snprintf(ret_why, cap, "the self-test with host memory failed: played");
    return !(fails >> number_of(rail->ctx) & 1);
}

static bool of_gpus(const void *at)
{
    uint64_t bytes;

    for (uint32_t r = 0; mem && r < 2; r++)
        if (at == mem_region_base(mem, 0, r, &bytes))
            return true;
    return false;
}

static int registration_error(const struct registration *r)
{
    int number = number_of(r->pd->context);

    if (of_gpus(r->addr) && (no_gpus >> number & 1))
        return EOPNOTSUPP;
    regions_of[number]++;
    return 0;
}

FIXTURE(remove_gpus)
{
    mem_destroy(mem);
    mem = NULL;
    return remove_dir(NULL);
}

/* Opens the GPUs' tenant alone, or also the other one, which has host memory. */
static void open_gpus(uint32_t tenants)
{
    memset(regions_of, 0, sizeof regions_of);
    no_gpus = 0;
    open_named(4, NULL, NULL);
    xfer.config.mem = mem;
    xfer.config.rdma.tenants = v.tenants = tenants;
    xfer.config.rdma.sys = dir;
}

static struct xfer_region_view region(uint32_t tenant, uint32_t number)
{
    struct xfer_region_view r;

    view = v.view;
    assert_false(xfer_region_view(&xfer, &view, tenant, number, &r));
    view.built = true;
    assert_true(xfer_region_view(&xfer, &view, tenant, number, &r));
    return r;
}

static void assert_region(uint32_t number, const char *name, uint32_t rail, const char *reason)
{
    struct xfer_region_view r = region(0, number);

    assert_string_equal(r.gpu, gpus[number]);
    assert_string_equal(r.reason, reason);
    assert_true(r.rail == rail);
    if (name)
        assert_string_equal(r.device, name);
    else
        assert_null(r.device);
}

/* Once each, though they are chosen in two ways. */
TEST_WITH(verbs_rail_devices_that_the_self_test_has_failed_are_tried_once, make_gpus, remove_gpus)
{
    open_gpus(1);
    tested = 0;
    fails = 1u << 0 | 1u << 1; /* those that the regions get */
    rails_open(&v);
    fails = 0;
    assert_int_equal(tested, 3);
    assert_int_equal(v.nrails, 1);
    assert_string_equal(v.rail[0].view.device, "mlx5_2");
    assert_string_equal(v.view.found[0].state, "the self-test with host memory failed: played");
    close_all();
}

TEST_WITH(verbs_rail_regions_get_the_nic_that_is_nearest_to_their_gpu, make_gpus, remove_gpus)
{
    open_gpus(1);
    rails_open(&v);
    assert_int_equal(v.nrails, 2);
    assert_string_equal(v.rail[0].view.device, "mlx5_0");
    assert_string_equal(v.rail[1].view.device, "mlx5_1");
    assert_string_equal(v.view.why, "2 rails, chosen for the regions as listed");
    assert_region(0, "mlx5_1", 1, "same switch");
    assert_region(1, "mlx5_0", 0, "same switch");
    assert_string_equal(region(0, 1).pci, "0000:AB:00.0");
    assert_int_equal(v.view.memlock_needed, 0); /* GPU memory needs no locked memory */
    assert_int_equal(regions_of[0], 2);
    close_all();
    open_gpus(1);
    down = 1;
    rails_open(&v);
    assert_region(0, "mlx5_2", 1, "same socket");
    assert_region(1, "mlx5_0", 0, "same switch");
    close_all();
    open_gpus(1);
    xfer.config.rdma.rails = 1;
    rails_open(&v);
    assert_int_equal(v.nrails, 1);
    assert_region(0, "mlx5_1", 0, "same switch");
    assert_region(1, "mlx5_1", 0, "same socket");
    close_all();
}

TEST_WITH(verbs_rail_regions_take_the_nics_that_are_named, make_gpus, remove_gpus)
{
    static const char both[2][XFER_DEVICE_BYTES] = {"mlx5_3", "mlx5_3"},
                      none[2][XFER_DEVICE_BYTES] = {"mlx5_9", "mlx5_2"};

    open_gpus(1);
    xfer.config.rdma.region_device[0] = both;
    rails_open(&v);
    assert_int_equal(v.nrails, 1);
    assert_region(0, "mlx5_3", 0, "named by tenants[].rdma_devices");
    assert_region(1, "mlx5_3", 0, "named by tenants[].rdma_devices");
    close_all();
    open_gpus(1);
    xfer.config.rdma.region_device[0] = none;
    rails_open(&v);
    assert_region(0, "mlx5_9", NONE, "tenants[].rdma_devices: no device has that name");
    assert_region(1, "mlx5_2", 0, "named by tenants[].rdma_devices");
    close_all();
}

/* More devices than are looked at, and more than may be rails: named ones come first. */
TEST_WITH(verbs_rail_regions_take_a_named_nic_before_the_nearest, make_gpus, remove_gpus)
{
    static const char far[1][XFER_DEVICE_BYTES] = {"mlx5_35"};

    open_gpus(2);
    ndevices = DEVICES;
    xfer.config.rdma.rails = 2;
    xfer.config.rdma.region_device[1] = far;
    rails_open(&v);
    assert_int_equal(v.nrails, 2);
    assert_string_equal(v.rail[0].view.device, "mlx5_35");
    assert_true(region(1, 0).rail == 0);
    assert_string_equal(region(1, 0).reason, "named by tenants[].rdma_devices");
    assert_string_equal(v.rail[1].view.device, "mlx5_0");
    assert_region(0, "mlx5_0", 1, "same socket");
    assert_region(1, "mlx5_0", 1, "same switch");
    close_all();
}

/* A GPU uses the nearest of the named rails; host memory uses all of them. */
TEST_WITH(verbs_rail_regions_choose_among_rails_that_are_named, make_gpus, remove_gpus)
{
    open_gpus(2);
    xfer.config.rdma.ndevices = 2;
    strcpy(xfer.config.rdma.device[0], "mlx5_3");
    strcpy(xfer.config.rdma.device[1], "mlx5_0");
    rails_open(&v);
    assert_int_equal(v.nrails, 2);
    assert_region(0, "mlx5_0", 1, "same socket");
    assert_region(1, "mlx5_0", 1, "same switch");
    assert_null(region(1, 0).gpu);
    assert_null(region(1, 0).device);
    assert_string_equal(region(1, 0).reason,
                        "host memory: its pages use any device that rdma_device names");
    assert_int_equal(v.view.memlock_needed, 2 * 2 * MIB);
    close_all();
}

/* Host memory is one more place, with one more rail. */
TEST_WITH(verbs_rail_regions_of_the_host_have_one_beside_those_of_gpus, make_gpus, remove_gpus)
{
    open_gpus(2);
    rails_open(&v);
    assert_region(0, "mlx5_1", 1, "same switch");
    assert_region(1, "mlx5_0", 0, "same switch");
    assert_true(region(1, 0).rail < v.nrails);
    assert_int_equal(v.nrails, 3);
    assert_int_equal(v.view.memlock_needed, 3 * 2 * MIB);
    close_all();
}

/* The NIC stays in use for all memory that it knows, and the GPUs' pages use the other ones. */
TEST_WITH(verbs_rail_regions_tell_of_a_nic_that_does_not_know_their_gpu, make_gpus, remove_gpus)
{
    open_gpus(2);
    no_gpus = 1u << 1;
    rails_open(&v);
    assert_region(0, "mlx5_1", 1,
                  "the tenant's memory is not registered with this device, so its pages use other "
                  "devices or TCP");
    assert_region(1, "mlx5_0", 0, "same switch");
    assert_int_equal(v.rail[0].domain[0].n, 2);
    assert_int_equal(v.rail[1].domain[0].n, 0);
    assert_int_equal(v.rail[1].domain[1].n, 1);
    close_all();
}

TEST_WITH(verbs_rail_regions_without_sysfs_go_over_any_rail, make_gpus, remove_gpus)
{
    open_gpus(1);
    xfer.config.rdma.sys = "/nowhere";
    rails_open(&v);
    assert_int_equal(v.nrails, 1);
    assert_region(0, NULL, NONE, "sysfs does not show the GPU: give the container /sys");
    close_all();
}

/* Where RDMA is not wanted the choice is still reported, and nothing is left open. */
TEST_WITH(verbs_rail_regions_are_shown_where_rdma_is_not_wanted, make_gpus, remove_gpus)
{
    open_gpus(1);
    rails_look(&xfer);
    v.view = xfer.looked;
    assert_region(0, "mlx5_1", NONE, "same switch");
    assert_region(1, "mlx5_0", NONE, "same switch");
    assert_int_equal(v.view.memlock_needed, 0);
    close_all();
}
