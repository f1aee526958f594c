/* The heap of events to come, random numbers, memory and the end of a history. */
#include "world.h"

#include <stdarg.h>

#include "redirect.h"

#define ARENA (192u << 20) /* a plan of resharding takes some 2 MiB a daemon, at each start */

struct rworld rw;
static uint8_t *arena;
static size_t arena_at;

void rw_mix(uint64_t v)
{
    rw.hash = (rw.hash ^ v) * 0x9e3779b97f4a7c15u;
    rw.hash ^= rw.hash >> 29;
}

_Noreturn void rw_fail(const char *what, const char *format, ...)
{
    va_list args;

    rw.failed = true;
    snprintf(rw.what, sizeof rw.what, "%s", what);
    va_start(args, format);
    vsnprintf(rw.text, sizeof rw.text, format, args);
    va_end(args);
    longjmp(rw.out, 1);
}

/* A check of the seam or of the models: the next history may fail one, too. */
static void on_check(const char *text)
{
    const char *name = strrchr(text, '/');

    rw_fail("check_failed", "%s", name ? name + 1 : text);
}

/* ------------------------------------------------------------------ memory and chance */

void *rw_alloc(size_t n)
{
    void *p = arena + arena_at;

    n = (n + 63) & ~(size_t)63;
    check(arena_at + n <= ARENA);
    arena_at += n;
    return memset(p, 0, n);
}

void *sim_calloc(size_t n, size_t size)
{
    return rw_alloc(n * size);
}

void sim_free(void *p)
{
    (void)p; /* with the history */
}

void rw_chance(uint32_t what, uint64_t n)
{
    uint64_t of = rw.seed + what * 0xd6e8feb86659fd93u;

    rw.chance = prng_splitmix(&of) ^ n * 0x9fb21c651e98df25u;
}

uint64_t rw_u64(void)
{
    return prng_splitmix(&rw.chance);
}

uint32_t rw_below(uint32_t n)
{
    return (uint32_t)(((rw_u64() >> 32) * n) >> 32);
}

uint32_t rw_between(uint32_t least, uint32_t most)
{
    return least + rw_below(most - least + 1);
}

bool rw_one_in(uint32_t n)
{
    return rw_below(n) == 0;
}

static bool listed(uint32_t kind, uint32_t n)
{
    const struct rhistory *h = rw.only;
    uint32_t *at = &rw.next[kind];

    while (*at < h->n && (h->item[*at].kind != kind || h->item[*at].n < n))
        (*at)++;
    return *at < h->n && h->item[*at].n == n;
}

static void note(uint32_t kind, uint32_t n)
{
    if (rw.verbose)
        fprintf(stderr, "%12llu %s %u\n", (unsigned long long)rw.now_ns, ritem_name(kind), n);
    if (rw.only)
        return;
    check(rw.happened.n < ITEMS);
    rw.happened.item[rw.happened.n++] = (struct ritem){kind, n};
}

bool rw_happens(uint32_t kind)
{
    uint32_t rate = kind == ITEM_choice ? 1 : rw.cfg.rate[kind], n = rw.asked[kind]++;
    uint64_t before = rw.chance;
    bool lucky;

    if (rate == 0)
        return false;
    rw_chance(kind, n);
    lucky = rw_one_in(rate);
    if (rw.only ? listed(kind, n) : lucky) {
        note(kind, n);
        return true;
    }
    rw.chance = before;
    return false;
}

bool rw_fault(enum rfault f)
{
    if (!rw.faults || !rw_happens(f))
        return false;
    rw.fault[f]++;
    return true;
}

uint64_t rw_soon(void)
{
    uint32_t r = rw_below(64);

    if (rw_fault(RF_stall))
        return MS * rw_between(1, STALL_NS / MS);
    if (r < 8)
        return 0;
    if (r < 52)
        return 1000ull * rw_between(1, 20) * rw.cfg.slow;
    if (r < 63)
        return 1000ull * rw_between(1, 300) * rw.cfg.slow;
    return 1000ull * rw_between(1, 10000);
}

ssize_t sim_getrandom(void *buf, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)buf)[i] = (uint8_t)rw_below(256);
    return (ssize_t)n;
}

/* ------------------------------------------------------------------ the heap */

static bool before(const struct thing_at *x, const struct thing_at *y)
{
    return x->at < y->at || (x->at == y->at && x->order < y->order);
}

void rw_post(uint64_t delay_ns, enum thing kind, uint32_t a, uint32_t b)
{
    struct thing_at t = {rw.now_ns + delay_ns, rw.order++, kind, a, b};
    uint32_t at = rw.heap_n++;

    check(rw.heap_n <= HEAP);
    for (; at > 0 && before(&t, &rw.heap[(at - 1) / 2]); at = (at - 1) / 2)
        rw.heap[at] = rw.heap[(at - 1) / 2];
    rw.heap[at] = t;
}

