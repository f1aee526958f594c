/* See nic_choice.h. A resolved link of sysfs is the PCIe path: the host bridge (pciDDDD:BB), the
 * root port, the ports of switches, the device. */
#include "seam/xfer/nics/nic_choice.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "seam/mem/numa.h"

const char *const nic_path_words[NIC_PATHS] = {
#define X(name, words) words,
    NIC_PATH_TABLE(X)
#undef X
};

const char *const nic_answer_words[NIC_ANSWERS] = {
#define X(name, words) words,
    NIC_ANSWER_TABLE(X)
#undef X
};

struct spot {
    enum nic_answer answer;    /* CHOSEN: found */
    char path[NIC_PATH_BYTES]; /* resolved, with a '/' at the end */
    uint32_t bridge;           /* offset after its host bridge; 0: no PCI device */
    uint64_t nodes;
};

static uint32_t bridge_end(const char *path)
{
    const char *at = path;

    while ((at = strstr(at, "/pci")) != NULL && !isxdigit((unsigned char)at[4]))
        at += 4;
    at = at ? strchr(at + 1, '/') : NULL;
    return at ? (uint32_t)(at + 1 - path) : 0;
}

/* The target of the link must be in the tree too. */
static void find_spot(const char *sys, const char *folder, const char *name, struct spot *ret)
{
    char link[2 * NIC_PATH_BYTES], root[PATH_MAX], real[PATH_MAX];
    bool has_root = realpath(sys, root) != NULL, has_real = false;
    size_t n = has_root ? strlen(root) : 0;
    int node, fits = snprintf(link, sizeof link, "%s/%s", sys, folder);

    *ret = (struct spot){.answer = NIC_NOT_FOLLOWED};
    if (has_root && fits < (int)sizeof link)
        fits += snprintf(link + fits, sizeof link - (size_t)fits, "/%s", name);
    if (has_root && fits < (int)sizeof link)
        has_real = realpath(link, real) != NULL;
    if (!has_root ||
        (fits < (int)sizeof link && !has_real && (errno == ENOENT || errno == ENOTDIR)))
        ret->answer = NIC_NO_DEVICE;
    else if (has_real && strncmp(real, root, n) == 0 && real[n] == '/' &&
             strlen(real) + 2 <= sizeof ret->path) {
        ret->answer = NIC_CHOSEN;
        snprintf(ret->path, sizeof ret->path, "%s/", real);
        ret->bridge = bridge_end(ret->path);
        node = numa_of_device(ret->path);
        ret->nodes = node < 0 ? 0 : (uint64_t)1 << node;
    }
}

