/* See plan.h. */
#include "shell/config/plan.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "core/query.h"
#include "seam/mem/cgroup.h"
#include "shell/config/config_table.h"
#include "shell/daemon.h"

#define DISK_DESCRIPTORS        8   /* its folder, its lock, the owner's wake-up */
#define DISK_THREAD_DESCRIPTORS 4   /* a ring, and the file in work with its folder */
#define CUDA_DESCRIPTORS        128 /* opened by the driver of GPUs */
#define CONN_DESCRIPTORS        3   /* its socket, and both ends of its bell until one is sent */
#define BODIES_SHARE            8   /* large requests of a tenant at a time */
#define BUSY_PEERS              64u
#define HELLO_NS                3000000000u
#define DATA_IDLE_NS            5000000000u /* equal on all hosts */
#define SPILL_DEPTH             16          /* pieces of 1 MiB in flight per thread of the disk */
#define OTHER_DESCRIPTORS       64          /* the ring, the workers', the log, libraries */

/* ---- the seams' configurations ---- */

uint32_t plan_conns(const struct config *config)
{
    return plan_procs(config) + CONFIG_ADMIN_CONNS;
}

uint32_t plan_procs(const struct config *config)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < config->ntenants; i++)
        n += config->tenants[i].conns_max;
    return n;
}

uint32_t plan_body_max(const struct config *config)
{
    return config->frame_body_max > LINK_BODY_MAX ? config->frame_body_max : LINK_BODY_MAX;
}

void plan_tenants(const struct config *config, struct tenant_config ret[CONFIG_TENANTS_MAX])
{
    for (uint32_t i = 0; i < config->ntenants; i++) {
        ret[i].memory_bytes = config->tenants[i].memory_bytes;
        ret[i].host_bytes = config->tenants[i].host_bytes;
        ret[i].record_bytes = config->tenants[i].record_bytes;
        ret[i].disk_bytes = config->tenants[i].spill_bytes;
        ret[i].regions = config->tenants[i].regions;
        ret[i].sessions_max = config->tenants[i].sessions_max;
        ret[i].host_write =
            config->tenants[i].host_write_through ? HOST_WRITE_THROUGH : HOST_WRITE_BEHIND;
        ret[i].zero = 0;
    }
}

void plan_mem(const struct config *config, struct mem_config *ret)
{
    const struct core_limits *limits = &config->limits;

    static_assert(CONFIG_TENANTS_MAX <= MEM_TENANTS_MAX, "every tenant has memory");
    static_assert(CONFIG_NAME_BYTES == MEM_DEVICE_BYTES, "a device has one name");
    *ret = (struct mem_config){
        .tenants = config->ntenants,
        .engines = limits->engines,
        .pools = limits->pools,
        .page_records = limits->pages,
        .sums_per_page = limits->sums_per_page,
        .page_bytes_min = limits->page_bytes_min,
        .workers = config->workers,
        .jobs = limits->seal_jobs + limits->copy_jobs + limits->pools + limits->record_jobs,
        .huge_pages = config->huge_pages,
        .no_peers = !config->peer_access,
        .fault_copy_corrupt_every = config->fault_copy_corrupt_every,
        .fault_checks_on_owner = config->fault_checks_on_owner,
    };
    plan_tenants(config, ret->tenant);
    for (uint32_t i = 0; i < config->ntenants; i++)
        if (config->tenants[i].device_memory)
            ret->device[i] = config->tenants[i].devices.name;
}

uint64_t plan_device_bytes(const struct config *config)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < config->ntenants; i++)
        if (config->tenants[i].device_memory)
            bytes += config->tenants[i].memory_bytes * config->tenants[i].regions;
    return bytes;
}

typedef const char *region_name(const struct config_tenant *t, uint32_t region);

/* Counts the different names of regions; NULL is no name. */
static uint32_t names(const struct config *c, region_name *name_of)
{
    const char *met[CONFIG_TENANTS_MAX * RANKS_MAX], *name;
    uint32_t n = 0, i;

    for (uint32_t t = 0; t < c->ntenants; t++)
        for (uint32_t r = 0; r < c->tenants[t].regions; r++) {
            name = name_of(&c->tenants[t], r);
            for (i = 0; name && i < n && strcmp(met[i], name) != 0; i++)
                ;
            if (name && i == n)
                met[n++] = name;
        }
    return n;
}

