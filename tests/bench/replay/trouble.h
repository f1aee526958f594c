/* What goes wrong on purpose in hand-overs by ticket (--aborts P), drawn from the seed: each
 * request meets the same trouble in every run of a seed, whatever the timing. The prefill engine
 * draws it, and tells the decode engine. */
#ifndef REPLAY_TROUBLE_H
#define REPLAY_TROUBLE_H

#include <stdint.h>

#define TROUBLES_MAX 4 /* hand-overs of one request that may meet trouble */

/* X(NAME, key of the report): what happens */
#define TROUBLE_TABLE(X)                                                                           \
    X(NONE, "none")                                                                                \
    X(ABORT, "abort")             /* prefill closes its session before it is handed over */        \
    X(AWAY, "away")               /* it is retracted, comes back, and is handed over then */       \
    X(DROP, "drop")               /* dropped while the decode side may be fetching it */           \
    X(LEAVE, "leave")             /* nobody fetches it, and it is dropped in the end */            \
    X(EXPIRE, "expire")           /* it stands for a moment, and decode comes too late */          \
    X(EXPIRE_RACE, "expire_race") /* it stands for a moment, and decode comes at once */           \
    X(RENEW, "renew")             /* it would stand for a moment, and is renewed */                \
    X(CANCEL, "cancel")           /* its fetch is cancelled, and the session fetches again */      \
    X(CLOSE, "close")             /* the session is closed meanwhile, and another one fetches */   \
    X(FORGE, "forge")             /* it is shown with another key first */                         \
    X(AWAY_BEFORE, "away_before") /* decode's session is retracted between Match and Fetch */      \
    X(AWAY_AFTER, "away_after")   /* ... or when all has arrived */

enum trouble {
#define X(name, key) TROUBLE_##name,
    TROUBLE_TABLE(X)
#undef X
        TROUBLE_KINDS
};

/* Of hand-over number `handoff` of a request, which is to meet trouble with this probability. */
enum trouble trouble_draw(uint64_t seed, uint64_t index, uint32_t handoff, double probability);

/* How long until it happens, where it races something: up to two milliseconds, and short ones as
 * often. */
uint64_t trouble_delay_ns(uint64_t seed, uint64_t index, uint32_t handoff);

/* What the prefill engine gives along, which the decode engine can make again: up to 4 KiB, and of
 * some as much as a blob may have. Returns its bytes; `blob` has TERN_BLOB_BYTES. */
uint32_t blob_make(uint64_t seed, uint64_t index, uint32_t handoff, uint8_t *blob);

#endif
