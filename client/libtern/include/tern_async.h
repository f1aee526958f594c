/* Part of tern.h: requests that are submitted and polled, and subscriptions. */
#ifndef TERN_ASYNC_H
#define TERN_ASYNC_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- asynchronous form: submit, wait until tern_fd is readable, tern_poll ---- */

struct tern_events; /* below */

struct tern_answer {
    uint64_t cookie;                   /* as passed to the submit call */
    enum tern_err err;                 /* of the whole request */
    const struct tern_result *results; /* one for each operation of a batch, one for any other
                                          request (only its err for a wait or a store); borrowed
                                          until the next call */
    uint32_t n;
    struct tern_stored stored;        /* for a store that succeeded, else zeroed */
    const struct tern_events *events; /* for a subscription, else NULL; borrowed as `results` is */
};

/* Each tern_submit_* call queues a request and returns at once. tern_poll returns its answer with
 * the cookie.
 *   BUSY  TERN_INFLIGHT_MAX requests are under way, or the socket is full. Call tern_poll first. */
TERN_API enum tern_err tern_submit_match(struct tern *t, tern_session s,
                                         const struct tern_tokens *tokens, uint64_t step,
                                         uint64_t cookie);
/* Submits all operations of the batch and empties it. After an error the batch is unchanged. */
TERN_API enum tern_err tern_batch_submit(struct tern_batch *b, uint64_t cookie);
TERN_API enum tern_err tern_submit_fetch(struct tern *t, tern_session s,
                                         const struct tern_fetch *fetch, uint64_t cookie);
TERN_API enum tern_err tern_submit_fetch_wait(struct tern *t, tern_session s, uint32_t above,
                                              uint64_t cookie);
TERN_API enum tern_err tern_submit_recover(struct tern *t, tern_session s, uint64_t cookie);
/* The answer arrives when the prefix is durable, however long that takes. */
TERN_API enum tern_err tern_submit_store(struct tern *t, tern_session s, uint32_t depth,
                                         uint64_t cookie);
TERN_API enum tern_err tern_submit_wait_published(struct tern *t, uint64_t step, uint64_t cookie);
/* Returns the descriptor to wait on. *ret_events (may be NULL) are the events to wait for now, as
 * in struct pollfd: POLLIN, and POLLOUT while requests wait for room in the socket. The descriptor
 * is borrowed and stays the same: do not read from it, and do not close it. */
TERN_API int tern_fd(const struct tern *t, short *ret_events);
/* Returns one answer. OK: *ret is filled in. BUSY: there is none yet. Call it until it returns BUSY
 * before you wait on tern_fd, since one read may receive several answers. Synchronous calls may be
 * mixed in. If answers to submitted requests arrive during a synchronous call, tern_poll returns
 * them later; they are older than the answer that the call returned. When the connection is lost,
 * tern_poll first returns each request under way with err DAEMON_LOST; then tern_poll itself
 * returns DAEMON_LOST. */
TERN_API enum tern_err tern_poll(struct tern *t, struct tern_answer *ret);

/* ---- changes of the prefix tree, for routers and other subscribers ---- */

/* STORED: a prefix can be matched for the first time. TIER: the prefix was copied to device or host
 * memory, or left one of them and is still in the other. REMOVED: it is in neither any more.
 *
 * A reset of a namespace has no event of its own. Each prefix of the namespace is REMOVED; a prefix
 * that sessions pin is REMOVED only when they release it. If such a prefix is committed anew
 * meanwhile, it is STORED a second time. Count by chain and pool: a prefix exists as long as it has
 * had more STORED than REMOVED. */
enum tern_event_kind { TERN_STORED = 1, TERN_TIER = 2, TERN_REMOVED = 3 };

/* A change of one chunk of L tokens that ends at `depth`. `chain` identifies its namespace and all
 * tokens and extra keys up to `depth`. Equal prefixes have equal chains in all pools of equal L and
 * on all daemons of one version. */
