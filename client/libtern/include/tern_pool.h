/* Part of tern.h: layouts and pools, and the steps that devices have done. */
#ifndef TERN_POOL_H
#define TERN_POOL_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- pools ---- */

/* HISTORY is full attention KV, needed for every token. The other two are STATE, needed to continue
 * from one depth and no more. WINDOW is sliding-window KV: the pages of the last `window` tokens.
 * RECURRENT is SSM or linear-attention state: one page holds the whole state at one depth, and the
 * engine overwrites it in place as the session runs. */
enum tern_family { TERN_HISTORY = 0, TERN_WINDOW = 1, TERN_RECURRENT = 2 };
/* What happens to STATE pages that a deeper resume point of the same conversation has made
 * needless. LAZY: whoever needs pages takes these first. EAGER: they are freed at once. OFF: they
 * stay for as long as their prefix does. */
enum tern_supersede { TERN_SUPERSEDE_LAZY = 0, TERN_SUPERSEDE_EAGER = 1, TERN_SUPERSEDE_OFF = 2 };
/* The axis along which the ranks divide a page. Tern does not look into pages; it keeps pools of
 * different shards apart, as it does with different axes. With REPLICATED the engine promises that
 * all ranks write the same bytes: a transfer moves those of rank 0, once, and gives them to every
 * rank. */
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

/* A run of equal parts of the channels of a field, which is divided over the ranks by itself: such
 * as x, B and C of a convolution state, or q, k and v. A part stays whole. A field has at most 8.
 */
struct tern_channels {
    const char *name;      /* at most 31 bytes, and another one in each section of a field */
    uint32_t count, width; /* parts, and channels of a part */
};

/* DIVIDED: each rank has an equal run of the heads, or of the parts of each section; where there
 * are fewer of them than ranks, neighbouring ranks hold the same one. REPLICATED: each has all. */
enum tern_over { TERN_OVER_DIVIDED = 0, TERN_OVER_REPLICATED = 1 };

/* An array in the pages of a group, as all ranks together see it. Its axes are named "layer", "kv",
 * "token", "head", "channel", "dim" and "state", each once at most, in any order. Their lengths are
 * those of the whole pool, over all ranks and stages (of "token", page_tokens); the offset and the
 * strides are those in the page of one rank. Layers are divided over the stages; "head", or
 * "channel" by its sections, over the ranks of a stage. */
struct tern_field {
    const char *name; /* at most 31 bytes, and another one in each field of a group */
    enum tern_over over;
    uint32_t element_bytes;
    uint64_t offset; /* of its first element in a page */
    const struct tern_axis *axes;
    uint32_t naxes;
    const struct tern_channels *sections; /* with "channel"; else NULL */
    uint32_t nsections;
};

struct tern_group {
    const char *name; /* at most 255 bytes, and another one in each group of a layout */
    enum tern_family family;
    uint32_t page_tokens;         /* tokens that one page covers, 1 to 4096, a divisor of L; of
                                     RECURRENT, whose one page covers all, any such */
    uint64_t page_bytes;          /* bytes of a page in one region: a multiple of 8 */
    uint32_t units;               /* checksummed pieces of a page; 0 stands for 1. Times the ranks
                                     at most limits.sums_per_page, which is the number of the
                                     tenants' regions unless the configuration says more */
    uint32_t cap_pages;           /* most pages that the group may have; 0: only the pool's bytes
                                     limit it */
    const struct tern_axis *axes; /* outermost first; may be NULL */
    uint32_t naxes;
    uint32_t window;  /* WINDOW: tokens; else 0 */
    uint32_t reserve; /* WINDOW: tokens of the largest rewind, at least 1; else 0 */
    /* What its pages are made of: at most 8 fields. With them pages can be fetched from, and by,
     * pools that have the same fields over another number of ranks or stages, or in another order.
     * All groups of a layout have fields, or none has: then pages are fetched between pools of
     * equal layout alone. The name of a group with fields has at most 31 bytes. */
    const struct tern_field *fields;
    uint32_t nfields;
};

struct tern_layout {
    const struct tern_group *groups; /* borrowed for the call */
    uint32_t ngroups;
    enum tern_shard shard;
    uint64_t bytes; /* of the pool in one region. It is rounded down to whole slabs, equal pieces
                       whose size is a common multiple of the groups' page_bytes. There are two at
                       least, and no page lies in the first one */
    enum tern_supersede supersede;
    uint64_t host_bytes; /* of the pool's host tier in one region, rounded down likewise; 0: none */
    uint32_t stages;     /* of a pipeline: rank r is rank r % (ranks / stages) of stage r / (ranks /
                            stages). 0 stands for 1; counts where groups have fields */
    uint32_t align_tokens; /* L: the least common multiple of the HISTORY groups' page_tokens (0
                              stands for that), or a multiple of it, up to 16384. Pools that
                              exchange pages have one L: where their page_tokens differ, the pool
                              with smaller pages declares the other's */
};

