/* One engine of one process at a daemon, as rpc.c and transfer.c need it: connected, joined, its
 * pool open and mapped. */
#ifndef BENCH_MEMBER_H
#define BENCH_MEMBER_H

#include <stdbool.h>

#include "engine/profile.h"
#include "tern.h"

#define MEMBER_CALL_MS 60000

struct member {
    struct profile profile;
    struct geometry geometry;
    struct tern *tern;     /* owned */
    struct tern_pool *map; /* owned by tern */
    uint64_t pool;
    struct tern_namespace ns;
};

/* False with a message on standard error. member_finish is due in any case. */
bool member_start(struct member *m, const char *socket, const char *name, uint32_t page_tokens,
                  uint64_t page_bytes, uint32_t pages);
void member_finish(struct member *m);

bool member_open(struct member *m, tern_session *ret);
/* One operation; false, with a message, unless it succeeded. */
bool member_do(struct member *m, struct tern_op op, struct tern_result *ret);

/* Says what failed; returns false. */
bool member_fails(struct member *m, const char *what, enum tern_err err);

#endif
