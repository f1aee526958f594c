/* The processes at the other end of our Unix sockets. Each process has one slot for all its
 * connections, identified by its pid and watched by a pidfd, so that a process with a recycled pid
 * is not mistaken for it. Invariant: a slot is kept until the kernel has proved the exit, and only
 * then the core receives EV_PROC_GONE. Owner thread only; allocates only at init. */
#ifndef SHELL_PROC_H
#define SHELL_PROC_H

#include <stdint.h>
#include <sys/types.h>

#include "base/states.h"
#include "base/tern_err.h"
#include "core/ids.h"
#include "core/limits.h"
#include "seam/io/io.h"

/* The states of a process slot. */
#define PROC_STATE_TABLE(X)                                                                        \
    X(PROC, FREE, TO(PROC, WATCHED), "no process has the slot")                                    \
    X(PROC, WATCHED, TO(PROC, EXITED), "the daemon has its pidfd; the core may know it")           \
    X(PROC, EXITED, TO(PROC, FREE), "the kernel has reported the exit; the core gets it next")

STATE_MACHINE(proc, PROC, PROC_STATE_TABLE)

struct proc {
    enum proc_state state;
    pid_t pid;
    uint32_t tenant; /* tenant of the socket where it first connected */
    int pidfd;
    struct io_op poll;
    struct proc_table *table;
};

struct proc_table {
    struct io *io;
    struct proc *v; /* owned */
    uint32_t n;
    /* Called when the kernel has proved the exit of the process in `slot`. The slot is free after
     * the call. */
    void (*gone)(void *ctx, uint32_t slot);
    void *ctx;
};

enum tern_err proc_table_init(struct proc_table *t, struct io *io, uint32_t n,
                              void (*gone)(void *ctx, uint32_t slot), void *ctx);
void proc_table_finish(struct proc_table *t);

/* Finds or allocates the slot of the process that connected `sock` to that tenant's socket. A
 * tenant has at most `share` slots. DENIED: the process cannot be watched from here. BUSY: the
 * table or the share is full, or no descriptor is free. GONE: it has exited. *ret_why, static, is
 * the advice. */
enum tern_err proc_take(struct proc_table *t, int sock, uint32_t tenant, uint32_t share,
                        uint32_t *ret_slot, const char **ret_why);

/* The pid of a slot, for logs. */
pid_t proc_pid(const struct proc_table *t, uint32_t slot);
/* Writes the pids of an engine's processes, "17,18". `procs` are slots; NONE: no process. */
void proc_pids(const struct proc_table *t, const uint32_t procs[PROCS_PER_ENGINE_MAX], char *ret,
               size_t cap);

#endif
