/* Configuration of peers, of TLS and of RDMA: what is accepted, what is refused and where the
 * refusal points. */
#include <inttypes.h>

#include "shell/config/config_table.h"
#include "shell/config/plan.h"
#include "shell/peers/link.h"
#include "shell/tls/tls.h"
#include "test_config_rig.h"

/* Memory of a further peer: its links, the link's send and receive buffers, and its name lookup. */
TEST(config_memory_of_a_peer_is_counted)
{
    static const char two[] = TENANT "insecure_peers: true\npeers:\n"
                                     "  - {name: a, address: \"a:1\", tenants: [default]}\n"
                                     "  - {name: b, address: \"b:1\", tenants: [default]}\n";
    char one[sizeof two];
    struct plan_memory m, more;
    struct stream_config s, t;
    struct config *c, *d = accepted(two);

    snprintf(one, sizeof one, "%.*s", (int)(strstr(two, "  - {name: b") - two), two);
    c = accepted(one);
    plan_memory(c, &m);
    plan_memory(d, &more);
    plan_streams(c, &s);
    plan_streams(d, &t);
    assert_int_equal(more.connections - m.connections,
                     stream_pool_bytes(&t) - stream_pool_bytes(&s) +
                         2 * (sizeof(struct peer_link) + sizeof(uint64_t)) + resolver_bytes(2) -
                         resolver_bytes(1));
    assert_true(resolver_bytes(2) - resolver_bytes(1) > RESOLVE_HOST_BYTES);
}

/* Each link of a peer can send and receive a large message, whatever other peers leave unread or
 * incomplete. */
TEST(config_each_peer_has_buffers_for_large_messages)
{
    char text[4096];
    size_t at = (size_t)snprintf(text, sizeof text, "%sinsecure_peers: true\npeers:\n", TENANT);
    struct stream_config s;
    struct config *c;

    for (uint32_t i = 0; i < 40; i++)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "  - {name: p%u, address: \"a:1\", tenants: [default]}\n", i);
    c = accepted(text);
    plan_streams(c, &s);
    assert_int_equal(c->limits.peers, 48);
    assert_int_equal(s.bodies[2], 2 * 48);
    assert_true((uint64_t)s.send_buffers_reserved[2] * SEND_BUFFER_BYTES >=
                2 * 48 * (uint64_t)(FRAME_HEADER_BYTES + LINK_BODY_MAX));
}

TEST(config_peers_that_do_not_fit_are_refused)
{
    static const char clear[] = "insecure_peers: true\n" TENANT "peers:\n";
    char text[1024];

#define PEERS(rest) (snprintf(text, sizeof text, "%s%s", clear, rest), text)
    refused(PEERS("  - name: b\n    address: 10.0.0.2:7001\n    tenants: [default, other]\n"),
            "t.yaml:9: peers[0].tenants: ", "there is no tenant other");
    refused(PEERS("  - name: b\n    tenants: [default]\n"), "t.yaml:7: peers[0]: ", "address");
    refused(PEERS("  - name: b\n    address: \"10.0.0.2:0\"\n    tenants: [default]\n"),
            "t.yaml:7: peers[0]: ", "address");
    refused(PEERS("  - name: b\n    address: 10.0.0.2:7001\n"), "t.yaml:7: peers[0]: ", "tenants");
    refused(PEERS("  - address: 10.0.0.2:7001\n    tenants: [default]\n"),
            "t.yaml:7: peers[0]: ", "name");
    refused(PEERS("  - {name: b, address: \"h:1\", tenants: [default]}\n  - {name: b, address: "
                  "\"i:1\", tenants: [default]}\n"),
            "t.yaml:8: peers[1].name: ", "another peer has the name b");
    refused(PEERS("  - {name: b, address: \"h:1\", tenants: [default], weight: 3}\n"),
            "t.yaml:7: peers[0].weight: ", "unknown key");
    refused(PEERS("  - {name: b, address: \"h:1\", tenants: [[default]]}\n"),
            "t.yaml:7: peers[0].tenants: ", "");
#undef PEERS
}

#define PEER_MORE ", address: \"10.0.0.2:7001\", tenants: [default]"

