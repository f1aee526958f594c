/* What histories over the RDMA model must reach: X(name, least count per 1,000 seeds). Beside the
 * driver's own view of it they are counted where the models see them, never by the seam alone. Some
 * come many at a time, in few histories: the least count of those is a quarter of the mean. */
#ifndef RDMA_MARKS_H
#define RDMA_MARKS_H

#define RDMA_MARKS(X)                                                                              \
    X(pulled_all, 5000)                                                                            \
    X(read_posted, 18000)                                                                          \
    X(landed_by_read, 30000)                                                                       \
    X(landed_by_write, 14000)                                                                      \
    X(grants_revoked, 10)                                                                          \
    X(late_writes, 12)                                                                             \
    X(not_pushed_in_time, 1)                                                                       \
    X(immediate_again, 20)                                                                         \
    X(immediate_to_reader, 5)                                                                      \
    X(closed_window_refused, 1)                                                                    \
    X(told_before_it_was_there, 4000)                                                              \
    X(landed_in_ring, 50)                                                                          \
    X(landed_from_ring, 50)                                                                        \
    X(probe_from_ring, 20)                                                                         \
    X(probe_by_ring, 40)                                                                           \
    X(probe_by_push, 350)                                                                          \
    X(unproven, 100)                                                                               \
    X(probe_by_one_rail, 50)                                                                       \
    X(landed_by_tcp, 12000)                                                                        \
    X(reads_merged, 1000)                                                                          \
    X(stopped_with_reads_out, 300)                                                                 \
    X(landed_after_stop, 50)                                                                       \
    X(verified_after_stop, 25)                                                                     \
    X(late_reads, 250)                                                                             \
    X(flushed, 1000)                                                                               \
    X(flush_timed_out, 10)                                                                         \
    X(landed_after_error, 1)                                                                       \
    X(retries_exhausted, 2)                                                                        \
    X(access_refused, 20)                                                                          \
    X(device_lost, 20)                                                                             \
    X(refused_before_it_ended, 5)                                                                  \
    X(stale_completion, 80)                                                                        \
    X(early_completion_detected, 15)                                                               \
    X(flip_detected, 200)                                                                          \
    X(recycled_under_read, 30)                                                                     \
    X(gone, 300)                                                                                   \
    X(peer_lost, 2000)                                                                             \
    X(path_ready, 1500)                                                                            \
    X(path_made_again, 200)                                                                        \
    X(piece_read_again, 20)                                                                        \
    X(batch_moved_to_tcp, 20)                                                                      \
    X(fell_back_to_tcp, 1000)                                                                      \
    X(verbs_refused_to_fall_back, 70)                                                              \
    X(cq_full_of_credit, 10)                                                                       \
    X(reused_at_quiet, 15000)                                                                      \
    X(split_frame, 15000)                                                                          \
    X(killed_with_reads_out, 8)                                                                    \
    X(probe_by_verbs, 600)                                                                         \
    X(path_lost_beside_others, 4)                                                                  \
    X(path_silent_beside_others, 40)                                                               \
    X(last_path_lost, 5)                                                                           \
    X(asked_on_another_path, 3)                                                                    \
    X(changed_without_tail, 0)

#endif
