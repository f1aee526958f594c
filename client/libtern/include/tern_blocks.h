/* Part of tern.h: blocks, for engines that keep their KV in memory of their own and want a store of
 * blocks by key. docs/blocks.md says what a block is and what each call costs.
 *
 * A set is a namespace, a group and a size of values. It has a connection, threads that copy, and a
 * mapping of the pool that the blocks lie in, all of its own, so its calls take no struct tern. One
 * thread at a time may use a set, and different sets are independent. After a fork the set is the
 * parent's: every call in the child but tern_blocks_close is TERN_DAEMON_LOST.
 *
 * Each call takes a list of keys in the caller's order, and answers in that order. deadline_ms is
 * of the whole call; 0: TERN_DEADLINE_DEFAULT_MS. After TIMED_OUT what the arrays say is done, and
 * the rest may be repeated. After DAEMON_LOST close the set and open it again; blocks that the disk
 * has are there again. */
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
#define TERN_BLOCKS_THREADS_MAX 64            /* that copy for one set */
#define TERN_BLOCKS_PINNED_MAX  1024          /* blocks that one set has pinned */

/* Where the tenant's memory lies on a GPU, so do the blocks, and the set's threads copy by streams
 * of their own in its primary context. The context of the calling thread is not touched. */
struct tern_block_set;
struct tern_block_pin;

struct tern_block_config {
    struct tern_namespace ns; /* what values of equal keys depend on: model, data type, LoRA ... */
    const char *group;        /* 1 to 31 bytes without '/': "k", "v", "state"; part of each key */
    uint64_t value_bytes;     /* of every value of the set: 8 bytes or more */
    /* All sets of the tenant with this group and size share one pool: its bytes, and those of its
     * host tier. The set that is opened first decides. */
    uint64_t pool_bytes, host_bytes;
    uint32_t threads;   /* that copy, the calling one among them; 0 stands for 1 */
    bool populate;      /* maps all of the pool at once, about 0.1 s a GiB, in place of one page
                           fault for every 4 KiB that is touched for the first time */
    const char *device; /* which of the tenant's regions: as of tern_join_device; NULL: the first */
    /* Who is asked, by find and get, for what this host has not: NULL: nobody; a peer's name: that
     * one; TERN_PEER_ANY: whichever peer has it. See tern_blocks_host. */
    const char *hosts;
};

/* Connects, and finds or makes the pool. *ret is owned by the caller. The words of an error are
 * those of tern_blocks_error_text(NULL), in this thread.
 *   INVALID      Something of *config; also pages of that size are below the daemon's
 *                page_bytes_min, or `hosts` is no peer of it.
 *   QUOTA        The tenant has not pool_bytes of memory left, or the daemon no engine.
 *   UNSUPPORTED  The daemon is older than blocks; or as of tern_pool_map. */
TERN_API enum tern_err tern_blocks_open(const char *socket_path,
                                        const struct tern_block_config *config,
                                        uint32_t deadline_ms, struct tern_block_set **ret);
/* Ends the set, its pins and its threads. The blocks stay. NULL is allowed. */
TERN_API void tern_blocks_close(struct tern_block_set *set);
/* As tern_error_text, of the last call on the set. */
TERN_API const char *tern_blocks_error_text(const struct tern_block_set *set);

struct tern_block_key {
    const void *bytes; /* borrowed for the call */
    uint32_t n;        /* 1 to TERN_BLOCK_KEY_MAX; a key of other length is another key */
};

/* A value in the caller's memory: pieces that are value_bytes long together, of any alignment. */
struct tern_block_value {
    const struct iovec *iov; /* borrowed for the call */
    uint32_t niov;
};

/* Where a block is. A get of one on the host tier or on the disk brings it into the pool first. */
enum tern_block_place {
    TERN_BLOCK_NOWHERE = 0,
    TERN_BLOCK_IN_POOL = 1,
    TERN_BLOCK_ON_HOST = 2,
    TERN_BLOCK_ON_DISK = 3,
    TERN_BLOCK_ELSEWHERE = 4 /* a peer has it: tern_blocks_host */
};

/* Says of each key where its block is. ret_places: NULL, or n of enum tern_block_place. *ret_front
 * (may be NULL): how many are somewhere, from the front up to the first that is nowhere. Finding
 * uses nothing: see tern_blocks_touch. */
TERN_API enum tern_err tern_blocks_find(struct tern_block_set *set,
                                        const struct tern_block_key *keys, uint32_t n,
                                        uint32_t deadline_ms, uint8_t *ret_places,
                                        uint32_t *ret_front);
/* The peer that the last find or get of the set was told has keys[i]; NULL: this host has it, or
 * nobody. Borrowed until the next call on the set. Of a set with `hosts` the daemon asks, for
 * blocks that it has not, that peer, or up to 64 at once, of those that share the tenant, and waits
 * 0.1 s for the slowest. A get then fetches each block from the first peer that said it has it,
 * verifies it, and keeps it in the pool. A peer that has it no longer, or is lost, leaves it not
 * there. touch, remove and pin concern this host alone. */
TERN_API const char *tern_blocks_host(const struct tern_block_set *set, uint32_t i);
/* Copies values into the caller's memory. ret_got[i] is 1 where all bytes of one put of keys[i] are
 * in values[i]; 0: the block is not there, and what values[i] holds is of no meaning. A block that
 * cannot be brought from another tier, for want of room or because it is damaged, counts as not
 * there. It marks what it finds as used. */
TERN_API enum tern_err tern_blocks_get(struct tern_block_set *set,
                                       const struct tern_block_key *keys,
                                       const struct tern_block_value *values, uint32_t n,
                                       uint32_t deadline_ms, uint8_t *ret_got);
