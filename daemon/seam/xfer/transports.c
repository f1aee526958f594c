/* The transports of this build, best first. */
#include "seam/xfer/flow/transport.h"
#include "seam/xfer/tcp/tcp.h"
#include "seam/xfer/verbs/verbs.h"

const struct transport_ops *const transports_built[] = {
    &local_transport,
    &verbs_transport,
    &tcp_transport,
    NULL,
};
