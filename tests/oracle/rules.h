/* The rules about windows as functions of numbers. The rig of the unit tests computes an engine's
 * view of a session by them, the simulator its model. They follow docs/rules.md, not the core. */
#ifndef ORACLE_RULES_H
#define ORACLE_RULES_H

#include <stdint.h>

/* Returns the first page that is needed to continue from `at` tokens. */
static inline uint32_t rule_window_first(uint32_t window, uint32_t page_tokens, uint32_t at)
{
    return at <= window ? 0 : (at - window) / page_tokens;
}

/* T7: returns the first page that a chunk has of a window; the chunk ends at `depth`. */
static inline uint32_t rule_segment_first(uint32_t window, uint32_t page_tokens, uint32_t align,
                                          uint32_t depth)
{
    return (depth - (window < align ? window : align)) / page_tokens;
}

/* T5: returns the token below which whole pages leave the table when a session with `written`
 * tokens slides and will commit at `next`; `keep` tokens may still be read. */
static inline uint32_t rule_slide_lower(uint32_t written, uint32_t next, uint32_t keep)
{
    uint32_t at = written < next ? written : next;

    return at > keep ? at - keep : 0;
}

#endif
