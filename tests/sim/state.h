/* Declarations that the files of the model of STATE groups share. */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include "sim.h"

/* First page of the segment of the chunk that ends at depth k * L. */
uint32_t seg_first(const struct sim *w, uint32_t d, uint32_t g, uint32_t k);
uint32_t seg_end(const struct sim *w, uint32_t d, uint32_t g, uint32_t k);
/* Number of its child chunks that certainly exist. */
uint32_t chunk_children(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c);
struct granule *at_granule(struct sim *w, uint32_t d, const struct session *s, uint32_t at);
/* The session no longer needs the page that was to be copied into its RECURRENT page. */
void release_copy(struct sim *w, uint32_t d, struct session *s, uint32_t g, uint32_t step);
/* The core names these as the chunk's pages of a group: the pages that the model knows, those of a
 * transfer, or new ones after the STATE was lost. */
void canonical(struct sim *w, uint32_t d, struct session *s, struct chunk *c, uint32_t g,
               const struct table_run *runs, uint32_t nruns, uint32_t from);
/* An answer made the session resume at that depth. */
void state_resumed(struct sim *w, uint32_t d, struct session *s, uint32_t depth);
void borrow_page(struct sim *w, uint32_t d, struct session *s, uint32_t g, uint32_t at,
                 const struct chunk *c, uint32_t i);

#endif
