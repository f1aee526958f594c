/* Part of tern.h: layouts, pools, and the steps that devices have finished. */
#ifndef TERN_POOL_H
#define TERN_POOL_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- pools ---- */

/* HISTORY is full attention KV, needed for every token. The other two are STATE, needed only to
 * continue from one depth. WINDOW is sliding-window KV: the pages of the last `window` tokens.
 * RECURRENT is SSM or linear-attention state: one page holds the whole state at one depth, and the
 * engine overwrites it in place as the session runs. */
enum tern_family { TERN_HISTORY = 0, TERN_WINDOW = 1, TERN_RECURRENT = 2 };
/* When the daemon frees STATE pages that a deeper resume point of the same conversation has made
 * unnecessary. LAZY: they are evicted before all other pages. EAGER: they are freed at once. OFF:
 * they stay as long as their prefix does. */
enum tern_supersede { TERN_SUPERSEDE_LAZY = 0, TERN_SUPERSEDE_EAGER = 1, TERN_SUPERSEDE_OFF = 2 };
/* The axis along which the ranks divide a page. Tern does not interpret pages. Pools of different
 * shards or of different axes exchange no pages, unless their groups have fields (struct
 * tern_field). With REPLICATED the engine promises that all ranks write the same bytes: a transfer
 * moves the bytes of rank 0 once and writes them to every rank. */
enum tern_shard {
    TERN_SHARD_NONE = 0,
    TERN_SHARD_HEADS,
    TERN_SHARD_REPLICATED,
    TERN_SHARD_LAYERS,
    TERN_SHARD_TOKENS
};

/* One axis of a page. A group has at most 8 of them. */
struct tern_axis {
    const char *name; /* "layer", "kv", "token", "head", "dim"; at most 255 bytes */
    uint64_t length, stride_bytes;
};

/* One section of the channels of a field: a run of equal parts. Each section is divided over the
 * ranks by itself, and a part is never divided. Examples of sections: x, B and C of a convolution
 * state, or q, k and v. A field has at most 8 sections. */
struct tern_channels {
    const char *name;      /* at most 31 bytes, unique among the sections of a field */
    uint32_t count, width; /* number of parts, and channels of one part */
};

/* DIVIDED: each rank has an equal run of the heads, or of the parts of each section. If there are
 * fewer heads or parts than ranks, neighbouring ranks have the same one. REPLICATED: each rank has
 * all. */
enum tern_over { TERN_OVER_DIVIDED = 0, TERN_OVER_REPLICATED = 1 };

/* One array of a group. The pages of all ranks together contain the whole array. Its axes are named
 * "layer", "kv", "token", "head", "channel", "dim" and "state", each at most once, in any order.
 * The lengths are those of the whole pool, over all ranks and stages (for "token": page_tokens);
 * the offset and the strides are those in the page of one rank. Layers are divided over the stages;
 * "head", or "channel" by its sections, over the ranks of a stage. */
struct tern_field {
    const char *name; /* at most 31 bytes, unique among the fields of a group */
    enum tern_over over;
    uint32_t element_bytes;
    uint64_t offset; /* of its first element in a page, in bytes */
    const struct tern_axis *axes;
    uint32_t naxes;
    const struct tern_channels *sections; /* with "channel"; else NULL */
    uint32_t nsections;
};

struct tern_group {
    const char *name; /* at most 255 bytes, unique among the groups of a layout */
    enum tern_family family;
    uint32_t page_tokens;         /* tokens that one page covers, 1 to 4096, a divisor of L; for
                                     RECURRENT, whose one page covers all tokens, any such number */
    uint64_t page_bytes;          /* bytes of a page in one region: a multiple of 8 */
    uint32_t units;               /* pieces of a page with a checksum each; 0 stands for 1. units *
                                     ranks is at most limits.sums_per_page, by default the number
                                     of the tenants' regions */
    uint32_t cap_pages;           /* the most pages of the group; 0: only limited by the pool */
    const struct tern_axis *axes; /* outermost first; may be NULL */
    uint32_t naxes;
    uint32_t window;  /* WINDOW: tokens; else 0 */
    uint32_t reserve; /* WINDOW: tokens of the largest rewind, at least 1; else 0 */
    /* The fields that its pages consist of, at most 8. Pools that have the same fields over another
     * number of ranks or stages, or in another order, can fetch each other's pages. Either all
     * groups of a layout have fields, or none; without fields, pages are fetched only between pools
     * of equal layout. The name of a group with fields has at most 31 bytes. */
    const struct tern_field *fields;
    uint32_t nfields;
};

struct tern_layout {
    const struct tern_group *groups; /* borrowed for the call */
    uint32_t ngroups;
    enum tern_shard shard;
    uint64_t bytes; /* of the pool in one region, rounded down to whole slabs: equal pieces whose
                       size is a common multiple of the groups' page_bytes. There are at least two,
                       and no page lies in the first */
    enum tern_supersede supersede;
    uint64_t host_bytes; /* of its host tier in one region, rounded down to whole slabs; 0: none */
    uint32_t stages;     /* of a pipeline: rank r is rank r % (ranks / stages) of stage r / (ranks /
                            stages). 0 stands for 1; used if groups have fields */
    uint32_t align_tokens; /* L: the least common multiple of the HISTORY groups' page_tokens (0
                              stands for that), or a multiple of it, up to 16384. Pools that
                              exchange pages must have the same L: if their page_tokens differ, the
                              pool with smaller pages declares the L of the other */
};

