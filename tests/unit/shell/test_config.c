/* Configuration: what is accepted, what is refused and where the refusal points.
 * test_config_peers.c has peers, TLS and RDMA. */
#include <inttypes.h>
#include <malloc.h>
#include <unistd.h>

#include "proto/host_name.h"
#include "seam/disk/disk_crypt.h"
#include "shell/config/config_table.h"
#include "shell/config/plan.h"
#include "test_config_rig.h"

TEST(config_smallest_file_is_completed)
{
    struct config *c = accepted(TENANT);
    size_t arena;

    assert_int_equal(c->ntenants, 1);
    assert_string_equal(c->tenants[0].name, "default");
    assert_int_equal(c->tenants[0].memory_bytes, 64u << 20);
    assert_int_equal(c->tenants[0].mode, 0660);
    assert_int_equal(c->tenants[0].regions, 1);
    assert_int_equal(c->tenants[0].host_bytes, 0);
    assert_int_equal(c->fault_copy_corrupt_every, 0);
    assert_int_equal(c->limits.pages, (64u << 20) / 4096);
    assert_int_equal(c->limits.tenants, 1);
    assert_int_equal(c->limits.peers, 0);
    assert_int_equal(c->limits.links, 64);
    assert_int_equal(c->data_conns_max, 128);
    assert_int_equal(c->connections, 2);
    assert_int_equal(c->limits.conns, 256 + 16 + 1);
    assert_int_equal(c->limits.sums_per_page, 1);
    assert_int_equal(c->limits.transfer_deadline_ns, 30000000000);
    assert_true(c->workers >= 1 && c->workers <= 16);
    assert_true(c->huge_pages);
    assert_string_equal(c->tape_file, "/run/tern/admin.sock.tape");
    assert_int_equal(core_size(&c->limits, &arena), TERN_OK);
}

static void is_planned_so(const struct config *c)
{
    struct tenant_config planned[CONFIG_TENANTS_MAX];

    plan_tenants(c, planned);
    assert_int_equal(planned[1].sessions_max, 8);
    assert_int_equal(planned[1].regions, c->tenants[1].regions);
    assert_int_equal(planned[1].memory_bytes, c->tenants[1].memory_bytes);
    assert_int_equal(planned[1].host_bytes, 3u << 20);
    assert_int_equal(planned[1].host_write, HOST_WRITE_THROUGH);
    assert_int_equal(planned[0].host_write, HOST_WRITE_BEHIND);
}

TEST(config_every_section_is_read)
{
    struct config *c = accepted(
        "node: prefill-1\n"
        "listen: \"[::1]:7001\"\n"
        "data_port: 7002\n"
        "insecure_peers: yes\n"
        "huge_pages: off\n"
        "log_level: debug\n"
        "workers: 3\n"
        "frame_body_max: 2M\n"
        "admin: {socket: /tmp/a.sock, mode: 0640}\n"
        "tape: {bytes: 1M, file: /tmp/t.tape, tokens: true}\n"
        "deadlines:\n  progress_ms: 11\n  transfer_ms: 13\n"
        "  drain_ms: 14\n  step_alarm_ms: 16\n  turn_ms: 17\n"
        "  ticket_ms: 18\n"
        "limits:\n  nodes: 1000\n  token_blocks: 2000\n  sums_per_page: 8\n"
        "  peer_bytes_in_flight: 1MiB\n"
        "faults:\n  corrupt_pages: 9\n  copy_corrupt_every: 4\n"
        "peers:\n"
        "  - {name: b, address: \"10.0.0.2:7001\", tenants: [two, default]}\n"
        "  - name: c\n    address: host.example:7001\n    tenants:\n      - two\n"
        "tenants:\n"
        "  - {name: default, socket: /tmp/1.sock, memory: 1048576, regions: 2, conns_max: 7}\n"
        "  - {name: two, socket: /tmp/2.sock, mode: \"0600\", events_tokens: true, memory: 2M, "
        "host_memory: 3M, host_write_through: true, sessions_max: 8}\n");

    assert_string_equal(c->node, "prefill-1");
    assert_string_equal(c->listen.host, "::1");
    assert_int_equal(c->listen.port, 7001);
    assert_int_equal(c->data_port, 7002);
    assert_true(c->insecure_peers);
    assert_false(c->huge_pages);
    assert_int_equal(c->log_level, LEVEL_DEBUG);
    assert_int_equal(c->workers, 3);
    assert_int_equal(c->frame_body_max, 2u << 20);
    assert_int_equal(c->limits.table_pages, ((2u << 20) - 65536) / 8); /* in an answer */
    assert_int_equal(c->admin_mode, 0640);
    assert_string_equal(c->tape_file, "/tmp/t.tape");
    assert_true(c->tape_tokens);
    assert_int_equal(c->deadlines.progress_ms, 11);
    assert_int_equal(c->limits.transfer_deadline_ns, 13000000);
    assert_int_equal(c->deadlines.drain_ms, 14);
    assert_int_equal(c->deadlines.step_alarm_ms, 16);
    assert_int_equal(c->limits.turn_deadline_ns, 17000000);
    assert_int_equal(c->limits.ticket_deadline_ns, 18000000);
    assert_int_equal(c->limits.nodes, 1000);
    assert_int_equal(c->limits.token_blocks, 2000);
    assert_int_equal(c->limits.sums_per_page, 8);
    assert_int_equal(c->limits.peer_bytes_in_flight, 1u << 20);
    assert_int_equal(c->limits.flow_bytes_in_flight, 1u << 18);
    assert_int_equal(c->fault_corrupt_pages, 9);
    assert_int_equal(c->fault_copy_corrupt_every, 4);
    assert_int_equal(c->tenants[0].host_bytes, 0);
    assert_int_equal(c->tenants[1].host_bytes, 3u << 20);
    assert_int_equal(c->npeers, 2);
    assert_int_equal(c->peers[0].tenants, 3);
    assert_int_equal(c->peers[1].tenants, 2);
    assert_string_equal(c->peers[1].address.host, "host.example");
    assert_int_equal(c->limits.peers, 2 + 8); /* eight more may join */
    assert_int_equal(c->limits.links, 2 + 8 + 2 + 8 + 64);
    assert_int_equal(c->limits.conns, 16 + 7 + 256 + 1);
    assert_int_equal(c->tenants[1].mode, 0600);
    assert_true(!c->tenants[0].events_tokens && c->tenants[1].events_tokens);
    assert_int_equal(c->tenants[1].sessions_max, 8);
    is_planned_so(c);
}

