/* Replaying a daemon's tape. `--tape` accepts tapes of both kinds: a shrunk history begins with its
 * own magic. */
#ifndef SIM_REPLAY_H
#define SIM_REPLAY_H

#include <stdbool.h>

bool tape_is_daemons(const char *path);
/* Returns 0, or 2 if the file is no tape or is cut off. */
int tape_replay(const char *path, bool json);

#endif
