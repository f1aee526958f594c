/* Derives settings from others, and checks that all fit each other and this machine. */
#include "shell/config/config_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "core/query.h"
#include "shell/config/plan.h"
#include "shell/tape/tape.h"

#define WORKERS_INITIAL     16u /* M13: min(16, cores) */
#define NODES_INITIAL_MAX   (1u << 23)
#define SESSION_BLOCKS      64u /* token blocks reserved for each session's own tail */
#define BLOCKS_PER_PAGE     4u  /* enough for 256 tokens a page; an unused block costs 4 bytes */
#define SLABS_PER_POOL_MAX  2048u
#define PAGES_INITIAL_MIN   4096u
#define RECORD_PAGES_MAX    (1u << 30)
#define TURN_RECORDS        16384u
#define ENGINES_INITIAL_MIN 32u /* and as many pools */
#define PEERS_SPARE         8u  /* peers that may join while the daemon runs */
#define INBOUND_SPARE       64u /* for peers that reconnect before their old link has timed out */
#define DATA_CONNS_MIN      128u
#define TRANSFERS_EACH      4u /* for each pair of a tenant and a peer */
#define TRANSFERS_MIN       256u
#define SEAL_JOBS           256u
#define COPY_JOBS           64u
#define BUSY_RETRY_MS       20u
#define TENANT_BATCHES      256u
#define RECORD_JOBS         64u
#define ASKS                64u
#define RESETS              256u
#define RESERVED_PERCENT    50u
#define FLOW_PART           4u     /* of peer_bytes_in_flight, for a tenant from one peer */
#define TABLE_REST_BYTES    65536u /* an answer's bytes beside its page refs */

/* The disk tier. */
#define DISK_CHUNKS_MIN  1024u
#define DISK_CHUNKS_MAX  (1u << 18) /* 256 GiB of chunks of 1 MiB: some hundred MiB of records */
#define CHUNKS_PER_FILE  4u  /* a store writes the files that it needs, seldom one per chunk */
#define BLOCKS_PER_CHUNK 4u  /* enough for L = 256 */
#define TRIM_PARTS       64u /* of `align`: left out at a prompt's end */
#define LEAST_PARTS      4u  /* of `align`: with less left, the whole prompt is stored */
#define STORES_EACH      2u
#define STORES_MIN       4u

/* ---- names ---- */

static enum tern_err tenant_is_whole(struct loader *l, uint32_t i)
{
    const struct config_tenant *t = &l->config->tenants[i];

    if (t->name[0] == '\0')
        return tenant_fail(l, i, NULL, "needs a name");
    if (t->socket[0] == '\0')
        return tenant_fail(l, i, NULL, "needs `socket`, the path that its engines connect to");
    if (strcmp(t->socket, l->config->admin_socket) == 0)
        return tenant_fail(l, i, "socket", "is the path of the admin socket: choose another one");
    for (uint32_t j = 0; j < i; j++) {
        if (strcmp(l->config->tenants[j].name, t->name) == 0)
            return tenant_fail(l, i, "name", "another tenant has the name %s", t->name);
        if (strcmp(l->config->tenants[j].socket, t->socket) == 0)
            return tenant_fail(l, i, "socket", "tenant %s has the same socket",
                               l->config->tenants[j].name);
    }
    return TERN_OK;
}

/* Checks the sizes of a tenant, also of the reserve. */
static enum tern_err sizes_are_whole(struct loader *l, uint32_t i)
{
    const struct config_tenant *t = &l->config->tenants[i];

    if (t->memory_bytes == 0)
        return tenant_fail(l, i, NULL, "needs `memory`, the bytes for its pages in each region");
    if (t->devices.n > 0 && t->devices.n != t->regions)
        return tenant_fail(l, i, "devices",
                           "names %" PRIu32 " devices for %" PRIu32
                           " regions: name one for each region",
                           t->devices.n, t->regions);
    if (t->device_memory && t->devices.n == 0)
        return tenant_fail(l, i, "device_memory",
                           "needs `devices`, the UUIDs of the GPUs: `nvidia-smi -L` shows them");
    return TERN_OK;
}

static enum tern_err peer_is_whole(struct loader *l, uint32_t i)
{
    const struct config_peer *p = &l->config->peers[i];
    const char *text;

