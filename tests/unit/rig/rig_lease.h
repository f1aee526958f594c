/* Leases (E5) in tests of the core: pages of one group that an engine holds, and the operations
 * that assign them to sessions and return them. */
#ifndef TEST_RIG_LEASE_H
#define TEST_RIG_LEASE_H

#include "unit/rig/rig_test.h"

#define RIG_LEASE_MAX 64

struct rig_lease {
    struct rig *rig;
    uint32_t conn;
    struct pool_id pool;
    uint32_t group, n;
    struct page_ref page[RIG_LEASE_MAX]; /* of the last answer, behind those of former ones */
};

static inline struct rig_lease rig_lease_of(struct rig *rig, const struct rig_engine *e,
                                            struct pool_id pool)
{
    return (struct rig_lease){.rig = rig, .conn = e->conn[0], .pool = pool};
}

/* Leases more pages. */
static inline enum tern_err lease_more(struct rig_lease *l, uint32_t pages)
{
    struct request r = {.op = OP_PAGE_LEASE,
                        .page_lease = {.pool = l->pool, .group = l->group, .pages = pages}};
    const struct reply *reply = rig_request(l->rig, l->conn, &r);

    if (reply->err != TERN_OK)
        return reply->err;
    assert_int_equal(reply->nruns, 1);
    assert_int_equal(reply->runs[0].n, pages);
    assert_true(l->n + pages <= RIG_LEASE_MAX);
    memcpy(l->page + l->n, reply->runs[0].refs, pages * sizeof *l->page);
    l->n += pages;
    return TERN_OK;
}

/* Extends the session's table to `allocated` tokens with these pages, from its page `first` on. */
static inline enum tern_err assign_at(struct rig_session *s, uint32_t group, uint32_t first,
                                      const struct page_ref *pages, uint32_t n, uint32_t allocated)
{
    struct table_run run = {.group = group, .first = first, .n = n, .refs = pages};
    enum tern_err err = rig_op(
        s,
        (struct step_op){.kind = STEP_ASSIGN, .length = allocated, .nruns = n > 0, .runs = &run});

    if (err == TERN_OK)
        memcpy(s->table[group] + first, pages, n * sizeof *pages);
    return err;
}

/* Assigns the lease's first n pages, behind the table of a session in a pool of one group. */
static inline enum tern_err assign(struct rig_lease *l, struct rig_session *s, uint32_t n,
                                   uint32_t page_tokens)
{
    uint32_t have = (s->len.allocated + page_tokens - 1) / page_tokens;
    enum tern_err err = assign_at(s, l->group, have, l->page, n, (have + n) * page_tokens);

    if (err != TERN_OK)
        return err;
    l->n -= n;
    memmove(l->page, l->page + n, l->n * sizeof *l->page);
    return TERN_OK;
}

static inline enum tern_err unlease(struct rig_lease *l, const struct page_ref *pages, uint32_t n,
                                    uint64_t step)
{
    struct table_run run = {.group = l->group, .n = n, .refs = pages};
    struct step_op op = {
        .kind = STEP_UNLEASE, .pool = l->pool, .step = step, .nruns = 1, .runs = &run};
    const struct reply *reply = rig_step_ops(l->rig, l->conn, &op, 1);

    return reply->err != TERN_OK ? reply->err : reply->step.results[0].err;
}

#endif
