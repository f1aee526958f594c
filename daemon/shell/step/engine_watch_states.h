/* The states of an engine's watch (base/states.h says how to read the table). */
#ifndef SHELL_ENGINE_WATCH_STATES_H
#define SHELL_ENGINE_WATCH_STATES_H

#include "base/states.h"

#define ENGINE_WATCH_STATE_TABLE(X)                                                                \
    X(ENGINE_WATCH, NONE, TO(ENGINE_WATCH, ACTIVE), "no engine has the slot")                      \
    X(ENGINE_WATCH, ACTIVE, TO(ENGINE_WATCH, NONE), "an engine has joined: its done steps are read")

STATE_MACHINE(engine_watch, ENGINE_WATCH, ENGINE_WATCH_STATE_TABLE)

#endif
