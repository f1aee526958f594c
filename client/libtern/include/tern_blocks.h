/* Part of tern.h: a store of blocks by key, for engines that keep their KV in memory of their own.
 * docs/blocks.md defines a block and gives the cost of each call.
 *
 * A set is a namespace, a group and a size of values. It owns a connection, threads that copy, and
 * a mapping of the pool that the blocks lie in, so its calls take no struct tern. One thread at a
 * time may use a set, and different sets are independent. After a fork the set belongs to the
 * parent: in the child every call except tern_blocks_close returns TERN_DAEMON_LOST.
 *
 * Each call takes a list of keys, and its result arrays are in the order of that list. deadline_ms
 * applies to the whole call; 0: TERN_DEADLINE_DEFAULT_MS. After TIMED_OUT the arrays name the keys
 * that are done; the call may be repeated for the rest. After DAEMON_LOST close the set and open it
 * again. The new set finds the blocks that were on the disk. */
#ifndef TERN_BLOCKS_H
#define TERN_BLOCKS_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

#include <sys/uio.h>

#define TERN_BLOCK_KEY_MAX      32            /* bytes of a key; it has at least one */
#define TERN_BLOCK_VALUE_MAX    (64ull << 20) /* bytes of a value */
#define TERN_BLOCK_GROUP_MAX    31            /* bytes of a group's name */
#define TERN_BLOCK_SALT_MAX     200           /* bytes of the salt of its namespace */
#define TERN_BLOCKS_LIST_MAX    4096          /* keys of one call */
#define TERN_BLOCKS_THREADS_MAX 64            /* threads that copy for one set */
#define TERN_BLOCKS_PINNED_MAX  1024          /* blocks that one set can have pinned */

/* If the tenant's memory lies on a GPU, the blocks lie there too, and the set's threads copy by
 * streams of their own in the GPU's primary context. The calling thread's context is unchanged. */
struct tern_block_set;
struct tern_block_pin;

struct tern_block_config {
    struct tern_namespace ns; /* model, data type, LoRA ... of the values */
    const char *group;        /* 1 to 31 bytes without '/': "k", "v", "state"; part of each key */
    uint64_t value_bytes;     /* size of each value of the set, at least 8 */
    /* Bytes of the pool and of its host tier. All sets of the tenant with this group and value size
     * share one pool; the set that is opened first decides its size. */
    uint64_t pool_bytes, host_bytes;
    uint32_t threads;   /* threads that copy, including the calling thread; 0 stands for 1 */
    bool populate;      /* maps the whole pool at once, about 0.1 s a GiB; else the first touch of
                           each page, 4 KiB or huge, costs a page fault */
    const char *device; /* the tenant's region to use, as for tern_join; NULL: the first */
    /* The peers that find and get ask for blocks that this host does not have. NULL: none; a peer's
     * name: that peer; TERN_PEER_ANY: any peer that has the block. See tern_blocks_host. */
    const char *hosts;
};

/* Connects, and finds or opens the pool. *ret is owned by the caller. After an error
 * tern_blocks_error_text(NULL) returns its text, in this thread.
 *   INVALID      A field of *config is wrong, pages of that size are below the daemon's
 *                page_bytes_min, or `hosts` is no peer of the daemon.
 *   QUOTA        The tenant has less than pool_bytes of memory left.
 *   BUSY         All engines that the daemon admits are in use; a set is an engine. Close a set, or
 *                raise limits.engines.
 *   UNSUPPORTED  The daemon is too old for blocks; or as for tern_pool_map. */
TERN_API enum tern_err tern_blocks_open(const char *socket_path,
                                        const struct tern_block_config *config,
                                        uint32_t deadline_ms, struct tern_block_set **ret);
/* Closes the set, its pins and its threads. The blocks stay stored. NULL is allowed. */
TERN_API void tern_blocks_close(struct tern_block_set *set);
/* Returns the error text of the last call on the set, as tern_error_text does. */
TERN_API const char *tern_blocks_error_text(const struct tern_block_set *set);

struct tern_block_key {
    const void *bytes; /* borrowed for the call */
    uint32_t n;        /* 1 to TERN_BLOCK_KEY_MAX; keys of different lengths are different keys */
};

/* A value in the caller's memory: pieces of any alignment, together value_bytes long. */
struct tern_block_value {
    const struct iovec *iov; /* borrowed for the call */
    uint32_t niov;
};