static struct thing_at pop(void)
{
    struct thing_at first = rw.heap[0], last = rw.heap[--rw.heap_n];
    uint32_t at = 0, child;

    while ((child = 2 * at + 1) < rw.heap_n) {
        if (child + 1 < rw.heap_n && before(&rw.heap[child + 1], &rw.heap[child]))
            child++;
        if (!before(&rw.heap[child], &last))
            break;
        rw.heap[at] = rw.heap[child];
        at = child;
    }
    rw.heap[at] = last;
    return first;
}

static void dispatch(const struct thing_at *t)
{
    switch (t->kind) {
    case T_TASK: tasks_run(t->a, t->b); break;
    case T_TASK_CANCEL: tasks_cancel(t->a, t->b); break;
    case T_OP: rnet_op(t->a, t->b); break;
    case T_OP_DONE: rnet_op_done(t->a, t->b); break;
    case T_DELIVER: rnet_deliver(t->a, t->b); break;
    case T_QP: rnic_qp(t->a, t->b); break;
    case T_HELD: rnic_held(t->a, t->b); break;
    case T_STALE: rnic_stale(t->a, t->b); break;
    case T_GONE: rnic_gone(t->a, t->b); break;
    case T_TICK: drive_tick(t->a, t->b); break;
    case T_POLL: drive_poll(t->a, t->b); break;
    case T_CORE: drive_core(t->a); break;
    case T_CONTROL: links_control(t->a); break;
    case T_PULL: pulls_step(t->a, t->b); break;
    case T_SERVE: serves_pull_over(t->a, t->b); break;
    case T_LINK: links_change(t->a, t->b); break;
    case T_NODE: drive_node_start(t->a); break;
    case T_HEAL: rnet_heal(); break;
    case T_CHOICE: drive_choice(); break;
    }
}

static void move_to(uint64_t at)
{
    rw.together = at == rw.now_ns ? rw.together + 1 : 0;
    rw.now_ns = at;
    rw_chance(FOR_MOMENT + rw.together, at);
}

bool rw_step(uint64_t until_ns)
{
    struct thing_at t;

    if (rw.heap_n == 0 || rw.heap[0].at > until_ns) {
        move_to(until_ns > rw.now_ns ? until_ns : rw.now_ns);
        return false;
    }
    t = pop();
    move_to(t.at);
    rw.events++;
    rw_mix(t.at);
    rw_mix((uint64_t)t.kind << 32 | t.a);
    if (rw.verbose)
        fprintf(stderr, "%12llu thing %d %u %u\n", (unsigned long long)t.at, (int)t.kind, t.a, t.b);
    dispatch(&t);
    if (t.kind != T_POLL)
        drive_turned(rw.current);
    return true;
}

/* ------------------------------------------------------------------ a history */

static void reset(uint64_t seed, const struct rhistory *only)
{
    if (!arena)
        arena = aligned_alloc(4096, ARENA);
    check(arena);
    arena_at = 0;
    rw.seed = seed;
    rw.only = only;
    rw.happened.seed = seed;
    rw.happened.n = rw.together = 0;
    memset(rw.asked, 0, sizeof rw.asked);
    memset(rw.next, 0, sizeof rw.next);
    rw_chance(FOR_CONFIG, 0);
    rw.now_ns = 1 * SEC;
    rw.order = rw.events = rw.uids = rw.tags = 0;
    rw.hash = seed;
    rw.heap_n = rw.pulls_open = 0;
    rw.failed = rw.over = false;
    rw.faults = true;
    memset(rw.link, 0, sizeof rw.link);
    memset(rw.cut_until, 0, sizeof rw.cut_until);
    memset(rw.rail_cut_until, 0, sizeof rw.rail_cut_until);
    memset(rw.control, 0, sizeof rw.control);
    for (uint32_t i = 0; i < NODES; i++)
        memset(&rw.node[i], 0, offsetof(struct rnode, memory));
    tasks_reset();
    rnet_reset();
    rnic_reset();
}

bool rw_play(uint64_t seed, const struct rhistory *only, uint64_t *ret_hash)
{
    reset(seed, only);
    check_set_hook(on_check);
    if (setjmp(rw.out) == 0) {
        config_make(&rw.cfg);
        rw.happened.choices = rw.cfg.choices;
        rw.choices_left = only ? only->choices : rw.cfg.choices;
        drive_start();
        while (rw.choices_left > 0)
            rw_step(UINT64_MAX);
        rw.faults = false;
        drive_converge();
    }
    rw.events_all += rw.events;
    *ret_hash = rw.hash;
    return !rw.failed;
}
