/* The file system behind struct disk_files: openat below one directory, an io_uring for each lane,
 * O_DIRECT where the file system has it. */
#ifndef SEAM_FILE_OPS_H
#define SEAM_FILE_OPS_H

#include "base/tern_err.h"
#include "seam/disk/disk_files.h"

struct file_ops_config {
    const char *dir;
    uint32_t lanes;
    /* Staging memory: pieces of lane i lie in lane_bytes at staging + i * lane_bytes, which the
     * kernel then keeps mapped. Pieces elsewhere are moved too. NULL: no staging memory. */
    uint8_t *staging;
    uint64_t lane_bytes;
    bool lock; /* false: for reads only, beside the lock's holder */
};

/* CONFLICT: another process has the lock. DISK: the directory does not exist or is not ours to
 * write. INTERNAL: no ring, memory or descriptor. *ret_why says what to do. */
enum tern_err file_ops_create(const struct file_ops_config *config, struct disk_files **ret,
                              const char **ret_why);
void file_ops_destroy(struct disk_files *files); /* no lane has anything in flight */

#endif
