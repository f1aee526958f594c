/* What the daemon tells operators and tenants about itself: read-only JSON answers made from the
 * core's views and the seams' counters. operator.c fills struct admin_ctx, sends the text, and runs
 * the commands that change something or write files. Nothing here changes the core or allocates. */
#ifndef SHELL_ADMIN_H
#define SHELL_ADMIN_H

#include "core/query.h"
#include "seam/disk/disk.h"
#include "seam/io/io.h"
#include "seam/mem/mem.h"
#include "seam/xfer/xfer.h"
#include "shell/admin/refusals.h"
#include "shell/admin/text_out.h"
#include "shell/alarm/alarms.h"
#include "shell/config/config.h"
#include "shell/stream/stream.h"
#include "shell/tape/tape.h"
#include "shell/tls/tls.h"

#define ADMIN_WHY_BYTES    192
#define ADMIN_ROWS_DEFAULT 256 /* rows of one answer without limit= */
#define ADMIN_ROWS_MAX     4096
#define ADMIN_SCAN_MAX     65536 /* slots looked at for one answer: the owner thread has other work */
#define ADMIN_VISITS_MAX   16384 /* nodes, likewise, to count the pages that sessions borrow */

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
    const char *descriptors; /* what becomes of those that clients send; static; NULL: not known */
    struct closer_stats closer;
    struct xfer_rdma_view rdma;
    struct daemon *daemon; /* whose links, memory and transfers are asked for the rest */
    uint32_t *visits;      /* how many nodes the answer may still look at to count borrowed pages */
};

/* Commands: status, stats, doctor, pools, namespaces, sessions, records, tickets, engines, peers,
 * transfers, tree, disk. `tenant` NONE for the admin socket, else only what belongs to that tenant
 * is told (status, stats, pools, namespaces, sessions, records, tickets and engines alone).
 *
 * Answers are one object. Lists are paged: args "from=SLOT" and "limit=ROWS"; an answer has "next":
 * the `from` of the following page, or null at the end, and ends early, whole, where `out` has no
 * room for another row or ADMIN_SCAN_MAX slots were looked at: a page without rows is no end.
 * Names as tenant=, engine= and peer= choose rows where the list has such. `tree` and `namespaces`
 * take pool=SLOT as well, `status` hash=1 for core_hash. 64-bit ids and
 * hashes are hexadecimal strings; counts are numbers. "borrowed" is null where it would take more
 * than ADMIN_VISITS_MAX nodes to count it. A node, a session's hold on one and a transfer's are
 * told by "id" and "node_id"; "slot", "parent" and "node" are places that are used again.
 *
 * UNSUPPORTED: no such command. INVALID: an argument. DENIED: not for a tenant. BUSY: `out` is too
 * small for even one row (or for status). On an error `out` is as it was, and `why` tells which
 * argument it was; "" if there is nothing to add. */
enum tern_err admin_answer(const struct admin_ctx *ctx, const char *command, char *const *args,
                           size_t nargs, uint32_t tenant, struct text_out *out,
                           char why[ADMIN_WHY_BYTES]);

/* An argument that a command takes. If it is absent, the value stays what it was. */
struct admin_arg {
    const char *key;
    uint32_t *number;  /* decimal digits up to `max`; NULL: it is a text */
    const char **text; /* borrowed from the argument */
    uint32_t max;
};

/* INVALID: a key is not among `takes`, or a value is not the number that it must be; `why` is a
 * text for the answer that says which. Nothing is done then. */
enum tern_err admin_args(const char *command, char *const *args, size_t nargs,
                         const struct admin_arg *takes, size_t ntakes, char why[ADMIN_WHY_BYTES]);

#endif
