/* `ternd --check-config`: checks, beside the configuration itself, whether the daemon can start
 * with it on this host. The check changes nothing, and a running daemon does not disturb it. Ports
 * in use, free memory and RDMA devices are not checked. For main.c. */
#ifndef SHELL_PREFLIGHT_H
#define SHELL_PREFLIGHT_H

#include "shell/config/config.h"

/* Prints a line for each fault and returns their number. A peer's name that does not resolve gets a
 * line but is not counted. Blocks while names are resolved. */
uint32_t preflight(const struct config *config, FILE *out);

#endif