/* n peers, with `more` in each entry. */
static char *many_peers(uint32_t n, const char *more)
{
    FILE *out = text_begin();

    fputs("insecure_peers: true\n" TENANT "peers:\n", out);
    for (uint32_t i = 0; i < n; i++)
        fprintf(out, "  - {name: p%u%s%s}\n", i, PEER_MORE, more);
    fclose(out);
    return texts[ntexts - 1];
}

TEST(config_as_many_peers_as_there_may_be_fit_and_limits_follow_from_them)
{
    enum { N = CONFIG_PEERS_MAX };
    char *text = many_peers(N, ""), *verbs = many_peers(512, ", transport: auto"), why[512];
    struct config *c = accepted(text);
    size_t arena;

    assert_int_equal(N, 4096);
    assert_int_equal(c->npeers, N);
    assert_string_equal(c->peers[N - 1].name, "p4095");
    assert_int_equal(c->peers[N - 1].tenants, 1);
    assert_int_equal(c->limits.links, N + N + 64);
    assert_int_equal(c->data_conns_max, 2 * N + 2 * 64);
    assert_int_equal(core_size(&c->limits, &arena), TERN_OK);
    c = accepted(verbs);
    assert_int_equal(c->data_conns_max, 4 * 512 + 4 * 8 + 2 * 64); /* those that may join, too */
    text = many_peers(N + 1, "");
    c = NULL;
    assert_int_equal(load_text(text, &c, why), TERN_INVALID);
    if (strncmp(why, "t.yaml:", 7) != 0 || !strstr(why, "peers") || !strstr(why, "4096"))
        fail_msg("%s", why);
}

TEST(config_slots_of_peers_are_those_of_the_configuration_at_least)
{
    static const char two[] = TENANT "insecure_peers: true\npeers:\n"
                                     "  - {name: a, address: \"a:1\", tenants: [default]}\n"
                                     "  - {name: b, address: \"b:1\", tenants: [default]}\n";
    char text[sizeof two + 64];

    assert_int_equal(accepted(TENANT)->limits.peers, 0); /* without peers */
    assert_int_equal(accepted("insecure_peers: true\n" TENANT)->limits.peers, 8);
    snprintf(text, sizeof text, "limits: {peers: 1}\n%s", two);
    refused(text, "t.yaml:1: limits.peers: ", "2 peers are configured");
    snprintf(text, sizeof text, "limits: {peers: 2}\n%s", two);
    assert_int_equal(accepted(text)->limits.links, 2 + 2 + 64);
}

TEST(config_peer_of_64_tenants_with_the_longest_names_is_read)
{
    char name[CONFIG_NAME_BYTES];
    struct config *c;
    FILE *out = text_begin();

    fputs("insecure_peers: true\ntenants:\n", out);
    for (int i = 0; i < CONFIG_TENANTS_MAX; i++)
        fprintf(out, "  - {name: t%062d, socket: /s%d, memory: 1M, conns_max: 1}\n", i, i);
    fputs("peers:\n  - {name: p, address: \"h:1\", tenants: [", out);
    for (int i = 0; i < CONFIG_TENANTS_MAX; i++)
        fprintf(out, "%st%062d", i ? ", " : "", i);
    fputs("]}\n", out);
    fclose(out);
    c = accepted(texts[0]);
    assert_int_equal(c->peers[0].tenants, UINT64_MAX);
    snprintf(name, sizeof name, "t%062d", 63);
    assert_string_equal(c->tenants[63].name, name);
}

TEST(config_peers_in_the_clear_need_the_flag)
{
    refused(TENANT "peers:\n  - {name: b, address: \"h:1\", tenants: [default]}\n",
            "t.yaml:6: peers[0]: ", "--insecure_peers");
    refused("listen: 127.0.0.1:0\n" TENANT, "t.yaml:1: listen: ", "--insecure_peers");
    accepted("listen: 127.0.0.1:0\ninsecure_peers: true\n" TENANT);
}

#define TLS_FILES "tls:\n  ca: /t/ca.pem\n  cert: /t/a.pem\n  key: /t/a.key\n"

