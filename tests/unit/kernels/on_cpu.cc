/* Runs the kernels on the CPU. Each thread of a block is a fiber with its own stack, and switches to
 * the runner at a barrier and when the kernel returns. The runner resumes the threads of a block in
 * rounds, in another random order each round. Invariant: in a round, either every thread reaches a
 * barrier or every thread returns; else the run aborts. */
#include "unit/kernels/on_cpu_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "kernels/all.cu"

#if defined(__SANITIZE_THREAD__)
#define SANITIZED_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZED_THREADS 1
#endif
#endif

#ifdef SANITIZED_THREADS
#include <sanitizer/tsan_interface.h>
#endif

#define STACK_BYTES (64 * 1024)

struct on_cpu_index threadIdx, blockIdx, blockDim, gridDim;

#if defined(SANITIZED_THREADS) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

struct fiber {
    ucontext_t context;
    void *place[5]; /* where the fiber switched away, once it has begun */
    bool begun;
    void *known; /* the thread sanitizer's handle of the fiber */
};

struct thread {
    struct fiber fiber;
    bool made, ended;
};

static struct thread threads[KERNELS_THREADS];
alignas(64) static uint8_t stacks[KERNELS_THREADS][STACK_BYTES];
static struct fiber runner;
static struct {
    enum kernels_kind kind;
    const union kernels_args *args;
} now;

static void kernel(void)
{
    switch (now.kind) {
#define X(NAME, function, member)                                                                  \
    case KERNELS_##NAME: function(now.args->member); break;
        KERNELS_TABLE(X)
#undef X
    case KERNELS_KINDS: break;
    }
}

#ifdef SANITIZED
static void fiber_go(struct fiber *from, struct fiber *to)
{
#ifdef SANITIZED_THREADS
    __tsan_switch_to_fiber(to->known, 0);
#endif
    swapcontext(&from->context, &to->context);
}
#else
[[noreturn]] static __attribute__((noinline)) void fiber_resume(struct fiber *f)
{
    if (f->begun)
        __builtin_longjmp(f->place, 1);
    f->begun = true;
    setcontext(&f->context);
    abort();
}

/* swapcontext is two calls of the system for each of a block's 256 threads at each barrier. */
static __attribute__((noinline)) void fiber_go(struct fiber *from, struct fiber *to)
{
    if (__builtin_setjmp(from->place) == 0)
        fiber_resume(to);
}
#endif

static void thread_main(void)
{
    for (;;) {
        struct thread *t = &threads[threadIdx.x];

        kernel();
        t->ended = true;
        fiber_go(&t->fiber, &runner);
    }
}

void on_cpu_barrier()
{
    fiber_go(&threads[threadIdx.x].fiber, &runner);
}

static void thread_begin(unsigned i)
{
    struct thread *t = &threads[i];

    t->ended = false;
    if (t->made)
        return;
    t->made = true;
#ifdef SANITIZED_THREADS
    t->fiber.known = __tsan_create_fiber(0);
#endif
    getcontext(&t->fiber.context);
    t->fiber.context.uc_stack.ss_sp = stacks[i];
    t->fiber.context.uc_stack.ss_size = STACK_BYTES;
    t->fiber.context.uc_link = nullptr;
    makecontext(&t->fiber.context, thread_main, 0);
}

static void shuffle(unsigned *v, unsigned n, struct prng *p)
{
    for (unsigned i = n; i > 1; i--) {
        unsigned j = prng_below(p, i), was = v[i - 1];

        v[i - 1] = v[j];
        v[j] = was;
    }
}

static void block_run(struct prng *p)
{
    unsigned order[KERNELS_THREADS], left = blockDim.x;

    for (unsigned i = 0; i < blockDim.x; i++) {
        order[i] = i;
        thread_begin(i);
    }
    while (left > 0) {
        unsigned ended = 0;

        shuffle(order, blockDim.x, p);
        for (unsigned i = 0; i < blockDim.x; i++) {
            threadIdx.x = order[i];
            fiber_go(&runner, &threads[order[i]].fiber);
            ended += threads[order[i]].ended;
        }
        if (ended != 0 && ended != left) {
            fprintf(stderr, "on_cpu: %u threads of a block ended, %u wait at a barrier\n", ended,
                    left - ended);
            abort();
        }
        left -= ended;
    }
}

void on_cpu_launch(enum kernels_kind kind, const struct kernels_launch *l,
                   const union kernels_args *args, struct prng *p)
{
    unsigned *order = static_cast<unsigned *>(calloc(l->grid, sizeof *order));

    if (!order || l->block > KERNELS_THREADS)
        abort();
    now.kind = kind;
    now.args = args;
    runner.begun = true;
#ifdef SANITIZED_THREADS
    runner.known = __tsan_get_current_fiber();
#endif
    blockDim.x = l->block;
    gridDim.x = l->grid;
    for (unsigned i = 0; i < l->grid; i++)
        order[i] = i;
    shuffle(order, l->grid, p);
    for (unsigned i = 0; i < l->grid; i++) {
        blockIdx.x = order[i];
        block_run(p);
    }
    free(order);
}
