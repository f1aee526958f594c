/* Peers that operators add and remove: `peer-add` and `peer-remove` of the admin socket. What they
 * add stands in no file: it is gone with the daemon, and a reload leaves it alone. */
#ifndef SHELL_MEMBERS_H
#define SHELL_MEMBERS_H

#include "shell/daemon.h"

/* Writes the answer to d->text. *ret_text is borrowed for this one answer. */
enum tern_err member_command(struct daemon *d, const Tern__Wire__Admin *m, size_t *ret_n,
                             const char **ret_text);
/* A peer of a file or of an operator leaves. */
void member_leave(struct daemon *d, uint32_t slot);

#endif
