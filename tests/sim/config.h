/* The settings of a history, and the faults that it may meet. */
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <stdint.h>

/* X(name, letter, what it is) */
#define FAULTS(X)                                                                                  \
    X(link_cut)                                                                                    \
    X(link_one_way)                                                                                \
    X(message_lost)                                                                                \
    X(answer_kept)                                                                                 \
    X(page_corrupt)                                                                                \
    X(pull_broken)                                                                                 \
    X(late_receive)                                                                                \
    X(stale_page_asked)                                                                            \
    X(process_killed)                                                                              \
    X(leader_killed)                                                                               \
    X(engine_killed)                                                                               \
    X(write_after_kill)                                                                            \
    X(connection_closed)                                                                           \
    X(daemon_restarted)                                                                            \
    X(stale_handle)                                                                                \
    X(malformed_request)                                                                           \
    X(step_jumped)                                                                                 \
    X(step_went_back)                                                                              \
    X(clock_jumped)                                                                                \
    X(stale_completion)                                                                            \
    X(request_repeated)                                                                            \
    X(copy_spoilt)                                                                                 \
    X(copy_acked_twice)                                                                            \
    X(disk_failed)                                                                                 \
    X(disk_file_lost)                                                                              \
    X(disk_rotted)                                                                                 \
    X(path_lost)                                                                                   \
    X(path_silent)

enum fault {
#define X(name) FAULT_##name,
    FAULTS(X)
#undef X
        FAULT_COUNT
};

/* The settings of a history besides its choices. Small numbers, written to tapes by name. A window
 * of 0 is a RECURRENT group. heads: of a page, where pools of other layout exchange pages; 0: they
 * do not. whole: bit a daemon whose ranks all have all heads. far_: of the second daemon; 0: as the
 * first has it. slow: the source whose pages come seldom, enum slow_source. own: each daemon is its
 * own peer, and the two are no peers of each other. together: one event may report several checksum
 * jobs. cut: where `give_back` is set, the daemon splits a Match and a Peek into pieces of as few
 * records. */
#define CONFIG_FIELDS(X)                                                                           \
    X(tenants)                                                                                     \
    X(ngroups)                                                                                     \
    X(page_tokens0)                                                                                \
    X(page_tokens1)                                                                                \
    X(page_granules0)                                                                              \
    X(page_granules1)                                                                              \
    X(cap0)                                                                                        \
    X(granules)                                                                                    \
    X(world0)                                                                                      \
    X(world1)                                                                                      \
    X(world2)                                                                                      \
    X(scheduler)                                                                                   \
    X(sessions_max)                                                                                \
    X(host_behind)                                                                                 \
    X(variants)                                                                                    \
    X(namespaces)                                                                                  \
    X(tokens_max)                                                                                  \
    X(keys)                                                                                        \
    X(lim_sessions)                                                                                \
    X(lim_nodes)                                                                                   \
    X(lim_blocks)                                                                                  \
    X(lim_retires)                                                                                 \
    X(lim_keys)                                                                                    \
    X(lim_pulls)                                                                                   \
    X(lim_serves)                                                                                  \
    X(lim_seals)                                                                                   \
    X(lim_spaces)                                                                                  \
    X(peer_pages)                                                                                  \
    X(tenant_pages)                                                                                \
    X(deadline_ms)                                                                                 \
    X(tight)                                                                                       \
    X(faults_on)                                                                                   \
    X(seed_tokens)                                                                                 \
    X(nstate)                                                                                      \
    X(supersede)                                                                                   \
    X(page_tokens2)                                                                                \
    X(page_tokens3)                                                                                \
    X(page_granules2)                                                                              \
    X(page_granules3)                                                                              \
    X(window2)                                                                                     \
    X(window3)                                                                                     \
    X(reserve2)                                                                                    \
    X(reserve3)                                                                                    \
    X(host)                                                                                        \
    X(lim_copies)                                                                                  \
    X(spoil)                                                                                       \
    X(reserved)                                                                                    \
    X(piece)                                                                                       \
    X(regions)                                                                                     \
    X(places)                                                                                      \
    X(span)                                                                                        \
    X(open_tokens)                                                                                 \
    X(awaits)                                                                                      \
    X(offer_pages)                                                                                 \
    X(lim_batches)                                                                                 \
    X(give_back)                                                                                   \
    X(turn_ms)                                                                                     \
    X(records)                                                                                     \
    X(lim_records)                                                                                 \
    X(disk)                                                                                        \
    X(disk_tenants)                                                                                \
    X(disk_chunks)                                                                                 \
    X(disk_files)                                                                                  \
    X(disk_stores)                                                                                 \
    X(disk_tokens)                                                                                 \
    X(disk_interval)                                                                               \
    X(disk_align)                                                                                  \
    X(disk_trim)                                                                                   \
    X(disk_least)                                                                                  \
    X(disk_blocks)                                                                                 \
    X(disk_fail)                                                                                   \
    X(disk_rot)                                                                                    \
    X(leases)                                                                                      \
    X(ticket_ms)                                                                                   \
    X(early)                                                                                       \
    X(heads)                                                                                       \
    X(whole)                                                                                       \
    X(far_world0)                                                                                  \
    X(far_world1)                                                                                  \
    X(far_world2)                                                                                  \
    X(far_tokens0)                                                                                 \
    X(far_tokens1)                                                                                 \
    X(far_tokens2)                                                                                 \
    X(far_tokens3)                                                                                 \
    X(slow)                                                                                        \
    X(own)                                                                                         \
    X(together)                                                                                    \
    X(cut)

struct config {
#define X(name) uint32_t name;
    CONFIG_FIELDS(X)
#undef X
};

#endif
