/* Part of arena.h: what tenants have of the tables that they share (shares.h), and the records that
 * count against that. */
#ifndef CORE_HELD_SHARES_H
#define CORE_HELD_SHARES_H

#include "core/arena/arena.h"

static inline struct share_holder *share_holder(const struct core *c, enum share_table table,
                                                uint32_t holder)
{
    const struct share_of_table *t = &c->share[table];

    ARENA_BOUND(holder, t->holders);
    return share_holder_at(c, t->first_at + holder);
}

/* Returns how many more records of the table the holder may take. */
static inline uint32_t share_room(const struct core *c, enum share_table table, uint32_t holder)
{
    const struct share_holder *h = share_holder(c, table, holder);

    return c->share[table].rest + (h->reserved > h->used ? h->reserved - h->used : 0);
}

/* Returns true if a transfer that no decode waits for may take a record. Such transfers leave a
 * part of the holder's reserved records to those that a decode waits for. */
static inline bool share_leaves(const struct core *c, enum share_table table, uint32_t holder)
{
    return share_room(c, table, holder) >
           share_holder(c, table, holder)->reserved / PREFETCH_LEAVES;
}

/* Returns how many it could have if no other holder had more than its reserved records. */
static inline uint32_t share_most(const struct core *c, enum share_table table, uint32_t holder)
{
    uint32_t most = share_limit(&c->limits, table);

    for (uint32_t i = 0; i < c->share[table].holders; i++)
        most -= i == holder ? 0 : share_holder(c, table, i)->reserved;
    return most;
}

/* Returns how many common records it has. */
static inline uint32_t share_common(const struct share_holder *h)
{
    return h->used > h->reserved ? h->used - h->reserved : 0;
}

/* Takes n records. */
static inline void share_take_n(struct core *c, struct share_of of, uint32_t n)
{
    struct share_of_table *t = &c->share[of.table];
    struct share_holder *h = share_holder(c, of.table, of.tenant);
    uint32_t before = share_common(h);

    h->used += n;
    check(h->used >= n && share_common(h) - before <= t->rest);
    t->rest -= share_common(h) - before;
}

static inline void share_put_n(struct core *c, struct share_of of, uint32_t n)
{
    struct share_holder *h = share_holder(c, of.table, of.tenant);
    uint32_t before = share_common(h);

    check(h->used >= n);
    h->used -= n;
    c->share[of.table].rest += before - share_common(h);
}

static inline void share_take(struct core *c, enum share_table table, uint32_t holder)
{
    share_take_n(c, (struct share_of){table, holder}, 1);
}

static inline void share_put(struct core *c, enum share_table table, uint32_t holder)
{
    share_put_n(c, (struct share_of){table, holder}, 1);
}

/* Free records: see ARENA_FREE_TABLE. */
#define X(record, next)                                                                            \
    static inline uint32_t record##_slot_pop(struct core *c)                                       \
    {                                                                                              \
        uint32_t i = c->free_##record##s.head;                                                     \
                                                                                                   \
        check(i != NONE);                                                                          \
        c->free_##record##s.head = (next);                                                         \
        c->free_##record##s.n--;                                                                   \
        return i;                                                                                  \
    }                                                                                              \
    static inline void record##_slot_push(struct core *c, uint32_t i)                              \
    {                                                                                              \
        (next) = c->free_##record##s.head;                                                         \
        c->free_##record##s.head = i;                                                              \
        c->free_##record##s.n++;                                                                   \
    }
#define S(record, table, next)                                                                     \
    X(record, next)                                                                                \
    static inline uint32_t record##_slot_take(struct core *c, uint32_t holder)                     \
    {                                                                                              \
        share_take(c, SHARE_##table, holder);                                                      \
        return record##_slot_pop(c);                                                               \
    }                                                                                              \
    static inline void record##_slot_put(struct core *c, uint32_t i, uint32_t holder)              \
    {                                                                                              \
        share_put(c, SHARE_##table, holder);                                                       \
        record##_slot_push(c, i);                                                                  \
    }
ARENA_FREE_TABLE(S, X)
#undef S
#undef X

#endif
