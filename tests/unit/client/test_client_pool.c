/* Mapping pools: how libtern uses the descriptors that it receives, and the one store of
 * tern_done_step. The daemon is the test's own; both sides map the same memfd. */

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "client/libtern/internal.h"
#include "core/limits.h"
#include "kernels/driver.h"
#include "unit/rig/rig_fds.h"

/* The client may not include the daemon's headers, so it has these numbers, too; a test may
 * compare. */
_Static_assert(TERN_RANKS_MAX == RANKS_MAX, "ranks");

#define CONTROL (2 * 4096u) /* bytes of a control page */
_Static_assert(TERN_GROUPS_MAX == GROUPS_MAX, "groups");
_Static_assert(TERN_BATCH_OPS_MAX == STEP_OPS_MAX, "operations of a step");
_Static_assert(QUICK_RUNS_MAX == REPLY_RUNS_MAX, "runs of an answer");

#define REGION (64u << 10)
#define OFFSET (16u << 10)
#define BYTES  (32u << 10)

enum twist {
    GOOD,
    NO_FDS,
    ONE_FD,
    FOUR_FDS,     /* but three were announced */
    SUMS_MISSING, /* four were announced, three came */
    FIVE_FDS,
    TOO_SHORT, /* the region ends inside the range */
    OVERFLOWS, /* offset + bytes wraps */
    EMPTY_RANGE,
    CONTROL_SHORT,
    OTHER_INCARNATION,
    EVENTFD,      /* as the bell */
    BUSY_TWICE,   /* answers the first two PoolMaps BUSY */
    LATE,         /* answered after the client timed out, before the next request's answer */
    LATE_BROKEN,  /* the same, its body is no message */
    LATE_REFUSED, /* the same, refused, together with the next answer */
    TWIST_COUNT,
};

struct memory {
    enum twist twist;
    int region, control, bell, ear; /* the two ends of the bell */
    uint8_t *region_at, *control_at;
    atomic_bool left; /* EngineLeave has come */
};

static struct memory memory;

static void memory_init(struct memory *m, enum twist twist)
{
    int pair[2];

    m->twist = twist;
    m->region = memfd_create("region", MFD_CLOEXEC);
    m->control = memfd_create("control", MFD_CLOEXEC);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    m->bell = pair[0];
    m->ear = pair[1];
    if (twist == EVENTFD) {
        close(m->bell);
        m->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    assert_int_equal(ftruncate(m->region, REGION), 0);
    assert_int_equal(ftruncate(m->control, twist == CONTROL_SHORT ? 512 : CONTROL), 0);
    m->region_at = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, m->region, 0);
    m->control_at = mmap(NULL, CONTROL, PROT_READ | PROT_WRITE, MAP_SHARED, m->control, 0);
    if (twist != CONTROL_SHORT)
        *(uint64_t *)(void *)(m->control_at + 64 * RANKS_MAX) =
            FAKE_INCARNATION + (twist == OTHER_INCARNATION);
    atomic_store(&m->left, false);
}

static void memory_finish(struct memory *m)
{
    munmap(m->region_at, REGION);
    munmap(m->control_at, CONTROL);
    close(m->region);
    close(m->control);
    close(m->bell);
    close(m->ear);
    *m = (struct memory){.region = -1, .control = -1, .bell = -1, .ear = -1};
}

static void reply_map(struct fake *f, struct memory *m, bool broken)
{
    Tern__Wire__PoolMapReply reply = TERN__WIRE__POOL_MAP_REPLY__INIT;
    Tern__Wire__BroughtSums sums = TERN__WIRE__BROUGHT_SUMS__INIT;
    static const size_t count[TWIST_COUNT] = {
        [NO_FDS] = 0, [ONE_FD] = 1, [FOUR_FDS] = 4, [FIVE_FDS] = 5};
    int fds[5] = {m->region, m->control, m->bell, m->region, m->region};
    uint8_t frame[256];
    size_t n, nfds = count[m->twist] || m->twist == NO_FDS ? count[m->twist] : 3;

    reply.has_offset = reply.has_bytes = 1;
    reply.offset = m->twist == TOO_SHORT   ? REGION - 4096
                   : m->twist == OVERFLOWS ? UINT64_MAX - 4095
                                           : OFFSET;
    reply.sums = m->twist == SUMS_MISSING ? &sums : NULL;
    reply.bytes = m->twist == EMPTY_RANGE ? 0 : BYTES;
    n = fake_pack(FRAME_POOL_MAP_REPLY, f->h.request_id, &reply, frame, sizeof(frame));
    if (broken)
        memset(frame + FRAME_HEADER_BYTES, 0xff, n - FRAME_HEADER_BYTES);
    send_fds(f, frame, n, fds, nfds);
}

