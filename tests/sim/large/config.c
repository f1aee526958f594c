/* Draws histories of large geometries, and stores them as text. Numbers are drawn evenly by their
 * order of magnitude, so that each limit is met now and then, and most histories are short. */
#include "world.h"

#include <stdio.h>

#include "../pieces.h"
#include "run.h"

#define TOKENS_MOST 2000000u /* of a prompt, where the windows do not need more */
#define PAGES_MOST  400000u  /* of a prompt, all groups */
#define CHUNKS_MOST 300000u
#define TABLE_MOST  900000u
#define FAR_EVERY   24u  /* one in so many histories has a session of the longest path */
#define CHUNK_PAGES 200u /* SEAL_PAGES_MAX less what windows may add */

static const char *const kind_name[] = {
#define X(name, weight, least) #name,
    LARGE_KINDS(X)
#undef X
};

static bool one_in(struct prng *p, uint32_t n)
{
    return prng_below(p, n) == 0;
}

static uint32_t between(struct prng *p, uint32_t least, uint32_t most)
{
    return least >= most ? least : least + prng_below(p, most - least + 1);
}

/* As often between 10 and 100 as between 1,000 and 10,000. */
static uint32_t magnitude(struct prng *p, uint32_t least, uint32_t most)
{
    uint32_t bits = 0, top, low;

    for (uint32_t n = least ? most / least : most; n > 0; n /= 2)
        bits++;
    top = (least ? least : 1) << (bits ? prng_below(p, bits) : 0);
    low = top > most ? most : top;
    return between(p, low, low > most / 2 ? most : 2 * low);
}

static uint32_t min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void make_groups(struct prng *p, struct lconfig *c)
{
    uint32_t pages = 0, spread;

    c->align = one_in(p, 3) ? 1 : one_in(p, 6) ? ALIGN_TOKENS_MAX : 1u << prng_below(p, 15);
    c->ngroups = one_in(p, 5) ? GROUPS_MAX : between(p, 1, 4);
    c->page_tokens[0] = min(c->align, PAGE_TOKENS_MAX);
    pages = c->align / c->page_tokens[0];
    spread = c->ngroups > 4 ? 2 : 5;
    for (uint32_t g = 1; g < c->ngroups; g++) {
        uint32_t n = c->align >> prng_below(p, spread);

        n = n == 0 ? 1 : min(n, PAGE_TOKENS_MAX);
        if (pages + c->align / n > CHUNK_PAGES)
            n = c->page_tokens[0];
        pages += c->align / n;
        c->page_tokens[g] = n;
        if (one_in(p, 4))
            c->window[g] = 1;
        else if (!one_in(p, 4))
            c->window[g] =
                one_in(p, 4) ? SESSION_TOKENS_MAX : magnitude(p, n > 1 ? n : 2, SESSION_TOKENS_MAX);
    }
}

/* Pages of a prompt of `chunks` chunks. */
static uint64_t pages_of(const struct lconfig *c, uint32_t chunks)
{
    uint64_t n = 0;

    for (uint32_t g = 0; g < c->ngroups; g++)
        n += c->window[g] == 1 ? 1 + chunks : (uint64_t)chunks * (c->align / c->page_tokens[g]);
    return n;
}

static void make_length(struct prng *p, struct lconfig *c)
{
    uint32_t most = CHUNKS_MOST, other;

    most = min(most, TOKENS_MOST / c->align);
    while (pages_of(c, most) > PAGES_MOST)
        most -= most / 8 + 1;
    c->chunks = magnitude(p, 1, most);
    other = magnitude(p, 1, most);
    if (!one_in(p, 3))
        c->chunks = min(c->chunks, other);
}

/* Size of a table: room for what the prompts need, or for a part of that. */
static uint32_t table(struct prng *p, uint64_t need, uint32_t least)
{
    uint64_t n = one_in(p, 3) ? need * between(p, 30, 110) / 100 : need * between(p, 2, 5);

    return n < least ? least : n > TABLE_MOST ? TABLE_MOST : (uint32_t)n;
}

