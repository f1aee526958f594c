/* Memory that can be lost: a range of a mapping is replaced by a file of the test. After a cut of
 * the file each touch raises SIGBUS, as with a hole in huge pages that cannot be filled again. */
#ifndef TEST_RIG_LOST_H
#define TEST_RIG_LOST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/mman.h>
#include <unistd.h>

struct lost {
    int fd;
    uint8_t *at;   /* borrowed: the daemon's mapping */
    uint8_t *view; /* owned: an engine's mapping */
    uint64_t bytes;
};

static inline void lost_cut(const struct lost *lost)
{
    assert_int_equal(ftruncate(lost->fd, 0), 0);
}

static inline void lost_back(const struct lost *lost)
{
    assert_int_equal(ftruncate(lost->fd, (off_t)lost->bytes), 0);
}

static inline void lost_open(struct lost *lost, void *at, uint64_t bytes)
{
    *lost = (struct lost){.fd = memfd_create("lost", MFD_CLOEXEC), .at = at, .bytes = bytes};
    lost_back(lost);
    assert_ptr_equal(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, lost->fd, 0),
                     at);
    lost->view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, lost->fd, 0);
    assert_ptr_not_equal(lost->view, MAP_FAILED);
}

/* Both mappings show what either wrote. Called while the memory exists. */
static inline void lost_is_one(const struct lost *lost)
{
    for (uint64_t i = 0; i < lost->bytes; i += 4096) {
        lost->view[i] = (uint8_t)(i / 4096 + 1);
        assert_int_equal(lost->at[i], lost->view[i]);
        lost->at[i + 1] = (uint8_t)(i / 4096 + 2);
        assert_int_equal(lost->view[i + 1], lost->at[i + 1]);
    }
}

static inline void lost_close(struct lost *lost)
{
    munmap(lost->view, lost->bytes);
    close(lost->fd);
}

#endif
