/* Replaying what a daemon recorded. Tapes of both kinds go by --tape: a shrunk history begins with
 * its own magic. */
#ifndef SIM_REPLAY_H
#define SIM_REPLAY_H

#include <stdbool.h>

bool tape_is_daemons(const char *path);
/* 0; 2: not a tape, or one that is cut off. */
int tape_replay(const char *path, bool json);

#endif
