/* The planted bugs: each breaks one rule of the core, of the seam's transfers, or of the plans of
 * resharding. Each is a patch
 * of this folder, NN-name.patch, which plant.sh applies to a copy of the sources; tern-sim-bugs
 * alone is built from that copy, and `tern-sim-bugs --bug N` turns one of them on. The simulator
 * must find every one. */
#ifndef SIM_BUGS_H
#define SIM_BUGS_H

/* X(number, NAME, what is done wrong) */
#define BUG_TABLE(X)                                                                               \
    X(1, FREE_UNFENCED, "free without waiting for the step")                                       \
    X(2, IGNORE_GEN, "ignore the generation")                                                      \
    X(3, PUBLISH_UNVERIFIED, "publish before the checksum")                                        \
    X(4, ADOPT_FREES_DUPS, "adopt and free duplicates at once")                                    \
    X(5, SPLIT_OFF_L, "match takes a chunk that agrees only in part")                              \
    X(6, UNPIN_UNFENCED, "give up a pin without waiting for its step")                             \
    X(7, ONE_PIDFD, "reuse on the pidfd of one rank")                                              \
    X(8, TAIL_UNALIGNED, "free the tail without page alignment")                                   \
    X(9, RESUME_MINUS_ONE, "an extra -1 on resume")                                                \
    X(10, SLIDE_BY_C, "slide by C alone")                                                          \
    X(11, STORED_CLAIM, "store the claim of resumability")                                         \
    X(12, SUPERSEDE_NEEDED, "supersede a segment that a sibling's window needs")                   \
    X(13, SUPERSEDE_FORK, "supersede a fork point")                                                \
    X(14, TRUST_REFCOUNT, "reclaim STATE that is borrowed")                                        \
    X(15, NO_REFILL, "break when adoption fails")                                                  \
    X(16, PIN_ONE_TIER, "pin on one tier only")                                                    \
    X(17, UNPIN_DEVICE_FIRST, "unpin the device before pinning the host")                          \
    X(18, HOST_FREE_EARLY, "free a host copy before its acknowledgement")                          \
    X(19, COUNT_BORROWED, "count a borrowed page as owned, and take one too few")                  \
    X(20, FREE_AT_LAST_COMMIT, "free only when the last commit comes")                             \
    X(21, QUIET_ON_ACK, "recycle on the peer's abort acknowledgement")                             \
    X(22, UNREVOKED, "skip the wait for revocation")                                               \
    X(23, FLUSH_IS_DONE, "count flush errors as success")                                          \
    X(24, NO_END_CHECK, "no generation check at the end of a pull")                                \
    X(25, CREDIT_EARLY, "credit returned before the completion is consumed")                       \
    X(26, PUBLISH_ON_SENT, "publish on the sender's completion")                                   \
    X(27, TCP_BESIDE_PUSHES, "hand a batch to TCP while a peer may write its pages")               \
    X(28, NEWEST_FIRST, "serve the newest transfer first")                                         \
    X(29, RETRY_AT_ONCE, "ask a busy source again at once")                                        \
    X(30, RETIRES_UNSHARED, "give one tenant the releases that are reserved for another")          \
    X(31, ENGINES_KEPT, "keep the share of an engine that is gone")                                \
    X(32, POOLS_COMMON, "keep a tenant from the pools that are reserved for it")                   \
    X(33, SESSIONS_KEPT, "keep the share of a session that is closed")                             \
    X(34, PULLS_COMMON, "keep a tenant from the fetches that are reserved for it")                 \
    X(35, SERVES_COMMON, "keep a peer from the transfers that are reserved for it")                \
    X(36, RESET_UNTOLD, "keep a reset from the peers")                                             \
    X(37, SPACES_UNSHARED, "open a namespace on what is reserved for another tenant")              \
    X(38, NODES_UNSHARED, "commit a chunk on what is reserved for another tenant")                 \
    X(39, BLOCKS_KEPT, "keep the share of token blocks that are free again")                       \
    X(40, SPACE_IDLE_EARLY, "let a namespace make way while somebody is in it")                    \
    X(41, EVICT_DOOMED, "evict for a request for which there is not enough")                       \
    X(42, PATH_UNCOUNTED, "count as obtainable what lies above a pinned prefix")                   \
    X(43, TICKET_FREE_WHILE_READ, "free a ticket at its deadline while a transfer reads it")       \
    X(44, TICKET_ANY_KEY, "let anybody have a ticket who knows its number")                        \
    X(45, REGIONS_FIRST, "look for room by the first rank's region alone")                         \
    X(46, REGIONS_UNASKED, "let an engine map a pool that lies on other devices")                  \
    X(47, ORPHAN_ANYWHERE, "take over a pool that lies on other devices")                          \
    X(48, JUMP_PROVES, "take a done step that jumped for a proof of all that was named")           \
    X(49, WALK_BLIND, "walk on below the first piece of a peer's tokens without comparing")        \
    X(50, WALK_UNPINNED, "hold nothing of what a peer's tokens led to while more are awaited")     \
    X(51, BATCHES_EARLY, "give the batches of a stopped transfer to others before it is quiet")    \
    X(52, WAIT_ONE_RANK, "answer who waits for a step when the first rank has passed it")          \
    X(53, PIECE_NOT_RESUMED, "end a Match in pieces where HISTORY does, resumable or not")         \
    X(54, PIECE_CUTS, "resume a session by each piece of a Match as if it were all of it")         \
    X(55, SLAB_HELD, "take a slab of HISTORY for STATE though a prefix in it is held")             \
    X(56, RECEIVE_UNHELD, "let go of the pages of a receive when it is handed to a data thread")   \
    X(57, VERDICT_OF_ANOTHER, "take the verdict on a dropped piece for that on the next")          \
    X(58, RIGHT_KEPT, "take what was right of the answer before for right in the next")            \
    X(59, VERIFY_UNHELD, "let go of the pages of a piece when it is handed to a data thread")      \
    X(60, SHORT_IS_OK, "say OK to a fetch that brought less than at_least")                        \
    X(61, RELEASE_SKIPPED, "leave a release of a dead engine where a piece ended in it")           \
    X(62, PENDING_SKIPPED, "leave what a dead engine had not published where a piece ended in it") \
    X(63, WAITS_FOR_NO_COPY, "let who needs room wait for copies where none is under way")         \
    X(64, TAIL_AT_ONCE, "free a session's tail at once when a fetch replaces it")                  \
    X(65, TAIL_TOO_SOON, "give a session's tail up when the source offers")                        \
    X(66, TURN_ANYBODY_ENDS, "end a turn for a request that never claimed it")                     \
    X(67, TURN_KEPT, "keep the turn of a connection that has gone")                                \
    X(68, TURN_NAMES_SESSION, "give a session the generation that a turn had")                     \
    X(69, CLOSE_FORGETS_TURN, "close behind a turn at the step of the close")                      \
    X(70, CLOSE_UNPROVEN, "close behind a turn that ended by its deadline")                        \
    X(71, ROLLBACK_TOO_FAR, "take back one record more than the session keeps blobs for")          \
    X(72, PREPARED_ANYBODY_FREES,                                                                  \
      "free what is prepared for a request that never claimed the turn")                           \
    X(73, PREPARED_FREE_AT_ONCE, "free at once what a turn that never ended has prepared")         \
    X(74, PUT_STORED_LATE, "store a put whose turn is over")                                       \
    X(75, PUT_BEHIND_CLOSE, "store a put that a close has come before")                            \
    X(76, BLOB_NEVER_FREED, "keep the pages of a blob that is dropped")                            \
    X(77, BLOB_FREED_TWICE, "free the pages of a blob once more with its record")                  \
    X(78, BLOB_FREED_EXPOSED, "free a dropped blob that a turn which never ended may still read")  \
    X(79, ENTRY_WHEN_ISSUED, "keep an entry when its file is issued, not when it is durable")      \
    X(80, EVICT_PRUNES, "prune behind a store with the reason evict or shutdown")                  \
    X(81, READ_UNPINNED, "let an entry make way while a fetch reads it")                           \
    X(82, FAILED_KEPT, "keep the chunks of a file that was not written")                           \
    X(83, PLACE_UNTOLD, "hang what a start finds on any chunk that is as deep")                    \
    X(84, COMING_UNCOUNTED, "leave what is being written out of the budget")                       \
    X(85, RESET_UNDROPPED, "answer a reset before what lies on the disk is gone")                  \
    X(86, RESET_LEAVING, "answer a reset while a file of before it is leaving")                    \
    X(87, TRIMS_ALWAYS, "evict what a store prunes before it is durable")                          \
    X(88, FOUND_TWICE, "keep what hangs on an extent that was given back")                         \
    X(89, QUEUED_OVER_RESET, "store what waits as the new content of a namespace that was reset")  \
    X(90, EVICTS_IN_VAIN, "evict on the disk for a store that can never fit")                      \
    X(91, BAD_ACKED, "say that a prefix is stored whose chunks were found bad meanwhile")          \
    X(93, PREFETCH_FIRST, "ask for the pages of a prefetch before those that a decode waits for")  \
    X(94, PREFETCH_STARVES, "ask for no prefetch while there are others")                          \
    X(95, TICKET_TWO_WINNERS, "overlook a completion that crosses the source's own end")           \
    X(96, LEASE_COUNTED_TWICE, "take a leased page that is named twice for two")                   \
    X(97, UNLEASE_UNFENCED, "free a leased page that is given back before its step")               \
    X(98, LEASE_SURVIVES, "keep the lease of an engine that is gone")                              \
    X(99, TICKET_OTHER_BLOB, "send the blob of another ticket")                                    \
    X(100, TICKET_STATE_OF_COMMIT, "serve the STATE of the committed length for a ticket's own")   \
    X(101, TICKET_USED_IN_VAIN, "take a ticket for used up when its fetch has failed")             \
    X(102, TICKET_TAIL_RELEASED, "give up the tail of a session when it is handed over")           \
    X(103, FOLLOW_UNVERIFIED, "publish what comes to a follower, whatever its checksum says")      \
    X(104, FOLLOW_UNSEALED, "offer a follower what has no checksum yet")                           \
    X(105, FOLLOW_TOLD_NAMED, "tell a follower a depth whose pages were only named")               \
    X(106, PROMISE_OUTLIVES_ABORT, "keep an early ticket when its session is aborted")             \
    X(107, LOCAL_TICKET_TWICE, "leave a ticket where its own daemon has fetched it")               \
    X(108, REPLICATED_TO_EACH, "move what ranks hold alike once for each of them")                 \
    X(109, SPAN_PAGE_MISSING, "publish a span without the last of its pages")                      \
    X(110, SPAN_BESIDE_EARLY, "free the pages beside a span before it has come")                   \
    X(111, ASKED_WHILE_RECEIVED,                                                                   \
      "ask again for what a dead path was asked for while its receive is out")                     \
    X(112, FLOW_UNLIMITED, "let a tenant have more than its share from one source")                \
    X(113, TICKET_END_UNAWAITED,                                                                   \
      "serve a ticket again before the end of a fetch that was given up")                          \
    X(118, WIDE_KEY, "let peers read all of a tenant's memory")                                    \
    X(119, WINDOW_TOO_WIDE, "bind memory windows to more than the pages of a grant")               \
    X(120, OWN_POOL_SERVED, "serve a fetch of this very daemon from the pool that it is for")      \
    X(121, SLOT_EARLY, "use slots of the ring again before they are copied to their pages")        \
    X(123, COMMIT_AT_ONCE, "commit however many chunks in one step")                               \
    X(124, COMMIT_UNCOUNTED, "count no visits for the chunks of a commit")                         \
    X(125, RETRACT_AT_ONCE, "begin all copies of a session that goes to the host in one step")     \
    X(126, CLOSE_AT_ONCE, "give all pages of a session back in one step")                          \
    X(127, UNHOLD_UNCOUNTED, "count no visits for the path that a session lets go")                \
    X(128, RETIRE_AT_ONCE, "free all pages that wait for a step in one step of the core")          \
    X(129, TICKETS_EACH_EVENT, "look at every session with a ticket at each event")                \
    X(130, REACH_COUNTED, "count the reach of an entry beyond its root")                           \
    X(132, RESET_AT_ONCE, "free all nodes of a namespace that was reset in one step")              \
    X(133, POINTS_WALKED, "walk up from each node that is published to the root")                  \
    X(134, ROLLBACK_STRIPPED, "roll back onto a record whose blobs are dropped")                   \
    X(140, SHUT_ON_DEVICE, "store at the end what the device has, and not what the host has")      \
    X(141, LOST_OFFERED, "offer what lay in a file of the disk that is lost")                      \
    X(142, STORE_UNPINNED, "let the host's copies go while a store reads them")                    \
    X(143, STORE_ALL_OR_NONE, "store nothing of a path whose end can't be read")                   \
    X(144, WINDOW_KEPT, "keep what no node took of a window until it has left the window")         \
    X(146, RESET_UNORDERED, "take a late message about a reset for a new one")                     \
    X(147, LOAD_UNHELD, "let the host's copies go while a load reads them")                        \
    X(148, DUE_UNHELD, "let what a store is due of make way")                                      \
    X(149, LOAD_AT_ONCE, "bring a whole path back in one step")                                    \
    X(150, CHUNK_OF_ANOTHER, "believe a node's chunk whose record is another's by now")            \
    X(151, ASK_ANY_TENANT, "answer a question with what another tenant has")                       \
    X(152, ASK_STRANGERS, "ask a peer that does not share the tenant")                             \
    X(153, ASK_KEPT, "keep the record of a question whose fetch was cancelled")

/* Bugs of the seam: `tern-sim --rdma` finds them. */
#define BUG_IS_SEAM(n)                                                                             \
    (((n) >= 21 && (n) <= 27) || ((n) >= 56 && (n) <= 59) || (n) == 111 || (n) == 118 ||           \
     (n) == 119 || (n) == 121)

/* Bugs that show only where a daemon has a disk. */
#define BUG_IS_OF_DISK(n)                                                                          \
    (((n) >= 79 && (n) <= 92) || ((n) >= 140 && (n) <= 143) || (n) == 148 || (n) == 150)

/* Bugs that make a step of the core too long: histories with large geometries find them. */
#define BUG_IS_LARGE(n) (((n) >= 123 && (n) <= 133) || (n) == 149)

/* Bugs that show where three daemons know of each other: fleets find them. */
#define BUG_IS_FLEET(n) ((n) == 146)

enum planted_bug {
#define X(number, name, what) BUG_##name = (number),
    BUG_TABLE(X)
#undef X
        BUG_END
};

extern unsigned planted_bug; /* the planted one; 0: none */
#define BUG(name) (planted_bug == BUG_##name)

#endif
