/* What a start makes of the files that earlier runs left, and what a verification says of them:
 * disk_recover and disk_verify (disk.h) without the rest of struct disk, in lane 0. Both block, and
 * free what they allocate. */
#ifndef SEAM_DISK_RECOVER_H
#define SEAM_DISK_RECOVER_H

#include "seam/disk/disk.h"

struct disk_recover_to { /* as disk_recover has them */
    void (*emit)(void *ctx, struct event *event);
    void (*note)(void *ctx, const char *file, uint64_t offset, enum disk_fault fault);
    void *ctx;
};

enum tern_err disk_recover_files(const struct disk_config *config, const struct disk_files *files,
                                 const struct disk_recover_to *to, struct disk_recovery *ret,
                                 const char **ret_why);
/* An entry for a file as a whole, where something is wrong with that, has no part but its place. */
enum tern_err disk_verify_files(const struct disk_config *config, const struct disk_files *files,
                                void (*found)(void *ctx, const struct disk_verified *v), void *ctx,
                                const char **ret_why);

#endif
