/* A stand-in for libcuda.so.1, for machines without a GPU: devices whose memory is a memfd, which
 * processes pass to each other like a GPU's. It is no GPU and measures nothing. It keeps the
 * driver's rules for memory, and is stricter where a program could break them unnoticed:
 *
 * - the CPU cannot touch an address of a device: an access is a SIGSEGV;
 * - a thread makes the copies in streams late, in random order between streams; a copy to or from
 *   host memory that is not pinned is refused;
 * - sizes and addresses are whole granules; memory is used only where it is mapped and access to it
 *   was set, and in the context of its stream; a handle ends with its release;
 * - another device gets access to memory only if it reaches the memory's device; a copy from device
 *   to device is refused if the stream's device has no access to either end (tern-gpu asks a real
 *   driver for these rules: tests/gpu/rules.h);
 * - only our kernels run, late and by the same thread, on the CPU and from their own source; a
 * kernel that accesses memory that does not exist, or without access, loses its device;
 * - the program ends if memory is unmapped or unpinned during a copy of it, or unmapped while any
 *   kernel of its device is to run; if a module is unloaded then; if registered host memory is
 *   unmapped; if a function in a stream calls the driver; and if work is queued on a stream that is
 *   being captured;
 * - registered host memory has another address for devices, and no kernel of the context may be
 *   queued when it is unregistered.
 *
 * Environment: STANDIN_CUDA_DEVICES (2), STANDIN_CUDA_MIB of each (1024), STANDIN_CUDA_DELAY_US
 * (100: the most that a copy takes), STANDIN_CUDA_LACKS (N,N: numbers of attributes that are 0),
 * STANDIN_CUDA_NO_PEERS (N-M,N-M: device N does not reach M; all: no device reaches another),
 * STANDIN_CUDA_SPOILS_PEERS (likewise: copies by device N from memory of M arrive wrong),
 * STANDIN_CUDA_KERNELS (0: no module has code for its devices), STANDIN_CUDA_FAIL (NAME:NTH:RESULT:
 * that call fails, once; after an error from which a context does not recover, its device fails for
 * good), and CUDA_VISIBLE_DEVICES (numbers). A range's dma-buf is its memfd; a flush of NICs'
 * writes is counted and does nothing. Tests control it by the calls below, found by dlsym. */
#ifndef STANDIN_STANDIN_H
#define STANDIN_STANDIN_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/driver.h"

/* UUID of device i, one hexadecimal digit: there are at most 16. */
#define STANDIN_UUID(i) "GPU-7374616e-6469-6e00-0000-00000000000" #i

/* Numbers of objects that were made and not released. */
struct standin_live {
    uint32_t contexts, handles, ranges, maps, streams, events, pinned, registered, modules;
    uint32_t peers; /* accesses to a range by another device */
};

#define STANDIN_CALLS(X)                                                                           \
    X(let_fail, standin_let_fail, void, (const char *name, uint32_t nth, CUresult result))         \
    X(hang, standin_hang, void, (uint32_t device))                 /* its copies are never done */ \
    X(hang_kernels, standin_hang_kernels, void, (uint32_t device)) /* nor what is behind one */    \
    X(calls, standin_calls, uint32_t, (const char *name))          /* since `let_fail` */          \
    X(live, standin_live_now, struct standin_live, (void))                                         \
    X(look, standin_look, void, (void *to, CUdeviceptr from, size_t n)) /* not by a copy */        \
    X(spoil, standin_spoil, void, (CUdeviceptr at))                     /* flips a bit */          \
    X(go_on, standin_go_on, void, (uint32_t device))                    /* after `hang` */         \
    X(capture, standin_capture, void, (CUstream stream, int on))

struct standin {
    void *library;
#define X(member, name, ret, parameters) ret(*member) parameters;
    STANDIN_CALLS(X)
#undef X
};

#endif
