/* The first pass: see survey.h. Unique pages are counted by the hash of their whole prefix in an
 * open-addressed set that grows; 0 marks an empty place. */
#include "survey.h"

#include <stdio.h>
#include <stdlib.h>

#include "bytes.h"

#define SET_FIRST (1u << 16)
#define SET_MAX   (1u << 28)

struct hash_set {
    uint64_t *v; /* owned */
    size_t size, used;
};

static bool set_insert(uint64_t *v, size_t size, uint64_t h)
{
    size_t at = (h ^ h >> 32) & (size - 1);

    for (; v[at]; at = (at + 1) & (size - 1)) {
        if (v[at] == h)
            return false;
    }
    v[at] = h;
    return true;
}

static bool set_grow(struct hash_set *s)
{
    size_t size = s->size ? s->size * 2 : SET_FIRST;
    uint64_t *v = size <= SET_MAX ? calloc(size, sizeof *v) : NULL;

    if (!v)
        return false;
    for (size_t i = 0; i < s->size; i++) {
        if (s->v[i])
            set_insert(v, size, s->v[i]);
    }
    free(s->v);
    s->v = v;
    s->size = size;
    return true;
}

static bool count_pages(struct hash_set *set, const struct prompt *p, const uint32_t *tokens,
                        uint32_t page_tokens, struct survey *s)
{
    uint64_t h = 0;

    for (uint32_t at = 0; at + page_tokens <= p->input_length; at += page_tokens) {
        if (set->used * 2 >= set->size && !set_grow(set))
            return false;
        h = content_chain(h, tokens + at, page_tokens);
        s->pages++;
        if (set_insert(set->v, set->size, h | 1)) {
            set->used++;
            s->unique_pages++;
        }
    }
    return true;
}

static int survey_stream(struct source *source, struct prompt *p, uint32_t *tokens,
                         struct hash_set *set, uint32_t page_tokens, struct survey *s, char *why)
{
    int got;

    while ((got = source_next(source, p, why)) == 1) {
        prompt_tokens(p, tokens);
        s->requests++;
        s->prompt_tokens += p->input_length;
        s->last_ms = p->timestamp_ms;
        if (p->input_length > s->tokens_max)
            s->tokens_max = p->input_length;
        if (!count_pages(set, p, tokens, page_tokens, s)) {
            snprintf(why, SOURCE_WHY_BYTES, "no memory to count the pages of this workload");
            return -1;
        }
    }
    return got;
}

bool survey_run(const struct source_options *options, uint32_t page_tokens, struct survey *ret,
                char *why)
{
    struct source *source = source_open(options, why);
    uint32_t *tokens = malloc(PROMPT_TOKENS_MAX * sizeof *tokens);
    struct hash_set set = {0};
    struct survey s = {0};
    struct prompt p;
    int got = -1;

    if (!prompt_init(&p) || !tokens)
        snprintf(why, SOURCE_WHY_BYTES, "no memory");
    else if (source)
        got = survey_stream(source, &p, tokens, &set, page_tokens, &s, why);
    if (got == 0 && s.requests == 0) {
        snprintf(why, SOURCE_WHY_BYTES, "%s holds no request",
                 options->trace ? options->trace : "the generator");
        got = -1;
    }
    if (got == 0)
        *ret = s;
    free(set.v);
    free(tokens);
    prompt_finish(&p);
    source_close(source);
    return got == 0;
}
