/* Drops files and extents, on a thread of the disk. Also has the functions on files that all these
 * threads share. A drop is durable before it is reported: the next start must not find data again
 * that was dropped because it is wrong by now, for instance after a reset of its namespace. */
#include <errno.h>

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

static int remove_file(struct disk *disk, const char *name)
{
    int r = disk->files->remove(disk->files->ctx, name);

    if (r < 0 && r != -ENOENT)
        return r;
    r = disk_sync_folder(disk, name);
    return r == -ENOENT ? 0 : r; /* removed with its folder */
}

/* Drops extents of one file. A file that no longer exists has no bytes left to drop. */
static int punch_extents(struct disk *disk, const char *name, struct drop_job *const *drop,
                         uint32_t n)
{
    const struct disk_files *files = disk->files;
    uint64_t bytes, punched = 0;
    int file, r = files->open(files->ctx, name, &file, &bytes);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    for (uint32_t i = 0; i < n && r == 0; i++) {
        r = files->punch(files->ctx, file, drop[i]->drop.place.offset, drop[i]->drop.bytes);
        punched += r == 0 ? drop[i]->drop.bytes : 0;
    }
    if (r == 0)
        r = disk_sync_file(disk, file);
    files->close(files->ctx, file);
    DISK_COUNT(disk, punched_bytes, punched);
    return r;
}

/* All drops are of one file: the file itself, or extents of it. */
void disk_drop_run(struct disk_thread *t, struct drop_job *const *drop, uint32_t n)
{
    struct disk *disk = t->disk;
    const struct disk_drop *d = &drop[0]->drop;
    char name[DISK_NAME_MAX];
    int r;

    disk_file_name(name, disk->tenant[d->tenant], d->place.file, false);
    r = d->place.offset == 0 ? remove_file(disk, name) : punch_extents(disk, name, drop, n);
    for (uint32_t i = 0; i < n; i++)
        drop[i]->job.err = r < 0 ? TERN_DISK : TERN_OK;
    pthread_mutex_lock(&disk->lock);
    disk->stats.dropped_files += r == 0 && d->place.offset == 0 ? 1 : 0;
    disk->stats.write_errors += r < 0 ? 1 : 0;
    if (r < 0) {
        disk->write_failing = true;
        disk->stats.error = -r;
    }
    pthread_mutex_unlock(&disk->lock);
}