/* Host pages have records like others, and their memory counts against the machine's. */
TEST(config_host_memory_is_counted_with_memory)
{
    struct config *c = accepted(TENANT), *more;
    size_t arena;

    more = accepted(TENANT "    host_memory: 64M\n  - name: b\n    socket: /tmp/b\n"
                           "    memory: 1M\n    host_memory: 8191\n");
    assert_int_equal(more->limits.pages, (128u << 20) / 4096 + 256 + 1);
    assert_int_equal(more->limits.nodes, more->limits.pages);
    assert_int_equal(more->limits.slabs, c->limits.slabs * 2 + 257);
    assert_int_equal(more->limits.token_blocks - c->limits.token_blocks,
                     4 * (more->limits.pages - c->limits.pages));
    assert_int_equal(core_size(&more->limits, &arena), TERN_OK);
    refused(TENANT "    host_memory: lots\n", "t.yaml:5: tenants[0].host_memory: ", "bytes");
    refused(TENANT "    host_memory: 900T\n",
            "t.yaml:5: tenants[0].host_memory: ", "this machine has");
    refused(TENANT "    host_memory: 1M\n    host_memory: 1M\n",
            "t.yaml:6: tenants[0].host_memory: ", "given twice");
}

#define SPILL "spill: {dir: /tmp, bytes: 1G}\n"
#define TWO   "  - name: b\n    socket: /tmp/b\n    memory: 1M\n"

TEST(config_spill_is_read_and_limits_follow_from_it)
{
    struct tenant_config planned[CONFIG_TENANTS_MAX];
    struct disk_config disk;
    struct config *none = accepted(TENANT), *c = accepted(SPILL TENANT TWO);

    assert_string_equal(none->spill_dir, "");
    assert_false(plan_disk(none, &disk));
    assert_int_equal(none->limits.disk_chunks + none->limits.disk_stores, 0);
    assert_string_equal(c->spill_dir, "/tmp");
    assert_int_equal(c->limits.disk_interval, 10240); /* D1 */
    assert_int_equal(c->limits.disk_align, 2048);
    assert_int_equal(c->limits.disk_trim, 32);
    assert_int_equal(c->limits.disk_least, 512);
    assert_int_equal(c->limits.disk_chunks, (1u << 30) / 8192);
    assert_int_equal(c->limits.disk_files, c->limits.disk_chunks / 4);
    assert_int_equal(c->limits.disk_blocks, c->limits.disk_chunks * 4);
    assert_int_equal(c->limits.disk_stores, 4);
    assert_int_equal(c->limits.disk_keys, 65536);
    assert_int_equal(c->spill_headroom, 1u << 30);
    assert_int_equal(c->deadlines.shutdown_ms, 10000);
    plan_tenants(c, planned);
    assert_int_equal(planned[0].disk_bytes, 1u << 29); /* equal parts */
    assert_int_equal(planned[1].disk_bytes, 1u << 29);
    assert_true(plan_disk(c, &disk));
    assert_int_equal(disk.threads, 4);
    assert_int_equal(disk.depth, 16);
    assert_int_equal(disk.writes, 4);
    assert_false(disk.encrypt);
    assert_string_equal(disk.tenant[1], "b");
}

