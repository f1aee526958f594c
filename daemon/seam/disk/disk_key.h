/* The file that holds the key for encrypted files: 32 raw bytes, or 64 hexadecimal digits with or
 * without a line end. Only its owner may be able to read it. */
#ifndef SEAM_DISK_KEY_H
#define SEAM_DISK_KEY_H

#include "seam/disk/disk_crypt.h"

#define DISK_KEY_WHY 512 /* bytes of `why`, with the NUL */

/* DISK: it cannot be read. DENIED: others may read it. INVALID: it holds no key. `why` says which
 * file, and what to do. For a start and for a verification: it blocks. */
enum tern_err disk_key_read(const char *path, uint8_t ret[DISK_KEY_BYTES], char why[DISK_KEY_WHY]);

#endif
