/* A process that exports memory of the first device and is then killed: what it leaves is what a
 * daemon's successor would find. It is forked before this program loads the driver, which no child
 * may have from its parent, and touches no device until it is asked. */
#ifndef GPU_EXPORTER_H
#define GPU_EXPORTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define EXPORTER_BYTES (2u << 20) /* a multiple of what the driver allocates by */
#define EXPORTER_FILL  0x5a       /* each byte */

struct exporter {
    pid_t pid;
    int socket; /* owned */
};

/* library: as driver_open takes it. False: it could not be forked. */
bool exporter_begin(struct exporter *ret, const char *library);
/* The exported memory's descriptor, which is the caller's, once the process is dead. -1: it
 * exported none. */
int exporter_end(struct exporter *e);

#endif
