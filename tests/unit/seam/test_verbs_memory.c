/* Registration of the tenants' memory with a device that is played here: the registered ranges, the
 * number of threads, and the cleanup when a registration fails. */

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "seam/xfer/verbs/verbs.h"
#include "testing/test.h"
#include "unit/rig/rig_mrs.h"

#define TENANTS 3u
#define GIB     ((uint64_t)1 << 30)
#define WAIT_MS 30000u

/* ------------------------------------------------------------------ the device and the memory */

static struct ibv_pd pds[TENANTS];
static uint32_t npds;
static atomic_uint tried, at_once, most_at_once, waited_ms;
static atomic_int opened, always; /* access rights that some registration has, and that all have */
static uint32_t fail_at;          /* number of the registration that fails; 0: none */
static int fail_errno;
static bool with_another; /* the first ones wait until two are under way, WAIT_MS at most */
static uint64_t tenant_bytes[TENANTS];
static uint32_t regions;

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
    (void)ctx;
    assert_true(npds < TENANTS);
    return &pds[npds++];
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    (void)pd;
    npds--;
    return 0;
}

static int registration_error(const struct registration *r)
{
    uint32_t now = atomic_fetch_add(&at_once, 1) + 1, most = atomic_load(&most_at_once);
    const struct timespec pause = {.tv_nsec = 1000000};

    atomic_fetch_or(&opened, r->access);
    atomic_fetch_and(&always, r->access);
    while (now > most && !atomic_compare_exchange_weak(&most_at_once, &most, now))
        ;
    while (with_another && atomic_load(&most_at_once) < 2 &&
           atomic_fetch_add(&waited_ms, 1) < WAIT_MS)
        nanosleep(&pause, NULL);
    atomic_fetch_sub(&at_once, 1);
    return atomic_fetch_add(&tried, 1) + 1 == fail_at ? fail_errno : 0;
}

/* Never touched: only its addresses are needed. */
uint8_t *mem_region_base(const struct mem *mem, uint32_t tenant, uint32_t region,
                         uint64_t *ret_bytes)
{
    (void)mem;
    *ret_bytes = tenant_bytes[tenant];
    return (uint8_t *)(uintptr_t)(((uint64_t)tenant + 1) << 44 | (uint64_t)region << 40);
}

/* None of it is GPU memory: test_verbs_far.c. */
const char *mem_region_device(const struct mem *mem, uint32_t tenant, uint32_t region,
                              uint64_t *ret_bytes, bool *ret_lost)
{
    (void)mem, (void)tenant, (void)region, (void)ret_bytes, (void)ret_lost;
    return NULL;
}

void memory_register_far(struct verbs *of, struct verbs_rail *to, uint32_t tenant)
{
    (void)of, (void)to, (void)tenant;
    fail_msg("there is none");
}

bool memory_far_lost(const struct verbs *of, uint32_t pool)
{
    (void)of, (void)pool;
    return false;
}

uint32_t mem_region_count(const struct mem *mem, uint32_t tenant)
{
    (void)mem, (void)tenant;
    return regions;
}

const struct pool_place *mem_place(const struct mem *mem, uint32_t pool)
{
    static const struct pool_place place = {.tier = TIER_HOST};

    (void)mem, (void)pool;
    return &place;
}

/* ------------------------------------------------------------------ the rig */

static uint64_t told_done, told_all;
static uint32_t told_threads, tells;

static void progress(void *ctx, const char *device, uint64_t done, uint64_t all, uint32_t threads,
                     uint64_t ns)
{
    (void)ctx, (void)device, (void)ns;
    told_done = done;
    told_all = all;
    told_threads = threads;
    tells++;
}

static struct xfer xfer;
static struct verbs v;
static struct verbs_rail rail;
static char why[160];

static void rig(uint64_t bytes, uint32_t nregions, uint64_t mr_bytes_max)
{
    xfer = (struct xfer){.config.rdma = {.serves = true,
                                         .pulls = 1,
                                         .tenants = TENANTS,
                                         .mr_bytes_max = mr_bytes_max,
                                         .progress = progress}};
    v = (struct verbs){.xfer = &xfer, .tenants = TENANTS};
    rail = (struct verbs_rail){.v = &v, .view = {.max_mr_bytes = UINT64_MAX}};
    for (uint32_t t = 0; t < TENANTS; t++)
        tenant_bytes[t] = bytes;
    regions = nregions;
    fail_at = 0;
    with_another = false;
    npds = tells = 0;
    atomic_store(&registered, 0);
    atomic_store(&tried, 0);
    atomic_store(&most_at_once, 0);
    atomic_store(&opened, 0);
    atomic_store(&always, -1);
}

