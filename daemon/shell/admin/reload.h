/* Reload: the configuration is read anew, as at start, and compared with what is in force. Each
 * difference is told: done, needs a restart or failed, and why. SIGHUP (daemon.c) and an operator
 * (operator.c) ask for it. What must stay true: a file with an error, or certificates that cannot
 * be used, change nothing; only here, in tenant_join.c and in shell/peers does d->config change. */
#ifndef SHELL_RELOAD_H
#define SHELL_RELOAD_H

#include "shell/daemon.h"

/* The file is read; when that is done, `read_done` is called on the owner thread, which then calls
 * reload_finish. */
typedef void reload_read_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer);
enum tern_err reload_init(struct daemon *d, reload_read_done *read_done, char *why, size_t cap);
void reload_finish_all(struct daemon *d);

/* Begins to read the file. False: that is under way. */
bool reload_begin(struct daemon *d, bool dry_run);
/* A signal asks: likewise, or once more when the reading that is under way has ended. */
void reload_by_signal(struct daemon *d);

/* How a reading ended. */
struct reload_result {
    enum tern_err err;
    bool by_signal, dry_run; /* by_signal: a signal had asked for it */
    char why[CONFIG_WHY_BYTES];
    uint32_t done, restart, failed; /* differences; of a dry run: that would be done */
    size_t n;                       /* with OK: bytes of the answer in d->text */
};
/* False: nothing was read. Does what can be done, and tells it in the log and in the answer. */
bool reload_finish(struct daemon *d, struct reload_result *ret);
/* After that: a signal that came meanwhile has its turn. */
void reload_again(struct daemon *d);

#endif
