/* Counts of namespaces that never decrease. The daemon counts for each namespace of each pool while
 * the pool has it, and for each tenant since its start. A limited number of namespaces have rows of
 * their own here, and each tenant has a row "other" for the rest of its counts: namespaces beyond
 * the limit, those that the daemon has forgotten, and counts of a namespace from before it had a
 * row. Invariant: the rows of a tenant add up to its counts, and no reported count decreases.
 */
#ifndef AGENT_SPACES_H
#define AGENT_SPACES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define SPACES_MAX         1000u /* --namespaces */
#define SPACES_TENANTS_MAX 64u   /* a daemon has no more */
#define SPACES_NAME_BYTES  64u
#define SPACES_OTHER       "other" /* the name of sums, here and in metrics.c */

#define SPACES_COUNTS(X)                                                                           \
    X("prompts")                                                                                   \
    X("prompt_tokens")                                                                             \
    X("matched_device_tokens")                                                                     \
    X("matched_host_tokens")                                                                       \
    X("matched_disk_tokens")                                                                       \
    X("fetched_peer_tokens")                                                                       \
    X("handed_over_tokens")

enum {
#define X(key) +1
    SPACES_KEYS = 0 SPACES_COUNTS(X)
#undef X
};

struct spaces_counts {
    uint64_t v[SPACES_KEYS];
};

/* A namespace of one pool. */
struct space {
    char pool[SPACES_NAME_BYTES], name[SPACES_NAME_BYTES];
    uint32_t tenant;
    bool there;                      /* it was in the last answer */
    struct spaces_counts told, seen; /* as reported in rows, and as in the daemon's last answer */
};

struct spaces {
    uint32_t limit, n;
    struct space space[SPACES_MAX];
    struct spaces_counts other[SPACES_TENANTS_MAX];
};

/* Restarts all counts after a restart of the daemon. */
void spaces_restart(struct spaces *s);
/* Takes `rows` of the daemon's namespaces, and the rows of tenants, which were requested
 * afterwards. `shown`: number of tenants with rows of their own; all rows of the others are one.
 * Returns {"namespaces": [...]}, owned by the caller. */
json_t *spaces_update(struct spaces *s, const json_t *rows, const json_t *tenants, uint32_t shown);

#endif