/* T22: a store may wait for a step that never comes, so each tenant needs a store of its own. */
TEST(config_each_tenant_has_stores_to_the_disk)
{
    char text[2048];
    size_t at = (size_t)snprintf(text, sizeof text, "%s%s", SPILL, TENANT);

    for (uint32_t i = 0; i < 5; i++)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "  - name: t%u\n    socket: /tmp/t%u\n    memory: 1M\n", i, i);
    assert_int_equal(accepted(text)->limits.disk_stores, 12);
    snprintf(text + at, sizeof text - at, "limits: {disk_chunks: 6}\n");
    assert_int_equal(accepted(text)->limits.disk_files, 6);
    snprintf(text + at, sizeof text - at, "limits: {disk_chunks: 5}\n");
    refused(text, "t.yaml:21: limits.disk_chunks: ", "is 5, and there are 6 tenants");
    snprintf(text + at, sizeof text - at, "limits: {engines: 5}\n");
    refused(text, "t.yaml:21: limits.engines: ", "is 5, and there are 6 tenants");
    snprintf(text + at, sizeof text - at, "limits: {extra_keys: 5}\n");
    refused(text, "t.yaml:21: limits.extra_keys: ", "is 5, and there are 6 tenants");
}

/* T22: each tenant has an engine and a pool. */
TEST(config_has_engines_and_pools_for_every_tenant)
{
    char text[8192];
    size_t at = (size_t)snprintf(text, sizeof text, "tenants:\n");

    for (uint32_t i = 0; i < CONFIG_TENANTS_MAX; i++)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "  - {name: t%u, socket: /tmp/t%u, memory: 1M}\n", i, i);
    assert_int_equal(accepted(text)->limits.engines, CONFIG_TENANTS_MAX);
    assert_int_equal(accepted(text)->limits.pools, CONFIG_TENANTS_MAX);
    assert_int_equal(accepted(TENANT)->limits.engines, 32);
}

TEST(config_every_setting_of_spill_is_read)
{
    struct disk_config disk;
    struct config *set;
    char text[1024];

    snprintf(text, sizeof text,
             "spill: {dir: /tmp, bytes: 3M, interval: 4097, align: 4096, "
             "threads: 2, encrypt_key_file: /k, headroom: 5}\n"
             "limits: {disk_chunks: 7, extra_keys: 9}\n"
             "faults: {disk_write_every: 11, disk_full_after: 12}\n"
             "deadlines: {shutdown_ms: 13}\n" TENANT "    spill_bytes: 1M\n" TWO
             "    spill_bytes: 0\n");
    set = accepted("spill: {interval: 3670010, align: 2621436}\n" TENANT);
    assert_int_equal(set->limits.disk_interval, 2621436); /* twice as much is too much */
    set = accepted(text);
    assert_int_equal(set->limits.disk_interval, 8192);
    assert_int_equal(set->limits.disk_trim, 64);
    assert_int_equal(set->limits.disk_least, 1024);
    assert_int_equal(set->limits.disk_keys, 9);
    assert_true(plan_disk(set, &disk));
    assert_true(disk.encrypt);
    assert_int_equal(disk.threads * 10 + disk.writes, 24);
    assert_int_equal(disk.headroom_bytes, 5);
    assert_int_equal(disk.fault_write_every * 100 + disk.fault_full_after, 1112);
    assert_int_equal(set->tenants[0].spill_bytes, 1u << 20);
    assert_int_equal(set->tenants[1].spill_bytes, 0);
    assert_int_equal(set->deadlines.shutdown_ms, 13);
    set = accepted(SPILL TENANT "    spill_bytes: 1000M\n" TWO);
    assert_int_equal(set->tenants[1].spill_bytes, 24u << 20); /* the rest */
}

TEST(config_spill_that_does_not_fit_is_refused)
{
    refused("spill: {bytes: 1G}\n" TENANT, "t.yaml:1: spill.bytes: ", "--spill.dir");
    refused("spill: {dir: /tmp}\n" TENANT, "t.yaml:1: spill.dir: ", "--spill.bytes");
    refused("spill: {encrypt_key_file: /k}\n" TENANT,
            "t.yaml:1: spill.encrypt_key_file: ", "without spill.dir");
    refused(SPILL TENANT "    spill_bytes: 2G\n",
            "t.yaml:6: tenants[0].spill_bytes: ", "spill.bytes is 1073741824");
    refused(TENANT "    spill_bytes: 1\n",
            "t.yaml:5: tenants[0].spill_bytes: ", "spill.bytes is 0");
    refused(SPILL "tenants: [{name: .a, socket: /tmp/a, memory: 1M}]\n",
            "t.yaml:2: ", "another name");
    refused("spill: {dir: /tmp, bytes: 1G, depth: 8}\n" TENANT,
            "t.yaml:1: spill.depth: ", "set spill.threads");
}

TEST(config_memory_of_the_disk_tier_is_counted)
{
    struct plan_memory none, some, more;

    plan_memory(accepted(TENANT), &none);
    plan_memory(accepted(SPILL TENANT), &some);
    plan_memory(accepted("spill: {dir: /tmp, bytes: 1G, threads: 6}\n" TENANT), &more);
    assert_int_equal(none.disk, 0);
    assert_true(some.disk > 64u << 20); /* 4 threads of 16 pieces of 1 MiB */
    assert_true(more.disk - some.disk > 32u << 20);
    assert_int_equal(more.total - some.total, more.disk - some.disk);
}

/* An engine of one rank may have each region to itself. */
TEST(config_pages_have_records_in_each_region)
{
    struct config *c = accepted(TENANT), *wide = accepted(TENANT "    regions: 4\n");

    assert_int_equal(wide->limits.pages, 4 * c->limits.pages);
    assert_int_equal(wide->limits.nodes, wide->limits.pages);
    assert_int_equal(wide->limits.sums_per_page, 4);
}

