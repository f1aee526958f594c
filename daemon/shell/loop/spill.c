/* See loop.h. A disk that is full or fails is an alarm (shell/alarm), not a log line per write. */
#include "shell/loop/loop.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/container.h"
#include "base/err.h"
#include "seam/disk/disk_crypt.h"
#include "shell/config/plan.h"
#include "shell/log/log.h"

#define FAULTS_LOGGED 32  /* lines per start about refused files and extents */
#define COUNTS_BYTES  256 /* size of the text of all faults */

/* Logs the damage found since the last call in one line: the last damage, and the count. */
static void log_damage(struct daemon *d)
{
    char name[DISK_NAME_MAX];
    struct disk_stats s;
    const struct disk_bad *bad = &s.bad;

    disk_stats(d->disk, &s);
    if (bad->n == d->spill.bad)
        return;
    disk_file_name(name, d->config->tenants[bad->tenant].name, bad->at.file, false);
    log_event(LEVEL_WARN, "spill_bad", "file=%s offset=%" PRIu64 " met=%" PRIu64 " reason=%s", name,
              bad->at.offset, bad->n,
              bad->missing ? "the file is missing: only the daemon may remove its files"
                           : "the bytes differ from those written: the extent is dropped, and "
                             "stored again when the prefix is computed again");
    d->spill.bad = bad->n;
}

static void disk_ready(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct daemon *d = container_of(op, struct daemon, spill.op);

    (void)res, (void)flags, (void)buffer;
    if (d->state == DAEMON_STOPPED)
        return;
    disk_poll(d->disk, daemon_emit, d);
    log_damage(d);
}

static void found(void *ctx, struct event *ev)
{
    daemon_event(ctx, ev);
}

static void not_taken(void *ctx, const char *file, uint64_t offset, enum disk_fault fault)
{
    struct daemon *d = ctx;

    if (d->spill.faults_logged++ >= FAULTS_LOGGED)
        return;
    log_event(LEVEL_WARN, "spill_dropped", "file=%s offset=%" PRIu64 " reason=%s", file, offset,
              disk_fault_word(fault));
}

/* "checksum:2,address:1"; "none" without faults. */
static void put_faults(const struct disk_recovery *r, char ret[COUNTS_BYTES])
{
    size_t n = 0;

    snprintf(ret, COUNTS_BYTES, "none");
    for (uint32_t i = DISK_FAULT_NONE + 1; i < DISK_FAULTS && n < COUNTS_BYTES; i++)
        if (r->faults[i] > 0)
            n += (size_t)snprintf(ret + n, COUNTS_BYTES - n, "%s%s:%" PRIu64, n ? "," : "",
                                  disk_fault_word((enum disk_fault)i), r->faults[i]);
}

static void log_recovered(const struct daemon *d)
{
    const struct disk_recovery *r = &d->spill.recovery;
    uint64_t entries = 0, dropped = 0;
    char faults[COUNTS_BYTES];

    for (uint32_t t = 0; t < d->config->ntenants; t++) {
        struct disk_view v;

        core_disk(d->core, t, &v);
        entries += v.counts.recovered;
        dropped += v.counts.dropped;
    }
    put_faults(r, faults);
    log_event(LEVEL_INFO, "spill_recovered",
              "entries=%" PRIu64 " extents=%" PRIu64 " bytes=%" PRIu64 " files=%" PRIu64
              " holes=%" PRIu64 " unneeded=%" PRIu64 " unfinished=%" PRIu64
              " removed_files=%" PRIu64 " ms=%" PRIu64 " faults=%s",
              entries, r->extents, r->bytes, r->files, r->holes, dropped, r->unfinished,
              r->removed_files, r->ns / 1000000, faults);
    if (d->spill.faults_logged > FAULTS_LOGGED)
        log_event(LEVEL_WARN, "spill_dropped", "more=%u", d->spill.faults_logged - FAULTS_LOGGED);
}

/* Logs folders of tenants that were removed from the settings or renamed. */
static void log_foreign(const struct config *config)
{
    DIR *dir = opendir(config->spill_dir);
    struct dirent *e;
    uint32_t tenant;
    struct stat st;

    while (dir && (e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.' && config_tenant_slot(config, e->d_name, &tenant) != TERN_OK &&
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
            log_event(LEVEL_WARN, "spill_foreign", "folder=%s reason=%s", e->d_name,
                      "no tenant has this name: its files are kept and count for no tenant; delete "
                      "the folder, or configure the tenant again");
    if (dir)
        closedir(dir);
}

uint64_t spill_lacks(const struct config *config)
{
    struct statvfs fs;
    uint64_t all;

    if (config->spill_dir[0] == '\0' || statvfs(config->spill_dir, &fs) != 0 || fs.f_blocks == 0)
        return 0;
    all = (uint64_t)fs.f_blocks * fs.f_frsize;
    all = all > config->spill_headroom ? all - config->spill_headroom : 0;
    return config->spill_bytes > all ? config->spill_bytes - all : 0;
}

static enum tern_err create(struct daemon *d, struct disk_config *disk, char *why, size_t cap)
{
    const char *text = "";
    enum tern_err err = TERN_OK;
    char key_why[DISK_KEY_WHY];

    disk->mem = d->mem;
    disk->incarnation = d->incarnation;
    if (disk->encrypt)
        err = disk_key_read(d->config->spill_key_file, disk->key, key_why);
    if (err != TERN_OK)
        return fail_with(why, cap, err, "spill.encrypt_key_file: %s", key_why);
    err = disk_create(disk, &d->disk, &text);
    explicit_bzero(disk->key, sizeof disk->key);
    return err == TERN_OK
               ? TERN_OK
               : fail_with(why, cap, err, "spill.dir %s: %s", d->config->spill_dir, text);
}

enum tern_err spill_start(struct daemon *d, char *why, size_t cap)
{
    const char *text = "";
    struct disk_config disk;
    struct disk_stats stats;
    enum tern_err err;

    if (!plan_disk(d->config, &disk))
        return TERN_OK;
    TRY(create(d, &disk, why, cap));
    disk_stats(d->disk, &stats);
    if (!stats.direct)
        log_event(LEVEL_WARN, "spill_buffered", "dir=%s reason=%s", d->config->spill_dir,
                  "this file system has no O_DIRECT: the disk tier uses the page cache");
    log_foreign(d->config);
    if (spill_lacks(d->config) > 0)
        log_event(LEVEL_WARN, "spill_too_large",
                  "dir=%s bytes=%" PRIu64 " lacking_bytes=%" PRIu64 " reason=%s",
                  d->config->spill_dir, d->config->spill_bytes, spill_lacks(d->config),
                  "the whole file system has less than spill.bytes and spill.headroom: it will be "
                  "full before anything is evicted");
    err = disk_recover(d->disk, found, not_taken, d, &d->spill.recovery, &text);
    if (err != TERN_OK)
        return fail_with(why, cap, err, "spill.dir %s: %s", d->config->spill_dir, text);
    log_recovered(d);
    d->spill.op.done = disk_ready;
    io_poll_in(d->io, &d->spill.op, disk_event_fd(d->disk), true);
    return TERN_OK;
}
