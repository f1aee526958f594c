/* Memory of the host that RDMA takes for tenants on GPUs, and locks: their rings
 * (verbs/ring/bounce.c). */
#ifndef SEAM_XFER_MEMLOCK_H
#define SEAM_XFER_MEMLOCK_H

#include "seam/xfer/xfer.h"

/* That each such tenant gets, at the most, on whichever and however many devices. */
uint64_t xfer_ring_bytes(const struct xfer_rdma_config *config);

#endif