/* CUDA's addresses may have capital letters, and those of nvidia-smi have a domain of 8 digits. */
static bool plain_address(const char *pci, char ret[NIC_PCI_BYTES])
{
    unsigned domain, bus, slot, function;
    int end = 0;

    if (sscanf(pci, "%8x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &end) != 4 ||
        pci[end] != '\0' || bus > 0xff || slot > 0x1f || function > 7)
        return false;
    snprintf(ret, NIC_PCI_BYTES, "%04x:%02x:%02x.%x", domain, bus, slot, function);
    return true;
}

static void find_place(const char *sys, const struct nic_place *place, struct spot *ret)
{
    char pci[NIC_PCI_BYTES];

    *ret = (struct spot){.answer = NIC_CHOSEN, .nodes = place->nodes};
    if (place->host)
        return;
    if (plain_address(place->pci, pci))
        find_spot(sys, "bus/pci/devices", pci, ret);
    else
        ret->answer = NIC_NO_ADDRESS;
}

static void find_device(const char *sys, const char *name, struct spot *ret)
{
    char within[NIC_PATH_BYTES];

    snprintf(within, sizeof within, "%s/device", name);
    find_spot(sys, "class/infiniband", within, ret);
}

struct distance {
    enum nic_path path;
    uint32_t shared; /* shared components of the PCIe path after the host bridge; more is nearer */
    uint32_t rest;   /* of a PCIe path, components after those; else the firmware's distance */
};

static uint32_t components(const char *path)
{
    uint32_t n = 0;

    for (; *path; path++)
        n += *path == '/';
    return n;
}

static struct distance by_node(const char *sys, const struct spot *place, const struct spot *nic)
{
    struct distance d = {.path = NIC_PATH_UNKNOWN};
    int far;

    if (place->nodes == 0 || nic->nodes == 0)
        return d;
    if (place->nodes & nic->nodes)
        return (struct distance){.path = NIC_PATH_SOCKET};
    far = numa_nearest(sys, __builtin_ctzll(nic->nodes), place->nodes);
    return (struct distance){.path = NIC_PATH_OTHER_SOCKET,
                             .rest = far < 0 ? UINT32_MAX : (uint32_t)far};
}

static struct distance distance_of(const char *sys, const struct spot *place,
                                   const struct spot *nic)
{
    struct distance d = {.path = NIC_PATH_HOST_BRIDGE};
    uint32_t at = place->bridge, same = at;

    if (at == 0 || at != nic->bridge || strncmp(place->path, nic->path, at) != 0)
        return by_node(sys, place, nic);
    for (; place->path[at] && place->path[at] == nic->path[at]; at++)
        if (place->path[at] == '/') {
            same = at + 1;
            d.shared++;
        }
    d.rest = components(nic->path + same);
    if (d.shared > 0)
        d.path = d.shared > 1 ? NIC_PATH_SWITCH : NIC_PATH_ROOT_PORT;
    return d;
}

/* Returns a negative number if a is nearer, 0 if both are equally near. */
static int compare(const struct distance *a, const struct distance *b)
{
    if (a->path != b->path)
        return a->path < b->path ? -1 : 1;
    if (a->shared != b->shared)
        return a->shared > b->shared ? -1 : 1;
    return a->rest == b->rest ? 0 : a->rest < b->rest ? -1 : 1;
}

struct choosing {
    const struct nic_question *q;
    struct nic_choice *choice;
    struct distance far[NIC_PLACES_MAX][NIC_DEVICES_MAX];
    bool waits[NIC_PLACES_MAX];      /* no answer yet */
    uint32_t taken[NIC_DEVICES_MAX]; /* number of places that it was given */
    uint32_t different;
};

/* Returns true if the NIC may be chosen: once `most` NICs were chosen, only one of those may. */
static bool offered(const struct choosing *c, uint32_t nic)
{
    return c->q->device[nic].usable && (c->different < c->q->most || c->taken[nic] > 0);
}

/* Returns the best NIC for that place; *ret_equal: how many are equally near. */
static uint32_t best_nic(const struct choosing *c, uint32_t place, uint32_t *ret_equal)
{
    const struct distance *far = c->far[place];
    uint32_t best = NIC_NONE;

    *ret_equal = 0;
    for (uint32_t i = 0; i < c->q->ndevices; i++) {
        int order = best == NIC_NONE ? -1 : compare(&far[i], &far[best]);

        if (!offered(c, i) || order > 0)
            continue;
        *ret_equal = order < 0 ? 1 : *ret_equal + 1;
        if (order < 0 || c->taken[i] < c->taken[best])
            best = i;
    }
    return best;
}

static bool comes_first(const struct nic_place *a, const struct nic_place *b)
{
    char pci[2][NIC_PCI_BYTES] = {"", ""};

    if (a->host != b->host)
        return b->host;
    (void)plain_address(a->pci, pci[0]);
    (void)plain_address(b->pci, pci[1]);
    return strcmp(pci[0], pci[1]) < 0;
}

/* Returns false if all places have an answer. */
static bool choose_next(struct choosing *c)
{
    uint32_t next = NIC_NONE, nic = NIC_NONE, fewest = UINT32_MAX;

    for (uint32_t p = 0; p < c->q->nplaces; p++) {
        uint32_t equal, best = c->waits[p] ? best_nic(c, p, &equal) : NIC_NONE;

        if (best == NIC_NONE || equal > fewest ||
            (equal == fewest && !comes_first(&c->q->place[p], &c->q->place[next])))
            continue;
        next = p;
        nic = best;
        fewest = equal;
    }
    if (next == NIC_NONE)
        return false;
    c->different += c->taken[nic]++ == 0;
    c->waits[next] = false;
    c->choice[next] = (struct nic_choice){NIC_CHOSEN, c->far[next][nic].path, nic};
    return true;
}

void nic_choose(const struct nic_question *q, struct nic_choice *ret)
{
    struct choosing c = {.q = q, .choice = ret};
    struct spot nic[NIC_DEVICES_MAX], place;

    check(q->ndevices <= NIC_DEVICES_MAX && q->nplaces <= NIC_PLACES_MAX && q->most > 0);
    for (uint32_t i = 0; i < q->ndevices; i++)
        find_device(q->sys, q->device[i].name, &nic[i]);
    for (uint32_t p = 0; p < q->nplaces; p++) {
        find_place(q->sys, &q->place[p], &place);
        c.waits[p] = place.answer == NIC_CHOSEN;
        ret[p] =
            (struct nic_choice){c.waits[p] ? NIC_NO_NIC : place.answer, NIC_PATH_UNKNOWN, NIC_NONE};
        for (uint32_t i = 0; c.waits[p] && i < q->ndevices; i++)
            c.far[p][i] = distance_of(q->sys, &place, &nic[i]);
    }
    while (choose_next(&c))
        ;
}