    if (p->name[0] == '\0')
        return peer_fail(l, i, NULL, "needs a name");
    text = config_peer_wrong(p);
    if (text != NULL)
        return peer_fail(l, i, NULL, "%s", text);
    return TERN_OK;
}

static int by_name(const void *a, const void *b, void *of)
{
    const struct config_peer *peers = of;
    const uint32_t *p = a, *q = b;

    return strcmp(peers[*p].name, peers[*q].name);
}

/* Sorts the peers, because comparing every pair would take millions of comparisons. */
static enum tern_err peers_differ(struct loader *l)
{
    struct config_peer *peers = l->config->peers;
    uint32_t *sorted = l->config->by_name, n = l->config->npeers, i;

    for (i = 0; i < n; i++)
        sorted[i] = i;
    qsort_r(sorted, n, sizeof *sorted, by_name, peers);
    for (i = 1; i < n && by_name(&sorted[i - 1], &sorted[i], peers) != 0; i++)
        ;
    if (i >= n)
        return TERN_OK;
    i = sorted[i - 1] > sorted[i] ? sorted[i - 1] : sorted[i];
    return peer_fail(l, i, "name", "another peer has the name %s", peers[i].name);
}

static enum tern_err peer_tenants(struct loader *l, uint32_t i)
{
    char reason[REASON_BYTES];

    if (l->peer_tenants[i] == NULL)
        return peer_fail(l, i, NULL, "needs `tenants`, the list of tenants that it may ask for");
    if (config_peer_tenants(l->config, l->peer_tenants[i], &l->config->peers[i].tenants, reason) !=
        TERN_OK)
        return peer_fail(l, i, "tenants", "%s", reason);
    return TERN_OK;
}

/* ---- the reserve: tenants that have the sizes of a named one, and no name ---- */

/* Copies the sizes that `to` does not set. */
static void take_sizes(struct config_tenant *to, const struct config_tenant *from, uint32_t given)
{
    for (size_t f = TENANT_SIZES; f < TENANT_FIELDS; f++) {
        const struct setting *s = &config_tenant_fields[f];

        if (!(given >> f & 1))
            memcpy((char *)to + s->offset, (const char *)from + s->offset, s->size);
    }
}

/* Appends the reserve's tenants after the entries, so that all later code treats them as tenants.
 * An entry without `memory` takes its missing sizes from the tenant that reserve.like names. */
static enum tern_err reserve_add(struct loader *l)
{
    struct config *c = l->config;
    uint32_t like;

    if (c->reserve_tenants == 0 && c->reserve_like[0] == '\0')
        return TERN_OK;
    if (config_tenant_slot(c, c->reserve_like, &like) != TERN_OK)
        return setting_fail(l, "reserve", c->reserve_like[0] == '\0' ? "tenants" : "like",
                            "no tenant is called \"%s\": set reserve.like to the tenant whose "
                            "sizes the reserve has",
                            c->reserve_like);
    if (c->ntenants + c->reserve_tenants > CONFIG_TENANTS_MAX)
        return setting_fail(
            l, "reserve", "tenants",
            "with the %u of `tenants`, these are more than the maximum of %u tenants", c->ntenants,
            CONFIG_TENANTS_MAX);
    for (uint32_t i = 0; i < c->ntenants; i++)
        if (c->tenants[i].memory_bytes == 0)
            take_sizes(&c->tenants[i], &c->tenants[like], l->tenant_given[i]);
    for (l->reserved = 0; l->reserved < c->reserve_tenants; l->reserved++) {
        l->tenant_origin[c->ntenants] = loader_origin(l, "reserve", "tenants");
        take_sizes(&c->tenants[c->ntenants++], &c->tenants[like], 0);
    }
    return TERN_OK;
}

enum tern_err config_resolve(struct loader *l)
{
    if (l->config->ntenants == 0)
        return loader_fail(l, l->text != NULL ? ORIGIN_FILE : ORIGIN_DEFAULT, "", -1, NULL,
                           "no tenant is configured: pass --tenant "
                           "name=default,socket=/run/tern/default.sock,memory=4G, or list one "
                           "under `tenants` of the file that --config names");
    for (uint32_t i = 0; i < l->config->ntenants; i++)
        TRY(tenant_is_whole(l, i));
    TRY(reserve_add(l));
    for (uint32_t i = 0; i < l->config->ntenants; i++)
        TRY(sizes_are_whole(l, i));
    for (uint32_t i = 0; i < l->config->npeers; i++) {
        TRY(peer_is_whole(l, i));
        TRY(peer_tenants(l, i));
    }
    return peers_differ(l);
}

