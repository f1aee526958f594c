/* Stretches of page memory through a buffer, and back; a stretch whose memory is lost costs its own
 * bytes and no others. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "seam/mem/mem_fault.h"
#include "seam/mem/mem_pack.h"
#include "testing/test.h"

#define PAGE  4096u
#define PARTS 5u

static uint8_t *base;
static int fd = -1;
static struct mem *mem; /* with host memory alone */
static struct iovec part[PARTS];

/* Five stretches of 1 to 5 times seven bytes, by turns in the first page and in the second. */
FIXTURE(map)
{
    fd = memfd_create("pages", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
    base = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    for (uint32_t i = 0; i < PARTS; i++) {
        part[i] = (struct iovec){base + i % 2 * PAGE + 100 * i, 7 * (i + 1)};
        memset(part[i].iov_base, (int)(i + 1), part[i].iov_len);
    }
    return 0;
}

FIXTURE(unmap)
{
    mem_destroy(mem);
    munmap(base, 2 * PAGE);
    close(fd);
    return 0;
}

TEST_EACH(map, unmap);

/* Called by the case itself: in between, the signals of memory are the test's own. */
static void mem_open(void)
{
    struct mem_config c = {.tenants = 1,
                           .engines = 1,
                           .pools = 1,
                           .page_records = 1,
                           .page_bytes_min = 4096,
                           .sums_per_page = 1,
                           .workers = 1,
                           .jobs = 1};
    const char *why;

    c.tenant[0] = (struct tenant_config){.memory_bytes = PAGE, .regions = 1, .sessions_max = 1};
    assert_int_equal(mem_create(&c, &mem, &why), TERN_OK);
}

/* Compares n bytes with the stretches, with `gone` in place of those of the second page. */
static void assert_packed(const uint8_t *packed, uint64_t n, bool gone)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < PARTS; i++)
        for (uint64_t k = 0; k < part[i].iov_len; k++, at++)
            assert_int_equal(packed[at], at >= n || (gone && i % 2) ? 0xee : i + 1);
}

TEST(mem_pack_takes_the_first_bytes_in_order)
{
    uint8_t packed[7 * 15];

    mem_open();
    for (uint64_t n = 0; n <= sizeof packed; n++) {
        memset(packed, 0xee, sizeof packed);
        assert_true(mem_pack(mem, packed, part, n));
        assert_packed(packed, n, false);
    }
}

TEST(mem_unpack_gives_them_back)
{
    uint8_t packed[7 * 15];

    mem_open();
    assert_true(mem_pack(mem, packed, part, sizeof packed));
    for (uint64_t n = 0; n <= sizeof packed; n++) {
        uint8_t again[7 * 15];

        for (uint32_t i = 0; i < PARTS; i++)
            memset(part[i].iov_base, 0xee, part[i].iov_len);
        assert_true(mem_unpack(mem, part, packed, n));
        assert_true(mem_pack(mem, again, part, sizeof again));
        assert_packed(again, n, false);
    }
}

/* Fault 40: the second page is lost. */
TEST(mem_pack_goes_on_behind_memory_that_is_gone)
{
    uint8_t packed[7 * 15], ones[7 * 15];

    mem_open();
    assert_true(mem_fault_watch(base, 2 * PAGE, PAGE, true));
    memset(packed, 0xee, sizeof packed);
    memset(ones, 1, sizeof ones);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    assert_false(mem_pack(mem, packed, part, sizeof packed));
    assert_packed(packed, sizeof packed, true);
    assert_false(mem_unpack(mem, part, ones, sizeof ones));
    for (uint32_t i = 0; i < PARTS; i += 2)
        assert_memory_equal(part[i].iov_base, ones, part[i].iov_len);
    mem_fault_unwatch(base);
}
