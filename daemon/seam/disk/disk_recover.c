/* A start takes over the files of earlier runs, and a verification reads them: see disk.h.
 * Invariant: nothing is removed before the headers of all files were checked. A file of a newer
 * format, with another key or of another tenant is not a leftover: the start fails. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "seam/disk/disk_scan.h"
#include "seam/disk/disk_state.h"
#include "seam/io/io.h"

#define WHY_BYTES 384

struct recovery {
    struct disk_scan scan;
    void (*emit)(void *ctx, struct event *event);
    void (*note)(void *ctx, const char *file, uint64_t offset, enum disk_fault fault);
    void *ctx;
    struct disk_recovery *ret;
    uint64_t served_ns;
    uint64_t good; /* good extents of the current file */
    bool keep;     /* the file may contain extents that were not read */
};

static void emit_extent(struct recovery *r, const struct scan_found *f)
{
    struct event ev = {.kind = EV_DISK_FOUND};

    ev.found.extent = f->head.extent;
    ev.found.tokens = f->tokens;
    ev.found.keys = f->keys;
    r->good++;
    r->ret->extents++;
    r->ret->bytes += disk_extent_bytes(&f->head.extent);
    if (f->head.extent.served_ns > r->served_ns)
        r->served_ns = f->head.extent.served_ns;
    r->emit(r->ctx, &ev);
}

static void recovered(void *ctx, const struct scan_found *f)
{
    struct recovery *r = ctx;

    if (f->hole) {
        r->ret->holes++;
    } else if (f->fault == DISK_FAULT_NONE) {
        emit_extent(r, f);
    } else {
        r->ret->faults[f->fault]++;
        r->keep |= f->fault == DISK_FAULT_READ || f->fault == DISK_FAULT_VERSION;
        if (r->note)
            r->note(r->ctx, f->name, f->head.extent.place.offset, f->fault);
    }
}

/* Fails if this daemon cannot read a finished file, which the operator may still need. */
static enum tern_err refuse_unreadable(struct recovery *r, const char **ret_why)
{
    static const char *const texts[DISK_FAULTS] = {
        [DISK_FAULT_VERSION] = "%s is of a newer format than this ternd knows: run the newer "
                               "ternd, or give this one another spill directory",
        [DISK_FAULT_KEY] =
            "%s was written with another key, or without one: set spill.encrypt_key_file to the "
            "key that it was written with, or name another spill directory, or empty this one",
        [DISK_FAULT_TENANT] = "%s was written for another tenant: rename its folder to that "
                              "tenant's name, or remove the folder",
    };
    static char why[WHY_BYTES];

    for (uint32_t i = 0; i < r->scan.nfiles; i++) {
        const struct scan_file *f = &r->scan.file[i];
        enum disk_fault fault = f->unfinished ? DISK_FAULT_NONE : disk_scan_header(&r->scan, f);

        if (!texts[fault])
            continue;
        snprintf(why, sizeof why, texts[fault], r->scan.name);
        *ret_why = why;
        return fault == DISK_FAULT_VERSION ? TERN_UNSUPPORTED : TERN_CONFLICT;
    }
    return TERN_OK;
}

/* The removal is durable once sync_folders has synced the folder, once for each tenant. */
static enum tern_err remove_file(struct recovery *r, const struct scan_file *f,
                                 const char **ret_why)
{
    const struct disk_files *files = r->scan.files;
    char name[DISK_NAME_MAX];
    int err;

    disk_file_name(name, r->scan.config->tenant[f->tenant], f->file, f->unfinished);
    err = files->remove(files->ctx, name);
    if (err == 0 || err == -ENOENT)
        return TERN_OK;
    *ret_why = "an unneeded file in the spill directory cannot be removed: check the mode and the "
               "owner of its folder";
    return TERN_DISK;
}

static enum tern_err sync_folders(struct recovery *r, const bool *changed, const char **ret_why)
{
    const struct disk_files *files = r->scan.files;
    char name[DISK_NAME_MAX];

    for (uint32_t i = 0; i < r->scan.config->tenants; i++) {
        disk_file_name(name, r->scan.config->tenant[i], 1, false);
        if (!changed[i] || files->sync_folder(files->ctx, name) == 0)
            continue;
        *ret_why = "a folder in the spill directory cannot be synced";
        return TERN_DISK;
    }
    return TERN_OK;
}