TEST(config_shape_errors_name_their_line)
{
    refused(TENANT "insecure_peers: true\nlisten: 127.0.0.1:7001\ndata_port: 7001\n",
            "t.yaml:7: data_port: ", "is the port of `listen`");
    refused(TENANT "page_bytes_min: 1G\n", "t.yaml:4: tenants[0].memory: ", "two pages of");
    refused("node: a\nzork: 3\n" TENANT, "t.yaml:2: zork: ", "unknown key");
    refused("node: a\nlimits:\n  nodes: 5\n  zork: 2\n" TENANT,
            "t.yaml:4: limits.zork: ", "unknown key");
    refused("tenants:\n  - name: a\n    socket: /tmp/a\n    memory: 1M\n  - name: b\n    socket: "
            "/tmp/b\n    mmory: 1M\n",
            "t.yaml:7: tenants[1].mmory: ", "unknown key");
    refused("node: a\nworkers: 1\nnode: b\n" TENANT, "t.yaml:3: node: ", "given twice");
    refused("limits:\n  nodes: 5\n  pages: 2\n  nodes: 2\n" TENANT,
            "t.yaml:4: limits.nodes: ", "given twice");
    refused("node: [a, b]\n" TENANT, "t.yaml:1: node: ", "one value, not a list");
    refused("node: {a: b}\n" TENANT, "t.yaml:1: node: ", "one value, not lines");
    refused("# text\n\nlimits: 3\n" TENANT, "t.yaml:3: limits: ", "lines of `key: value`");
    refused("node: a\ntenants: yes\n", "t.yaml:2: tenants: ", "a list, each entry");
    refused("node: a\ntenants:\n  - hello\n", "t.yaml:3: tenants[0]: ", "lines of `key: value`");
    refused("- 1\n", "t.yaml:", "lines of `key: value`");
    refused("node: a\n---\nnode: b\n", "t.yaml:", "more than one document");
    refused("limits: {nodes: 5}\nnode: a\nlimits: {pages: 5}\n",
            "t.yaml:3: limits: ", "given twice");
    refused(TENANT "tenants: []\n", "t.yaml:5: tenants: ", "given twice");
    refused("node: a\nlimits:\n  [nodes]: 5\n", "t.yaml:3: limits: ", "not a list");
    refused("node: \"a\\0b\"\n" TENANT, "t.yaml:1: node: ", "control characters");
    refused("\"node\\0b\": a\n" TENANT, "t.yaml:1: ", "control characters");
    refused(TENANT "peers:\n  - {name: b, address: \"h:1\",\n     tenants: default}\n",
            "t.yaml:7: peers[0].tenants: ", "a list, each entry");
    refused(TENANT "peers:\n  - {name: b, tenants: [[default]]}\n",
            "t.yaml:6: peers[0].tenants: ", "not a list");
}

TEST(config_text_that_is_no_yaml_names_its_line)
{
    refused("node: a\n\tworkers: 1\n", "t.yaml:2: ", "");
    refused("node: a\nlimits: {\n", "t.yaml:3: ", "");
    refused("node: \"a\n", "t.yaml:2: ", "");
    refused("node: a\nworkers: *x\n", "t.yaml:2: ", "undefined alias");
    refused("node: \x01\n", "t.yaml:", "control characters");
    refused("node: a\nadmin:\n    mode: 0600\n  socket: /tmp/x\n", "t.yaml:4: ", "");
}

TEST(config_alias_stands_for_what_it_names)
{
    struct config *c = accepted("node: &x a\nrdma_device: *x\n" TENANT);

    assert_int_equal(c->rdma_device.n, 1);
    assert_string_equal(c->rdma_device.name[0], "a");
    refused("node: &x a\nworkers: *x\n", "t.yaml:2: workers: ", "whole number");
}

TEST(config_host_that_is_no_name_is_refused)
{
    static const char *const hosts[] = {"-oProxyCommand=x", "-h",         "a..b",  ".a", "a-.b",
                                        "a%eth0",           "[fe80::1%]", "[::zz]"};
    char text[1024], label[HOST_NAME_LABEL_MAX + 2];

    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        snprintf(text, sizeof text, "insecure_peers: true\nlisten: \"%s:7001\"\n" TENANT, hosts[i]);
        refused(text, "t.yaml:2: listen: ", "a host has a name");
    }
    memset(label, 'a', sizeof label - 1);
    label[sizeof label - 1] = '\0';
    snprintf(text, sizeof text, "insecure_peers: true\nlisten: %s:7001\n" TENANT, label);
    refused(text, "t.yaml:2: listen: ", "parts of 1 to 63");
    snprintf(text, sizeof text, "insecure_peers: true\nlisten: %s:7001\n" TENANT, label + 1);
    accepted(text);
    accepted("insecure_peers: true\nlisten: \"[fe80::1%eth0]:7001\"\n" TENANT);
    accepted("insecure_peers: true\nlisten: host_1.example.:7001\n" TENANT);
}