static const char *device_of(const struct config_tenant *t, uint32_t region)
{
    return t->rdma_devices.n > 0 ? t->rdma_devices.name[region] : NULL;
}

/* The key of a region's choice of device: the device's name, the region's GPU, or host memory. */
static const char *reason_of(const struct config_tenant *t, uint32_t region)
{
    if (t->rdma_devices.n > 0)
        return device_of(t, region);
    return t->device_memory ? t->devices.name[region] : "";
}

uint32_t plan_rails(const struct config *c)
{
    uint32_t n = c->rdma_device.n > 0 ? c->rdma_device.n : names(c, reason_of);

    return n < c->rdma_rails ? n : c->rdma_rails;
}

uint32_t plan_rails_named(const struct config *c)
{
    return c->rdma_device.n > 0 ? c->rdma_device.n : names(c, device_of);
}

static uint64_t progress_ns(const struct config *config)
{
    return (uint64_t)config->deadlines.progress_ms * 1000000;
}

uint64_t plan_hello_ns(const struct config *config)
{
    return progress_ns(config) < HELLO_NS ? progress_ns(config) : HELLO_NS;
}

/* Memory is registered only if a peer may fetch from it by RDMA, or this daemon may fetch from a
 * peer by RDMA. */
static void plan_rdma(const struct config *config, struct xfer_rdma_config *ret)
{
    bool wanted = false;

    ret->tenants = config->ntenants;
    ret->rails = config->rdma_rails;
    ret->tuning = &config->rdma;
    for (uint32_t i = 0; i < config->ntenants; i++) {
        ret->on_gpus += config->tenants[i].device_memory;
        if (config->tenants[i].rdma_devices.n > 0)
            ret->region_device[i] = config->tenants[i].rdma_devices.name;
    }
    for (uint32_t i = 0; i < config->npeers; i++)
        wanted = wanted || xfer_transport_kind[config->peers[i].transport].by_paths;
    ret->self_test = wanted;
    ret->pulls = wanted ? config->limits.peers : 0;
    ret->serves = wanted && config->listen.host[0];
    for (; ret->ndevices < config->rdma_device.n; ret->ndevices++)
        snprintf(ret->device[ret->ndevices], sizeof(ret->device[0]), "%s",
                 config->rdma_device.name[ret->ndevices]);
}

void plan_xfer(const struct config *config, struct xfer_config *ret)
{
    const struct core_limits *limits = &config->limits;

    *ret = (struct xfer_config){
        .links = limits->links,
        .pulls = limits->pulls,
        .serves = limits->serves,
        .pools = limits->pools,
        .pairs = RESHARD_PAIRS_MAX,
        .batches = limits->tenants * limits->tenant_batches,
        .data_threads = config->data_threads,
        .data_conns_max = config->data_conns_max,
        .peers = limits->peers,
        .connections = config->connections,
        .strangers = CONFIG_STRANGERS,
        .hello_ns = plan_hello_ns(config),
        .idle_ns = DATA_IDLE_NS,
        .fault_corrupt_pages = config->fault_corrupt_pages,
    };
    plan_rdma(config, &ret->rdma);
}

bool plan_disk(const struct config *config, struct disk_config *ret)
{
    const struct core_limits *limits = &config->limits;

    *ret = (struct disk_config){
        .dir = config->spill_dir,
        .tenants = config->ntenants,
        .threads = config->spill_threads,
        .depth = SPILL_DEPTH,
        .sums_per_page = limits->sums_per_page,
        .writes = limits->disk_stores,
        .reads = daemon_batches_bound(limits),
        .pulls = limits->pulls,
        /* All that may exist, and the extents written while drops are pending. */
        .drops = limits->disk_files + limits->disk_chunks * DISK_PARTS +
                 limits->disk_stores * DISK_WRITE_EXTENTS,
        .encrypt = config->spill_key_file[0] != '\0',
        .headroom_bytes = config->spill_headroom,
        .fault_write_every = config->fault_disk_write_every,
        .fault_full_after = config->fault_disk_full_after,
    };
    for (uint32_t i = 0; i < config->ntenants; i++)
        ret->tenant[i] = config->tenants[i].name;
    return config->spill_dir[0] != '\0';
}