/* Opens a pool in the tenant's memory. The scheduler process calls it once for its engine.
 * *ret_pool is the pool's handle; pass it to tern_pool_map here and in the other ranks' processes.
 * *ret_align_tokens (may be NULL) is L: prefixes are shared in whole multiples of L tokens.
 *
 * With host_bytes the pool has a host tier, which is memory of the daemon that no engine maps.
 * Committed prefixes are copied there in the background and outlive their device pages. tern_fetch
 * without a peer loads them, and TERN_RETRACT_HOST copies running sessions there.
 *   QUOTA    The tenant does not have that much memory left in the regions of this engine's ranks.
 *   INVALID  The layout is wrong; tern_error_text names the field.
 *   BUSY     The daemon is clearing an older unmapped pool to make room, or valid tickets still use
 *            such a pool. Retry in a moment. */
TERN_API enum tern_err tern_pool_open(struct tern *t, const struct tern_layout *layout,
                                      uint32_t deadline_ms, uint64_t *ret_pool,
                                      uint32_t *ret_align_tokens);
/* Closes the pool and drops its prefixes. Mappings stay valid until they are unmapped. Other pools
 * can use the memory once every process that mapped it has exited or left.
 *   CONFLICT  Sessions are open in it, pages of it are leased to this engine, or another engine has
 *             mapped it. */
TERN_API enum tern_err tern_pool_close(struct tern *t, uint64_t pool, uint32_t deadline_ms);
/* Maps this rank's region of the pool, readable and writable; a pure scheduler maps the region of
 * rank 0. If the daemon's memory lies on GPUs (device_memory in its configuration), the call loads
 * CUDA's driver, which maps the memory. The process then needs a context on that GPU before it uses
 * the pages. The connection owns *ret, and tern_pool_unmap or tern_destroy ends it. A child that is
 * forked while this call runs inherits at most an address range that it cannot access.
 *   INVALID      An engine of another world or on other devices opened the pool; or the pool lies
 *                on another GPU than this thread's context, or on one that the process cannot see.
 *   UNSUPPORTED  The pool lies on a GPU, and this host has no CUDA driver.
 *   GONE         The GPU that it lies on has failed. */
TERN_API enum tern_err tern_pool_map(struct tern *t, uint64_t pool, uint32_t deadline_ms,
                                     struct tern_pool **ret);
/* Unmaps the pool and sets *pool to NULL; NULL is allowed. No kernel may touch the pages any more.
 */
TERN_API void tern_pool_unmap(struct tern_pool **pool);
/* A mapping. */
struct tern_pool_info {
    uint8_t *base;  /* page i of a group lies at base + i * the group's page_bytes. For a pool on
                       a GPU it is an address of that GPU (CUdeviceptr), which the CPU cannot
                       touch */
    uint64_t bytes; /* mapped bytes */
    const char *device; /* UUID of the GPU that it lies on, as `nvidia-smi -L` prints it; NULL:
                           memory of the host */
    int ordinal;        /* that GPU's number in this process, as cudaSetDevice takes it; -1: memory
                           of the host */
};
/* Returns what this process has mapped; borrowed, and constant until the pool is unmapped. */
TERN_API const struct tern_pool_info *tern_pool_info(const struct tern_pool *p);

/* Equal blocks in the host's memory, such as one layer of pages or of an engine's own KV. Block k
 * begins at base + k * stride. */
struct tern_blocks {
    uint8_t *base;
    uint64_t stride;    /* bytes */
    const uint32_t *at; /* block numbers; borrowed for the call */
};
/* Copies the first `bytes` bytes of n blocks, from block from->at[i] to block to->at[i]. Engines
 * that keep KV in memory of their own make one call for each layer. Nothing is checked: the caller
 * ensures that each block lies in its memory, and that no block is copied to where another one is
 * read.
 */
TERN_API void tern_copy_blocks(const struct tern_blocks *to, const struct tern_blocks *from,
                               uint32_t n, uint64_t bytes);

/* Publishes the last step that this rank's device has finished. The call is one release store into
 * the shared control page. It sends no request, and makes a system call only if a process waits for
 * that step (tern_wait_published). Call it when the device has finished, not when work is queued.
 *   INVALID   `step` is below the last step, or is TERN_STEP_NONE. Nothing is stored.
 *   DENIED    The process is a pure scheduler, which has no step of its own.
 *   CONFLICT  An earlier step is still in a stream (tern_done_step_on_stream). */
TERN_API enum tern_err tern_done_step(struct tern_pool *p, uint64_t step);

/* The writer of a step that is published by a stream: the device or, if the device cannot, a thread
 * of CUDA's driver. */
