/* ternctl doctor: RDMA devices, GPUs, and their use. */
#include "ctl.h"

#include <stdio.h>
#include <string.h>

static const char *numa_node(const json_t *row)
{
    return json_is_integer(json_object_get(row, "numa_node")) ? num(row, "numa_node") : "not known";
}

/* Shows the registered memory of the host, including the self-test's. Memory of GPUs is not locked,
 * and only the bytes of a rail include it. */
static void doctor_memlock(const json_t *rdma)
{
    const uint64_t need = j_u64(rdma, "memlock_needed_bytes"), may = j_u64(rdma, "memlock_bytes"),
                   devices = j_u64(rdma, "memlock_devices");
    const bool limited =
        json_is_integer(json_object_get(rdma, "memlock_bytes")) && !j_bool(rdma, "memlock_exempt");

    if (limited)
        printf("  locked memory: RLIMIT_MEMLOCK is %s bytes", human_count(may));
    else
        printf("  locked memory: %s",
               j_bool(rdma, "memlock_exempt") ? "no limit applies (CAP_IPC_LOCK)" : "unlimited");
    printf("; registrations %s %s bytes of the host's memory, on %s device%s%s\n",
           j_bool(rdma, "in_use") ? "take" : "would take", human_count(need), human_count(devices),
           devices == 1 ? "" : "s",
           limited && need > may ? ": too few, set LimitMEMLOCK=infinity or ulimit -l unlimited"
                                 : "");
}

/* The ring that peers push to in place of a GPU's memory. */
static void doctor_ring(const json_t *row)
{
    const char *why_none = json_string_value(json_object_get(row, "no_ring"));

    if (j_u64(row, "ring_bytes") > 0)
        printf("; ring of %s bytes of the host's memory for pages that peers push\n",
               num(row, "ring_bytes"));
    else
        printf("%s%s\n", why_none && *why_none ? "; no ring for pages that peers push: " : "",
               why_none ? why_none : "");
}

/* Memory of GPUs, which a device may have registered in one of several ways, or not at all. */
static void doctor_memory(const json_t *rdma)
{
    const json_t *row;
    size_t i;

    json_array_foreach(json_object_get(rdma, "memory"), i, row)
    {
        const char *how = j_str(row, "registered"), *why = j_str(row, "reason");

        if (strcmp(j_str(row, "kind"), "gpu") != 0)
            continue;
        printf("  memory of %s, region %s, on %s: ", j_str(row, "tenant"), num(row, "region"),
               j_str(row, "gpu"));
        if (json_is_null(json_object_get(row, "device")))
            printf("registered with no device");
        else if (strcmp(how, "no") == 0)
            printf("not registered with %s", j_str(row, "device"));
        else
            printf("registered with %s as %s", j_str(row, "device"), how);
        printf("%s%s%s", *why ? " (" : "", why, *why ? ")" : "");
        doctor_ring(row);
    }
}

static void doctor_self_test(const json_t *row)
{
    const json_t *test = json_object_get(row, "self_test");
    const char *gpu = json_string_value(json_object_get(row, "gpu")), *result;

    printf("  self-test of %s, region %s", j_str(row, "tenant"), num(row, "region"));
    if (j_u64(row, "regions") > 1)
        printf(" to %s", human_count(j_u64(row, "region") + j_u64(row, "regions") - 1));
    printf(", %s%s, with %s: ", gpu ? "on " : "memory of the host", gpu ? gpu : "",
           j_str(row, "device"));
    if (!json_is_object(test)) {
        printf("not run%s\n", strcmp(j_str(row, "registered"), "no") == 0
                                  ? ": it is not registered with the device"
                                  : "");
        return;
    }
    result = j_str(test, "result");
    if (strcmp(result, "passed") == 0)
        printf("passed (%s bytes in %s)", num(test, "bytes"), human_us(j_u64(test, "us")));
    else
        printf("%s (%s)", result, j_str(test, "reason"));
    printf(", %s ago", human_age((double)j_u64(test, "age_ms") / 1000));
    if (strcmp(result, "failed") == 0)
        printf("; not used: check dmesg, the IOMMU and PCIe ACS, and start the daemon again");
    else if (strcmp(result, "failed in part") == 0)
        printf("; used, but nothing is pushed to it");
    printf("\n");
}

/* Shows the results of the self-tests at start, for each memory and each device for its pages, or
 * why there are none. */
static void doctor_self_tests(const json_t *rdma)
{
    const char *none = !j_bool(rdma, "built")    ? "RDMA is not in this build"
                       : !j_bool(rdma, "wanted") ? "RDMA is off by configuration"
                       : json_array_size(json_object_get(rdma, "devices")) == 0
                           ? "there is no RDMA device"
                           : NULL;
    const json_t *row;
    size_t i;

    if (none)
        printf("  self-test: not run: %s\n", none);
    else if (!j_bool(rdma, "in_use"))
        printf("  self-test: no device is in use; each device's line has the cause\n");
    else
        json_array_foreach(json_object_get(rdma, "memory"), i, row) doctor_self_test(row);
}

/* A region that can use any rail is shown only if there is a rail. */
static void doctor_region(const json_t *row, bool rails)
{
    const char *gpu = json_string_value(json_object_get(row, "gpu")),
               *device = json_string_value(json_object_get(row, "device"));

    if (!device && !rails)
        return;
    printf("  region %s of %s, ", num(row, "region"), j_str(row, "tenant"));
    if (gpu)
        printf("%s at %s: ", gpu, j_str(row, "pci"));
    else
        printf("memory of the host: ");
    printf("%s (%s)%s\n", device ? device : "any rail", j_str(row, "reason"),
           device && json_is_null(json_object_get(row, "rail")) ? ", which is not in use" : "");
}

