/* What `ternd --check-config` checks beside the configuration itself: whether this host lets the
 * daemon start with it. It changes nothing, and what a running daemon holds does not disturb it. It
 * does not check whether ports are in use, how much memory is free, or RDMA devices. For main.c. */
#ifndef SHELL_PREFLIGHT_H
#define SHELL_PREFLIGHT_H

#include "shell/config/config.h"

/* Prints a line for each thing that is wrong and returns how many there are. A peer's name that
 * does not resolve gets a line and is not counted. It blocks while names are resolved. */
uint32_t preflight(const struct config *config, FILE *out);

#endif
