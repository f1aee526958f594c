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
    X(PROMPT_TOKENS, "prompt_tokens", "tokens of these")                                           \
    X(DEVICE, "matched_device_tokens", "of the prompts' tokens, found on the device")              \
    X(HOST, "matched_host_tokens", "brought to sessions from host memory")                         \
    X(DISK, "matched_disk_tokens", "brought to sessions from the disk")                            \
    X(PEER, "fetched_peer_tokens", "brought to sessions from peers")                               \
    X(HANDED, "handed_over_tokens", "brought to sessions by tickets of this daemon")               \
    X(COMMITTED, "committed_tokens", "that engines computed and committed")                        \
    X(EVICTED_NODES, "evicted_nodes", "prefix nodes that left the device, or all memory")          \
    X(EVICTED_PAGES, "evicted_pages", "pages that this gave free")                                 \
    X(SUPERSEDED_PAGES, "superseded_pages", "pages of STATE that was superseded and given free")

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
    X(SEAL, "seal", "from there until peers may read it: its checksums are known")                 \
    X(FETCH, "fetch", "from a fetch to its answer, of those that brought something")               \
    X(FETCH_QUEUED, "fetch_queued", "of these: nothing was on its way")                            \
    X(FETCH_WIRE, "fetch_wire", "of these: pages were on their way")                               \
    X(FETCH_CREDIT, "fetch_credit", "of these: peer or tenant had as much in flight as it may")    \
    X(SERVE, "serve", "from a peer's request to its end, of those that it took something of")      \
    X(SERVE_SEALING, "serve_sealing", "of these: checksums were missing")                          \
    X(EVICTED_AGE, "evicted_age", "from the last use of a node until it was evicted")

enum latency {
#define X(name, key, text) LATENCY_##name,
    LATENCY_TABLE(X)
#undef X
        LATENCIES
};

#endif
