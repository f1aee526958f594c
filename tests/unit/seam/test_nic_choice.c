/* Which NIC memory gets, from trees of sysfs that are made here. */

#include <unistd.h>

#include "seam/xfer/nics/nic_choice.h"
#include "unit/rig/rig_dir.h"

#define CASE(name) TEST_WITH(name, make_tree, remove_dir)
#define PORT       "devices/pci0000:%02x/0000:%02x:01.0"

/* ------------------------------------------------------------------ trees */

static struct nic_device nic[NIC_DEVICES_MAX];
static struct nic_place place[NIC_PLACES_MAX];
static struct nic_choice choice[NIC_PLACES_MAX];
static uint32_t nnics, nplaces;
static char names[NIC_DEVICES_MAX][16];

FIXTURE(make_tree)
{
    make_dir(NULL);
    nnics = nplaces = 0;
    put_file("devices/system/node/node0/distance", "10 21\n");
    put_file("devices/system/node/node1/distance", "21 10\n");
    return 0;
}

/* Creates the link LINK below `dir` with the target TO, unchanged. */
static void put_link(const char *link, const char *to)
{
    char beside[256];

    snprintf(beside, sizeof beside, "%s", link);
    *strrchr(beside, '/') = '\0';
    put_file(strcat(beside, "/uevent"), "");
    assert_return_code(symlink(to, in_dir(link)), 0);
}

/* Creates a PCI device at the end of that path, with its NUMA node. */
static void put_pci(const char *path, int node)
{
    char name[256], text[16], link[256];

    snprintf(name, sizeof name, "%s/numa_node", path);
    snprintf(text, sizeof text, "%d\n", node);
    put_file(name, text);
    snprintf(link, sizeof link, "bus/pci/devices/%s", strrchr(path, '/') + 1);
    put_link(link, in_dir(path));
}

static void gpu_at(const char *path, int node)
{
    put_pci(path, node);
    place[nplaces] = (struct nic_place){0};
    snprintf(place[nplaces++].pci, NIC_PCI_BYTES, "%s", strrchr(path, '/') + 1);
}

static void nic_named(const char *name)
{
    snprintf(names[nnics], sizeof names[0], "%s", name);
    nic[nnics] = (struct nic_device){names[nnics], true};
    nnics++;
}

static void nic_at(const char *path, int node)
{
    char name[16], link[256];

    put_pci(path, node);
    snprintf(name, sizeof name, "mlx5_%u", nnics);
    nic_named(name);
    snprintf(link, sizeof link, "class/infiniband/%s/device", name);
    put_link(link, in_dir(path));
}

/* A GPU or a NIC below a switch of that number, each with a bus and a root port of its own. */
static void below_switch(void (*put)(const char *path, int node), uint32_t number, uint32_t slot)
{
    char path[256];
    uint32_t bus = number * 16;

    snprintf(path, sizeof path, PORT "/0000:%02x:00.0/0000:%02x:%02x.0/0000:%02x:00.0", bus, bus,
             bus + 1, bus + 2, slot, bus + 3 + slot);
    put(path, number < 4 ? 0 : 1);
}

static void host(uint64_t nodes)
{
    place[nplaces++] = (struct nic_place){.host = true, .nodes = nodes};
}

static void choose_of(uint32_t most)
{
    struct nic_question q = {.sys = dir,
                             .device = nic,
                             .ndevices = nnics,
                             .place = place,
                             .nplaces = nplaces,
                             .most = most};

    nic_choose(&q, choice);
}

static void choose(void)
{
    choose_of(16);
}

static void assert_choice(uint32_t at, uint32_t expected, enum nic_path path)
{
    assert_int_equal(choice[at].answer, NIC_CHOSEN);
    assert_int_equal(choice[at].nic, expected);
    assert_int_equal(choice[at].path, path);
}

static void assert_none(uint32_t at, enum nic_answer answer)
{
    assert_int_equal(choice[at].answer, answer);
    assert_true(choice[at].nic == NIC_NONE);
}

/* ------------------------------------------------------------------ cases */

CASE(nic_choice_8_by_8_uses_all_8)
{
    for (uint32_t i = 0; i < 8; i++)
        below_switch(gpu_at, i, 0);
    for (uint32_t i = 0; i < 8; i++)
        below_switch(nic_at, 7 - i, 1); /* the system lists them in another order */
    choose();
    for (uint32_t i = 0; i < 8; i++)
        assert_choice(i, 7 - i, NIC_PATH_SWITCH);
}

