/* The first pass: see survey.h. Unique pages are counted by the hash of their whole prefix. */
#include "survey.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/bytes.h"
#include "engine/proc.h"
#include "prefixes.h"

static void count_pages(struct prefixes *set, const struct prompt *p, const uint32_t *tokens,
                        uint32_t page_tokens, struct survey *s)
{
    uint64_t h = 0;

    for (uint32_t at = 0; at + page_tokens <= p->input_length; at += page_tokens) {
        h = content_chain(h, tokens + at, page_tokens);
        s->pages++;
        s->unique_pages += prefixes_add(set, h);
    }
}

static int survey_stream(struct source *source, struct prompt *p, uint32_t *tokens,
                         struct prefixes *set, uint32_t page_tokens, struct survey *s, char *why)
{
    int got;

    while ((got = source_next(source, p, why)) == 1) {
        prompt_tokens(p, tokens);
        s->requests++;
        s->prompt_tokens += p->input_length;
        s->last_ms = p->timestamp_ms;
        if (p->input_length > s->tokens_max)
            s->tokens_max = p->input_length;
        count_pages(set, p, tokens, page_tokens, s);
    }
    return got;
}

bool survey_run(const struct source_options *options, uint32_t page_tokens, struct survey *ret,
                char *why)
{
    struct source *source = source_open(options, why);
    uint32_t *tokens = mem_need(PROMPT_TOKENS_MAX, sizeof *tokens);
    struct prefixes set = {0};
    struct survey s = {0};
    struct prompt p = {0};
    int got = -1;

    if (source)
        got = survey_stream(source, &p, tokens, &set, page_tokens, &s, why);
    if (got == 0 && s.requests == 0) {
        snprintf(why, SOURCE_WHY_BYTES, "%s holds no request",
                 options->trace ? options->trace : "the generator");
        got = -1;
    }
    if (got == 0)
        *ret = s;
    prefixes_finish(&set);
    free(tokens);
    prompt_finish(&p);
    source_close(source);
    return got == 0;
}
