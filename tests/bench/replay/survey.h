/* Measures a workload: the first pass over the stream, which also finds every bad line before
 * anything starts. */
#ifndef REPLAY_SURVEY_H
#define REPLAY_SURVEY_H

#include "source.h"

struct survey {
    uint64_t requests, prompt_tokens;
    uint64_t pages;        /* whole pages of all prompts */
    uint64_t unique_pages; /* of them, with a prefix of their own: what an unlimited cache holds in
                              the end */
    uint32_t tokens_max;   /* of the longest prompt */
    uint64_t last_ms;      /* the last timestamp */
};

/* Returns false with the reason in why[SOURCE_WHY_BYTES]. */
bool survey_run(const struct source_options *options, uint32_t page_tokens, struct survey *ret,
                char *why);

#endif