/* The place of a block. A get of a block on the host tier or on the disk loads it into the pool. */
enum tern_block_place {
    TERN_BLOCK_NOWHERE = 0,
    TERN_BLOCK_IN_POOL = 1,
    TERN_BLOCK_ON_HOST = 2,
    TERN_BLOCK_ON_DISK = 3,
    TERN_BLOCK_ELSEWHERE = 4 /* a peer has it: tern_blocks_host */
};

/* Returns where the block of each key is. ret_places: NULL, or n values of enum tern_block_place.
 * *ret_front (may be NULL): the number of keys before the first one whose block is nowhere. The
 * call does not mark blocks as used; tern_blocks_touch does. */
TERN_API enum tern_err tern_blocks_find(struct tern_block_set *set,
                                        const struct tern_block_key *keys, uint32_t n,
                                        uint32_t deadline_ms, uint8_t *ret_places,
                                        uint32_t *ret_front);
/* Returns the name of the peer that has keys[i], according to the last find or get of the set;
 * NULL: this host has the block, or no peer has it. Borrowed until the next call on the set. For a
 * set with `hosts`, find and get have the daemon ask for the blocks that this host does not have:
 * the named peer, or up to 64 peers at once that share the tenant. The daemon waits at most 0.1 s
 * for the answers. A get then fetches each block from the first peer that reported it, verifies it,
 * and keeps it in the pool. If that peer no longer has the block or is lost, the block counts as
 * not there. touch, remove and pin apply to this host. */
TERN_API const char *tern_blocks_host(const struct tern_block_set *set, uint32_t i);
/* Copies values into the caller's memory. ret_got[i] 1: values[i] has all bytes of one put of
 * keys[i]. 0: the block is not there, and the content of values[i] is undefined. A block that
 * cannot be loaded from another tier counts as not there: the pool may have no room, or the block
 * may be damaged. The call marks the blocks that it finds as used. */
TERN_API enum tern_err tern_blocks_get(struct tern_block_set *set,
                                       const struct tern_block_key *keys,
                                       const struct tern_block_value *values, uint32_t n,
                                       uint32_t deadline_ms, uint8_t *ret_got);
/* Stores the values of keys whose block is not there. A block that is there is only marked as used;
 * nothing is copied. ret_stored (may be NULL): ret_stored[i] is 1 if the block is there now. The
 * first block of a list is evicted last. Do not change the values before the call returns.
 *   POOL_EXHAUSTED, BUSY  The pool had no room for the rest before the deadline: too many blocks
 *                         are pinned, or being copied to another tier. */
TERN_API enum tern_err tern_blocks_put(struct tern_block_set *set,
                                       const struct tern_block_key *keys,
                                       const struct tern_block_value *values, uint32_t n,
                                       uint32_t deadline_ms, uint8_t *ret_stored);
/* Marks blocks as used. *ret_found (may be NULL): the number of blocks that are on some tier. */
TERN_API enum tern_err tern_blocks_touch(struct tern_block_set *set,
                                         const struct tern_block_key *keys, uint32_t n,
                                         uint32_t deadline_ms, uint32_t *ret_found);
/* Removes blocks from all tiers: no get that begins after this call returns a value that was put
 * before the call. *ret_removed (may be NULL): the number of blocks that were there. If the daemon
 * is killed within moments after the call, the disk may have a removed block again.
 *   BUSY  Some blocks are still there: until the deadline they were pinned, or being copied or
 *         stored. The others are removed. */
TERN_API enum tern_err tern_blocks_remove(struct tern_block_set *set,
                                          const struct tern_block_key *keys, uint32_t n,
                                          uint32_t deadline_ms, uint32_t *ret_removed);
/* Loads blocks into the pool and pins them there until tern_blocks_unpin or tern_blocks_close:
 * nothing evicts or removes them. ret_pinned (may be NULL): ret_pinned[i] is 1 if keys[i] is
 * pinned. The set owns *ret. n is at most TERN_BLOCKS_PINNED_MAX.
 *   QUOTA  The set would have more than TERN_BLOCKS_PINNED_MAX blocks pinned, or the tenant more
 *          sessions than its sessions_max. Nothing was pinned. */
