/* The speed of each kernel, beside a copy of the same bytes from device to device in the same run:
 * pairs of the two, one after the other, and the median of their ratios. The rate counts bytes read
 * and written; a copy reads and writes each byte once. */
#ifndef GPU_MEASURE_H
#define GPU_MEASURE_H

#include "gpu/gpu.h"

#define MEASURE_ROWS_MAX   8
#define MEASURE_PAGE_BYTES 65536

struct measure_row {
    const char *name;
    double gb_s, copy_gb_s; /* medians */
    double ratio;
    double least; /* the ratio required on an H200; 0: none */
};

struct measure {
    struct measure_row row[MEASURE_ROWS_MAX];
    size_t n;
    uint64_t bytes; /* of one copy */
};

/* quick: few pairs, to check that it works. */
void measure_kernels(struct gpu *g, bool quick, struct measure *ret);
/* Returns whether every ratio is at least the required one. */
bool measure_holds(const struct measure *m);

#endif
