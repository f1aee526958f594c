/* See undumped.h. */
#include "base/undumped.h"

#include <stdint.h>
#include <sys/mman.h>

#define PAGE ((uintptr_t)4096)

bool undumped(void *at, size_t bytes)
{
    const uintptr_t from = ((uintptr_t)at + PAGE - 1) / PAGE * PAGE,
                    to = ((uintptr_t)at + bytes) / PAGE * PAGE;

    return from >= to || madvise((void *)from, to - from, MADV_DONTDUMP) == 0;
}

size_t undumped_bytes(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

void *undumped_take(size_t bytes, bool present)
{
    const size_t n = undumped_bytes(bytes);
    void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return NULL;
    if (present) /* huge pages if the machine has them: lookups are spread over all of it */
        (void)madvise(at, n, MADV_HUGEPAGE);
    if (undumped(at, n) && (!present || madvise(at, n, MADV_POPULATE_WRITE) == 0))
        return at;
    munmap(at, n);
    return NULL;
}

void undumped_put(void *at, size_t bytes)
{
    if (at)
        munmap(at, undumped_bytes(bytes));
}
