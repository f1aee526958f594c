/* The cache that every exhibit is played against, beside Tern: blocks with reference counts on a
 * free list, a table of requests, transfers that write when the test says so. It is modelled on
 * what the reports say of the code before their fixes, in as few lines as show the harm, and is
 * nobody's code. Each fix is a flag; docs/museum.md tells which report it belongs to.
 *
 * A block is one word here, and so is a recurrent state. The word that belongs into block i of a
 * prompt depends on both; the state behind n blocks depends on all n words in their order. So bytes
 * of another prompt, another place or another pass are seen in an answer. */
#ifndef TEST_MUSEUM_TEXTBOOK_H
#define TEST_MUSEUM_TEXTBOOK_H

#include <stdbool.h>
#include <stdint.h>

#define TEXTBOOK_BLOCKS    16
#define TEXTBOOK_REQUESTS  8
#define TEXTBOOK_TRANSFERS 8
#define TEXTBOOK_PROMPT    4 /* blocks of a prompt at the most */
#define TEXTBOOK_WAIT_S    300
#define TEXTBOOK_NONE      UINT32_MAX

struct textbook_fixes {
    bool failure_names_the_request;  /* a failed receive is told by request, not by block */
    bool references_have_generation; /* a block that was given to another is not served as before */
    bool failure_waits_for_siblings; /* a failed request keeps its blocks while a transfer writes */
    bool writers_hold_blocks;        /* so does an aborted one */
    bool abort_is_told;              /* the side that aborts tells the other one */
    bool hit_ends_at_state;   /* a hit is as deep as a recurrent state is stored, not as KV */
    bool endpoint_is_checked; /* before its use, under the lock of its teardown */
    bool failure_keeps_hold;  /* what was handed over stays held behind a fetch that failed */
    bool tail_is_held;        /* it is held to its last block, not as far as the cache keeps it */
};

/* HANDED: over for the prefill side, which holds its blocks for a decode side. */
enum textbook_state { REQUEST_NONE, REQUEST_WAITS, REQUEST_READY, REQUEST_FAILED, REQUEST_HANDED };

/* What the client gets: 200 or 500, or 0 where nothing comes. Of a 200, what is wrong with it. */
struct textbook_answer {
    uint32_t status, wrong_blocks;
    bool wrong_state;
};

struct textbook_block {
    uint64_t word;
    uint32_t refs, writers, gen;
    bool waits; /* for its writers: nobody else holds it */
};

struct textbook_request {
    enum textbook_state state;
    uint32_t prompt, n, block[TEXTBOOK_PROMPT];
    uint64_t recurrent; /* the slot's: whoever had it before has left its own there */
    uint32_t pending;   /* transfers that have not ended */
    bool failed;        /* one of them did */
    uint64_t waits_until_s;
    struct textbook *peer; /* who has the other half of the request; NULL: nobody */
    uint32_t peer_request;
};

/* What the prefill side gives out about the blocks of a request. */
struct textbook_reference {
    struct textbook *source;
    uint32_t n, block[TEXTBOOK_PROMPT], gen[TEXTBOOK_PROMPT];
};

struct textbook_transfer {
    bool live;
    uint32_t request, to;
    struct textbook *source;
    uint32_t from, from_gen;
};

/* A prefix that was stored: KV of so many blocks, and the state behind so many, 0 for none. */
struct textbook_stored {
    uint32_t prompt, kv, state_at;
    uint64_t word[TEXTBOOK_PROMPT], recurrent;
};

enum textbook_tier {
    TEXTBOOK_NEAR,
    TEXTBOOK_FAR,
    TEXTBOOK_TIERS
}; /* the device; host or another program */

struct textbook_endpoint {
    bool open;
};

struct textbook {
    struct textbook_fixes fixed;
    uint32_t groups; /* of blocks; more than one for a hybrid model */
    struct textbook_block block[TEXTBOOK_BLOCKS];
    uint32_t free[TEXTBOOK_BLOCKS], nfree; /* what came back last goes first */
    struct textbook_request request[TEXTBOOK_REQUESTS];
    struct textbook_transfer transfer[TEXTBOOK_TRANSFERS];
    struct textbook_stored stored[TEXTBOOK_TIERS];
    struct textbook_endpoint endpoint; /* to the peer that restarts */
    uint64_t now_s;
    bool crashed;
};

void textbook_init(struct textbook *t, struct textbook_fixes fixed, uint32_t groups);

/* A request with n blocks, which it computes or waits for; TEXTBOOK_NONE where blocks are short. */
uint32_t textbook_admit(struct textbook *t, uint32_t prompt, uint32_t n);
/* The steps that write its blocks [from, to) and take its state along. */
void textbook_compute(struct textbook *t, uint32_t r, uint32_t from, uint32_t to);
void textbook_abort(struct textbook *t, uint32_t r);
/* It has had its answer, and gives its blocks back. */
struct textbook_answer textbook_answer(const struct textbook *t, uint32_t r);
void textbook_end(struct textbook *t, uint32_t r);

/* The two halves of a request know each other, and the one of `decode` waits. */
void textbook_pair(struct textbook *prefill, uint32_t p, struct textbook *decode, uint32_t d);
void textbook_clock(struct textbook *t, uint64_t now_s);

/* The request is over, and its blocks are held for whoever has a reference to them. */
void textbook_hand_over(struct textbook *t, uint32_t r);
/* The decode side tells that its fetch has ended. Whoever says so later says nothing new. */
void textbook_fetched(struct textbook *t, uint32_t r, bool ok);

struct textbook_reference textbook_reference(struct textbook *t, uint32_t r);
/* One transfer of block i of the reference into block i of the request; it is under way then. */
uint32_t textbook_pull(struct textbook *t, uint32_t r, const struct textbook_reference *ref,
                       uint32_t i);
void textbook_lands(struct textbook *t, uint32_t x);
void textbook_fails(struct textbook *t, uint32_t x);

/* The request's first `kv` blocks are kept, with its state as it is behind `state_at` or without.
 */
void textbook_store(struct textbook *t, uint32_t r, enum textbook_tier tier,
                    struct textbook_stored what);
/* Takes what is stored of its prompt into the request: as many blocks need no prefill. */
uint32_t textbook_resume(struct textbook *t, uint32_t r);

/* The endpoint to a peer: opened when there is none. */
struct textbook_endpoint *textbook_connect(struct textbook *t);
/* What the transport does by itself once it has seen that the peer is gone. */
void textbook_teardown(struct textbook *t);
/* Takes the peer's keys in through the endpoint. False: an error, which ends this request alone. */
bool textbook_unpack(struct textbook *t, const struct textbook_endpoint *e);

#endif
