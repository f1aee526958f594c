/* The disk tier in the daemon: its start, its reports and its log. The core decides which entries
 * are stored and dropped (dispatch.c passes that on), the seam does the work (seam/disk). */
#ifndef SHELL_SPILL_H
#define SHELL_SPILL_H

#include "shell/daemon.h"

/* Reads the files of earlier runs and reports them to the core, before any client connects. May
 * take as long as the disk needs for the headers of all extents. Does nothing if no folder is
 * configured. On failure `why` receives what failed and what to do. */
enum tern_err spill_start(struct daemon *d, char *why, size_t cap);

/* Bytes that the file system is short of for spill.bytes and the headroom; 0: none, or unknown. */
uint64_t spill_lacks(const struct config *config);

#endif