enum tern_step_by { TERN_STEP_BY_DEVICE = 0, TERN_STEP_BY_HOST = 1 };

/* Has a CUDA stream publish the step. The stream does so after it has finished all kernels and
 * copies that were queued on it before this call, and not earlier. The call does not wait for the
 * device. cu_stream is a CUstream (or a cudaStream_t) of the context that is current in this
 * thread, and all steps of a rank use streams of one context. *ret_by (may be NULL) is the writer
 * of the step. The steps of a rank are published in order: a stream waits until the rank's previous
 * step is published. If several streams work for a step, make this stream wait for the others
 * before this call.
 *
 * The first call of a mapping registers the control page with the driver (two pages are pinned).
 * tern_pool_unmap and tern_destroy wait up to 10 s for the steps in streams. If a step is not done
 * by then, its control page stays mapped, and the engine counts as living until the process exits.
 *   INVALID      As for tern_done_step; no context is current; or the stream is being captured into
 *                a graph: make the call after the graph's launch.
 *   DENIED       As for tern_done_step.
 *   BUSY         256 steps that a thread of the driver is to write are in streams already. Wait for
 *                the first of them.
 *   UNSUPPORTED  This host has no CUDA driver, or the driver shows no GPU. Call tern_done_step when
 *                the device is done.
 *   INTERNAL     The driver failed; tern_error_text names the driver's call. Nothing was queued in
 *                the stream: call tern_done_step when the device is done. */
TERN_API enum tern_err tern_done_step_on_stream(struct tern_pool *p, uint64_t step, void *cu_stream,
                                                enum tern_step_by *ret_by);

/* Pages of one group, and the step of the commit that will name them. */
struct tern_checksums {
    uint64_t step;                 /* as for tern_commit: the step that writes them, or a later
                                      one */
    uint64_t page_bytes;           /* of the group, as in its struct tern_group */
    uint32_t units;                /* of the group, too; 0 stands for 1 */
    uint32_t n;                    /* pages, at least 1 */
    const struct tern_page *pages; /* index and generation from answers; borrowed for the call */
};
/* Queues the computation of pages' checksums on this rank's GPU, in the engine's own stream, after
 * all work already queued there, so after the kernels that write the pages. A commit that names the
 * step and these pages uses the checksums: the daemon reads them when the step has passed, and
 * computes nothing on the GPU. Call it for each commit, in every rank, before the step's own
 * tern_done_step or tern_done_step_on_stream; the step must be published after the stream has
 * computed the checksums. If a rank did not make this call for a page, or made it for another step,
 * the daemon computes the missing checksums itself. The call does not wait for the device.
 *
 * The results count as the checksums of those pages. If the pages are written again later, every
 * reader (a peer, the host tier, the disk) finds a mismatch and reports CORRUPT: no reader uses a
 * wrong byte. So repeat the call for pages that are written again.
 *
 * cu_stream is as for tern_done_step_on_stream; all streams of a mapping are of one context on its
 * GPU. The first call of a mapping loads the kernels, takes 2 MiB of the GPU's memory and registers
 * the memory for the checksums (for each page of the pool 16 bytes, and 8 for each unit). That may
 * take milliseconds, so make the first call before the first step that matters. tern_pool_unmap and
 * tern_destroy wait for work in streams, as they do for steps.
 *
 *   INVALID      As for tern_done_step; the step is done or in a stream already; no context of the
 *                pool's GPU is current, or the current context differs from that of the first
 *                call; the stream is being captured into a graph; or the pages are not pages of
 *                one group.
 *   DENIED       As for tern_done_step.
 *   UNSUPPORTED  The pool is in memory of the host; the daemon is older than this call; this
 *                libtern was built without kernels, or they have no code for this GPU; the GPU
 *                cannot write memory of the host; or a page is larger than 1 GiB or has more units
 *                than limits.sums_per_page allows. This is permanent: do not call it again.
 *   INTERNAL     The driver failed; tern_error_text names the driver's call.
 *
 * After any error none of these pages has valid checksums, and the daemon computes them: commit the
 * pages all the same. */
TERN_API enum tern_err tern_checksums_on_stream(struct tern_pool *p,
                                                const struct tern_checksums *of, void *cu_stream);

/* Waits until every rank of the engine has passed `step`, as the daemon sees it. Then every session
 * on this host can match what was committed at that step or before, and peers can a moment later
 * (tern_fetch's at_least waits for that). Pages that were released at that step are free then, so
 * use this call also to wait for tern_shortage.until_step. A rank that calls tern_done_step wakes
 * the daemon at once; the daemon notices steps that a device writes by itself within a millisecond.
 * A connection waits for one step at a time. The call may be repeated.
 *   INVALID   `step` is 0 or TERN_STEP_NONE.
 *   CONFLICT  A later wait of this connection replaced this one.
 *   GONE      A process of this engine died, or this process has left the engine. */
TERN_API enum tern_err tern_wait_published(struct tern *t, uint64_t step, uint32_t deadline_ms);

#endif
