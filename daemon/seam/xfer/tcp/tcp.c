/* The TCP transport as transport.h calls it, and its life. See tcp.h. */
#include "seam/xfer/tcp/tcp.h"

#include <stdlib.h>

#include "base/undumped.h"

static uint64_t tcp_bytes(const struct xfer_config *config, uint32_t sums_per_page)
{
    (void)config, (void)sums_per_page;
    return sizeof(struct tcp) + 2 * TCP_SCRATCH;
}

static enum tern_err tcp_create(struct transport *t)
{
    struct tcp *tcp = calloc(1, sizeof *tcp);

    t->own = tcp;
    if (!tcp)
        return TERN_INTERNAL;
    tcp->scratch = undumped_take(TCP_SCRATCH, false);
    tcp->zeros = calloc(1, TCP_SCRATCH);
    return tcp->scratch && tcp->zeros ? TERN_OK : TERN_INTERNAL;
}

static void tcp_destroy(struct transport *t)
{
    struct tcp *tcp = t->own;

    if (!tcp)
        return;
    undumped_put(tcp->scratch, TCP_SCRATCH);
    free(tcp->zeros);
    free(tcp);
    t->own = NULL;
}

const struct transport_ops tcp_transport = {
    .name = "tcp",
    .asked_for = XFER_TCP,
    .reshards = true,
    .conn_bytes = sizeof(struct tcp_caller),
    .service = &tcp_service,
    .bytes = tcp_bytes,
    .create = tcp_create,
    .destroy = tcp_destroy,
    .pump = tcp_pump,
    .drop = tcp_drop,
    .holds = data_conns_write,
    .reads = data_conns_read,
};
