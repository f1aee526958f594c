/* Part of tern.h: pages that come from elsewhere: fetches, tickets, and the disk tier. */
#ifndef TERN_FETCH_H
#define TERN_FETCH_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- fetches ---- */

/* Brings whole chunks of the session's tokens, up to `depth` tokens (0: all of them), from the peer
 * of that name. On return the committed length says how far it got, and the pages are in the table.
 * Call tern_match before, which gives the tokens. When the deadline nears, at seven eighths of
 * deadline_ms, the fetch is cancelled: it returns TIMED_OUT, and *ret says what had come. Only
 * where the daemon does not answer that in time either is *ret left as it was; then tern_recover
 * tells the table.
 *
 * It brings only what reaches beyond the written length; if the source has no more, the session
 * stays as it is. What comes takes the place of all pages that the session owns behind its
 * committed length. Until enough has come for that, they and the lengths stay as they are, whatever
 * error the fetch ends with. Then they are free when `step` has passed: it is the last step that
 * may touch them, or TERN_STEP_NONE. Take ret->lengths and ret->runs over in either case, also with
 * an error: where nothing came there are no runs, and what came may be just as long as what it
 * replaces. A chunk that another session of this engine has committed meanwhile, by a step that has
 * not passed, may be among what came: then its pages are written when that step has passed, and
 * kernels that read them run behind it. Less than was written is left only by a transfer that
 * breaks off later than that: with a WINDOW or RECURRENT group, whose STATE was still to come, or
 * because the daemon ran out of records (BUSY).
 *   INVALID  The session has begun no turn since it was opened or aborted (tern_match), or it is
 *            retracted. Or, with a WINDOW or RECURRENT group, its table has not the STATE of the
 *            committed length, or has it only in pages of the session's own: go on with what the
 *            session has, or abort it and match anew.
 *
 * `at_least`: tokens that must be there on return, such as all whole chunks of a prompt of n
 * tokens, n / L * L (0: as many as the source has). What the source has committed it shows a moment
 * after the step has passed. The call waits for that, up to three quarters of deadline_ms (a
 * submitted fetch: seven eighths of deadlines.transfer_ms in the daemon's configuration). Then it
 * brings what the source has, and returns TIMED_OUT if that is less. More than the whole chunks of
 * the session's tokens up to `depth`, and more than what is written, is INVALID.
 *   PEER_LOST, CORRUPT, TIMED_OUT  What came before stays. Repeat, or compute the rest.
 *   GONE         It was cancelled, or at_least cannot come since the namespace was reset.
 *   BUSY         The source was full for 2 s, although the daemon came back each time that it said,
 *                or prefixes that make way here are copied to the host tier first. What came before
 *                stays. Repeat after ret->retry_ms.
 *   UNSUPPORTED  The source has the namespace only in pools of another layout or world.
 *   DENIED       The peer does not let this daemon ask for the tenant.
 *
 * peer NULL: from the pool's own host tier. That pays when the session's Match said that host_depth
 * is above matched. Where the host tier has no more than the device the call brings nothing and
 * returns OK, or INVALID if that is less than at_least: there is nothing to wait for.
 *   POOL_EXHAUSTED  The device has no room; ret->shortage says what to wait for.
 *   BUSY            That prefix is being copied, or what makes way for it. Repeat in a moment.
 *   CORRUPT         The host's copy is damaged. Compute the prefix again.
 *
 * peer TERN_PEER_DISK: from the daemon's disk, also what was stored before the daemon was started
 * anew. That pays when the session's Match said that disk_depth is above matched and host_depth.
 * It goes like a fetch from a peer. at_least above what is there is INVALID.
 *   UNSUPPORTED     The daemon has no disk tier.
 *   DISK            The disk could not read it. What came before stays; compute the rest.
 *   CORRUPT         What lies there is damaged, and is given up. Compute the rest.
 *
 * peer TERN_PEER_ANY: from the peer that has most of it. The daemon asks up to 64 peers at once, of
 * those that are connected and whose `tenants` in its configuration list this tenant. It fetches
 * from the one that says it has most, and of equal ones from the first to answer. Peers that do not
 * answer within 0.1 s are not waited for, and where the chosen peer has nothing or is lost before
 * pages come, the next one is tried. ret->host names the peer. Where no peer has more than the
 * session, the call brings nothing and returns OK, at once where there is no peer. at_least has to
 * be 0.
 *   BUSY  The tenant asks as many questions as it may (limits.asks). Repeat in a moment. */
