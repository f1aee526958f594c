/* The self-test of a rail, at start. Each pair of a region and the device moves known bytes in the
 * ways that pages will move, by RDMA between two queue pairs of the device, and compares them. The
 * test detects a registration that succeeded over a bus that carries nothing or wrong bytes, before
 * any page depends on it. Called by rail.c when the rail's memory is registered; qp.c makes the
 * queue pairs.
 *
 * Invariants:
 * - The test runs before "ready", on its own thread, which has ended when self_test returns: no
 *   engine or peer exists yet, and the owner waits for nothing later.
 * - The test touches no page that anybody can hold, now or later: only the bytes of index 0 of a
 *   region (mem_unheld_bytes), the first slot of a ring, which is not taken before peers exist, and
 *   its own memory. So a late write of a device that does not destroy a queue pair hits nobody: the
 *   test's own memory is not freed then, and that slot is never taken.
 * - The test opens nothing: it uses keys to tenants' memory that are registered anyway, and windows
 *   of 4 KiB that it closes again. Its own memory plays what peers would write.
 * - Before memory is blamed, the same moves run between two buffers of the test. If they are not
 *   possible (the device has no loopback, say), nothing is known of the memory, which is used as if
 *   there were no test, and operators are informed. If they are possible, a pair that fails is not
 *   used. If host memory takes no window but carries all else, the device is used as one without
 *   windows (view.memory_windows); if a ring fails, its tenant has none with that device.
 * - Once memory of a GPU has failed with a device, no other GPU's memory is used with it untested.
 * - Each work request has a deadline. After the rail's deadline no test of a pair begins. */
#ifndef SEAM_XFER_VERBS_SELFTEST_SELFTEST_H
#define SEAM_XFER_VERBS_SELFTEST_SELFTEST_H

#include "seam/xfer/verbs/verbs.h"

#define VERBS_TEST_NS      5000000000u  /* for a work request, retried or not */
#define VERBS_TEST_RAIL_NS 15000000000u /* for a rail: no test begins later */
#define VERBS_TEST_POLL_NS 50000        /* between polls, after VERBS_SPIN_NS */

/* Fills in the tests of the rail's domains. Unregisters regions of GPUs and rings that fail.
 * Returns false, with *ret_why, if host memory failed: the rail must not be used. */
bool self_test(struct verbs *v, struct verbs_rail *rail, char *ret_why, size_t cap);

#endif
