/* Why a request is BUSY: one text for each cause, so that a caller of the core can check that the
 * cause is real. The texts for full tables of records are in arena/shares.h. */
#ifndef CORE_BUSY_H
#define CORE_BUSY_H

/* Why a fetch ends as BUSY: X(NAME, text). Each text names what to wait for. QUEUE: no request was
 * sent to the peer. */
#define PULL_BUSY_TABLE(X)                                                                         \
    X(QUEUE, "the peer is busy, and earlier fetches from it wait before this one: fetch again "    \
             "after retry_ms")                                                                     \
    X(SOURCE, "the peer serves as many transfers as it may (its limits.serves); what was "         \
              "published before stays: fetch again after retry_ms")                                \
    X(LAYOUTS, "transfers are resharded between as many pairs of layouts as may be at a time; "    \
               "what was published before stays: fetch again after retry_ms")                      \
    X(RETIRES, "releases that wait for a step ran out here (limits.retires); what was published "  \
               "before stays: let a step pass, and fetch again")                                   \
    X(NODES, "prefix nodes ran out here (limits.nodes); what was published before stays: close "   \
             "sessions, or raise it, and fetch again")                                             \
    X(BLOB, "there is no room here for what was handed over with the ticket "                      \
            "(limits.token_blocks): close sessions, or raise it, and fetch again")                 \
    X(ROOM, "more has to be evicted, copied to the host or given back first than one step does: "  \
            "fetch again in a moment, it goes on")                                                 \
    X(STORES, "what could make way here is being stored on the disk first: fetch again in a "      \
              "moment")                                                                            \
    X(STATE, "the STATE of these tokens that is here waits for another engine's step, or has "     \
             "gone meanwhile: fetch again in a moment")

enum pull_busy {
#define X(name, text) PULL_BUSY_##name,
    PULL_BUSY_TABLE(X)
#undef X
};

/* Why an operation that needs pages is BUSY. */
#define MAKING_ROOM                                                                                \
    "more has to be evicted, copied to the host or given back first than one step does: repeat "   \
    "in a moment, it goes on"

#define STORED_FIRST "what could make way is being stored on the disk first: repeat in a moment"

#define RELEASING                                                                                  \
    "the pages that this session gave up are still being given back: repeat it in a moment"

#define SPARES_TOO_MANY                                                                            \
    "the session has many pages beyond what is written: Rewind it to its written length first"

#define PEER_HEARS_RESETS "the peer is being told of resets: fetch again in a moment"

#define STORE_TIME_OVER "its time was over: the daemon is about to end"

/* Loads from the host tier, in addition to records and room. */
#define LOAD_AWAITS_COMMIT "a commit of that prefix waits for its step: repeat in a moment"
#define LOAD_AWAITS_COPY   "a copy of that prefix to the host is under way: repeat in a moment"
#define LOAD_COPY_FAILED   "a copy from host memory failed: repeat it"
/* CORRUPT. */
#define LOAD_CORRUPT "the host's copy does not agree with its checksums: Abort, and compute it anew"

/* Why a ticket cannot be fetched now: X(NAME, text). The wire carries numbers, so append. */
#define TICKET_BUSY_TABLE(X)                                                                       \
    X(UNSAID, "its source says that another fetch takes the ticket, that its session still runs "  \
              "and has committed nothing or has not matched these tokens, or that the step that "  \
              "writes its pages has not passed: fetch again in a moment, or follow it")            \
    X(SERVES, "the ticket's daemon serves as many transfers as it may (its limits.serves): fetch " \
              "again after retry_ms")                                                              \
    X(TAKEN, "another fetch takes the ticket: if that fails, fetch again")                         \
    X(STEP, "the step that writes the ticket's pages has not passed: fetch again in a moment")     \
    X(SUMS, "the checksums of the ticket's pages are being made: fetch again in a moment")         \
    X(RUNS, "the ticket's session still runs, and has committed nothing: fetch it when it was "    \
            "handed over, or from another host follow it")                                         \
    X(UNMATCHED, "the ticket's session has not matched these tokens yet: fetch again in a moment")

enum ticket_busy {
#define X(name, text) TICKET_BUSY_##name,
    TICKET_BUSY_TABLE(X)
#undef X
        TICKET_BUSY_COUNT
};

/* The text's numbers: committed tokens, and tokens of the session's list. */
#define TICKET_STILL_RUNS                                                                          \
    "the ticket's session still runs, with # of its # tokens committed: fetch it when it was "     \
    "handed over, or from another host follow it"

#endif