/* Carves a pool from the tenant's memory. The scheduling process calls it once for its engine.
 * *ret_pool is the pool's handle, for tern_pool_map here and in the other ranks. *ret_align_tokens
 * (may be NULL) is L: prefixes are shared in whole multiples of L tokens.
 *
 * With host_bytes the pool has a host tier, which is memory of the daemon that no engine maps.
 * Committed prefixes are copied there in the background and outlive their device pages. tern_fetch
 * with peer NULL brings them back, and TERN_RETRACT_HOST puts running sessions there.
 *   QUOTA    The tenant has not that much memory left in the regions of this engine's ranks.
 *   INVALID  The layout; tern_error_text says what of it.
 *   BUSY     An older pool that nobody maps is being cleared to make room. Repeat in a moment. */
TERN_API enum tern_err tern_pool_open(struct tern *t, const struct tern_layout *layout,
                                      uint32_t deadline_ms, uint64_t *ret_pool,
                                      uint32_t *ret_align_tokens);
/* Gives up the pool and its prefixes. Mappings stay valid until they are unmapped. The memory can
 * be used by other pools once every process that mapped it has exited or left.
 *   CONFLICT  Sessions are open in it, or another engine has mapped it. */
TERN_API enum tern_err tern_pool_close(struct tern *t, uint64_t pool, uint32_t deadline_ms);
/* Maps this rank's region of the pool, readable and writable; a pure scheduler gets that of rank 0.
 * Where the daemon's memory lies on GPUs (device_memory in its configuration) CUDA's driver is
 * loaded and maps it; the process has a context on that GPU, or makes one before it uses the pages.
 * The connection owns *ret, and tern_pool_unmap or tern_destroy ends it. A child that is forked
 * while this call runs has at most an address range that it cannot touch.
 *   INVALID      The pool was opened by an engine of another world, or on other devices; or it lies
 *                on another GPU than this thread's context, or on one that the process cannot see.
 *   UNSUPPORTED  It lies on a GPU, and there is no driver of CUDA here.
 *   GONE         The GPU that it lies on has failed. */
TERN_API enum tern_err tern_pool_map(struct tern *t, uint64_t pool, uint32_t deadline_ms,
                                     struct tern_pool **ret);
/* Unmaps and sets *pool to NULL, which it may be already. No kernel may touch the pages any more.
 */
TERN_API void tern_pool_unmap(struct tern_pool **pool);
/* Where the mapping begins. Page i of a group lies at base + i * the group's page_bytes. Of a pool
 * on a GPU it is an address of that GPU (CUdeviceptr), which the CPU cannot touch. */
TERN_API uint8_t *tern_pool_base(const struct tern_pool *p);
/* The UUID of the GPU that the mapping lies on, as `nvidia-smi -L` has it; NULL: memory of the
 * host. Valid as long as the mapping. */
TERN_API const char *tern_pool_device(const struct tern_pool *p);
/* The number of that GPU among those that CUDA shows to this process, as cudaSetDevice takes it;
 * -1: memory of the host. */
TERN_API int tern_pool_ordinal(const struct tern_pool *p);
/* How many bytes are mapped. */
TERN_API uint64_t tern_pool_bytes(const struct tern_pool *p);

/* Equal blocks of the host's memory, such as one layer of pages, or of an engine's own KV: the
 * first byte of block k lies at base + k * stride. */
struct tern_blocks {
    uint8_t *base;
    uint64_t stride;    /* bytes */
    const uint32_t *at; /* numbers of blocks; borrowed for the call */
};
/* Copies the first `bytes` bytes of n blocks: of block from->at[i] to block to->at[i]. For engines
 * that keep KV in memory of their own, with one call for each layer. Nothing is checked: the caller
 * knows that each block lies in its memory, and that none is copied to where another one is read.
 */
TERN_API void tern_copy_blocks(const struct tern_blocks *to, const struct tern_blocks *from,
                               uint32_t n, uint64_t bytes);

/* Publishes the last step that this rank's device has finished. It is one release store into the
 * shared control page, without a request, and without a system call unless somebody waits for that
 * step (tern_wait_published). Call it when the device is done, not when the host has queued the
 * work.
 *   INVALID   The number would go back, or it is TERN_STEP_NONE. Nothing is stored.
 *   DENIED    A pure scheduler is no rank and has no step of its own.
 *   CONFLICT  An earlier step is in a stream (tern_done_step_on_stream) and not done. */
TERN_API enum tern_err tern_done_step(struct tern_pool *p, uint64_t step);

/* Who writes a step that went into a stream: the device, or, where that cannot, a thread of CUDA's
 * driver. */
