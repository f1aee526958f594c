/* The causes of a BUSY answer, and whether each holds. See causes.c. */
#ifndef SIM_CAUSES_H
#define SIM_CAUSES_H

#include "sim.h"

/* Is the text that of a request that waits for stores? Then there must be a disk for them. */
bool busy_for_stores(struct sim *w, uint32_t d, uint32_t tenant, const char *text);
/* Did a transfer begin, and end as BUSY? */
bool busy_of_pull(const struct reply *r);
/* Was the answer BUSY for want of records, when the transfer had some already? */
bool busy_for_records(const struct reply *r);
void check_busy_fetch(struct sim *w, uint32_t d, const struct session *s, const struct reply *r);
void check_busy_recover(struct sim *w, uint32_t d, const struct session *s, const struct reply *r);
void check_busy_store(struct sim *w, uint32_t d, const struct reply *r);
void check_busy_handoff(struct sim *w, uint32_t d, const struct session *s,
                        const struct req_handoff *h, const struct reply *r);

#endif
