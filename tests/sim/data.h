/* Declarations that the files of the data path share: jobs.c, data.c and serves.c. */
#ifndef SIM_DATA_H
#define SIM_DATA_H

#include "sim.h"

static inline uint32_t tenant_of(const struct sim *w, uint32_t d, uint32_t pool)
{
    return w->d[d].pool[pool].tenant;
}

static inline uint32_t at_of(struct sim *w, uint32_t d, uint32_t pool, const struct granule *g)
{
    return (uint32_t)(g - w->d[d].granule[tenant_of(w, d, pool)]);
}

/* ---- asks.c ---- */

uint64_t tenants_shared(const struct sim *w);
/* The daemon asks its peer how many of some tokens the peer has, or answers such a question. */
void question_asked(struct sim *w, uint32_t d, const struct peer_msg *msg);
void question_answered(struct sim *w, uint32_t d, const struct peer_msg *msg);

uint32_t pool_of_slot(struct sim *w, uint32_t d, uint32_t slot);
/* The transfer in of that id; NULL if it is over. */
struct opened *opened_of(struct sim *w, uint32_t d, struct pull_id id);
const struct serve *serve_by_id(const struct sim *w, uint32_t d, struct serve_id id);
/* The data path has proven that nothing reads for the transfer any more. */
void quiet_serve(struct sim *w, uint32_t d, struct serve *s);

#endif
