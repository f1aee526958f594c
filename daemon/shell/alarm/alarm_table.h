/* The alarms: states of the daemon that an operator should know of, each with a beginning and an
 * end. The log reports both, `ternctl status` shows the alarms that are on, and docs/operations.md
 * has this table: tests/unit/project/check_documents.py --write regenerates it. */
#ifndef SHELL_ALARM_TABLE_H
#define SHELL_ALARM_TABLE_H

/* As X(NAME, word, of, severity, begin_ms, end_ms, when it begins, when it ends, what it means,
 * what to do). `of`: one alarm for the daemon, or one for each engine, tenant, share (a tenant and
 * a table that tenants share), peer or GPU. An alarm begins when its condition has been true for
 * begin_ms and ends when it has been false for end_ms, so that an intermittent condition is one
 * alarm. */
#define ALARM_TABLE(X)                                                                             \
    X(QUARANTINE_OLD, quarantine_old, DAEMON, WARN, 0, 1000,                                       \
      "pages have waited 10 s for the proof that nothing can write them", "none have waited 5 s",  \
      "pages wait in quarantine, since a write of a peer may still arrive",                        \
      "look at that peer in `ternctl peers`; if its pages never come back, drain and restart "     \
      "this "                                                                                      \
      "daemon")                                                                                    \
    X(STEP_OVERDUE, step_overdue, ENGINE, WARN, 0, 0,                                              \
      "something waits for a step of the engine, and none has passed for "                         \
      "`deadlines.step_alarm_ms`; at once where a rank shows a step that its engine cannot have "  \
      "reached",                                                                                   \
      "a step has passed, nothing waits, or the engine is gone",                                   \
      "pages of the engine wait for a step, and none passes",                                      \
      "look whether that rank hangs, and if it does, end all processes of the engine; where its "  \
      "step is not believed, look what overwrites its control page, and restart the engine")       \
    X(ENGINE_STUCK, engine_stuck, ENGINE, WARN, 0, 0,                                              \
      "a process of the engine has ended, and others live on", "the engine is gone",               \
      "the engine's requests are refused, and its pages stay its own until its last process has "  \
      "ended",                                                                                     \
      "end the processes that are left")                                                           \
    X(RETIRE_BACKLOG, retire_backlog, DAEMON, WARN, 2000, 5000,                                    \
      "three quarters of `limits.retires` have been in use for 2 s",                               \
      "less than half of them have been in use for 5 s",                                           \
      "most records for releases that wait for a step are in use, and soon requests that release " \
      "pages are refused",                                                                         \
      "look in `ternctl engines` for the engine whose steps lag; if none does, raise "             \
      "limits.retires")                                                                            \
    X(SPILL_FULL, spill_full, DAEMON, WARN, 0, 5000,                                               \
      "the disk tier's file system has less than `spill.headroom` free beside what is to be "      \
      "stored",                                                                                    \
      "there has been room for 5 s",                                                               \
      "nothing more is stored on the disk, and requests are served as before",                     \
      "make room on that file system, or lower spill.bytes")                                       \
    X(SPILL_FAILING, spill_failing, DAEMON, ERROR, 0, 5000,                                        \
      "writing or reading a file of the disk tier has failed", "it has worked for 5 s",            \
      "the disk tier fails; requests are served as before, and storing is tried again",            \
      "see what the error says of the folder: its owner, its mode, whether it is there; else "     \
      "look "                                                                                      \
      "at the kernel's log of the disk")                                                           \
    X(STEP_OVER, step_over_bound, DAEMON, ERROR, 0, 0,                                             \
      "a step of the core has looked at more records than a step may", "none did for 10 s",        \
      "a step of the core took longer than it may, and all clients waited for it",                 \
      "report it with the tape that the log names: it is a fault of the daemon's own")             \
    X(SHARE_EXHAUSTED, share_exhausted, SHARE, WARN, 0, 0,                                         \
      "a request of the tenant was refused, because its share of that table and the common rest "  \
      "are in use",                                                                                \
      "none was for 10 s",                                                                         \
      "requests of the tenant are refused: its share of that table is in use",                     \
      "raise that limit, or see in `ternctl status` who holds the records")                        \
    X(MEMORY_EXHAUSTED, memory_exhausted, TENANT, WARN, 0, 0,                                      \
      "a request of the tenant found too few free pages, and nothing that may be evicted "         \
      "(POOL_EXHAUSTED)",                                                                          \
      "none did for 10 s", "sessions of the tenant hold nearly all pages of a pool",               \
      "run fewer sessions at a time, or raise the tenant's memory")                                \
    X(QUOTA_REACHED, quota_reached, TENANT, WARN, 0, 0,                                            \
      "a request of the tenant was refused, because it is above what the tenant may have (QUOTA)", \
      "none was for 10 s", "the tenant asks for more than its settings give it",                   \
      "raise the setting that the refusal names, or let the tenant ask for less")                  \
    X(PEER_DOWN, peer_down, PEER, WARN, 5000, 5000,                                                \
      "there has been no link to the peer, or no way to its data port, for 5 s",                   \
      "both have been there for 5 s",                                                              \
      "the peer cannot be reached, and nothing is fetched from it",                                \
      "look at its daemon's log and at the network between the hosts; the daemon keeps trying")    \
    X(DEVICE_LOST, device_lost, GPU, ERROR, 0, 0,                                                  \
      "the GPU, on which memory lies, failed or did not answer for 10 s",                          \
      "not before the daemon is started again",                                                    \
      "the pages on the GPU are gone, nothing of it is served, and who maps it is told GONE",      \
      "look at `dmesg` (Xid), reset the GPU, and start the daemon again; where a try of peer "     \
      "access at the start has lost it, with `peer_access: false`")

#endif
