/* Counts of what happened to prompts and pages: of a tenant since the daemon began, of a pool since
 * it was opened, of a namespace since the pool has known it (they restart if it is dropped and
 * returns). Also latencies of the whole daemon. The core counts; core_figures (query.h) reports. */
#ifndef CORE_FIGURES_H
#define CORE_FIGURES_H

#include "base/histogram.h"

/* As X(name, its key, what it counts).
 *
 * A prompt is the tokens of a session's first Match, all pieces together, and of a later Match
 * those that the session did not have yet. DEVICE is what Match found; HOST, DISK, PEER and HANDED
 * are what fetches brought to sessions, HANDED by a ticket of this daemon itself. The rest of
 * PROMPT_TOKENS was found nowhere. */
#define FIGURE_TABLE(X)                                                                            \
    X(PROMPTS, "prompts", "Match requests with tokens that the session did not have")              \
    X(PROMPT_TOKENS, "prompt_tokens", "tokens of these requests that the session did not have")    \
    X(DEVICE, "matched_device_tokens", "prompt tokens that Match found on the device")             \
    X(HOST, "matched_host_tokens", "prompt tokens fetched for sessions from host memory")          \
    X(DISK, "matched_disk_tokens", "prompt tokens fetched for sessions from the disk")             \
    X(PEER, "fetched_peer_tokens", "prompt tokens fetched for sessions from peers")                \
    X(HANDED, "handed_over_tokens", "prompt tokens that sessions got by tickets of this daemon")   \
    X(COMMITTED, "committed_tokens", "tokens that engines computed and committed")                 \
    X(EVICTED_NODES, "evicted_nodes", "prefix nodes that left the device, or all memory")          \
    X(EVICTED_PAGES, "evicted_pages", "pages that were freed by evicting these nodes")             \
    X(SUPERSEDED_PAGES, "superseded_pages", "pages freed because their STATE was superseded")

enum figure {
#define X(name, key, text) FIGURE_##name,
    FIGURE_TABLE(X)
#undef X
        FIGURES
};

struct figure_counts {
    uint64_t v[FIGURES];
};

/* Fetches from one peer, since it was configured or joined. `failed`: fetches that ended in
 * PEER_LOST, TIMED_OUT or CORRUPT, whatever they had brought before. */
struct peer_figures {
    struct histogram brought; /* durations of those that brought something, failed or not */
    uint64_t tokens, failed;
};

/* As X(name, its key, from when to when). */
#define LATENCY_TABLE(X)                                                                           \
    X(PUBLISH, "publish", "from a commit until its step passes: sessions can match its tokens")    \
    X(SEAL, "seal", "from then until peers may read it, because its checksums are known")          \
    X(FETCH, "fetch", "from a fetch to its answer, for fetches that moved something")              \
    X(FETCH_QUEUED, "fetch_queued", "part of that time in which nothing was in flight")            \
    X(FETCH_WIRE, "fetch_wire", "part of that time in which pages were in flight")                 \
    X(FETCH_CREDIT, "fetch_credit",                                                                \
      "part of that time in which the peer or the tenant had as much in flight as it may")         \
    X(SERVE, "serve",                                                                              \
      "from a peer's request to the end of its transfer, for transfers that were offered")         \
    X(SERVE_SEALING, "serve_sealing", "part of that time in which checksums were missing")         \
    X(EVICTED_AGE, "evicted_age", "from the last use of a node until it was evicted")

enum latency {
#define X(name, key, text) LATENCY_##name,
    LATENCY_TABLE(X)
#undef X
        LATENCIES
};

#endif
