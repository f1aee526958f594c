/* What `ternd --check-config` looks at beside the configuration itself: whether this host lets the
 * daemon start with it. Nothing is changed, and nothing that a running daemon holds is in the way.
 * Not looked at: whether ports are in use, how much memory is free, RDMA devices. For main.c. */
#ifndef SHELL_PREFLIGHT_H
#define SHELL_PREFLIGHT_H

#include "shell/config/config.h"

/* A line for each thing that is wrong; how many. Peers' names that do not resolve have a line and
 * are not counted. Blocks while names are resolved. */
uint32_t preflight(const struct config *config, FILE *out);

#endif