uint32_t plan_stream_shares(const struct config *config)
{
    return config->ntenants + 2;
}

uint32_t plan_busy_peers(const struct config *config)
{
    return config->limits.peers < BUSY_PEERS ? config->limits.peers : BUSY_PEERS;
}

void plan_streams(const struct config *config, struct stream_config *ret)
{
    const uint32_t peers = config->ntenants + 1, links = 2 * plan_busy_peers(config);

    *ret = (struct stream_config){
        .streams = plan_conns(config) + config->limits.links,
        .send_buffers = config->send_buffers,
        .shares = plan_stream_shares(config),
        .big_bytes = plan_body_max(config),
        .partial_ns = progress_ns(config),
        .slow_ns = progress_ns(config),
    };
    static_assert(CONFIG_TENANTS_MAX + 2 <= STREAM_SHARES_MAX, "a share for everybody");
    for (uint32_t i = 0; i < config->ntenants; i++)
        ret->send_buffers_reserved[i] =
            (ret->big_bytes + FRAME_HEADER_BYTES) / SEND_BUFFER_BYTES + 2; /* one message */
    for (uint32_t i = 0; i <= config->ntenants; i++)
        ret->bodies[i] = BODIES_SHARE;
    /* One operator, or one peer, can fill a whole queue. */
    ret->send_buffers_reserved[config->ntenants] = ADMIN_SEND_BUFFERS_MAX;
    ret->bodies[peers] = links;
    ret->send_buffers_reserved[peers] = links * LINK_MESSAGE_BUFFERS > LINK_SEND_BUFFERS_MAX
                                            ? links * LINK_MESSAGE_BUFFERS
                                            : LINK_SEND_BUFFERS_MAX;
}

/* Every client's socket has a slot or a place at a door until it is closed. */
void plan_closer(const struct config *config, struct closer_config *ret)
{
    uint32_t door = CONFIG_STRANGERS + DOOR_LEAVING, most = CONFIG_ADMIN_CONNS;

    for (uint32_t i = 0; i < config->ntenants; i++)
        if (config->tenants[i].conns_max > most)
            most = config->tenants[i].conns_max;
    static_assert(CONFIG_TENANTS_MAX + 1 <= IO_THREADS_MAX, "a thread for everybody");
    *ret = (struct closer_config){.lanes = config->ntenants + 1,
                                  .sockets = plan_conns(config) * CONN_DESCRIPTORS +
                                             (config->ntenants + 1) * door,
                                  .lane_sockets = most * CONN_DESCRIPTORS + door};
}

/* ---- memory and descriptors ---- */

static uint64_t core_bytes(const struct config *config)
{
    const struct core_limits *limits = &config->limits;
    uint64_t tables = daemon_queue_bound(limits, plan_procs(config)) * sizeof(struct event) +
                      limits->engines * sizeof(struct engine_watch) +
                      limits->pools * sizeof(struct pool_watch) + limits->nodes / 8;
    size_t arena = 0;

    check(core_size(limits, &arena) == TERN_OK);
    return arena + tables + actions_bytes(limits);
}

static uint64_t connection_bytes(const struct config *config)
{
    struct stream_config streams;
    struct closer_config closer;

    plan_streams(config, &streams);
    plan_closer(config, &closer);
    return stream_pool_bytes(&streams) + (uint64_t)plan_conns(config) * sizeof(struct client_conn) +
           (uint64_t)config->limits.links * (sizeof(struct peer_link) + sizeof(uint64_t)) +
           resolver_bytes(config->limits.peers) +
           (uint64_t)plan_procs(config) * sizeof(struct proc) +
           (config->ntenants + 1) * SUBSCRIPTIONS_SHARE_MAX * sizeof(struct subscription) +
           (uint64_t)(config->ntenants + 2) * door_bytes(CONFIG_STRANGERS) + closer_bytes(&closer) +
           (uint64_t)streams.shares * IO_BUFFERS * IO_BUFFER_BYTES +
           BUDGET_BYTES(plan_body_max(config)) + FRAME_HEADER_BYTES + plan_body_max(config) +
           ADMIN_TEXT_BYTES + CONFIG_LOAD_STACK_BYTES + sizeof(struct config);
}

