/* What histories over the RDMA model must reach: X(name, the least number of 10,000 histories),
 * which is half of what 30,000 came to. Beside the driver's own view of it they are counted where
 * the models see them, never by the seam alone. */
#ifndef RDMA_MARKS_H
#define RDMA_MARKS_H

#define RDMA_MARKS(X)                                                                              \
    X(pulled_all, 4900)                                                                            \
    X(read_posted, 2000)                                                                           \
    X(landed_by_read, 2000)                                                                        \
    X(landed_by_write, 1000)                                                                       \
    X(grants_revoked, 150)                                                                         \
    X(late_writes, 120)                                                                            \
    X(not_pushed_in_time, 22)                                                                      \
    X(immediate_again, 110)                                                                        \
    X(immediate_to_reader, 30)                                                                     \
    X(closed_window_refused, 14)                                                                   \
    X(told_before_it_was_there, 1000)                                                              \
    X(landed_in_ring, 180)                                                                         \
    X(landed_from_ring, 110)                                                                       \
    X(probe_from_ring, 100)                                                                        \
    X(probe_by_ring, 180)                                                                          \
    X(probe_by_push, 1000)                                                                         \
    X(unproven, 1400)                                                                              \
    X(probe_by_one_rail, 580)                                                                      \
    X(landed_by_tcp, 4100)                                                                         \
    X(reads_merged, 1100)                                                                          \
    X(stopped_with_reads_out, 940)                                                                 \
    X(landed_after_stop, 120)                                                                      \
    X(verified_after_stop, 290)                                                                    \
    X(late_reads, 900)                                                                             \
    X(flushed, 1100)                                                                               \
    X(flush_timed_out, 210)                                                                        \
    X(landed_after_error, 32)                                                                      \
    X(retries_exhausted, 270)                                                                      \
    X(access_refused, 120)                                                                         \
    X(device_lost, 530)                                                                            \
    X(refused_before_it_ended, 140)                                                                \
    X(stale_completion, 390)                                                                       \
    X(early_completion_detected, 60)                                                               \
    X(flip_detected, 1000)                                                                         \
    X(recycled_under_read, 170)                                                                    \
    X(gone, 2200)                                                                                  \
    X(peer_lost, 3400)                                                                             \
    X(path_ready, 2500)                                                                            \
    X(path_made_again, 1800)                                                                       \
    X(piece_read_again, 620)                                                                       \
    X(batch_moved_to_tcp, 920)                                                                     \
    X(fell_back_to_tcp, 4400)                                                                      \
    X(verbs_refused_to_fall_back, 890)                                                             \
    X(cq_full_of_credit, 240)                                                                      \
    X(reused_at_quiet, 4300)                                                                       \
    X(split_frame, 4900)                                                                           \
    X(killed_with_reads_out, 80)                                                                   \
    X(probe_by_verbs, 2000)                                                                        \
    X(path_lost_beside_others, 57)                                                                 \
    X(path_silent_beside_others, 220)                                                              \
    X(last_path_lost, 56)                                                                          \
    X(asked_on_another_path, 80)

#endif