TERN_API enum tern_err tern_fetch(struct tern *t, tern_session s, const char *peer,
                                  uint32_t at_least, uint32_t depth, uint64_t step,
                                  uint32_t deadline_ms, struct tern_result *ret);
/* The same, and no decode waits for it: what is brought ahead of need. Other fetches of the tenant
 * go first, at both hosts, and find room when prefetches are all that is under way. A prefetch is
 * never kept waiting for good: of 8 batches of pages one is a prefetch's.
 *   BUSY  As many are under way as leave room for fetches that a decode waits for. Repeat later. */
TERN_API enum tern_err tern_prefetch(struct tern *t, tern_session s, const char *peer,
                                     uint32_t at_least, uint32_t depth, uint64_t step,
                                     uint32_t deadline_ms, struct tern_result *ret);
/* Ends a fetch or a recover that is under way. That request itself is answered: with OK if it was
 * complete already, else with TERN_GONE. Repeating the call does no harm. */
TERN_API enum tern_err tern_fetch_cancel(struct tern *t, tern_session s, uint32_t deadline_ms);

/* ---- hand-off: prefill ends here, decode begins elsewhere ---- */

#define TERN_TICKET_BYTES 256   /* of a ticket's text, with the NUL */
#define TERN_BLOB_BYTES   65536 /* of what an engine gives along, at most */

struct tern_ticket {
    char text[TERN_TICKET_BYTES]; /* for a router to pass on; whoever has it can fetch */
    uint32_t stands_ms;           /* from now on: then the pages are given back */
};

/* Closes the session and makes a ticket of it: all that it has at its written length waits for
 * whoever shows the ticket: committed pages and those behind them, the STATE of that very length,
 * and a blob of the engine's own (such as the first token), which the daemon never looks into.
 * Commit all whole chunks first. Tokens that are not written stay behind: put them into the blob.
 * Afterwards the session's handle is GONE, as after tern_session_close, and its pages are not to be
 * touched by any step behind `step`, the last that writes them. A fetch is answered when that has
 * passed. `stands_ms`: how long the ticket stands if nobody fetches it; 0, or more than the
 * daemon's deadlines.ticket_ms: so long. If this call's own deadline passes, close the session.
 *   INVALID      A whole chunk is not committed, nothing is written, the session is away, or
 *                blob_bytes is more than TERN_BLOB_BYTES. Or, with a WINDOW or RECURRENT group, its
 *                table has not the STATE of the written length: abort it, then match anew.
 *   BUSY         A fetch of it is under way, or records have run out. Repeat in a moment.
 *   GONE         Its namespace was reset.
 *   UNSUPPORTED  It has more than 256 pages behind its committed length. */
TERN_API enum tern_err tern_handoff(struct tern *t, tern_session s, uint64_t step, const void *blob,
                                    uint32_t blob_bytes, uint32_t stands_ms, uint32_t deadline_ms,
                                    struct tern_ticket *ret);
