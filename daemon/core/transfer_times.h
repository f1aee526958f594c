/* The stages of a transfer, what it waits for, and for how long: views for operators (query.h).
 * Derived from its state (transfer/stages.c), never decided upon. */
#ifndef CORE_TRANSFER_TIMES_H
#define CORE_TRANSFER_TIMES_H

#include <stdint.h>

/* As X(name, its word, valid in, valid out). QUEUED: nothing is in flight. WIRE: pages are in
 * flight. PUBLISHED: all its pages are published. WALKING: the source looks up the peer's tokens.
 * SEALING: its pages are pinned, and checksums are missing. OFFERED: the peer reads. RELEASED: the
 * peer has what it wanted. ENDING: it failed, or was cancelled. */
#define TRANSFER_STAGE_TABLE(X)                                                                    \
    X(QUEUED, "queued", true, false)                                                               \
    X(WIRE, "wire", true, false)                                                                   \
    X(PUBLISHED, "published", true, false)                                                         \
    X(WALKING, "walking", false, true)                                                             \
    X(SEALING, "sealing", false, true)                                                             \
    X(OFFERED, "offered", false, true)                                                             \
    X(RELEASED, "released", false, true)                                                           \
    X(ENDING, "ending", true, true)

/* Likewise. SOURCE: the source has not answered. BUSY: the source is busy, and is asked again
 * later. COMMIT: the source has not committed as much as the fetch needs. CREDIT: its peer or its
 * tenant has as much in flight as it may. TOKENS: the peer owes the following tokens. SEAL:
 * checksums. PROOF: proof that nothing writes or reads its pages any more. */
#define TRANSFER_WAIT_TABLE(X)                                                                     \
    X(NOTHING, "nothing", true, true)                                                              \
    X(SOURCE, "source", true, false)                                                               \
    X(BUSY, "busy_source", true, false)                                                            \
    X(COMMIT, "commit", true, false)                                                               \
    X(CREDIT, "credit", true, false)                                                               \
    X(TOKENS, "tokens", false, true)                                                               \
    X(SEAL, "seal", false, true)                                                                   \
    X(PROOF, "proof", true, true)

enum transfer_stage {
#define X(name, word, in, out) STAGE_##name,
    TRANSFER_STAGE_TABLE(X)
#undef X
        TRANSFER_STAGES
};

enum transfer_wait {
#define X(name, word, in, out) WAIT_##name,
    TRANSFER_WAIT_TABLE(X)
#undef X
        TRANSFER_WAITS
};

/* The sums exclude the present stage and wait. */
struct transfer_times {
    uint32_t stage, wait; /* enum transfer_stage, enum transfer_wait */
    uint64_t stage_since_ns, wait_since_ns;
    uint64_t stage_ns[TRANSFER_STAGES], wait_ns[TRANSFER_WAITS];
};

/* The sum with the present stage or wait, as of a time not before the last event. */
static inline uint64_t transfer_stage_ns(const struct transfer_times *t, enum transfer_stage stage,
                                         uint64_t now_ns)
{
    return t->stage_ns[stage] +
           (t->stage == stage && now_ns > t->stage_since_ns ? now_ns - t->stage_since_ns : 0);
}

static inline uint64_t transfer_wait_ns(const struct transfer_times *t, enum transfer_wait wait,
                                        uint64_t now_ns)
{
    return t->wait_ns[wait] +
           (t->wait == wait && now_ns > t->wait_since_ns ? now_ns - t->wait_since_ns : 0);
}

#endif
