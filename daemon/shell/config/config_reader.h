/* Reads the configuration anew while the daemon runs, by config_load as at start. It does so in a
 * thread of its own, because a disk may be slow and loading allocates; the owner asks and takes,
 * and neither blocks or allocates. Used by shell/admin/reload.c. */
#ifndef SHELL_CONFIG_READER_H
#define SHELL_CONFIG_READER_H

#include "shell/config/config.h"

#define CONFIG_READER_STACK_BYTES (1u << 20) /* config_load sorts thousands of peers on it */

struct config_reader;

/* argc, argv: as at start; borrowed until the process ends. */
enum tern_err config_reader_create(int argc, char **argv, struct config_reader **ret);
/* Does not wait for a disk: a thread that still reads ends when it has read. */
void config_reader_destroy(struct config_reader *r);
int config_reader_event_fd(const struct config_reader *r); /* readable when something was read */

/* False: it reads already. */
bool config_reader_ask(struct config_reader *r);
/* False: nothing was read since the last call. Else *ret_err is what config_load returned: with OK
 * the caller owns *ret, and otherwise `why` is its text. */
bool config_reader_take(struct config_reader *r, struct config **ret, enum tern_err *ret_err,
                        char why[CONFIG_WHY_BYTES]);

#endif
