/* Part of tern.h: requests that are submitted and polled, and subscriptions. */
#ifndef TERN_ASYNC_H
#define TERN_ASYNC_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- asynchronous form: submit, wait until tern_fd is readable, tern_poll ---- */

struct tern_events; /* below */

struct tern_answer {
    uint64_t cookie;                   /* as it was submitted */
    enum tern_err err;                 /* of the whole request */
    const struct tern_result *results; /* one an operation of a batch, one for everything else (of a
                                          wait or a store, only its err); borrowed until the next
                                          call */
    uint32_t n;
    struct tern_stored stored;        /* of a store that was made, else zeroed */
    const struct tern_events *events; /* of a subscription, else NULL; borrowed likewise */
};

/* Each of these queues a request and returns at once. The answer comes through tern_poll with the
 * same cookie.
 *   BUSY  TERN_INFLIGHT_MAX requests are under way, or the socket is full. Call tern_poll first. */
TERN_API enum tern_err tern_submit_match(struct tern *t, tern_session s,
                                         const struct tern_tokens *tokens, uint64_t step,
                                         uint64_t cookie);
/* The batch is empty afterwards, and as it was after an error. */
TERN_API enum tern_err tern_batch_submit(struct tern_batch *b, uint64_t cookie);
TERN_API enum tern_err tern_submit_fetch(struct tern *t, tern_session s, const char *peer,
                                         uint32_t at_least, uint32_t depth, uint64_t step,
                                         uint64_t cookie);
TERN_API enum tern_err tern_submit_prefetch(struct tern *t, tern_session s, const char *peer,
                                            uint32_t at_least, uint32_t depth, uint64_t step,
                                            uint64_t cookie);
TERN_API enum tern_err tern_submit_fetch_ticket(struct tern *t, tern_session s, const char *ticket,
                                                uint64_t step, uint64_t cookie);
TERN_API enum tern_err tern_submit_fetch_follow(struct tern *t, tern_session s, const char *ticket,
                                                uint64_t step, uint64_t cookie);
TERN_API enum tern_err tern_submit_fetch_wait(struct tern *t, tern_session s, uint32_t above,
                                              uint64_t cookie);
TERN_API enum tern_err tern_submit_recover(struct tern *t, tern_session s, uint64_t cookie);
/* It is answered when the prefix is durable, however long that takes. */
TERN_API enum tern_err tern_submit_store(struct tern *t, tern_session s, uint32_t depth,
                                         uint64_t cookie);
TERN_API enum tern_err tern_submit_wait_published(struct tern *t, uint64_t step, uint64_t cookie);
/* The descriptor to wait on, for POLLIN, and for POLLOUT while tern_wants_write is true. It is
 * borrowed: do not read from it, and do not close it. */
TERN_API int tern_fd(const struct tern *t);
TERN_API bool tern_wants_write(const struct tern *t);
/* Hands out one answer. OK: *ret is filled in. BUSY: there is none yet. Call it until it says BUSY
 * before you wait on tern_fd, since one read may bring several answers. Synchronous calls may be
 * mixed in: answers to submitted requests that come meanwhile are kept, and are older than what the
 * call returned. When the connection is lost, each request under way is first handed out with err
 * DAEMON_LOST; then tern_poll itself returns DAEMON_LOST. */
TERN_API enum tern_err tern_poll(struct tern *t, struct tern_answer *ret);

/* ---- what changes in the prefix tree: for routers and whoever else wants to know ---- */

/* STORED: a prefix can be matched for the first time. TIER: it came to device or host memory, or
 * left one of them and is still in the other. REMOVED: it is in neither any more.
 *
 * A reset of a namespace is no event. Each prefix of it is REMOVED, but what sessions hold is so
 * only when they let go. A prefix that is committed anew meanwhile is STORED a second time, and is
 * there until there were as many REMOVED of its chain and pool as STORED. */
enum tern_event_kind { TERN_STORED = 1, TERN_TIER = 2, TERN_REMOVED = 3 };

