/* See disk_state.h. */
#include "seam/disk/disk_state.h"

int disk_sync_file(struct disk *disk, int file)
{
    DISK_COUNT(disk, syncs, 1);
    return disk->files->sync(disk->files->ctx, file);
}

int disk_sync_folder(struct disk *disk, const char *name)
{
    DISK_COUNT(disk, syncs, 1);
    return disk->files->sync_folder(disk->files->ctx, name);
}

bool disk_is_gone(struct disk *disk)
{
    const struct disk_files *files = disk->files;

    if (!files->gone || !files->gone(files->ctx))
        return false;
    pthread_mutex_lock(&disk->lock);
    disk->lost_all |= !disk->stats.gone;
    disk->stats.gone = true;
    pthread_mutex_unlock(&disk->lock);
    return true;
}
