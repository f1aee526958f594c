/* What steps.c and the hooks of the other files need of leases.c. */
#ifndef SIM_LEASES_H
#define SIM_LEASES_H

#include "sim.h"

/* The pages of one Assign, and what is wrong with them. */
struct assign {
    struct table_run run[GROUPS];
    struct page_ref ref[GROUPS * LEASES];
    uint32_t need[GROUPS];
    uint8_t odd;
};

/* A PageLease, or leased pages that are given back. */
void ask_lease(struct sim *w, uint32_t d, uint32_t e);
/* All that is leased goes back, at the end of a history. */
void leases_end(struct sim *w, uint32_t d);
void leases_gone(struct sim *w, uint32_t d, uint32_t e); /* with their engine */
void leases_touch(struct sim *w, uint32_t d, uint32_t e, struct work *k);
/* Makes an Assign of an Extend, if the lease has the pages. *taken: those that the request's
 * earlier operations name, bit an entry. */
void plan_assign(struct sim *w, uint32_t d, const struct session *s, struct step_op *op,
                 struct assign *a, uint32_t *taken);
void did_assign(struct sim *w, uint32_t d, struct session *s, const struct step_op *op,
                const struct assign *a, uint32_t variant, const struct op_result *r);
/* Pages of each group that the session needs for that length. False: one of them is RECURRENT. */
bool assign_need(const struct sim *w, uint32_t d, const struct session *s, uint32_t length,
                 uint32_t need[GROUPS]);

#endif
