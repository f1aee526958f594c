/* A set of blocks (tern_blocks.h), as the files blocks*.c share it.
 *
 * A block is a prefix of one chunk of BLOCK_TOKENS tokens: the words of its key, filled up with
 * zeros, and the key's length. Its page is the chunk's page. Sessions take pages for blocks that
 * are put, and pin those that are read from another tier; none of them outlasts a call, but for
 * pins. */
#ifndef CLIENT_BLOCKS_H
#define CLIENT_BLOCKS_H

#include "block_copy.h"
#include "internal.h"
#include "proto/namespace.h"

#define BLOCK_KEY_WORDS (TERN_BLOCK_KEY_MAX / 4u)
#define BLOCK_TOKENS    (BLOCK_KEY_WORDS + 1u)

#define BLOCKS_SESSIONS    64            /* of a set, for the blocks of one piece of a list */
#define BLOCKS_PUT_BYTES   (64ull << 20) /* that a piece of a put takes pages for, or one block */
#define BLOCKS_PARTS       4             /* of a piece, which are committed one by one, */
#define BLOCKS_PART_BYTES  (2ull << 20)  /* each of so many bytes at least */
#define BLOCKS_AHEAD       8             /* pages that a set holds for its next put, at most; */
#define BLOCKS_AHEAD_BYTES (32ull << 20) /* so many bytes of them; */
#define BLOCKS_AHEAD_PART  64            /* and of the pool's pages one in so many */
#define BLOCKS_TRIES       4    /* times that a get looks for a block that was evicted while read */
#define BLOCKS_ASKED       1024 /* keys that peers are asked about at a time */
#define BLOCKS_PIECE       2048 /* keys of any other request: others are served between two */
#define BLOCKS_HOSTS       256  /* names of peers that one call keeps */
#define BLOCKS_NAP_NS      200000u /* between two requests for what is in use */
#define BLOCKS_END_MS                                                                              \
    100 /* how long a call that has failed waits for its sessions to be closed                     \
         */

/* The questions of a Blocks, and the values that its answer has in the place of a generation, as on
 * the wire. */
enum blocks_what { BLOCKS_FIND = 0, BLOCKS_TOUCH, BLOCKS_REMOVE, BLOCKS_ASK };
enum { PLACE_NOWHERE = 0, PLACE_HOST, PLACE_DISK, PLACE_HELD, PLACE_ELSEWHERE };

struct tern_block_pin {
    struct tern_block_set *set;
    struct tern_block_pin *next; /* of the set's */
    uint32_t n;
    tern_session session[]; /* each has one block pinned */
};

/* Between calls each is idle, 0 (there is none), or `dirty`: its last request was not answered, or
 * was refused, so it is closed before the place is used again. */
struct block_sessions {
    tern_session v[BLOCKS_SESSIONS];
    uint64_t dirty; /* a bit each */
};

struct tern_block_set {
    struct tern *t; /* owned */
    struct tern_pool *map;
    struct tern_batch *batch;                /* owned; empty between calls, as these are: */
    struct tern_batch *commit[BLOCKS_PARTS]; /* owned */
    struct copier *copier;                   /* owned */
    struct block_far far; /* where the pool lies on a GPU; driver NULL: it does not */
    uint64_t pool, value_bytes, page_bytes;
    char part[WIRE_NAMESPACE_PARTS][WIRE_STRING_MAX + 1]; /* what `ns` points to */
    struct tern_namespace ns;                             /* the caller's, with the group */
    uint64_t ns_hash[2];

    struct block_sessions puts, loads;
    struct tern_page
        held[BLOCKS_SESSIONS]; /* that a session of a put has got ahead; index 0: none */
    uint64_t broken; /* sessions of the piece under way that are not to be used again, a bit each */
    uint32_t ahead;  /* so many are held between calls */
    uint64_t round;  /* of loads: see sessions_load */
    struct tern_block_pin *pins;
    uint32_t pinned;                           /* sessions of them, and those that are left */
    tern_session left[TERN_BLOCKS_PINNED_MAX]; /* of pins that are no more, to be closed */
    uint32_t nleft;

    /* The call under way: the tokens of its list, and where its blocks are. */
    uint32_t words[TERN_BLOCKS_LIST_MAX][BLOCK_TOKENS];
    uint32_t gathered[TERN_BLOCKS_LIST_MAX][BLOCK_TOKENS]; /* those of one request */
    struct tern_page page[TERN_BLOCKS_LIST_MAX];
    /* Places of the list: what is left to do, what the pool has, what other tiers have, copies that
     * were not right, and what those had before; what goes or came. */
    uint32_t todo[TERN_BLOCKS_LIST_MAX], here[TERN_BLOCKS_LIST_MAX],
        elsewhere[TERN_BLOCKS_LIST_MAX], wrong[TERN_BLOCKS_LIST_MAX], gone[TERN_BLOCKS_LIST_MAX];
    struct tern_page before[TERN_BLOCKS_LIST_MAX];
    char asks[WIRE_STRING_MAX + 1];      /* the peer that is asked, or TERN_PEER_ANY; "": nobody */
    uint16_t host[TERN_BLOCKS_LIST_MAX]; /* of each place: which of `hosts` has it, from 1 on; 0 */
    char hosts[BLOCKS_HOSTS][WIRE_STRING_MAX + 1];
    uint32_t nhosts;
    struct block_copy *copies; /* owned: copier_most, or BLOCKS_SESSIONS if that is more */
    _Atomic bool cancelled;    /* by another thread: the call under way is to end, with GONE */
    struct tern_block_counts counts;
};