/* ---- derived values ---- */

static uint32_t at_most(uint64_t value, uint32_t most)
{
    return value > most ? most : (uint32_t)value;
}

static uint32_t cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n < 1 ? 1 : at_most((uint64_t)n, WORKERS_INITIAL);
}

static void derive_u32(uint32_t *field, uint64_t value)
{
    if (*field == 0)
        *field = at_most(value, COUNT_MAX);
}

/* A peer keeps one data connection while its link is up, and a second one for transfers by RDMA;
 * both need room in both directions. At most plan_busy_peers peers at a time have more
 * connections. */
static uint64_t data_conns(const struct config *c)
{
    uint64_t n = 0, most = 2;

    for (uint32_t i = 0; i < c->npeers; i++) {
        uint64_t each = xfer_transport_kind[c->peers[i].transport].by_paths ? 4 : 2;

        most = each > most ? each : most;
        n += each;
    }
    if (c->limits.peers > c->npeers) /* a peer that joins may be like any other */
        n += most * (c->limits.peers - c->npeers);
    n += 2ull * (c->connections - 1) * plan_busy_peers(c);
    return n < DATA_CONNS_MIN ? DATA_CONNS_MIN : n;
}

/* Without TLS, and without consent to peers in the clear, no peer can join. */
static uint32_t peer_slots(const struct config *c)
{
    bool talks = c->insecure_peers || c->tls_cert[0] != '\0';

    return at_most((uint64_t)c->npeers + (talks ? PEERS_SPARE : 0), CONFIG_PEERS_MAX);
}

/* Enough to reserve transfers for each tenant with each peer. */
static uint64_t transfers(const struct config *c)
{
    uint64_t n = (uint64_t)TRANSFERS_EACH * c->ntenants * c->limits.peers;

    return n < TRANSFERS_MIN ? TRANSFERS_MIN : n > TRANSFERS_MAX ? TRANSFERS_MAX : n;
}

/* The pages that one answer can name beside its other contents. */
static uint32_t table_pages(uint32_t frame_body_max)
{
    uint32_t room = frame_body_max > TABLE_REST_BYTES ? frame_body_max - TABLE_REST_BYTES : 0,
             n = room / sizeof(struct page_ref);

    return n < TABLE_PAGES_MIN ? TABLE_PAGES_MIN : n > TABLE_PAGES_MAX ? TABLE_PAGES_MAX : n;
}

/* Each tenant without spill_bytes gets an equal part of the bytes that the others leave. */
static void derive_parts(struct config *c)
{
    uint64_t left = c->spill_bytes;
    uint32_t open = 0;

    for (uint32_t i = 0; i < c->ntenants; i++) {
        uint64_t part = c->tenants[i].spill_bytes;

        open += part == SPILL_PART;
        if (part != SPILL_PART)
            left -= part < left ? part : left;
    }
    for (uint32_t i = 0; i < c->ntenants; i++)
        if (c->tenants[i].spill_bytes == SPILL_PART) {
            c->tenants[i].spill_bytes = left / open;
            c->spill_parts |= (uint64_t)1 << i;
        }
}

/* Chunks that fit if each is an extent's header and one page of the smallest size. */
static uint64_t likely_chunks(const struct config *c)
{
    uint64_t pages = (c->page_bytes_min + DISK_BLOCK - 1) / DISK_BLOCK * DISK_BLOCK,
             n = c->spill_bytes / (DISK_BLOCK + pages);

    return n < DISK_CHUNKS_MIN ? DISK_CHUNKS_MIN : n > DISK_CHUNKS_MAX ? DISK_CHUNKS_MAX : n;
}

