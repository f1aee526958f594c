/* Saves a tape: writes it beside the old file and renames it, so that a full disk loses only the
 * new tape. tape_save may run in a signal handler; tapes_keep may not. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shell/tape/tape.h"

#define TMP_SUFFIX ".tmp"
#define HEX_DIGITS 16 /* of an incarnation */

/* Only a plain file may be replaced, not a device or the target of a symbolic link. 0: allowed. */
static int refused(const char *path)
{
    struct stat st;

    if (lstat(path, &st) != 0 || S_ISREG(st.st_mode))
        return 0;
    if (S_ISLNK(st.st_mode))
        return ELOOP;
    return S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
}

enum tern_err tape_save(struct tape *tape, const char *path, bool keep_tokens, int *ret_errno)
{
    char tmp[PATH_MAX + sizeof TMP_SUFFIX];
    size_t n = strlen(path);
    enum tern_err err;
    int fd, why = n < PATH_MAX ? refused(path) : ENAMETOOLONG;

    *ret_errno = why;
    if (why != 0)
        return TERN_DISK;
    memcpy(tmp, path, n);
    memcpy(tmp + n, TMP_SUFFIX, sizeof TMP_SUFFIX);
    unlink(tmp); /* left by a daemon that died while it wrote */
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    *ret_errno = errno;
    if (fd < 0)
        return TERN_DISK;
    err = tape_dump(tape, fd, keep_tokens);
    *ret_errno = errno;
    if (close(fd) != 0 && err == TERN_OK) {
        *ret_errno = errno;
        err = TERN_DISK;
    }
    if (err == TERN_OK && rename(tmp, path) != 0) {
        *ret_errno = errno;
        err = TERN_DISK;
    }
    if (err != TERN_OK)
        unlink(tmp);
    return err;
}

const char *tape_save_hint(int err)
{
    switch (err) {
    case ENOENT:
    case ENOTDIR: return "give it a path in a folder that exists for the daemon";
    case ENOSPC:
    case EDQUOT: return "free space, or give it a path on another disk";
    case EMFILE: return "raise RLIMIT_NOFILE (LimitNOFILE=) of the daemon, or end connections";
    case ENAMETOOLONG: return "give it a shorter path";
    case EFBIG: return "raise RLIMIT_FSIZE (LimitFSIZE=) of the daemon, or lower tape.bytes";
    case EINVAL:
    case ELOOP:
    case EISDIR: return "give it the path of a plain file";
    default: return "the daemon writes the file: give it a path that the daemon may write";
    }
}

void tape_crash_name(char *ret, size_t cap, const char *file, uint64_t incarnation)
{
    snprintf(ret, cap, "%s.%016llx", file, (unsigned long long)incarnation);
}

static bool is_of_crash(const char *name, const char *prefix, bool *ret_tmp)
{
    size_t n = strlen(prefix);

    if (strncmp(name, prefix, n) != 0 || name[n] != '.' ||
        strspn(name + n + 1, "0123456789abcdef") != HEX_DIGITS)
        return false;
    name += n + 1 + HEX_DIGITS;
    *ret_tmp = strcmp(name, TMP_SUFFIX) == 0;
    return *ret_tmp || *name == '\0';
}

static bool older(const struct stat *a, const struct stat *b)
{
    return a->st_mtim.tv_sec != b->st_mtim.tv_sec ? a->st_mtim.tv_sec < b->st_mtim.tv_sec
                                                  : a->st_mtim.tv_nsec < b->st_mtim.tv_nsec;
}

/* Counts the tapes and finds the oldest one. Deletes incomplete tapes. */
static uint32_t look(DIR *dir, const char *prefix, char ret_oldest[NAME_MAX + 1])
{
    struct stat st, oldest = {0};
    uint32_t found = 0;
    struct dirent *e;
    bool tmp;

    rewinddir(dir);
    while ((e = readdir(dir)) != NULL) {
        if (!is_of_crash(e->d_name, prefix, &tmp) ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (tmp) {
            unlinkat(dirfd(dir), e->d_name, 0);
            continue;
        }
        if (found++ == 0 || older(&st, &oldest)) {
            oldest = st;
            snprintf(ret_oldest, NAME_MAX + 1, "%s", e->d_name);
        }
    }
    return found;
}

uint32_t tapes_keep(const char *file, uint32_t most)
{
    char folder[PATH_MAX], oldest[NAME_MAX + 1];
    const char *slash = strrchr(file, '/');
    uint32_t found;
    DIR *dir;

    if ((size_t)snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - file + 1) : 1,
                         slash ? file : ".") >= sizeof folder)
        return 0;
    dir = opendir(folder);
    if (!dir)
        return 0;
    while ((found = look(dir, slash ? slash + 1 : file, oldest)) > most)
        if (unlinkat(dirfd(dir), oldest, 0) != 0)
            break;
    closedir(dir);
    return found;
}
