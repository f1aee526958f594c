/* Fetches of populated prefixes by one engine, from one or several daemons: an engine at each
 * source fills its pages once and keeps them pinned; a pass fetches all sessions once, a few at a
 * time, and evicts them again. */
#ifndef BENCH_FETCHES_H
#define BENCH_FETCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/daemon.h"
#include "engine/stats.h"
#include "member.h"

#define FETCH_SESSIONS    8
#define FETCH_PAGE_TOKENS 64
#define FETCH_SOURCES_MAX DAEMON_PEERS_MAX

struct fetches {
    uint32_t page_bytes, pages; /* of each session */
    uint32_t seed;              /* of its tokens; other users of the tenant have other seeds */
    bool prefetch;              /* no decode waits for these fetches */
    uint32_t sources;
    const char *source[FETCH_SOURCES_MAX]; /* their names at the destination */
    pid_t filler[FETCH_SOURCES_MAX];       /* the engines there */
    int filler_fd[FETCH_SOURCES_MAX];
    struct engine engine; /* at the destination */
    struct tern *admin;
    uint32_t *tokens; /* owned: of one session */
    uint64_t wrong;   /* bytes that arrived wrong, over all passes */
};

/* Plans sessions of pages of that size, `bytes` in total. fetches_close is due afterwards. */
void fetches_init(struct fetches *f, uint32_t page_bytes, uint64_t bytes);
/* Returns the memory that a daemon needs for its side. */
uint64_t fetches_memory(const struct fetches *f);
uint64_t fetches_token_blocks(const struct fetches *f);

/* Adds a source, whose engine fills its pages. */
bool fetches_add_source(struct fetches *f, const struct daemon *source);
/* Opens the engine at the destination, and waits until its links to all sources are up. */
bool fetches_open(struct fetches *f, const struct daemon *dest);
void fetches_close(struct fetches *f);

/* Fetches all sessions once, each from the next of the first `sources`, compares and evicts them
 * again. *ret_gb_s covers the fetches alone. */
bool fetches_pass(struct fetches *f, uint32_t sources, bool compare, double *ret_gb_s);
/* The same one after the other from the first source: a fetch begins `period_ns` after the previous
 * one, or later if that one still runs. Adds the milliseconds of each fetch. */
bool fetches_paced(struct fetches *f, uint64_t period_ns, struct series *ret_ms);

struct fetch_flood {
    const struct daemon *dest, *source;
    bool prefetch;
};

/* A process that makes one pass after the other, as a load during a measurement. */
struct fetch_load {
    pid_t pid;
    int fd;
};

/* Returns when the first pass has begun. */
bool fetch_load_start(struct fetch_load *l, const struct fetch_flood *flood, uint32_t page_bytes,
                      uint64_t bytes);
/* Ends the load after the current pass, which is compared. Returns false if something failed or a
 * byte was wrong. *ret_gb_s: over the whole time, pauses between passes included. */
bool fetch_load_stop(struct fetch_load *l, double *ret_gb_s);

#endif
