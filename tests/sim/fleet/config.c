/* Draws a fleet's history from a seed, writes it to a file and reads it back. */
#include "../pieces.h"
#include "run.h"
#include "world.h"

static const char *const kind_name[] = {
#define X(name, weight, least) #name,
    FLEET_KINDS(X)
#undef X
};

/* A third of the histories has more of events that rarely coincide. */
enum theme { THEME_NONE, THEME_TOGETHER, THEME_SOURCES, THEME_HANDOFF, THEME_DISK, THEMES };
#define THEME_KINDS 9u
#define MORE        4u /* times */

static const enum fkind theme_kind[THEMES][THEME_KINDS] = {
    [THEME_NONE] = {FLEET_KIND_COUNT},
    [THEME_TOGETHER] = {FLEET_prefill, FLEET_lease, FLEET_turn, FLEET_handoff, FLEET_take,
                        FLEET_deliver, FLEET_work, FLEET_up, FLEET_KIND_COUNT},
    [THEME_SOURCES] = {FLEET_commit, FLEET_fetch, FLEET_again, FLEET_work, FLEET_KIND_COUNT},
    [THEME_HANDOFF] = {FLEET_handoff, FLEET_take, FLEET_work, FLEET_time, FLEET_time,
                       FLEET_KIND_COUNT},
    [THEME_DISK] = {FLEET_commit, FLEET_fetch, FLEET_restart, FLEET_KIND_COUNT},
};

static void make_choices(struct prng *p, struct fhistory *h, uint32_t theme)
{
    uint32_t weight[] = {
#define X(name, weight, least) weight,
        FLEET_KINDS(X)
#undef X
    };
    uint32_t total = 0;

    for (const enum fkind *k = theme_kind[theme]; *k != FLEET_KIND_COUNT; k++)
        weight[*k] *= MORE;
    for (uint32_t k = 0; k < FLEET_KIND_COUNT; k++)
        total += weight[k];
    h->n = 24 + prng_below(p, FLEET_CHOICES - 24 + 1);
    for (uint32_t i = 0; i < h->n; i++) {
        uint32_t at = prng_below(p, total), kind = 0;

        while (at >= weight[kind])
            at -= weight[kind++];
        h->choice[i] = (struct fchoice){
            .kind = (uint8_t)kind, .a = (uint32_t)prng_u64(p), .r = (uint32_t)prng_u64(p)};
    }
}

void fhistory_make(uint64_t seed, struct fhistory *h)
{
    struct prng p;
    uint32_t theme;

    memset(h, 0, sizeof *h);
    prng_init(&p, seed ^ 0x666c656574u);
    h->seed = seed;
    h->cfg.seed = (uint32_t)prng_u64(&p);
    h->cfg.away = prng_below(&p, 2) ? 0 : 1u << prng_below(&p, FLEET); /* a chain, or a triangle */
    h->cfg.own = prng_below(&p, 3) ? 0 : prng_below(&p, 1u << FLEET);
    h->cfg.by_hand = prng_below(&p, 4) > 0;
    h->cfg.ample = prng_below(&p, 4) > 0;
    h->cfg.disk = prng_below(&p, 3) ? 0 : 1 + prng_below(&p, (1u << FLEET) - 1);
    h->cfg.layouts = prng_below(&p, 2);
    h->cfg.ranks = prng_below(&p, 2);
    theme = prng_below(&p, 3) ? THEME_NONE : prng_below(&p, THEMES);
    if (theme == THEME_TOGETHER)
        h->cfg.ample = h->cfg.layouts = h->cfg.ranks = 1;
    if (theme == THEME_TOGETHER || theme == THEME_DISK)
        h->cfg.disk = (1u << FLEET) - 1;
    make_choices(&p, h, theme);
}

bool fhistory_write(const struct fhistory *h, const char *path, const char *why)
{
    FILE *f = fopen(path, "w");
    bool ok;

    if (!f)
        return false;
    fprintf(f, FLEET_MAGIC "\n# seed %llu: %s\n", (unsigned long long)h->seed, why);
#define X(name) fprintf(f, "config " #name " %u\n", h->cfg.name);
    FLEET_FIELDS(X)
#undef X
    for (uint32_t i = 0; i < h->n; i++)
        fprintf(f, "choice %s %u %u\n", kind_name[h->choice[i].kind], h->choice[i].a,
                h->choice[i].r);
    ok = !ferror(f);
    return fclose(f) == 0 && ok;
}

static bool read_line(void *ctx, const char *line)
{
    struct fhistory *h = ctx;
    char name[64];
    uint32_t x, y;

    if (sscanf(line, "config %63s %u", name, &x) == 2) {
#define X(field)                                                                                   \
    if (strcmp(name, #field) == 0) {                                                               \
        h->cfg.field = x;                                                                          \
        return true;                                                                               \
    }
        FLEET_FIELDS(X)
#undef X
        return false;
    }
    if (sscanf(line, "choice %63s %u %u", name, &x, &y) != 3)
        return false;
    for (uint32_t k = 0; k < FLEET_KIND_COUNT; k++)
        if (strcmp(name, kind_name[k]) == 0 && h->n < FLEET_CHOICES) {
            h->choice[h->n++] = (struct fchoice){.kind = (uint8_t)k, .a = x, .r = y};
            return true;
        }
    return false;
}

bool fhistory_read(const char *path, struct fhistory *h)
{
    memset(h, 0, sizeof *h);
    return history_lines(path, FLEET_MAGIC, read_line, h);
}
