/* A set of blocks (tern_blocks.h), shared by the files blocks*.c.
 *
 * A block is a prefix of one chunk of BLOCK_TOKENS tokens: the words of its key, padded with zeros,
 * and the key's length. Its page is the chunk's page. Sessions take pages for blocks that are put,
 * and pin blocks that are loaded from another tier. Only a tern_block_pin keeps blocks pinned
 * beyond a call. */
#ifndef CLIENT_BLOCKS_H
#define CLIENT_BLOCKS_H

#include "block_copy.h"
#include "internal.h"
#include "proto/namespace.h"

#define BLOCK_KEY_WORDS (TERN_BLOCK_KEY_MAX / 4u)
#define BLOCK_TOKENS    (BLOCK_KEY_WORDS + 1u)

#define BLOCKS_SESSIONS    64            /* of a set, for the blocks of one piece of a list */
#define BLOCKS_PUT_BYTES   (64ull << 20) /* bytes of a piece of a put, or one block */
#define BLOCKS_PARTS       2             /* parts of a piece, each committed by itself */
#define BLOCKS_PART_BYTES  (2ull << 20)  /* bytes of the last part, if a quarter is less */
#define BLOCKS_AHEAD       8             /* most pages that a set allocates ahead for a put; */
#define BLOCKS_AHEAD_BYTES (32ull << 20) /* the most bytes of them; */
#define BLOCKS_AHEAD_PART  32            /* at most one in this many of the pool's pages */
#define BLOCKS_GUESS_BYTES                                                                         \
    (4ull << 20) /* most bytes that a put copies before its keys are looked up */
#define BLOCKS_POLL_BYTES (2ull << 20) /* a call that moves this much or more polls */
#define BLOCKS_POLL_NS    100000u
#define BLOCKS_TRIES      4       /* lookups of a get for a block that was evicted while read */
#define BLOCKS_ASKED      1024    /* keys that peers are asked about at a time */
#define BLOCKS_PIECE      1024    /* keys of other requests: the daemon serves others between */
#define BLOCKS_HOSTS      256     /* peers' names that one call keeps */
#define BLOCKS_NAP_NS     200000u /* between two requests for a resource in use */
#define BLOCKS_END_MS                                                                              \
    100 /* how long a failed call waits until its sessions are closed                              \
         */

/* The questions of a Blocks request, and the values in its answer in place of a generation, as on
 * the wire. */
enum blocks_what { BLOCKS_FIND = 0, BLOCKS_TOUCH, BLOCKS_REMOVE, BLOCKS_ASK };
enum { PLACE_NOWHERE = 0, PLACE_HOST, PLACE_DISK, PLACE_HELD, PLACE_ELSEWHERE };

struct tern_block_pin {
    struct tern_block_set *set;
    struct tern_block_pin *next; /* in the set's list */
    uint32_t n;
    tern_session session[]; /* each has one block pinned */
};

/* Between calls each session is idle, 0 (none), or `dirty`: its last request was refused or has no
 * answer, so it is closed before the place is reused. */
struct block_sessions {
    tern_session v[BLOCKS_SESSIONS];
    uint64_t dirty; /* one bit each */
};

struct tern_block_set {
    struct tern *t; /* owned */
    struct tern_pool *map;
    struct tern_batch *batch;                /* owned; empty between calls, like `commit` */
    struct tern_batch *commit[BLOCKS_PARTS]; /* owned */
    struct copier *copier;                   /* owned */
    struct block_far far; /* for a pool on a GPU; driver NULL: memory of the host */
    uint64_t pool, value_bytes, page_bytes;
    char part[WIRE_NAMESPACE_PARTS][WIRE_STRING_MAX + 1]; /* the strings of `ns` */
    struct tern_namespace ns;                             /* the caller's, with the group */
    uint64_t ns_hash[2];

    struct block_sessions puts, loads;
    struct tern_page
        held[BLOCKS_SESSIONS]; /* allocated ahead by a session of `puts`; index 0: none */
    uint64_t broken; /* sessions of the piece under way that must not be reused, one bit each */
    uint32_t ahead;  /* the number of `held` pages between calls */
    bool fresh;      /* no block of the last put was there */
    uint64_t round;  /* of loads: see sessions_load */
    struct tern_block_pin *pins;
    uint32_t pinned;                           /* sessions of pins, including those in `left` */
    tern_session left[TERN_BLOCKS_PINNED_MAX]; /* sessions of ended pins, to be closed */
    uint32_t nleft;

    /* The call under way: the tokens of its list, and the places of its blocks. */
    uint32_t words[TERN_BLOCKS_LIST_MAX][BLOCK_TOKENS];
    uint32_t gathered[TERN_BLOCKS_LIST_MAX][BLOCK_TOKENS]; /* tokens of one request */
    struct tern_page page[TERN_BLOCKS_LIST_MAX];
    /* Indices into the list: still to do, in the pool, on other tiers, with a wrong copy (`before`:
     * their pages then), and removed or arrived. */
    uint32_t todo[TERN_BLOCKS_LIST_MAX], here[TERN_BLOCKS_LIST_MAX],
        elsewhere[TERN_BLOCKS_LIST_MAX], wrong[TERN_BLOCKS_LIST_MAX], gone[TERN_BLOCKS_LIST_MAX];
    struct tern_page before[TERN_BLOCKS_LIST_MAX];
    char asks[WIRE_STRING_MAX + 1];      /* the peer to ask, or TERN_PEER_ANY; "": none */
    uint16_t host[TERN_BLOCKS_LIST_MAX]; /* for each place: number of the entry in `hosts` that has
                                            it, from 1 on; 0: none */
    char hosts[BLOCKS_HOSTS][WIRE_STRING_MAX + 1];
    uint32_t nhosts;
    struct block_copy *copies; /* owned: copier_most, or BLOCKS_SESSIONS if that is more */
    _Atomic bool cancelled;    /* set by another thread: the call under way must end with GONE */
    struct tern_block_counts counts;
};

