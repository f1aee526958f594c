/* The functions that the files of this folder call in each other. request.c and dispatch.c are the
 * two directions between the wire and the core: frames of local clients become events, and the
 * actions of a step are carried out. daemon.c registers both. */
#ifndef SHELL_LOOP_H
#define SHELL_LOOP_H

#include "shell/daemon.h"

/* Carries out d->actions; `carry_out` in struct daemon. */
void dispatch_actions(struct daemon *d);
/* Sends an answer to its connection, and updates counters and the log. */
void dispatch_reply(struct daemon *d, const struct reply *r);

/* request.c: called for each frame of a local client's connection. */
void request_frame(struct client_conn *c, const struct frame_header *h, const uint8_t *body);

/* Log that a process leaves the engine in that slot, or has exited, with the pages that the engine
 * held. Call them before the core receives that. */
void engine_log_leaves(const struct daemon *d, uint32_t slot, uint32_t proc);
void engine_log_exited(struct daemon *d, uint32_t proc);

/* ---- spill.c: the start, the reports and the log of the disk tier. The core decides which entries
 * are stored and dropped (dispatch.c passes that on), the seam does the work (seam/disk). ---- */

/* Reads the files of earlier runs and reports them to the core, before any client connects. May
 * take as long as the disk needs for the headers of all extents. Does nothing if no folder is
 * configured. On failure `why` receives what failed and what to do. */
enum tern_err spill_start(struct daemon *d, char *why, size_t cap);

/* Bytes that the file system lacks for spill.bytes and the headroom; 0: none, or unknown. */
uint64_t spill_lacks(const struct config *config);

/* ---- crash.c: a fault, a failed check, any SIGABRT. A crash writes the tape of the last events
 * and a line with the cause and the tape's path; then that signal ends the process. ---- */

/* Call this first at start: seams pass on the signals (SIGBUS) that they watch but do not own. */
void crash_watch(void);
/* Sets the tape that a crash writes; NULL: none. Both are borrowed. */
void crash_tape(const struct config *config, struct tape *tape, uint64_t incarnation);
/* Writes the tape like a crash, and continues. Returns its path, or "none" if there is no tape or
 * the write failed. Owner thread. */
const char *crash_keep_tape(void);

/* ---- preflight.c, for `ternd --check-config`: checks, beside the configuration itself, whether
 * the daemon can start with it on this host. Changes nothing, and a running daemon does not disturb
 * it. Ports in use, free memory and RDMA devices are not checked. ---- */

/* Prints a line for each fault and returns their number. A peer's name that does not resolve gets a
 * line but is not counted. Blocks while names are resolved. */
uint32_t preflight(const struct config *config, FILE *out);

#endif
