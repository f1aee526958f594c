/* The seam's threads, as coroutines of the one thread: each runs until it waits, and gives way, for
 * a time of chance, where it lets a lock go and before it takes one. So the jobs of the real set-up
 * thread take their time in every order against what the owner does. */
#include <ucontext.h>

#include "redirect.h"
#include "world.h"

#define THREADS 16u
#define STACK   (128u << 10)

struct thread {
    bool used, done;
    uint32_t gen, node;
    const pthread_cond_t *waits;
    ucontext_t at, back;
    void *(*run)(void *);
    void *ctx;
};

static struct thread thread[THREADS];
static uint8_t *stacks;
static struct thread *now; /* NULL: the owner */

void threads_reset(void)
{
    for (uint32_t i = 0; i < THREADS; i++) {
        thread[i].used = false;
        thread[i].gen++;
    }
    now = NULL;
}

/* Its process was killed. */
void threads_kill(uint32_t node)
{
    for (uint32_t i = 0; i < THREADS; i++)
        if (thread[i].used && thread[i].node == node)
            thread[i].used = false;
}

static void begin(unsigned number)
{
    struct thread *t = &thread[number];

    t->run(t->ctx);
    t->done = true;
    swapcontext(&t->at, &t->back);
}

static void prepare(struct thread *t)
{
    getcontext(&t->at);
    t->at.uc_stack.ss_sp = stacks + (size_t)(t - thread) * STACK;
    t->at.uc_stack.ss_size = STACK;
    t->at.uc_link = NULL;
    makecontext(&t->at, (void (*)(void))begin, 1, (unsigned)(t - thread));
}

static void go_on(struct thread *t)
{
    now = t;
    swapcontext(&t->back, &t->at);
    now = NULL;
}

static void give_way(void)
{
    struct thread *t = now;

    swapcontext(&t->at, &t->back);
}

void threads_sleep(uint64_t ns)
{
    if (!now)
        return;
    rw_post(ns, T_THREAD, (uint32_t)(now - thread), now->gen);
    give_way();
}

static void later(struct thread *t)
{
    rw_post(rw_soon(), T_THREAD, (uint32_t)(t - thread), t->gen);
}

void threads_run(uint32_t number, uint32_t gen)
{
    struct thread *t = &thread[number];

    if (t->used && t->gen == gen && !t->done && !t->waits)
        go_on(t);
}

int sim_thread_create(pthread_t *ret, void *(*run)(void *), void *ctx)
{
    uint32_t i = 0;

    while (i < THREADS && thread[i].used)
        i++;
    check(i < THREADS);
    if (!stacks)
        stacks = malloc((size_t)THREADS * STACK);
    check(stacks);
    thread[i].used = true;
    thread[i].done = false;
    thread[i].node = rw.current;
    thread[i].gen++;
    thread[i].waits = NULL;
    thread[i].run = run;
    thread[i].ctx = ctx;
    prepare(&thread[i]);
    later(&thread[i]);
    *ret = i;
    return 0;
}

/* Called by the owner once it has told the thread to end. */
int sim_thread_join(pthread_t number)
{
    struct thread *t = &thread[number];

    for (uint32_t i = 0; i < 1000 && !t->done; i++) {
        if (t->waits)
            rw_fail("thread_waits_for_ever", "a thread is joined that nobody wakes");
        go_on(t);
    }
    t->used = false;
    return 0;
}

int sim_lock(pthread_mutex_t *lock)
{
    (void)lock;
    if (now && !now->waits) {
        later(now);
        give_way();
    }
    return 0;
}

int sim_unlock(pthread_mutex_t *lock)
{
    (void)lock;
    if (now) {
        later(now);
        give_way();
    }
    return 0;
}

int sim_wait(pthread_cond_t *cond)
{
    now->waits = cond;
    give_way();
    return 0;
}

int sim_wake(pthread_cond_t *cond)
{
    for (uint32_t i = 0; i < THREADS; i++)
        if (thread[i].used && thread[i].waits == cond) {
            thread[i].waits = NULL;
            later(&thread[i]);
        }
    return 0;
}
