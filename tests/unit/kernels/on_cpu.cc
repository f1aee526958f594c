/* Each thread of a block is a context of its own that gives way at a barrier. A thread that has not
 * ended when another round begins goes on from the barrier; the order is another one each round. */
#include "unit/kernels/on_cpu_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "kernels/all.cu"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#define STACK_BYTES (64 * 1024)

struct on_cpu_index threadIdx, blockIdx, blockDim, gridDim;

struct thread {
    ucontext_t context;
    bool ended;
    void *fiber; /* what the thread sanitizer knows it by */
};

static struct thread threads[KERNELS_THREADS];
alignas(64) static uint8_t stacks[KERNELS_THREADS][STACK_BYTES];
static ucontext_t runner;
static void *runner_fiber;
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

static void fiber_enter(void *fiber)
{
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(fiber, 0);
#else
    (void)fiber;
#endif
}

static void thread_main(void)
{
    struct thread *t = &threads[threadIdx.x];

    kernel();
    t->ended = true;
    fiber_enter(runner_fiber);
    setcontext(&runner);
}

void on_cpu_barrier()
{
    struct thread *t = &threads[threadIdx.x];

    fiber_enter(runner_fiber);
    swapcontext(&t->context, &runner);
}

static void thread_begin(unsigned i)
{
    struct thread *t = &threads[i];

    t->ended = false;
#ifdef __SANITIZE_THREAD__
    if (!t->fiber)
        t->fiber = __tsan_create_fiber(0); /* kept for all blocks: it is costly */
    runner_fiber = __tsan_get_current_fiber();
#endif
    getcontext(&t->context);
    t->context.uc_stack.ss_sp = stacks[i];
    t->context.uc_stack.ss_size = STACK_BYTES;
    t->context.uc_link = nullptr;
    makecontext(&t->context, thread_main, 0);
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
            fiber_enter(threads[order[i]].fiber);
            swapcontext(&runner, &threads[order[i]].context);
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