struct tern_event {
    uint64_t number; /* ascending, and new after each start of the daemon; there are gaps for
                        changes of other tenants and namespaces */
    enum tern_event_kind kind;
    uint32_t depth;
    uint64_t chain, parent_chain; /* parent: of the chunk before it; 0 for the first chunk */
    uint64_t ns_hi, ns_lo;        /* hash of the namespace, as ternctl shows it */
    uint64_t pool;
    bool on_device, on_host; /* after the change */
    const char *tenant;      /* on the admin socket, if the tenant has a name; else NULL */
    const uint32_t *tokens;  /* the chunk's L tokens and its extra keys, in a subscription with
                                tokens; borrowed as the answer is */
    const struct tern_extra_key *keys;
    uint32_t ntokens, nkeys; /* 0: the event is not STORED, the chunk has left the tree since
                                (TERN_REMOVED follows), or tokens and keys take more than 14,336
                                bytes: 4 a token, 24 a key */
};

struct tern_events {
    const struct tern_event *v;
    uint32_t n;    /* may be 0 */
    uint64_t lost; /* number of the tenant's changes that were missed before v[0] (at the first
                      answer: at most that many). If not 0, discard your state, or subscribe anew */
    uint64_t next; /* pass it as `from` to continue after this answer, on any connection */
};

/* Selects the changes of a subscription. A zeroed struct selects all changes of the tenant from now
 * on. */
struct tern_subscription {
    const struct tern_namespace *ns; /* changes of one namespace; borrowed for the call. NULL: of
                                        the whole tenant, and on the admin socket of all tenants */
    uint64_t from; /* number of the first change that is wanted; 0: from now on; 1: from the oldest
                      that the daemon keeps */
    bool tokens;   /* each STORED has its tokens and extra keys; on a tenant's socket only. From
                      these a router can compute an engine's own names of the blocks */
};
/* Subscribes; `to` is borrowed for the call, and NULL stands for a zeroed struct. No engine is
 * needed. A subscription works like a submitted request and is one of TERN_INFLIGHT_MAX. The first
 * answer with this cookie confirms the subscription, and each later one has changes. An answer with
 * an err is the last.
 *
 * A chunk is reported when all HISTORY groups of the pool have its pages, so a change applies to
 * all these groups; it does not cover pages of other groups.
 *
 * The daemon never waits for a subscriber. It keeps the last changes of each tenant (limits.events
 * in its configuration), and counts those that are overwritten before it could send them as `lost`.
 * Until tern_poll is called, the library keeps at most TERN_EVENTS_KEPT changes, with at most
 * TERN_CHUNKS_KEPT bytes of tokens and extra keys. It counts the changes beyond that as `lost`,
 * too. BUSY is as for tern_submit_match. In an answer:
 *   GONE    `from` is from another incarnation of the daemon. Discard your state, subscribe from 1.
 *   QUOTA   The limit of subscriptions is reached. End one.
 *   DENIED  Tokens are wanted, and the tenant's events_tokens is false in the daemon's
 *           configuration. */
TERN_API enum tern_err tern_subscribe(struct tern *t, const struct tern_subscription *to,
                                      uint64_t cookie);
/* Computes the chains of a token list's whole chunks, shallowest first, equal to tern_event.chain.
 * align_tokens: L of the pools. `tokens` is the whole list (base 0). Returns the number of chains
 * written to ret, at most max. The call sends no request, and any thread may make it. */
TERN_API uint32_t tern_chains(const struct tern_namespace *ns, const struct tern_tokens *tokens,
                              uint32_t align_tokens, uint64_t *ret, uint32_t max);
/* Ends a subscription: no later answer has its cookie. If several subscriptions have the cookie,
 * the call ends one of them, so give each its own.
 *   GONE  There is no such subscription. */
TERN_API enum tern_err tern_unsubscribe(struct tern *t, uint64_t cookie, uint32_t deadline_ms);

#endif