/* A list as one of the calls got it. */
struct block_list {
    const struct tern_block_key *keys;
    const struct tern_block_value *values; /* NULL: the call has none */
    uint32_t n;
    uint64_t deadline_ns;
};

/* ---- blocks.c ---- */

/* Keeps the words of a set, or a queue, that did not come about, for tern_blocks_error_text(NULL).
 * Returns err. */
enum tern_err blocks_not_open(enum tern_err err, const char *text);

/* ---- blocks_ask.c ---- */

/* Checks a list and its values, and writes its keys to set->words. */
enum tern_err blocks_begin(struct tern_block_set *set, const struct block_list *list);
/* Asks about the keys at these n places of the list (NULL: at the first n), and writes the answers
 * to the same places of set->page. */
enum tern_err blocks_ask(struct tern_block_set *set, enum blocks_what what, const uint32_t *at,
                         uint32_t n, uint64_t deadline_ns);
/* Where the set has `hosts`: asks them for those of the first n places of set->todo that are
 * nowhere, and says so in set->page and set->host. */
enum tern_err blocks_ask_hosts(struct tern_block_set *set, uint32_t n, uint64_t deadline_ns);
/* The peer that was said to have the block at that place; NULL: none. */
static inline const char *block_host(const struct tern_block_set *set, uint32_t at)
{
    return set->host[at] ? set->hosts[set->host[at] - 1] : NULL;
}
/* Is the block anywhere? */
static inline bool block_is_there(struct tern_page p)
{
    return p.index != 0 || p.generation == PLACE_HOST || p.generation == PLACE_DISK ||
           p.generation >= PLACE_ELSEWHERE;
}
/* The copy between the value at that place of the list and a page. MALFORMED: the pool has no such
 * page. */
enum tern_err block_copy_of(struct tern_block_set *set, const struct block_list *list, uint32_t at,
                            uint32_t page, struct block_copy *ret);
/* Makes the first n of set->copies. INTERNAL: the GPU has failed. */
enum tern_err blocks_copy(struct tern_block_set *set, uint32_t n, enum copy_way way);
enum tern_err blocks_gpu_failed(struct tern_block_set *set); /* says so: INTERNAL */
/* Milliseconds up to the deadline, at least one. */
uint32_t blocks_left_ms(uint64_t deadline_ns);
/* Waits a moment. False: the deadline has passed, or the call was cancelled. */
bool blocks_nap(const struct tern_block_set *set, uint64_t deadline_ns);

/* ---- blocks_sessions.c ---- */

static inline uint64_t sessions_below(uint32_t n)
{
    return n < 64 ? (1ull << n) - 1 : UINT64_MAX;
}

/* The first n sessions are there and not dirty now. QUOTA, BUSY: the daemon has not so many. */
enum tern_err sessions_ready(struct tern_block_set *set, struct block_sessions *s, uint32_t n,
                             uint64_t deadline_ns);
/* Brings the blocks at these n places of the list into the pool and pins them by the first n
 * sessions of loads: ret_pages[i] is the page of the block at at[i], 0 where it is not to be had.
 * Whatever it returns, sessions_rest comes next. */
enum tern_err sessions_load(struct tern_block_set *set, const uint32_t *at, uint32_t n,
                            uint64_t deadline_ns, uint32_t *ret_pages);
/* Ends the pins of the first n sessions of loads. The words stay those of what failed before. */
void sessions_rest(struct tern_block_set *set, uint32_t n, uint64_t deadline_ns);

/* Closes those in v, of which 0 is none: what the daemon has no more becomes 0. BUSY: it has some
 * yet, for as long as the deadline allows. */
enum tern_err sessions_close(struct tern_block_set *set, tern_session *v, uint32_t n,
                             uint64_t deadline_ns);
/* Sessions of a pin that could not be closed now, and that nobody has any more. */
void sessions_leave(struct tern_block_set *set, const tern_session *v, uint32_t n);
/* Tries it once more for each of them. */
void sessions_close_left(struct tern_block_set *set, uint64_t deadline_ns);

/* ---- blocks_pin.c ---- */

void pins_free(struct tern_block_set *set);

#endif