static void derive_spill(struct config *c)
{
    struct core_limits *l = &c->limits;
    uint32_t align = l->disk_align;

    derive_parts(c);
    l->disk_trim = align / TRIM_PARTS;
    l->disk_least = align / LEAST_PARTS;
    l->disk_interval = (l->disk_interval + align - 1) / align * align;
    if (l->disk_interval > SESSION_TOKENS_MAX) /* not a multiple of every `align` */
        l->disk_interval -= align;
    if (c->spill_dir[0] == '\0') {
        l->disk_chunks = 0;
        return;
    }
    if (l->disk_chunks == 0)
        l->disk_chunks = (uint32_t)likely_chunks(c);
    l->disk_files = (l->disk_chunks + CHUNKS_PER_FILE - 1) / CHUNKS_PER_FILE;
    if (l->disk_files > DISK_FILES_MAX)
        l->disk_files = DISK_FILES_MAX;
    if (l->disk_files < c->ntenants)
        l->disk_files = c->ntenants; /* T22 */
    l->disk_blocks = l->disk_chunks < COUNT_MAX / BLOCKS_PER_CHUNK
                         ? l->disk_chunks * BLOCKS_PER_CHUNK
                         : COUNT_MAX;
    l->disk_keys = l->extra_keys;
    l->disk_stores =
        c->ntenants * STORES_EACH > STORES_MIN ? c->ntenants * STORES_EACH : STORES_MIN;
}

static void derive_rails(struct config *c)
{
    if (c->rdma_rails > 0)
        return;
    c->rdma_rails = XFER_RAILS_MAX;
    c->rdma_rails = plan_rails(c);
    if (c->rdma_rails < XFER_RAILS_INITIAL)
        c->rdma_rails = XFER_RAILS_INITIAL;
}

/* A field that is 0 although 0 is not allowed was not set, so it gets the derived value. */
void config_derive(struct loader *l)
{
    struct config *c = l->config;
    struct core_limits *limits = &c->limits;
    uint64_t pages = 0, record_pages = 0;
    uint32_t regions = 1;

    for (uint32_t i = 0; i < c->ntenants; i++) {
        pages += (c->tenants[i].memory_bytes / c->page_bytes_min +
                  c->tenants[i].host_bytes / c->page_bytes_min) *
                 c->tenants[i].regions; /* each region may have an engine */
        record_pages += (c->tenants[i].record_bytes / RECORD_PAGE_BYTES + 63) / 64 * 64;
        regions = c->tenants[i].regions > regions ? c->tenants[i].regions : regions;
    }
    derive_u32(&c->workers, cores());
    limits->seal_jobs = SEAL_JOBS;
    limits->copy_jobs = COPY_JOBS;
    limits->busy_retry_ms = BUSY_RETRY_MS;
    limits->tenant_batches = TENANT_BATCHES;
    limits->record_jobs = RECORD_JOBS;
    limits->asks = ASKS;
    limits->resets = RESETS;
    limits->reserved_percent = RESERVED_PERCENT;
    limits->flow_bytes_in_flight = limits->peer_bytes_in_flight / FLOW_PART;
    derive_u32(&c->data_threads, cores());
    limits->tenants = c->ntenants;
    limits->conns = plan_conns(c) + 1; /* one for the daemon itself */
    derive_u32(&limits->engines,
               c->ntenants < ENGINES_INITIAL_MIN ? ENGINES_INITIAL_MIN : c->ntenants);
    derive_u32(&limits->pools, limits->engines);
    derive_u32(&limits->peers, peer_slots(c));
    limits->page_bytes_min = c->page_bytes_min;
    limits->table_pages = table_pages(c->frame_body_max);
    derive_u32(&c->data_conns_max, data_conns(c));
    limits->links = limits->peers + limits->peers + INBOUND_SPARE;
    limits->record_pages = at_most(record_pages, RECORD_PAGES_MAX);
    limits->turn_deadline_ns = (uint64_t)c->deadlines.turn_ms * 1000000;
    limits->ticket_deadline_ns = (uint64_t)c->deadlines.ticket_ms * 1000000;
    limits->transfer_deadline_ns = (uint64_t)c->deadlines.transfer_ms * 1000000;
    derive_u32(&limits->pages, pages < PAGES_INITIAL_MIN ? PAGES_INITIAL_MIN : pages);
    limits->slabs = at_most(limits->pages, limits->pools * SLABS_PER_POOL_MAX);
    derive_u32(&limits->nodes, at_most(limits->pages, NODES_INITIAL_MAX));
    derive_u32(&limits->token_blocks, (uint64_t)limits->pages * BLOCKS_PER_PAGE +
                                          (uint64_t)limits->sessions * SESSION_BLOCKS);
    derive_u32(&limits->sums_per_page, regions);
    derive_u32(&limits->turn_records, record_pages ? TURN_RECORDS : c->ntenants);
    derive_spill(c);
    derive_rails(c);
    derive_u32(&limits->pulls, transfers(c));
    limits->serves = limits->pulls;
    if (c->tape_file[0] == '\0')
        snprintf(c->tape_file, sizeof c->tape_file, "%s.tape", c->admin_socket);
}