TEST(config_tls_is_whole_and_instead_of_the_clear)
{
    struct config *c;

    refused("tls:\n  ca: /t/ca.pem\n  cert: /t/a.pem\n" TENANT, "t.yaml:3: tls.cert: ", "key");
    refused("tls: {key: /t/a.key}\n" TENANT, "t.yaml:1: tls.key: ", "ca, cert and key");
    refused("tls: {key: a.key}\n" TENANT, "t.yaml:1: tls.key: ", "absolute");
    refused("tls: {crt: /t/a.pem}\n" TENANT, "t.yaml:1: tls.crt: ", "unknown key");
    refused("insecure_peers: true\n" TLS_FILES TENANT,
            "t.yaml:1: insecure_peers: ", "exclude each other");
    c = accepted(TLS_FILES "listen: 127.0.0.1:0\n" TENANT
                           "peers:\n  - {name: b, address: \"h:1\", tenants: [default]}\n");
    assert_false(c->insecure_peers);
    assert_string_equal(c->tls_cert, "/t/a.pem");
    assert_same(c, accepted(printed(c)));
}

#define PEER_OF(more)                                                                              \
    "insecure_peers: true\n" TENANT                                                                \
    "peers:\n  - {name: b, address: \"h:1\", tenants: [default]" more "}\n"

TEST(config_rdma_of_a_peer_and_of_the_host_is_read)
{
    struct config *c = accepted(PEER_OF(""));

    assert_int_equal(c->rdma_device.n, 0);
    assert_int_equal(c->peers[0].transport, XFER_TCP);
    c = accepted("rdma_device: auto\n" PEER_OF(", transport: auto"));
    assert_int_equal(c->rdma_device.n, 0);
    assert_int_equal(c->peers[0].transport, XFER_AUTO);
    c = accepted("rdma_device: mlx5_1+mlx5_0\n" PEER_OF(", transport: verbs"));
    assert_int_equal(c->rdma_device.n, 2);
    assert_string_equal(c->rdma_device.name[0], "mlx5_1");
    assert_string_equal(c->rdma_device.name[1], "mlx5_0");
    assert_int_equal(c->peers[0].transport, XFER_VERBS);
}

/* Each word of a row is a setting, and parts of words are not. */
TEST(config_settings_that_were_retired_are_refused_by_name)
{
    uint32_t n = 0;

    for (size_t i = 0; i < RETIRED_SETTINGS; i++) {
        char keys[256], *rest = keys, text[512], place[128];
        const struct retired *r = &config_retired[i];

        assert_true((size_t)snprintf(keys, sizeof keys, "%s", r->keys) < sizeof keys);
        for (const char *key; strcmp(r->section, "peers") != 0 && (key = strsep(&rest, " ")); n++) {
            assert_int_equal(loader_row(r->section, key), config_settings_n);
            snprintf(text, sizeof text, *r->section ? "%s: {%s: 1}\n" TENANT : "%s%s: 1\n" TENANT,
                     r->section, key);
            snprintf(place, sizeof place, "t.yaml:1: %s%s%s: ", r->section, *r->section ? "." : "",
                     key);
            refused(text, place, r->instead);
        }
    }
    assert_int_equal(n, 34);
    refused("limits: {disk: 1}\n" TENANT, "t.yaml:1: limits.disk: ", "unknown key");
    refused("rdma: {wide_keys: false}\n" TENANT, "t.yaml:1: rdma.wide_keys: ", "leave it out");
    refused(PEER_OF(", push: true"), "t.yaml:", "push: was retired: ");
    refused(PEER_OF(", push: false"), "t.yaml:", "or set transport: tcp");
}

TEST(config_rdma_that_makes_no_sense_is_refused)
{
    refused("rdma_device: a+b+a\n" TENANT, "t.yaml:1: rdma_device: ", "twice");
    refused("rdma_device: a+b+c+d+e+f+g+h+i+j+k+l+m+n+o+p+q\n" TENANT,
            "t.yaml:1: rdma_device: ", "at most 16");
    refused("rdma_device: a+\n" TENANT, "t.yaml:1: rdma_device: ", "1 to 63");
    refused("rdma_device: a/b\n" TENANT, "t.yaml:1: rdma_device: ", "1 to 63");
    refused(PEER_OF(", transport: rdma"), "t.yaml:", "must be one of these: auto verbs tcp");
}

#define REGIONS_OF(rest) "tenants:\n  - {name: a, socket: /tmp/a, memory: 1M, " rest "}\n"

