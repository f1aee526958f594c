/* Fetches from the disk: a transfer whose source is the disk. The extent of a page exists when the
 * core asks for the page; the page arrives right, or wrong, or the read fails (data.c). */
#include "data.h"
#include "disks.h"

static bool suits(struct sim *w, uint32_t d, const struct session *s, const struct action *act)
{
    const struct pool *p = &w->d[d].pool[s->pool];
    const struct ext *x = ext_at(w->disk[d], act->pull.from[0].extent.place);

    return s->used && s->turn == TURN_FETCHING && s->fetch_disk && s->fetch_pull.slot == NONE &&
           (s->fetch_prefetch != 0) == act->pull.prefetch && p->open &&
           p->id.slot == act->pull.pool && x && x->id.ns == s->ns && x->id.tenant == s->tenant &&
           w->canon[s->variant][x->id.k] == x->id.variant;
}

/* The oldest fetch without a request so far: a tenant's fetches are served in order (X8). */
void disk_pull_begins(struct sim *w, uint32_t d, const struct action *act)
{
    struct session *s = NULL;

    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct session *x = &w->d[d].session[i];

        if (suits(w, d, x, act) && (!s || x->fetch_request < s->fetch_request))
            s = x;
    }
    EXPECT(s, "disk_pull_unasked", "pull %u.%u", act->pull.pull.slot, act->pull.pull.gen);
    s->fetch_pull = act->pull.pull;
    w->d[d].opened[act->pull.pull.slot % OPENS] = (struct opened){.id = act->pull.pull,
                                                                  .order = s->fetch_request,
                                                                  .tenant = s->tenant,
                                                                  .prefetch = s->fetch_prefetch,
                                                                  .ns = s->ns,
                                                                  .disk = 1,
                                                                  .since = s->fetch_since,
                                                                  .content = UINT32_MAX};
}

/* The number of the extent's page that begins there. */
static uint32_t page_by(struct sim *w, const struct ext *x, const struct disk_page *from)
{
    uint64_t at = disk_meta_bytes(&x->e);
    uint32_t sums = 0;

    for (uint32_t i = 0; i < x->npages; i++) {
        if (at == from->body_at && sums == from->sum_at)
            return i;
        at += (uint64_t)w->page_granules[x->page[i].group] * GRANULE_BYTES * x->id.ranks;
        sums += x->id.ranks;
    }
    violation(w, "disk_read_where", "no page begins at %llu of part %u",
              (unsigned long long)from->body_at, x->e.part);
}

void disk_batch_page(struct sim *w, uint32_t d, struct pull *p, struct batch *b,
                     const struct action *act, uint32_t i)
{
    struct disks *k = w->disk[d];
    const struct disk_page *from = &act->pull.from[i];
    const struct ext *x = ext_at(k, from->extent.place);
    uint32_t *content = &w->d[d].content[w->d[d].pool[p->pool].tenant][x ? x->id.ns : 0];

    EXPECT(x && ext_known(x), "disk_read_missing", "%llu of file %llu is read",
           (unsigned long long)from->extent.place.offset,
           (unsigned long long)from->extent.place.file);
    EXPECT(x->e.part == from->extent.part && x->e.chain == from->extent.chain &&
               x->e.depth == from->extent.depth && x->e.npages == from->extent.npages &&
               x->e.nsums == from->extent.nsums && x->e.tokens == from->extent.tokens &&
               x->e.nkeys == from->extent.nkeys && x->e.groups == from->extent.groups &&
               x->id.ranks == w->d[d].pool[p->pool].ranks,
           "disk_read_other", "part %u depth %u, and there is part %u depth %u", from->extent.part,
           from->extent.depth, x->e.part, x->e.depth);
    b->ext[i] = (uint16_t)(x - k->ext);
    b->uid[i] = x->uid;
    b->nth[i] = (uint8_t)page_by(w, x, from);
    EXPECT(x->page[b->nth[i]].group == act->pull.pages[i].group, "disk_read_where",
           "a page of group %u for one of group %u", x->page[b->nth[i]].group,
           act->pull.pages[i].group);
    /* The content that it fetches is no younger than its store. */
    if (space_current(w, d, x->id.tenant, p->space) && *content > x->content)
        *content = x->content;
}

void disk_page_move(struct sim *w, uint32_t d, const struct pull *p, struct batch *b, uint32_t i,
                    bool corrupt)
{
    struct disks *k = w->disk[d];
    const struct ext *x = &k->ext[b->ext[i]];
    /* The extent existed at the request: one that was dropped since stays until it is read. */
    bool there =
        x->uid == b->uid[i] && !x->spoilt && (w->quiet_phase || !chance(w, 4 * w->cfg.disk_rot));
    uint32_t flip = corrupt || !there ? pick(w, w->d[d].pool[p->pool].ranks) : NO;

    for (uint32_t r = 0; r < w->d[d].pool[p->pool].ranks; r++) {
        struct tag *to = tag_at(w, d, p->pool, r, b->granule[i]);

        for (uint32_t n = 0; n < w->page_granules[b->group[i]]; n++)
            to[n] = x->page[b->nth[i]].tag[r];
        w->d[d].sum[b->record[i]][r] = *to;
        if (r == flip)
            to->v[0] ^= 1u << pick(w, 32);
    }
    for (uint32_t n = 0; n < w->page_granules[b->group[i]]; n++)
        w->d[d].granule[tenant_of(w, d, p->pool)][b->granule[i] + n].lacks =
            x->page[b->nth[i]].lacks;
    w->d[d].sum_known[b->record[i]] = 1;
    if (flip == NO)
        b->ok |= 1ull << i;
    else
        FAULT(page_corrupt);
    k->spoilt += flip != NO;
    b->span[i].seen = 1;
    b->moved++;
}

static bool leads_through(const struct disks *k, const struct ext *x, const struct ext *bad)
{
    while (x != bad && x->up != DISK_EXTS && k->ext[x->up].uid == x->up_uid)
        x = &k->ext[x->up];
    return x == bad;
}

void disk_ext_bad(struct disks *k, const struct ext *bad)
{
    if (bad->e.part != DISK_HISTORY && bad->up != DISK_EXTS)
        bad = &k->ext[bad->up];
    for (EXTS(k, x))
        if (x->state != EXT_FREE && leads_through(k, x, bad))
            x->bad = 1;
}

void disk_page_wrong(struct sim *w, uint32_t d, const struct pull *p, const struct batch *b,
                     uint32_t i)
{
    struct disks *k = w->disk[d];
    const struct ext *bad = &k->ext[b->ext[i]];

    if (p->stopping || p->over || p->broken || bad->uid != b->uid[i] ||
        w->d[d].granule[w->d[d].pool[p->pool].tenant][b->granule[i]].tries == 0)
        return;
    if (bad->e.part == DISK_STATE && bad->since > w->d[d].opened[p->id.slot % OPENS].since)
        return; /* written anew since: the former place was read, too */
    TRACE("  part %u of variant %u depth %u is bad\n", bad->e.part, bad->id.variant, bad->e.depth);
    disk_ext_bad(k, bad);
    MARK(bad_extent_found);
}

void disk_read_broke(struct sim *w, uint32_t d, bool broke)
{
    w->disk[d]->broken += broke;
}