/* ---- checks ---- */

static enum tern_err too_much(struct loader *l, uint32_t i, const char *key, uint64_t bytes,
                              uint64_t total, uint64_t has)
{
    return tenant_fail(l, i, key,
                       "with this tenant's %" PRIu64
                       " MiB in each of its %u regions, all tenants need %" PRIu64
                       " MiB, and this machine has %" PRIu64 " MiB: lower it",
                       bytes >> 20, l->config->tenants[i].regions, total >> 20, has >> 20);
}

/* The machine's memory; unlimited for --plan, which may be for another machine. */
static uint64_t memory_there_is(const struct loader *l)
{
    return l->config->plan_only ? UINT64_MAX : plan_machine_bytes();
}

static enum tern_err check_memory(struct loader *l)
{
    uint64_t total = 0, has = memory_there_is(l);

    for (uint32_t i = 0; i < l->config->ntenants; i++) {
        const struct config_tenant *t = &l->config->tenants[i];

        total += t->device_memory ? 0 : t->memory_bytes * t->regions;
        if (total > has)
            return too_much(l, i, "memory", t->memory_bytes, total, has);
        total += t->host_bytes * t->regions;
        if (total > has)
            return too_much(l, i, "host_memory", t->host_bytes, total, has);
        total += t->record_bytes;
        if (total > has)
            return tenant_fail(l, i, "record_memory",
                               "with this tenant's %" PRIu64 " MiB, all tenants need %" PRIu64
                               " MiB, and this machine has %" PRIu64 " MiB: lower it",
                               t->record_bytes >> 20, total >> 20, has >> 20);
    }
    return TERN_OK;
}

/* Index 0 of a pool is never used, so a tenant's memory has room for two pages or more. Record
 * memory has room for one page or more, or is 0. */
static enum tern_err check_pages(struct loader *l)
{
    uint64_t page = l->config->page_bytes_min;

    for (uint32_t i = 0; i < l->config->ntenants; i++) {
        uint64_t records = l->config->tenants[i].record_bytes;

        if (records > 0 && records < RECORD_PAGE_BYTES)
            return tenant_fail(l, i, "record_memory",
                               "is less than one page of %u bytes: raise it, or set it to 0",
                               RECORD_PAGE_BYTES);
        if (l->config->tenants[i].memory_bytes < 2 * page)
            return tenant_fail(l, i, "memory",
                               "is less than two pages of page_bytes_min, which is %" PRIu64
                               ", so no pool fits: raise it, or lower page_bytes_min",
                               page);
    }
    return TERN_OK;
}

static enum tern_err check_tape(struct loader *l)
{
    const uint64_t bytes = l->config->tape_bytes;

    if (bytes > 0 && bytes < TAPE_BYTES_MIN)
        return setting_fail(l, "tape", "bytes",
                            "is %" PRIu64 ": a tape needs at least %u bytes (0: no tape)", bytes,
                            TAPE_BYTES_MIN);
    return TERN_OK;
}

/* TLS needs all three files. With `insecure_peers` no file may be named. */
static enum tern_err check_tls(struct loader *l)
{
    const struct config *c = l->config;
    const struct {
        const char *key, *value;
    } files[] = {{"ca", c->tls_ca}, {"cert", c->tls_cert}, {"key", c->tls_key}};
    uint32_t given = 0, at = 0;
    enum origin origin;

    for (uint32_t i = 0; i < 3; i++) {
        if (files[i].value[0] == '\0')
            continue;
        given++;
        at = i;
    }
    if (given == 0)
        return TERN_OK;
    origin = loader_origin(l, "tls", files[at].key);
    if (given < 3)
        return loader_fail(l, origin, "tls", -1, files[at].key,
                           "tls needs ca, cert and key: all three files");
    if (c->insecure_peers)
        return setting_fail(l, "", "insecure_peers",
                            "tls and insecure_peers exclude each other: leave out one of them");
    return TERN_OK;
}

static enum tern_err check_peers(struct loader *l)
{
    static const char text[] =
        "peers need certificates: name the files under `tls` (ca, cert, key), or set "
        "insecure_peers: true (--insecure_peers) if the network between the hosts is trusted";