/* Brings the session what the ticket names, from the daemon that gave it: a configured peer of this
 * one, or this one itself, where the session is of the same pool, and the pages only change hands.
 * The session must have matched just the tokens that were handed over. It then has exactly these
 * tokens written, ret->runs are what it gained, and ret->blob came along. A session that has all of
 * these tokens written already gets the blob alone. Otherwise it goes like tern_fetch from a peer.
 * Success uses the ticket up; after anything else it stands until its time is over, and the fetch
 * may be repeated.
 *   GONE       Somebody fetched it, its time was over, it was dropped, its daemon was restarted, or
 *              this fetch was cancelled. Compute what is missing. A ticket that is used up is GONE
 *              whatever tokens the session has.
 *   DENIED     Its key is not that of the ticket, or it is another tenant's. (A forged text may as
 *              well name a ticket or a daemon that there is not, which is GONE.)
 *   INVALID    The session has other tokens than those that were handed over (ret->handed; or
 *              tern_error_numbers: the first that differs), or the text is no ticket's. Or, in a
 *              pool with a WINDOW or RECURRENT group, as for tern_fetch: the session has computed a
 *              part of it itself, or, where this very daemon gave the ticket, all of it.
 *   PEER_LOST  The daemon that gave it is not connected.
 *   BUSY       Another fetch of it is under way, the step that writes its pages has not passed,
 *              their checksums are being made, or its daemon serves as many transfers as it may:
 *              the text says which. Repeat it when ret->retry_ms is over. Or it is an early one,
 *              and its session still runs: the text says how far it is. The daemon asks again for
 *              up to 2 s before it says so; with a shorter deadline it is TIMED_OUT.
 *   UNSUPPORTED  The pool there has another layout; or this very daemon gave it, it is of
 *                another pool, and the daemon is not among its own peers. */
TERN_API enum tern_err tern_fetch_ticket(struct tern *t, tern_session s, const char *ticket,
                                         uint64_t step, uint32_t deadline_ms,
                                         struct tern_result *ret);

/* ---- following: decode begins while prefill still computes ---- */

/* Makes a ticket of a session that runs on. tern_handoff of that session gives it its length, and
 * answers the same ticket with the length in its text. Either text names it, so the first may be
 * passed on before. Until then it holds nothing, and it is GONE
 * when the session is closed or aborted, when its engine dies, and when its time is over, which
 * tern_ticket_renew puts off. While somebody follows it, its time waits. A repetition answers the
 * same ticket, and counts as a renewal. `stands_ms`: as of tern_handoff.
 *   INVALID  Only some pieces of its tern_match have come.
 *   GONE     Its namespace was reset. */
TERN_API enum tern_err tern_ticket_open(struct tern *t, tern_session s, uint32_t stands_ms,
                                        uint32_t deadline_ms, struct tern_ticket *ret);
/* tern_fetch_ticket of a ticket whose session may still run there: it must have matched these very
 * tokens, and be handed over at their end. The pages for all of them are taken at once, as by
 * tern_extend, and chunks arrive as they are committed; tern_fetch_wait tells how far. It is
 * answered when all is here: chunks that the window of the end lies in, the STATE, what is behind
 * the last whole chunk, and the blob come when the session was handed over. While the source
 * computes, it waits for deadlines.ticket_ms of either daemon, from the last chunk on. What was
 * written before an error stays, as after tern_fetch_ticket; but in a pool with a WINDOW or
 * RECURRENT group the session goes back to the committed length that it began with, since the STATE
 * comes last, and what came of the HISTORY stays in the tree and does not move again. Errors
 * besides those of tern_fetch_ticket:
 *   POOL_EXHAUSTED  There are not that many free pages: ret->shortage. Nothing has begun.
 *   GONE            Also: its session was closed or aborted before it was handed over.
 *   INVALID         Also: it was handed over at another length (ret->handed), or went back behind
 *                   what was compared.
 *   BUSY            Also: the session has not matched these tokens yet.
 *   TIMED_OUT       The source has committed nothing for too long. Repeat it.
 *   UNSUPPORTED     Also: this very daemon gave it, for this pool, and its session still runs; or
 *                   more than 16,384 pages of STATE belong to its end. */
TERN_API enum tern_err tern_fetch_follow(struct tern *t, tern_session s, const char *ticket,
                                         uint64_t step, uint32_t deadline_ms,
                                         struct tern_result *ret);