static void doctor_tuning(const json_t *t)
{
    printf("  queue pairs: traffic class %s, service level %s, P_Key index %s; retried after 4.096 "
           "us x 2^%s, %s times\n",
           num(t, "traffic_class"), num(t, "service_level"), num(t, "pkey_index"),
           num(t, "timeout"), num(t, "retries"));
}

/* Shows the memory that peers get keys to. */
static void doctor_keys(const json_t *rdma)
{
    const json_t *row;
    bool far = false;
    size_t i;

    json_array_foreach(json_object_get(rdma, "memory"), i, row) far =
        far || strcmp(j_str(row, "kind"), "gpu") == 0;
    printf("  keys: a peer gets keys only to pages that it will write, until they have arrived; no "
           "peer can read\n");
    if (far)
        printf("  keys: memory windows do not cover GPU memory: peers push to a ring in memory of "
               "the host\n");
}

/* The other GPUs: counts those that a GPU reaches directly, names those that it does not.
 */
static void doctor_peers(const json_t *peers, bool lost)
{
    size_t i, n = json_array_size(peers), reached = 0;
    const json_t *row;

    if (lost)
        return; /* nothing is copied from it or to it */
    json_array_foreach(peers, i, row) reached += j_bool(row, "peer_access");
    if (n > 0)
        printf("  peer access with %zu of the %zu other GPUs\n", reached, n);
    json_array_foreach(peers, i, row)
    {
        if (!j_bool(row, "peer_access"))
            printf("  no peer access with %s: copies go through memory of the host (%s)\n",
                   j_str(row, "gpu"), j_str(row, "reason"));
    }
}

/* Shows the GPUs that memory lies on, and which device hashes its pages. */
static void doctor_gpus(const json_t *gpus)
{
    const json_t *row;
    size_t i;

    json_array_foreach(gpus, i, row)
    {
        const char *lost = json_string_value(json_object_get(row, "lost"));

        printf("GPU %s: ", j_str(row, "gpu"));
        if (lost)
            printf("lost (%s)\n", lost);
        else if (j_bool(row, "kernels"))
            printf("its kernels compute checksums and pack rows\n");
        else
            printf("checksums by the CPU, on copies of pages, and row by row (%s)\n",
                   j_str(row, "reason"));
        printf("  %s bytes for pools, %s bytes for kernels; NUMA node %s; MPS %s\n",
               num(row, "pool_bytes"), num(row, "kernel_bytes"), numa_node(row),
               !json_is_boolean(json_object_get(row, "mps")) ? "not known"
               : j_bool(row, "mps")                          ? "on"
                                                             : "off");
        doctor_peers(json_object_get(row, "peers"), lost != NULL);
    }
}

static int run_doctor(struct ctl *ctl)
{
    json_t *answer = ctl_ask(ctl, "doctor", NULL, 0), *rdma, *row;
    size_t i;

    rdma = json_object_get(answer, "rdma");
    if (!ctl_print_json(ctl, answer)) {
        const char *is = !j_bool(rdma, "built")   ? "not in this build"
                         : j_bool(rdma, "in_use") ? "in use"
                         : j_bool(rdma, "wanted") ? "not in use"
                                                  : "off by configuration";

        printf("RDMA: %s (%s)\n", is, j_str(rdma, "reason"));
        if (j_bool(rdma, "built") && json_array_size(json_object_get(rdma, "devices")) == 0)
            printf("  device: none (ls /sys/class/infiniband)\n");
        json_array_foreach(json_object_get(rdma, "devices"), i, row)
            printf("  device %s: %s\n", j_str(row, "device"), j_str(row, "state"));
        json_array_foreach(json_object_get(rdma, "rails"), i, row) printf(
            "  rail %zu: %s port %s, gid %s, mtu %s, %s; %s bytes in %s "
            "registration%s; NUMA node %s\n",
            i, j_str(row, "device"), num(row, "port"), num(row, "gid_index"), num(row, "mtu"),
            json_is_true(json_object_get(row, "windows")) ? "windows of type 2B"
                                                          : "no windows of type 2B: no push",
            num(row, "registered_bytes"), num(row, "registrations"),
            j_u64(row, "registrations") == 1 ? "" : "s", numa_node(row));
        json_array_foreach(json_object_get(rdma, "regions"), i, row)
            doctor_region(row, json_array_size(json_object_get(rdma, "rails")) > 0);
        if (j_bool(rdma, "in_use"))
            doctor_tuning(json_object_get(rdma, "tuning"));
        if (j_bool(rdma, "wanted"))
            doctor_keys(rdma);
        json_array_foreach(json_object_get(json_object_get(rdma, "numa"), "warnings"), i, row)
            printf("  NUMA: %s\n", json_string_value(row));
        doctor_memory(rdma);
        doctor_self_tests(rdma);
        doctor_memlock(rdma);
        doctor_gpus(json_object_get(answer, "gpus"));
    }
    json_decref(answer);
    return CTL_OK;
}

const struct command doctor_commands[] = {
    {"doctor", "", "RDMA devices and GPUs of this host, and their use", "  ternctl doctor\n", NULL,
     0, run_doctor},
    {0},
};
