/* Which devices are taken as rails, on a host with more of them than are looked at. The devices are
 * played here. */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "seam/xfer/verbs/verbs.h"
#include "testing/test.h"

#undef ibv_query_port
#undef ibv_get_device_list

#define DEVICES (XFER_DEVICES_MAX + 4)

/* ------------------------------------------------------------------ the devices */

static struct ibv_device device[DEVICES];
static struct ibv_device *list[DEVICES + 1];
static struct ibv_context context[DEVICES];
static struct ibv_comp_channel channel[DEVICES];
static struct ibv_cq cq[DEVICES];
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
    *attr = (struct ibv_device_attr){.phys_port_cnt = 1, .max_cqe = 64};
    return 0;
}

int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *ret)
{
    struct ibv_port_attr *attr = (struct ibv_port_attr *)(void *)ret;

    (void)port;
    attr->state = number_of(ctx) == down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    attr->gid_tbl_len = 1;
    attr->active_mtu = IBV_MTU_1024;
    return 0;
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
    return state == IBV_PORT_ACTIVE ? "active" : "down";
}

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
    (void)ctx, (void)port, (void)index, (void)flags;
    memset(entry, 0, bytes);
    entry->gid.raw[15] = 1;
    return 0;
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
}

static void close_all(void)
{
    rails_close(&v);
    assert_int_equal(open_fds, 0);
}

/* ------------------------------------------------------------------ cases */

TEST(verbs_rail_named_devices_are_found_among_many)
{
    open_named(DEVICES, "mlx5_35", "mlx5_3");
    rails_open(&v);
    assert_int_equal(v.nrails, 2);
    assert_string_equal(v.rail[0].view.device, "mlx5_35");
    assert_string_equal(v.rail[1].view.device, "mlx5_3");
    assert_string_equal(v.view.why, "mlx5_35, mlx5_3: asked for by name");
    assert_int_equal(v.view.ndevices, XFER_DEVICES_MAX);
    for (uint32_t i = 0; i < v.view.ndevices; i++) {
        const char *state_of = v.view.found[i].state;

        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(v.view.found[k].name, v.view.found[i].name);
        assert_non_null(strstr(state_of, i < 2 ? "port 1 is active" : "not one of those"));
    }
    close_all();
}

TEST(verbs_rail_a_name_that_is_not_there_has_a_line)
{
    open_named(3, "mlx5_33", "mlx5_1");
    rails_open(&v);
    assert_int_equal(v.nrails, 1);
    assert_string_equal(v.rail[0].view.device, "mlx5_1");
    assert_string_equal(v.view.why, "mlx5_1: asked for by name; others that were cannot be used");
    assert_int_equal(v.view.ndevices, 4);
    assert_string_equal(v.view.found[0].name, "mlx5_33");
    assert_string_equal(v.view.found[0].state, "there is no device of that name");
    close_all();
    open_named(3, "mlx_1", NULL);
    rails_open(&v);
    assert_int_equal(v.nrails, 0);
    assert_string_equal(v.view.why, "none of the devices asked for by name can be used: mlx_1: "
                                    "there is no device of that name");
    close_all();
    open_named(3, "mlx5_2", NULL);
    down = 2;
    rails_open(&v);
    assert_string_equal(v.view.why, "none of the devices asked for by name can be used: mlx5_2: "
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
