/* Fills struct actions: the effects that one step of the core requests, and the runs of page refs
 * in its answers; and the refusals of requests. Every part of the core that emits an action uses
 * it.
 */
#ifndef CORE_ACTIONS_H
#define CORE_ACTIONS_H

#include "core/arena/arena.h"

uint32_t actions_room(const struct actions *out);
struct action *action_add(struct actions *out, enum action_kind kind); /* there must be room */
/* Adds a message to the peer at the other end of the link. There must be room. */
struct peer_msg *peer_msg_add(struct actions *out, uint32_t link, enum peer_msg_kind kind);
/* Adds a run of n pages. There must be room. The caller fills in the returned refs. */
struct page_ref *run_add(struct actions *out, struct table_run wanted);
/* refs_fit returns true if there is room for so many runs with so many page refs together. */
struct runs_wanted {
    uint32_t runs, refs;
};
bool refs_fit(const struct actions *out, struct runs_wanted wanted);

/* Returns true if a request waits for the answer, on a connection that is still open. */
static inline bool reply_waits(const struct core *c, const struct reply_to *to)
{
    const struct conn *cn = conn_at(c, to->conn);

    return cn->open && cn->gen == to->gen;
}
/* Adds an otherwise empty answer to that request. There must be room; `text` is static. */
struct reply *reply_late(struct actions *out, struct reply_to to, enum op op, enum tern_err err,
                         const char *text);

/* Refuses requests: the cause and the remedy go into the reply in one place, and the caller returns
 * the error. A reply that is not refused has TERN_OK and no text. */

/* `text` is static and names the remedy. */
static inline enum tern_err refuse(struct reply *ret, enum tern_err err, const char *text)
{
    ret->err = err;
    ret->text = text;
    return err;
}

/* The same, with REPLY_NUMBERS numbers for the text; 0 for those that it does not have. */
static inline enum tern_err refuse_numbers(struct reply *ret, enum tern_err err, const char *text,
                                           uint64_t first, uint64_t second)
{
    ret->number[0] = first;
    ret->number[1] = second;
    return refuse(ret, err, text);
}

/* The same for the result of a check that has its own reason. Returns TERN_OK, and refuses nothing,
 * if `err` is that. */
static inline enum tern_err refuse_why(struct reply *ret, enum tern_err err,
                                       const struct reason *why)
{
    return err == TERN_OK ? TERN_OK
                          : refuse_numbers(ret, err, why->text, why->number[0], why->number[1]);
}

/* Refuses one operation of a Step in the same way. */
static inline enum tern_err refuse_op(struct op_result *ret, enum tern_err err, const char *text)
{
    ret->text = text;
    return err;
}

static inline enum tern_err refuse_op_why(struct op_result *ret, enum tern_err err,
                                          const struct reason *why)
{
    for (uint32_t i = 0; i < REPLY_NUMBERS && err != TERN_OK; i++)
        ret->number[i] = why->number[i];
    return err == TERN_OK ? TERN_OK : refuse_op(ret, err, why->text);
}

/* A repetition continues the operation: its piece has ended, or the answer is full. */
static inline enum tern_err piece_ended(struct op_result *ret, const char *text)
{
    ret->shortage.goes_on = true;
    return refuse_op(ret, TERN_BUSY, text);
}

#endif
