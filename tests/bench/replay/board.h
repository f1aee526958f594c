/* Counters of the engines, in memory shared with the parent: one process writes each field and the
 * parent reads it, for the progress bar during the run and for the report at its end. */
#ifndef REPLAY_BOARD_H
#define REPLAY_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#include "trouble.h"

#define BOARD_WHY_BYTES 512
#define BOARD_TIMES_MAX (1u << 20) /* Match times kept; a longer run keeps the first ones */

/* X(field, writer) */
#define BOARD_PREFILL(X)                                                                           \
    X(matched_tokens) /* found on the prefill side before computing */                             \
    X(prefill_retries)                                                                             \
    X(lost_resumable_tokens) /* more that would have been found, had nothing been dropped */       \
    X(prefill_wrong_bytes)   /* of the state that it resumed from */                               \
    X(prefill_failed)                                                                              \
    X(written_pages)                                                                               \
    X(prefill_retracts)                                                                            \
    X(prefill_recovers)                                                                            \
    X(prefill_recovered_pages) /* compared after a Recover */                                      \
    X(prefill_host_hit_tokens) /* of matched_tokens, those that came from the host tier */         \
    X(tickets)                 /* sessions that became tickets */                                  \
    X(tickets_fetched)         /* as the decode engine reports */                                  \
    X(tickets_taken)           /* of them, those that nothing else can have ended */               \
    X(tickets_dropped)                                                                             \
    X(lost_tickets)                                                                                \
    X(handed_again) /* requests that the decode engine could not fetch */                          \
    X(match_n)
#define BOARD_DECODE(X)                                                                            \
    X(finished) /* requests, including those that failed here */                                   \
    X(prompt_pages)                                                                                \
    X(decode_hit_pages)                                                                            \
    X(transferred_pages)                                                                           \
    X(unbalanced) /* requests whose hits and transferred pages are not their prompt pages */       \
    X(verified_pages)                                                                              \
    X(verified_state_pages)                                                                        \
    X(wrong_bytes)                                                                                 \
    X(decode_retries)                                                                              \
    X(decode_retracts)                                                                             \
    X(decode_recovers)                                                                             \
    X(decode_recovered_pages)                                                                      \
    X(decode_host_hit_tokens)                                                                      \
    X(decode_failed)                                                                               \
    X(fetching_ns) /* time with at least one fetch under way */                                    \
    X(fetched_kib)                                                                                 \
    X(verified_tail_pages) /* of HISTORY behind the last whole chunk, by ticket */                 \
    X(bytes_needed)        /* of pages that the decode side lacked when it fetched */              \
    X(cancelled)           /* fetches that were cut short */

struct board {
#define X(field) _Atomic uint64_t field;
    BOARD_PREFILL(X)
    BOARD_DECODE(X)
#undef X
    _Atomic uint64_t troubles[TROUBLE_KINDS]; /* met, as the prefill engine counts them */
    _Atomic uint64_t pool[2]; /* handles at the prefill and the decode daemon; 0 until opened */
    char prefill_why[BOARD_WHY_BYTES],
        decode_why[BOARD_WHY_BYTES]; /* the first failure; written before its count */
    uint32_t match_ns[BOARD_TIMES_MAX];
};

/* Relaxed is enough: one writer a field, and the parent reads the final values after the engine has
 * reported its end over a socket. */
static inline void count(_Atomic uint64_t *field, uint64_t n)
{
    atomic_store_explicit(field, atomic_load_explicit(field, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline uint64_t counted(_Atomic uint64_t *field)
{
    return atomic_load_explicit(field, memory_order_relaxed);
}

#endif
