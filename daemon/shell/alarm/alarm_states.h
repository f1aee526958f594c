/* The states of an alarm (base/states.h says how to read the table). */
#ifndef SHELL_ALARM_STATES_H
#define SHELL_ALARM_STATES_H

#include "base/states.h"

#define ALARM_STATE_TABLE(X)                                                                       \
    X(ALARM, CLEAR, TO(ALARM, RISING), "its condition does not hold")                              \
    X(ALARM, RISING, TO(ALARM, CLEAR) | TO(ALARM, ON),                                             \
      "its condition holds, and has not for long enough")                                          \
    X(ALARM, ON, TO(ALARM, FALLING), "its beginning was told, and its condition holds, or nearly") \
    X(ALARM, FALLING, TO(ALARM, ON) | TO(ALARM, CLEAR),                                            \
      "its condition holds no more, and has not for long enough")

STATE_MACHINE(alarm, ALARM, ALARM_STATE_TABLE)

#endif