TEST(config_values_out_of_range_name_their_line)
{
    refused("node: a\nworkers: many\n" TENANT, "t.yaml:2: workers: ", "whole number, not \"many\"");
    refused("workers: 0\n" TENANT, "t.yaml:1: workers: ", "from 1 to 256");
    refused("workers: 257\n" TENANT, "t.yaml:1: workers: ", "from 1 to 256");
    refused("workers: -1\n" TENANT, "t.yaml:1: workers: ", "whole number");
    refused("workers: 1.5\n" TENANT, "t.yaml:1: workers: ", "whole number");
    refused("workers: 99999999999999999999999\n" TENANT, "t.yaml:1: workers: ", "whole number");
    refused("data_port: 65536\n" TENANT, "t.yaml:1: data_port: ", "from 0 to 65535");
    refused("huge_pages: maybe\n" TENANT, "t.yaml:1: huge_pages: ", "true or false");
    refused("log_level: loud\n" TENANT, "t.yaml:1: log_level: ", "debug");
    refused("node: a b\n" TENANT, "t.yaml:1: node: ", "characters");
    refused("node: \"\"\n" TENANT, "t.yaml:1: node: ", "characters");
    refused("listen: nowhere\n" TENANT, "t.yaml:1: listen: ", "HOST:PORT");
    refused("listen: \"::1:7\"\n" TENANT, "t.yaml:1: listen: ", "brackets");
    refused("listen: \"a:70000\"\n" TENANT, "t.yaml:1: listen: ", "HOST:PORT");
    refused("admin:\n  mode: 0999\n" TENANT, "t.yaml:2: admin.mode: ", "octal");
    refused("admin:\n  socket: a.sock\n" TENANT, "t.yaml:2: admin.socket: ", "absolute");
    refused("tape:\n  bytes: 1Q\n" TENANT, "t.yaml:2: tape.bytes: ", "K, M, G or T");
    refused("tape:\n  bytes: 17179869184G\n" TENANT, "t.yaml:2: tape.bytes: ", "K, M, G or T");
    refused("limits:\n  sessions: 0\n" TENANT, "t.yaml:2: limits.sessions: ", "from 1");
    refused("limits:\n  nodes: 1\n" TENANT, "t.yaml:2: limits.nodes: ", "from 2");
    refused("limits:\n  pools: 65\n" TENANT, "t.yaml:2: limits.pools: ", "from 1 to 64");
    refused("deadlines:\n  drain_ms: 1\n" TENANT, "t.yaml:2: deadlines.drain_ms: ", "from 10");
    refused("limits:\n  nodes:\n" TENANT, "t.yaml:2: limits.nodes: ", "whole number");
}

/* A wrong value in the entry's field `bad`; the other fields are valid. */
static void entry_refused(const char *list, const struct setting *fields, size_t n, size_t bad,
                          const char *const *values, const char *value)
{
    char text[1024], at[128];
    int len = snprintf(text, sizeof text, "insecure_peers: true\n%s%s:\n",
                       strcmp(list, "peers") == 0 ? TENANT : "", list);
    int line = strcmp(list, "peers") == 0 ? 7 : 3;

    for (size_t f = 0; f < n; f++)
        len += snprintf(text + len, sizeof text - (size_t)len, "%s%s: \"%s\"\n",
                        f == 0 ? "  - " : "    ", fields[f].key, f == bad ? value : values[f]);
    snprintf(at, sizeof at, "t.yaml:%d: %s[0].%s: ", line + (int)bad, list, fields[bad].key);
    refused(text, at, "must ");
}

#define LIKE                                                                                       \
    "  - {name: big, socket: /tmp/big, memory: 32M, host_memory: 8M, regions: 2, devices: x+y, "   \
    "sessions_max: 7, conns_max: 3, mode: 0600, events_tokens: true}\n"
#define RESERVE "reserve: {tenants: 2, like: big}\n"

/* They count like any other, and are printed as the settings that made them. */
TEST(config_reserve_makes_tenants_without_a_name)
{
    struct config *c = accepted(RESERVE "spill: {dir: /tmp, bytes: 40M}\n" TENANT LIKE), *again;
    const struct config_tenant *free = &c->tenants[3];
    struct plan_memory planned;
    struct mem_config mem;
    uint32_t slot;

    assert_int_equal(c->ntenants, 4);
    assert_int_equal(config_tenants(c), 2);
    assert_int_equal(c->limits.tenants, 4);
    assert_true(config_tenant_free(c, 2) && config_tenant_free(c, 3) && !config_tenant_free(c, 1));
    assert_true(free->socket[0] == '\0' && free->mode == 0 && !free->events_tokens);
    assert_int_equal(config_tenant_slot(c, "", &slot), TERN_INVALID);
    assert_int_equal(free->memory_bytes, 32u << 20);
    assert_int_equal(free->host_bytes, 8u << 20);
    assert_int_equal(free->regions, 2);
    assert_string_equal(free->devices.name[1], "y");
    assert_int_equal(free->sessions_max, 7);
    assert_int_equal(free->spill_bytes, 10u << 20); /* an equal part, as without a setting */
    assert_int_equal(c->spill_parts, 15);
    assert_int_equal(c->limits.conns, 256 + 16 + 3 * 3 + 1);
    plan_mem(c, &mem);
    assert_int_equal(mem.tenants, 4);
    plan_memory(c, &planned);
    assert_int_equal(planned.pages, (64u + 3 * 2 * 32u) << 20);
    again = accepted(printed(c));
    assert_same(c, again);
}

