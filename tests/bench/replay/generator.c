/* The generator: see generator.h. The same seed gives the same requests on every machine. In each
 * turn the sessions come in a new random order, so that prefixes of different sessions are
 * interleaved as in a real service. */
#include "generator.h"

#include <stdlib.h>

#include "base/hash.h"
#include "engine/proc.h"

#define BLOCK           64
#define SYSTEM_BLOCKS   12 /* of the system prompt shared by sessions of a kind */
#define SESSIONS_A_KIND 4
#define MESSAGE_TOKENS  400  /* at most, of one user message */
#define ANSWER_TOKENS   300  /* at most, of one answer */
#define TURN_MS         1000 /* between two requests */

void generator_init(struct generator *g, const struct source_options *o)
{
    *g = (struct generator){
        .seed = o->seed,
        .sessions = o->sessions,
        .turns = o->turns,
        .turn_tokens = o->turn_tokens,
        .kinds = (o->sessions + SESSIONS_A_KIND - 1) / SESSIONS_A_KIND,
        .order = mem_need(o->sessions, sizeof *g->order),
        .length = mem_need(o->sessions, sizeof *g->length),
    };
    prng_init(&g->prng, g->seed);
    for (uint32_t i = 0; i < g->sessions; i++) {
        g->order[i] = i;
        g->length[i] = SYSTEM_BLOCKS * BLOCK;
    }
}

void generator_finish(struct generator *g)
{
    free(g->order);
    free(g->length);
    g->order = g->length = NULL;
}

static void shuffle(struct generator *g)
{
    for (uint32_t i = g->sessions; i > 1; i--) {
        uint32_t j = prng_below(&g->prng, i), t = g->order[i - 1];

        g->order[i - 1] = g->order[j];
        g->order[j] = t;
    }
}

bool generator_next(struct generator *g, struct prompt *p)
{
    uint32_t session, message, answer, blocks;

    if (g->at == 0)
        shuffle(g);
    if (g->turn == g->turns)
        return false;
    session = g->order[g->at];
    message = g->turn_tokens ? g->turn_tokens : 1 + prng_below(&g->prng, MESSAGE_TOKENS);
    answer = 1 + prng_below(&g->prng, ANSWER_TOKENS);
    if (g->length[session] + message > PROMPT_TOKENS_MAX)
        message = PROMPT_TOKENS_MAX - g->length[session];
    g->length[session] += message;
    blocks = (g->length[session] + BLOCK - 1) / BLOCK;
    prompt_reserve(p, blocks);
    p->timestamp_ms = (uint64_t)(g->turn * g->sessions + g->at) * TURN_MS;
    p->input_length = g->length[session];
    p->output_length = answer;
    p->block_size = BLOCK;
    p->nblocks = blocks;
    for (uint32_t b = 0; b < blocks; b++) {
        uint64_t owner = b < SYSTEM_BLOCKS ? session % g->kinds : (uint64_t)1 << 32 | session;

        p->ids[b] = hash_mix(g->seed, hash_mix(owner, b)) & ~ID_OF_TAIL;
    }
    if (g->length[session] + answer < PROMPT_TOKENS_MAX)
        g->length[session] += answer;
    if (++g->at == g->sessions) {
        g->at = 0;
        g->turn++;
    }
    return true;
}
