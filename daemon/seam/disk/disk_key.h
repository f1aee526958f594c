/* The file that holds the key of what is encrypted on the disk: 32 bytes as they are, or 64
 * hexadecimal digits with a line's end or without. Nobody but its owner may read it. */
#ifndef SEAM_DISK_KEY_H
#define SEAM_DISK_KEY_H

#include "seam/disk/disk_crypt.h"

#define DISK_KEY_WHY 512 /* bytes of `why`, with the NUL */

/* DISK: it cannot be read. DENIED: others may read it. INVALID: it holds no key. `why` says which
 * file, and what to do. For the start, and for whoever verifies: it blocks. */
enum tern_err disk_key_read(const char *path, uint8_t ret[DISK_KEY_BYTES], char why[DISK_KEY_WHY]);

#endif
