/* Part of tern.h: fetches of pages from peers and other tiers, tickets, and the disk tier. */
#ifndef TERN_FETCH_H
#define TERN_FETCH_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- fetches ---- */

/* A fetch: its source and its limits. A field that is zero has the default that its comment states.
 * The strings are borrowed for the call. At most one of peer and ticket is set; tern_fetch
 * describes each source. */
struct tern_fetch {
    /* The last step that may touch the pages that the fetch replaces, or TERN_STEP_NONE. There is
     * no default. */
    uint64_t step;
    const char *peer;   /* a peer's name, TERN_PEER_DISK or TERN_PEER_ANY. NULL, without a ticket:
                           the pool's own host tier */
    const char *ticket; /* text of a ticket; the source is the daemon that issued it. NULL: none */
    uint32_t at_least;  /* tokens that the session must have written on return; 0: as many as the
                           source has. Not with a ticket */
    uint32_t depth;     /* tokens of the session to fetch at most; 0: all. Not with a ticket */
    bool prefetch;      /* no decode waits for the fetch. Not with a ticket */
    bool follow;        /* the ticket's session may still run. Only with a ticket */
};

/* Fetches whole chunks of the session's tokens, up to `depth` tokens, from the source that `fetch`
 * names. On return the committed length is the end of the fetched chunks, and the pages are in the
 * table. Call tern_match first: it sets the tokens. At seven eighths of deadline_ms the fetch
 * is cancelled: it returns TIMED_OUT, and *ret has what had arrived. If the daemon does not answer
 * the cancel in time either, *ret is unchanged; then call tern_recover for the table.
 *
 * A fetch has an effect only if it reaches beyond the written length; if the source has no more,
 * the session is unchanged. The fetched pages replace all pages that the session owns behind its
 * committed length. Until enough has arrived to replace them, these pages and the lengths stay as
 * they are, whatever error the fetch ends with. The replaced pages are free when `step` has passed.
 * Always apply ret->lengths and ret->runs, also after an error, and even if the lengths are as
 * before: new pages may cover just as many tokens as the replaced ones. If nothing arrived there
 * are no runs. The fetched part may include a chunk that another session of this engine has
 * committed meanwhile, by a step that has not passed. The pages of that chunk are written when that
 * step has passed, so kernels that read them must run behind that step. The written length becomes
 * less than before only if a transfer fails after the replacement began: with a WINDOW or RECURRENT
 * group whose STATE had not arrived, or because the daemon ran out of records (BUSY).
 *   INVALID         Two fields of `fetch` exclude each other, and tern_error_text names both. Or
 *                   the session has begun no turn since it was opened or aborted (tern_match), or
 *                   it is retracted. Or the daemon has no peer of that name. Or, with a WINDOW or
 *                   RECURRENT group, the session's table does not have the STATE of the committed
 *                   length, or has it only in pages that the session owns: continue with what the
 *                   session has, or abort it and match anew.
 *   POOL_EXHAUSTED  The device has no room; ret->shortage has what to wait for.
 *   QUOTA           The fetch never fits: tern_error_numbers has the amount needed and the most
 *                   there can be.
 *   UNSUPPORTED     The session's table has more chunks or pages than one fetch can move.
 *
 * `at_least` is, for example, the number of tokens in the whole chunks of a prompt of n tokens,
 * n / L * L. A source offers committed tokens a moment after their step has passed. The call waits
 * for these tokens, up to three quarters of deadline_ms (a submitted fetch: seven eighths of
 * deadlines.transfer_ms in the daemon's configuration). Then it fetches what the source has, and
 * returns TIMED_OUT if that is less than at_least. at_least may be as large as the whole chunks of
 * the session's tokens up to `depth`, or as the written length if that is larger; more is INVALID.
 *   PEER_LOST, CORRUPT, TIMED_OUT  The pages that arrived stay. Retry, or compute the rest.
 *   GONE         The fetch was cancelled, or at_least cannot arrive since the namespace was reset.
 *   BUSY         The source was at its limit for 2 s, although the daemon retried whenever the
 *                source asked it to. Or this host must evict prefixes for the fetched pages, and
 *                copies them to the host tier first. The pages that arrived stay. Retry after
 *                ret->retry_ms.
 *   UNSUPPORTED  The source has the namespace only in pools of another layout or world.
 *   DENIED       The peer does not let this daemon ask for the tenant.
 *
 * peer and ticket NULL: from the pool's own host tier. Use it if the session's Match returned a
 * host_depth above matched. If the host tier has no more than the device, the call loads nothing.
 * It then returns OK, or INVALID if at_least asks for more, because waiting would not help.
 *   BUSY     That prefix is being copied, or one that has to be evicted for it. Retry in a moment.
 *   CORRUPT  The host's copy is damaged. Compute the prefix again.
 *
 * peer TERN_PEER_DISK: from the daemon's disk, including prefixes stored before the daemon was
 * restarted. Use it if the session's Match returned a disk_depth above matched and host_depth. It
 * works like a fetch from a peer. An at_least above the depth that the disk has is INVALID.
 *   UNSUPPORTED  The daemon has no disk tier.
 *   DISK         The disk could not read the prefix. The pages that arrived stay; compute the rest.
 *   CORRUPT      The data on the disk is damaged and was dropped. Compute the rest.
 *
 * peer TERN_PEER_ANY: from the peer that has most of the prefix. The daemon asks up to 64 connected
 * peers at once, those whose `tenants` in its configuration list this tenant, and waits 0.1 s for
 * the answers. It fetches from the peer that reports most; if several report the same, from the
 * first of them to answer. If that peer has nothing or is lost before pages arrive, the daemon
 * tries the next one. ret->host names the peer. If no peer has more than the session, the call
 * fetches nothing and returns OK, at once if there is no peer. at_least must be 0.
 *   BUSY  The tenant has reached its limit of such questions. Retry in a moment.
 *
 * prefetch: the fetch is ahead of need. Other fetches of the tenant have priority at both hosts,
 * and prefetches never fill all the room for fetches. A prefetch always makes progress: one of
 * every 8 batches of pages is a prefetch's.
 *   BUSY  Prefetches fill their part of the room for fetches. Retry later.
 *
 * ticket, and follow: see "hand-off" and "following" below. */
