/* Chooses the local devices in use (rails), and reports about them. Devices are chosen by name, in
 * the order of the names; or as those nearest to the GPUs with tenants' memory (region_nics.c); or
 * as the one with an active port that is nearest to host memory. A device that cannot be used is
 * left out, and the view reports why. Without devices, pages use TCP or do not move. Called by
 * verbs.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "seam/mem/numa.h"
#include "seam/xfer/verbs/verbs.h"

/* ------------------------------------------------------------------ devices */

static int open_attribute(const struct ibv_device *dev)
{
    char path[sizeof dev->ibdev_path + 16];

    snprintf(path, sizeof path, "%s/node_guid", dev->ibdev_path);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static bool take_device(struct verbs_rail *rail, struct ibv_device *dev, char *ret_why, size_t cap)
{
    struct ibv_device_attr attr;

    rail->ctx = ibv_open_device(dev);
    if (!rail->ctx || ibv_query_device(rail->ctx, &attr) != 0) {
        snprintf(ret_why, cap, "cannot be opened: %s", strerror(errno));
        return false;
    }
    snprintf(rail->view.device, sizeof rail->view.device, "%s", ibv_get_device_name(dev));
    rail->alive_fd = open_attribute(dev);
    rail->view.max_mr_bytes = attr.max_mr_size;
    rail->view.memory_windows =
        (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) && attr.max_mw >= (int)VERBS_MWS;
    rail->view.completion_queue = (uint32_t)attr.max_cqe;
    snprintf(ret_why, cap, "has no port");
    for (uint32_t port = 1; port <= attr.phys_port_cnt; port++)
        if (port_take(rail, port, ret_why, cap))
            return true;
    return false;
}

/* Undoes take_device, whether it succeeded or not. */
static void drop_device(struct verbs_rail *rail)
{
    if (rail->ctx)
        ibv_close_device(rail->ctx);
    if (rail->alive_fd >= 0)
        close(rail->alive_fd);
}

/* ------------------------------------------------------------------ queues */

static bool nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

/* Returns the completion queue's size: requests and receives, at most what the device allows. */
static uint32_t completions(const struct verbs_rail *rail)
{
    const struct xfer_rdma_config *c = &rail->v->xfer->config.rdma;
    uint64_t unasked = (uint64_t)c->pulls * c->tenants * VERBS_PIECES;
    uint64_t most =
        VERBS_COMPLETION_QUEUE + (unasked < VERBS_UNASKED_MAX ? unasked : VERBS_UNASKED_MAX);

    return rail->view.completion_queue < most ? rail->view.completion_queue : (uint32_t)most;
}

static bool open_queues(struct verbs_rail *rail, char *ret_why, size_t cap)
{
    rail->view.completion_queue = completions(rail);
    rail->channel = ibv_create_comp_channel(rail->ctx);
    if (rail->channel)
        rail->cq =
            ibv_create_cq(rail->ctx, (int)rail->view.completion_queue, NULL, rail->channel, 0);
    if (!rail->cq || ibv_req_notify_cq(rail->cq, 0) != 0 || !nonblocking(rail->channel->fd) ||
        !nonblocking(rail->ctx->async_fd)) {
        snprintf(ret_why, cap, "no completion queue of %u entries can be made: %s",
                 rail->view.completion_queue, strerror(errno));
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------ open and close */

static void rail_close(struct verbs *v, struct verbs_rail *rail)
{
    memory_close(v, rail);
    if (rail->cq)
        ibv_destroy_cq(rail->cq);
    if (rail->channel)
        ibv_destroy_comp_channel(rail->channel);
    drop_device(rail);
    *rail = (struct verbs_rail){.v = v, .alive_fd = -1};
}

static struct verbs_rail rail_none(const struct xfer *xfer)
{
    const struct xfer_rdma_tuning *tuning = xfer->config.rdma.tuning;

    return (struct verbs_rail){.tuning = tuning ? tuning : &xfer_rdma_tuning_initial,
                               .alive_fd = -1};
}

/* Opens that device as the next rail. Returns false if it cannot be used; found[at] has the
 * reason. */
static bool rail_open(struct verbs *v, struct ibv_device *dev, uint32_t at)
{
    struct verbs_rail *rail = &v->rail[v->nrails];
    char *state = v->view.found[at].state;
    size_t cap = sizeof v->view.found[at].state;

    bool ready;

    *rail = rail_none(v->xfer);
    rail->v = v;
    ready = take_device(rail, dev, state, cap) && memory_register(v, rail, state, cap);
    v->test_failed[at] = ready && !self_test(v, rail, state, cap);
    if (!ready || v->test_failed[at] || !open_queues(rail, state, cap)) {
        rail_close(v, rail);
        return false;
    }
    rail->view.node = v->view.found[at].node;
    snprintf(state, cap, "rail %u: port %u is active, gid %u", v->nrails, rail->view.port,
             rail->view.gid_index);
    v->nrails++;
    return true;
}

/* `list` begins with the configured devices, in their order. A NULL entry: no device has that
 * name. */
static void rails_by_name(struct verbs *v, struct ibv_device **list)
{
    const struct xfer_rdma_config *c = &v->xfer->config.rdma;
    struct xfer_rdma_view *view = &v->view;
    size_t n = 0;

    for (uint32_t i = 0; i < view->ndevices; i++)
        if (i >= c->ndevices)
            snprintf(view->found[i].state, sizeof view->found[i].state, "not named by rdma_device");
        else if (list[i])
            rail_open(v, list[i], i);
    if (v->nrails == 0) {
        snprintf(view->why, sizeof view->why,
                 "none of the devices that rdma_device names can be used: %s: %s",
                 view->found[0].name, view->found[0].state);
        return;
    }
    for (uint32_t k = 0; k < v->nrails && n < sizeof view->why; k++)
        n += (size_t)snprintf(view->why + n, sizeof view->why - n, "%s%s", k ? ", " : "",
                              v->rail[k].view.device);
    if (n < sizeof view->why)
        snprintf(view->why + n, sizeof view->why - n, ": named by rdma_device%s",
                 v->nrails < c->ndevices ? "; other devices that it names cannot be used" : "");
}

/* Orders devices of known distance by distance, then the others as the system lists them. */
static void order_by_distance(const struct xfer_rdma_view *view, uint32_t *ret_order)
{
    for (uint32_t i = 0; i < view->ndevices; i++) {
        uint32_t k = i;

        for (; k > 0 &&
               (unsigned)view->found[ret_order[k - 1]].distance > (unsigned)view->found[i].distance;
             k--)
            ret_order[k] = ret_order[k - 1];
        ret_order[k] = i;
    }
}

/* Skips devices that failed their self-test when they were tried for the regions. */
static void rails_by_distance(struct verbs *v, struct ibv_device **list)
{
    struct xfer_rdma_view *view = &v->view;
    uint32_t order[XFER_DEVICES_MAX], chosen = 0;

    order_by_distance(view, order);
    for (uint32_t k = 0; k < view->ndevices; k++) {
        uint32_t i = order[k];

        if (v->nrails > 0)
            snprintf(view->found[i].state, sizeof view->found[i].state, "not needed");
        else if (!v->test_failed[i] && rail_open(v, list[i], i))
            chosen = i;
    }
    if (v->nrails > 0 && view->found[chosen].distance >= 0)
        snprintf(view->why, sizeof view->why,
                 "%s: with an active port and nearest to the memory (node %d, distance %d)",
                 view->found[chosen].name, view->found[chosen].node, view->found[chosen].distance);
    else if (v->nrails > 0)
        snprintf(view->why, sizeof view->why, "%s: the first with an active port",
                 view->found[chosen].name);
    else
        snprintf(view->why, sizeof view->why, "no RDMA device can be used: %s: %s",
                 view->found[0].name, view->found[0].state);
}

/* Returns which devices could be rails, a bit each. Leaves none open. */
static uint32_t probe(const struct xfer *xfer, struct xfer_rdma_view *view,
                      struct ibv_device **list)
{
    uint32_t usable = 0;

    for (uint32_t i = 0; i < view->ndevices; i++) {
        struct verbs_rail rail = rail_none(xfer);
        char *state = view->found[i].state;
        size_t cap = sizeof view->found[i].state;

        if (list[i] && take_device(&rail, list[i], state, cap)) {
            snprintf(state, cap, "not in use; at start port %u was active, gid %u", rail.view.port,
                     rail.view.gid_index);
            usable |= 1u << i;
        }
        drop_device(&rail);
    }
    return usable;
}

/* Returns the devices that regions get, a bit each; 0 if all memory is host memory and neither
 * rdma_device nor the regions name one. */
static uint32_t choose(struct xfer *xfer, struct xfer_rdma_view *view, struct ibv_device **list)
{
    const struct xfer_rdma_config *c = &xfer->config.rdma;
    uint32_t got = 0, n;

    if (c->ndevices == 0 && regions_matter(xfer))
        got = regions_choose(xfer, view, probe(xfer, view, list));
    n = (uint32_t)__builtin_popcount(got);
    view->rails_wanted = n < xfer_rails(c) ? n : xfer_rails(c);
    return got;
}

static void rails_by_region(struct verbs *v, struct ibv_device **list, uint32_t got)
{
    struct xfer_rdma_view *view = &v->view;
    uint32_t most = xfer_rails(&v->xfer->config.rdma);

    for (uint32_t i = 0; i < view->ndevices; i++)
        if ((got >> i & 1) && v->nrails == most)
            snprintf(view->found[i].state, sizeof view->found[i].state,
                     "not used, because limits.rdma_rails is %u", most);
        else if (got >> i & 1)
            rail_open(v, list[i], i);
    snprintf(view->why, sizeof view->why, "%u rails, chosen for the regions as listed", v->nrails);
}

/* Gives each region a rail, chosen among the devices in use. */
static void rails_to_regions(struct verbs *v)
{
    const struct mem *mem = v->xfer->config.mem;
    uint32_t rail_at[XFER_DEVICES_MAX], in_use = 0;

    for (uint32_t i = 0; i < v->view.ndevices; i++) {
        rail_at[i] = NONE;
        for (uint32_t k = 0; k < v->nrails; k++)
            if (strcmp(v->rail[k].view.device, v->view.found[i].name) == 0)
                rail_at[i] = k;
        in_use |= rail_at[i] == NONE ? 0 : 1u << i;
    }
    regions_choose(v->xfer, &v->view, in_use);
    for (uint32_t t = 0; t < v->xfer->config.rdma.tenants; t++)
        for (uint32_t r = 0; r < mem_region_count(mem, t); r++) {
            struct xfer_region *region = &v->xfer->region[t][r];

            region->rail = region->device == NONE ? NONE : rail_at[region->device];
            region->unregistered = region->rail != NONE && v->rail[region->rail].domain[t].n == 0 &&
                                   !v->rail[region->rail].domain[t].ring.mr;
        }
}

static void find_nodes(const struct xfer *xfer, struct xfer_rdma_view *view)
{
    const char *sys = xfer->config.rdma.sys ? xfer->config.rdma.sys : NUMA_SYS;
    const struct mem *mem = xfer->config.mem;
    const uint8_t *base;
    uint64_t bytes;

    for (uint32_t t = 0; t < xfer->config.rdma.tenants; t++)
        for (uint32_t r = 0; r < mem_region_count(mem, t); r++) {
            base = mem_region_base(mem, t, r, &bytes);
            if (!mem_region_pci(mem, t, r))
                view->memory_nodes |= numa_of_memory(base, bytes);
        }
    view->cpu_nodes = numa_of_cpus(sys);
    for (uint32_t i = 0; i < view->ndevices; i++) {
        view->found[i].node = numa_of_rdma_device(sys, view->found[i].name);
        view->found[i].distance = numa_nearest(sys, view->found[i].node, view->memory_nodes);
    }
}

static void find(struct xfer_rdma_view *view, const char *name, struct ibv_device *dev,
                 struct ibv_device **ret_list)
{
    if (view->ndevices == XFER_DEVICES_MAX)
        return;
    snprintf(view->found[view->ndevices].name, sizeof view->found[0].name, "%s", name);
    if (!dev)
        snprintf(view->found[view->ndevices].state, sizeof view->found[0].state,
                 "no device has that name");
    ret_list[view->ndevices++] = dev;
}

static bool asked_for(const struct xfer_rdma_config *c, const char *name)
{
    for (uint32_t k = 0; k < c->ndevices; k++)
        if (strcmp(c->device[k], name) == 0)
            return true;
    return false;
}

static bool region_asks_for(const struct xfer_rdma_config *c, const struct mem *mem,
                            const char *name)
{
    for (uint32_t t = 0; t < c->tenants; t++)
        for (uint32_t r = 0; c->region_device[t] && r < mem_region_count(mem, t); r++)
            if (strcmp(c->region_device[t][r], name) == 0)
                return true;
    return false;
}

/* Lists the devices, configured ones first, because a host may have more devices than the list
 * takes or than may be rails. Returns NULL if there is none; otherwise the caller frees the
 * list. */
static struct ibv_device **find_devices(const struct xfer *xfer, struct xfer_rdma_view *view,
                                        struct ibv_device **ret_found)
{
    const struct xfer_rdma_config *c = &xfer->config.rdma;
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);

    static_assert(XFER_RAILS_MAX <= XFER_DEVICES_MAX, "all that can be asked for");
    for (uint32_t k = 0; k < c->ndevices; k++) {
        int i = 0;

        while (list && i < n && strcmp(ibv_get_device_name(list[i]), c->device[k]) != 0)
            i++;
        find(view, c->device[k], list && i < n ? list[i] : NULL, ret_found);
    }
    for (int others = 0; others < 2; others++)
        for (int i = 0; list && i < n; i++) {
            const char *name = ibv_get_device_name(list[i]);

            if (!asked_for(c, name) && region_asks_for(c, xfer->config.mem, name) == !others)
                find(view, name, list[i], ret_found);
        }
    find_nodes(xfer, view);
    if (list && n == 0) {
        ibv_free_device_list(list);
        list = NULL;
    }
    return list;
}

void rails_open(struct verbs *v)
{
    struct xfer_rdma_view *view = &v->view;
    struct ibv_device *found[XFER_DEVICES_MAX], **list = find_devices(v->xfer, view, found);
    uint32_t got = choose(v->xfer, view, found);
    bool lockable = memory_lockable(v, view->why, sizeof view->why);

    if (!list)
        snprintf(view->why, sizeof view->why,
                 "no RDMA device: load its driver (ls /sys/class/infiniband), and give a container "
                 "/dev/infiniband");
    else if (lockable && v->xfer->config.rdma.ndevices > 0)
        rails_by_name(v, found);
    else if (lockable && got)
        rails_by_region(v, found, got);
    if (list && lockable && v->xfer->config.rdma.ndevices == 0 && v->nrails == 0)
        rails_by_distance(v, found);
    rails_to_regions(v);
    if (list)
        ibv_free_device_list(list);
}

void rails_look(struct xfer *xfer)
{
    struct xfer_rdma_view *view = &xfer->looked;
    struct ibv_device *found[XFER_DEVICES_MAX], **list = find_devices(xfer, view, found);

    if (choose(xfer, view, found) == 0)
        regions_choose(xfer, view, probe(xfer, view, found));
    xfer_memlock(xfer, view);
    if (list)
        ibv_free_device_list(list);
}

void rails_close(struct verbs *v)
{
    for (; v->nrails > 0; v->nrails--)
        rail_close(v, &v->rail[v->nrails - 1]);
}

bool rail_gone(const struct verbs_rail *rail)
{
    char c;

    return rail->alive_fd < 0 || (pread(rail->alive_fd, &c, 1, 0) < 0 && errno == ENODEV);
}
