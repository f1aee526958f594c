/* State shared by the files of the stand-in. One lock guards all of it. */
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
    uint32_t pending;  /* number of records that are not done */
};

struct memory {
    bool used;
    uint32_t handles, maps, gen;
    int device, fd;
    uint64_t bytes;
    uint8_t *bytes_at; /* the stand-in's own address of them */
};

struct range {
    uint64_t base, bytes, reserved_at, reserved_bytes;
    struct memory *memory; /* NULL: nothing is mapped there */
    bool access[DEVICES_MAX];
};

/* A launch of a kernel, with its only parameter. */
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
    CUresult lost[DEVICES_MAX]; /* CUDA_SUCCESS: not lost */
    bool hangs[DEVICES_MAX], kernels_hang[DEVICES_MAX];
} standin_devices;
extern _Thread_local CUcontext standin_current;
extern _Thread_local bool standin_in_call; /* a function of the program runs in a stream */

/* Takes the lock until `leave`, and counts the call. Returns the error that the call is to fail
 * with: one that was asked for, or that its device is lost. */
CUresult standin_enter(const char *name);
CUresult standin_leave(CUresult result);
_Noreturn void standin_broken(const char *rule);
bool standin_lacks(CUdevice_attribute attribute);
bool standin_reaches(int device, int peer); /* whether it reaches the peer's memory */
bool standin_spoils(int device, int peer);  /* whether its copies from there arrive wrong */

/* memory.c; caller holds the lock. Returns the stand-in's address of [at, at + n); NULL: not all of
 * it is mapped, or *ret is another error. */
uint8_t *standin_reach(CUdeviceptr at, size_t n, int device, CUresult *ret);
int standin_device_of(CUdeviceptr at); /* of the memory mapped there; -1: none */
bool standin_pinned(const void *at, size_t n);
void standin_memory_live(struct standin_live *ret);
/* host.c; caller holds the lock. Returns the host's address of registered memory that devices see
 * at [at, at + n); NULL: it is none. */
void *standin_registered(CUdeviceptr at, size_t n);
void standin_host_live(struct standin_live *ret);
/* streams.c; caller holds the lock. Returns whether a copy that is not done touches the range. */
bool standin_in_flight(uint64_t at, uint64_t n);
bool standin_launched(int device); /* whether a kernel of it is not done */
CUresult standin_ask_launch(CUstream stream, const struct standin_launch *l);
void standin_streams_live(struct standin_live *ret);
/* kernels.c; caller holds the lock. Runs a kernel. Any other result than CUDA_SUCCESS: the device
 * is lost by it. */
CUresult standin_kernel(const struct standin_launch *l, int device);
void standin_modules_live(struct standin_live *ret);

/* The functions of the library, by the member of struct driver that they implement; NULL: none. */
#define X(member, name, function, version, parameters)                                             \
    __attribute__((weak)) CUresult standin_##member parameters;
DRIVER_TABLE(X)
#undef X

#endif
