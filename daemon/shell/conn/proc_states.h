/* The one table of the states of a process slot: name, legal next states, what it means. proc_move
 * in proc.c checks it; docs/states.md shows it. */
#ifndef SHELL_PROC_STATES_H
#define SHELL_PROC_STATES_H

#define PROC_TO(s) (1u << PROC_##s)

/* X(name, legal next, comment) */
#define PROC_STATE_TABLE(X)                                                                        \
    X(FREE, PROC_TO(WATCHED), "no process has the slot")                                           \
    X(WATCHED, PROC_TO(EXITED), "a pidfd of it is held; the core may know it")                     \
    X(EXITED, PROC_TO(FREE), "the kernel has proved the exit, and the core is being told")

enum proc_state {
#define X(name, next, comment) PROC_##name,
    PROC_STATE_TABLE(X)
#undef X
        PROC_STATES
};

#endif