/* In the order of the fields of struct plan_memory, and of the text. */
static const struct {
    const char *name, *hint;
} parts[] = {
    {"pages", "lower tenants[].memory"},
    {"host_pages", "lower tenants[].host_memory"},
    {"records", "lower tenants[].record_memory"},
    {"core", "raise page_bytes_min or lower the limits"},
    {"checksums", "raise page_bytes_min or lower limits.sums_per_page"},
    {"disk", "lower spill.threads, limits.disk_chunks or limits.pulls"},
    {"transfers", "lower limits.data_conns_max, limits.pulls or the number of peers"},
    {"rdma", "name fewer peers or tenants, lower limits.peers, or set transport: tcp"},
    {"connections",
     "lower frame_body_max, tenants[].conns_max, limits.send_buffers or the number of peers"},
    {"tls", "name fewer peers or lower limits.peers"},
    {"tape", "lower tape.bytes"},
};
static_assert(sizeof parts / sizeof *parts == PLAN_PARTS, "every part has a name");

void plan_memory(const struct config *config, struct plan_memory *ret)
{
    struct disk_config disk;
    struct mem_config mem;
    struct xfer_config xfer;

    static_assert(sizeof ret->part == sizeof *ret - sizeof ret->total, "all parts are counted");
    *ret = (struct plan_memory){.core = core_bytes(config),
                                .connections = connection_bytes(config),
                                .tape = tape_bytes(config->tape_bytes)};
    plan_mem(config, &mem);
    mem_bytes(&mem, &ret->pages, &ret->host_pages, &ret->records, &ret->checksums);
    plan_xfer(config, &xfer);
    xfer_bytes(&xfer, mem.page_records, mem.sums_per_page, &ret->transfers, &ret->rdma);
    if (plan_disk(config, &disk))
        ret->disk = disk_bytes(&disk);
    if (config->tls_cert[0])
        ret->tls = tls_bytes(config->limits.links);
    for (size_t i = 0; i < PLAN_PARTS; i++)
        ret->total += ret->part[i];
}

uint64_t plan_machine_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t bytes =
        pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : UINT64_MAX;
    struct cgroup_memory group;

    cgroup_memory(CGROUP_ROOT, &group);
    return group.most < bytes ? group.most : bytes;
}

uint64_t plan_descriptors(const struct config *config)
{
    uint32_t doors = config->ntenants + 3;
    uint64_t n = (uint64_t)plan_conns(config) * CONN_DESCRIPTORS + plan_procs(config) +
                 config->limits.links + config->data_conns_max +
                 (uint64_t)doors * (CONFIG_STRANGERS + 1 + DOOR_LEAVING) +
                 (uint64_t)config->ntenants * (config->limits.engines + 1) + OTHER_DESCRIPTORS;

    for (uint32_t i = 0; i < config->ntenants; i++)
        n += 2ull * config->tenants[i].regions; /* pages, and checksums that engines supply */
    if (plan_device_bytes(config) > 0)
        n += CUDA_DESCRIPTORS;
    if (config->spill_dir[0])
        n += DISK_DESCRIPTORS + (uint64_t)config->spill_threads * DISK_THREAD_DESCRIPTORS;
    /* Per thread that moves pages, closes or resolves: its ring and its wake-up. */
    return n + 2ull * (config->data_threads + config->ntenants + 1 + RESOLVE_THREADS);
}

uint64_t plan_pinned(const struct config *config)
{
    struct xfer_config xfer;
    uint64_t bytes = 0;

    plan_xfer(config, &xfer);
    if (xfer.rdma.pulls == 0 && !xfer.rdma.serves)
        return 0;
    for (uint32_t i = 0; i < config->ntenants; i++)
        bytes += config->tenants[i].device_memory
                     ? xfer_ring_bytes(&xfer.rdma)
                     : config->tenants[i].memory_bytes * config->tenants[i].regions;
    return bytes * plan_rails(config) + (xfer.rdma.self_test ? XFER_SELF_TEST_SCRATCH : 0);
}

uint64_t plan_descriptors_in_flight(const struct config *config)
{
    return (uint64_t)plan_procs(config) * STREAM_FDS_MAX;
}

/* ---- shares ---- */

