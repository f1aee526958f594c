/* Runs the kernels' own source on the CPU (kernels/on_cpu.h): the blocks of a grid in a random
 * order, and the threads of each block in a random order from barrier to barrier. A barrier that
 * only some of them reach ends the program; a GPU would hang. For one thread of the test only. */
#ifndef TEST_KERNELS_ON_CPU_RUN_H
#define TEST_KERNELS_ON_CPU_RUN_H

#include "base/prng.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Addresses in the arguments are host addresses. */
void on_cpu_launch(enum kernels_kind kind, const struct kernels_launch *l,
                   const union kernels_args *args, struct prng *p);

#ifdef __cplusplus
}
#endif

#endif