/* One message, whose descriptors belong to its second frame. */
static void reply_refusal_and_map(struct fake *f, struct memory *m, uint64_t refused)
{
    Tern__Wire__PoolMapReply reply = TERN__WIRE__POOL_MAP_REPLY__INIT;
    Tern__Wire__Status status = fake_status(TERN_GONE, NULL, NULL);
    int fds[3] = {m->region, m->control, m->bell};
    uint8_t frames[512];
    size_t n;

    reply.status = &status;
    n = fake_pack(FRAME_POOL_MAP_REPLY, refused, &reply, frames, 256);
    reply.status = NULL;
    reply.has_offset = reply.has_bytes = 1;
    reply.offset = OFFSET;
    reply.bytes = BYTES;
    n += fake_pack(FRAME_POOL_MAP_REPLY, f->h.request_id, &reply, frames + n, 256);
    send_fds(f, frames, n, fds, 3);
}

static void reply_busy(struct fake *f)
{
    Tern__Wire__PoolMapReply reply = TERN__WIRE__POOL_MAP_REPLY__INIT;
    Tern__Wire__Status status = fake_status(TERN_BUSY, NULL, NULL);

    reply.status = &status;
    fake_reply(f, &reply);
}

static void serve_pools(struct fake *f)
{
    struct memory *m = f->ctx;
    struct frame_header late = {0};
    uint32_t busy = 0;

    while (fake_read(f)) {
        if (f->h.type == FRAME_POOL_MAP && m->twist == BUSY_TWICE && busy++ < 2) {
            reply_busy(f);
        } else if (f->h.type == FRAME_POOL_MAP && m->twist >= LATE && !late.type) {
            late = f->h;
        } else if (f->h.type == FRAME_POOL_MAP && m->twist == LATE_REFUSED) {
            reply_refusal_and_map(f, m, late.request_id);
        } else if (f->h.type == FRAME_POOL_MAP) {
            struct frame_header now = f->h;

            if (late.type) {
                f->h = late;
                reply_map(f, m, m->twist == LATE_BROKEN);
                f->h = now;
            }
            reply_map(f, m, false);
        } else {
            if (f->h.type == FRAME_ENGINE_LEAVE)
                atomic_store(&m->left, true);
            fake_reply_empty(f);
        }
    }
}

static void start_pools(enum twist twist, enum tern_role role, uint32_t rank)
{
    memory_init(&memory, twist);
    start(serve_pools, &memory);
    assert_ok(tern_join(t, "engine", role, rank, 4, NULL, 2000));
}

FIXTURE(stop_pools)
{
    client_stop(NULL);
    memory_finish(&memory);
    return 0;
}

TEST_EACH(client_setup, stop_pools);

TEST(pool_map_shares_bytes_and_leaves_no_descriptor_of_memory)
{
    struct tern_pool *pool, *second;
    const uint8_t *base;
    uint32_t before;

    start_pools(GOOD, TERN_WORKER, 3);
    before = open_fds();
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    assert_ok(tern_pool_map(t, 1, 2000, &second));
    assert_int_equal(open_fds(), before + 1); /* one bell for both */
    assert_int_equal(tern_pool_info(pool)->bytes, BYTES);
    assert_null(tern_pool_info(pool)->device);
    assert_int_equal(tern_pool_info(pool)->ordinal, -1);
    base = tern_pool_info(pool)->base;
    tern_pool_info(pool)->base[100] = 0xab;
    assert_int_equal(memory.region_at[OFFSET + 100], 0xab);
    memory.region_at[OFFSET + BYTES - 1] = 0xcd;
    assert_int_equal(base[BYTES - 1], 0xcd);
    assert_non_null(strstr(flags_of(base), " dc "));
    tern_pool_unmap(&pool);
    assert_null(pool);
    tern_pool_unmap(&pool);
    assert_string_equal(flags_of(base), "");
    base = tern_pool_info(second)->base;
    tern_destroy(t); /* unmaps the other one, then leaves */
    t = NULL;
    assert_string_equal(flags_of(base), "");
    assert_true(atomic_load(&memory.left));
}

