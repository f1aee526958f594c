/* Turn records in the simulator: see records.c. The model of the records hangs on the history as
 * one block a daemon. The other files only report events to it. */
#ifndef SIM_RECORDS_H
#define SIM_RECORDS_H

#include "sim.h"

void records_create(struct sim *w);
void records_destroy(struct sim *w);
void records_clear(struct sim *w, uint32_t d);

/* Chooses how a new session keeps blobs. Returns false if the daemon must refuse the choice. */
bool records_open(struct sim *w, uint32_t d, uint32_t s, struct req_session_open *open);
void ask_record(struct sim *w, uint32_t d, uint32_t s);
void take_record_check(struct sim *w, uint32_t d, const struct action *act);
/* A worker answers. Returns false if it is too soon: other work under way hides its verdict. */
bool record_work(struct sim *w, uint32_t d, uint32_t at);
uint32_t records_pending(const struct sim *w, uint32_t d);
/* An id of a record that nobody looks at; often one that a worker did look at. */
struct record_id record_stale_id(struct sim *w, uint32_t d);
/* Turns that never ended continue to write. */
void records_write_late(struct sim *w, uint32_t d);

void records_turn_over(struct sim *w, uint32_t d, const struct session *s, bool ended);
void records_session_over(struct sim *w, uint32_t d, const struct session *s);
void records_engine_gone(struct sim *w, uint32_t d, uint32_t e);
void records_conn_closed(struct sim *w, uint32_t d, uint32_t conn);
/* Are the used pages of each tenant's record memory those that the model has allocated? */
void records_check(struct sim *w, uint32_t d);

/* ---- of turns.c, steps.c and model.c, for them ---- */
uint32_t any_seat(struct sim *w, uint32_t d, uint32_t e);
void begin_turn(struct sim *w, uint32_t d, struct session *s, uint32_t conn);
/* The table is released, and the list keeps no more than `keep` tokens. */
void table_given_up(struct sim *w, uint32_t d, struct session *s, uint32_t step, uint32_t keep);
uint32_t late_step(const struct session *s, uint32_t step);
/* Like session_forget, except for the records: the session may live on. */
void table_forget(struct sim *w, uint32_t d, struct session *s, uint32_t step);

#endif
