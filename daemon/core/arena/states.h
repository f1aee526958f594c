/* State machines as tables. A machine's table is one macro, a line for each state:
 * X(MACHINE, NAME, legal next states, what it means), where TO(MACHINE, NAME) names one of them.
 * The enum, the check of each move and the table in the documents come from it. A state changes by
 * its machine's *_state_move and in no other way: a move that the table lacks is a failed check. */
#ifndef CORE_STATES_H
#define CORE_STATES_H

#include <stdint.h>

#include "base/check.h"

#define TO(machine, name) (1u << machine##_##name)

#define STATE_NAME(machine, name, next, ...) machine##_##name,
#define STATE_NEXT(machine, name, next, ...) [machine##_##name] = (next),

/* Makes enum `machine`_state and `machine`_state_move from a table. */
#define STATE_MACHINE(machine, MACHINE, TABLE)                                                     \
    enum machine##_state{TABLE(STATE_NAME) MACHINE##_STATES};                                      \
    static inline void machine##_state_move(uint32_t *state, enum machine##_state to)              \
    {                                                                                              \
        static const uint32_t next[MACHINE##_STATES] = {TABLE(STATE_NEXT)};                        \
                                                                                                   \
        check(*state < MACHINE##_STATES && next[*state] & 1u << to);                               \
        *state = to;                                                                               \
    }

#endif
