/* The model of HISTORY pages: which live tables have a page, its contents, and until which step it
 * may be touched. The model knows only what engines receive. The cost of each function is linear in
 * its input. */
#include "world.h"

static struct lpage *page_at_index(uint32_t g, uint32_t index)
{
    LEXPECT(index > 0 && index < lw.npages[g], "page_index", "group %u has no page %u", g, index);
    return &lw.page[g][index];
}

static void leave(uint32_t g, uint32_t index, uint64_t fence)
{
    struct lpage *p;

    if (index == 0)
        return;
    p = page_at_index(g, index);
    p->users--;
    p->fence = fence > p->fence ? fence : p->fence;
}

void lpages_clear(void)
{
    for (uint32_t g = 0; g < lw.cfg.ngroups; g++)
        if (lhistory_group(g))
            memset(lw.page[g], 0, lw.npages[g] * sizeof(struct lpage));
}

static void cut(struct lsession *s, uint32_t g, uint32_t n, uint64_t fence)
{
    while (s->n[g] > n)
        leave(g, s->table[g][--s->n[g]], fence);
}

void ltable_clear(struct lsession *s, uint64_t fence)
{
    for (uint32_t g = 0; s->state != L_IDLE && g < lw.cfg.ngroups; g++)
        if (lhistory_group(g))
            cut(s, g, 0, fence);
}

/* The prompt that represents all with the same tokens up to `end`. */
static uint32_t canon(uint32_t prompt, uint32_t end)
{
    return end <= lw.common[prompt] ? 0 : prompt;
}

static void check_content(const struct lsession *s, uint32_t g, uint32_t at, const struct lpage *p)
{
    uint32_t end = (at + 1) * lw.cfg.page_tokens[g];

    LEXPECT(p->end == 0 || (p->end == end && p->prompt == canon(s->prompt, end)), "wrong_page",
            "group %u page %u of prompt %u holds prompt %u up to %u", g, at, s->prompt, p->prompt,
            p->end);
}

static void set(struct lsession *s, uint32_t g, uint32_t at, struct page_ref ref, bool fresh,
                uint64_t fence)
{
    struct lpage *p = page_at_index(g, ref.index);

    if (fresh) {
        LEXPECT(p->users == 0, "page_owned_twice", "group %u page %u is in %u tables already", g,
                ref.index, p->users);
        LEXPECT(p->fence <= lw.passed, "page_unfenced",
                "group %u page %u may be touched until step %llu, and %llu has passed", g,
                ref.index, (unsigned long long)p->fence, (unsigned long long)lw.passed);
        LEXPECT(p->gen != ref.gen, "page_generation", "group %u page %u has generation %u again", g,
                ref.index, ref.gen);
        *p = (struct lpage){.gen = ref.gen};
    } else if (p->gen != ref.gen) { /* the tree, a load or a fetch allocated it anew */
        LEXPECT(p->users == 0, "page_owned_twice", "group %u page %u is another, and in %u tables",
                g, ref.index, p->users);
        *p = (struct lpage){.gen = ref.gen};
    } else {
        check_content(s, g, at, p);
    }
    p->users++; /* counted before it leaves its old place, which may be the same */
    leave(g, s->table[g][at], fence);
    s->table[g][at] = ref.index;
}

void ltable_told(struct lsession *s, const struct lengths *l, const struct table_run *runs,
                 uint32_t nruns, bool fresh, uint64_t fence)
{
    LEXPECT(l->committed <= l->written && l->written <= l->allocated &&
                l->committed % lw.cfg.align == 0 && l->allocated <= lw.prompt_tokens,
            "lengths", "committed %u, written %u, allocated %u", l->committed, l->written,
            l->allocated);
    for (uint32_t g = 0; g < lw.cfg.ngroups; g++) {
        uint32_t n = (l->allocated + lw.cfg.page_tokens[g] - 1) / lw.cfg.page_tokens[g];

        if (!lhistory_group(g))
            continue;
        cut(s, g, n, fence);
        while (s->n[g] < n)
            s->table[g][s->n[g]++] = 0;
    }
    for (uint32_t i = 0; i < nruns; i++) {
        const struct table_run *r = &runs[i];

        LEXPECT(r->group < lw.cfg.ngroups, "run_group", "group %u", r->group);
        for (uint32_t k = 0; lhistory_group(r->group) && k < r->n; k++) {
            LEXPECT(r->first + k < s->n[r->group], "run_beyond", "group %u page %u of %u", r->group,
                    r->first + k, s->n[r->group]);
            set(s, r->group, r->first + k, r->refs[k], fresh, fence);
        }
    }
    for (uint32_t g = 0; g < lw.cfg.ngroups; g++)
        for (uint32_t k = 0; lhistory_group(g) && k < s->n[g]; k++)
            LEXPECT(s->table[g][k] != 0, "table_hole", "group %u page %u of %u", g, k, s->n[g]);
    s->len = *l;
}

void ltable_written(struct lsession *s, uint32_t from, uint32_t to)
{
    for (uint32_t g = 0; g < lw.cfg.ngroups; g++) {
        uint32_t n = lw.cfg.page_tokens[g];

        for (uint32_t at = from / n; lhistory_group(g) && (at + 1) * n <= to; at++) {
            struct lpage *p = page_at_index(g, s->table[g][at]);

            p->end = (at + 1) * n;
            p->prompt = canon(s->prompt, p->end);
        }
    }
}

static uint32_t known_of(const uint32_t known[LARGE_PROMPTS], uint32_t prompt)
{
    uint32_t most = 0;

    for (uint32_t q = 0; q < LARGE_PROMPTS; q++) {
        uint32_t n = known[q],
                 both = lw.common[q] < lw.common[prompt] ? lw.common[q] : lw.common[prompt];

        if (q == 0 && prompt != 0)
            both = lw.common[prompt];
        else if (prompt == 0 && q != 0)
            both = lw.common[q];
        if (q != prompt && n > both)
            n = both;
        most = n > most ? n : most;
    }
    return most / lw.cfg.align * lw.cfg.align;
}

uint32_t lknown(uint32_t prompt)
{
    return known_of(lw.known, prompt);
}

void lcommitted(uint32_t prompt, uint32_t depth)
{
    if (depth > lw.known[prompt])
        lw.known[prompt] = depth;
}

void lrestarted(bool keep_disk)
{
    for (uint32_t q = 0; q < LARGE_PROMPTS; q++) {
        uint32_t n = lw.known[q] > lw.disk_known[q] ? lw.known[q] : lw.disk_known[q];

        lw.disk_known[q] = keep_disk ? n : 0;
    }
    memset(lw.known, 0, sizeof lw.known);
}

void lfetched(uint32_t prompt)
{
    lcommitted(prompt, known_of(lw.disk_known, prompt));
}
