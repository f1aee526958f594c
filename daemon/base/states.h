/* State machines as tables. A machine's table is one macro, a line for each state: X(MACHINE, NAME,
 * legal next states, meaning), where TO(MACHINE, NAME) names a next state. The enum, the check of
 * each move and the table in docs/states.md are made from it. Invariant: a state changes only by
 * its machine's *_state_move: a move that is not in the table is a failed check. */
#ifndef BASE_STATES_H
#define BASE_STATES_H

#include <stdint.h>

#include "base/check.h"

#define TO(machine, name) (1u << machine##_##name)

#define STATE_NAME(machine, name, next, ...) machine##_##name,
#define STATE_NEXT(machine, name, next, ...) [machine##_##name] = (next),

/* Makes enum `machine`_state and `machine`_state_move from a table. The state is a uint32_t or the
 * enum itself, which the compilers treat as the same. */
#define STATE_MACHINE(machine, MACHINE, TABLE) STATE_MACHINE_IN(uint32_t, machine, MACHINE, TABLE)

/* The same for a state in another unsigned integer. */
#define STATE_MACHINE_IN(type, machine, MACHINE, TABLE)                                            \
    enum machine##_state{TABLE(STATE_NAME) MACHINE##_STATES};                                      \
    static inline void machine##_state_move(type *state, enum machine##_state to)                  \
    {                                                                                              \
        static const uint32_t next[MACHINE##_STATES] = {TABLE(STATE_NEXT)};                        \
                                                                                                   \
        check(*state < MACHINE##_STATES && next[*state] & 1u << to);                               \
        *state = (type)to;                                                                         \
    }

#endif
