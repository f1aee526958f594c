/* Helpers for tests of tapes: a tape's bytes, as a dump writes them. Header only. */
#ifndef TEST_RIG_TAPE_H
#define TEST_RIG_TAPE_H

#include <stdlib.h>
#include <unistd.h>

#include "client/ctl/tape/tape_read.h"
#include "testing/test.h"

/* Owned by the caller. */
static inline uint8_t *dumped(struct tape *tape, bool keep_tokens, size_t *ret_n)
{
    char path[] = "/tmp/tern-tape-XXXXXX";
    int fd = mkstemp(path);
    uint8_t *bytes;
    off_t n;

    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(tape_dump(tape, fd, keep_tokens), TERN_OK);
    n = lseek(fd, 0, SEEK_END);
    assert_true(n > 0);
    bytes = malloc((size_t)n);
    assert_int_equal(pread(fd, bytes, (size_t)n, 0), n);
    close(fd);
    *ret_n = (size_t)n;
    return bytes;
}

#endif
