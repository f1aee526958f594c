/* Reads a tape, which is untrusted input. ternctl prints its events, and tern-sim replays them. */
#ifndef CLIENT_TAPE_READ_H
#define CLIENT_TAPE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "core/core.h"
#include "shell/tape/tape.h"

#define TAPE_FILE_MAX ((size_t)4 << 30) /* the most bytes that tape_open_fd reads */

struct tape_reader;

struct tape_header {
    struct core_limits limits;
    uint32_t tenants;
    struct tenant_config tenant[TAPE_TENANTS_MAX];
    uint64_t incarnation;
    uint64_t first;   /* number of the first event on the tape; 0 if complete */
    uint64_t events;  /* on the tape */
    bool complete;    /* from the daemon's start */
    bool tokens_kept; /* token ids are real, so that core_hash of a replay equals the daemon's */
};

/* MALFORMED: not a tape, or cut off. UNSUPPORTED: another version. The reader keeps a copy of the
 * bytes. */
enum tern_err tape_open(const void *bytes, size_t n, struct tape_reader **ret);
enum tern_err tape_open_fd(int fd, struct tape_reader **ret); /* reads to the end of the file */
void tape_close(struct tape_reader *reader);

const struct tape_header *tape_header(const struct tape_reader *reader);

/* Returns the next event; its arrays are borrowed until the next call. At the end: OK with
 * ret->kind 0. MALFORMED: this record is damaged, and every later call returns the same. An event
 * is as valid as from the shell's own decoding: counts within core/limits.h, enums within range,
 * names terminated. The core checks the rest. */
enum tern_err tape_next(struct tape_reader *reader, struct event *ret);

#endif
