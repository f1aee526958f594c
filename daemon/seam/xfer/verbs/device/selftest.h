/* The self-test of a rail, at start: over each pair of a region and the device known bytes are
 * moved in the ways that pages will be, by RDMA from one queue pair of the device to another one of
 * it, and then looked at. So a registration that succeeded and a bus that carries nothing, or the
 * wrong thing, are told apart before a page of anybody's depends on it. Called by rail.c when the
 * rail's memory is registered; setup.c makes the queue pairs.
 *
 * What must stay true:
 * - It runs before "ready", on a thread of its own that has ended when self_test returns: no engine
 *   and no peer is there yet, and the owner waits for nothing later.
 * - It touches no page that anybody can hold, now or later: of a region the bytes of index 0 alone
 *   (mem_unheld_bytes), of a ring its first slot, of which nothing is taken before peers are there,
 *   and memory of its own. So even a write that comes late, of a device that does not destroy a
 *   queue pair, hits nobody: its own memory is not given back then, and that slot is never taken.
 * - It opens nothing: keys to memory of tenants are those that are registered anyway, and windows
 *   of 4 KiB that are closed again; what peers would write is played by memory of its own.
 * - Before memory is blamed the same is done between two buffers of its own. Where that is not
 *   possible (the device has no loopback, say) nothing is known of the memory, which is used as if
 *   there were no test, and operators are told. Where it is, a pair that fails is not used. Where
 *   memory of the host takes no window and carries all else, the device is used as one without
 *   windows (view.memory_windows); where a ring fails, its tenant has none with that device.
 * - Once memory of a GPU has failed with a device, no other GPU's is used with it untested.
 * - Each work request has a deadline, and no pair of a rail is begun when the rail's has passed. */
#ifndef SEAM_XFER_VERBS_SELFTEST_SELFTEST_H
#define SEAM_XFER_VERBS_SELFTEST_SELFTEST_H

#include "seam/xfer/verbs/verbs.h"

#define VERBS_TEST_NS      5000000000u  /* for a work request, be it still repeated or not */
#define VERBS_TEST_RAIL_NS 15000000000u /* for a rail: no pair of it is tested later */
#define VERBS_TEST_POLL_NS 50000        /* between two looks, once VERBS_SPIN_NS have passed */

/* Fills in the tests of the rail's domains. Regions of GPUs and rings that fail are registered no
 * more. False: memory of the host failed, so that the rail is not to be used; *ret_why. */
bool self_test(struct verbs *v, struct verbs_rail *rail, char *ret_why, size_t cap);

#endif
