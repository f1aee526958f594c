/* The disk tier in the daemon: its start, what it reports, and what the log says of it. The core
 * decides what is stored and what goes (dispatch.c hands it over), the seam does it (seam/disk). */
#ifndef SHELL_SPILL_H
#define SHELL_SPILL_H

#include "shell/daemon.h"

/* Reads what earlier runs left and tells the core, before anybody connects: it may take as long as
 * the disk needs for the headers of all extents. Where no folder is configured it does nothing.
 * `why`: text of what failed and what to do. */
enum tern_err spill_start(struct daemon *d, char *why, size_t cap);
void spill_finish(struct daemon *d); /* behind the ring, and before the memory */

/* What the whole file system lacks for spill.bytes and the headroom; 0: nothing, or not known. */
uint64_t spill_lacks(const struct config *config);

#endif
