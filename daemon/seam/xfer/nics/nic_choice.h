/* Finds the RDMA device (NIC) that is nearest to memory, by the PCIe tree that sysfs shows and by
 * NUMA nodes. The choice depends on the given tree, devices and places alone, so equal input gives
 * equal answers. Called at start by verbs/device/rail.c. */
#ifndef SEAM_XFER_NIC_CHOICE_H
#define SEAM_XFER_NIC_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#define NIC_DEVICES_MAX 32u
#define NIC_PLACES_MAX  65u  /* as many GPUs as may have memory, and the host */
#define NIC_PCI_BYTES   20u  /* DDDDDDDD:BB:DD.F, with the NUL */
#define NIC_PATH_BYTES  512u /* of a device in the tree, with the NUL; longer: not followed */
#define NIC_NONE        UINT32_MAX

/* The distance from the memory to the NIC, as X(name, words), nearest first. Below a switch both
 * share its upstream port; below a root port, only that port. */
#define NIC_PATH_TABLE(X)                                                                          \
    X(SWITCH, "same switch")                                                                       \
    X(ROOT_PORT, "same root port")                                                                 \
    X(HOST_BRIDGE, "same host bridge")                                                             \
    X(SOCKET, "same socket")                                                                       \
    X(OTHER_SOCKET, "other socket")                                                                \
    X(UNKNOWN, "unknown distance")

enum nic_path {
#define X(name, words) NIC_PATH_##name,
    NIC_PATH_TABLE(X)
#undef X
        NIC_PATHS
};

/* The result for a place, as X(name, words). Only CHOSEN names a NIC. */
#define NIC_ANSWER_TABLE(X)                                                                        \
    X(CHOSEN, "chosen")                                                                            \
    X(NO_NIC, "no RDMA device can be used")                                                        \
    X(NO_DEVICE, "sysfs does not show the GPU: give the container /sys")                           \
    X(NOT_FOLLOWED, "the GPU's path in sysfs is a loop, too long, or leads out of sysfs")          \
    X(NO_ADDRESS, "the GPU has no PCI address")

enum nic_answer {
#define X(name, words) NIC_##name,
    NIC_ANSWER_TABLE(X)
#undef X
        NIC_ANSWERS
};

extern const char *const nic_path_words[NIC_PATHS];
extern const char *const nic_answer_words[NIC_ANSWERS];

/* Where memory lies: on the GPU of that PCI address, in either case of letters, or, if host is set,
 * on those NUMA nodes (0: not known). */
struct nic_place {
    bool host;
    char pci[NIC_PCI_BYTES];
    uint64_t nodes;
};

struct nic_device {
    const char *name; /* in /sys/class/infiniband */
    bool usable;
};

struct nic_choice {
    enum nic_answer answer;
    enum nic_path path;
    uint32_t nic; /* index of the device; NIC_NONE */
};

struct nic_question {
    const char *sys; /* "/sys", unless a test has another */
    const struct nic_device *device;
    const struct nic_place *place; /* without duplicates */
    uint32_t ndevices, nplaces;    /* at most NIC_DEVICES_MAX, NIC_PLACES_MAX */
    uint32_t most;                 /* different NICs that may be chosen, at least 1 */
};

/* Gives each place a nearest NIC. Among equally near NICs it takes the one given to the fewest
 * places, then the first. Places are served in this order: those with fewer NICs to choose from
 * first, then by address. */
void nic_choose(const struct nic_question *q, struct nic_choice *ret);

#endif
