/* The states of a process slot (base/states.h says how to read the table). */
#ifndef SHELL_PROC_STATES_H
#define SHELL_PROC_STATES_H

#include "base/states.h"

#define PROC_STATE_TABLE(X)                                                                        \
    X(PROC, FREE, TO(PROC, WATCHED), "no process has the slot")                                    \
    X(PROC, WATCHED, TO(PROC, EXITED), "a pidfd of it is held; the core may know it")              \
    X(PROC, EXITED, TO(PROC, FREE), "the kernel has proved the exit, and the core is being told")

STATE_MACHINE(proc, PROC, PROC_STATE_TABLE)

#endif
