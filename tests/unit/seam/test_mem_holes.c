/* mem beside a tenant that tries to remove pages from memory that it shares with the daemon: it
 * cannot, or the owner waits for a small share of its time. */
#include "testing/test.h"
#include "unit/rig/rig_holes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "seam/io/io.h"
#include "seam/mem/mem.h"

#define MIB        (1u << 20)
#define SECOND_NS  1000000000ull
#define WAIT_SHARE 200u /* that of mem_host.c */
#define ENGINES    3u

static struct rig {
    struct mem *mem;
} rig;

/* refuse: as a daemon that has CAP_LINUX_IMMUTABLE, if this process has it. */
static bool rig_init(bool refuse)
{
    struct mem_config c = {.tenants = 2,
                           .engines = ENGINES,
                           .pools = 2,
                           .page_records = 2048,
                           .page_bytes_min = 4096,
                           .sums_per_page = 6,
                           .workers = 2,
                           .jobs = 8,
                           .incarnation = 1};
    const char *why = NULL;
    bool refused = holes_refused(refuse);

    c.tenant[0] = (struct tenant_config){
        .memory_bytes = 4 * MIB, .record_bytes = MIB, .regions = 2, .sessions_max = 1};
    c.tenant[1] = (struct tenant_config){.memory_bytes = 5 * MIB, .regions = 1, .sessions_max = 1};
    assert_int_equal(mem_create(&c, &rig.mem, &why), TERN_OK);
    holes_refused(true);
    return refused;
}

FIXTURE(rig_drop)
{
    mem_destroy(rig.mem);
    rig.mem = NULL;
    return 0;
}

TEST_EACH(NULL, rig_drop);

static struct mem_holes holes_of(const struct mem *mem)
{
    struct mem_stats stats;

    mem_stats(mem, &stats);
    return stats.holes;
}

/* No call removes a page under the daemon, and writes through old and new mappings still work. */
static void pages_stay(int fd, uint64_t bytes)
{
    static const int modes[] = {HOLE,
                                FALLOC_FL_ZERO_RANGE,
                                FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                                FALLOC_FL_COLLAPSE_RANGE,
                                FALLOC_FL_INSERT_RANGE,
                                FALLOC_FL_UNSHARE_RANGE,
                                FALLOC_FL_KEEP_SIZE,
                                0};
    uint8_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    assert_ptr_not_equal(map, MAP_FAILED);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(fallocate(fd, modes[i], 0, 4096), -1);
        assert_int_equal(errno, EPERM);
    }
    assert_int_equal(madvise(map, bytes, MADV_REMOVE), -1);
    assert_int_equal(errno, EPERM);
    map[0] ^= 1;
    munmap(map, bytes);
}

TEST(mem_pages_of_all_memory_that_is_handed_out_stay)
{
    if (!rig_init(true))
        skip();
    assert_int_equal(holes_of(rig.mem).memories, 0);
    for (uint32_t region = 0; region < 2; region++)
        pages_stay(mem_region_fd(rig.mem, 0, region), 4 * MIB);
    pages_stay(mem_region_fd(rig.mem, 1, 0), 5 * MIB);
    pages_stay(mem_record_fd(rig.mem, 0), MIB);
    for (uint32_t i = 0; i < 2 * ENGINES; i++)
        pages_stay(mem_control_fd(rig.mem, i / ENGINES, i % ENGINES), CONTROL_BYTES);
}

static uint64_t minor_faults(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return (uint64_t)usage.ru_minflt;
}

/* The tenant's holes are refused: the owner's page stays however often it is read. */
TEST(mem_owner_never_waits_for_memory_that_a_tenant_maps_very_often)
{
    struct holer h;
    uint64_t faults;

    if (!rig_init(true))
        skip();
    holer_start(&h, mem_control_fd(rig.mem, 0, 1), CONTROL_BYTES);
    mem_done_step(rig.mem, 0, 1, 0);
    faults = minor_faults();
    for (uint32_t i = 0; i < 100000; i++) {
        mem_done_step(rig.mem, 0, 1, i % RANKS_MAX);
        mem_want_step(rig.mem, 0, 1, i);
    }
    assert_true(minor_faults() - faults < 10);
    assert_int_equal(atomic_load(&h.shared->punched), 0);
    holer_end(&h);
    assert_int_equal(holes_of(rig.mem).waits, 0);
}

/* If holes are possible, one wait is followed by WAIT_SHARE times its length without one, and other
 * tenants' steps are read meanwhile. */
TEST(mem_owner_waits_for_holes_of_a_tenant_for_a_small_share_of_its_time)
{
    struct mem_holes holes;
    uint64_t from, until, value = 41;
    struct holer h;

    rig_init(false);
    assert_int_equal(holes_of(rig.mem).memories, 2 * 3 + 1 + 2 * ENGINES);
    assert_int_equal(pwrite(mem_control_fd(rig.mem, 1, 1), &value, sizeof value, 0), 8);
    holer_start(&h, mem_control_fd(rig.mem, 0, 1), CONTROL_BYTES);
    until = io_now_ns() + 20 * SECOND_NS;
    while ((holes = holes_of(rig.mem)).waits == 0 && io_now_ns() < until)
        mem_done_step(rig.mem, 0, 1, 0);
    assert_int_equal(holes.waits, 1);
    assert_int_equal(holes.waited_for, 0);
    from = io_now_ns();
    for (until = from + 20 * holes.waited_ns; io_now_ns() < until;) {
        mem_done_step(rig.mem, 0, 1, 0);
        mem_want_step(rig.mem, 0, 2, 7);
        mem_control_reset(rig.mem, 0, 1);
        assert_int_equal(mem_done_step(rig.mem, 1, 1, 0), 41);
    }
    printf("mem: waited_ns=%llu punches=%u\n", (unsigned long long)holes.waited_ns,
           atomic_load(&h.shared->punched));
    holer_end(&h);
    /* If the machine stood still inside the loop, the whole pause may have passed. */
    if (io_now_ns() - from < WAIT_SHARE * holes.waited_ns)
        assert_int_equal(holes_of(rig.mem).waits, 1);
}
