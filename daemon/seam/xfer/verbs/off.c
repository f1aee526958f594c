/* A build without libibverbs: pages travel over TCP, and whoever asks is told why. Called by
 * tcp/ and the shell in place of verbs/. */
#include <stdio.h>

#include "base/check.h"
#include "seam/xfer/tcp/tcp.h"

static const char why[] = "this build has no RDMA: it was configured without libibverbs";

enum tern_err verbs_create(struct xfer *xfer)
{
    xfer_memlock(xfer, &xfer->looked);
    return TERN_OK;
}

uint64_t verbs_bytes(const struct xfer_config *config, uint32_t sums_per_page)
{
    (void)config, (void)sums_per_page;
    return 0;
}

void verbs_destroy(struct xfer *xfer)
{
    (void)xfer;
}

void verbs_link_down(struct xfer *xfer, uint32_t link)
{
    (void)xfer, (void)link;
}

bool verbs_takes(struct xfer *xfer, uint32_t link, uint32_t pool, enum tern_err *ret_err)
{
    (void)pool;
    if (xfer->link[link].transport == XFER_VERBS)
        *ret_err = TERN_PEER_LOST;
    return false;
}

void verbs_pump(struct xfer *xfer, uint32_t link)
{
    (void)xfer, (void)link;
    check_failed("no batch is read without RDMA", __FILE__, __LINE__);
}

void verbs_drop(struct xfer *xfer, uint32_t pull)
{
    (void)xfer, (void)pull;
}

bool verbs_reads(const struct xfer *xfer, uint32_t pull)
{
    (void)xfer, (void)pull;
    return false;
}

void verbs_conn_lost(struct xfer_conn *conn)
{
    (void)conn;
    check_failed("no connection beside a path without RDMA", __FILE__, __LINE__);
}

bool verbs_conn_busy(const struct xfer_conn *conn)
{
    (void)conn;
    return false;
}

bool verbs_conn_idle(const struct xfer_conn *conn)
{
    (void)conn;
    return false;
}

bool xfer_poll(struct xfer *xfer)
{
    (void)xfer;
    return false;
}

void verbs_tick(struct xfer *xfer, uint64_t now_ns)
{
    (void)xfer, (void)now_ns;
}

bool verbs_exposes(const struct xfer *xfer, uint32_t pool, uint64_t *ret_offset)
{
    (void)xfer, (void)pool, (void)ret_offset;
    return false;
}

void xfer_link_transport(struct xfer *xfer, uint32_t link, enum xfer_transport transport,
                         uint64_t tenants, bool peer_rdma)
{
    (void)peer_rdma;
    check(link < xfer->config.links);
    xfer->link[link].transport = transport;
    for (uint32_t t = 0; t < xfer->config.rdma.tenants && xfer->config.rdma.path_note; t++)
        if (tenants >> t & 1)
            xfer->config.rdma.path_note(xfer->config.ctx, link, t, false, why);
}

void xfer_link_push(struct xfer *xfer, uint32_t link, bool push)
{
    (void)xfer, (void)link, (void)push;
}

enum verbs_written verbs_write_begin(struct xfer_conn *conn)
{
    (void)conn;
    return WRITTEN_LOST;
}

bool verbs_writing(const struct xfer_conn *conn)
{
    (void)conn;
    return false;
}

enum verbs_written verbs_write(struct xfer_conn *conn)
{
    (void)conn;
    return WRITTEN_LOST;
}

void xfer_path_msg(struct xfer *xfer, uint32_t link, const struct xfer_path_msg *msg)
{
    struct xfer_path_msg no = {
        .kind = XFER_PATH_REFUSE, .tenant = msg->tenant, .rail = msg->rail, .epoch = msg->epoch};

    snprintf(no.text, sizeof no.text, "its %s", why + 5);
    if (msg->kind == XFER_PATH_OFFER && xfer->config.rdma.path_send)
        xfer->config.rdma.path_send(xfer->config.ctx, link, &no);
}

void xfer_peer_down(struct xfer *xfer, uint32_t link)
{
    (void)xfer, (void)link;
}

void xfer_link_view(const struct xfer *xfer, uint32_t link, struct xfer_link_view *ret)
{
    check(link < xfer->config.links);
    *ret =
        (struct xfer_link_view){.transport = xfer->link[link].up ? "tcp" : "none", .reason = why};
    if (xfer->link[link].transport == XFER_VERBS)
        ret->transport = "none";
}

void xfer_rdma_view(const struct xfer *xfer, struct xfer_rdma_view *ret)
{
    *ret = xfer->looked;
    ret->wanted = xfer->config.rdma.pulls > 0 || xfer->config.rdma.serves;
    snprintf(ret->why, sizeof ret->why, "%s", why);
}

bool xfer_path_view(const struct xfer *xfer, uint32_t link, uint32_t i, struct xfer_path_view *ret)
{
    (void)xfer, (void)link, (void)i, (void)ret;
    return false;
}