/* An entry without `memory` takes its other sizes from that tenant, too; one with it takes none. */
TEST(config_tenant_without_memory_has_the_sizes_of_the_reserve)
{
    struct config *c =
        accepted(RESERVE TENANT "  - {name: a, socket: /tmp/a, sessions_max: 9}\n" LIKE);

    assert_int_equal(c->tenants[0].host_bytes, 0);
    assert_int_equal(c->tenants[0].sessions_max, 4096);
    assert_int_equal(c->tenants[1].memory_bytes, 32u << 20);
    assert_int_equal(c->tenants[1].host_bytes, 8u << 20);
    assert_string_equal(c->tenants[1].devices.name[0], "x");
    assert_int_equal(c->tenants[1].sessions_max, 9);
    assert_int_equal(c->tenants[1].mode, 0660);
    c = accepted("reserve: {like: big}\ntenants:\n" LIKE "  - {name: a, socket: /tmp/a}\n");
    assert_int_equal(c->ntenants, 2);
    assert_int_equal(c->tenants[1].conns_max, 3);
    refused("reserve: {tenants: 0}\ntenants:\n  - {name: a, socket: /tmp/a}\n",
            "t.yaml:3: tenants[0]: ", "needs `memory`");
    refused("reserve: {like: a}\ntenants:\n  - {name: a, socket: /tmp/a}\n",
            "t.yaml:3: tenants[0]: ", "needs `memory`");
}

/* A setting of a former release is refused with its replacement. */
TEST(config_reserve_is_checked_as_tenants_are)
{
    char text[256];

    refused("reserve: {tenants: 1}\n" TENANT, "t.yaml:1: reserve.tenants: ", "set reserve.like");
    refused("reserve: {like: b}\n" TENANT, "t.yaml:1: reserve.like: ", "no tenant is called \"b\"");
    refused("reserve: {tenants: 1, memory: 1M}\n" TENANT,
            "t.yaml:1: reserve.memory: ", "set reserve.like to that tenant's name");
    refused("reserve: {tenants: 64, like: default}\n" TENANT, "t.yaml:1: reserve.tenants: ",
            "with the 1 of `tenants`, these are more than the maximum of 64");
    snprintf(text, sizeof text,
             "reserve: {tenants: 2, like: default}\ntenants:\n"
             "  - {name: default, socket: /tmp/a, memory: %" PRIu64 "}\n",
             plan_machine_bytes() / 2);
    refused(text, "t.yaml:1: reserve.tenants: ", "this machine has");
    refused("insecure_peers: true\n" RESERVE TENANT LIKE
            "peers:\n  - {name: b, address: \"h:1\", tenants: [a]}\n",
            "t.yaml:9: peers[0].tenants: ", "there is no tenant a");
}

/* GPU memory is none of the machine's, and may be larger than that. */
TEST(config_device_memory_is_planned_apart)
{
    struct config *c =
        accepted("tenants:\n  - name: a\n    socket: /tmp/a\n    memory: 64T\n"
                 "    regions: 2\n    devices: GPU-a+GPU-b\n    device_memory: true\n"
                 "page_bytes_min: 1G\n");
    struct plan_memory planned;
    struct mem_config mem;

    plan_memory(c, &planned);
    assert_int_equal(planned.pages, 0);
    assert_int_equal(plan_device_bytes(c), (uint64_t)128 << 40);
    plan_mem(c, &mem);
    assert_string_equal(mem.device[0][1], "GPU-b");
}

TEST(config_every_setting_refuses_nonsense_at_its_line)
{
    static const char *const tenant[TENANT_FIELDS] = {"a",     "/tmp/a", "0660", "false", "1M",
                                                      "1M",    "1M",     "0",    "true",  "1",
                                                      "index", "false",  "auto", "1",     "1"};
    static const char *const peer[PEER_FIELDS] = {"b", "h:1", "tcp"};
    char text[512], at[128], value[32];

    for (size_t i = 0; i < config_settings_n; i++) {
        const struct setting *s = &config_settings[i];
        bool ranged = s->max < UINT64_MAX && s->kind != VALUE_DEVICES; /* `max`: of names */
        const char *dot = *s->section ? "." : "", *in = *s->section ? "  " : "";

        for (int k = 0; k < 1 + ranged; k++) {
            snprintf(value, sizeof value, k ? "%" PRIu64 : "!", s->max + 1);
            snprintf(text, sizeof text, TENANT "%s%s%s%s: \"%s\"\n", s->section,
                     *s->section ? ":\n" : "", in, s->key, value);
            snprintf(at, sizeof at, "t.yaml:%d: %s%s%s: ", *s->section ? 6 : 5, s->section, dot,
                     s->key);
            refused(text, at, "must ");
        }
        snprintf(text, sizeof text, "%s%s%s%s: [1]\n" TENANT, s->section, *s->section ? ":\n" : "",
                 in, s->key);
        snprintf(at, sizeof at, "t.yaml:%d: %s%s%s: ", *s->section ? 2 : 1, s->section, dot,
                 s->key);
        refused(text, at, "one value, not a list");
    }
    for (size_t f = 0; f < TENANT_FIELDS; f++)
        entry_refused("tenants", config_tenant_fields, TENANT_FIELDS, f, tenant, "!");
    for (size_t f = 0; f < PEER_FIELDS; f++)
        entry_refused("peers", config_peer_fields, PEER_FIELDS, f, peer, "!");
}

