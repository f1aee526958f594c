/* The transport of the link that a daemon has to itself. */
#ifndef SEAM_XFER_LOCAL_H
#define SEAM_XFER_LOCAL_H

#include "seam/xfer/transport.h"

extern const struct transport_ops local_transport;

#endif
