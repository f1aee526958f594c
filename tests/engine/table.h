/* The block table of one session, as its engine keeps it: which page has which tokens, and the hash
 * of the tokens up to each page's end, from which the page's bytes are made. It follows the runs of
 * the daemon's answers and knows nothing else. */
#ifndef ENGINE_TABLE_H
#define ENGINE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "tern.h"

/* HISTORY, WINDOW: prefix[i] is the hash of the prefix that ends with page i, index[i] the page's
 * index, 0: none. RECURRENT: prefix[i] is the hash of the prefix that ends with chunk i, and
 * index[0] the one page. */
struct table_group {
    uint64_t *prefix; /* owned */
    uint32_t *index;  /* owned */
    uint32_t *gen;    /* owned: the generation of each */
    uint32_t pages;   /* pages that the tokens take */
    uint32_t from;    /* RECURRENT: the page to copy into index[0]; 0: none */
};

struct block_table {
    const struct tern_group *groups; /* borrowed; the first is a HISTORY group */
    uint32_t ngroups, align;         /* align: tokens of a chunk */
    struct table_group group[TERN_GROUPS_MAX];
};

/* Makes room for at most tokens_max tokens. */
void table_init(struct block_table *t, const struct tern_group *groups, uint32_t ngroups,
                uint32_t tokens_max);
void table_finish(struct block_table *t);

/* Sets the tokens; root[group] is where the chain of hashes begins. The table has no page yet. */
void table_load(struct block_table *t, const uint64_t *root, const uint32_t *tokens, uint32_t n);
void table_forget(struct block_table *t); /* forgets the pages alone */

/* Applies the runs of an answer and adds their pages to ret_pages[group], which may be NULL.
 * Returns false if they do not fit the tokens: nobody may write to those pages. */
bool table_take(struct block_table *t, const struct tern_result *r, uint32_t *ret_pages);
/* Returns true if it has every page needed to resume from `at` tokens, RECURRENT ones apart. */
bool table_covers(const struct block_table *t, uint32_t at);
/* Counts the pages in the table, RECURRENT ones apart. */
uint32_t table_pages(const struct block_table *t);
/* First page of a group that is needed to resume from `at`: 0, or where its window begins. */
uint32_t table_window_first(const struct tern_group *g, uint32_t at);

#endif
