/* The one table of the states of an engine's watch: name, legal next states, what it means.
 * watch_move in engine_watch.c checks it; docs/states.md shows it. */
#ifndef SHELL_ENGINE_WATCH_STATES_H
#define SHELL_ENGINE_WATCH_STATES_H

#define ENGINE_WATCH_TO(s) (1u << ENGINE_WATCH_##s)

/* X(name, legal next, comment) */
#define ENGINE_WATCH_STATE_TABLE(X)                                                                \
    X(NONE, ENGINE_WATCH_TO(ACTIVE), "no engine has the slot")                                     \
    X(ACTIVE, ENGINE_WATCH_TO(NONE), "an engine has joined: its done steps are read")

enum engine_watch_state {
#define X(name, next, comment) ENGINE_WATCH_##name,
    ENGINE_WATCH_STATE_TABLE(X)
#undef X
        ENGINE_WATCH_STATES
};

#endif
