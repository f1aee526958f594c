/* Shrinking a failing history, and its text file: the configuration by name, then one choice a
 * line. */
#include "sim.h"

#include "choices.h"
#include "pieces.h"

#define MAGIC "tern-sim history 1"

static const char *const choice_name[] = {
#define X(name, weight, fault) #name,
    CHOICES(X)
#undef X
};

struct failing {
    struct sim *w;
    struct history *h;
    char what[sizeof((struct sim *)NULL)->what];
};

static bool fails_alike(void *ctx)
{
    const struct failing *f = ctx;
    uint64_t hash;

    return !sim_run(f->w, f->h, &hash) && strcmp(f->w->what, f->what) == 0;
}

void history_shrink(struct sim *w, struct history *h)
{
    struct failing f = {.w = w, .h = h};
    uint32_t verbose = w->verbose, audit_every = w->audit_every;

    memcpy(f.what, w->what, sizeof f.what);
    w->verbose = 0;
    w->audit_every = audit_every > 0; /* the oracle now checks after every step */
    if (w->at_choice < h->n && h->n > w->at_choice + 1)
        h->n = w->at_choice + 1; /* choices behind the failure do not matter */
    pieces_drop(h->choice, &h->n, sizeof h->choice[0], fails_alike, &f);
    fails_alike(&f); /* leaves the text of the shrunk one */
    w->verbose = verbose;
    w->audit_every = audit_every;
}

bool history_write(const struct history *h, const char *path, const char *why)
{
    FILE *f = fopen(path, "w");
    bool ok;

    if (!f)
        return false;
    fprintf(f, MAGIC "\n# seed %llu: %s\n", (unsigned long long)h->seed, why);
#define X(name) fprintf(f, "config " #name " %u\n", h->cfg.name);
    CONFIG_FIELDS(X)
#undef X
    for (uint32_t i = 0; i < h->n; i++)
        fprintf(f, "choice %s %u %u %u\n", choice_name[h->choice[i].kind], h->choice[i].daemon,
                h->choice[i].a, h->choice[i].r);
    ok = !ferror(f);
    return fclose(f) == 0 && ok;
}

static bool read_config(struct history *h, const char *name, uint32_t value)
{
#define X(field)                                                                                   \
    if (strcmp(name, #field) == 0) {                                                               \
        h->cfg.field = value;                                                                      \
        return true;                                                                               \
    }
    CONFIG_FIELDS(X)
#undef X
    return false;
}

static bool read_choice(struct history *h, const char *name, uint32_t daemon, uint32_t a,
                        uint32_t r)
{
    for (uint32_t k = 0; k < CHOICE_COUNT; k++)
        if (strcmp(name, choice_name[k]) == 0 && h->n < OPS_MAX && daemon < DAEMONS) {
            h->choice[h->n++] = (struct choice){
                .kind = (uint8_t)k, .daemon = (uint8_t)daemon, .a = (uint16_t)a, .r = r};
            return true;
        }
    return false;
}

/* 0: as the first daemon has it. */
static bool far_fits(uint32_t far, uint32_t near)
{
    return far == 0 || (far <= SLOTS && near > 0 && (far % near == 0 || near % far == 0));
}

static bool world_fits(const struct config *c, uint32_t world)
{
    return world <= RANKS && (c->heads == 0 || (world & (world - 1)) == 0);
}

static bool reshard_fits(const struct config *c)
{
    return (c->heads == 0 || c->heads == 2 || c->heads == 4) &&
           (c->heads == 0 ? c->whole == 0 : c->whole < 1u << DAEMONS) && world_fits(c, c->world0) &&
           world_fits(c, c->world1) && world_fits(c, c->world2) && world_fits(c, c->far_world0) &&
           world_fits(c, c->far_world1) && world_fits(c, c->far_world2) &&
           far_fits(c->far_tokens0, c->page_tokens0) && far_fits(c->far_tokens1, c->page_tokens1) &&
           far_fits(c->far_tokens2, c->page_tokens2) && far_fits(c->far_tokens3, c->page_tokens3);
}

/* The values fit the simulator's arrays: a file is not trusted. */
static bool config_fits(const struct config *c)
{
    return c->tenants >= 1 && c->tenants <= TENANTS && c->ngroups >= 1 && c->ngroups <= GROUPS &&
           c->page_tokens0 >= 1 && c->page_tokens0 <= SLOTS && c->page_tokens1 <= SLOTS &&
           (c->ngroups == 1) == (c->page_tokens1 == 0) && c->page_granules0 >= 1 &&
           c->page_granules0 <= 2 && c->page_granules1 >= 1 && c->page_granules1 <= 2 &&
           c->granules >= 6 && c->granules <= GRANULES && c->world0 >= 1 && c->world0 <= RANKS &&
           c->variants >= 1 && c->variants <= VARIANTS && c->namespaces >= 1 &&
           c->namespaces <= NAMESPACES && c->tokens_max >= 1 && c->span <= TOKENS &&
           c->tokens_max <= (c->span ? c->span : SPAN) - 4 && c->nstate <= 2 && c->supersede <= 2 &&
           c->page_tokens2 <= SLOTS && c->page_tokens3 <= SLOTS &&
           (c->nstate < 1 || (c->page_tokens2 && c->page_granules2)) &&
           (c->nstate < 2 || (c->page_tokens3 && c->page_granules3)) && c->page_granules2 <= 2 &&
           c->page_granules3 <= 2 && c->lim_pulls <= PULLS && c->lim_serves <= SERVES &&
           c->lim_sessions < SESSIONS && c->host <= HOSTS && c->spoil <= 100 &&
           c->lim_copies <= JOBS / 2 && c->regions <= RANKS && c->records <= 64 &&
           c->lim_records <= 24 && (c->records == 0) == (c->lim_records == 0) && c->disk <= 3 &&
           c->disk_files <= 16 && c->disk_chunks <= 64 && c->disk_fail <= 100 &&
           c->disk_rot <= 100 && reshard_fits(c) && c->slow <= SLOW_DISK;
}

static bool read_line(void *ctx, const char *line)
{
    char name[64];
    uint32_t x, y, z;

    if (sscanf(line, "config %63s %u", name, &x) == 2)
        return read_config(ctx, name, x);
    return sscanf(line, "choice %63s %u %u %u", name, &x, &y, &z) == 4 &&
           read_choice(ctx, name, x, y, z);
}

bool history_read(const char *path, struct history *h)
{
    memset(h, 0, sizeof *h);
    return history_lines(path, MAGIC, read_line, h) && config_fits(&h->cfg);
}