void plan_print_shares(const struct config *config, FILE *out)
{
    struct tenant_config tenants[CONFIG_TENANTS_MAX];
    struct share_view v;

    plan_tenants(config, tenants);
    fprintf(out, "# shares: records reserved for each tenant, of all records of the table\n");
    for (uint32_t i = 0; core_share_plan(&config->limits, tenants, (struct share_of){i, 0}, &v);
         i++) {
        fprintf(out, "#   %s:", v.setting);
        for (uint32_t t = 0; core_share_plan(&config->limits, tenants, (struct share_of){i, t}, &v);
             t++)
            fprintf(out, " %s %" PRIu32, config_tenant_word(config, t), v.reserved);
        fprintf(out, " of %" PRIu32 "\n", v.limit);
    }
}

void plan_text(const struct plan_memory *m, char ret[PLAN_TEXT_BYTES])
{
    size_t n = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < PLAN_PARTS; i++)
        n += (size_t)snprintf(ret + n, PLAN_TEXT_BYTES - n, "%s%s=%" PRIu64, i ? " " : "",
                              parts[i].name, m->part[i]);
    check(n < PLAN_TEXT_BYTES);
}

const char *plan_hint(const struct plan_memory *m)
{
    size_t most = 0;

    for (size_t i = 1; i < PLAN_PARTS; i++)
        if (m->part[i] > m->part[most])
            most = i;
    return parts[most].hint;
}

/* ---- the report ---- */

#define KEY_WIDTH 18

/* The report's output and the prefix of its lines. */
struct report {
    FILE *out;
    const char *prefix;
};

static void figure(const struct report *r, const char *key, uint64_t value, const char *remark)
{
    fprintf(r->out, "%s%-*s %16" PRIu64 "%s%s\n", r->prefix, KEY_WIDTH, key, value,
            *remark ? "  " : "", remark);
}

static void rails(const struct report *r, const struct config *config)
{
    struct xfer_config xfer;
    bool wanted;

    plan_xfer(config, &xfer);
    wanted = xfer.rdma.pulls > 0 || xfer.rdma.serves;
    fprintf(r->out, "%s%-*s ", r->prefix, KEY_WIDTH, "rails");
    if (!wanted)
        fprintf(r->out, "%16s  no peer has transport auto or verbs: pages use TCP", "none");
    else if (config->rdma_device.n == 0)
        fprintf(r->out,
                "%16" PRIu32 "  at most, those nearest to the memory: `ternctl doctor` names them",
                plan_rails(config));
    else
        fprintf(r->out, "%16" PRIu32 " ", config->rdma_device.n);
    for (uint32_t i = 0; wanted && i < config->rdma_device.n; i++)
        fprintf(r->out, " %s", config->rdma_device.name[i]);
    fputc('\n', r->out);
}

void plan_report(const struct config *config, const char *prefix, FILE *out)
{
    const struct report r = {out, prefix};
    uint64_t pinned = plan_pinned(config);
    struct plan_memory m;

    plan_memory(config, &m);
    figure(&r, "memory_bytes", m.total, "at most; touched at start");
    for (size_t i = 0; i < PLAN_PARTS; i++)
        fprintf(out, "%s  %-*s %16" PRIu64 "\n", prefix, KEY_WIDTH - 2, parts[i].name, m.part[i]);
    figure(&r, "device_bytes", plan_device_bytes(config),
           plan_device_bytes(config) > 0 ? "of GPU memory, on the GPUs of tenants[].devices" : "");
    figure(&r, "pinned_bytes", pinned,
           pinned > 0 ? "of it locked, for all rails: LimitMEMLOCK=, ulimit -l, or CAP_IPC_LOCK"
                      : "");
    rails(&r, config);
    figure(&r, "descriptors", plan_descriptors(config),
           "open at most: LimitNOFILE= or ulimit -Hn must not be less");
    figure(&r, "in_flight", plan_descriptors_in_flight(config),
           "descriptors in unread answers at most: LimitNOFILE= must not be less");
    figure(&r, "spill_bytes", config->spill_dir[0] ? config->spill_bytes : 0,
           config->spill_dir[0] ? "on the disk, beside spill.headroom, which stays free" : "");
    figure(&r, "machine_bytes", plan_machine_bytes(),
           m.total > plan_machine_bytes() ? "of memory on this machine: too little"
                                          : "of memory on this machine");
}