/* Fault 41: libtern leaves a forked child no mapping. tests/e2e/test_late_write.c and ranks.c have
 * children that keep one all the same. */
TEST(pool_map_forked_child_has_no_mapping)
{
    struct tern_pool *pool;
    int status;
    pid_t pid;

    start_pools(GOOD, TERN_WORKER, 3);
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    pid = fork();
    if (pid == 0)
        _exit(flags_of(tern_pool_info(pool)->base)[0] == '\0' ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A huge page of the file fits the mapping only where both have the same place in a huge page. */
TEST(map_shared_places_large_ranges_for_huge_pages)
{
    const uint64_t huge = 2u << 20, offset = 3 * 4096, bytes = 2 * huge + 4096;
    int fd = memfd_create("test-huge", MFD_CLOEXEC);
    uint8_t *at = NULL, got = 0;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)(offset + bytes)), 0);
    assert_ok(map_shared(fd, offset, bytes, &at));
    assert_int_equal(((uintptr_t)at - offset) % huge, 0);
    at[0] = 0x11;
    at[bytes - 1] = 0x22;
    assert_int_equal(pread(fd, &got, 1, (off_t)offset), 1);
    assert_int_equal(got, 0x11);
    assert_int_equal(pread(fd, &got, 1, (off_t)(offset + bytes - 1)), 1);
    assert_int_equal(got, 0x22);
    munmap(at, bytes);
    close(fd);
}

/* Returns true if this process can access the byte, by a system call that returns EFAULT if not. */
static bool can_touch(void *at)
{
    int ends[2];
    bool can;

    if (pipe(ends) != 0)
        return true;
    can = write(ends[1], at, 1) == 1 || (write(ends[1], "x", 1) == 1 && read(ends[0], at, 1) == 1);
    close(ends[0]);
    close(ends[1]);
    return can;
}

static bool fork_at_advice;
static uint32_t forked, touched; /* forked children, and those with access */

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);

/* Another thread forks just before the kernel learns that children do not get this mapping. */
int __wrap_madvise(void *at, size_t bytes, int advice)
{
    int status = 0;
    pid_t pid;

    if (fork_at_advice && advice == MADV_DONTFORK) {
        pid = fork();
        if (pid == 0)
            _exit(can_touch(at) || can_touch((uint8_t *)at + bytes - 1) ? 1 : 0);
        check(waitpid(pid, &status, 0) == pid);
        forked++;
        touched += status != 0;
    }
    return __real_madvise(at, bytes, advice);
}

TEST(pool_map_child_forked_while_it_maps_cannot_touch)
{
    struct tern_pool *pool;

    start_pools(GOOD, TERN_WORKER, 3);
    fork_at_advice = true;
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    fork_at_advice = false;
    assert_int_equal(forked, 2); /* the region and the control page */
    assert_int_equal(touched, 0);
    assert_true(can_touch(tern_pool_info(pool)->base));
    assert_ok(tern_done_step(pool, 1));
}

