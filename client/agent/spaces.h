/* Counts of namespaces that never go down. The daemon counts for each namespace of each pool while
 * the pool knows it, and for each tenant since its start. Here so many namespaces are kept apart,
 * and each tenant has a row "other" for what is left of its own counts: namespaces beyond the
 * limit, those that the daemon has forgotten, and what a namespace had before it was kept here. So
 * the rows of a tenant add up to its counts, and what was once told of a row is never taken back.
 */
#ifndef AGENT_SPACES_H
#define AGENT_SPACES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define SPACES_MAX         1000u /* --namespaces */
#define SPACES_TENANTS_MAX 64u   /* a daemon has no more */
#define SPACES_NAME_BYTES  64u
#define SPACES_OTHER       "other" /* the name of what is summed, here and in metrics.c */

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
    bool there;                      /* in the last answer */
    struct spaces_counts told, seen; /* as rows have it, and as the daemon had it last */
};

struct spaces {
    uint32_t limit, n;
    struct space space[SPACES_MAX];
    struct spaces_counts other[SPACES_TENANTS_MAX];
};

/* The daemon was started anew: all counts are. */
void spaces_restart(struct spaces *s);
/* `rows` of the daemon's namespaces, and the rows of tenants, which were asked for afterwards.
 * `shown`: of so many tenants; all rows of the others are one. The caller owns what is returned:
 * {"namespaces": [...]}. */
json_t *spaces_update(struct spaces *s, const json_t *rows, const json_t *tenants, uint32_t shown);

#endif
