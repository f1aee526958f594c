/* See work.h. The compiler calls the one function here at the head of each basic block that it
 * instruments. */
#include "work.h"

uint64_t work_done, work_most = UINT64_MAX;
void (*work_hook)(void);

#ifdef TERN_BUGS
const bool work_counted = true;
#else
const bool work_counted = false;
#endif

void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void)
{
    if (__builtin_expect(++work_done > work_most, 0))
        work_hook();
}
