/* Why a request is BUSY: one text for each cause, so that a caller of the core can check that the
 * cause is real. The texts for full tables of records are in arena/shares.h. */
#ifndef CORE_BUSY_H
#define CORE_BUSY_H

/* Why a fetch ends as BUSY: X(NAME, text). Each text names what to wait for. QUEUE: no request was
 * sent to the peer. */
#define PULL_BUSY_TABLE(X)                                                                         \
    X(QUEUE, "the peer is busy and earlier fetches wait for it: fetch again after retry_ms")       \
    X(SOURCE, "the peer already serves limits.pulls transfers; the tokens published so far "       \
              "stay: fetch again after retry_ms")                                                  \
    X(LAYOUTS, "the maximum number of layout pairs is being resharded; the tokens published so "   \
               "far stay: fetch again after retry_ms")                                             \
    X(RETIRES,                                                                                     \
      "this daemon has no free record for a release that waits for a step (limits.retires); the "  \
      "tokens published so far stay: fetch again when a step has passed")                          \
    X(NODES, "this daemon has no free prefix node (limits.nodes); the tokens published so far "    \
             "stay: close sessions or raise limits.nodes, then fetch again")                       \
    X(BLOB,                                                                                        \
      "this daemon has no room for the tokens behind the ticket's committed length "               \
      "(limits.token_blocks): close sessions or raise limits.token_blocks, then fetch again")      \
    X(ROOM, "more pages than one step may handle must first be evicted, copied to the host or "    \
            "released: fetch again in a moment, which continues the work")                         \
    X(STORES, "the pages that could be evicted are being stored on the disk first: fetch again "   \
              "in a moment")                                                                       \
    X(STATE, "the STATE of these tokens waits for another engine's step or was just freed: fetch " \
             "again in a moment")

enum pull_busy {
#define X(name, text) PULL_BUSY_##name,
    PULL_BUSY_TABLE(X)
#undef X
};

/* Why an operation that needs pages is BUSY. */
#define MAKING_ROOM                                                                                \
    "more pages than one step may handle must first be evicted, copied to the host or released: "  \
    "retry in a moment, which continues the work"

#define STORED_FIRST                                                                               \
    "the pages that could be evicted are being stored on the disk first: retry in a moment"

#define RELEASING "the daemon is still releasing pages of this session: retry in a moment"

#define SPARES_TOO_MANY                                                                            \
    "the session has too many pages beyond its written length: Rewind it to that length first"

#define PEER_HEARS_RESETS "a reset is being sent to the peer: fetch again in a moment"

#define STORE_TIME_OVER "the store timed out because the daemon is about to exit"

/* Loads from the host tier, in addition to records and room. */
#define LOAD_AWAITS_COMMIT "a commit of that prefix waits for its step: retry in a moment"
#define LOAD_AWAITS_COPY   "that prefix is being copied to the host: retry in a moment"
#define LOAD_COPY_FAILED   "a copy from the host tier failed: retry"
/* CORRUPT. */
#define LOAD_CORRUPT                                                                               \
    "the host's copy does not match its checksums: Abort, and compute the tokens again"

/* Why a ticket cannot be fetched now: X(NAME, text). The wire carries numbers, so append. */
#define TICKET_BUSY_TABLE(X)                                                                       \
    X(UNSAID, "the ticket's daemon cannot serve it yet: another fetch uses it, its session still " \
              "runs without committed or matching tokens, or the step that writes its pages has "  \
              "not passed: fetch again in a moment, or with follow")                               \
    X(SERVES,                                                                                      \
      "the ticket's daemon already serves limits.pulls transfers: fetch again after retry_ms")     \
    X(TAKEN, "another fetch is using the ticket: fetch again if that one fails")                   \
    X(STEP, "the step that writes the ticket's pages has not passed: fetch again in a moment")     \
    X(SUMS, "the checksums of the ticket's pages are being computed: fetch again in a moment")     \
    X(RUNS, "the ticket's session still runs and has committed nothing: fetch after its Handoff, " \
            "or from another host with follow")                                                    \
    X(UNMATCHED, "the ticket's session has not matched these tokens yet: fetch again in a moment")

enum ticket_busy {
#define X(name, text) TICKET_BUSY_##name,
    TICKET_BUSY_TABLE(X)
#undef X
        TICKET_BUSY_COUNT
};

/* The text's numbers: committed tokens, and tokens of the session's list. */
#define TICKET_STILL_RUNS                                                                          \
    "the ticket's session still runs, with # of its # tokens committed: fetch after its Handoff, " \
    "or from another host with follow"

#endif
