/* See raw_file.h. At depth 1 a file grows as it is written. At larger depths it is preallocated,
 * since writes that grow a file wait for each other. */
#include "raw_file.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/prng.h"
#include "engine/stats.h"

#define PIECE     (1u << 20)
#define DEPTH_MAX 16u
#define MEMORY    (DEPTH_MAX * (size_t)PIECE) /* for any depth: enough for huge pages */
#define BLOCK     4096u
#define NAME_CAP  160

struct loop {
    struct io_uring ring;
    uint8_t *memory; /* owned mapping */
    uint32_t depth;
};

static bool loop_begin(struct loop *l, uint32_t depth)
{
    struct iovec all = {.iov_len = MEMORY};
    struct prng p;

    l->depth = depth;
    l->memory = mmap(NULL, all.iov_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (l->memory == MAP_FAILED)
        return false;
    madvise(l->memory, all.iov_len, MADV_HUGEPAGE); /* as the disk tier's own memory */
    prng_init(&p, depth);
    for (size_t i = 0; i < all.iov_len / 8; i++)
        ((uint64_t *)(void *)l->memory)[i] = prng_u64(&p);
    if (io_uring_queue_init(DEPTH_MAX, &l->ring, 0) < 0) {
        munmap(l->memory, all.iov_len);
        return false;
    }
    all.iov_base = l->memory;
    return io_uring_register_buffers(&l->ring, &all, 1) == 0;
}

static void loop_end(struct loop *l)
{
    io_uring_queue_exit(&l->ring);
    munmap(l->memory, MEMORY);
}

static void post(struct loop *l, int fd, bool write, uint32_t slot, uint64_t offset)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);
    uint8_t *at = l->memory + (size_t)slot * PIECE;

    if (write)
        io_uring_prep_write_fixed(sqe, fd, at, PIECE, offset, 0);
    else
        io_uring_prep_read_fixed(sqe, fd, at, PIECE, offset, 0);
    io_uring_sqe_set_data64(sqe, slot);
    io_uring_submit(&l->ring);
}

/* Moves a whole file. */
static bool move(struct loop *l, int fd, bool write, uint64_t bytes)
{
    uint64_t asked = 0, done = 0;

    for (uint32_t slot = 0; slot < l->depth && asked < bytes; slot++, asked += PIECE)
        post(l, fd, write, slot, asked);
    for (; done < bytes; done += PIECE) {
        struct io_uring_cqe *cqe;
        uint32_t slot;

        if (io_uring_wait_cqe(&l->ring, &cqe) < 0 || cqe->res != (int32_t)PIECE)
            return false;
        slot = (uint32_t)io_uring_cqe_get_data64(cqe);
        io_uring_cqe_seen(&l->ring, cqe);
        if (asked < bytes) {
            post(l, fd, write, slot, asked);
            asked += PIECE;
        }
    }
    return true;
}

static void name_of(const struct raw_file *raw, uint32_t i, bool unfinished, char *ret)
{
    snprintf(ret, NAME_CAP, "%s/raw-%u%s", raw->dir, i, unfinished ? ".tmp" : "");
}

static bool sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;

    if (fd >= 0)
        close(fd);
    return ok;
}

/* As D3 requires: bodies, a sync, headers, a sync, the name, a sync. */
static bool write_one(const struct raw_file *raw, struct loop *l, uint32_t i)
{
    char from[NAME_CAP], to[NAME_CAP];
    bool ok;
    int fd;

    name_of(raw, i, true, from);
    name_of(raw, i, false, to);
    fd = open(from, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0)
        fd = open(from, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ok = fd >= 0 &&
         (l->depth == 1 || fallocate(fd, 0, 0, (off_t)raw->file_bytes) == 0 ||
          errno == EOPNOTSUPP) &&
         move(l, fd, true, raw->file_bytes) && fdatasync(fd) == 0 &&
         pwrite(fd, l->memory, BLOCK, 0) == BLOCK && fdatasync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok && rename(from, to) == 0 && sync_dir(raw->dir);
}

static bool read_one(const struct raw_file *raw, struct loop *l, uint32_t i)
{
    char name[NAME_CAP];
    bool ok;
    int fd;

    name_of(raw, i, false, name);
    fd = open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0)
        fd = open(name, O_RDONLY | O_CLOEXEC);
    ok = fd >= 0 && move(l, fd, false, raw->file_bytes);
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool pass(const struct raw_file *raw, uint32_t depth, bool write, double *ret_s)
{
    struct loop l;
    uint64_t start;
    bool ok = loop_begin(&l, depth);

    if (!ok)
        return false;
    start = clock_ns();
    for (uint32_t i = 0; ok && i < raw->files; i++)
        ok = write ? write_one(raw, &l, i) : read_one(raw, &l, i);
    *ret_s = (double)(clock_ns() - start) / 1e9;
    loop_end(&l);
    return ok;
}

bool raw_file_write(const struct raw_file *raw, uint32_t depth, double *ret_s)
{
    raw_file_remove(raw);
    return pass(raw, depth, true, ret_s);
}

bool raw_file_read(const struct raw_file *raw, uint32_t depth, double *ret_s)
{
    return pass(raw, depth, false, ret_s);
}

void raw_file_remove(const struct raw_file *raw)
{
    for (uint32_t i = 0; i < raw->files; i++) {
        char name[NAME_CAP];

        name_of(raw, i, true, name);
        unlink(name);
        name_of(raw, i, false, name);
        unlink(name);
    }
    sync_dir(raw->dir);
}