    if (l->config->limits.peers < l->config->npeers)
        return setting_fail(l, "limits", "peers",
                            "%" PRIu32 " peers are configured: raise it to at least that number",
                            l->config->npeers);
    if (l->config->insecure_peers || l->config->tls_cert[0] != '\0')
        return TERN_OK;
    if (l->config->npeers > 0)
        return peer_fail(l, 0, NULL, "%s", text);
    if (l->config->listen.host[0] == '\0')
        return TERN_OK;
    return setting_fail(l, "", "listen", "%s", text);
}

static enum tern_err check_ports(struct loader *l)
{
    const struct config *c = l->config;

    if (c->data_port == 0 || c->data_port != c->listen.port)
        return TERN_OK;
    return setting_fail(
        l, "", "data_port",
        "is the port of `listen`: choose another one, or 0 to let the kernel choose");
}

static bool is_rail(const struct config *c, const char *name)
{
    for (uint32_t i = 0; i < c->rdma_device.n; i++)
        if (strcmp(c->rdma_device.name[i], name) == 0)
            return true;
    return c->rdma_device.n == 0;
}

static enum tern_err check_nics(struct loader *l, uint32_t i)
{
    const struct config_tenant *t = &l->config->tenants[i];

    if (t->rdma_devices.n > 0 && t->rdma_devices.n != t->regions)
        return tenant_fail(l, i, "rdma_devices",
                           "names %" PRIu32 " devices for %" PRIu32
                           " regions: name one for each, or set auto",
                           t->rdma_devices.n, t->regions);
    for (uint32_t r = 0; r < t->rdma_devices.n; r++)
        if (!is_rail(l->config, t->rdma_devices.name[r]))
            return tenant_fail(l, i, "rdma_devices",
                               "%s is not among the devices of rdma_device: add it there, or set "
                               "rdma_device to auto",
                               t->rdma_devices.name[r]);
    return TERN_OK;
}

static enum tern_err check_spill_tenants(struct loader *l)
{
    const struct config *c = l->config;
    uint64_t total = 0;

    for (uint32_t i = 0; i < c->ntenants; i++) {
        const struct config_tenant *t = &c->tenants[i];

        total += t->spill_bytes;
        if (total > c->spill_bytes)
            return tenant_fail(l, i, "spill_bytes",
                               "with this tenant's %" PRIu64 " bytes, all tenants need %" PRIu64
                               " bytes of the disk tier; spill.bytes is %" PRIu64,
                               t->spill_bytes, total, c->spill_bytes);
        if (c->spill_dir[0] != '\0' && t->name[0] == '.')
            return tenant_fail(l, i, "name",
                               "begins with a dot, and each tenant has a folder of its name in "
                               "spill.dir: choose another name");
    }
    return TERN_OK;
}

static enum tern_err check_spill(struct loader *l)
{
    const struct config *c = l->config;

    TRY(check_spill_tenants(l));
    if (c->spill_dir[0] == '\0') {
        if (c->spill_bytes > 0)
            return setting_fail(l, "spill", "bytes",
                                "is set without spill.dir: name a folder with --spill.dir");
        if (c->spill_key_file[0] != '\0')
            return setting_fail(l, "spill", "encrypt_key_file",
                                "is set without spill.dir: name a folder with --spill.dir");
        return TERN_OK;
    }
    if (c->spill_bytes == 0)
        return setting_fail(l, "spill", "dir",
                            "needs spill.bytes, the size of the disk tier (--spill.bytes)");
    return TERN_OK;
}

/* Each named device counts as a rail, with a path for each link and tenant, even if the device does
 * not exist. */
static enum tern_err check_rails(struct loader *l)
{
    uint32_t named = plan_rails_named(l->config);
    struct xfer_config x;
    uint64_t paths;

    if (named > l->config->rdma_rails)
        return setting_fail(l, "limits", "rdma_rails",
                            "is %" PRIu32
                            ", and rdma_device or tenants[].rdma_devices name %" PRIu32
                            " devices: raise it (%u at most), or name fewer",
                            l->config->rdma_rails, named, XFER_RAILS_MAX);
    plan_xfer(l->config, &x);
    paths = (uint64_t)x.links * x.rdma.tenants * x.rdma.rails;
    if (paths <= XFER_PATHS_MAX || (x.rdma.pulls == 0 && !x.rdma.serves))
        return TERN_OK;
    return setting_fail(l, "limits", "rdma_rails",
                        "needs %" PRIu64 " paths, one for each of %" PRIu32 " links, %" PRIu32
                        " tenants and %" PRIu32
                        " rails, and at most %u are possible: lower it, or limits.peers",
                        paths, x.links, x.rdma.tenants, x.rdma.rails, XFER_PATHS_MAX);
}

