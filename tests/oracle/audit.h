/* The audit of an arena, from the inside: shared by its files. The rig calls it after every event;
 * it may be called for any core at rest (between two core_step calls). */
#ifndef ORACLE_AUDIT_H
#define ORACLE_AUDIT_H

#include "core/tree/nodes.h"
#include "oracle/oracle.h"

/* Number of times each record was met in the place that its state names; it bounds every walk. */
struct audit {
    const struct core *c;
    uint8_t *page_seen, *block_seen, *key_seen, *node_seen, *slab_seen;
};

/* audit_tree.c */
void audit_nodes(struct audit *a);
void audit_heaps(struct audit *a);
void audit_refs(struct audit *a);
/* audit_tiers.c */
void audit_node_pages(struct audit *a, uint32_t slot);
void audit_host(struct audit *a);
/* audit_state.c */
void audit_state(struct audit *a);
bool audit_state_at_rest(const struct core *c, const struct node *n);

/* audit_obtain.c */
void audit_obtain(struct audit *a);
/* audit_shares.c */
void audit_shares(struct audit *a);
/* audit_leases.c */
void audit_leases(struct audit *a);
/* audit_turns.c */
void audit_turns(struct audit *a);
/* audit_records.c */
void audit_records(struct audit *a);

/* audit_transfers.c */
void audit_transfers(struct audit *a);

/* audit_tables.c */
void audit_tables(struct audit *a);

/* audit_disk.c */
void audit_disk(struct audit *a);

/* Returns zeroed memory for `n` records of `each` bytes, which the audit frees at its end. */
void *audit_scratch(uint32_t n, size_t each);

/* Marks a record as met; fails if it was met before or does not exist. */
void audit_meet(uint8_t *seen, uint32_t i, uint32_t limit, const char *what, const char *where);
/* Walks a token chain of exactly `blocks` blocks, and a key chain with positions in [from, to). */
void audit_chain(struct audit *a, uint32_t head, uint32_t blocks, const char *where);
void audit_keys(struct audit *a, uint32_t head, uint32_t from, uint32_t to, const char *where);
/* Walks a list of pages in one state with one owner, linked both ways. */
void audit_page_list(struct audit *a, const struct list *l, uint32_t states, uint32_t owner,
                     const char *where);

#endif