static void make_tables(struct prng *p, struct lconfig *c)
{
    uint64_t pages = pages_of(c, c->chunks);
    uint32_t blocks = (c->align + TOKEN_BLOCK - 1) / TOKEN_BLOCK;

    c->pages = table(p, pages, 16 + 4 * c->ngroups * (c->align / c->page_tokens[0]));
    c->host_pages = one_in(p, 3) ? table(p, pages, 64) : 0;
    c->lim_nodes = table(p, c->chunks, 16);
    c->lim_blocks = table(p, (uint64_t)c->chunks * blocks + c->chunks / 2 + 64, 64);
    c->lim_sessions = one_in(p, 4) ? magnitude(p, 1024, 2 * LARGE_HELD) : magnitude(p, 12, 2048);
    c->lim_table = pages > TABLE_PAGES ? (one_in(p, 6) ? TABLE_PAGES : TABLE_PAGES_MAX / 8)
                   : one_in(p, 4)      ? TABLE_PAGES_MIN
                                       : TABLE_PAGES;
    c->lim_retires = one_in(p, 3) ? between(p, 8, 32) : 4096;
}

static void make_disk(struct prng *p, struct lconfig *c)
{
    if (!one_in(p, 2))
        return;
    c->disk_chunks = min(table(p, c->chunks, 16), 400000);
    c->disk_files = magnitude(p, 4, 4096);
    c->disk_mib = magnitude(p, 1, 16384);
    c->disk_interval = magnitude(p, 1, 64);
}

static void make_choices(struct prng *p, struct lhistory *h)
{
    static const uint32_t weight[] = {
#define X(name, weight, least) weight,
        LARGE_KINDS(X)
#undef X
    };
    uint32_t total = 0;

    for (uint32_t k = 0; k < LARGE_KIND_COUNT; k++)
        total += weight[k];
    h->n = between(p, 16, LARGE_CHOICES);
    for (uint32_t i = 0; i < h->n; i++) {
        uint32_t at = prng_below(p, total), kind = 0;

        while (at >= weight[kind])
            at -= weight[kind++];
        h->choice[i] = (struct lchoice){
            .kind = (uint8_t)kind, .a = (uint32_t)prng_u64(p), .r = (uint32_t)prng_u64(p)};
        if (i == 0)
            h->choice[i].kind = LARGE_prompt;
    }
}

/* The longest path of a pool with a host tier, with room for it there; its windows end early, reach
 * over the whole path, or do not exist. */
static void make_far(struct prng *p, struct lhistory *h)
{
    struct lconfig *c = &h->cfg;

    c->align = c->page_tokens[0] = c->page_tokens[1] = 1u << prng_below(p, 4);
    c->ngroups = between(p, 1, 2);
    c->window[0] = 0;
    c->window[1] = one_in(p, 2) ? SESSION_TOKENS_MAX : 4 * c->align;
    c->chunks = STEP_TABLE_MAX;
    c->pages = c->host_pages = c->ngroups * (c->chunks + c->chunks / 2);
    c->lim_nodes = c->chunks + c->chunks / 2;
    c->lim_blocks = 4 * c->chunks;
    c->lim_table = TABLE_PAGES_MAX / 8;
    h->choice[0].kind = LARGE_far;
}

void lhistory_make(uint64_t seed, struct lhistory *h)
{
    struct prng p;

    memset(h, 0, sizeof *h);
    prng_init(&p, seed ^ 0x6c61726765u);
    h->seed = seed;
    h->cfg.seed = (uint32_t)prng_u64(&p);
    h->cfg.ranks = one_in(&p, 6) ? RANKS_MAX : magnitude(&p, 1, 8);
    h->cfg.supersede = prng_below(&p, 3);
    h->cfg.ticket_ms = magnitude(&p, 50, 60000);
    h->cfg.give_back = one_in(&p, 8) ? magnitude(&p, 16, 4096) : 0;
    make_groups(&p, &h->cfg);
    make_length(&p, &h->cfg);
    make_tables(&p, &h->cfg);
    make_disk(&p, &h->cfg);
    make_choices(&p, h);
    if (one_in(&p, FAR_EVERY))
        make_far(&p, h);
}

