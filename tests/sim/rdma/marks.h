/* The states that histories over the RDMA model must reach: X(name, the least number of 10,000
 * histories), which is half of the figure of 30,000 histories. Besides the driver's own states, the
 * models count them where they see them, never the seam alone. */
#ifndef RDMA_MARKS_H
#define RDMA_MARKS_H

#define RDMA_MARKS(X)                                                                              \
    X(pulled_all, 4940)                                                                            \
    X(landed_by_write, 2470)                                                                       \
    X(grants_revoked, 390)                                                                         \
    X(late_writes, 340)                                                                            \
    X(not_pushed_in_time, 62)                                                                      \
    X(immediate_again, 300)                                                                        \
    X(closed_window_refused, 44)                                                                   \
    X(told_before_it_was_there, 2450)                                                              \
    X(landed_in_ring, 1080)                                                                        \
    X(probe_of_unregistered, 430)                                                                  \
    X(probe_by_ring, 1060)                                                                         \
    X(probe_by_push, 2440)                                                                         \
    X(unproven, 1540)                                                                              \
    X(probe_by_one_rail, 600)                                                                      \
    X(landed_by_tcp, 4190)                                                                         \
    X(writes_merged, 1330)                                                                         \
    X(stopped_with_requests_out, 990)                                                              \
    X(landed_after_stop, 110)                                                                      \
    X(verified_after_stop, 280)                                                                    \
    X(flushed, 1060)                                                                               \
    X(flush_timed_out, 250)                                                                        \
    X(retries_exhausted, 190)                                                                      \
    X(access_refused, 170)                                                                         \
    X(device_lost, 510)                                                                            \
    X(refused_before_it_ended, 87)                                                                 \
    X(stale_completion, 410)                                                                       \
    X(early_completion_detected, 69)                                                               \
    X(flip_detected, 1150)                                                                         \
    X(recycled_under_way, 57)                                                                      \
    X(gone, 2260)                                                                                  \
    X(peer_lost, 3570)                                                                             \
    X(path_ready, 2500)                                                                            \
    X(path_made_again, 2000)                                                                       \
    X(piece_asked_again, 570)                                                                      \
    X(batch_moved_to_tcp, 920)                                                                     \
    X(fell_back_to_tcp, 4480)                                                                      \
    X(verbs_refused_to_fall_back, 770)                                                             \
    X(cq_full_of_credit, 3)                                                                        \
    X(reused_at_quiet, 4340)                                                                       \
    X(split_frame, 4940)                                                                           \
    X(killed_with_requests_out, 63)                                                                \
    X(path_lost_beside_others, 54)                                                                 \
    X(path_silent_beside_others, 190)                                                              \
    X(last_path_lost, 44)                                                                          \
    X(asked_on_another_path, 98)

#endif