/* Two GPUs and two equally near NICs a switch: each gets one, whatever the order of the places. */
CASE(nic_choice_equal_gpus_spread_over_equal_nics)
{
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t slot = 0; slot < 2; slot++)
            below_switch(gpu_at, i, slot);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t slot = 2; slot < 4; slot++)
            below_switch(nic_at, i, slot);
    choose();
    for (uint32_t i = 0; i < 8; i++)
        assert_choice(i, i, NIC_PATH_SWITCH);
    for (uint32_t i = 0; i < 4; i++) {
        struct nic_place other = place[i];

        place[i] = place[7 - i];
        place[7 - i] = other;
    }
    choose();
    for (uint32_t i = 0; i < 8; i++)
        assert_choice(i, 7 - i, NIC_PATH_SWITCH);
}

/* For one of two GPUs both NICs are equally near, for the other one is nearer: it goes first. */
CASE(nic_choice_who_has_fewer_to_choose_from_comes_first)
{
    gpu_at("devices/pci0000:00/0000:00:02.0", 0);
    below_switch(gpu_at, 0, 0);
    below_switch(nic_at, 0, 1);
    nic_at("devices/pci0000:00/0000:00:03.0/0000:20:00.0/0000:21:00.0/0000:22:00.0", 0);
    choose();
    assert_choice(0, 1, NIC_PATH_HOST_BRIDGE);
    assert_choice(1, 0, NIC_PATH_SWITCH);
}

CASE(nic_choice_the_path_says_how_near_it_is)
{
    static const char *const path[] = {
        "devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0",
        "devices/pci0000:00/0000:00:01.0/0000:05:00.0",
        "devices/pci0000:00/0000:00:02.0/0000:06:00.0",
        "devices/pci0000:40/0000:40:01.0/0000:41:00.0",
        "devices/pci0000:80/0000:80:01.0/0000:81:00.0",
        "devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0",
    };
    static const int node[] = {0, 0, 0, 0, 1, -1};

    gpu_at("devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", 0);
    for (uint32_t i = 0; i < 6; i++)
        nic_at(path[i], node[i]);
    assert_int_equal(NIC_PATHS, 6);
    for (uint32_t i = 0; i < 6; i++) { /* the nearest is removed, the next replaces it */
        choose();
        assert_choice(0, i, (enum nic_path)i);
        nic[i].usable = false;
    }
    choose();
    assert_none(0, NIC_NO_NIC);
}

/* Below one switch: the NIC at the GPU's own switch, not the one at the switch above. */
CASE(nic_choice_the_deepest_common_switch_is_nearest)
{
    nic_at("devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:09:00.0", 0);
    nic_at("devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0/0000:04:01.0/"
           "0000:06:00.0",
           0);
    gpu_at("devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0/0000:04:00.0/"
           "0000:05:00.0",
           0);
    choose();
    assert_choice(0, 1, NIC_PATH_SWITCH);
}

/* The name of one host bridge may be a prefix of another's. */
CASE(nic_choice_names_are_compared_whole)
{
    gpu_at("devices/pci0000:00/0000:00:01.0/0000:01:00.0", 0);
    nic_at("devices/pci0000:001/0000:00:01.0/0000:02:00.0", 0);
    choose();
    assert_choice(0, 0, NIC_PATH_SOCKET);
}

CASE(nic_choice_two_sockets_keep_to_themselves)
{
    nic_at("devices/pci0000:80/0000:80:01.0/0000:81:00.0", 1);
    nic_at("devices/pci0000:40/0000:40:01.0/0000:41:00.0", 0);
    gpu_at("devices/pci0000:00/0000:00:01.0/0000:01:00.0", 0);
    gpu_at("devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0", 1);
    host(1u << 1);
    host(1u << 0);
    host(0);
    choose();
    assert_choice(0, 1, NIC_PATH_SOCKET);
    assert_choice(1, 0, NIC_PATH_SOCKET);
    assert_choice(2, 0, NIC_PATH_SOCKET);
    assert_choice(3, 1, NIC_PATH_SOCKET);
    assert_int_equal(choice[4].path, NIC_PATH_UNKNOWN);
}

CASE(nic_choice_fewer_nics_than_gpus_are_shared_evenly)
{
    uint32_t got[2] = {0};

    for (uint32_t i = 0; i < 8; i++)
        below_switch(gpu_at, i, 0);
    nic_at("devices/pci0000:f0/0000:f0:01.0/0000:f1:00.0", 0);
    nic_at("devices/pci0000:f8/0000:f8:01.0/0000:f9:00.0", 0);
    choose();
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(choice[i].path, i < 4 ? NIC_PATH_SOCKET : NIC_PATH_OTHER_SOCKET);
        got[choice[i].nic]++;
    }
    assert_int_equal(got[0], 4);
    assert_int_equal(got[1], 4);
}

