/* A stand-in for libcuda.so.1, for machines without a GPU: devices whose memory is a memfd, which
 * processes hand to each other as they would a GPU's. It is no GPU and measures nothing. It keeps
 * the rules that the driver has for memory, and is stricter where a program could get away with
 * breaking them:
 *
 * - an address of a device is one that the CPU cannot touch: who does so dies of SIGSEGV;
 * - copies, in streams, are done late, by a thread, in random order between streams; a copy to or
 *   from host memory that is not pinned is refused;
 * - sizes and addresses are whole granules; memory is used only where it is mapped and access to it
 *   was set, and in the context of its stream; a handle ends with its release;
 * - another device is given access to memory only if it reaches its device; a copy from device to
 *   device is refused if that of its stream has no access to either end (tern-gpu asks a real
 * driver for these: tests/gpu/rules.h);
 * - kernels are ours alone, run late by the same thread, on the CPU and from their own source; one
 *   that reaches for memory that is not there, or without access, loses its device;
 * - memory that is unmapped or unpinned while a copy is at it, or unmapped while any kernel of its
 *   device is to run, ends the program, and so does a module that is unloaded then; so does
 * registered memory of the host that is unmapped, a function in a stream that calls the driver, and
 * what is put into a stream that is being captured;
 * - registered memory of the host has another address for devices, and no kernel of the context is
 *   to run when it is unregistered.
 *
 * The environment says what it is like: STANDIN_CUDA_DEVICES (2), STANDIN_CUDA_MIB of each (1024),
 * STANDIN_CUDA_DELAY_US (100: a copy takes up to that), STANDIN_CUDA_LACKS (N,N: the numbers of
 * attributes that are 0), STANDIN_CUDA_NO_PEERS (N-M,N-M: device N does not reach M; all: none
 * does), STANDIN_CUDA_SPOILS_PEERS (likewise: what device N copies from memory of M arrives wrong),
 * STANDIN_CUDA_KERNELS (0: no module has code for its devices),
 * STANDIN_CUDA_FAIL (NAME:NTH:RESULT: that call fails, once; of an error
 * that a context does not recover from, its device fails for good), and CUDA_VISIBLE_DEVICES
 * (numbers). A range's dma-buf is its memfd; a flush of NICs' writes is counted and does nothing.
 * What tests do to it while it runs are the calls below, to be found by dlsym. */
#ifndef STANDIN_STANDIN_H
#define STANDIN_STANDIN_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/driver.h"

/* Of device i, one hexadecimal digit: there are at most 16. */
#define STANDIN_UUID(i) "GPU-7374616e-6469-6e00-0000-00000000000" #i

/* What was made and not taken back. */
struct standin_live {
    uint32_t contexts, handles, ranges, maps, streams, events, pinned, registered, modules;
    uint32_t peers; /* of a range, another device that has access to it */
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