TERN_API enum tern_err tern_blocks_pin(struct tern_block_set *set,
                                       const struct tern_block_key *keys, uint32_t n,
                                       uint32_t deadline_ms, uint8_t *ret_pinned,
                                       struct tern_block_pin **ret);
/* Ends the pin and sets *pin to NULL. *pin may be NULL already. After an error the pin still exists
 * and may still pin some of its blocks: retry. */
TERN_API enum tern_err tern_blocks_unpin(struct tern_block_pin **pin, uint32_t deadline_ms);

/* Counts of a set since it was opened. */
struct tern_block_counts {
    uint64_t gets, hits;  /* keys asked for by gets, and those found */
    uint64_t puts, there; /* keys passed to puts, and those that were there already */
    uint64_t loads;       /* blocks that a get loaded from the host tier, the disk or a peer */
    uint64_t again;       /* blocks that were evicted while they were read, and looked up again */
    uint64_t damaged;     /* blocks whose bytes were not those of any put; they were removed */
    uint64_t requests;    /* round trips to the daemon */
};
TERN_API void tern_blocks_counts(const struct tern_block_set *set, struct tern_block_counts *ret);

/* ---- calls that return at once ----
 *
 * A queue owns a set and a thread, which makes the calls one after the other. Any number of threads
 * of the process may use a queue at the same time. Open one queue for each list of calls that is to
 * run in parallel with others. */
struct tern_block_queue;

#define TERN_BLOCKS_QUEUED_MAX 1024 /* calls of a queue whose results are not taken yet */

enum tern_block_what {
    TERN_BLOCKS_FIND = 1,
    TERN_BLOCKS_GET = 2,
    TERN_BLOCKS_PUT = 3,
    TERN_BLOCKS_TOUCH = 4,
    TERN_BLOCKS_REMOVE = 5
};

struct tern_block_call {
    enum tern_block_what what;
    uint32_t n; /* as in the call of that name */
    const struct tern_block_key *keys;
    const struct tern_block_value *values; /* for a get and a put */
    uint8_t *marks;       /* n values, as ret_places, ret_got or ret_stored; NULL is allowed
                             except for a get */
    uint32_t deadline_ms; /* from the submit to the end of the call, with the wait in the queue */
    uint64_t tag;         /* the caller's */
};

struct tern_block_result {
    uint64_t id, tag;
    enum tern_err err; /* GONE: the call was cancelled; the marks show which keys were done */
    uint32_t count;    /* find: ret_front; get and put: number of marks that are 1, 0 without marks;
                          touch: ret_found; remove: ret_removed */
    char text[256];    /* the error text */
};

/* Opens a queue and its set, as tern_blocks_open does. *ret is owned by the caller; end it with
 * tern_block_queue_close. */
TERN_API enum tern_err tern_block_queue_open(const char *socket_path,
                                             const struct tern_block_config *config,
                                             uint32_t deadline_ms, struct tern_block_queue **ret);
/* Cancels all calls, waits for the call under way, and drops the results that were not taken. NULL
 * is allowed. */
TERN_API void tern_block_queue_close(struct tern_block_queue *queue);
/* Returns an eventfd, for poll only: readable while there is a result. The queue owns it. */
TERN_API int tern_block_queue_fd(const struct tern_block_queue *queue);
/* Appends a call to the queue. *call is copied. Its keys, values and marks, and the memory that
 * they point to, are borrowed until the call's result is taken. *ret_id (may be NULL) names the
 * call.
 *   INVALID  `what` is no value of enum tern_block_what, or a get has no marks.
 *   BUSY     The results of TERN_BLOCKS_QUEUED_MAX calls are not taken yet. Take results first. */
TERN_API enum tern_err tern_block_queue_submit(struct tern_block_queue *queue,
                                               const struct tern_block_call *call,
                                               uint64_t *ret_id);
/* Cancels a call: at once if it waits in the queue, else when the request or the piece of copying
 * that is under way has ended. The queue returns its result like any other.
 *   GONE  There is no such call, or it has ended: see its result. */
TERN_API enum tern_err tern_block_queue_cancel(struct tern_block_queue *queue, uint64_t id);
/* Takes up to `most` results, in the order in which the calls ended. Returns the number of results;
 * 0: no call has ended since the last take. */
TERN_API uint32_t tern_block_queue_take(struct tern_block_queue *queue,
                                        struct tern_block_result *ret, uint32_t most);

#endif
