/* Read-only JSON answers to operators and tenants about the daemon, made from the core's views and
 * the seams' counters. operator.c fills struct admin_ctx, sends the text, and runs the commands
 * that change something or write files. Invariant: nothing here changes the core or allocates. */
#ifndef SHELL_ADMIN_H
#define SHELL_ADMIN_H

#include <limits.h>

#include "core/query.h"
#include "seam/disk/disk.h"
#include "seam/io/io.h"
#include "seam/mem/mem.h"
#include "seam/xfer/xfer.h"
#include "shell/admin/text_out.h"
#include "shell/alarm/alarms.h"
#include "shell/config/config.h"
#include "shell/stream/stream.h"
#include "shell/tape/tape.h"
#include "shell/tls/tls.h"

#define ADMIN_WHY_BYTES    (PATH_MAX + 256)
#define ADMIN_ROWS_DEFAULT 256 /* rows of one answer without limit= */
#define ADMIN_ROWS_MAX     4096
#define ADMIN_SCAN_MAX     65536 /* slots examined per answer, to bound the owner's time */
#define ADMIN_VISITS_MAX   16384 /* nodes examined to count the pages that sessions borrow */

struct daemon;

struct admin_ctx {
    const struct core *core;
    const struct config *config;
    uint64_t now_ns;
    struct mem_stats mem;
    struct xfer_stats xfer;
    struct io_stats io;
    struct tape_stats tape;
    const struct disk_stats *disk; /* NULL: there is no disk tier */
    const struct disk_recovery *recovery;
    const struct tls_stats *tls; /* NULL: peers talk in the clear */
    const char *descriptors;     /* how clients' descriptors are refused; static; NULL: unknown */
    struct closer_stats closer;
    struct xfer_rdma_view rdma;
    struct daemon *daemon; /* for the rest: links, memory and transfers */
    uint32_t *visits;      /* nodes that may still be examined to count borrowed pages */
};

/* Commands: status, stats, doctor, pools, namespaces, sessions, records, tickets, engines, peers,
 * transfers, tree, disk. `tenant`: NONE for the admin socket; otherwise the answer has only that
 * tenant's data, and the only commands are status, stats, pools, namespaces, sessions, records,
 * tickets and engines.
 *
 * Answers are one object. Lists are paged by "from=SLOT" and "limit=ROWS". An answer has "next",
 * the `from` of the next page, or null at the end. A page ends early, after a whole row, if `out`
 * has no room for another row or ADMIN_SCAN_MAX slots were examined: a page without rows is not the
 * end. tenant=, engine= and peer= select rows by name in lists that have such names. `tree` and
 * `namespaces` also take pool=SLOT, `status` hash=1 for core_hash. 64-bit ids and hashes are
 * hexadecimal strings; counts are numbers. "borrowed" is null if counting it would examine more
 * than ADMIN_VISITS_MAX nodes. "id" and "node_id" identify a node, also one that a session or
 * transfer pins; "slot", "parent" and "node" are slots, which are reused.
 *
 * UNSUPPORTED: no such command. INVALID: a wrong argument. DENIED: the command is not for a tenant.
 * BUSY: `out` is too small for even one row (or for status). On an error `out` is unchanged, and
 * `why` names the argument, or is "". */
enum tern_err admin_answer(const struct admin_ctx *ctx, const char *command, char *const *args,
                           size_t nargs, uint32_t tenant, struct text_out *out,
                           char why[ADMIN_WHY_BYTES]);

/* An argument of a command. If it is absent, the value is unchanged. */
struct admin_arg {
    const char *key;
    uint32_t *number;  /* decimal digits up to `max`; NULL: a text */
    const char **text; /* borrowed from the argument */
    uint32_t max;
};

/* INVALID: a key not in `takes`, or no valid number; `why` names the argument, and no value is
 * set. */
enum tern_err admin_args(const char *command, char *const *args, size_t nargs,
                         const struct admin_arg *takes, size_t ntakes, char why[ADMIN_WHY_BYTES]);
/* Writes the reason of a refusal and returns `err`. */
#define admin_refuse(why, err, ...) fail_with(why, ADMIN_WHY_BYTES, err, __VA_ARGS__)

#endif
