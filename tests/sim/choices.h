/* The kinds of choices a history is made of: X(name, weight, is a fault). choose.c carries them
 * out. */
#ifndef SIM_CHOICES_H
#define SIM_CHOICES_H

#define CHOICES(X)                                                                                 \
    X(join, 16, 0)                                                                                 \
    X(open, 26, 0)                                                                                 \
    X(match, 34, 0)                                                                                \
    X(peek, 6, 0)                                                                                  \
    X(step, 130, 0)                                                                                \
    X(abort, 4, 0)                                                                                 \
    X(close, 12, 0)                                                                                \
    X(fetch, 34, 0)                                                                                \
    X(retract, 12, 0)                                                                              \
    X(recover, 14, 0)                                                                              \
    X(pin, 3, 0)                                                                                   \
    X(exec, 120, 0)                                                                                \
    X(publish, 24, 0)                                                                              \
    X(deliver, 80, 0)                                                                              \
    X(data, 36, 0)                                                                                 \
    X(job, 44, 0)                                                                                  \
    X(quiet, 14, 0)                                                                                \
    X(time, 10, 0)                                                                                 \
    X(connect, 14, 0)                                                                              \
    X(evict, 2, 0)                                                                                 \
    X(cancel, 3, 1)                                                                                \
    X(cut, 1, 1)                                                                                   \
    X(one_way, 1, 1)                                                                               \
    X(notice, 8, 0)                                                                                \
    X(corrupt, 14, 1)                                                                              \
    X(broken, 12, 1)                                                                               \
    X(stale_data, 4, 1)                                                                            \
    X(kill, 1, 1)                                                                                  \
    X(kill_leader, 1, 1)                                                                           \
    X(kill_engine, 1, 1)                                                                           \
    X(reap, 8, 0)                                                                                  \
    X(leave, 1, 1)                                                                                 \
    X(conn_close, 2, 1)                                                                            \
    X(restart, 1, 1)                                                                               \
    X(repeat, 6, 1)                                                                                \
    X(stale, 4, 1)                                                                                 \
    X(bad, 2, 1)                                                                                   \
    X(step_back, 1, 1)                                                                             \
    X(stale_completion, 1, 1)                                                                      \
    X(pool_close, 1, 1)                                                                            \
    X(reset, 1, 1)                                                                                 \
    X(drain, 1, 1)                                                                                 \
    X(jump, 1, 1)                                                                                  \
    X(step_jump, 2, 1)                                                                             \
    X(wait, 6, 0)                                                                                  \
    X(turn, 16, 0)                                                                                 \
    X(record, 60, 0)                                                                               \
    X(disk, 90, 0)                                                                                 \
    X(store, 24, 0)                                                                                \
    X(crash, 3, 0)                                                                                 \
    X(lease, 60, 0)                                                                                \
    X(handoff, 20, 0)                                                                              \
    X(ticket, 36, 0)                                                                               \
    X(follow, 60, 0)

enum choice_kind {
#define X(name, weight, fault) CHOICE_##name,
    CHOICES(X)
#undef X
        CHOICE_COUNT
};

#endif
