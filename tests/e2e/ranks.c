/* Fault 42: an engine of four rank processes loses its leader by SIGKILL at a random moment while
 * the other ranks continue to write into the pages that the engine owns.
 *
 *   A  the engine under test: four processes a run, each mapping its own region. Rank 0 schedules,
 *      and is killed.
 *   B  allocates all the time from another pool of the same tenant, and checks its bytes.
 *   C  wants A's memory as soon as A's leader is dead, alternately with A's layout (it takes over
 *      A's pool) and with another one (the memory is carved anew); it fills every page of every
 *      region and checks that the bytes stay.
 *
 * B and C are one process, the observer. Checked: when C gets memory while a process of A lives;
 * what status reports of A's pool meanwhile; that nobody else changes a byte of A, B or C; that
 * every page is free at the end. */
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/stats.h"

#define RANKS       4
#define TOKENS      16   /* of a page */
#define PAGE        4096 /* bytes of a page in A's and B's layout; C's other one has twice that */
#define A_BYTES     (4u << 20)
#define B_BYTES     (1u << 20)
#define HOLD_PAGES  400   /* owned by A and written by its workers */
#define HELD_MAX    1100  /* pages of one owner here, at most */
#define KILL_US_MAX 40000 /* random delay of the leader's death after its moment (wait_to_kill) */
#define LINGER_US   60000 /* longest time that the others write on */
#define PATIENCE_MS 30000 /* for expected events: the daemon's longest deadline here is 5 s */

enum phase { STARTING, KILLED, DONE, QUIT };

/* Shared by all processes of the test. */
struct shared {
    atomic_int phase;
    atomic_uint run;
    atomic_uint_least64_t pool, step; /* A's pool, once A knows it; the step that A runs */
    atomic_uint hold;                 /* pages in hold_page that the daemon has confirmed */
    uint32_t hold_page[HOLD_PAGES];
    pid_t pid[RANKS];
    atomic_uint c_done; /* last run in which C had the memory and freed it */
    atomic_uint_least64_t b_checks, c_checks, a_checks;
    atomic_uint violations, reused, with_pool;
};

static struct shared *sh;
static const char *tenant;

static uint64_t now_us(void)
{
    return clock_ns() / 1000;
}

static uint64_t patience_ends(void)
{
    return now_us() + PATIENCE_MS * 1000u;
}

static uint32_t rnd(uint32_t n)
{
    return (uint32_t)random() % n;
}

#define violation(...)                                                                             \
    do {                                                                                           \
        atomic_fetch_add(&sh->violations, 1);                                                      \
        fprintf(stderr, "run %u: violation: ", atomic_load(&sh->run));                             \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fprintf(stderr, "\n");                                                                     \
    } while (0)

/* ---- one engine on all its ranks ---- */

struct engine {
    struct tern *tern[RANKS]; /* [0] schedules */
    struct tern_pool *pool[RANKS];
    uint64_t handle, step;
    uint32_t page_bytes;
};

static const struct tern_namespace ns = {.model = "ranks"};

static struct tern_layout layout_of(struct tern_group *g, uint32_t page_bytes, uint64_t bytes)
{
    *g = (struct tern_group){.name = "kv", .page_tokens = TOKENS, .page_bytes = page_bytes};
    return (struct tern_layout){.groups = g, .ngroups = 1, .bytes = bytes};
}

static bool rank_join(struct tern **ret, const char *name, uint32_t r)
{
    return tern_connect(tenant, 5000, ret) == TERN_OK &&
           tern_join(*ret, name, r == 0 ? TERN_BOTH : TERN_WORKER, r, RANKS, NULL, 5000) == TERN_OK;
}

static bool engine_join(struct engine *e, const char *name)
{
    bool ok = true;

    for (uint32_t r = 0; ok && r < RANKS; r++)
        ok = rank_join(&e->tern[r], name, r);
    return ok;
}

