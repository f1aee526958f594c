/* The tape: a ring of the last events of the core, with their borrowed arrays. The shell records
 * each event just before core_step; a failed check, a crash or `ternctl tape` writes the tape to a
 * file; client/ctl/tape reads it, and tern-sim replays it.
 *
 * A tape can be replayed only from the daemon's start: the events alone make the state, and a later
 * copy of the arena would be larger than the ring. So the header states whether the ring still has
 * the first event (`complete`); if not, the tape can be read, not replayed. The ring is large by
 * default (8 MiB, about 50,000 small events); raise `tape.bytes` where a replay matters.
 *
 * The ring has token ids and extra keys unchanged. Writing the tape replaces them by a keyed
 * one-to-one mapping, so that equal tokens stay equal and others different, unless the caller keeps
 * them. A replay of a mapped tape takes the same path through the core; core_hash agrees only for a
 * tape that kept its tokens. */
#ifndef SHELL_TAPE_H
#define SHELL_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "core/core.h"

#define TAPE_TENANTS_MAX 64
#define TAPE_BYTES_MIN   4096
#define TAPE_VERSION     25u

struct tape;

struct tape_config {
    size_t bytes; /* size of the ring, rounded up to a multiple of 8 */
    struct core_limits limits;
    const struct tenant_config *tenant; /* borrowed for the call */
    uint32_t tenants;
    uint64_t incarnation;
    uint64_t secret[2]; /* key of the mapping of tokens; random, never written out */
};

size_t tape_bytes(size_t ring); /* memory of a tape with that ring; 0: no tape */
enum tern_err tape_create(const struct tape_config *config, struct tape **ret);
void tape_destroy(struct tape *tape);

/* Copies the event and its borrowed arrays; drops the oldest events until there is room. An event
 * larger than the whole ring empties it. Allocates nothing. tape NULL is fine. */
void tape_record(struct tape *tape, const struct event *event);

/* Async-signal-safe; also for the owner thread. fd is blocking. DISK: a write failed. */
enum tern_err tape_dump(struct tape *tape, int fd, bool keep_tokens);

/* Writes the tape to that path, whole or not at all: the old file stays until the new one is
 * written. DISK: *ret_errno is the cause. Async-signal-safe. */
enum tern_err tape_save(struct tape *tape, const char *path, bool keep_tokens, int *ret_errno);
const char *tape_save_hint(int err); /* advice for that errno */

/* tape_crash_name: the path of a crash's tape if none is configured: `file` with the incarnation,
 * so that each crash has its own. tapes_keep: deletes all but the newest `most`, at start; returns
 * the number left. */
#define TAPE_CRASHES_KEPT 4
void tape_crash_name(char *ret, size_t cap, const char *file, uint64_t incarnation);
uint32_t tapes_keep(const char *file, uint32_t most);

const char *tape_event_word(uint32_t kind); /* "unknown" for other kinds */

struct tape_stats {
    uint64_t recorded, dropped; /* events */
    uint64_t bytes_used;
    uint64_t oldest_ns; /* now_ns of the oldest event in the ring; 0: the ring is empty */
};
void tape_stats(const struct tape *tape, struct tape_stats *ret);

#endif