TERN_API enum tern_err tern_fetch(struct tern *t, tern_session s, const struct tern_fetch *fetch,
                                  uint32_t deadline_ms, struct tern_result *ret);
/* Cancels a fetch or a recover that is under way. That request returns OK if it was complete
 * already, else TERN_GONE. The call may be repeated. */
TERN_API enum tern_err tern_fetch_cancel(struct tern *t, tern_session s, uint32_t deadline_ms);

/* ---- hand-off: prefill ends here, decode begins elsewhere ---- */

#define TERN_TICKET_BYTES 256   /* bytes of a ticket's text, with the NUL */
#define TERN_BLOB_BYTES   65536 /* most bytes of an engine's blob */

struct tern_ticket {
    char text[TERN_TICKET_BYTES]; /* for a router to pass on; anyone who has it can fetch */
    uint32_t stands_ms;           /* milliseconds that it is valid; then its pages are freed */
};

/* Closes the session and makes a ticket of it. The ticket keeps all that the session has at its
 * written length: committed pages and the pages behind them, the STATE of exactly that length, and
 * a blob of the engine's own (such as the first token), which the daemon never interprets. Commit
 * all whole chunks first. Tokens that are not written are not handed over: put them into the blob.
 * Afterwards the session's handle is GONE, as after tern_session_close. `step` is the last step
 * that writes the session's pages; no later step may touch them. A fetch is answered when `step`
 * has passed. `stands_ms`: how long the ticket is valid if nobody fetches it. 0, or more than the
 * daemon's deadlines.ticket_ms: as long as deadlines.ticket_ms. If this call times out, close the
 * session.
 *   INVALID      A whole chunk is not committed, nothing is written, the session is away, or
 *                blob_bytes is more than TERN_BLOB_BYTES. Or, with a WINDOW or RECURRENT group, the
 *                table does not have the STATE of the written length: abort the session, then match
 *                anew.
 *   BUSY         A fetch of the session is under way, or records have run out. Retry in a moment.
 *                Or many pages are allocated beyond the written length: call tern_rewind to that
 *                length first.
 *   GONE         The session's namespace was reset.
 *   UNSUPPORTED  The session has more than 256 pages behind its committed length, or too many
 *                chunks (tern_error_text has the limit). */
TERN_API enum tern_err tern_handoff(struct tern *t, tern_session s, uint64_t step, const void *blob,
                                    uint32_t blob_bytes, uint32_t stands_ms, uint32_t deadline_ms,
                                    struct tern_ticket *ret);
