/* A first-in, first-out queue of structs, each with its own link. All zero: empty. Invariant: a
 * link is in at most one queue. */
#ifndef BASE_FIFO_H
#define BASE_FIFO_H

#include <stddef.h>

#include "base/check.h"

struct fifo_link {
    struct fifo_link *next;
};

struct fifo {
    struct fifo_link *first, *last;
};

static inline void fifo_push(struct fifo *f, struct fifo_link *link)
{
    link->next = NULL;
    if (f->last)
        f->last->next = link;
    else
        f->first = link;
    f->last = link;
}

/* Return the struct whose link is first; pop also removes it. NULL: the queue is empty. */
static inline void *fifo_first_at(const struct fifo *f, size_t offset)
{
    return f->first ? (char *)f->first - offset : NULL;
}

static inline void *fifo_pop_at(struct fifo *f, size_t offset)
{
    void *first = fifo_first_at(f, offset);

    if (first)
        f->first = f->first->next;
    if (!f->first)
        f->last = NULL;
    return first;
}

#define fifo_first(f, type, member) ((type *)fifo_first_at(f, offsetof(type, member)))
#define fifo_pop(f, type, member)   ((type *)fifo_pop_at(f, offsetof(type, member)))

/* Removes a link that is in the queue. */
static inline void fifo_remove(struct fifo *f, struct fifo_link *link)
{
    struct fifo_link **at = &f->first, *before = NULL;

    for (; *at && *at != link; at = &(*at)->next)
        before = *at;
    check(*at);
    *at = link->next;
    if (f->last == link)
        f->last = before;
}

#endif