/* Rails: as many as there are uses, and room for at least 4. */
TEST(config_rails_follow_from_the_regions)
{
    static const char gpus[] = REGIONS_OF("regions: 6, device_memory: true, devices: a+b+c+d+e+f");
    struct config *c = accepted(TENANT);

    assert_int_equal(c->rdma_rails, 4);
    assert_int_equal(plan_rails(c), 1);
    c = accepted("rdma_device: a+b+c+d+e\n" TENANT);
    assert_int_equal(c->rdma_rails, 5);
    c = accepted(gpus);
    assert_int_equal(c->rdma_rails, 6);
    assert_int_equal(plan_rails(c), 6);
    c = accepted(REGIONS_OF("regions: 3, rdma_devices: x+y+x"));
    assert_int_equal(c->tenants[0].rdma_devices.n, 3);
    assert_string_equal(c->tenants[0].rdma_devices.name[2], "x");
    assert_int_equal(plan_rails(c), 2);
    drop_all(NULL);
    c = accepted(
        "limits: {rdma_rails: 2}\n" REGIONS_OF("regions: 3, device_memory: true, devices: a+b+c"));
    assert_int_equal(plan_rails(c), 2);
    refused(
        "limits: {rdma_rails: 2}\n" REGIONS_OF("regions: 4, rdma_devices: x+y+x+z"),
        "t.yaml:1: limits.rdma_rails: ",
        "is 2, and rdma_device or tenants[].rdma_devices name 3 devices: raise it (16 at most)");
    refused("rdma_device: a+b+c\nlimits: {rdma_rails: 2}\n" TENANT,
            "t.yaml:2: limits.rdma_rails: ", "name 3 devices");
    refused(REGIONS_OF("regions: 3, rdma_devices: x+y"),
            "t.yaml:2: tenants[0].rdma_devices: ", "names 2 devices for 3 regions");
    refused("rdma_device: x+z\n" REGIONS_OF("regions: 2, rdma_devices: x+y"),
            "t.yaml:3: tenants[0].rdma_devices: ", "y is not among the devices of rdma_device");
}

/* Each link and each tenant has a path a rail, and a request has bits for that many. */
TEST(config_more_paths_than_can_be_named_are_refused)
{
    char text[8192];
    int n = snprintf(text, sizeof text,
                     "insecure_peers: true\nlimits: {rdma_rails: 16, peers: 4096}\n"
                     "peers:\n  - {name: b, address: \"h:1\", tenants: [t0], transport: "
                     "auto}\ntenants:\n");

    for (uint32_t i = 0; i < CONFIG_TENANTS_MAX; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "  - {name: t%u, socket: /tmp/t%u, memory: 1M}\n", i, i);
    assert_true(n < (int)sizeof text);
    refused(text, "t.yaml:2: limits.rdma_rails: ",
            "needs 8454144 paths, one for each of 8256 links, 64 tenants and 16 rails, and at most "
            "8388608 are possible: lower it");
}

TEST(config_rdma_tuning_is_that_of_the_transfers_unless_it_is_set)
{
    struct config *c = accepted(TENANT);
    struct xfer_config xfer;

    assert_memory_equal(&c->rdma, &xfer_rdma_tuning_initial, sizeof c->rdma);
    c = accepted("rdma: {gid_index: 3, mtu: 4096, pkey_index: 1, traffic_class: 106, "
                 "service_level: 3, timeout: 18, retries: 7}\n" TENANT);
    assert_memory_equal(&c->rdma,
                        &((struct xfer_rdma_tuning){.gid_index = 3,
                                                    .mtu = 4096,
                                                    .pkey_index = 1,
                                                    .traffic_class = 106,
                                                    .service_level = 3,
                                                    .timeout = 18,
                                                    .retries = 7}),
                        sizeof c->rdma);
    plan_xfer(c, &xfer);
    assert_ptr_equal(xfer.rdma.tuning, &c->rdma);
    refused("rdma: {mtu: 1500}\n" TENANT,
            "t.yaml:1: rdma.mtu: ", "must be 256, 512, 1024, 2048 or 4096, or auto");
    refused("rdma: {mtu: 128}\n" TENANT, "t.yaml:1: rdma.mtu: ", "must be 256");
    refused("rdma: {gid_index: ten}\n" TENANT, "t.yaml:1: rdma.gid_index: ", ", or auto");
}