/* The registrations cover every byte of every region once, in the domain of its tenant. */
static void covers_all(void)
{
    for (uint32_t t = 0; t < TENANTS; t++) {
        const struct verbs_domain *d = &rail.domain[t];
        uint64_t bytes, at = 0;
        uint32_t region = 0;

        for (uint32_t i = 0; i < d->n; i++) {
            const struct verbs_mr *mr = &d->mr[i];

            assert_int_equal(mr->region, region);
            assert_int_equal(mr->offset, at);
            assert_ptr_equal(mr->base, mem_region_base(NULL, t, region, &bytes) + at);
            assert_ptr_equal(mr->mr->addr, mr->base);
            assert_int_equal(mr->mr->length, mr->bytes);
            assert_ptr_equal(mr->mr->pd, d->pd);
            at += mr->bytes;
            if (at == bytes) {
                region++;
                at = 0;
            }
        }
        assert_int_equal(region, regions);
    }
}

/* ------------------------------------------------------------------ cases */

TEST(verbs_memory_small_is_one_registration_a_region)
{
    rig(64u << 20, 2, 0);
    assert_true(memory_register(&v, &rail, why, sizeof why));
    covers_all();
    assert_int_equal(rail.view.registrations, TENANTS * 2);
    assert_int_equal(rail.view.registered_bytes, TENANTS * 2 * (uint64_t)(64u << 20));
    assert_int_equal(atomic_load(&most_at_once), 1);
    assert_int_equal(tells, 1);
    assert_int_equal(told_done, told_all);
    memory_close(&v, &rail);
    assert_int_equal(atomic_load(&registered) + npds, 0);
}

/* No key permits remote reads, and none permits remote writes outside a memory window. */
TEST(verbs_memory_is_open_to_windows_alone)
{
    for (int windows = 0; windows < 2; windows++) {
        rig(64u << 20, 2, 0);
        rail.view.memory_windows = windows;
        assert_true(memory_register(&v, &rail, why, sizeof why));
        assert_int_equal(atomic_load(&opened), atomic_load(&always));
        assert_int_equal(atomic_load(&opened),
                         windows ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND : 0);
        memory_close(&v, &rail);
    }
}

TEST(verbs_memory_is_cut_at_what_the_device_takes)
{
    rig(100u << 20, 1, 0);
    rail.view.max_mr_bytes = (16u << 20) + 5;
    assert_true(memory_register(&v, &rail, why, sizeof why));
    covers_all();
    assert_int_equal(rail.domain[0].n, 7);
    memory_close(&v, &rail);
    rig(300u << 20, 1, 4u << 20); /* 75 of them */
    assert_false(memory_register(&v, &rail, why, sizeof why));
    assert_non_null(strstr(why, "more than 64 registrations"));
    memory_close(&v, &rail);
    assert_int_equal(atomic_load(&registered) + npds, 0);
}

TEST(verbs_memory_large_is_registered_by_several_threads)
{
    rig(100 * GIB, 4, 0);
    with_another = sysconf(_SC_NPROCESSORS_ONLN) > 1;
    assert_true(memory_register(&v, &rail, why, sizeof why));
    covers_all();
    for (uint32_t t = 0; t < TENANTS; t++) {
        assert_int_equal(rail.domain[t].n, VERBS_REGISTER_THREADS);
        for (uint32_t i = 0; i < rail.domain[t].n; i++)
            assert_int_equal(rail.domain[t].mr[i].bytes, 25 * GIB); /* equal parts for each */
    }
    assert_int_equal(told_done, TENANTS * 4 * 100 * GIB);
    if (with_another) {
        assert_true(told_threads > 1);
        assert_true(atomic_load(&most_at_once) > 1);
    }
    memory_close(&v, &rail);
    assert_int_equal(atomic_load(&registered) + npds, 0);
}

/* Fault 20: whichever registration fails, the device is left out, with a reason, without
 * leftovers. */
TEST(verbs_memory_fault_20_each_failure_says_why_and_leaves_nothing)
{
    static const uint64_t bytes[] = {64u << 20, 8 * GIB};
    uint32_t points = 0;

    for (uint32_t big = 0; big < 2; big++) {
        for (uint32_t k = 1, all = 1; k <= all; k++, points++) {
            rig(bytes[big], 2, 0);
            assert_true(memory_register(&v, &rail, why, sizeof why));
            all = (uint32_t)rail.view.registrations;
            memory_close(&v, &rail);
            rig(bytes[big], 2, 0);
            fail_at = k;
            fail_errno = k % 2 ? ENOMEM : EINVAL;
            assert_false(memory_register(&v, &rail, why, sizeof why));
            assert_non_null(strstr(why, k % 2 ? "RLIMIT_MEMLOCK" : "Invalid argument"));
            memory_close(&v, &rail);
            assert_int_equal(atomic_load(&registered) + npds, 0);
        }
    }
    printf("fault=20 runs=%u injected=%u violations=0 points=%u/%u\n", points, points, points,
           points);
}