/* The child unmaps its own copies: its parent's ranks still write. */
TEST(destroy_in_a_forked_child_leaves_the_parent_alone)
{
    struct tern_pool *pool, *second;
    uint8_t *at;
    int status;
    pid_t pid;

    start_pools(GOOD, TERN_WORKER, 3);
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    assert_ok(tern_pool_map(t, 1, 2000, &second));
    pid = fork();
    if (pid == 0) {
        at = mmap(tern_pool_info(pool)->base, BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (at != tern_pool_info(pool)->base)
            _exit(1);
        tern_pool_unmap(&pool);
        tern_destroy(t);
        _exit(flags_of(at)[0] != '\0' ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_false(atomic_load(&memory.left));
    tern_pool_unmap(&pool);
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
}

TEST(pool_map_answer_twisted_typed_error_no_leak)
{
    static const enum tern_err want[TWIST_COUNT] = {
        [NO_FDS] = TERN_MALFORMED,        [ONE_FD] = TERN_MALFORMED,
        [FOUR_FDS] = TERN_MALFORMED,      [SUMS_MISSING] = TERN_MALFORMED,
        [FIVE_FDS] = TERN_DAEMON_LOST,    [TOO_SHORT] = TERN_MALFORMED,
        [OVERFLOWS] = TERN_MALFORMED,     [EMPTY_RANGE] = TERN_MALFORMED,
        [CONTROL_SHORT] = TERN_MALFORMED, [OTHER_INCARNATION] = TERN_GONE,
    };

    for (enum twist twist = NO_FDS; twist < EVENTFD; twist++) {
        uint32_t before = open_fds();
        struct tern_pool *pool = NULL;

        start_pools(twist, TERN_WORKER, 0);
        assert_err(want[twist], tern_pool_map(t, 1, 2000, &pool));
        assert_null(pool);
        stop_pools(NULL);
        assert_int_equal(open_fds(), before); /* both sides are this process: none is left */
    }
}

TEST(pool_map_late_answer_its_descriptors_closed)
{
    for (enum twist twist = LATE; twist <= LATE_BROKEN; twist++) {
        struct tern_pool *pool = NULL;
        uint32_t before;

        start_pools(twist, TERN_WORKER, 0);
        before = open_fds();
        assert_err(TERN_TIMED_OUT, tern_pool_map(t, 1, 50, &pool));
        assert_null(pool);
        assert_ok(tern_pool_map(t, 1, 2000, &pool));
        assert_int_equal(open_fds(), before + 1); /* the bell */
        tern_pool_info(pool)->base[0] = 0x5a;
        assert_int_equal(memory.region_at[OFFSET], 0x5a);
        stop_pools(NULL);
    }
}

TEST(pool_map_late_refusal_leaves_the_next_answer_its_descriptors)
{
    struct tern_pool *pool = NULL;
    uint32_t before;

    start_pools(LATE_REFUSED, TERN_WORKER, 0);
    before = open_fds();
    assert_err(TERN_TIMED_OUT, tern_pool_map(t, 1, 50, &pool));
    assert_ok(tern_pool_map(t, 2, 2000, &pool));
    assert_int_equal(open_fds(), before + 1); /* the bell */
    tern_pool_info(pool)->base[0] = 0x5a;
    assert_int_equal(memory.region_at[OFFSET], 0x5a);
}

static uint64_t published(uint32_t rank)
{
    return *(volatile uint64_t *)(void *)(memory.control_at + 64 * rank);
}

TEST(done_step_is_published_and_never_goes_back)
{
    struct tern_pool *pool, *second;

    start_pools(GOOD, TERN_WORKER, 2);
    *(uint64_t *)(void *)(memory.control_at + 64 * 2) = 40; /* this rank has steps from before */
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    assert_err(TERN_INVALID, tern_done_step(pool, 39));
    assert_ok(tern_done_step(pool, 41));
    assert_int_equal(published(2), 41);
    assert_ok(tern_done_step(pool, 41));
    assert_string_equal(tern_error_text(t, NULL), "");
    assert_err(TERN_INVALID, tern_done_step(pool, 40));
    assert_non_null(strstr(tern_error_text(t, NULL), "step 40 cannot be published"));
    assert_non_null(strstr(tern_error_text(t, NULL), "already published step 41"));
    assert_int_equal(published(2), 41);
    assert_ok(tern_pool_map(t, 1, 2000, &second)); /* steps belong to the rank */
    assert_err(TERN_INVALID, tern_done_step(second, 7));
    assert_err(TERN_INVALID, tern_done_step(second, TERN_STEP_NONE));
    assert_ok(tern_done_step(second, UINT64_MAX - 1));
    assert_true(published(2) == UINT64_MAX - 1);
    for (uint32_t r = 0; r < RANKS_MAX; r++)
        assert_true(r == 2 || published(r) == 0);
}

/* The number of rings since the last call. */
static uint64_t rung(void)
{
    char bytes[64];
    ssize_t n = recv(memory.ear, bytes, sizeof bytes, MSG_DONTWAIT);

    return n > 0 ? (uint64_t)n : 0;
}

/* E10: publishing makes a system call only when it reaches a step that somebody waits for. */
TEST(done_step_rings_once_when_it_reaches_what_is_wanted)
{
    struct tern_pool *pool;
    uint64_t *wanted;

    start_pools(GOOD, TERN_WORKER, 2);
    wanted = (uint64_t *)(void *)(memory.control_at + 64 * (RANKS_MAX + 1));
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    assert_ok(tern_done_step(pool, 1));
    assert_int_equal(rung(), 0);
    *wanted = 5;
    assert_ok(tern_done_step(pool, 4));
    assert_int_equal(rung(), 0);
    assert_ok(tern_done_step(pool, 6));
    assert_int_equal(rung(), 1);
    assert_ok(tern_done_step(pool, 7));
    assert_int_equal(rung(), 0);
}

/* A full socket has rung already, so nobody waits for room in it. After the daemon's end a ring is
 * lost, and raises no signal. */
TEST(done_step_with_a_full_bell_does_not_wait)
{
    struct tern_pool *pool;
    uint64_t *wanted;

    start_pools(GOOD, TERN_WORKER, 2);
    wanted = (uint64_t *)(void *)(memory.control_at + 64 * (RANKS_MAX + 1));
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    while (send(memory.bell, "", 1, MSG_DONTWAIT) == 1)
        ;
    *wanted = 5;
    assert_ok(tern_done_step(pool, 5));
    assert_int_equal(published(2), 5);
    assert_int_equal(shutdown(memory.ear, SHUT_RDWR), 0);
    *wanted = 6;
    assert_ok(tern_done_step(pool, 6));
    assert_int_equal(published(2), 6);
}

/* An answer with descriptors, for which another call did not wait, was still unread: BUSY. */
TEST(pool_map_asks_again_while_it_is_busy)
{
    struct tern_pool *pool;

    start_pools(BUSY_TWICE, TERN_WORKER, 2);
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    assert_string_equal(tern_error_text(t, NULL), "");
}

/* The bell of a daemon older than this library. */
TEST(done_step_rings_an_eventfd)
{
    struct tern_pool *pool;
    uint64_t *wanted, n = 0;

    start_pools(EVENTFD, TERN_WORKER, 2);
    wanted = (uint64_t *)(void *)(memory.control_at + 64 * (RANKS_MAX + 1));
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    *wanted = 5;
    assert_ok(tern_done_step(pool, 5));
    assert_int_equal(read(memory.bell, &n, sizeof n), sizeof n);
    assert_int_equal(n, 1);
}

/* If there is a driver after all, this thread has no context. */
TEST(done_step_on_a_stream_without_the_driver_unsupported)
{
    void *library = dlopen(DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    struct tern_pool *pool;
    enum tern_err err;

    start_pools(GOOD, TERN_WORKER, 2);
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    err = tern_done_step_on_stream(pool, 1, NULL, NULL);
    assert_true(err == TERN_UNSUPPORTED || (library && err == TERN_INVALID));
    assert_non_null(strstr(tern_error_text(t, NULL), library ? "CUDA" : DRIVER_LIBRARY));
    assert_int_equal(published(2), 0);
    assert_ok(tern_done_step(pool, 1));
    assert_int_equal(published(2), 1);
    if (library)
        dlclose(library);
}

TEST(done_step_of_a_pure_scheduler_denied)
{
    struct tern_pool *pool;

    start_pools(GOOD, TERN_SCHEDULER, 0);
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    assert_err(TERN_DENIED, tern_done_step(pool, 1));
    assert_non_null(strstr(tern_error_text(t, NULL), "pure scheduler"));
    assert_int_equal(published(0), 0);
}

TEST(pool_after_the_connection_is_lost_stays_mapped_until_destroy)
{
    struct tern_pool *pool;
    const uint8_t *base;

    start_pools(GOOD, TERN_WORKER, 0);
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
    base = tern_pool_info(pool)->base;
    shutdown(fake.fd, SHUT_RDWR);
    assert_err(TERN_DAEMON_LOST, tern_ping(t, 1000));
    tern_pool_info(pool)->base[1] = 1; /* a kernel in flight */
    assert_ok(tern_done_step(pool, 1));
    tern_destroy(t);
    t = NULL;
    assert_string_equal(flags_of(base), "");
}

static void take_pool_open(struct fake *f)
{
    Tern__Wire__PoolOpenReply reply = TERN__WIRE__POOL_OPEN_REPLY__INIT;
    const Tern__Wire__PoolOpen *m = (const Tern__Wire__PoolOpen *)(const void *)fake_read(f);
    const Tern__Wire__Group *g;

    check(m && f->h.type == FRAME_POOL_OPEN && m->n_groups == 2);
    check(m->has_shard && m->shard == TERN_SHARD_LAYERS && m->has_bytes && m->bytes == 1001);
    check(m->has_supersede && m->supersede == TERN_SUPERSEDE_OFF);
    check(m->has_host_bytes && m->host_bytes == 1002);
    g = m->groups[1];
    check(strcmp(m->groups[0]->name, "full") == 0 && strcmp(g->name, "window") == 0);
    check(!m->groups[0]->has_window && !m->groups[0]->has_reserve && m->groups[0]->n_axes == 0);
    check(g->has_family && g->family == TERN_WINDOW && g->has_page_tokens && g->page_tokens == 16);
    check(g->has_page_bytes && g->page_bytes == 4096 && g->has_units && g->units == 2);
    check(g->has_cap_pages && g->cap_pages == 77 && g->has_window && g->window == 128);
    check(g->has_reserve && g->reserve == 3 && g->n_axes == 2);
    check(strcmp(g->axes[0]->name, "layer") == 0 && strcmp(g->axes[1]->name, "kv") == 0);
    check(g->axes[1]->has_length && g->axes[1]->length == 2);
    check(g->axes[1]->has_stride_bytes && g->axes[1]->stride_bytes == 2048);
    reply.has_pool = reply.has_align_tokens = 1;
    reply.pool = 0x77;
    reply.align_tokens = 64;
    fake_reply(f, &reply);
    fake_read(f);
}

TEST(pool_open_says_all_of_its_layout)
{
    static struct fake other;
    const struct tern_axis axes[] = {{"layer", 1, 4096}, {"kv", 2, 2048}};
    const struct tern_group groups[] = {
        {.name = "full", .page_tokens = 16, .page_bytes = 4096, .units = 1},
        {.name = "window",
         .family = TERN_WINDOW,
         .page_tokens = 16,
         .page_bytes = 4096,
         .units = 2,
         .cap_pages = 77,
         .axes = axes,
         .naxes = 2,
         .window = 128,
         .reserve = 3}};
    const struct tern_layout layout = {.groups = groups,
                                       .ngroups = 2,
                                       .shard = TERN_SHARD_LAYERS,
                                       .bytes = 1001,
                                       .supersede = TERN_SUPERSEDE_OFF,
                                       .host_bytes = 1002};
    uint32_t align = 0;
    uint64_t pool = 0;
    struct tern *client;

    fake_start(&other, take_pool_open, NULL);
    assert_ok(tern_connect(other.path, 2000, &client));
    assert_ok(tern_pool_open(client, &layout, 2000, &pool, &align));
    assert_true(pool == 0x77 && align == 64);
    tern_destroy(client);
    fake_stop(&other);
}

/* Both directions, with other strides on each side and a gap behind each block: exactly the named
 * blocks are copied. */
TEST(blocks_are_copied_by_their_numbers)
{
    enum { BLOCK = 24, ONE = 40, OTHER = 32, COUNT = 5 };
    static const uint32_t to_at[] = {4, 0, 2}, from_at[] = {1, 3, 0};
    uint8_t from[COUNT * ONE], to[COUNT * OTHER], want[sizeof to];

    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)(i + 1);
    memset(to, 0xee, sizeof to);
    memset(want, 0xee, sizeof want);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t byte = 0; byte < BLOCK; byte++)
            want[to_at[i] * OTHER + byte] = (uint8_t)(from_at[i] * ONE + byte + 1);
    tern_copy_blocks(&(struct tern_blocks){to, OTHER, to_at},
                     &(struct tern_blocks){from, ONE, from_at}, 3, BLOCK);
    assert_memory_equal(to, want, sizeof to);
    tern_copy_blocks(&(struct tern_blocks){to, OTHER, to_at},
                     &(struct tern_blocks){from, ONE, from_at}, 0, BLOCK);
    assert_memory_equal(to, want, sizeof to);
}
