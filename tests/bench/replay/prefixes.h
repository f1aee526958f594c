/* A growing set of prefix hashes. Hashes that differ only in their lowest bit count as one. */
#ifndef REPLAY_PREFIXES_H
#define REPLAY_PREFIXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prefixes { /* all zero: empty */
    uint64_t *v;  /* owned */
    size_t size, used;
};

/* Returns true if it was new. */
bool prefixes_add(struct prefixes *s, uint64_t prefix);
bool prefixes_have(const struct prefixes *s, uint64_t prefix);
void prefixes_finish(struct prefixes *s);

#endif
