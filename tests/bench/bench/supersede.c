/* Superseding at three depths: see supersede.h. The pool has one HISTORY and one WINDOW group and
 * supersedes eagerly; a turn is one chunk of L tokens. Every measured Step must leave as many
 * snapshot pages in the WINDOW group as it found: it added a segment, so it dropped one. All depths
 * are taken from the same sessions in turn, so that a change of clock speed hits all. */
#include "supersede.h"

#include <stdio.h>
#include <stdlib.h>

#include "core_rig.h"
#include "engine/bytes.h"
#include "engine/proc.h"
#include "engine/stats.h"

#define CHUNK_TOKENS  64 /* L: a page of HISTORY */
#define WINDOW_TOKENS 64 /* W = L: with a wider window each resume point keeps the previous one */
#define WINDOW_PAGE   32
#define TURNS         1005
#define POOL_PAGES    2048 /* one session's; the pool is emptied between sessions */
#define SAMPLES_MAX   4096
#define SPREAD_MAX    1.5

enum { HISTORY, WINDOW };

static const struct depth {
    const char *json, *row;
    uint32_t first, last; /* measured turns */
} depths[SUPERSEDE_DEPTHS] = {
    {"supersede_us_10", "supersede, 10 turns", 8, 12},
    {"supersede_us_100", "supersede, 100 turns", 95, 105},
    {"supersede_us_1000", "supersede, 1,000 turns", 995, TURNS},
};

static const struct req_pool_open layout = {
    .ngroups = 2,
    .supersede = SUPERSEDE_EAGER,
    .group = {[HISTORY] = {.family = FAMILY_HISTORY, .page_tokens = CHUNK_TOKENS},
              [WINDOW] = {.family = FAMILY_WINDOW,
                          .page_tokens = WINDOW_PAGE,
                          .window = WINDOW_TOKENS,
                          .reserve = 1}},
};

struct bench {
    struct core_rig rig;
    uint32_t *tokens; /* owned: of the current session */
    struct series us[SUPERSEDE_DEPTHS];
};

/* Returns true if a Step added a HISTORY chunk and a WINDOW segment, and dropped a segment. */
static bool one_went(const struct pool_view *before, const struct pool_view *after, uint32_t turn)
{
    uint32_t segment = CHUNK_TOKENS / WINDOW_PAGE;
    uint32_t had = before->group[WINDOW].snapshot, has = after->group[WINDOW].snapshot;

    if (after->group[HISTORY].snapshot == before->group[HISTORY].snapshot + 1 && had >= segment &&
        has == had && after->group[WINDOW].reclaimable == 0)
        return true;
    fprintf(stderr,
            "tern-bench index: the commit of turn %u left %u snapshot pages of the window where "
            "there were %u: it did not supersede one segment of %u pages\n",
            turn, has, had, segment);
    return false;
}

static bool take_turn(struct bench *b, struct session_id session, uint32_t turn, struct series *us)
{
    struct pool_view before, after;
    uint32_t slot = b->rig.pool.slot;
    double took;

    if (!core_pool_view(b->rig.core, slot, &before) ||
        !core_rig_turn(&b->rig, session, b->tokens, (turn - 1) * CHUNK_TOKENS, turn * CHUNK_TOKENS,
                       &took) ||
        !core_pool_view(b->rig.core, slot, &after)) {
        fprintf(stderr, "tern-bench index: turn %u was not committed\n", turn);
        return false;
    }
    core_rig_settle(&b->rig);
    if (!us)
        return true;
    series_add(us, took);
    return one_went(&before, &after, turn);
}

static bool play_session(struct bench *b, uint32_t seed)
{
    struct session_id session;

    block_tokens(seed, 0, TURNS * CHUNK_TOKENS, b->tokens);
    if (!core_rig_open(&b->rig, &session))
        return false;
    for (uint32_t turn = 1; turn <= TURNS; turn++) {
        struct series *us = NULL;

        for (uint32_t i = 0; i < SUPERSEDE_DEPTHS; i++) {
            if (turn >= depths[i].first && turn <= depths[i].last)
                us = &b->us[i];
        }
        if (!take_turn(b, session, turn, us))
            return false;
    }
    return core_rig_close(&b->rig, session) && core_rig_evict(&b->rig);
}

bool supersede_measure(struct supersede_figures *f, uint32_t sessions)
{
    struct bench b = {.tokens = mem_need(TURNS * CHUNK_TOKENS, sizeof *b.tokens)};
    bool ok = core_rig_init(&b.rig, &layout, POOL_PAGES);

    for (uint32_t i = 0; i < SUPERSEDE_DEPTHS; i++)
        series_init(&b.us[i], SAMPLES_MAX);
    for (uint32_t i = 0; i < sessions && ok; i++)
        ok = play_session(&b, 100 + i);
    for (uint32_t i = 0; i < SUPERSEDE_DEPTHS; i++) {
        f->us[i] = series_median(&b.us[i]);
        series_finish(&b.us[i]);
    }
    core_rig_finish(&b.rig);
    free(b.tokens);
    return ok;
}

void supersede_show(const struct supersede_figures *f, const struct bench_args *args, json_t *o)
{
    for (uint32_t i = 0; i < SUPERSEDE_DEPTHS; i++) {
        const struct bench_figure figure = {
            depths[i].json, f->us[i], depths[i].row, "us",
            i + 1 < SUPERSEDE_DEPTHS ? NULL : "largest at most 1.5 x smallest"};

        bench_show(args, o, &figure, 1);
    }
}

bool supersede_limit(const struct supersede_figures *f)
{
    double least = f->us[0], most = f->us[0];

    for (uint32_t i = 1; i < SUPERSEDE_DEPTHS; i++) {
        least = f->us[i] < least ? f->us[i] : least;
        most = f->us[i] > most ? f->us[i] : most;
    }
    return bench_limit(least > 0 && most <= SPREAD_MAX * least,
                       "largest supersede_us <= 1.5 x smallest supersede_us");
}
