/* The transports that are built in, best first, and the words that operators have for them. */
#include "seam/xfer/tcp/tcp.h"
#include "seam/xfer/transport.h"
#include "seam/xfer/verbs/verbs.h"

const struct transport_ops *const transports_built[] = {
    &local_transport,
    &verbs_transport,
    &tcp_transport,
    NULL,
};

const struct xfer_rdma_tuning xfer_rdma_tuning_initial = {.gid_index = XFER_BY_PORT,
                                                          .mtu = XFER_BY_PORT,
                                                          .timeout = 16, /* 268 ms */
                                                          .retries = 6}; /* an error after 2 s */

const char *const xfer_transport_word[XFER_TRANSPORTS] = {
#define X(name, word, by_paths) [XFER_##name] = (word),
    XFER_TRANSPORT_TABLE(X)
#undef X
};

bool xfer_transport_by_paths(enum xfer_transport transport)
{
    static const bool by_paths[XFER_TRANSPORTS] = {
#define X(name, word, by_paths) [XFER_##name] = (by_paths),
        XFER_TRANSPORT_TABLE(X)
#undef X
    };

    return by_paths[transport];
}
