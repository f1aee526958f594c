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
      "pages have been in quarantine for 10 s",                                                    \
      "for 1 s, no page has been in quarantine for 5 s or longer",                                 \
      "pages wait in quarantine because a peer's write may still arrive",                          \
      "check that peer in `ternctl peers`; if the pages stay in quarantine, drain and restart "    \
      "this daemon")                                                                               \
    X(STEP_OVERDUE, step_overdue, ENGINE, WARN, 0, 0,                                              \
      "a release or commit waits for a step of the engine, and no step has passed for "            \
      "`deadlines.step_alarm_ms`; at once if a rank publishes a step that its engine cannot have " \
      "reached",                                                                                   \
      "a step has passed, nothing waits, or the engine is gone",                                   \
      "pages of the engine wait for a step, and no step passes",                                   \
      "if that rank hangs, end all processes of the engine; if its step is impossible, find out "  \
      "what overwrites the rank's control page, and restart the engine")                           \
    X(ENGINE_STUCK, engine_stuck, ENGINE, WARN, 0, 0,                                              \
      "a process of the engine has exited, and others still run", "the engine is gone",            \
      "the engine's requests are refused, and its pages are released only when its last process "  \
      "has exited",                                                                                \
      "end the engine's other processes")                                                          \
    X(RETIRE_BACKLOG, retire_backlog, DAEMON, WARN, 2000, 5000,                                    \
      "three quarters of `limits.retires` have been in use for 2 s",                               \
      "less than half of them have been in use for 5 s",                                           \
      "most records for releases that wait for a step are in use, and requests that release "      \
      "pages will soon be refused",                                                                \
      "find the engine whose steps lag in `ternctl engines`; if none lags, raise limits.retires")  \
    X(SPILL_FULL, spill_full, DAEMON, WARN, 0, 5000,                                               \
      "a store would leave less than `spill.headroom` free in the disk tier's file system",        \
      "there has been room for 5 s",                                                               \
      "the daemon stores nothing more on the disk; requests are served as before",                 \
      "free space on that file system, or lower spill.bytes")                                      \
    X(SPILL_FAILING, spill_failing, DAEMON, ERROR, 0, 5000,                                        \
      "a write or read of the disk tier has failed, or its folder is missing",                     \
      "for 5 s, the folder has existed, and the last write and the last read have succeeded",      \
      "the disk tier fails; requests are served as before, and stores are retried",                \
      "check the folder that the error names (exists, owner, mode), then the kernel's log for "    \
      "the disk")                                                                                  \
    X(STEP_OVER, step_over_bound, DAEMON, ERROR, 0, 0,                                             \
      "a step of the core has visited more records than the bound allows",                         \
      "no step has exceeded the bound for 10 s",                                                   \
      "a step of the core took longer than allowed, and all clients waited for it",                \
      "this is a bug in the daemon: report it with the tape that the log names")                   \
    X(SHARE_EXHAUSTED, share_exhausted, SHARE, WARN, 0, 0,                                         \
      "a request of the tenant was refused because the tenant's share of that table and the "      \
      "shared remainder are in use",                                                               \
      "no request of the tenant has been refused for that reason for 10 s",                        \
      "requests of the tenant are refused, because its share of that table and the shared "        \
      "remainder are in use",                                                                      \
      "raise the limit that the subject names, if any, or find the tenant that uses the records "  \
      "in `ternctl status`")                                                                       \
    X(MEMORY_EXHAUSTED, memory_exhausted, TENANT, WARN, 0, 0,                                      \
      "a request of the tenant found too few free or evictable pages (POOL_EXHAUSTED)",            \
      "no request of the tenant has found too few for 10 s",                                       \
      "sessions of the tenant use nearly all pages of a pool",                                     \
      "run fewer sessions at a time, or raise the tenant's memory")                                \
    X(QUOTA_REACHED, quota_reached, TENANT, WARN, 0, 0,                                            \
      "a request of the tenant was refused because it exceeds a limit of the tenant (QUOTA)",      \
      "no request of the tenant has been refused for that reason for 10 s",                        \
      "the tenant requests more than its settings allow",                                          \
      "raise the setting that the refusal names, or reduce the tenant's requests")                 \
    X(PEER_DOWN, peer_down, PEER, WARN, 5000, 5000,                                                \
      "the link to the peer has been down, or the peer's data port unreachable, for 5 s",          \
      "the link has been up and the port reachable for 5 s",                                       \
      "the peer cannot be reached, and nothing is fetched from it",                                \
      "check the peer's log and the network between the hosts; the daemon retries the connection") \
    X(DEVICE_LOST, device_lost, GPU, ERROR, 0, 0,                                                  \
      "a GPU with a tenant's memory has failed, or has not answered for 10 s",                     \
      "the daemon restarts, and not before",                                                       \
      "the pages on the GPU are lost and not served, and engines that map them get GONE",          \
      "check `dmesg` (Xid), reset the GPU, and restart the daemon; set `peer_access: false` if "   \
      "the test of peer access at the start lost the GPU")

#endif