/* Checks no device of this host: that happens when devices are opened
 * (seam/xfer/verbs/device/port.c). */
static enum tern_err check_rdma(struct loader *l)
{
    const struct config *c = l->config;
    uint32_t mtu = c->rdma.mtu;

    static_assert(CONFIG_NAME_BYTES == XFER_DEVICE_BYTES, "a device has one name");
    for (uint32_t i = 0; i < c->ntenants; i++)
        TRY(check_nics(l, i));
    TRY(check_rails(l));
    if (mtu != XFER_BY_PORT && (mtu < 256 || (mtu & (mtu - 1)) != 0))
        return setting_fail(l, "rdma", "mtu", "must be 256, 512, 1024, 2048 or 4096, or auto");
    return TERN_OK;
}

/* T22: each tenant has a reserved part of every shared table, no matter what the others use. */
static enum tern_err check_shares(struct loader *l)
{
    const struct config *c = l->config;
    struct tenant_config tenants[CONFIG_TENANTS_MAX];
    struct share_view v;

    plan_tenants(c, tenants);
    for (uint32_t i = 0; core_share_plan(&c->limits, tenants, (struct share_of){i, 0}, &v); i++)
        if (v.limit > 0 && v.limit < c->ntenants)
            return setting_fail(l, "limits", v.setting,
                                "is %" PRIu32 ", and there are %" PRIu32
                                " tenants: raise it to at least one for each",
                                v.limit, c->ntenants);
    return TERN_OK;
}

/* Returns the total memory that the plan would need if the setting, a number of 4 bytes, had its
 * minimum. */
static uint64_t memory_without(struct config *config, const struct setting *s)
{
    uint32_t *field = (uint32_t *)(void *)((char *)config + s->offset), is = *field;
    struct plan_memory m;

    *field = (uint32_t)s->min;
    plan_memory(config, &m);
    *field = is;
    return m.total;
}

/* Finds a limit that was set and takes more than half of `total`; NULL: none. */
static const struct setting *costliest_limit(struct loader *l, uint64_t total)
{
    const struct setting *found = NULL;

    for (size_t i = 0; i < config_settings_n; i++) {
        const struct setting *s = &config_settings[i];
        uint64_t without;

        if (strcmp(s->section, "limits") != 0 || l->origin[i] == ORIGIN_DEFAULT ||
            s->size != sizeof(uint32_t))
            continue;
        without = memory_without(l->config, s);
        if (without < total / 2) {
            total = 2 * without; /* find the limit whose minimum leaves the lowest total */
            found = s;
        }
    }
    return found;
}

/* Checks the sum: each part may fit although the sum does not. */
static enum tern_err check_all(struct loader *l)
{
    uint64_t has = memory_there_is(l);
    const struct setting *s;
    char parts[PLAN_TEXT_BYTES];
    struct plan_memory m;

    plan_memory(l->config, &m);
    if (m.total <= has)
        return TERN_OK;
    plan_text(&m, parts);
    s = costliest_limit(l, m.total);
    if (s)
        return loader_fail(l, l->origin[s - config_settings], s->section, -1, s->key,
                           "with it the daemon needs %" PRIu64
                           " bytes of memory (%s), and this machine has %" PRIu64 ": lower it",
                           m.total, parts, has);
    return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL,
                       "the daemon needs %" PRIu64
                       " bytes of memory (%s), and this machine has %" PRIu64 ": %s",
                       m.total, parts, has, plan_hint(&m));
}

enum tern_err config_check(struct loader *l)
{
    size_t arena;

    TRY(check_tls(l));
    TRY(check_peers(l));
    TRY(check_ports(l));
    TRY(check_memory(l));
    TRY(check_pages(l));
    TRY(check_tape(l));
    TRY(check_spill(l));
    TRY(check_rdma(l));
    TRY(check_shares(l));
    if (core_size(&l->config->limits, &arena) != TERN_OK)
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL,
                           "limits: the sum of the tables is more than the core can hold");
    return check_all(l);
}