static bool engine_map(struct engine *e)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        if (tern_pool_map(e->tern[r], e->handle, 5000, &e->pool[r]) != TERN_OK)
            return false;
    }
    return true;
}

static void engine_leave(struct engine *e)
{
    for (uint32_t r = 0; r < RANKS; r++)
        tern_destroy(e->tern[r]);
    memset(e, 0, sizeof(*e));
}

static void engine_done(struct engine *e)
{
    for (uint32_t r = 0; r < RANKS; r++)
        tern_done_step(e->pool[r], e->step);
}

static uint8_t *page_at(const struct engine *e, uint32_t rank, uint32_t page)
{
    return tern_pool_info(e->pool[rank])->base + (size_t)page * e->page_bytes;
}

static void fill(const struct engine *e, const uint32_t *pages, uint32_t n, uint64_t tag)
{
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t p = 0; p < n; p++)
            page_fill(page_at(e, r, pages[p]), e->page_bytes, page_seed(tag, pages[p], r));
}

static uint64_t damaged(const struct engine *e, const uint32_t *pages, uint32_t n, uint64_t tag)
{
    uint64_t bad = 0;

    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t p = 0; p < n; p++)
            bad +=
                page_compare(page_at(e, r, pages[p]), e->page_bytes, page_seed(tag, pages[p], r));
    return bad;
}

/* Opens a session and allocates `want` pages to it, or as many as the pool has. Appends them to
 * `pages`, and counts them in `told` (may be NULL) as they come. */
static uint32_t take_pages(struct engine *e, uint32_t salt, uint32_t want, uint32_t *pages,
                           atomic_uint *told, tern_session *ret)
{
    static uint32_t tokens[HELD_MAX * TOKENS];
    uint32_t n = 0;

    if (tern_session_open(e->tern[0], e->handle, &ns, NULL, 5000, ret) != TERN_OK)
        return 0;
    for (uint32_t i = 0; i < want * TOKENS; i++)
        tokens[i] = salt * 65536u + i;
    while (n < want) {
        const uint32_t all = (n + 1) * TOKENS;
        struct tern_tokens more = {.v = tokens + n * TOKENS, .n = TOKENS, .base = n * TOKENS};
        struct tern_result r;

        if (tern_extend(e->tern[0], *ret, &more, all, all, 5000, &r) != TERN_OK || r.nruns != 1 ||
            r.runs[0].n != 1)
            break;
        pages[n++] = r.runs[0].pages[0].index;
        if (told)
            atomic_store(told, n);
    }
    return n;
}

static void close_session(struct engine *e, tern_session s, uint32_t commit_pages)
{
    struct tern_result r;

    tern_commit(e->tern[0], s, commit_pages * TOKENS, e->step, 5000, &r);
    tern_session_close(e->tern[0], s, e->step, 5000, &r);
}

/* ---- A ---- */

static void a_mark(uint8_t *base, uint32_t rank, uint32_t page, uint32_t round, bool look)
{
    uint64_t tag = (uint64_t)atomic_load(&sh->run) << 32 | 0xaa;

    for (uint32_t at = 0; at < PAGE; at += PAGE / 8) {
        uint64_t *w = (void *)(base + (size_t)page * PAGE + at);

        if (look && *w != page_seed(tag + round - 1 + at, page, rank))
            violation("rank %u of A lives, and another has written its page %u", rank, page);
        *w = page_seed(tag + round + at, page, rank);
    }
}

/* Allocates and frees pages in sessions that open and close, so that the kill finds requests in
 * flight and retiring pages. */
static _Noreturn void leader_churn(struct engine *e)
{
    static uint32_t pages[HELD_MAX];

    for (uint32_t salt = 2;; salt++) {
        tern_session s;
        uint32_t n = take_pages(e, salt, 1 + rnd(60), pages, NULL, &s);

        e->step++;
        for (uint32_t i = 0; i < n; i++)
            memset(page_at(e, 0, pages[i]), (int)salt, PAGE);
        atomic_store(&sh->step, e->step);
        tern_done_step(e->pool[0], e->step);
        close_session(e, s, rnd(n + 1));
    }
}

