/* See pieces.h. */
#include "pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define ROUNDS 6

struct pieces {
    uint8_t *list, *before;
    uint32_t *n;
    size_t size;
    bool (*still)(void *ctx);
    void *ctx;
};

/* Leaves out runs of k entries; returns true if any could go. */
static bool drop(const struct pieces *p, uint32_t k)
{
    bool any = false;

    for (uint32_t at = 0; at + k <= *p->n;) {
        memcpy(p->before, p->list, *p->n * p->size);
        *p->n -= k;
        memmove(p->list + at * p->size, p->list + (at + k) * p->size, (*p->n - at) * p->size);
        if (p->still(p->ctx)) {
            any = true;
        } else {
            *p->n += k;
            memcpy(p->list, p->before, *p->n * p->size);
            at += k;
        }
    }
    return any;
}

void pieces_drop(void *list, uint32_t *n, size_t size, bool (*still)(void *ctx), void *ctx)
{
    struct pieces p = {list, malloc(*n * size + 1), n, size, still, ctx};
    bool any = true;

    check(p.before);
    for (uint32_t round = 0; round < ROUNDS && any; round++) {
        any = false;
        for (uint32_t k = *n > 1 ? *n / 2 : 1; k >= 1; k /= 2)
            any |= drop(&p, k);
    }
    free(p.before);
}

bool history_lines(const char *path, const char *magic, bool (*take)(void *h, const char *line),
                   void *h)
{
    FILE *f = fopen(path, "r");
    char line[512];
    bool ok;

    if (!f)
        return false;
    ok = fgets(line, sizeof line, f) != NULL;
    line[ok ? strcspn(line, "\n") : 0] = '\0';
    ok = ok && strcmp(line, magic) == 0;
    while (ok && fgets(line, sizeof line, f))
        ok = line[0] == '#' || line[0] == '\n' || take(h, line);
    fclose(f);
    return ok;
}

void history_broke(struct playing *p, const char *what, const char *format, va_list ap)
{
    snprintf(p->what, sizeof p->what, "%s", what);
    vsnprintf(p->text, sizeof p->text, format, ap);
    longjmp(p->failed, 1);
}

struct failing {
    const struct played *p;
    char what[64];
};

static bool fails_alike(void *ctx)
{
    const struct failing *f = ctx;

    return !f->p->plays(f->p->h) && strcmp(f->p->run->what, f->what) == 0;
}

void history_keep(const struct played *p, const char *dir, const char *name, const char *why)
{
    struct failing f = {.p = p};
    bool verbose = p->run->verbose;
    char path[4096];

    snprintf(f.what, sizeof f.what, "%s", p->run->what);
    p->run->verbose = false;
    if (p->run->at_choice < *p->n)
        *p->n = p->run->at_choice + 1;
    pieces_drop(p->choice, p->n, p->size, fails_alike, &f);
    if (!fails_alike(&f))
        fprintf(stderr, "  does not fail when it is played again\n");
    p->run->verbose = verbose;
    snprintf(path, sizeof path, "%s/%s-%s.tape", dir, name, f.what);
    if (p->writes(p->h, path, why ? why : p->run->text))
        fprintf(stderr, "  shrunk to %u choices: %s (%s)\n", *p->n, path, p->run->text);
    else
        perror(path);
}
