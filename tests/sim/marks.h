/* The states that histories must reach: X(name, least count per 1,000 seeds). The simulator sees
 * them in replies, actions and its own model; a mark below its least count fails a run of 1,000
 * seeds or more. */
#ifndef SIM_MARKS_H
#define SIM_MARKS_H

#define MARKS(X)                                                                                   \
    X(match_hit, 100)                                                                              \
    X(match_miss, 100)                                                                             \
    X(match_repeated, 10)                                                                          \
    X(extend_evicts, 100)                                                                          \
    X(extend_exhausted, 100)                                                                       \
    X(exhausted_by_retiring, 20)                                                                   \
    X(adopt_canonical, 20)                                                                         \
    X(adopt_pending_same_engine, 5)                                                                \
    X(pending_other_engine_keeps_own, 2)                                                           \
    X(pending_dropped_engine_died, 2)                                                              \
    X(retire_waits_rank, 100)                                                                      \
    X(pin_retires_with_step, 50)                                                                   \
    X(engine_stuck_then_gone, 20)                                                                  \
    X(resume_shorter_than_written, 50)                                                             \
    X(resume_refused, 10)                                                                          \
    X(rewind_speculation, 50)                                                                      \
    X(finish_trims, 50)                                                                            \
    X(abort_with_tail, 20)                                                                         \
    X(barrier_stops, 10)                                                                           \
    X(fetch_publishes, 50)                                                                         \
    X(fetch_adopts_existing, 5)                                                                    \
    X(fetch_owns_unpublished, 1)                                                                   \
    X(fetch_nothing_there, 20)                                                                     \
    X(fetch_corrupt_retry, 10)                                                                     \
    X(fetch_corrupt_fatal, 1)                                                                      \
    X(fetch_cancel_wins, 5)                                                                        \
    X(fetch_cancel_loses, 2)                                                                       \
    X(fetch_peer_lost, 10)                                                                         \
    X(fetch_timed_out, 5)                                                                          \
    X(fetch_exhausted, 2)                                                                          \
    X(quarantine_then_quiet, 10)                                                                   \
    X(serve_deadline, 2)                                                                           \
    X(source_busy, 2)                                                                              \
    X(stale_page_refused, 2)                                                                       \
    X(namespace_separates, 20)                                                                     \
    X(extra_key_separates, 10)                                                                     \
    X(tenant_separates, 5)                                                                         \
    X(unsealed_page_refused, 2)                                                                    \
    X(other_world_refused, 10)                                                                     \
    X(commit_before_dispatch, 50)                                                                  \
    X(fetch_answer_unheard, 1)                                                                     \
    X(gone_after_restart, 5)                                                                       \
    X(gone_after_close, 20)                                                                        \
    X(pool_closed_zeroed, 5)                                                                       \
    X(slab_changes_group, 20)                                                                      \
    X(page_changes_owner, 200)                                                                     \
    X(token_blocks_full, 20)                                                                       \
    X(nodes_full, 5)                                                                               \
    X(retires_full, 5)                                                                             \
    X(quota_sessions, 10)                                                                          \
    X(drain_refuses, 5)                                                                            \
    X(evict_on_demand, 50)                                                                         \
    X(step_back_refused, 5)                                                                        \
    X(slide_borrowed, 20)                                                                          \
    X(slide_owned, 2)                                                                              \
    X(refill, 20)                                                                                  \
    X(recurrent_copied, 50)                                                                        \
    X(recurrent_resumed, 20)                                                                       \
    X(fork_kept, 5)                                                                                \
    X(sibling_window_kept, 3)                                                                      \
    X(state_superseded_lazy, 50)                                                                   \
    X(state_superseded_eager, 50)                                                                  \
    X(return_refused, 20)                                                                          \
    X(match_shallower_for_state, 20)                                                               \
    X(retract_host, 100)                                                                       \
    X(retract_host_no_room, 5)                                                                 \
    X(retract_drop, 50)                                                                        \
    X(retract_repeated, 20)                                                                    \
    X(retracted_host, 50)                                                                      \
    X(recover_cancelled, 20)                                                                   \
    X(recover_at_once, 50)                                                                     \
    X(recover_loaded, 10)                                                                      \
    X(recover_no_room, 2)                                                                      \
    X(recover_corrupt, 1)                                                                      \
    X(load_aborted, 2)                                                                         \
    X(load_cancelled, 1)                                                                       \
    X(load_corrupt, 2)                                                                         \
    X(copy_failed, 5)                                                                          \
    X(copy_acked_twice, 10)                                                                    \
    X(host_evicted, 20)                                                                        \
    X(host_fetch, 10)                                                                          \
    X(host_fetch_no_room, 1)                                                                   \
    X(commit_stopped_by_load, 1)                                                                   \
    X(away_refused, 20)                                                                        \
    X(reset, 20)                                                                               \
    X(reset_with_running_session, 10)                                                          \
    X(pinned, 20)                                                                              \
    X(fetch_with_state, 20)

#endif