static _Noreturn void leader(const char *name)
{
    struct engine e = {.page_bytes = PAGE};
    struct tern_group g;
    struct tern_layout layout = layout_of(&g, PAGE, A_BYTES);
    tern_session s;

    if (!rank_join(&e.tern[0], name, 0))
        violation("A's leader cannot join");
    while (tern_pool_open(e.tern[0], &layout, 5000, &e.handle, NULL) != TERN_OK)
        usleep(200); /* until all ranks have joined, and the last run's memory is free */
    if (tern_pool_map(e.tern[0], e.handle, 5000, &e.pool[0]) != TERN_OK)
        violation("A's leader cannot map");
    atomic_store(&sh->pool, e.handle);
    take_pages(&e, 1, HOLD_PAGES, sh->hold_page, &sh->hold, &s);
    leader_churn(&e);
}

static _Noreturn void worker(const char *name, uint32_t rank)
{
    struct tern_pool *pool = NULL;
    uint64_t end = 0, handle;
    struct tern *t = NULL;
    uint32_t held = 0;

    rank_join(&t, name, rank); /* refused if the leader is dead already */
    for (uint32_t round = 1; end == 0 || now_us() < end; round++) {
        uint32_t hold = atomic_load(&sh->hold);

        if (end == 0 && atomic_load(&sh->phase) != STARTING)
            end = now_us() + 1000 + rnd(LINGER_US);
        handle = atomic_load(&sh->pool);
        if (!pool && handle && t && tern_pool_map(t, handle, 5000, &pool) != TERN_OK)
            pool = NULL;
        if (!pool) {
            usleep(200);
            continue;
        }
        tern_done_step(pool, atomic_load(&sh->step));
        for (uint32_t i = 0; i < hold; i++)
            a_mark(tern_pool_info(pool)->base, rank, sh->hold_page[i], round, i < held);
        held = hold;
        atomic_fetch_add(&sh->a_checks, held);
    }
    if (rnd(2))
        raise(SIGKILL);
    _exit(0); /* without leaving the engine: its exit alone is the proof */
}