bool lhistory_write(const struct lhistory *h, const char *path, const char *why)
{
    FILE *f = fopen(path, "w");
    bool ok;

    if (!f)
        return false;
    fprintf(f, LARGE_MAGIC "\n# seed %llu: %s\n", (unsigned long long)h->seed, why);
#define X(name) fprintf(f, "config " #name " %u\n", h->cfg.name);
    LARGE_FIELDS(X)
#undef X
    for (uint32_t g = 0; g < h->cfg.ngroups; g++)
        fprintf(f, "group %u %u %u\n", g, h->cfg.page_tokens[g], h->cfg.window[g]);
    for (uint32_t i = 0; i < h->n; i++)
        fprintf(f, "choice %s %u %u\n", kind_name[h->choice[i].kind], h->choice[i].a,
                h->choice[i].r);
    ok = !ferror(f);
    return fclose(f) == 0 && ok;
}

static bool read_config(struct lhistory *h, const char *name, uint32_t value)
{
#define X(field)                                                                                   \
    if (strcmp(name, #field) == 0) {                                                               \
        h->cfg.field = value;                                                                      \
        return true;                                                                               \
    }
    LARGE_FIELDS(X)
#undef X
    return false;
}

static bool read_choice(struct lhistory *h, const char *name, uint32_t a, uint32_t r)
{
    for (uint32_t k = 0; k < LARGE_KIND_COUNT; k++)
        if (strcmp(name, kind_name[k]) == 0 && h->n < LARGE_CHOICES) {
            h->choice[h->n++] = (struct lchoice){.kind = (uint8_t)k, .a = a, .r = r};
            return true;
        }
    return false;
}

static bool read_line(void *ctx, const char *line)
{
    struct lhistory *h = ctx;
    char name[64];
    uint32_t x, y, z;

    if (sscanf(line, "config %63s %u", name, &x) == 2)
        return read_config(h, name, x);
    if (sscanf(line, "choice %63s %u %u", name, &x, &y) == 3)
        return read_choice(h, name, x, y);
    if (sscanf(line, "group %u %u %u", &x, &y, &z) != 3 || x >= GROUPS_MAX)
        return false;
    h->cfg.page_tokens[x] = y;
    h->cfg.window[x] = z;
    return true;
}

/* The values fit the world's arrays: a file is not trusted. */
static bool fits(const struct lconfig *c)
{
    bool ok = c->ranks >= 1 && c->ranks <= RANKS_MAX && c->align >= 1 &&
              c->align <= ALIGN_TOKENS_MAX && c->ngroups >= 1 && c->ngroups <= GROUPS_MAX &&
              c->chunks >= 1 && c->chunks <= CHUNKS_MOST &&
              (uint64_t)c->chunks * c->align <= SESSION_TOKENS_MAX && c->lim_nodes <= TABLE_MOST &&
              c->lim_blocks <= TABLE_MOST && c->lim_sessions <= 2 * LARGE_HELD &&
              c->pages <= TABLE_MOST && c->host_pages <= TABLE_MOST && c->disk_chunks <= 400000;

    for (uint32_t g = 0; ok && g < c->ngroups; g++)
        ok = c->page_tokens[g] >= 1 && c->align % c->page_tokens[g] == 0;
    return ok;
}

bool lhistory_read(const char *path, struct lhistory *h)
{
    memset(h, 0, sizeof *h);
    return history_lines(path, LARGE_MAGIC, read_line, h) && fits(&h->cfg);
}
