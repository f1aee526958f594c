/* Shrinking a failing history over RDMA, and its text file: the seed, then the choices and faults
 * that occurred, one a line, each by its number among its kind. All else follows from the seed, so
 * a file is valid only with the models that it was made with. */
#include <stdio.h>

#include "../pieces.h"
#include "run.h"
#include "world.h"

static const char *const item_name[] = {
#define X(name) #name,
    FAULT_NAMES(X)
#undef X
        [ITEM_choice] = "choice"};

struct failing {
    struct rhistory *h;
    char what[sizeof rw.what];
};

const char *ritem_name(uint32_t kind)
{
    return item_name[kind];
}

static bool fails_alike(void *ctx)
{
    const struct failing *f = ctx;
    uint64_t hash;

    return !rw_play(f->h->seed, f->h, &hash) && strcmp(rw.what, f->what) == 0;
}

static void end_sooner(struct failing *f)
{
    for (uint32_t by = f->h->choices; by >= 1; by /= 2)
        while (by <= f->h->choices) {
            f->h->choices -= by;
            if (fails_alike(f))
                continue;
            f->h->choices += by;
            break;
        }
}

bool rhistory_shrink(struct rhistory *h)
{
    struct failing f = {.h = h};
    bool verbose = rw.verbose, still;

    memcpy(f.what, rw.what, sizeof f.what);
    rw.verbose = false;
    end_sooner(&f);
    pieces_drop(h->item, &h->n, sizeof h->item[0], fails_alike, &f);
    end_sooner(&f);
    still = fails_alike(&f); /* leaves the text of the shrunk one */
    rw.verbose = verbose;
    return still;
}

bool rhistory_write(const struct rhistory *h, const char *path, const char *why)
{
    FILE *f = fopen(path, "w");
    bool ok;

    if (!f)
        return false;
    fprintf(f, RDMA_MAGIC "\n# %s\nseed %llu\nchoices %u\n", why, (unsigned long long)h->seed,
            h->choices);
    for (uint32_t i = 0; i < h->n; i++)
        fprintf(f, "%s %u\n", item_name[h->item[i].kind], h->item[i].n);
    ok = !ferror(f);
    return fclose(f) == 0 && ok;
}

static bool read_item(void *ctx, const char *line)
{
    struct rhistory *h = ctx;
    unsigned long long value;
    char name[64];

    if (sscanf(line, "%63s %llu", name, &value) != 2)
        return false;
    if (strcmp(name, "seed") == 0) {
        h->seed = value;
        return true;
    }
    if (value > UINT32_MAX)
        return false;
    if (strcmp(name, "choices") == 0) {
        h->choices = (uint32_t)value;
        return value <= CHOICES_MAX;
    }
    for (uint32_t k = 0; k < ITEM_KINDS && h->n < ITEMS; k++)
        if (strcmp(name, item_name[k]) == 0) {
            h->item[h->n++] = (struct ritem){k, (uint32_t)value};
            return true;
        }
    return false;
}

bool rhistory_read(const char *path, struct rhistory *h)
{
    memset(h, 0, sizeof *h);
    return history_lines(path, RDMA_MAGIC, read_item, h);
}