enum tern_step_by { TERN_STEP_BY_DEVICE = 0, TERN_STEP_BY_HOST = 1 };

/* The same by a CUDA stream: the step is published when the stream has done all that it was given
 * before this call, kernels and copies, and no earlier. Nobody waits for the device. cu_stream is a
 * CUstream (or a cudaStream_t) of the context that is current in this thread, and all steps of a
 * rank go by streams of one context; *ret_by (may be NULL) says who will write. The steps of a rank
 * become done in their order: a stream that gets one waits there for the step before. Where several
 * streams work for a step, the engine lets this one wait for the others, before this call.
 *
 * The first call of a mapping registers the control page with the driver (two pages are pinned).
 * tern_pool_unmap and tern_destroy wait for what is in a stream, for up to 10 s. What is not done
 * then stays mapped, and the engine counts as living until the process exits.
 *   INVALID      As for tern_done_step; no context is current; or the stream is being captured into
 *                a graph: call it behind the graph's launch.
 *   DENIED       As for tern_done_step.
 *   BUSY         256 steps are in streams that a thread of the driver writes. Wait for the first.
 *   UNSUPPORTED  There is no driver of CUDA here, or it shows no GPU. Call tern_done_step when the
 *                device is done.
 *   INTERNAL     The driver failed; tern_error_text says in which call. Nothing went into the
 *                stream: call tern_done_step when the device is done. */
TERN_API enum tern_err tern_done_step_on_stream(struct tern_pool *p, uint64_t step, void *cu_stream,
                                                enum tern_step_by *ret_by);

/* Pages of one group, and the step of the commit that will name them. */
struct tern_checksums {
    uint64_t step;                 /* as tern_commit's: the step that writes them, or a later one */
    uint64_t page_bytes;           /* of the group, as in its struct tern_group */
    uint32_t units;                /* likewise; 0 stands for 1 */
    uint32_t n;                    /* pages, at least 1 */
    const struct tern_page *pages; /* index and generation as answers named them; borrowed for the
                                      call */
};
/* Lets this rank's GPU compute the checksums of pages, in the engine's own stream, behind all that
 * the stream was given before, so behind the kernels that write the pages. A commit that names the
 * step and these pages brings them: the daemon takes them when the step has passed, and asks the
 * GPU for nothing. Call it for each commit, in every rank, before the step's own tern_done_step or
 * tern_done_step_on_stream; that has to come when the stream has done this. Where a rank did not
 * call it for a page, or not for this very step, the daemon computes what is missing, as it does
 * without this call. Nobody waits for the device.
 *
 * What is brought counts as the checksums of those pages. If they are written again behind it, what
 * reads them (a peer, the host tier, the disk) finds that they do not agree, and answers CORRUPT:
 * no wrong byte is given to anybody. So ask again for pages that are written again.
 *
 * cu_stream as for tern_done_step_on_stream; all streams of a mapping are of one context on its
 * GPU. The first call of a mapping loads the kernels, takes 2 MiB of the GPU's memory and registers
 * the place where the checksums go (16 bytes and 8 a unit for each page of the pool), which may
 * take milliseconds: let it be one before the first step that matters. tern_pool_unmap and
 * tern_destroy wait for what is in a stream, as for steps.
 *
 *   INVALID      As for tern_done_step, but the step must not be done or in a stream yet; no
 *                context of the pool's GPU is current, or another one than at the first call; the
 *                stream is being captured into a graph; or the pages are none of one group.
 *   DENIED       As for tern_done_step.
 *   UNSUPPORTED  The pool is in memory of the host; the daemon is older than this call; this
 *                libtern was built without kernels, or they have no code for this GPU; the GPU
 *                cannot write memory of the host; or a page is larger than 1 GiB or has more units
 *                than limits.sums_per_page has room for. It stays so: do not call it again.
 *   INTERNAL     The driver failed; tern_error_text says in which call.
 *
 * After any error none of these pages has checksums that count: commit all the same. */
TERN_API enum tern_err tern_checksums_on_stream(struct tern_pool *p,
                                                const struct tern_checksums *of, void *cu_stream);

/* Waits until every rank of the engine has passed `step`, as the daemon sees it. Then what was
 * committed at that step or before can be matched by everybody on this host, and by peers a moment
 * later (tern_fetch's at_least waits for that). What was given back at it is free: it is also what
 * to do with tern_shortage.until_step. A rank that calls tern_done_step wakes the daemon at once;
 * steps that a device writes by itself are noticed within a millisecond. A connection waits for one
 * step at a time. The call may be repeated.
 *   INVALID   `step` is 0 or TERN_STEP_NONE.
 *   CONFLICT  A later wait of this connection took the place of this one.
 *   GONE      A process of this engine died, or this one has left it. */
TERN_API enum tern_err tern_wait_published(struct tern *t, uint64_t step, uint32_t deadline_ms);

#endif
