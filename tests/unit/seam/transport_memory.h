/* A transport for tests: pages travel by memcpy between struct xfers of one process. */
#ifndef TEST_TRANSPORT_MEMORY_H
#define TEST_TRANSPORT_MEMORY_H

#include "seam/xfer/flow/transport.h"

extern const struct transport_ops memory_transport;

#endif