/* A change of one chunk of L tokens that ends at `depth`. `chain` stands for its namespace and for
 * all tokens and extra keys from the first to there. Equal prefixes have equal chains in all pools
 * of equal L and on all daemons of one version. */
struct tern_event {
    uint64_t number; /* ascending, and others after each start of the daemon; the numbers of other
                        tenants and namespaces are missing here */
    enum tern_event_kind kind;
    uint32_t depth;
    uint64_t chain, parent_chain; /* parent: of the chunk before it; 0 for the first chunk */
    uint64_t ns_hi, ns_lo;        /* hash of the namespace, as ternctl shows it */
    uint64_t pool;
    bool on_device, on_host; /* after the change */
    const char *tenant;      /* on the admin socket; else NULL, and where it has no name to tell */
    const uint32_t *tokens; /* the chunk's L tokens and its extra keys, after tern_subscribe_tokens;
                               borrowed as the answer is */
    const struct tern_extra_key *keys;
    uint32_t ntokens, nkeys; /* 0: it is not STORED, it has left the tree since (TERN_REMOVED
                                follows), or it takes more than 14,336 bytes: 4 a token, 24 a key */
};

struct tern_events {
    const struct tern_event *v;
    uint32_t n;    /* may be 0 */
    uint64_t lost; /* if not 0: so many changes of the tenant (at the first answer: at most so
                      many) were missed before v[0]. Forget what you know, or subscribe anew */
    uint64_t next; /* pass it as `from` to go on behind this answer, on any connection */
};

/* Asks for the changes of one namespace; ns NULL: of the whole tenant, and on the admin socket of
 * all tenants. `from` is the number of the first change that is wanted; 0: from now on; 1: from
 * the oldest that is kept. No engine is needed. It works like a submitted request (one of
 * TERN_INFLIGHT_MAX): the first answer with this cookie says that the subscription has begun, and
 * each later one brings changes, until one has an err, which is the last.
 *
 * The daemon never waits for a subscriber. It keeps the last changes of each tenant (limits.events
 * in its configuration), and what is overwritten before it could be sent is counted as `lost`. So
 * is what exceeds TERN_EVENTS_KEPT while tern_poll is not called. BUSY is as for tern_submit_match.
 * In an answer:
 *   GONE      `from` is of another life of the daemon. Forget what was told, and subscribe from 1.
 *   QUOTA     There are as many subscriptions as there may be. End one. */
TERN_API enum tern_err tern_subscribe(struct tern *t, const struct tern_namespace *ns,
                                      uint64_t from, uint64_t cookie);
/* As tern_subscribe, on a tenant's socket, and each STORED has its tokens and extra keys: with
 * these a router can compute an engine's own names of the blocks. A chunk is told when it has its
 * pages in all HISTORY groups of the pool, so a change is of all these groups; it says nothing of
 * pages in other groups. A change that exceeds TERN_CHUNKS_KEPT while tern_poll is not called is
 * lost, too. In an answer also:
 *   DENIED    The tenant's events_tokens is false in the daemon's configuration. */
TERN_API enum tern_err tern_subscribe_tokens(struct tern *t, const struct tern_namespace *ns,
                                             uint64_t from, uint64_t cookie);
/* Computes the chains of a token list's whole chunks, shallowest first, as tern_event.chain has
 * them. align_tokens: L of the pools. `tokens` is the whole list (base 0). Returns how many were
 * written to ret, at most max. It sends no request, and any thread may call it. */
TERN_API uint32_t tern_chains(const struct tern_namespace *ns, const struct tern_tokens *tokens,
                              uint32_t align_tokens, uint64_t *ret, uint32_t max);
/* Ends a subscription: nothing with this cookie comes any more. Where several have that cookie it
 * ends one of them, so let each have its own.
 *   GONE  There is no such subscription. */
TERN_API enum tern_err tern_unsubscribe(struct tern *t, uint64_t cookie, uint32_t deadline_ms);

#endif