TEST(config_socket_path_longer_than_the_kernel_takes_is_refused)
{
    char text[512], path[CONFIG_PATH_BYTES + 2];
    struct config *c;

    memset(path, 'p', sizeof path);
    path[0] = '/';
    path[CONFIG_PATH_BYTES] = '\0';
    snprintf(text, sizeof text, "tenants:\n  - {name: a, memory: 1M, socket: %s}\n", path);
    refused(text, "t.yaml:2: tenants[0].socket: ", "shorter than 108");
    path[CONFIG_PATH_BYTES - 1] = '\0';
    snprintf(text, sizeof text, "tenants:\n  - {name: a, memory: 1M, socket: %s}\n", path);
    c = accepted(text);
    assert_int_equal(strlen(c->tenants[0].socket), CONFIG_PATH_BYTES - 1);
}

/* Host memory is locked on all rails: here the nearest one, and the GPU's. */
TEST(config_memory_of_gpus_may_go_by_rdma_and_locks_its_ring)
{
    static const char gpu[] =
        "insecure_peers: true\n" TENANT "    devices: GPU-a\n    device_memory: true\n",
                      host[] = "  - {name: b, socket: /tmp/b, memory: 2M}\n",
                      peer[] = "peers:\n  - {name: b, address: \"10.0.0.2:7001\", "
                               "tenants: [default], transport: auto}\n";
    char text[512];

    snprintf(text, sizeof text, "%s%s", gpu, peer);
    assert_int_equal(plan_pinned(accepted(text)), (32ull << 20) + XFER_SELF_TEST_SCRATCH);
    snprintf(text, sizeof text, "%s%s%s", gpu, host, peer);
    assert_int_equal(plan_pinned(accepted(text)), 2 * ((32u + 2u) << 20) + XFER_SELF_TEST_SCRATCH);
    snprintf(text, sizeof text, "rdma_device: mlx5_0\n%s%s%s", gpu, host, peer);
    assert_int_equal(plan_pinned(accepted(text)), (34u << 20) + XFER_SELF_TEST_SCRATCH);
}

TEST(config_tenants_that_do_not_fit_are_refused)
{
    refused("node: a\n", "t.yaml:", "no tenant");
    refused("", "t.yaml: no tenant is configured", "");
    refused("tenants: []\n", "t.yaml:", "no tenant");
    refused("tenants:\n  - socket: /tmp/a\n    memory: 1M\n", "t.yaml:2: tenants[0]: ", "name");
    refused("tenants:\n  - name: a\n    memory: 1M\n", "t.yaml:2: tenants[0]: ", "socket");
    refused("tenants:\n  - name: a\n    socket: /tmp/a\n", "t.yaml:2: tenants[0]: ", "memory");
    refused("tenants:\n  - name: a\n    socket: /tmp/a\n    memory: 0\n",
            "t.yaml:4: tenants[0].memory: ", "from 4096");
    refused("tenants:\n  - name: a\n    socket: /tmp/a\n    memory: 1M\n    regions: 65\n",
            "t.yaml:5: tenants[0].regions: ", "from 1 to 64");
    refused(TENANT "    regions: 3\n    devices: GPU-a+GPU-b\n",
            "t.yaml:6: tenants[0].devices: ", "names 2 devices for 3 regions");
    refused(TENANT "    device_memory: true\n",
            "t.yaml:5: tenants[0].device_memory: ", "needs `devices`");
    refused(TENANT "    regions: 2\n    devices: GPU-a+GPU-a\n",
            "t.yaml:6: tenants[0].devices: ", "twice");
    refused(TENANT "  - name: default\n    socket: /tmp/b\n    memory: 1M\n",
            "t.yaml:5: tenants[1].name: ", "another tenant has the name default");
    refused(TENANT "  - name: b\n    socket: /tmp/t.sock\n    memory: 1M\n",
            "t.yaml:6: tenants[1].socket: ", "tenant default has the same socket");
    refused("admin:\n  socket: /tmp/t.sock\n" TENANT,
            "t.yaml:5: tenants[0].socket: ", "admin socket");
}

/* Less than a page would be no tape, and engines would be asked to set what is set. */
TEST(config_tape_below_its_least_is_refused)
{
    refused(TENANT "tape: {bytes: 4095}\n", "t.yaml:5: tape.bytes: ", "4096");
    refused(TENANT "tape: {bytes: 1}\n", "t.yaml:5: tape.bytes: ", "4096");
    accepted(TENANT "tape: {bytes: 4096}\n");
    accepted(TENANT "tape: {bytes: 0}\n");
}

