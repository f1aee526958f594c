/* Chooses the port of a device that a rail uses, and checks that the port has the GID, P_Key and
 * MTU of the configuration. If not, the device is not used, and the view reports the port's values.
 * Called by rail.c. */
#include <endian.h>
#include <stdio.h>

#include "seam/xfer/verbs/verbs.h"

const struct xfer_rdma_tuning xfer_rdma_tuning_initial = {.gid_index = XFER_BY_PORT,
                                                          .mtu = XFER_BY_PORT,
                                                          .timeout = 16, /* 268 ms */
                                                          .retries = 6}; /* an error after 2 s */

static bool gid_there(struct ibv_context *ctx, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *ret)
{
    static const uint8_t zero[16];

    return ibv_query_gid_ex(ctx, port, index, ret, 0) == 0 &&
           memcmp(ret->gid.raw, zero, sizeof zero) != 0;
}

/* Chooses a GID: RoCE v2 over IPv4, else RoCE v2, else any. */
static bool choose_gid(struct ibv_context *ctx, uint32_t port, uint32_t entries,
                       uint32_t *ret_index, union ibv_gid *ret_gid)
{
    static const uint8_t v4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    int best = 0;

    for (uint32_t i = 0; i < entries; i++) {
        struct ibv_gid_entry e;
        int worth = 1;

        if (!gid_there(ctx, port, i, &e))
            continue;
        if (e.gid_type == IBV_GID_TYPE_ROCE_V2)
            worth = memcmp(e.gid.raw, v4, sizeof v4) == 0 ? 3 : 2;
        if (worth <= best)
            continue;
        best = worth;
        *ret_index = i;
        *ret_gid = e.gid;
    }
    return best > 0;
}

static bool take_gid(struct verbs_rail *rail, uint32_t port, const struct ibv_port_attr *attr,
                     char *ret_why, size_t cap)
{
    uint32_t asked = rail->tuning->gid_index, entries = (uint32_t)attr->gid_tbl_len;
    struct ibv_gid_entry e;

    if (asked == XFER_BY_PORT) {
        if (choose_gid(rail->ctx, port, entries, &rail->view.gid_index, &rail->gid))
            return true;
        snprintf(ret_why, cap, "port %u has no GID: give its network device an address", port);
        return false;
    }
    if (asked >= entries || !gid_there(rail->ctx, port, asked, &e)) {
        snprintf(ret_why, cap,
                 "rdma.gid_index is %u, and port %u has no GID at that index: its table has %u "
                 "entries, which /sys/class/infiniband shows",
                 asked, port, entries);
        return false;
    }
    rail->view.gid_index = asked;
    rail->gid = e.gid;
    return true;
}

/* MTUs are coded: 1 is 256 bytes, and each next code is twice as many. */
static bool take_mtu(struct verbs_rail *rail, uint32_t port, const struct ibv_port_attr *attr,
                     char *ret_why, size_t cap)
{
    uint32_t asked = rail->tuning->mtu, active = 128u << attr->active_mtu;

    rail->mtu = attr->active_mtu;
    if (asked != XFER_BY_PORT && asked > active) {
        snprintf(ret_why, cap,
                 "rdma.mtu is %u, and the active MTU of port %u is %u: lower it, or raise the MTU "
                 "of its network device",
                 asked, port, active);
        return false;
    }
    while (asked != XFER_BY_PORT && 128u << rail->mtu > asked)
        rail->mtu--;
    rail->view.mtu = 128u << rail->mtu;
    return true;
}

static bool take_pkey(struct verbs_rail *rail, uint32_t port, const struct ibv_port_attr *attr,
                      char *ret_why, size_t cap)
{
    uint32_t asked = rail->tuning->pkey_index;
    __be16 pkey = 0;

    if (asked >= attr->pkey_tbl_len ||
        ibv_query_pkey(rail->ctx, (uint8_t)port, (int)asked, &pkey) != 0 || pkey == 0) {
        snprintf(ret_why, cap,
                 "rdma.pkey_index is %u, and port %u has no P_Key at that index: its table has %u "
                 "entries",
                 asked, port, attr->pkey_tbl_len);
        return false;
    }
    rail->view.pkey = be16toh(pkey);
    return true;
}

bool port_take(struct verbs_rail *rail, uint32_t port, char *ret_why, size_t cap)
{
    struct ibv_port_attr attr;

    if (ibv_query_port(rail->ctx, (uint8_t)port, &attr) != 0) {
        snprintf(ret_why, cap, "port %u cannot be queried", port);
        return false;
    }
    if (attr.state != IBV_PORT_ACTIVE) {
        snprintf(ret_why, cap, "port %u is %s", port, ibv_port_state_str(attr.state));
        return false;
    }
    if (!take_gid(rail, port, &attr, ret_why, cap) || !take_mtu(rail, port, &attr, ret_why, cap) ||
        !take_pkey(rail, port, &attr, ret_why, cap))
        return false;
    rail->view.port = port;
    rail->lid = attr.lid;
    rail->max_msg = attr.max_msg_sz;
    return true;
}