static bool exited(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* For the observer, which is not the processes' parent. */
static bool seen_alive(pid_t pid)
{
    char path[64], state = 'X';
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    if (!f)
        return false;
    if (fscanf(f, "%*d %*s %c", &state) != 1)
        state = 'X';
    fclose(f);
    return state != 'Z' && state != 'X';
}

/* ---- the observer: B and C ---- */

static void b_round(struct engine *b)
{
    static uint32_t pages[2][HELD_MAX];
    static tern_session session[2]; /* 0: not open */
    static uint32_t n[2], salt;
    static uint64_t tag[2];
    uint32_t i = salt & 1;

    if (session[i]) {
        if (damaged(b, pages[i], n[i], tag[i]))
            violation("bytes of B were overwritten");
        atomic_fetch_add(&sh->b_checks, n[i]);
        b->step++;
        engine_done(b);
        close_session(b, session[i], rnd(n[i] + 1));
    }
    salt++;
    session[i] = 0;
    n[i] = take_pages(b, 1000 + salt, 20 + rnd(200), pages[i], NULL,
                      &session[i]); /* two of these exceed the pool */
    tag[i] = (uint64_t)salt << 32 | 0xbb;
    fill(b, pages[i], n[i], tag[i]);
}

/* C has A's memory. Fills every page in it, waits a moment, and compares. */
static void c_use(struct engine *c)
{
    static uint32_t pages[HELD_MAX];
    uint64_t tag = (uint64_t)atomic_load(&sh->run) << 32 | 0xcc;
    tern_session s;
    uint32_t n;

    if (!engine_map(c)) {
        violation("C cannot map the pool that it got: %s", tern_error_text(c->tern[0], NULL));
        return;
    }
    n = take_pages(c, 7, HELD_MAX, pages, NULL, &s); /* A's commits are evicted for these */
    if (n < A_BYTES / c->page_bytes * 9 / 10)
        violation("C got %u pages only: %s", n, tern_error_text(c->tern[0], NULL));
    fill(c, pages, n, tag);
    usleep(5000);
    if (damaged(c, pages, n, tag))
        violation("bytes of C were overwritten");
    atomic_fetch_add(&sh->c_checks, n);
    c->step = 1;
    engine_done(c);
    close_session(c, s, 0);
}

static void c_try(struct engine *c)
{
    uint32_t run = atomic_load(&sh->run);
    struct tern_layout layout;
    struct tern_group g;

    c->page_bytes = run & 1 ? PAGE : 2 * PAGE;
    layout = layout_of(&g, c->page_bytes, A_BYTES);
    if (tern_pool_open(c->tern[0], &layout, 5000, &c->handle, NULL) != TERN_OK)
        return;
    if (atomic_load(&sh->pool)) {
        for (uint32_t r = 1; r < RANKS; r++) {
            if (seen_alive(sh->pid[r])) {
                atomic_fetch_add(&sh->reused, 1);
                violation("C has A's memory while rank %u lives", r);
            }
        }
    }
    c_use(c);
    engine_leave(c);
    atomic_store(&sh->c_done, run);
}

static _Noreturn void observer(void)
{
    struct engine b = {.page_bytes = PAGE}, c = {0};
    struct tern_group g;
    struct tern_layout layout = layout_of(&g, PAGE, B_BYTES);
    char name[32];

    if (!engine_join(&b, "b") ||
        tern_pool_open(b.tern[0], &layout, 5000, &b.handle, NULL) != TERN_OK || !engine_map(&b)) {
        violation("B cannot start: %s", b.tern[0] ? tern_error_text(b.tern[0], NULL) : tenant);
        _exit(1);
    }
    while (atomic_load(&sh->phase) != QUIT) {
        b_round(&b);
        if (atomic_load(&sh->phase) != KILLED || atomic_load(&sh->c_done) == atomic_load(&sh->run))
            continue;
        snprintf(name, sizeof(name), "c-%u", atomic_load(&sh->run));
        if (!c.tern[0] && !engine_join(&c, name))
            violation("C cannot join");
        c_try(&c);
    }
    engine_leave(&b);
    _exit(0);
}

/* ---- the rig ---- */

/* Pages of that pool that are not free, -1 if there is no such pool; 0: of all pools. */
static int64_t in_use(struct tern *admin, uint64_t pool)
{
    struct daemon_status s = {0};

    if (!admin_status(admin, pool, &s))
        violation("status: %s", tern_error_text(admin, NULL));
    return pool && s.pages.total == 0 ? -1 : (int64_t)(s.pages.total - s.pages.free);
}

static bool any_alive(void)
{
    for (uint32_t r = 0; r < RANKS; r++)
        if (!exited(sh->pid[r]))
            return true;
    return false;
}

/* While a process of A lives, nobody else owns A's pages. */
static void watch(struct tern *admin)
{
    while (any_alive()) {
        uint64_t pool = atomic_load(&sh->pool);
        uint32_t hold = atomic_load(&sh->hold);
        int64_t used = pool ? in_use(admin, pool) : 0;

        if (any_alive() && pool && used < (int64_t)hold)
            violation("A lives and holds %u pages, status says %" PRId64 " in use", hold, used);
        usleep(500);
    }
}

/* Waits until A's leader must die: in every fourth run somewhere in its start, else a while after A
 * has a random number of its pages. The machine's speed does not affect either. */
static void wait_to_kill(uint32_t run)
{
    uint32_t pages = run % 4 ? 1 + rnd(HOLD_PAGES) : 0;
    uint64_t end = patience_ends();

    while (atomic_load(&sh->hold) < pages && now_us() < end)
        usleep(200);
    if (atomic_load(&sh->hold) < pages)
        violation("A has %u pages of %u after %u ms", atomic_load(&sh->hold), pages, PATIENCE_MS);
    usleep(rnd(KILL_US_MAX));
}

static void one_run(struct tern *admin, uint32_t run)
{
    char name[32];
    uint64_t end;

    atomic_store(&sh->run, run);
    atomic_store(&sh->pool, 0);
    atomic_store(&sh->step, 0);
    atomic_store(&sh->hold, 0);
    atomic_store(&sh->phase, STARTING);
    snprintf(name, sizeof(name), "a-%u", run);
    for (uint32_t r = 0; r < RANKS; r++) {
        uint32_t seed = (uint32_t)random();
        pid_t pid = proc_fork();

        if (pid < 0) {
            perror("ranks: fork");
            exit(1);
        }
        if (pid == 0) {
            close(tern_fd(admin, NULL));
            srandom(seed);
            if (r == 0)
                leader(name);
            worker(name, r);
        }
        sh->pid[r] = pid; /* set by the parent alone: in the child proc_fork returns 0 */
    }
    wait_to_kill(run);
    kill(sh->pid[0], SIGKILL);
    atomic_fetch_add(&sh->with_pool, atomic_load(&sh->pool) != 0);
    atomic_store(&sh->phase, KILLED);
    watch(admin);
    for (end = patience_ends(); atomic_load(&sh->c_done) != run && now_us() < end;)
        usleep(500);
    if (atomic_load(&sh->c_done) != run)
        violation("A's memory did not come back within %u ms", PATIENCE_MS);
    atomic_store(&sh->phase, DONE);
    for (uint32_t r = 0; r < RANKS; r++)
        waitpid(sh->pid[r], NULL, 0);
}

/* Pages that are still not free after all processes have ended and nothing owns them. */
static uint64_t leaked(struct tern *admin)
{
    uint64_t end = patience_ends(), left = 0;

    do {
        json_t *answer;

        json_decref(admin_ask(admin, "evict", NULL));
        answer = admin_ask(admin, "status", NULL);
        left = (uint64_t)in_use(admin, 0) + json_get_u64(answer, "engines") +
               json_get_u64(answer, "sessions");
        json_decref(answer);
        usleep(2000);
    } while (left && now_us() < end);
    return left;
}

int main(int argc, char **argv)
{
    uint32_t runs = argc == 5 ? (uint32_t)atoi(argv[3]) : 0;
    uint64_t left;
    struct tern *admin;
    pid_t watcher;

    if (runs == 0) {
        fprintf(stderr, "usage: ranks TENANT-SOCKET ADMIN-SOCKET RUNS SEED\n");
        return 2;
    }
    tenant = argv[1];
    srandom((unsigned)atoi(argv[4]));
    sh = proc_shared(sizeof(*sh));
    watcher = proc_fork();
    if (watcher == 0)
        observer();
    if (tern_connect(argv[2], 5000, &admin) != TERN_OK) {
        fprintf(stderr, "ranks: no daemon at %s\n", argv[2]);
        kill(watcher, SIGKILL);
        return 1;
    }
    for (uint32_t run = 1; run <= runs && !atomic_load(&sh->violations); run++)
        one_run(admin, run);
    atomic_store(&sh->phase, QUIT);
    waitpid(watcher, NULL, 0);
    left = leaked(admin);
    tern_destroy(admin);
    fprintf(stderr,
            "ranks: in %u of %u runs A had its pool when its leader died; looked at %" PRIu64
            " pages of A, %" PRIu64 " of B, %" PRIu64 " of C\n",
            sh->with_pool, runs, sh->a_checks, sh->b_checks, sh->c_checks);
    if (sh->with_pool * 2 < runs || !sh->a_checks || !sh->b_checks || !sh->c_checks)
        violation("too little was looked at");
    printf("fault=42 runs=%u injected=%u violations=%u reused_before_proof=%u "
           "leaked_pages=%" PRIu64 "\n",
           runs, sh->run, sh->violations, sh->reused, left);
    return sh->violations || sh->reused || left ? 1 : 0;
}