/* Stores values of keys that are not there; of one that is there nothing is copied, and it is
 * marked as used. ret_stored (may be NULL): ret_stored[i] is 1 where the block is there now. The
 * first of a list is evicted last. The caller keeps the values as they are until the call returns.
 *   POOL_EXHAUSTED, BUSY  The pool has no room for the rest: too much is pinned, or on its way to
 *                         another tier, for as long as the deadline allowed. */
TERN_API enum tern_err tern_blocks_put(struct tern_block_set *set,
                                       const struct tern_block_key *keys,
                                       const struct tern_block_value *values, uint32_t n,
                                       uint32_t deadline_ms, uint8_t *ret_stored);
/* Marks blocks as used. *ret_found (may be NULL): how many are somewhere. */
TERN_API enum tern_err tern_blocks_touch(struct tern_block_set *set,
                                         const struct tern_block_key *keys, uint32_t n,
                                         uint32_t deadline_ms, uint32_t *ret_found);
/* Removes blocks from all tiers: no get that begins after this call finds what was put before it.
 * *ret_removed (may be NULL): how many were there. If the daemon is killed within moments after the
 * call, its disk may have the block again.
 *   BUSY  Some are still there: pinned, or being copied or stored for as long as the deadline
 *         allowed. The others are removed. */
TERN_API enum tern_err tern_blocks_remove(struct tern_block_set *set,
                                          const struct tern_block_key *keys, uint32_t n,
                                          uint32_t deadline_ms, uint32_t *ret_removed);
/* Brings blocks into the pool and keeps them there until tern_blocks_unpin or tern_blocks_close:
 * nothing evicts or removes them. ret_pinned (may be NULL): ret_pinned[i] is 1 where keys[i] is
 * pinned. *ret is the set's. n is at most TERN_BLOCKS_PINNED_MAX.
 *   QUOTA  The set would have more than TERN_BLOCKS_PINNED_MAX, or the tenant more sessions than
 *          its sessions_max. Nothing was pinned. */
TERN_API enum tern_err tern_blocks_pin(struct tern_block_set *set,
                                       const struct tern_block_key *keys, uint32_t n,
                                       uint32_t deadline_ms, uint8_t *ret_pinned,
                                       struct tern_block_pin **ret);
/* Ends it, and sets *pin to NULL, which it may be already. After an error the pin is there, and may
 * have some of its blocks yet: repeat the call. */
TERN_API enum tern_err tern_blocks_unpin(struct tern_block_pin **pin, uint32_t deadline_ms);

/* Counts of the set since it was opened. */
struct tern_block_counts {
    uint64_t gets, hits;  /* keys that were asked for, and those that were there */
    uint64_t puts, there; /* keys that were to be put, and those that were there already */
    uint64_t loads;       /* blocks that a get brought from the host tier, the disk or a peer */
    uint64_t again;       /* blocks that were evicted while they were read, and looked for again */
    uint64_t damaged;     /* blocks whose bytes were no put's; they were removed */
    uint64_t requests;    /* round trips to the daemon */
};
TERN_API void tern_blocks_counts(const struct tern_block_set *set, struct tern_block_counts *ret);

/* ---- calls that return at once ----
 *
 * A queue has a set of its own and a thread, which makes the calls one after the other. Any thread
 * of the process may use a queue, several at a time. Open one queue for each list of calls that is
 * to go on beside others. */
struct tern_block_queue;

#define TERN_BLOCKS_QUEUED_MAX 1024 /* calls of a queue whose results were not taken */

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
    const struct tern_block_value *values; /* of a get and a put */
    uint8_t *marks;       /* n: ret_places, ret_got or ret_stored; NULL is allowed but for a get */
    uint32_t deadline_ms; /* from now to its end, its turn included */
    uint64_t tag;         /* the caller's */
};

struct tern_block_result {
    uint64_t id, tag;
    enum tern_err err; /* GONE: it was cancelled; the marks say what was done */
    uint32_t count;    /* find: ret_front; get and put: ones among the marks, 0 without marks;
                          touch: ret_found; remove: ret_removed */
    char text[256];    /* the words of an error */
};

/* As tern_blocks_open. *ret is owned by the caller. */
TERN_API enum tern_err tern_block_queue_open(const char *socket_path,
                                             const struct tern_block_config *config,
                                             uint32_t deadline_ms, struct tern_block_queue **ret);
/* Cancels all calls, waits for the one under way, and drops the results that were not taken. NULL
 * is allowed. */
TERN_API void tern_block_queue_close(struct tern_block_queue *queue);
/* An eventfd, for poll alone: readable while there is a result to be taken. It is the queue's. */
TERN_API int tern_block_queue_fd(const struct tern_block_queue *queue);
/* Appends a call. *call is copied. Its keys, values and marks, and what these point to, are
 * borrowed until its result was taken. *ret_id (may be NULL) names it.
 *   INVALID  `what` is none of them, or a get has no marks.
 *   BUSY     TERN_BLOCKS_QUEUED_MAX calls were not taken: take results first. */
TERN_API enum tern_err tern_block_queue_submit(struct tern_block_queue *queue,
                                               const struct tern_block_call *call,
                                               uint64_t *ret_id);
/* Ends a call before its time: at once where it waits for its turn, else when the request or the
 * piece of copying that is under way has ended. Its result comes as any other.
 *   GONE  There is no such call, or it has ended: its result says how. */
TERN_API enum tern_err tern_block_queue_cancel(struct tern_block_queue *queue, uint64_t id);
/* Takes up to `most` results, in the order in which the calls ended. Returns how many; 0: none has
 * ended since. */
TERN_API uint32_t tern_block_queue_take(struct tern_block_queue *queue,
                                        struct tern_block_result *ret, uint32_t most);

#endif
