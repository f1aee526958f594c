/* The transports that are built in, best first. A line each. */
#include "seam/xfer/tcp/tcp.h"
#include "seam/xfer/transport.h"
#ifdef TERN_HAVE_VERBS
#include "seam/xfer/verbs/verbs.h"
#endif

const struct transport_ops *const transports_built[] = {
#ifdef TERN_HAVE_VERBS
    &verbs_transport,
#endif
    &tcp_transport,
    NULL,
};
