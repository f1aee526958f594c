/* Events with a different value in every field, for the tests of tapes. */
#ifndef TEST_RIG_EVENT_H
#define TEST_RIG_EVENT_H

#include "base/prng.h"
#include "core/core.h"

#define TOKENS_EACH 33
#define KEYS_EACH   3
#define OPS_EACH    5
#define REFS_EACH   9
#define RUNS_EACH   2
#define OP_REFS     40 /* in a run of an operation; more than an operation has otherwise */

/* The limits that the values respect. */
extern const struct core_limits event_limits;

/* The arrays that an event borrows. */
struct lent {
    uint32_t tokens[OPS_EACH][TOKENS_EACH];
    struct extra_key keys[OPS_EACH][KEYS_EACH];
    struct step_op ops[OPS_EACH];
    struct table_run op_runs[OPS_EACH][RUNS_EACH];
    struct page_ref op_refs[OPS_EACH][RUNS_EACH][OP_REFS];
    struct table_run runs[2];
    struct page_ref refs[2][REFS_EACH];
};

/* Fills an event of one kind, and for a request of one operation. */
void event_fill(struct prng *p, struct event *e, enum event_kind kind, enum op op,
                struct lent *lent);
void event_random(struct prng *p, struct event *e, struct lent *lent);

/* Fails the test unless both are equal: arrays by their contents, the rest byte for byte. */
void event_same(const struct event *wanted, const struct event *got);

#endif