/* tern_fetch with a ticket fetches what the ticket names into the session, from the daemon that
 * issued the ticket: a configured peer of this daemon, or this daemon itself. In the latter case,
 * within one pool, the pages only change their owner. The session must have matched exactly the
 * tokens that were handed over. On success it has exactly these tokens written, ret->runs are the
 * pages that it gained, and ret->blob is the blob. A session that has all of these tokens written
 * already gets the blob only. Otherwise the fetch works like one from a peer. Success uses the
 * ticket up; after any error the ticket stays valid until it expires, and the fetch may be
 * repeated.
 *   GONE         The ticket was fetched, has expired or was dropped; its daemon was restarted or is
 *                no peer of this one; the namespace was reset; or this fetch was cancelled. Compute
 *                the missing tokens. A ticket that is used up is GONE for every session, whatever
 *                its tokens are.
 *   DENIED       The key in the text is not that of the ticket, or the ticket is another tenant's.
 *                (A forged text may also name a ticket or a daemon that does not exist, which is
 *                GONE.)
 *   INVALID      The session has other tokens than those that were handed over (ret->handed is the
 *                length that was handed over, or tern_error_numbers has the first token that
 *                differs), or the text is not that of a ticket. Or the pool has a WINDOW or
 *                RECURRENT group, and the session has computed a part of these tokens itself (as
 *                for a fetch from a peer); if this daemon issued the ticket, also if the session
 *                has computed all of them.
 *   PEER_LOST    The daemon that issued the ticket is not connected.
 *   BUSY         Another fetch of the ticket is under way, the step that writes the ticket's pages
 *                has not passed, the checksums of these pages are being computed, or the ticket's
 *                daemon serves as many transfers as it may: see the text. Retry after
 *                ret->retry_ms. Or tern_ticket_open made the ticket and its session still runs: the
 *                text has the session's progress. The daemon retries for up to 2 s before it
 *                returns BUSY; with a shorter deadline the error is TIMED_OUT.
 *   UNSUPPORTED  The pool there has another layout; or this daemon issued the ticket, for another
 *                pool, and is not among its own peers. */

/* ---- following: decode begins while prefill still computes ---- */

/* Makes a ticket of a session that continues to run. A later tern_handoff of that session sets the
 * ticket's length and returns the same ticket with the length in its text. Either text names the
 * ticket, so the router may get the first one before the hand-off. Until the hand-off the ticket
 * keeps no pages, and it is GONE when the session is closed or aborted, when its engine dies, and
 * when the ticket expires; tern_ticket_renew extends it. The ticket does not expire while another
 * session follows it (`follow` of struct tern_fetch). A repeated call returns the same ticket and
 * counts as a renewal. `stands_ms`: as for tern_handoff.
 *   INVALID  Only some pieces of the session's tern_match have arrived.
 *   GONE     The session's namespace was reset. */
TERN_API enum tern_err tern_ticket_open(struct tern *t, tern_session s, uint32_t stands_ms,
                                        uint32_t deadline_ms, struct tern_ticket *ret);
/* tern_fetch with a ticket and follow works in the same way, but the ticket's session may still run
 * at the source. That source session must have matched exactly these tokens, and must be handed
 * over at their end. The pages for all tokens are allocated at once, as by tern_extend, and chunks
 * arrive as they are committed; tern_fetch_wait reports the progress. The rest arrives once the
 * source session was handed over: the chunks of the window at the end, the STATE, the tokens behind
 * the last whole chunk, and the blob. The call returns when everything has arrived. While the
 * source computes, each of the two daemons waits for its own deadlines.ticket_ms, counted from the
 * last chunk. Tokens that were written before an error stay written, as without follow; but in a
 * pool with a WINDOW or RECURRENT group the session returns to the committed length that it began
 * with, since the STATE arrives last. The HISTORY that arrived stays in the tree and is not
 * transferred again. Errors besides those of a ticket without follow:
 *   POOL_EXHAUSTED  There are not enough free pages: see ret->shortage. Nothing has begun.
 *   GONE            Also: the source session was closed or aborted before it was handed over.
 *   INVALID         Also: the source session was handed over at another length (ret->handed), or
 *                   was rewound below the tokens already compared.
 *   BUSY            Also: the source session has not matched these tokens yet.
 *   TIMED_OUT       The source has committed nothing for too long. Retry.
 *   UNSUPPORTED     Also: this daemon issued the ticket for this pool, and its session still runs;
 *                   or more than 16,384 pages of STATE belong to its end. */