/* The list that a call was passed. */
struct block_list {
    const struct tern_block_key *keys;
    const struct tern_block_value *values; /* NULL: none */
    uint32_t n;
    uint64_t deadline_ns;
};

/* ---- blocks.c ---- */

/* Keeps the error text of a set or queue that could not be opened, for
 * tern_blocks_error_text(NULL). Returns err. */
enum tern_err blocks_not_open(enum tern_err err, const char *text);

/* ---- blocks_ask.c ---- */

/* If the values of n blocks are many bytes, the following requests poll for their answers. Each
 * call ends with blocks_poll(set, 0), because other calls use the same connection. */
static inline void blocks_poll(struct tern_block_set *set, uint32_t n)
{
    set->t->poll_ns = n * set->value_bytes >= BLOCKS_POLL_BYTES ? BLOCKS_POLL_NS : 0;
}
/* Checks a list and its values, and writes its keys to set->words. */
enum tern_err blocks_begin(struct tern_block_set *set, const struct block_list *list);
/* Asks the daemon about the keys at these n places of the list (NULL: the first n), and writes the
 * answers to the same places of set->page. */
enum tern_err blocks_ask(struct tern_block_set *set, enum blocks_what what, const uint32_t *at,
                         uint32_t n, uint64_t deadline_ns);
/* The same, and calls `meanwhile`, which sends nothing, while the first request is under way. */
typedef void blocks_while_fn(void *arg);
enum tern_err blocks_ask_while(struct tern_block_set *set, enum blocks_what what,
                               const uint32_t *at, uint32_t n, uint64_t deadline_ns,
                               blocks_while_fn *meanwhile, void *arg);
/* If the set has `hosts`: asks them for those of the first n places of set->todo that are nowhere,
 * and writes the answers to set->page and set->host. */
enum tern_err blocks_ask_hosts(struct tern_block_set *set, uint32_t n, uint64_t deadline_ns);
/* Returns the peer that reported the block at that place; NULL: none. */
static inline const char *block_host(const struct tern_block_set *set, uint32_t at)
{
    return set->host[at] ? set->hosts[set->host[at] - 1] : NULL;
}
/* Returns true if the block is on any tier or peer. */
static inline bool block_is_there(struct tern_page p)
{
    return p.index != 0 || p.generation == PLACE_HOST || p.generation == PLACE_DISK ||
           p.generation >= PLACE_ELSEWHERE;
}
/* Prepares the copy between the value at that place of the list and a page. MALFORMED: the pool has
 * no such page. */
enum tern_err block_copy_of(struct tern_block_set *set, const struct block_list *list, uint32_t at,
                            uint32_t page, struct block_copy *ret);
/* Makes the first n of set->copies. INTERNAL: the GPU has failed. */
enum tern_err blocks_copy(struct tern_block_set *set, uint32_t n, enum copy_way way);
enum tern_err blocks_gpu_failed(struct tern_block_set *set); /* sets the text; returns INTERNAL */
/* Returns the milliseconds up to the deadline, at least 1. */
uint32_t blocks_left_ms(uint64_t deadline_ns);
/* Waits a moment. Returns false if the deadline has passed, or the call was cancelled. */
bool blocks_nap(const struct tern_block_set *set, uint64_t deadline_ns);

/* ---- blocks_sessions.c ---- */

static inline uint64_t sessions_below(uint32_t n)
{
    return n < 64 ? (1ull << n) - 1 : UINT64_MAX;
}

/* Ensures that the first n sessions exist and are not dirty. QUOTA, BUSY: too many. */
enum tern_err sessions_ready(struct tern_block_set *set, struct block_sessions *s, uint32_t n,
                             uint64_t deadline_ns);
/* Loads the blocks at these n places of the list into the pool and pins them by the first n
 * sessions of `loads`: ret_pages[i] is the page of the block at at[i], or 0 if it cannot be loaded.
 * Call sessions_rest next, whatever the result. */
enum tern_err sessions_load(struct tern_block_set *set, const uint32_t *at, uint32_t n,
                            uint64_t deadline_ns, uint32_t *ret_pages);
/* Ends the pins of the first n sessions of `loads`. The text of an earlier error stays. */
void sessions_rest(struct tern_block_set *set, uint32_t n, uint64_t deadline_ns);

/* Closes the sessions in v, of which 0 is none, and sets each closed one to 0. BUSY: the daemon
 * still has some at the deadline. */
enum tern_err sessions_close(struct tern_block_set *set, tern_session *v, uint32_t n,
                             uint64_t deadline_ns);
/* Keeps sessions of an ended pin that could not be closed yet. */
void sessions_leave(struct tern_block_set *set, const tern_session *v, uint32_t n);
/* Tries once more to close each of them. */
void sessions_close_left(struct tern_block_set *set, uint64_t deadline_ns);

/* ---- blocks_pin.c ---- */

void pins_free(struct tern_block_set *set);

#endif
