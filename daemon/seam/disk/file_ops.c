/* See file_ops.h. A file is a descriptor. A lane keeps the pieces that it has in flight, so that a
 * read or write that the kernel cut short resumes where it ended.
 *
 * Invariant: different threads may use a ring, one after the other (the owner reads by lane 0 at
 * start), so a ring is made without the flags that bind it to one thread. After file_ops_create
 * only list allocates, and only starts and verifications call list. */
#include "seam/disk/file_ops.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.h"
#include "core/disk.h"
#include "seam/io/uring_compat.h"

#define FOLDER_MODE 0700
#define FILE_MODE   0600

static const uint8_t opcodes_used[] = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED,
                                       IORING_OP_WRITE_FIXED};
#define OPCODES_USED (sizeof opcodes_used)

struct op {
    bool used, write;
    int file;
    struct disk_piece left; /* the rest of the piece */
};

struct lane {
    struct io_uring ring;
    bool made, registered;
    struct op op[DISK_LANE_PIECES];
};

struct file_ops {
    struct disk_files files;
    int dir, lock;    /* their numbers stay; make_dir may replace the directories behind them */
    const char *path; /* borrowed: of the directory */
    pthread_mutex_t making;
    uint8_t *staging; /* borrowed */
    uint64_t lane_bytes;
    uint32_t lanes;
    struct lane *lane; /* owned, lanes of them */
};

/* ------------------------------------------------------------------ names and files */

/* Returns false if the name has no folder, or its folder is longer than any of ours. */
static bool folder_of(const char *name, char ret[DISK_NAME_MAX])
{
    size_t n = strcspn(name, "/");

    if (n == 0 || n >= DISK_NAME_MAX || !name[n])
        return false;
    memcpy(ret, name, n);
    ret[n] = '\0';
    return true;
}

static int sync_fd(int fd, int (*how)(int fd))
{
    return TEMP_FAILURE_RETRY(how(fd)) < 0 ? -errno : 0;
}

static bool files_gone(void *ctx)
{
    const struct file_ops *ops = ctx;
    struct stat st;

    return fstat(ops->dir, &st) == 0 && st.st_nlink == 0;
}

static int open_lock(int dir)
{
    return openat(dir, FILE_OPS_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
}

/* Makes the removed directory again, ours alone as before. */
static int make_dir(struct file_ops *ops)
{
    int dir = -1, lock = -1, r = 0;

    pthread_mutex_lock(&ops->making);
    if (!files_gone(ops))
        goto out_unlock; /* another thread has made it */
    if (mkdir(ops->path, FOLDER_MODE) == 0 || errno == EEXIST)
        dir = open(ops->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lock = dir < 0 ? -1 : open_lock(dir);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0 || dup3(lock, ops->lock, O_CLOEXEC) < 0 ||
        dup3(dir, ops->dir, O_CLOEXEC) < 0)
        r = -errno;
    if (lock >= 0)
        close(lock);
    if (dir >= 0)
        close(dir);

out_unlock:
    pthread_mutex_unlock(&ops->making);
    return r;
}

/* The tenant's folder must be as durable as its files. */
static int make_folder(struct file_ops *ops, const char *name)
{
    char folder[DISK_NAME_MAX];
    int r;

    if (!folder_of(name, folder))
        return -EINVAL;
    if (files_gone(ops) && (r = make_dir(ops)) < 0)
        return r;
    if (mkdirat(ops->dir, folder, FOLDER_MODE) < 0)
        return errno == EEXIST ? 0 : -errno;
    return sync_fd(ops->dir, fsync);
}

static int open_flags(const struct file_ops *ops)
{
    return O_CLOEXEC | O_NOFOLLOW | (ops->files.direct ? O_DIRECT : 0);
}

static int files_make(void *ctx, const char *name, int *ret)
{
    struct file_ops *ops = ctx;
    int flags = O_RDWR | O_CREAT | O_EXCL | open_flags(ops);
    int fd = openat(ops->dir, name, flags, FILE_MODE);

    if (fd < 0 && errno == ENOENT) {
        int r = make_folder(ops, name);

        if (r < 0)
            return r;
        fd = openat(ops->dir, name, flags, FILE_MODE);
    }
    if (fd < 0)
        return -errno;
    *ret = fd;
    return 0;
}

static int files_open(void *ctx, const char *name, int *ret, uint64_t *ret_bytes)
{
    const struct file_ops *ops = ctx;
    int fd = openat(ops->dir, name, O_RDWR | open_flags(ops));
    struct stat st;

    if (fd < 0 && (errno == EACCES || errno == EROFS))
        fd = openat(ops->dir, name, O_RDONLY | open_flags(ops));
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -ENOENT; /* not a file of ours */
    }
    *ret = fd;
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}