/* While a fetch of the session from a peer or from the disk is under way (by tern_submit_fetch, or
 * on another connection): waits until more than `above` of the session's tokens are written, or the
 * fetch has ended. ret->lengths are the session's lengths now; ret->runs are the pages that the
 * session gained beyond `above`. These pages replace those that tern_fetch_pages returned, because
 * another session may have committed the same chunk. If the pool has no STATE group, kernels may
 * read the pages now; else the session may lose them again if the fetch fails. ret->arriving 0:
 * nothing more will arrive; the answer of the fetch itself has its result. A fetch has at most one
 * wait at a time.
 *   INVALID    No fetch of the session has begun since its last Match. A fetch that was refused at
 *              once, for instance because the peer is not connected, did not begin.
 *   CONFLICT   A later wait replaced this one.
 *   TIMED_OUT  This call's deadline passed. The fetch continues, and the wait may be repeated. */
TERN_API enum tern_err tern_fetch_wait(struct tern *t, tern_session s, uint32_t above,
                                       uint32_t deadline_ms, struct tern_result *ret);
/* Returns the pages of the fetch in ret->runs: those that have arrived, up to ret->lengths.written,
 * and those that are still to arrive. During a fetch with follow the session owns the latter from
 * the beginning; during other fetches they are known once the source has answered. Do not touch
 * them before tern_fetch_wait or the fetch reports them as written. */
TERN_API enum tern_err tern_fetch_pages(struct tern *t, tern_session s, uint32_t deadline_ms,
                                        struct tern_result *ret);
/* Renew or drop a ticket, at the daemon that issued it, by any engine of the tenant.
 * tern_ticket_renew: the ticket is valid for stands_ms from now on, as for tern_handoff;
 * *ret_stands_ms is that time in milliseconds. tern_ticket_drop: the ticket ends now; a fetch of it
 * that has begun continues.
 *   GONE, DENIED  As for a fetch by ticket; GONE also for a ticket of another daemon. */
TERN_API enum tern_err tern_ticket_renew(struct tern *t, const char *ticket, uint32_t stands_ms,
                                         uint32_t deadline_ms, uint32_t *ret_stands_ms);
TERN_API enum tern_err tern_ticket_drop(struct tern *t, const char *ticket, uint32_t deadline_ms);

/* ---- the disk tier ---- */

/* The result of a store. */
struct tern_stored {
    uint32_t depth;   /* tokens of the session's list that are on the disk now */
    uint64_t written; /* bytes that this call wrote; 0: the disk already had all of them */
};

/* Stores a prefix of the session's committed tokens on the disk and returns when it is durable: a
 * Match finds it again (disk_depth) until it is evicted there, also after the daemon was killed or
 * the host lost power. The daemon stores prefixes by itself when it expects a benefit; this call is
 * for a prefix that many sessions will share, such as a system prompt, and for one that must not be
 * lost. `depth`: the end of the prefix in tokens, rounded down to whole chunks, at most the
 * committed length. 0: the daemon chooses a depth a little below the committed length, so that
 * other sessions that share the prefix find it. In a pool with STATE groups the prefix ends at the
 * deepest resume point at or before that depth or, if there is none, at the first one behind it.
 * The call waits for the step of the commit to pass; the session can be used meanwhile. The call
 * may be repeated. If deadline_ms passes, the daemon continues the store.
 *   INVALID         `depth`, rounded down, is above the committed length, no whole chunk is
 *                   committed, or the committed part has no resume point.
 *   UNSUPPORTED     The daemon has no disk tier, or the tenant has no share of it. Or the prefix
 *                   has more than 65,536 chunks, or needs the STATE of more than 510 of them.
 *   POOL_EXHAUSTED  The file system is full.
 *   QUOTA           The prefix does not fit into the tenant's share of the disk together with the
 *                   prefixes that may not be evicted: the text names the resource, and
 *                   tern_error_numbers has the amount needed and the most there can be.
 *   BUSY            The limit of concurrent stores is reached. Retry in a moment.
 *   GONE            The prefix left memory before it was written, or its namespace was reset.
 *   DISK            The disk failed. Nothing was stored.
 *   CORRUPT         A page in memory does not agree with its checksum. Nothing was stored. */
TERN_API enum tern_err tern_store(struct tern *t, tern_session s, uint32_t depth,
                                  uint32_t deadline_ms, struct tern_stored *ret);

#endif
