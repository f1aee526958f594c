/* What the files of the stand-in share: one lock guards all of it. */
#ifndef STANDIN_STATE_H
#define STANDIN_STATE_H

#include <pthread.h>
#include <stdbool.h>

#include "kernels/kernels.h"
#include "standin/standin.h"

#define DEVICES_MAX 16
#define GRANULE     (2ull << 20)
#define HANDLES_MAX 128
#define RANGES_MAX  128
#define STREAMS_MAX 128
#define EVENTS_MAX  512
#define PINNED_MAX  128
#define COPIES_MAX  4096
#define PAGES_MAX   64 /* registered ranges of the host */

struct CUctx_st {
    int device;
    uint32_t retained;
};

struct CUstream_st {
    int device;
    bool used, capturing;
};

struct CUevent_st {
    bool used;
    uint32_t recorded; /* number of the last record */
    uint32_t pending;  /* records that are not done */
};

struct memory {
    bool used;
    uint32_t handles, maps, gen;
    int device, fd;
    uint64_t bytes;
    uint8_t *bytes_at; /* where the stand-in itself reaches them */
};

struct range {
    uint64_t base, bytes, reserved_at, reserved_bytes;
    struct memory *memory; /* NULL: nothing is mapped there */
    bool access[DEVICES_MAX];
};

/* A kernel, with its only parameter. */
struct standin_launch {
    enum kernels_kind kind;
    uint32_t grid, block;
    union kernels_args args;
};

extern pthread_mutex_t standin_lock;
extern struct standin_devices {
    int n;
    uint64_t bytes_each, bytes_used[DEVICES_MAX];
    struct CUctx_st context[DEVICES_MAX];
    CUresult lost[DEVICES_MAX]; /* CUDA_SUCCESS: it is not */
    bool hangs[DEVICES_MAX], kernels_hang[DEVICES_MAX];
} standin_devices;
extern _Thread_local CUcontext standin_current;
extern _Thread_local bool standin_in_call; /* a function of the program's runs in a stream */

/* The lock is held until `leave`. Counts the call and answers what it is to fail with: an error
 * that was asked for, or that its device is lost. */
CUresult standin_enter(const char *name);
CUresult standin_leave(CUresult result);
_Noreturn void standin_broken(const char *rule);
bool standin_lacks(CUdevice_attribute attribute);
bool standin_reaches(int device, int peer); /* another one, and its memory */
bool standin_spoils(int device, int peer);  /* what it copies from there */

/* memory.c; with the lock held. Where the stand-in reaches [at, at + n); NULL: not all is mapped,
 * or *ret says what else is wrong. */
uint8_t *standin_reach(CUdeviceptr at, size_t n, int device, CUresult *ret);
int standin_device_of(CUdeviceptr at); /* whose memory is mapped there; -1: nobody's */
bool standin_pinned(const void *at, size_t n);
void standin_memory_live(struct standin_live *ret);
/* host.c; likewise: where [at, at + n), which is a device's address of it, is registered memory of
 * the host; NULL: it is none. */
void *standin_registered(CUdeviceptr at, size_t n);
void standin_host_live(struct standin_live *ret);
/* streams.c; likewise: a copy that is not done touches that. */
bool standin_in_flight(uint64_t at, uint64_t n);
bool standin_launched(int device); /* a kernel of it is not done */
CUresult standin_ask_launch(CUstream stream, const struct standin_launch *l);
void standin_streams_live(struct standin_live *ret);
/* kernels.c; likewise: runs it. Anything but CUDA_SUCCESS: the device is lost so. */
CUresult standin_kernel(const struct standin_launch *l, int device);
void standin_modules_live(struct standin_live *ret);

/* The functions of the library, by the member of struct driver that they stand for; NULL where
 * there is none. */
#define X(member, name, function, version, parameters)                                             \
    __attribute__((weak)) CUresult standin_##member parameters;
DRIVER_TABLE(X)
#undef X

#endif
