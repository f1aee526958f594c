/* See disk_key_read in disk_crypt.h. */
#include "seam/disk/disk_crypt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

#define PATH_SHOWN   200 /* bytes of the path in a message */
#define HEX_DIGITS   (2 * DISK_KEY_BYTES)
#define READ_AT_ONCE 128 /* longer than any key file */
#define OTHERS       077

static enum tern_err take_key(uint8_t *text, size_t n, const char *path,
                              uint8_t ret[DISK_KEY_BYTES], char why[DISK_KEY_WHY])
{
    size_t digits = n;

    if (n == DISK_KEY_BYTES) {
        memcpy(ret, text, DISK_KEY_BYTES);
        return TERN_OK;
    }
    while (digits > 0 && (text[digits - 1] == '\n' || text[digits - 1] == '\r'))
        digits--;
    text[digits] = '\0';
    if (digits == HEX_DIGITS &&
        OPENSSL_hexstr2buf_ex(ret, DISK_KEY_BYTES, NULL, (const char *)text, '\0') == 1)
        return TERN_OK;
    explicit_bzero(ret, DISK_KEY_BYTES); /* the part that was decoded */
    snprintf(why, DISK_KEY_WHY,
             "%.*s: the file is not a key, which has 32 bytes or 64 hexadecimal digits (openssl "
             "rand -hex 32)",
             PATH_SHOWN, path);
    return TERN_INVALID;
}

static enum tern_err unreadable(const char *path, char why[DISK_KEY_WHY])
{
    snprintf(why, DISK_KEY_WHY, "%.*s: the key cannot be read: %s", PATH_SHOWN, path,
             strerror(errno));
    return TERN_DISK;
}

static enum tern_err read_open(int fd, const char *path, uint8_t ret[DISK_KEY_BYTES],
                               char why[DISK_KEY_WHY])
{
    uint8_t text[READ_AT_ONCE];
    enum tern_err err;
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) != 0)
        return unreadable(path, why);
    if (st.st_mode & OTHERS) {
        snprintf(why, DISK_KEY_WHY,
                 "%.*s: users other than the owner may read or change this key (mode %04o): run "
                 "chmod 600 on it",
                 PATH_SHOWN, path, (unsigned)(st.st_mode & 07777));
        return TERN_DENIED;
    }
    n = read(fd, text, sizeof text - 1);
    if (n < 0)
        return unreadable(path, why);
    err = take_key(text, (size_t)n, path, ret, why);
    explicit_bzero(text, sizeof text);
    return err;
}

enum tern_err disk_key_read(const char *path, uint8_t ret[DISK_KEY_BYTES], char why[DISK_KEY_WHY])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    enum tern_err err;

    if (fd < 0)
        return unreadable(path, why);
    err = read_open(fd, path, ret, why);
    close(fd);
    return err;
}
