/* A real GPU as a struct device: the driver's library, the first device, the module of kernels and
 * one stream. A failure after gpu_open ends the program with status 2. One thread. */
#ifndef GPU_GPU_H
#define GPU_GPU_H

#include "gpu/cases.h"
#include "kernels/driver.h"

#define GPU_NAME_MAX 128

struct gpu {
    struct driver driver;
    CUdevice device;
    CUcontext context; /* the primary one, retained */
    CUmodule module;
    CUfunction function[KERNELS_KINDS];
    CUstream stream;
    char name[GPU_NAME_MAX];
    int driver_version, major, minor, processors;
    struct device ops; /* ctx is this struct */
};

/* Returns false if there is no GPU, or this build has no kernels for it; why has what to do. */
bool gpu_open(struct gpu *ret, struct driver_why *ret_why);
void gpu_close(struct gpu *g);
/* Ends the program if a call failed. */
void gpu_must(const struct gpu *g, CUresult result, const char *what);

#endif