/* At most as many different NICs as there may be rails: then those in use serve the rest. */
CASE(nic_choice_of_at_most_so_many)
{
    for (uint32_t i = 0; i < 8; i++) {
        below_switch(gpu_at, i, 0);
        below_switch(nic_at, i, 1);
    }
    choose_of(3);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(choice[i].answer, NIC_CHOSEN);
        assert_true(choice[i].nic < 3);
    }
    assert_choice(2, 2, NIC_PATH_SWITCH);
    assert_int_equal(choice[3].path, NIC_PATH_SOCKET);
}

CASE(nic_choice_without_nics_there_is_none)
{
    below_switch(gpu_at, 0, 0);
    host(1);
    choose();
    assert_none(0, NIC_NO_NIC);
    assert_none(1, NIC_NO_NIC);
    below_switch(nic_at, 0, 1);
    nic[0].usable = false;
    choose();
    assert_none(0, NIC_NO_NIC);
}

CASE(nic_choice_a_gpu_that_is_not_in_the_tree_gets_none)
{
    below_switch(nic_at, 0, 1);
    place[nplaces++] = (struct nic_place){.pci = "0000:77:00.0"};
    place[nplaces++] = (struct nic_place){.pci = ""};
    place[nplaces++] = (struct nic_place){.pci = "../../etc"};
    place[nplaces++] = (struct nic_place){.pci = "0000:01:00.0x"};
    place[nplaces++] = (struct nic_place){.pci = "0000:01:00.9"};
    choose();
    assert_none(0, NIC_NO_DEVICE);
    for (uint32_t i = 1; i < 5; i++)
        assert_none(i, NIC_NO_ADDRESS);
    remove_dir(NULL);
    choose();
    assert_none(0, NIC_NO_DEVICE);
    make_dir(NULL);
}

/* In the driver's spelling, and in that of nvidia-smi. */
CASE(nic_choice_takes_addresses_in_both_spellings)
{
    below_switch(gpu_at, 10, 0);
    below_switch(nic_at, 10, 1);
    strcpy(place[0].pci, "0000:A3:00.0");
    choose();
    assert_choice(0, 0, NIC_PATH_SWITCH);
    strcpy(place[0].pci, "00000000:A3:00.0");
    choose();
    assert_choice(0, 0, NIC_PATH_SWITCH);
}

/* The distance of a NIC whose path cannot be followed is unknown, and it is chosen last. */
CASE(nic_choice_a_virtual_or_broken_nic_comes_last)
{
    put_file("devices/virtual/net/lo/numa_node", "x\n");
    nic_named("rxe0");
    nic_named("gone");
    nic_named("loop");
    put_link("class/infiniband/loop/device", in_dir("class/infiniband/loop/device"));
    nic_named("rxe1");
    put_link("class/infiniband/rxe1/device", in_dir("devices/virtual/net/lo"));
    below_switch(nic_at, 4, 1);
    below_switch(gpu_at, 0, 0);
    choose();
    assert_choice(0, 4, NIC_PATH_OTHER_SOCKET);
    nic[4].usable = false;
    choose();
    assert_choice(0, 0, NIC_PATH_UNKNOWN);
}

CASE(nic_choice_does_not_follow_what_leads_nowhere)
{
    static const char *const pci[] = {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"};
    char deep[2 * NIC_PATH_BYTES] = "devices/pci0000:00";

    below_switch(nic_at, 0, 1);
    for (uint32_t i = 0; i < 3; i++)
        snprintf(place[nplaces++].pci, NIC_PCI_BYTES, "%s", pci[i]);
    put_link("bus/pci/devices/0000:01:00.0", "0000:01:00.0");
    put_link("bus/pci/devices/0000:02:00.0", "/proc");
    while (strlen(deep) < NIC_PATH_BYTES)
        strcat(deep, "/0000:00:01.0");
    assert_true(strlen(deep) + 16 < sizeof deep);
    char command[3 * NIC_PATH_BYTES];
    snprintf(command, sizeof command, "mkdir -p %s/%s && ln -s %s/%s %s/bus/pci/devices/%s", dir,
             deep, dir, deep, dir, pci[2]);
    assert_int_equal(system(command), 0);
    choose();
    for (uint32_t i = 0; i < 3; i++)
        assert_none(i, NIC_NOT_FOLLOWED);
}
