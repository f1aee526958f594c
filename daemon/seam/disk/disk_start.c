/* What of disk.h blocks: recovery, with the files that a running tier has, and verification, with
 * files of its own. */
#include <string.h>

#include "base/check.h"
#include "seam/disk/disk_recover.h"
#include "seam/disk/disk_state.h"

enum tern_err disk_recover(struct disk *disk, void (*emit)(void *ctx, struct event *event),
                           void (*note)(void *ctx, const char *file, uint64_t offset,
                                        enum disk_fault fault),
                           void *ctx, struct disk_recovery *ret, const char **ret_why)
{
    const struct disk_recover_to to = {.emit = emit, .note = note, .ctx = ctx};
    enum tern_err err;

    check(!disk->recovered);
    disk->recovered = true;
    err = disk_recover_files(&disk->config, disk->files, &to, ret, ret_why);
    explicit_bzero(disk->config.key, sizeof disk->config.key); /* each thread has its own context */
    return err;
}

enum tern_err disk_verify(const struct disk_config *config,
                          void (*found)(void *ctx, const struct disk_verified *v), void *ctx,
                          const char **ret_why)
{
    const struct file_ops_config c = {.dir = config->dir, .lanes = 1};
    struct file_ops *ops = NULL;
    enum tern_err err = TERN_OK;

    if (!config->files)
        err = file_ops_create(&c, &ops, ret_why);
    if (err == TERN_OK)
        err = disk_verify_files(config, ops ? file_ops_files(ops) : config->files, found, ctx,
                                ret_why);
    file_ops_destroy(ops);
    return err;
}
