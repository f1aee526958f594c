/* A set of prefix hashes that grows. Hashes that differ in their lowest bit alone are one. */
#ifndef REPLAY_PREFIXES_H
#define REPLAY_PREFIXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prefixes { /* all zero: empty */
    uint64_t *v;  /* owned */
    size_t size, used;
};

/* True: it was not there. */
bool prefixes_add(struct prefixes *s, uint64_t prefix);
bool prefixes_have(const struct prefixes *s, uint64_t prefix);
void prefixes_finish(struct prefixes *s);

#endif
