/* The cache that every exhibit is played against, beside Tern: blocks with reference counts on a
 * free list, a table of requests, and transfers that write when the test lets them. It is modelled
 * on what the reports say of the code before their fixes, in as few lines as show the harm, and is
 * nobody's code. Each fix is a flag; docs/museum.md names the report that it belongs to.
 *
 * A block is one word here, and so is a recurrent state. The word of block i of a prompt depends on
 * both; the state behind n blocks depends on all n words in their order. So an answer shows bytes
 * of another prompt, another place or another pass. */
#ifndef TEST_MUSEUM_TEXTBOOK_H
#define TEST_MUSEUM_TEXTBOOK_H

#include <stdbool.h>
#include <stdint.h>

#define TEXTBOOK_BLOCKS    16
#define TEXTBOOK_REQUESTS  8
#define TEXTBOOK_TRANSFERS 8
#define TEXTBOOK_PROMPT    4 /* blocks of a prompt at most */
#define TEXTBOOK_WAIT_S    300
#define TEXTBOOK_NONE      UINT32_MAX

struct textbook_fixes {
    bool failure_names_the_request;  /* a failed receive names the request, not a block */
    bool references_have_generation; /* a reallocated block is not served under an old reference */
    bool failure_waits_for_siblings; /* a failed request keeps its blocks while a transfer writes */
    bool writers_hold_blocks;        /* an aborted one does, too */
    bool abort_is_told;              /* the aborting side notifies the other one */
    bool hit_ends_at_state;          /* a hit ends at the deepest stored state, not at the KV */
    bool endpoint_is_checked;        /* before its use, under the lock of its teardown */
    bool failure_keeps_hold;         /* handed-over blocks stay held after a failed fetch */
    bool tail_is_held; /* the hold reaches the last block, beyond what the cache keeps */
};

/* HANDED: the prefill side has ended the request and holds its blocks for a decode side. */
enum textbook_state { REQUEST_NONE, REQUEST_WAITS, REQUEST_READY, REQUEST_FAILED, REQUEST_HANDED };

/* The client's answer: status 200 or 500, 0 for none. For a 200: how much of it is wrong. */
struct textbook_answer {
    uint32_t status, wrong_blocks;
    bool wrong_state;
};

struct textbook_block {
    uint64_t word;
    uint32_t refs, writers, gen;
    bool waits; /* for its writers; no request refers to it */
};

struct textbook_request {
    enum textbook_state state;
    uint32_t prompt, n, block[TEXTBOOK_PROMPT];
    uint64_t recurrent; /* of the slot: starts as the previous request left it */
    uint32_t pending;   /* transfers that have not ended */
    bool failed;        /* one of the transfers failed */
    uint64_t waits_until_s;
    struct textbook *peer; /* owner of the request's other half; NULL: none */
    uint32_t peer_request;
};

/* Published by the prefill side about the blocks of a request. */
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

/* A stored prefix: KV of `kv` blocks, and the state behind `state_at` blocks, 0 for none. */
struct textbook_stored {
    uint32_t prompt, kv, state_at;
    uint64_t word[TEXTBOOK_PROMPT], recurrent;
};

enum textbook_tier {
    TEXTBOOK_NEAR,
    TEXTBOOK_FAR,
    TEXTBOOK_TIERS
}; /* near: the device; far: the host or another program */

struct textbook_endpoint {
    bool open;
};

struct textbook {
    struct textbook_fixes fixed;
    uint32_t groups; /* of blocks; over 1 for a hybrid model */
    struct textbook_block block[TEXTBOOK_BLOCKS];
    uint32_t free[TEXTBOOK_BLOCKS], nfree; /* last freed, first allocated */
    struct textbook_request request[TEXTBOOK_REQUESTS];
    struct textbook_transfer transfer[TEXTBOOK_TRANSFERS];
    struct textbook_stored stored[TEXTBOOK_TIERS];
    struct textbook_endpoint endpoint; /* to the peer that restarts */
    uint64_t now_s;
    bool crashed;
};

void textbook_init(struct textbook *t, struct textbook_fixes fixed, uint32_t groups);

/* A request with n blocks, which it computes or waits for; TEXTBOOK_NONE if too few are free. */
uint32_t textbook_admit(struct textbook *t, uint32_t prompt, uint32_t n);
/* Runs the steps that write the request's blocks [from, to) and advance its state. */
void textbook_compute(struct textbook *t, uint32_t r, uint32_t from, uint32_t to);
void textbook_abort(struct textbook *t, uint32_t r);
struct textbook_answer textbook_answer(const struct textbook *t, uint32_t r);
void textbook_end(struct textbook *t, uint32_t r);

/* Pairs the two halves of a request; the half of `decode` waits. */
void textbook_pair(struct textbook *prefill, uint32_t p, struct textbook *decode, uint32_t d);
void textbook_clock(struct textbook *t, uint64_t now_s);

/* The request is over, and its blocks are held for the owner of a reference to them. */
void textbook_hand_over(struct textbook *t, uint32_t r);
/* The decode side reports that its fetch has ended. A later report changes nothing. */
void textbook_fetched(struct textbook *t, uint32_t r, bool ok);

struct textbook_reference textbook_reference(struct textbook *t, uint32_t r);
/* Starts one transfer of block i of the reference into block i of the request. */
uint32_t textbook_pull(struct textbook *t, uint32_t r, const struct textbook_reference *ref,
                       uint32_t i);
void textbook_lands(struct textbook *t, uint32_t x);
void textbook_fails(struct textbook *t, uint32_t x);

/* Stores the request's first `kv` blocks, with its state behind `state_at` blocks or without
 * one. */
void textbook_store(struct textbook *t, uint32_t r, enum textbook_tier tier,
                    struct textbook_stored what);
/* Copies the stored part of its prompt into the request. Returns how many blocks. */
uint32_t textbook_resume(struct textbook *t, uint32_t r);

/* The endpoint to a peer: opened when there is none. */
struct textbook_endpoint *textbook_connect(struct textbook *t);
/* The transport's own reaction once it has seen that the peer is gone. */
void textbook_teardown(struct textbook *t);
/* Takes the peer's keys through the endpoint. Returns false: an error that ends this request
 * alone. */
bool textbook_unpack(struct textbook *t, const struct textbook_endpoint *e);

#endif
