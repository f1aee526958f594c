/* Functions of leases.c for steps.c and the hooks of the other files. */
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

/* A PageLease, or an Unlease of leased pages. */
void ask_lease(struct sim *w, uint32_t d, uint32_t e);
/* Unleases all leased pages, at the end of a history. */
void leases_end(struct sim *w, uint32_t d);
void leases_gone(struct sim *w, uint32_t d, uint32_t e); /* all leases of an engine that is gone */
void leases_touch(struct sim *w, uint32_t d, uint32_t e, struct work *k);
/* Makes an Assign of an Extend, if the lease has the pages. *taken: the entries that earlier
 * operations of the request name, a bit each. */
void plan_assign(struct sim *w, uint32_t d, const struct session *s, struct step_op *op,
                 struct assign *a, uint32_t *taken);
void did_assign(struct sim *w, uint32_t d, struct session *s, const struct step_op *op,
                const struct assign *a, uint32_t variant, const struct op_result *r);
/* Pages of each group that the session needs for that length. Returns false for RECURRENT
 * groups. */
bool assign_need(const struct sim *w, uint32_t d, const struct session *s, uint32_t length,
                 uint32_t need[GROUPS]);

#endif