TEST(config_record_memory_below_a_page_is_refused)
{
    refused(TENANT "    record_memory: 16383\n", "t.yaml:5: tenants[0].record_memory: ", "16384");
    assert_int_equal(accepted(TENANT "    record_memory: 16385\n")->limits.record_pages, 64);
}

TEST(config_memory_above_the_machine_is_refused)
{
    refused("tenants:\n  - name: a\n    socket: /tmp/a\n    memory: 900T\n",
            "t.yaml:4: tenants[0].memory: ", "this machine has");
    refused("page_bytes_min: 1M\n" TENANT
            "    regions: 16\n  - name: b\n    socket: /tmp/b\n    memory: 60T\n    regions: 16\n",
            "t.yaml:9: tenants[1].memory: ", "MiB in each of its 16 regions");
    refused("limits:\n  pages: 268435456\n  sums_per_page: 268435456\n" TENANT,
            "t.yaml:3: limits.sums_per_page: ", "lower it");
    /* The refusal names the limit that takes most, whatever else was set. */
    refused(TENANT "limits:\n  nodes: 7\n  sums_per_page: 268435456\n  pulls: 9\n",
            "t.yaml:7: limits.sums_per_page: ", "lower it");
}

/* Each part fits, but not all together. */
TEST(config_all_parts_above_the_machine_are_refused)
{
    char text[512];

    snprintf(text, sizeof text,
             "page_bytes_min: 1G\ntenants:\n  - name: a\n    socket: /tmp/a\n    memory: %" PRIu64
             "\n",
             plan_machine_bytes() - (1u << 20));
    refused(text, "the daemon needs ", "lower tenants[].memory");
    refused(text, "the daemon needs ", "bytes of memory (pages=");
    snprintf(text, sizeof text,
             "page_bytes_min: 1G\ntenants:\n  - name: a\n    socket: /tmp/a\n    memory: %" PRIu64
             "\n",
             plan_machine_bytes() / 2);
    accepted(text);
}

/* The parts add up to the sum, and a refusal names how to reduce the largest part. */
TEST(config_memory_is_told_by_part)
{
    struct plan_memory m, more, alone = {.rdma = 3, .core = 2};
    struct config *c = accepted(TENANT), *d = accepted("tape:\n  bytes: 80M\n" TENANT);
    char text[PLAN_TEXT_BYTES], part[64];
    FILE *out = text_begin();

    plan_memory(c, &m);
    plan_memory(d, &more);
    assert_int_equal(m.pages, 64u << 20);
    assert_true(m.core > 0 && m.checksums > 0 && m.transfers > 0 && m.connections > 0);
    assert_int_equal(m.rdma + m.tls + m.host_pages, 0);
    assert_int_equal(m.total,
                     m.pages + m.core + m.checksums + m.transfers + m.connections + m.tape);
    assert_int_equal(more.tape - m.tape, 72u << 20);
    assert_int_equal(more.total - m.total, 72u << 20);
    plan_text(&m, text);
    plan_report(c, "# ", out);
    fclose(out);
    snprintf(part, sizeof part, " core=%" PRIu64 " checksums=", m.core);
    assert_non_null(strstr(text, part));
    snprintf(part, sizeof part, "# memory_bytes%23" PRIu64 "  at most; ", m.total);
    assert_memory_equal(texts[0], part, strlen(part));
    snprintf(part, sizeof part, "\n#   core%29" PRIu64 "\n", m.core);
    assert_non_null(strstr(texts[0], part));
    assert_non_null(strstr(plan_hint(&alone), "set transport: tcp"));
    assert_string_equal(plan_hint(&m), "raise page_bytes_min or lower the limits");
}

TEST(config_what_is_printed_is_read_back_the_same)
{
    struct config *c = accepted(
                      "rdma_device: a+b\nrdma: {gid_index: 3}\ninsecure_peers: true\nlisten: "
                      "\"[::1]:7\"\nadmin: {socket: '/tmp/a \"b\\c'}\n" TENANT
                      "    host_memory: 5M\n    rdma_devices: b\n"
                      "spill: {dir: /tmp/s, bytes: 1G, interval: 5000}\n"
                      "peers:\n  - {name: b, address: \"h:1\", tenants: [default]}\n"),
                  *again;
    const char *first = printed(c);

    again = accepted(first);
    assert_string_equal(first, printed(again));
    assert_string_equal(again->admin_socket, "/tmp/a \"b\\c");
    assert_same(c, again);
}

/* A sanitizer that looks for leaks has an allocator of its own, whose memory is not counted
 * here. */
TEST(config_reading_leaves_no_memory_behind)
{
    size_t before = 0;

    for (uint32_t round = 0; round < 4; round++) {
        refused("node: a\nlimits: {\n", "t.yaml:3: ", "");
        refused("node: a\nlimits:\n  nodes: 5\n  zork: 2\n" TENANT, "t.yaml:4: ", "unknown key");
        accepted(TENANT);
        drop_all(state);
        if (round == 1)
            before = mallinfo2().uordblks;
    }
    assert_int_equal(mallinfo2().uordblks, before);
}
