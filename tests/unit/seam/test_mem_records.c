/* Turn records in real memory: workers check them while memory is lost, while others need the
 * workers, and while all of it ends. */
#include "testing/test.h"
#include "unit/rig/rig_lost.h"
#include "unit/rig/rig_mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MIB     (1u << 20)
#define JOBS    24
#define RECORDS 16

static struct mem *mem;
static struct taken back;

static const struct group_layout group = {.page_tokens = 64, .units = 1, .page_bytes = 16384};

static void start(void)
{
    struct mem_config c = {.tenants = 1,
                           .engines = 1,
                           .pools = 1,
                           .page_records = 64,
                           .page_bytes_min = 4096,
                           .sums_per_page = 1,
                           .workers = 1,
                           .jobs = JOBS,
                           .incarnation = 5};
    const char *why = NULL;

    c.tenant[0] = (struct tenant_config){
        .memory_bytes = 4 * MIB, .record_bytes = 16 * MIB, .regions = 1, .sessions_max = 1};
    memset(&back, 0, sizeof back);
    assert_int_equal(mem_create(&c, &mem, &why), TERN_OK);
    mem_pool_set(mem, 0, TIER_DEVICE, 0, 0, 4 * MIB, 1, NULL, 1, 1, &group);
}

FIXTURE(drop)
{
    mem_destroy(mem);
    mem = NULL;
    return 0;
}

TEST_EACH(NULL, drop);

/* A look at all the record memory: as many tokens as a list may have. */
static void looks(uint32_t slot)
{
    struct record_job job = {.id = {slot, 1},
                             .kind = RECORD_ROLLBACK,
                             .length = SESSION_TOKENS_MAX,
                             .nat = 1,
                             .at = {SESSION_TOKENS_MAX},
                             .before = {.bytes = 16 * MIB, .nruns = 2}};

    job.before.run[0] = (struct record_run){512, 512};
    job.before.run[1] = (struct record_run){0, 512};
    mem_check_record(mem, &job);
}

/* The address at which this process has the file mapped, from /proc. */
static uint8_t *mapping_of(int fd)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    unsigned long from, inode, at = 0;
    struct stat file;
    char line[512];

    assert_non_null(maps);
    assert_int_equal(fstat(fd, &file), 0);
    while (!at && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%*x %*s %*s %*s %lu", &from, &inode) == 2 && inode == file.st_ino)
            at = from;
    fclose(maps);
    return (uint8_t *)at; /* NOLINT(performance-no-int-to-ptr) */
}

/* Fault 40, of record memory: lost memory is no record, and the worker continues. */
TEST(mem_records_survive_memory_that_is_not_there)
{
    struct lost lost;

    start();
    lost_open(&lost, mapping_of(mem_record_fd(mem, 0)) + 700 * RECORD_PAGE_BYTES, 16384);
    lost_cut(&lost);
    looks(1);
    take_events(mem, &back, 1);
    assert_int_equal(back.got[0].checked.err, TERN_CORRUPT);
    lost_back(&lost);
    memset(lost.view + 8, 0xff, 4);
    looks(2);
    take_events(mem, &back, 2);
    assert_int_equal(back.got[1].checked.err, TERN_MALFORMED);
    assert_int_equal(back.got[1].checked.index, (700 - 512) * RECORD_PAGE_BYTES / 4 + 2);
    lost_close(&lost);
}

/* The memory of a closing pool is zeroed, however many records of whichever tenant wait. */
TEST(mem_records_let_others_have_a_worker)
{
    uint32_t at = 0;

    start();
    for (uint32_t i = 0; i < RECORDS; i++)
        looks(i);
    mem_zero(mem, (struct pool_id){0, 1});
    take_events(mem, &back, RECORDS + 1);
    while (back.got[at].kind != EV_ZEROED)
        at++;
    assert_true(at < RECORDS);
}

TEST(mem_records_looked_at_when_all_ends)
{
    for (uint32_t i = 0; i < 3; i++) {
        start();
        for (uint32_t k = 0; k < RECORDS; k++)
            looks(k);
        drop(NULL);
    }
}