static void files_close(void *ctx, int file)
{
    (void)ctx;
    close(file);
}

static int files_reserve(void *ctx, int file, uint64_t bytes)
{
    (void)ctx;
    return TEMP_FAILURE_RETRY(fallocate(file, 0, 0, (off_t)bytes)) < 0 && errno != EOPNOTSUPP
               ? -errno
               : 0;
}

static int files_sync(void *ctx, int file)
{
    (void)ctx;
    return sync_fd(file, fdatasync);
}

static int files_rename(void *ctx, const char *from, const char *to)
{
    const struct file_ops *ops = ctx;

    return renameat2(ops->dir, from, ops->dir, to, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

static int files_sync_folder(void *ctx, const char *name)
{
    const struct file_ops *ops = ctx;
    char folder[DISK_NAME_MAX];
    int fd, r;

    if (!folder_of(name, folder))
        return -EINVAL;
    fd = openat(ops->dir, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = sync_fd(fd, fsync);
    close(fd);
    return r;
}

static int files_remove(void *ctx, const char *name)
{
    const struct file_ops *ops = ctx;

    return unlinkat(ops->dir, name, 0) < 0 ? -errno : 0;
}

static int files_punch(void *ctx, int file, uint64_t offset, uint64_t bytes)
{
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

    (void)ctx;
    return TEMP_FAILURE_RETRY(fallocate(file, mode, (off_t)offset, (off_t)bytes)) < 0 ? -errno : 0;
}

static int files_list(void *ctx, const char *tenant, void (*found)(void *to, const char *name),
                      void *to)
{
    const struct file_ops *ops = ctx;
    int fd = openat(ops->dir, tenant, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r;
    struct dirent *entry;
    DIR *dir;

    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    dir = fdopendir(fd);
    if (!dir) {
        r = -errno;
        close(fd);
        return r;
    }
    for (errno = 0; (entry = readdir(dir)) != NULL; errno = 0)
        if (entry->d_name[0] != '.')
            found(to, entry->d_name);
    r = -errno;
    closedir(dir);
    return r;
}

static int files_room(void *ctx, uint64_t *ret_bytes)
{
    const struct file_ops *ops = ctx;
    struct statvfs st;

    if (fstatvfs(ops->dir, &st) < 0)
        return -errno;
    *ret_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

/* ------------------------------------------------------------------ lanes */

static bool lies_in_lane(const struct file_ops *ops, uint32_t lane, const struct disk_piece *p)
{
    uintptr_t from = (uintptr_t)ops->staging + lane * ops->lane_bytes, at = (uintptr_t)p->memory;

    return ops->lane[lane].registered && at >= from && at - from <= ops->lane_bytes &&
           p->bytes <= ops->lane_bytes - (at - from);
}

static int post(struct file_ops *ops, uint32_t lane, uint32_t i)
{
    struct lane *l = &ops->lane[lane];
    const struct op *op = &l->op[i];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);
    bool fixed = lies_in_lane(ops, lane, &op->left);
    int r;

    check(sqe); /* the queue has an entry for each op */
    io_uring_prep_rw(fixed ? (op->write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED)
                           : (op->write ? IORING_OP_WRITE : IORING_OP_READ),
                     sqe, op->file, op->left.memory, (unsigned)op->left.bytes, op->left.offset);
    sqe->buf_index = 0; /* the lane's memory is one buffer */
    io_uring_sqe_set_data64(sqe, i);
    do
        r = io_uring_submit(&l->ring);
    while (r == -EINTR || r == -EAGAIN);
    return r < 0 ? r : 0;
}

static int files_submit(void *ctx, uint32_t lane, int file, bool write,
                        const struct disk_piece *piece)
{
    struct file_ops *ops = ctx;
    uint32_t i = 0;

    check(lane < ops->lanes && piece->bytes > 0 && piece->bytes <= INT32_MAX);
    check(((uintptr_t)piece->memory | piece->bytes | piece->offset) % DISK_BLOCK == 0);
    while (i < DISK_LANE_PIECES && ops->lane[lane].op[i].used)
        i++;
    check(i < DISK_LANE_PIECES);
    ops->lane[lane].op[i] = (struct op){.used = true, .write = write, .file = file, .left = *piece};
    return post(ops, lane, i);
}

/* Handles the kernel's result of an op: 1: it must resume; 0: all was moved; otherwise its
 * error. */
static int moved(struct op *op, int32_t res)
{
    if (res == -EINTR || res == -EAGAIN)
        return 1;
    if (res < 0)
        return res;
    if ((uint64_t)res == op->left.bytes)
        return 0;
    if (res == 0 || (uint32_t)res % DISK_BLOCK != 0)
        return op->write ? -EIO : -ENODATA; /* a read ends within a block only at the file's end */
    op->left.memory = (uint8_t *)op->left.memory + res;
    op->left.bytes -= (uint32_t)res;
    op->left.offset += (uint32_t)res;
    return 1;
}

static int files_reap(void *ctx, uint32_t lane, uint64_t *ret_token)
{
    struct file_ops *ops = ctx;
    struct lane *l = &ops->lane[lane];
    struct io_uring_cqe *cqe;
    struct op *op;
    uint32_t i;
    int r;

    do {
        do
            r = io_uring_wait_cqe(&l->ring, &cqe);
        while (r == -EINTR);
        check(r == 0);
        i = (uint32_t)io_uring_cqe_get_data64(cqe);
        check(i < DISK_LANE_PIECES && l->op[i].used);
        op = &l->op[i];
        r = moved(op, cqe->res);
        io_uring_cqe_seen(&l->ring, cqe);
        if (r == 1) {
            r = post(ops, lane, i);
            r = r < 0 ? r : 1;
        }
    } while (r == 1);
    op->used = false;
    *ret_token = op->left.token;
    return r;
}

/* ------------------------------------------------------------------ life */

/* Restricts the ring to the calls that it needs, like the rings of connections. Registering the
 * memory is optional: a kernel that refuses to pin so much still moves it. */
static int lane_create(struct file_ops *ops, uint32_t i)
{
    struct lane *lane = &ops->lane[i];
    struct iovec memory = {ops->staging ? ops->staging + i * ops->lane_bytes : NULL,
                           ops->lane_bytes};
    int r = io_uring_queue_init(DISK_LANE_PIECES, &lane->ring,
                                IORING_SETUP_R_DISABLED | IORING_SETUP_SUBMIT_ALL |
                                    IORING_SETUP_COOP_TASKRUN);

    if (r < 0)
        return r;
    lane->made = true;
    lane->registered = ops->staging && io_uring_register_buffers(&lane->ring, &memory, 1) == 0;
    return uring_enable(&lane->ring, opcodes_used, OPCODES_USED, 0);
}

static const char *why_no_dir(int err)
{
    switch (err) {
    case ENOENT: return "the spill directory does not exist: make it, for the daemon's user alone";
    case ENOTDIR: return "the spill directory is not a directory: name another path";
    case EACCES:
    case EPERM:
        return "the daemon may not write to the spill directory: chown it to the daemon's user, "
               "with mode 0700";
    case EROFS: return "the spill directory is on a read-only file system";
    default: return "the spill directory cannot be opened";
    }
}

/* Some file systems accept the flag but have no direct I/O. If there is no lock file, nobody has
 * ever written here. */
static bool has_direct(int dir)
{
    int fd = openat(dir, FILE_OPS_LOCK, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
    struct statfs st;
    bool direct = fd >= 0 && fstatfs(fd, &st) == 0 && st.f_type != TMPFS_MAGIC;

    if (fd >= 0)
        close(fd);
    return direct;
}

static enum tern_err take_dir(struct file_ops *ops, const struct file_ops_config *config,
                              const char **ret_why)
{
    ops->dir = open(config->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ops->dir < 0) {
        *ret_why = why_no_dir(errno);
        return TERN_DISK;
    }
    if (config->lock && (ops->lock = open_lock(ops->dir)) < 0) {
        *ret_why = why_no_dir(errno);
        return TERN_DISK;
    }
    if (config->lock && flock(ops->lock, LOCK_EX | LOCK_NB) < 0) {
        *ret_why = "another daemon uses the spill directory: give each daemon its own";
        return TERN_CONFLICT;
    }
    ops->files.direct = has_direct(ops->dir);
    return TERN_OK;
}

enum tern_err file_ops_create(const struct file_ops_config *config, struct disk_files **ret,
                              const char **ret_why)
{
    struct file_ops *ops = calloc(1, sizeof *ops);
    enum tern_err err = TERN_INTERNAL;

    *ret_why = "no memory for the files of the disk tier";
    if (!ops)
        return TERN_INTERNAL;
    ops->files = (struct disk_files){
        .make = files_make,
        .open = files_open,
        .close = files_close,
        .reserve = files_reserve,
        .submit = files_submit,
        .reap = files_reap,
        .sync = files_sync,
        .rename = files_rename,
        .sync_folder = files_sync_folder,
        .remove = files_remove,
        .punch = files_punch,
        .list = files_list,
        .room = files_room,
        .gone = files_gone,
        .ctx = ops,
    };
    ops->dir = ops->lock = -1;
    ops->path = config->dir;
    pthread_mutex_init(&ops->making, NULL);
    ops->staging = config->staging;
    ops->lane_bytes = config->lane_bytes;
    ops->lane = calloc(config->lanes, sizeof *ops->lane);
    if (!ops->lane)
        goto out_destroy;
    ops->lanes = config->lanes;
    err = take_dir(ops, config, ret_why);
    for (uint32_t i = 0; err == TERN_OK && i < ops->lanes; i++) {
        if (lane_create(ops, i) >= 0)
            continue;
        *ret_why =
            "no io_uring for the disk tier: raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE=), allow "
            "io_uring (sysctl kernel.io_uring_disabled, seccomp), or lower spill.threads";
        err = TERN_INTERNAL;
    }
    if (err != TERN_OK)
        goto out_destroy;
    *ret_why = NULL;
    *ret = &ops->files;
    return TERN_OK;

out_destroy:
    file_ops_destroy(&ops->files);
    return err;
}

void file_ops_destroy(struct disk_files *files)
{
    struct file_ops *ops = files ? files->ctx : NULL;

    if (!ops)
        return;
    for (uint32_t i = 0; ops->lane && i < ops->lanes; i++)
        if (ops->lane[i].made)
            io_uring_queue_exit(&ops->lane[i].ring);
    free(ops->lane);
    if (ops->lock >= 0)
        close(ops->lock);
    if (ops->dir >= 0)
        close(ops->dir);
    pthread_mutex_destroy(&ops->making);
    free(ops);
}
