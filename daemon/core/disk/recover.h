/* What earlier runs have left on the disk, as a start finds it (D8): chunks and entries again, if
 * everything that they need is there. */
#ifndef CORE_DISK_RECOVER_H
#define CORE_DISK_RECOVER_H

#include "core/disk/entries.h"

void disk_found(struct core *c, const struct event *ev);
void disk_ready(struct core *c, uint64_t next_file, uint64_t served_ns);
/* After that, what nothing leads to goes, and what is over the budget. False: there is more. */
bool disk_recover_flush(struct core *c);

#endif
