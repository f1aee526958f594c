/* A process that exports memory of the first device and is then killed: what remains is what a
 * daemon's successor would find. It is forked before this program loads the driver, which a child
 * must not inherit, and touches no device until it is asked. */
#ifndef GPU_EXPORTER_H
#define GPU_EXPORTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define EXPORTER_BYTES (2u << 20) /* a multiple of the driver's allocation granularity */
#define EXPORTER_FILL  0x5a       /* value of each byte */

struct exporter {
    pid_t pid;
    int socket; /* owned */
};

/* library: as for driver_open. Returns false if the process could not be forked. */
bool exporter_begin(struct exporter *ret, const char *library);
/* Kills the process. Returns the descriptor of the exported memory, owned by the caller; -1: it
 * exported none. */
int exporter_end(struct exporter *e);

#endif
