/* The doctor's answers about memory regions, and about the settings of queue pairs. */
#include "unit/shell/test_admin_rig.h"

FIXTURE(start_doctor)
{
    char why[CONFIG_WHY_BYTES];
    static const char yaml[] =
        "tenants:\n  - {name: chat, socket: /tmp/a, memory: 1M, regions: 2}\n"
        "rdma: {mtu: 1024, traffic_class: 106}\n";

    s = (struct scene){.text = malloc(TEXT_BYTES)};
    assert_int_equal(config_load_text("t", yaml, sizeof yaml - 1, &s.config, why, sizeof why),
                     TERN_OK);
    s.ctx.config = s.config;
    s.ctx.daemon = &fake;
    fake.xfer = (struct xfer *)&fake;
    return 0;
}

FIXTURE(stop_doctor)
{
    json_decref(s.answer);
    config_destroy(s.config);
    free(s.text);
    return 0;
}

/* The first region is on a GPU, and its device is a rail; the second has none. */
static bool region(const struct xfer *d, const struct xfer_rdma_view *rdma, uint32_t tenant,
                   uint32_t number, struct xfer_region_view *ret)
{
    (void)d;
    assert_ptr_equal(rdma, &s.ctx.rdma);
    assert_int_equal(tenant, 0);
    *ret = number == 0
               ? (struct xfer_region_view){"GPU-1", "0000:AA:00.0", "mlx5_1", "same switch", 3}
               : (struct xfer_region_view){.reason = "none can be used", .rail = NONE};
    return true;
}

TEST_WITH(admin_doctor_tells_each_region_its_device_and_why, start_doctor, stop_doctor)
{
    json_t *rows,
        *want =
            json_pack("[{s:s, s:i, s:s, s:s, s:s, s:i, s:s}, {s:s, s:i, s:n, s:n, s:n, s:n, s:s}]",
                      "tenant", "chat", "region", 0, "gpu", "GPU-1", "pci", "0000:AA:00.0",
                      "device", "mlx5_1", "rail", 3, "reason", "same switch", "tenant", "chat",
                      "region", 1, "gpu", "pci", "device", "rail", "reason", "none can be used");

    rows = json_object_get(json_object_get(ask("doctor"), "rdma"), "regions");
    assert_int_equal(json_array_size(rows), 0); /* no transfers */
    s.parts.region = region;
    rows = json_object_get(json_object_get(ask("doctor"), "rdma"), "regions");
    assert_true(json_equal(rows, want));
    json_decref(want);
}

/* Three NICs: the first has passed, the second failed, the third was not tested. */
static bool registration(const struct xfer *d, uint32_t i, struct xfer_registration_view *ret)
{
    static const struct xfer_self_test tests[] = {
        {.result = XFER_SELF_TEST_PASSED, .at_ns = 2000000000, .bytes = 16384, .ns = 65999},
        {.result = XFER_SELF_TEST_FAILED, .at_ns = 4999999999, .why = "byte 7"},
        {.result = XFER_SELF_TEST_NONE}};

    (void)d;
    *ret = (struct xfer_registration_view){
        .regions = 1, .device = "mlx5_1", .why = "", .no_ring = "", .test = &tests[i < 3 ? i : 0]};
    return i < 3;
}

TEST_WITH(admin_doctor_tells_what_the_self_test_found_and_when, start_doctor, stop_doctor)
{
    json_t *rows, *want[] = {json_pack("{s:s, s:i, s:i, s:i, s:s}", "result", "passed", "bytes",
                                       16384, "us", 65, "age_ms", 5000, "reason", ""),
                             json_pack("{s:s, s:i, s:i, s:i, s:s}", "result", "failed", "bytes", 0,
                                       "us", 0, "age_ms", 2000, "reason", "byte 7"),
                             json_null()};

    s.parts.registration = registration;
    s.ctx.now_ns = 7000000000;
    rows = json_object_get(json_object_get(ask("doctor"), "rdma"), "memory");
    assert_int_equal(json_array_size(rows), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(json_equal(json_object_get(json_array_get(rows, i), "self_test"), want[i]));
        json_decref(want[i]);
    }
}

/* Two regions on GPUs and one of the host, beside a NIC that does not know the second; or beside
 * none. */
static bool no_nic;

static bool gpu_registration(const struct xfer *d, uint32_t i, struct xfer_registration_view *ret)
{
    (void)d;
    *ret = (struct xfer_registration_view){.region = i,
                                           .regions = 1,
                                           .gpu = i < 2 ? "GPU-1" : NULL,
                                           .device = no_nic ? NULL : "mlx5_0",
                                           .how = i == 0 && !no_nic ? XFER_REGISTERED_DMABUF
                                                                    : XFER_REGISTERED_NO,
                                           .why = ""};
    return i < 3;
}

TEST(admin_status_counts_gpu_regions_that_no_nic_knows)
{
    static const struct {
        bool no_nic, wanted;
        uint32_t known, unknown;
    } cases[] = {{false, true, 1, 1}, {true, true, 0, 2}, {true, false, 0, 0}};

    s.parts.registration = gpu_registration;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const json_t *verbs;

        no_nic = cases[i].no_nic;
        s.ctx.rdma.wanted = cases[i].wanted;
        verbs = json_object_get(json_object_get(ask("status"), "data"), "verbs");
        assert_int_equal(number_of(verbs, "gpu_regions"), cases[i].known);
        assert_int_equal(number_of(verbs, "gpu_regions_unregistered"), cases[i].unknown);
    }
}

static bool gpu(const struct mem *d, uint32_t device, struct mem_device_view *ret)
{
    static const char *const uuids[] = {"GPU-0", "GPU-1", "GPU-2"};

    (void)d;
    if (device < 3)
        *ret = (struct mem_device_view){.uuid = uuids[device]};
    return device < 3;
}

static const char *no_peers(const struct mem *d, uint32_t device, uint32_t other)
{
    (void)d;
    assert_int_not_equal(device, other);
    return device + other == 1 ? "no link" : NULL;
}

TEST_WITH(admin_doctor_tells_each_gpu_which_others_it_reaches, start_doctor, stop_doctor)
{
    json_t *rows,
        *want = json_pack("[{s:s, s:b, s:s}, {s:s, s:b, s:n}]", "gpu", "GPU-0", "peer_access", 0,
                          "reason", "no link", "gpu", "GPU-2", "peer_access", 1, "reason");

    s.parts.device = gpu;
    s.parts.no_peers = no_peers;
    rows = json_object_get(ask("doctor"), "gpus");
    assert_int_equal(json_array_size(rows), 3);
    assert_true(json_equal(json_object_get(json_array_get(rows, 1), "peers"), want));
    json_decref(want);
}

TEST_WITH(admin_doctor_tells_what_queue_pairs_are_made_with, start_doctor, stop_doctor)
{
    json_t *want =
        json_pack("{s:n, s:i, s:i, s:i, s:i, s:i, s:i}", "gid_index", "mtu", 1024, "pkey_index", 0,
                  "traffic_class", 106, "service_level", 0, "timeout", 16, "retries", 6);

    assert_true(
        json_equal(json_object_get(json_object_get(ask("doctor"), "rdma"), "tuning"), want));
    json_decref(want);
}
