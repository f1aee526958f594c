/* Deliberate trouble in hand-overs by ticket (--aborts P), drawn from the seed: each request meets
 * the same trouble in every run of a seed, whatever the timing. The prefill engine draws it and
 * sends it to the decode engine. */
#ifndef REPLAY_TROUBLE_H
#define REPLAY_TROUBLE_H

#include <stdint.h>

#define TROUBLES_MAX 4 /* hand-overs of one request that may meet trouble */

/* X(NAME, key of the report): what happens */
#define TROUBLE_TABLE(X)                                                                           \
    X(NONE, "none")                                                                                \
    X(ABORT, "abort")             /* prefill closes its session before the hand-over */            \
    X(AWAY, "away")               /* the session is retracted, resumes, and is handed over then */ \
    X(DROP, "drop")               /* dropped while the decode side may be fetching it */           \
    X(LEAVE, "leave")             /* nobody fetches the ticket, and it is dropped in the end */    \
    X(EXPIRE, "expire")           /* the ticket stands for a moment, and decode is too late */     \
    X(EXPIRE_RACE, "expire_race") /* the ticket stands for a moment, and decode fetches at once */ \
    X(RENEW, "renew")             /* the ticket stands for a moment, and is renewed in time */     \
    X(CANCEL, "cancel")           /* its fetch is cancelled, and the session fetches again */      \
    X(CLOSE, "close")             /* the session is closed meanwhile, and another one fetches */   \
    X(FORGE, "forge")             /* the ticket is first shown with a wrong key */                 \
    X(AWAY_BEFORE, "away_before") /* decode's session is retracted between Match and Fetch */      \
    X(AWAY_AFTER, "away_after")   /* ... or once everything has arrived */

enum trouble {
#define X(name, key) TROUBLE_##name,
    TROUBLE_TABLE(X)
#undef X
        TROUBLE_KINDS
};

/* Draws the trouble of hand-over `handoff` of a request; `probability` is that of any. */
enum trouble trouble_draw(uint64_t seed, uint64_t index, uint32_t handoff, double probability);

/* How long until the trouble happens, if it races a fetch: up to two milliseconds, short delays as
 * often as long ones. */
uint64_t trouble_delay_ns(uint64_t seed, uint64_t index, uint32_t handoff);

/* Makes the blob of a ticket, which the decode engine can make again: up to 4 KiB, and for some the
 * largest size of a blob. Returns its bytes; `blob` has TERN_BLOB_BYTES. */
uint32_t blob_make(uint64_t seed, uint64_t index, uint32_t handoff, uint8_t *blob);

#endif
