/* Requests from a trace or from the generator: see source.h. The parent reads the stream once to
 * check and measure it, the prefill engine once more to play it. */

#include <stdlib.h>

#include "engine/bytes.h"
#include "engine/proc.h"
#include "generator.h"
#include "trace.h"

struct source {
    struct source_options options;
    uint64_t given;
    struct trace trace;
    struct generator generator;
};

struct source *source_open(const struct source_options *options, char *why)
{
    struct source *s = mem_need(1, sizeof *s);

    if (!options->trace) {
        generator_init(&s->generator, options);
    } else if (!trace_open(&s->trace, options->trace, why)) {
        free(s);
        return NULL;
    }
    s->options = *options;
    return s;
}

void source_close(struct source *s)
{
    if (!s)
        return;
    trace_close(&s->trace);
    generator_finish(&s->generator);
    free(s);
}

int source_next(struct source *s, struct prompt *p, char *why)
{
    int got;

    if (s->options.limit && s->given == s->options.limit)
        return 0;
    got = s->options.trace ? trace_next(&s->trace, p, why) : generator_next(&s->generator, p);
    if (got == 1)
        p->index = s->given++;
    return got;
}

void prompt_finish(struct prompt *p)
{
    free(p->ids);
    p->ids = NULL;
}

void prompt_reserve(struct prompt *p, uint32_t n)
{
    if (n <= p->ids_cap)
        return;
    p->ids = mem_grow(p->ids, n, sizeof *p->ids);
    p->ids_cap = n;
}

void prompt_tokens(const struct prompt *p, uint32_t *out)
{
    uint32_t at = 0;

    for (uint32_t b = 0; b < p->nblocks; b++) {
        uint32_t left = p->input_length - at, n = left < p->block_size ? left : p->block_size;

        block_tokens(p->ids[b], 0, n, out + at);
        at += n;
    }
    block_tokens(ID_OF_TAIL | p->index, 0, p->input_length - at, out + at);
}
