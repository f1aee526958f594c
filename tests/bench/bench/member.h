/* The engine of a benchmark: its pool has one HISTORY group. */
#ifndef BENCH_MEMBER_H
#define BENCH_MEMBER_H

#include "engine/engine.h"

#define MEMBER_CALL_MS 60000

/* Returns false with a message on standard error. engine_close is due in any case. */
bool member_start(struct engine *e, const char *socket, const char *name, uint32_t page_tokens,
                  uint64_t page_bytes, uint32_t pages);

/* Reports what failed. Returns true if err is OK. */
bool member_ok(const struct engine *e, const char *what, enum tern_err err);

#endif