/* While a fetch of the session from a peer or from the disk is under way (tern_submit_fetch and the
 * like, or another thread's connection): waits until more than `above` of its tokens are written,
 * or the fetch has ended. ret->lengths are those of the session now; ret->runs are the pages of
 * what it gained beyond `above`, which take the place of what tern_fetch_pages said: somebody else
 * may have committed the same chunk. Kernels may read those pages now, where the pool has no STATE
 * group; else what came may yet be taken back if the fetch fails. ret->arriving 0: nothing is
 * coming any more; the answer of the fetch itself says how it ended. A fetch has one wait at once.
 *   INVALID    No fetch of the session was begun since its last Match. One that was refused at
 *              once, such as for a peer that is not connected, was not: its own answer says why.
 *   CONFLICT   A later wait took its place.
 *   TIMED_OUT  This call's deadline passed. The fetch goes on, and the wait may be repeated. */
TERN_API enum tern_err tern_fetch_wait(struct tern *t, tern_session s, uint32_t above,
                                       uint32_t deadline_ms, struct tern_result *ret);
/* Where the pages of the fetch lie: ret->runs, those that have come, up to ret->lengths.written,
 * and those that are still to come. The latter are the session's from the beginning of a
 * tern_fetch_follow on, and are not to be touched before tern_fetch_wait or the fetch says that
 * they are written. Of other fetches they are known once the source has answered. */
TERN_API enum tern_err tern_fetch_pages(struct tern *t, tern_session s, uint32_t deadline_ms,
                                        struct tern_result *ret);
/* At the daemon that gave it, by any engine of the tenant. tern_ticket_renew: it stands for so long
 * from now on, as tern_handoff says, or no longer. A fetch that has begun goes on.
 *
 *   GONE, DENIED  As of tern_fetch_ticket; GONE also of a ticket that another daemon gave. */
TERN_API enum tern_err tern_ticket_renew(struct tern *t, const char *ticket, uint32_t stands_ms,
                                         uint32_t deadline_ms, uint32_t *ret_stands_ms);
TERN_API enum tern_err tern_ticket_drop(struct tern *t, const char *ticket, uint32_t deadline_ms);

/* ---- the disk tier ---- */

/* What a store made durable. */
struct tern_stored {
    uint32_t depth;   /* tokens of the session's list that the disk holds now */
    uint64_t written; /* bytes that this call wrote; 0: all of it was there */
};

/* Stores a prefix of the session's committed tokens on the disk and returns when it is durable:
 * a Match finds it again (disk_depth) until it is evicted there, also after the daemon was killed
 * or the host lost power. The daemon stores by itself what it takes for worth it; this is for a
 * prefix that many will share, such as a system prompt, and for one that must not be lost. `depth`:
 * where it ends, in tokens, rounded down to whole chunks, at most the committed length. 0: the
 * daemon chooses, a little less than what is committed, so that others who share it find it. In a
 * pool with STATE groups it ends at the deepest resume point at or above that depth or, where there
 * is none, at the first one behind it. The call waits for the step of the commit to pass; the
 * session can be used meanwhile. It may be repeated. If deadline_ms passes, the store goes on.
 *   INVALID         So much is not committed, or not one whole chunk is, or there is no resume
 *                   point in all that is.
 *   UNSUPPORTED     The daemon has no disk tier, or the tenant has no part of it.
 *   POOL_EXHAUSTED  The file system is full.
 *   QUOTA           It does not fit into the tenant's part of the disk, with what may not go: the
 *                   text says what there is too little of, and tern_error_numbers has how much it
 *                   needs and how much there is at most.
 *   BUSY            As many prefixes as may be are being stored. Repeat the call in a moment.
 *   GONE            The prefix left memory before it was written, or its namespace was reset.
 *   DISK            The disk failed. Nothing was stored.
 *   CORRUPT         A page in memory does not agree with its checksum. Nothing was stored. */
TERN_API enum tern_err tern_store(struct tern *t, tern_session s, uint32_t depth,
                                  uint32_t deadline_ms, struct tern_stored *ret);

#endif