/* *ret_gone: the file contained nothing useful, and was removed. */
static enum tern_err recover_file(struct recovery *r, const struct scan_file *f, bool *ret_gone,
                                  const char **ret_why)
{
    struct disk_file_header h;

    r->good = 0;
    r->keep = false;
    if (!disk_scan_file(&r->scan, f, &h)) {
        *ret_gone = false;
        return TERN_OK;
    }
    if (h.served_ns > r->served_ns)
        r->served_ns = h.served_ns;
    *ret_gone = r->good == 0 && !r->keep;
    if (!*ret_gone) {
        r->ret->files++;
        return TERN_OK;
    }
    r->ret->removed_files++;
    return remove_file(r, f, ret_why);
}

static enum tern_err recover_all(struct recovery *r, const char **ret_why)
{
    bool changed[MEM_TENANTS_MAX] = {false};
    enum tern_err err = refuse_unreadable(r, ret_why);
    struct event ready = {.kind = EV_DISK_READY, .ready = {.next_file = 1}};

    for (uint32_t i = 0; i < r->scan.nfiles && err == TERN_OK; i++) {
        const struct scan_file *f = &r->scan.file[i];
        bool gone = f->unfinished;

        if (f->unfinished)
            err = remove_file(r, f, ret_why);
        else
            err = recover_file(r, f, &gone, ret_why);
        r->ret->unfinished += f->unfinished;
        changed[f->tenant] |= gone;
        ready.ready.next_file = f->file + 1;
    }
    if (err == TERN_OK)
        err = sync_folders(r, changed, ret_why);
    ready.ready.served_ns = r->served_ns;
    if (err == TERN_OK)
        r->emit(r->ctx, &ready);
    return err;
}

enum tern_err disk_recover_files(const struct disk_config *config,
                                 void (*emit)(void *ctx, struct event *event),
                                 void (*note)(void *ctx, const char *file, uint64_t offset,
                                              enum disk_fault fault),
                                 void *ctx, struct disk_recovery *ret, const char **ret_why)
{
    struct recovery r = {.emit = emit, .note = note, .ctx = ctx, .ret = ret};
    uint64_t begun = io_now_ns();
    enum tern_err err;

    *ret = (struct disk_recovery){.files = 0};
    r.scan.config = config;
    r.scan.files = config->files;
    r.scan.found = recovered;
    r.scan.ctx = &r;
    TRY(disk_scan_begin(&r.scan, ret_why));
    err = recover_all(&r, ret_why);
    disk_scan_end(&r.scan);
    ret->ns = io_now_ns() - begun;
    return err;
}

enum tern_err disk_recover(struct disk *disk, void (*emit)(void *ctx, struct event *event),
                           void (*note)(void *ctx, const char *file, uint64_t offset,
                                        enum disk_fault fault),
                           void *ctx, struct disk_recovery *ret, const char **ret_why)
{
    enum tern_err err;

    check(!disk->recovered);
    disk->recovered = true;
    err = disk_recover_files(&disk->config, emit, note, ctx, ret, ret_why);
    explicit_bzero(disk->config.key, sizeof disk->config.key); /* each thread has its own context */
    return err;
}

struct verification {
    void (*found)(void *ctx, const struct disk_verified *v);
    void *ctx;
};

static void verified(void *ctx, const struct scan_found *f)
{
    struct verification *to = ctx;
    struct disk_verified v = {
        .tenant = f->tenant, .file = f->name, .extent = f->head.extent, .fault = f->fault};

    if (!f->hole)
        to->found(to->ctx, &v);
}

enum tern_err disk_verify(const struct disk_config *config,
                          void (*found)(void *ctx, const struct disk_verified *v), void *ctx,
                          const char **ret_why)
{
    const struct file_ops_config c = {.dir = config->dir, .lanes = 1};
    struct verification to = {.found = found, .ctx = ctx};
    struct disk_scan scan = {
        .config = config, .files = config->files, .bodies = true, .found = verified, .ctx = &to};
    struct disk_file_header h;
    struct disk_files *own = NULL;
    enum tern_err err = TERN_OK;

    if (!scan.files)
        err = file_ops_create(&c, &own, ret_why);
    if (err == TERN_OK) {
        scan.files = own ? own : scan.files;
        err = disk_scan_begin(&scan, ret_why);
    }
    if (err == TERN_OK) {
        for (uint32_t i = 0; i < scan.nfiles; i++)
            if (!scan.file[i].unfinished)
                disk_scan_file(&scan, &scan.file[i], &h);
        disk_scan_end(&scan);
    }
    file_ops_destroy(own);
    return err;
}
