/* Rules for a peer's messages: the side of each message, the errors that it may carry, and the
 * bounds of its lengths and counts. A listed peer is trusted with the bytes of pages and with its
 * own time, not with this daemon's state: an error about this host (the daemon is gone, a bug, a
 * disk) is never accepted from it. Checks against local state depend on the transfer:
 * pull_offer_fits, serve_msg. reshard_check_layout checks a peer's layouts.
 *
 * A decoder calls peer_msg_unfit before the core gets the message, and the core calls
 * peer_err_heard before an error becomes an answer. */
#ifndef CORE_PEER_WORDS_H
#define CORE_PEER_WORDS_H

#include "core/core.h"

#define MAY_SAY(name) (1u << TERN_##name)

/* Why a source ends a transfer, or never begins it. */
#define ENDS_OF_A_SERVE                                                                            \
    (MAY_SAY(INVALID) | MAY_SAY(UNSUPPORTED) | MAY_SAY(PEER_LOST) | MAY_SAY(TIMED_OUT) |           \
     MAY_SAY(BUSY) | MAY_SAY(GONE) | MAY_SAY(DENIED))
/* Why a puller's transfer ended: any error of its own. The source only compares it with OK. */
#define ENDS_OF_A_PULL ((1u << TERN_ERR_COUNT) - 1)

/* X(message, whether the source sends it, errors that it may carry) */
#define PEER_WORDS_TABLE(X)                                                                        \
    X(PULL_OPEN, false, MAY_SAY(OK))                                                               \
    X(PULL_OFFER, true, MAY_SAY(OK) | ENDS_OF_A_SERVE)                                             \
    X(PULL_DONE, false, ENDS_OF_A_PULL)                                                            \
    X(PULL_ABORT, true, ENDS_OF_A_SERVE)                                                           \
    X(RESET, false, MAY_SAY(OK))                                                                   \
    X(RESET_DONE, true, MAY_SAY(OK) | MAY_SAY(BUSY) | MAY_SAY(PEER_LOST))                          \
    X(PULL_MORE, true, MAY_SAY(OK))                                                                \
    X(PULL_TOKENS, false, MAY_SAY(OK))                                                             \
    X(PULL_NEXT, false, MAY_SAY(OK))                                                               \
    X(PULL_EARLY, true, MAY_SAY(OK))

/* Returns true if that side of a link may send the message. */
bool peer_may_send(enum peer_msg_kind kind, bool source);

/* The error that `word` means in a peer's message of that kind; PEER_LOST: not allowed there. */
enum tern_err peer_err_heard(enum peer_msg_kind kind, uint32_t word);

/* Returns why a message with this number of tokens and runs ends the link, as a static text. NULL:
 * valid by itself. */
const char *peer_msg_unfit(const struct peer_msg *m, uint32_t ntokens);

/* PULL_OPEN and PULL_TOKENS: returns true if a session can have these lengths. A peer with longer
 * sessions gets INVALID, and keeps its link. */
bool peer_tokens_fit(const struct peer_msg *m);

#endif
