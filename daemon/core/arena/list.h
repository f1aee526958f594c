/* Lists of the arena's records. A list is a head and a length, and each record has a pair of links
 * for each kind of list; head and links are record indices. The `prev` of the first record is the
 * last one, so both ends are found at once. A record in no list has `prev` NONE.
 *
 * ARENA_LIST makes one set of functions for each kind of list, so a record cannot get into a list
 * of another kind. Invariant: links of a record in a list change only here. */
#ifndef CORE_LIST_H
#define CORE_LIST_H

#include <stddef.h>

#include "base/check.h"
#include "core/ids.h"

struct list_links {
    uint32_t next, prev;
};

struct list {
    uint32_t head, n;
};

#define LIST_EMPTY ((struct list){.head = NONE})

/* The place of the links in a kind of record: record i of n has them at first + i * stride. */
struct list_space {
    char *first;
    size_t stride;
    uint32_t n;
};

/* A sanitizer does not see an access past the end of one of the arena's arrays, since the arena
 * continues behind it. With TERN_CHECK_BOUNDS every access is checked. */
#ifdef TERN_CHECK_BOUNDS
#define ARENA_BOUND(i, n) check((i) < (n))
#else
#define ARENA_BOUND(i, n) ((void)0)
#endif

static inline struct list_links *list_links_of(struct list_space s, uint32_t i)
{
    ARENA_BOUND(i, s.n);
    return (struct list_links *)(void *)(s.first + i * s.stride);
}

/* Inserts `i` before `next`; NONE: at the end. */
static inline void list_insert(struct list_space s, uint32_t i, struct list *l, uint32_t next)
{
    struct list_links *mine = list_links_of(s, i), *after;

    mine->next = next;
    if (l->n++ == 0) {
        mine->prev = l->head = i;
        return;
    }
    after = list_links_of(s, next == NONE ? l->head : next);
    mine->prev = after->prev;
    if (next == l->head)
        l->head = i;
    else
        list_links_of(s, after->prev)->next = i;
    after->prev = i;
}

static inline void list_remove(struct list_space s, struct list *l, uint32_t i)
{
    struct list_links *mine = list_links_of(s, i);

    check(l->n > 0 && mine->prev != NONE);
    l->n--;
    if (i == l->head)
        l->head = mine->next;
    else
        list_links_of(s, mine->prev)->next = mine->next;
    if (mine->next != NONE)
        list_links_of(s, mine->next)->prev = mine->prev;
    else if (l->head != NONE)
        list_links_of(s, l->head)->prev = mine->prev;
    *mine = (struct list_links){.next = NONE, .prev = NONE};
}

static inline uint32_t list_last(struct list_space s, const struct list *l)
{
    return l->head == NONE ? NONE : list_links_of(s, l->head)->prev;
}

/* Moves all of `from` to the end of `to`. */
static inline void list_append(struct list_space s, struct list *to, struct list *from)
{
    uint32_t last = list_last(s, to), end = list_last(s, from);

    if (from->n == 0)
        return;
    if (to->n == 0) {
        to->head = from->head;
    } else {
        list_links_of(s, last)->next = from->head;
        list_links_of(s, from->head)->prev = last;
        list_links_of(s, to->head)->prev = end;
    }
    to->n += from->n;
    *from = LIST_EMPTY;
}

/* Defines the functions of one kind of list, NAME_push and so on, for records that RECORD_at finds,
 * of RECORD_bytes each, linked by `field`. NAME_next and NAME_before walk in either direction. */
#define ARENA_LIST(name, record, field)                                                            \
    static inline struct list_space name##_space(const struct core *c)                             \
    {                                                                                              \
        return (struct list_space){(char *)&record##_at(c, 0)->field, record##_bytes(c),           \
                                   record##_limit(c)};                                             \
    }                                                                                              \
    static inline bool name##_has(const struct core *c, uint32_t i)                                \
    {                                                                                              \
        return record##_at(c, i)->field.prev != NONE;                                              \
    }                                                                                              \
    static inline uint32_t name##_next(const struct core *c, uint32_t i)                           \
    {                                                                                              \
        return record##_at(c, i)->field.next;                                                      \
    }                                                                                              \
    static inline uint32_t name##_last(const struct core *c, const struct list *l)                 \
    {                                                                                              \
        return list_last(name##_space(c), l);                                                      \
    }                                                                                              \
    static inline uint32_t name##_before(const struct core *c, const struct list *l, uint32_t i)   \
    {                                                                                              \
        return i == l->head ? NONE : record##_at(c, i)->field.prev;                                \
    }                                                                                              \
    static inline void name##_push(const struct core *c, struct list *l, uint32_t i)               \
    {                                                                                              \
        list_insert(name##_space(c), i, l, NONE);                                                  \
    }                                                                                              \
    static inline void name##_push_front(const struct core *c, struct list *l, uint32_t i)         \
    {                                                                                              \
        list_insert(name##_space(c), i, l, l->head);                                               \
    }                                                                                              \
    static inline void name##_insert(const struct core *c, struct list *l, uint32_t i,             \
                                     uint32_t next)                                                \
    {                                                                                              \
        list_insert(name##_space(c), i, l, next);                                                  \
    }                                                                                              \
    static inline void name##_remove(const struct core *c, struct list *l, uint32_t i)             \
    {                                                                                              \
        list_remove(name##_space(c), l, i);                                                        \
    }                                                                                              \
    static inline uint32_t name##_pop(const struct core *c, struct list *l)                        \
    {                                                                                              \
        uint32_t i = l->head;                                                                      \
                                                                                                   \
        list_remove(name##_space(c), l, i);                                                        \
        return i;                                                                                  \
    }                                                                                              \
    static inline uint32_t name##_pop_last(const struct core *c, struct list *l)                   \
    {                                                                                              \
        uint32_t i = name##_last(c, l);                                                            \
                                                                                                   \
        list_remove(name##_space(c), l, i);                                                        \
        return i;                                                                                  \
    }                                                                                              \
    static inline void name##_append(const struct core *c, struct list *to, struct list *from)     \
    {                                                                                              \
        list_append(name##_space(c), to, from);                                                    \
    }

/* Records that are taken from a stack of free ones. S(record, table, next): each counts against a
 * holder's share of the table. X(record, next): the caller counts them, if anyone. `next` is the
 * field of record i that links free records; it has another meaning while the record is in use. */
#define ARENA_FREE_TABLE(S, X)                                                                     \
    S(session, SESSIONS, session_at(c, i)->in_engine.next)                                         \
    S(node, NODES, node_at(c, i)->sibling.next)                                                    \
    S(space, NAMESPACES, space_at(c, i)->in_pool.next)                                             \
    X(block, *block_next(c, i))                                                                    \
    X(key, key_at(c, i)->next)                                                                     \
    S(retire, RETIRES, retire_at(c, i)->in_engine.next)                                            \
    S(pull, PULLS, pull_at(c, i)->active.next)                                                     \
    S(ask, ASKS, ask_at(c, i)->active.next)                                                        \
    S(serve, SERVES, serve_at(c, i)->active.next)                                                  \
    S(turn_record, TURN_RECORDS, turn_record_at(c, i)->in_list.next)                               \
    S(disk_chunk, DISK_CHUNKS, disk_chunk_at(c, i)->sibling.next)                                  \
    S(disk_file, DISK_FILES, disk_file_at(c, i)->in_list.next)                                     \
    S(disk_store, DISK_STORES, disk_store_at(c, i)->in_list.next)                                  \
    X(disk_gone, disk_gone_at(c, i)->next)

struct free_list {
    uint32_t head, n;
};

#endif
