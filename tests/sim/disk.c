/* A disk beside each core that has one (D1 to D9). The seed decides when a file that the core wants
 * written is durable, whole or not at all, and when a dropped file or extent goes. A crash leaves
 * what was acknowledged, and of the rest what the seed decides: a file that was being written
 * exists whole or not at all, since it gets its name last; dropped files and single extents may
 * exist again. The next core receives a list of all that lies there.
 *
 * From the tokens in each extent and the extents that it names, the model knows its prefix. It
 * compares that with what may be found, and what must be (disk_checks.c). Nothing here is read from
 * a core. */
#include "disks.h"

#include <stdlib.h>

#include "base/check.h"

void disks_create(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++) {
        w->disk[d] = calloc(1, sizeof *w->disk[d]);
        check(w->disk[d] != NULL);
    }
}

void disks_destroy(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++)
        free(w->disk[d]);
}

/* The stores and drops that a core has begun end with it. */
static void forget_core(struct disks *k)
{
    k->pause_ns = 0;
    k->told = DISK_EXTS;
    k->began = DISK_NFILES;
    k->written = k->moved = k->unsure = k->starting = k->shutting = k->was_full = k->short_of = 0;
    k->spoilt = k->broken = k->freed = k->troubled = 0;
    memset(k->ahead, 0, sizeof k->ahead);
    memset(k->lost, 0, sizeof k->lost);
    memset(k->over, 0, sizeof k->over);
    memset(k->ask, 0, sizeof k->ask);
}

void disks_clear(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];

    for (EXTS(k, x))
        x->state = EXT_FREE;
    k->top = k->uid = 0;
    k->last_file = k->served_ns = 0;
    memset(k->file, 0, sizeof k->file);
    forget_core(k);
}

bool disk_is_on(const struct sim *w, uint32_t d)
{
    return w->cfg.disk >> d & 1;
}

bool disk_has_part(const struct sim *w, uint32_t d, uint32_t tenant)
{
    return disk_is_on(w, d) && w->cfg.disk_tenants >> tenant & 1;
}

uint64_t disk_budget(const struct sim *w, uint32_t d, uint32_t tenant)
{
    return disk_has_part(w, d, tenant) ? (uint64_t)w->cfg.disk_blocks * DISK_BLOCK : 0;
}

void disk_limits(const struct sim *w, uint32_t d, struct core_limits *l)
{
    const struct config *c = &w->cfg;

    if (!disk_is_on(w, d))
        return;
    l->disk_chunks = c->disk_chunks;
    l->disk_files = c->disk_files;
    l->disk_stores = c->disk_stores;
    l->disk_interval = c->disk_interval * c->disk_align * w->L;
    l->disk_align = c->disk_align * w->L;
    l->disk_trim = c->disk_trim;
    l->disk_least = c->disk_least;
    l->disk_blocks = c->disk_tokens;
    l->disk_keys = c->disk_tokens / 2 + 1;
}

/* --- extents and files --- */

static struct ext *ext_take(struct sim *w, struct disks *k)
{
    struct ext *x = k->ext;

    while (x < k->ext + k->top && x->state != EXT_FREE)
        x++;
    if (x == k->ext + k->top) {
        EXPECT(k->top < DISK_EXTS, "sim_disk", "more than %u extents", DISK_EXTS);
        k->top++;
    }
    memset(x, 0, offsetof(struct ext, page));
    x->state = EXT_COMING;
    x->up = DISK_EXTS;
    x->uid = ++k->uid;
    return x;
}

static struct dfile *file_by(struct disks *k, uint64_t number)
{
    for (uint32_t i = 0; i < DISK_NFILES; i++)
        if (k->file[i].state != FILE_NONE && k->file[i].number == number)
            return &k->file[i];
    return NULL;
}

static uint32_t file_slot(const struct disks *k, const struct dfile *f)
{
    return (uint32_t)(f - k->file);
}

static void file_free(struct disks *k, struct dfile *f)
{
    for (EXTS(k, x))
        if (x->state != EXT_FREE && x->file == file_slot(k, f))
            x->state = EXT_FREE;
    f->state = FILE_NONE;
}

/* --- a file is to be written --- */

/* The sequence that continues that prefix with these tokens. */
static struct ident ident_of(struct sim *w, struct ident up, const uint32_t *tokens,
                             const struct extra_key *key)
{
    uint32_t from = up.k * w->L;

    for (uint32_t v = 0; v < w->cfg.variants; v++) {
        const struct extra_key *mine = &w->keys[v];
        bool has = mine->position != NONE && mine->position >= from && mine->position < from + w->L;

        if (w->canon[v][up.k] == up.variant && from + w->L <= w->span &&
            memcmp(w->tokens[v] + from, tokens, w->L * sizeof *tokens) == 0 &&
            has == (key != NULL) && (!has || memcmp(mine, key, sizeof *mine) == 0))
            return ident_at(w, (struct ident){up.tenant, up.ns, up.ranks, (uint8_t)v, 0},
                            up.k + 1u);
    }
    violation(w, "stored_unknown", "tokens [%u, %u) of no prefix", from, from + w->L);
}

/* Position in the sequence of the first token of the chunk's i-th page of the group. */
static uint32_t page_token(const struct sim *w, uint32_t d, uint32_t g, uint32_t k, uint32_t i)
{
    uint32_t pt = w->page_tokens[d][g], end = k * w->L;

    if (g < w->cfg.ngroups)
        return end - w->L + i * pt;
    return recurrent(w, g) ? end - 1 : end - (seg_pages(w, d, g, k) - i) * pt;
}

static uint32_t pages_of(const struct sim *w, uint32_t d, uint32_t g, uint32_t k)
{
    return g < w->cfg.ngroups ? w->L / w->page_tokens[d][g] : seg_pages(w, d, g, k);
}

/* A page on the host was committed there by a copy. */
static void hold_host_page(struct sim *w, uint32_t d, const struct dfile *f, struct ext *x,
                           const struct page_at *at)
{
    uint32_t first = host_read(w, d, f->pool, at);
    const struct hpage *h = &w->d[d].host[f->tenant][first];

    x->page[x->npages++] = (struct ext_page){.host = 1,
                                             .group = (uint8_t)at->group,
                                             .granule = (uint16_t)first,
                                             .record = (uint16_t)at->record,
                                             .gen = at->gen};
    EXPECT(space_current(w, d, f->tenant, w->d[d].chunk[h->pool][h->chunk].space), "store_of_reset",
           "depth %u: its namespace was reset", w->d[d].chunk[h->pool][h->chunk].depth * w->L);
    MARK(stored_from_host);
}

static void hold_page(struct sim *w, uint32_t d, const struct dfile *f, struct ext *x,
                      const struct page_at *at)
{
    struct granule *g;
    struct ext_page *p;

    if (at->pool == w->d[d].pool[f->pool].host_slot) {
        hold_host_page(w, d, f, x, at);
        return;
    }
    EXPECT(at->pool == w->d[d].pool[f->pool].id.slot, "store_pool", "a page of slot %u", at->pool);
    g = page_granule(w, d, f->pool, at->group, at->index);
    p = &x->page[x->npages++];
    EXPECT(g->gen == at->gen, "store_stale", "group %u index %u generation %u, which is %u",
           at->group, at->index, at->gen, g->gen);
    EXPECT(at->record < RECORDS && w->d[d].sum_known[at->record], "store_unsealed",
           "group %u index %u: its checksum is not known", at->group, at->index);
    *p = (struct ext_page){.group = (uint8_t)at->group,
                           .granule = (uint16_t)(g - w->d[d].granule[f->tenant]),
                           .record = (uint16_t)at->record,
                           .gen = at->gen};
    for (uint32_t i = 0; i < w->page_granules[at->group]; i++)
        g[i].sealing++;
    w->d[d].backing[at->group]++;
    if (g->own == OWN_CHUNK || g->own == OWN_STATE) {
        const struct chunk *c = &w->d[d].chunk[g->pool][g->chunk];

        EXPECT(chunk_visible(w, d, c) &&
                   (g->own == OWN_CHUNK || state_visible_of(w, d, c, at->group)),
               "store_pending", "depth %u group %u: its step has not passed", c->depth * w->L,
               at->group);
        EXPECT(space_current(w, d, f->tenant, c->space), "store_of_reset",
               "depth %u: its namespace was reset", c->depth * w->L);
        return;
    }
    EXPECT(g->verified && (g->own == OWN_PULL || g->own == OWN_ORPHAN), "store_foreign_page",
           "group %u index %u is of kind %u", at->group, at->index, g->own);
}

/* Records the pages of an extent, by group; returns their number. */
static uint32_t hold_pages(struct sim *w, uint32_t d, const struct dfile *f, struct ext *x,
                           const struct page_at *at)
{
    uint32_t n = 0, first = x->e.part == DISK_HISTORY ? 0 : w->cfg.ngroups,
             end = x->e.part == DISK_HISTORY ? w->cfg.ngroups : w->ngroups;
    uint64_t bytes = 0;
    uint32_t sums = 0;

    for (uint32_t g = first; x->e.part != DISK_ENTRY && g < end; g++) {
        if (!(x->e.groups >> g & 1)) {
            EXPECT(x->e.part == DISK_STATE, "store_shape", "HISTORY without group %u", g);
            continue;
        }
        for (uint32_t i = 0; i < pages_of(w, d, g, x->id.k); i++, n++) {
            EXPECT(n < x->e.npages && n < DISK_EPAGES && at[n].group == g, "store_shape",
                   "page %u of %u is of group %u, not %u", n, x->e.npages, at[n].group, g);
            hold_page(w, d, f, x, &at[n]);
            bytes += (uint64_t)w->page_granules[g] * GRANULE_BYTES * x->id.ranks;
            sums += x->id.ranks;
        }
    }
    EXPECT(n == x->e.npages && bytes == x->e.page_bytes && x->e.nsums == sums, "store_shape",
           "%u pages of %llu bytes, %u checksums; not %u and %llu", x->e.npages,
           (unsigned long long)x->e.page_bytes, x->e.nsums, n, (unsigned long long)bytes);
    return n;
}

/* The extent that it names as its parent is durable, or earlier in the file. */
static void name_above(struct sim *w, struct disks *k, struct ext *x, const uint32_t *tokens,
                       const struct extra_key *key)
{
    struct ident root = x->id;
    struct ext *up = x->e.above.file ? ext_at(k, x->e.above) : NULL;

    EXPECT((up != NULL) == (x->e.above.file != 0), "store_above", "%llu of file %llu is not there",
           (unsigned long long)x->e.above.offset, (unsigned long long)x->e.above.file);
    if (up) {
        EXPECT((ext_known(up) || (up->state == EXT_COMING && up->file == x->file && up != x)) &&
                   up->e.part == DISK_HISTORY && !up->bad && !up->doomed &&
                   up->id.tenant == x->id.tenant && up->id.ns == x->id.ns &&
                   up->id.ranks == x->id.ranks,
               "store_above", "an extent of part %u and depth %u, in state %u", up->e.part,
               up->e.depth, up->state);
        root = up->id;
        x->up = (uint16_t)(up - k->ext);
        x->up_uid = up->uid;
    } else {
        root.variant = w->canon[0][0];
        root.k = 0;
    }
    if (x->e.part == DISK_HISTORY) {
        EXPECT(x->e.tokens == w->L && x->e.nkeys <= 1, "store_shape", "%u tokens", x->e.tokens);
        x->id = ident_of(w, root, tokens, x->e.nkeys ? key : NULL);
        memcpy(x->tokens, tokens, w->L * sizeof *tokens);
        if (x->e.nkeys)
            x->key = *key;
    } else {
        EXPECT(up && x->e.tokens == 0 && x->e.nkeys == 0, "store_shape", "part %u", x->e.part);
        x->id = up->id;
    }
    EXPECT(x->e.depth == x->id.k * w->L && x->e.align == w->L, "store_shape", "depth %u, not %u",
           x->e.depth, x->id.k * w->L);
}

static struct dfile *file_begin(struct sim *w, uint32_t d, const struct disk_write *a)
{
    struct disks *k = w->disk[d];
    struct dfile *f = NULL;

    EXPECT(disk_has_part(w, d, a->tenant), "store_without_disk", "tenant %u", a->tenant);
    EXPECT(w->now >= k->pause_ns, "store_too_soon", "the disk failed a moment ago");
    EXPECT(a->file > k->last_file, "file_number", "%llu, the last one was %llu",
           (unsigned long long)a->file, (unsigned long long)k->last_file);
    EXPECT(k->began == DISK_NFILES, "store_twice", "two files in a step");
    k->last_file = a->file;
    for (uint32_t i = 0; i < DISK_NFILES; i++) {
        EXPECT(k->file[i].state != FILE_WRITING || k->file[i].tenant != a->tenant, "store_beside",
               "tenant %u writes two files", a->tenant);
        if (k->file[i].state == FILE_NONE && !f)
            f = &k->file[i];
    }
    EXPECT(f, "sim_disk", "more than %u files", DISK_NFILES);
    *f = (struct dfile){.state = FILE_WRITING,
                        .tenant = (uint8_t)a->tenant,
                        .number = a->file,
                        .store = a->store,
                        .pool = NO};
    for (uint32_t p = 0; p < POOLS; p++)
        if (w->d[d].pool[p].open && w->d[d].pool[p].id.slot == a->pool)
            f->pool = (uint8_t)p;
    EXPECT(f->pool != NO && w->d[d].pool[f->pool].tenant == a->tenant, "store_pool", "slot %u",
           a->pool);
    k->began = (uint16_t)file_slot(k, f);
    return f;
}

void take_disk_write(struct sim *w, uint32_t d, const struct action *act)
{
    const struct disk_write *a = &act->disk_write;
    struct disks *k = w->disk[d];
    struct dfile *f = file_begin(w, d, a);
    uint32_t token = 0, key = 0, page = 0, ns;
    uint64_t offset = DISK_BLOCK;

    EXPECT(a->nextents > 0, "store_shape", "an empty file");
    for (uint32_t i = 0; i < a->nextents; i++) {
        struct ext *x = ext_take(w, k);

        x->e = a->extents[i];
        x->file = (uint8_t)file_slot(k, f);
        ns = namespace_number(w, x->e.ns);
        x->id = (struct ident){
            .tenant = (uint8_t)a->tenant, .ns = (uint8_t)ns, .ranks = w->d[d].pool[f->pool].ranks};
        x->content = w->d[d].content[a->tenant][ns];
        EXPECT(x->e.place.file == f->number && x->e.place.offset == offset &&
                   x->e.tenant == a->tenant && x->e.layout_hash == a->extents[0].layout_hash &&
                   namespace_number(w, a->extents[0].ns) == ns,
               "store_shape", "extent %u at %llu of file %llu", i,
               (unsigned long long)x->e.place.offset, (unsigned long long)x->e.place.file);
        name_above(w, k, x, a->tokens + token, a->keys + key);
        page += hold_pages(w, d, f, x, a->pages + page);
        token += x->e.tokens;
        key += x->e.nkeys;
        offset += disk_extent_bytes(&x->e);
        TRACE(
            "  daemon %u writes part %u of variant %u depth %u groups %x (namespace %u, %u ranks), "
            "reason %u, file %llu, store %u.%u\n",
            d, x->e.part, x->id.variant, x->e.depth, x->e.groups, x->id.ns, x->id.ranks,
            x->e.reason, (unsigned long long)f->number, a->store.slot, a->store.gen);
    }
    EXPECT(token == a->ntokens && key == a->nkeys && page == a->npages, "store_shape",
           "%u tokens, %u keys, %u pages", a->ntokens, a->nkeys, a->npages);
}

/* --- it ends --- */

static void let_go(struct sim *w, uint32_t d, const struct dfile *f, const struct ext *x)
{
    for (uint32_t i = 0; i < x->npages; i++) {
        const struct ext_page *p = &x->page[i];

        if (p->host)
            host_read_end(w, d, f->tenant, p->group, p->granule);
        for (uint32_t n = 0; !p->host && n < w->page_granules[p->group]; n++)
            w->d[d].granule[f->tenant][p->granule + n].sealing--;
    }
}

static uint32_t page_lacks(const struct sim *w, uint32_t d, const struct dfile *f,
                           const struct ext_page *p)
{
    return p->host ? w->d[d].host[f->tenant][p->granule].lacks
                   : w->d[d].granule[f->tenant][p->granule].lacks;
}

static uint32_t stored_skips(struct sim *w, uint32_t d, const struct dfile *f, const struct ext *x,
                             const struct ext_page *p, uint32_t pos)
{
    const struct window_page at = {p->granule, p->group, pos / w->page_tokens[d][p->group],
                                   x->id.k * w->L};

    return p->group < w->cfg.ngroups || recurrent(w, p->group)
               ? 0
               : window_lacks(w, d, &at, page_lacks(w, d, f, p));
}

static const struct tag *page_tag(struct sim *w, uint32_t d, const struct dfile *f,
                                  const struct ext_page *p, uint32_t rank)
{
    return p->host ? htag_at(w, d, f->pool, rank, p->granule)
                   : tag_at(w, d, f->pool, rank, p->granule);
}

static bool page_agrees(struct sim *w, uint32_t d, const struct dfile *f, const struct ext_page *p,
                        uint32_t rank)
{
    return memcmp(page_tag(w, d, f, p, rank), &w->d[d].sum[p->record][rank],
                  w->page_tokens[d][p->group] * sizeof(uint32_t)) == 0;
}

/* Has a bit flipped on the host, in a page of the file? */
static bool host_rotted(struct sim *w, uint32_t d, const struct dfile *f)
{
    struct disks *k = w->disk[d];

    for (EXTS(k, x))
        for (uint32_t i = 0; x->state == EXT_COMING && x->file == file_slot(k, f) && i < x->npages;
             i++)
            for (uint32_t r = 0; x->page[i].host && r < x->id.ranks; r++)
                if (!page_agrees(w, d, f, &x->page[i], r))
                    return true;
    return false;
}

/* Every byte that is written is the committed one, as it lies in memory now. */
static void read_in(struct sim *w, uint32_t d, const struct dfile *f, struct ext *x)
{
    uint32_t group = NO, nth = 0;

    for (uint32_t i = 0; i < x->npages; i++) {
        struct ext_page *p = &x->page[i];
        uint32_t g = p->group, pos;

        nth = g == group ? nth + 1 : 0;
        group = g;
        pos = page_token(w, d, g, x->id.k, nth);
        EXPECT((p->host ? w->d[d].host[f->tenant][p->granule].gen
                        : w->d[d].granule[f->tenant][p->granule].gen) == p->gen,
               "stored_stale", "group %u granule %u was given to another while it was written", g,
               p->granule);
        check_page_words(w, d,
                         &(struct words){f->tenant, p->granule, g, x->id.ns, x->id.variant, pos,
                                         stored_skips(w, d, f, x, p, pos), w->page_tokens[d][g],
                                         p->host},
                         "stored_wrong_bytes");
        for (uint32_t r = 0; r < x->id.ranks; r++) {
            p->lacks = (uint8_t)page_lacks(w, d, f, p);
            p->tag[r] = *page_tag(w, d, f, p, r);
            EXPECT(page_agrees(w, d, f, p, r), "stored_torn",
                   "group %u granule %u: not what its checksum says", g, p->granule);
        }
    }
}

static void mark_stored(struct sim *w, struct disks *k, const struct ext *x)
{
    switch (x->e.reason) {
    case DISK_COLD: MARK(stored_cold); break;
    case DISK_CONTINUED: MARK(stored_continued); break;
    case DISK_EVICT: MARK(stored_evict); break;
    default: MARK(stored_shutdown); break;
    }
    if (k->was_full)
        MARK(disk_full_then_stored);
    k->was_full = 0;
}

static void became_durable(struct sim *w, uint32_t d, struct dfile *f)
{
    struct disks *k = w->disk[d];

    f->state = FILE_THERE;
    for (EXTS(k, x)) {
        if (x->state != EXT_COMING || x->file != file_slot(k, f))
            continue;
        read_in(w, d, f, x);
        let_go(w, d, f, x);
        x->state = EXT_THERE;
        x->since = w->now;
        if (x->e.part != DISK_ENTRY)
            continue;
        k->told = (uint16_t)(x - k->ext);
        mark_stored(w, k, x);
        if (x->e.served_ns > k->served_ns)
            k->served_ns = x->e.served_ns;
    }
}

static void came_to_nothing(struct sim *w, uint32_t d, struct dfile *f)
{
    struct disks *k = w->disk[d];

    for (EXTS(k, x))
        if (x->state == EXT_COMING && x->file == file_slot(k, f))
            let_go(w, d, f, x);
    file_free(k, f);
}

static enum tern_err write_fault(struct sim *w)
{
    static const enum tern_err errs[] = {TERN_POOL_EXHAUSTED, TERN_DISK, TERN_CORRUPT};

    return !w->quiet_phase && chance(w, w->cfg.disk_fail) ? errs[pick(w, 3)] : TERN_OK;
}

static void end_write(struct sim *w, uint32_t d, struct dfile *f)
{
    struct disks *k = w->disk[d];
    struct event ev = {.kind = EV_DISK_WRITTEN};

    ev.written.store = f->store;
    ev.written.err = host_rotted(w, d, f) ? TERN_CORRUPT : write_fault(w);
    k->written = (uint8_t)ev.written.err;
    TRACE("  daemon %u: file %llu is written, err %u\n", d, (unsigned long long)f->number,
          ev.written.err);
    if (ev.written.err == TERN_OK) {
        became_durable(w, d, f);
    } else {
        FAULT(disk_failed);
        k->unwritten++;
        if (ev.written.err == TERN_POOL_EXHAUSTED)
            MARK(disk_full);
        k->was_full |= ev.written.err == TERN_POOL_EXHAUSTED;
        if (ev.written.err != TERN_CORRUPT)
            k->pause_ns = w->now + STEP_NS + DISK_PAUSE_MS * MS;
        came_to_nothing(w, d, f);
    }
    k->moved = 1;
    sim_step(w, d, &ev);
    if (ev.written.err == TERN_CORRUPT && core_deadline(w->d[d].core) > w->now + STEP_NS &&
        chance(w, 20)) { /* sent again: the core no longer knows the file */
        uint64_t before = core_changes(w->d[d].core);

        sim_step(w, d, &ev);
        EXPECT(core_changes(w->d[d].core) == before || w->out->n > 0, "written_twice", "file %llu",
               (unsigned long long)f->number);
    }
}

/* --- what is dropped --- */

void take_disk_drop(struct sim *w, uint32_t d, const struct action *act)
{
    const struct disk_drop *a = &act->disk_drop;
    struct disks *k = w->disk[d];
    struct dfile *f = file_by(k, a->place.file);
    struct ext *x = a->place.offset ? ext_at(k, a->place) : NULL;

    TRACE("  daemon %u drops %llu of file %llu\n", d, (unsigned long long)a->place.offset,
          (unsigned long long)a->place.file);
    EXPECT(f && f->state == FILE_THERE && f->tenant == a->tenant, "drop_unknown",
           "%llu of file %llu of tenant %u", (unsigned long long)a->place.offset,
           (unsigned long long)a->place.file, a->tenant);
    k->moved = 1;
    if (a->place.offset) {
        EXPECT(x && ext_known(x) && disk_extent_bytes(&x->e) == a->bytes, "drop_unknown",
               "%llu bytes at %llu of file %llu", (unsigned long long)a->bytes,
               (unsigned long long)a->place.offset, (unsigned long long)a->place.file);
        x->state = EXT_HOLE;
        x->dropped = k->step;
        return;
    }
    f->state = FILE_LEAVING;
    for (EXTS(k, y))
        if (y->state == EXT_THERE && y->file == file_slot(k, f)) {
            y->state = EXT_HOLE;
            y->dropped = k->step;
        }
}

static void end_drop(struct sim *w, uint32_t d, struct dfile *f)
{
    struct event ev = {.kind = EV_DISK_DROPPED};

    ev.dropped.file = f->number;
    w->disk[d]->freed = 1;
    TRACE("  daemon %u: file %llu is gone\n", d, (unsigned long long)f->number);
    file_free(w->disk[d], f);
    sim_step(w, d, &ev);
}

/* --- work --- */

uint64_t disk_pause(const struct sim *w, uint32_t d)
{
    return w->disk[d]->pause_ns;
}

bool disk_writes(const struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; i < DISK_NFILES && disk_is_on(w, d); i++)
        if (w->disk[d]->file[i].state == FILE_WRITING)
            return true;
    return false;
}

bool disk_pending(const struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; i < DISK_NFILES && disk_is_on(w, d); i++)
        if (w->disk[d]->file[i].state == FILE_LEAVING)
            return true;
    return disk_writes(w, d);
}

/* Turns a hole into one that no crash restores, and corrupts pages. */
static void settle_one(struct sim *w, struct disks *k)
{
    struct ext *x = k->top ? &k->ext[pick(w, k->top)] : NULL;

    if (x && x->state == EXT_HOLE && k->file[x->file].state == FILE_THERE)
        x->state = EXT_FREE;
    if (x && x->state == EXT_THERE && x->npages > 0 && !w->quiet_phase &&
        chance(w, w->cfg.disk_rot)) {
        x->spoilt = 1;
        FAULT(disk_rotted);
    }
}

/* A file is removed behind the daemon's back. The disk notices, and reports it. */
static void lose_one(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    struct dfile *f = &k->file[pick(w, DISK_NFILES)];
    struct event ev = {.kind = EV_DISK_DROPPED, .dropped.file = f->number};

    if (f->state != FILE_THERE || f->lost)
        return;
    TRACE("  daemon %u: file %llu is lost\n", d, (unsigned long long)f->number);
    FAULT(disk_file_lost);
    f->lost = 1;
    for (EXTS(k, x))
        if (ext_known(x) && x->file == file_slot(k, f)) { /* in other states `up` is undefined */
            x->spoilt = 1;
            disk_ext_bad(k, x);
        }
    k->moved = 1;
    sim_step(w, d, &ev);
}

bool disk_work(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    uint32_t at = pick(w, DISK_NFILES);

    if (!disk_is_on(w, d))
        return false;
    settle_one(w, k);
    if (!w->quiet_phase && chance(w, w->cfg.disk_rot))
        lose_one(w, d);
    for (uint32_t i = 0; i < DISK_NFILES; i++, at = (at + 1) % DISK_NFILES) {
        struct dfile *f = &k->file[at];

        if (f->state == FILE_WRITING)
            end_write(w, d, f);
        else if (f->state == FILE_LEAVING)
            end_drop(w, d, f);
        else
            continue;
        return true;
    }
    return false;
}

/* --- a crash --- */

static void file_crashed(struct sim *w, uint32_t d, struct dfile *f)
{
    struct disks *k = w->disk[d];
    bool whole = chance(w, 50) && !(f->state == FILE_WRITING && host_rotted(w, d, f)), left = false;

    if (f->state == FILE_WRITING)
        MARK(crash_while_writing);
    if (f->state == FILE_LEAVING)
        MARK(crash_before_drop);
    if (f->state == FILE_WRITING && whole) {
        became_durable(w, d, f);
        for (EXTS(k, x)) /* and no core was informed */
            x->back |= x->state == EXT_THERE && x->file == file_slot(k, f);
    } else if (f->state == FILE_WRITING) {
        came_to_nothing(w, d, f);
    } else if (f->state == FILE_LEAVING && !whole) {
        file_free(k, f);
    }
    if (f->state == FILE_NONE)
        return;
    for (EXTS(k, x)) {
        if (x->state == EXT_FREE || x->file != file_slot(k, f))
            continue;
        x->back |= x->state == EXT_HOLE;
        if (x->state == EXT_HOLE && (f->state == FILE_LEAVING || chance(w, 50)))
            x->state = EXT_THERE;
        else if (x->state == EXT_HOLE)
            x->state = EXT_FREE;
        x->dropped = 0;
        left |= x->state == EXT_THERE;
    }
    f->state = FILE_THERE;
    if (!left)
        file_free(k, f);
}

/* No start finds an extent whose header cannot be read. A file without other extents is never
 * reported to a core again. */
static void rot(struct sim *w, struct disks *k)
{
    bool known[DISK_NFILES] = {false};

    for (EXTS(k, x)) {
        if (x->state == EXT_THERE && !x->rotten && chance(w, w->cfg.disk_rot)) {
            x->rotten = 1;
            FAULT(disk_rotted);
        }
        known[x->file] |= ext_known(x);
    }
    for (uint32_t i = 0; i < DISK_NFILES; i++)
        if (k->file[i].state != FILE_NONE && !known[i])
            file_free(k, &k->file[i]);
}

void disk_crash(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    bool unsure = k->unsure || core_deadline(w->d[d].core) <= w->now;

    if (!disk_is_on(w, d))
        return;
    for (EXTS(k, x)) { /* the next core must find all that this core was sure of */
        x->must = !unsure && ext_known(x) && !x->bad && !x->doomed;
        x->bad = x->doomed = 0;
        x->old = 1;
        x->late = x->half = 0;
    }
    for (uint32_t i = 0; i < DISK_NFILES; i++)
        if (k->file[i].state != FILE_NONE && k->file[i].lost)
            file_free(k, &k->file[i]);
        else if (k->file[i].state != FILE_NONE)
            file_crashed(w, d, &k->file[i]);
    if (!w->quiet_phase && w->cfg.disk_rot)
        rot(w, k);
    forget_core(k);
}

static struct ext *next_found(struct disks *k, struct disk_place after)
{
    struct ext *first = NULL;

    for (EXTS(k, x)) {
        struct disk_place p = x->e.place;

        if (!ext_known(x) || p.file < after.file ||
            (p.file == after.file && p.offset <= after.offset))
            continue;
        if (!first || p.file < first->e.place.file ||
            (p.file == first->e.place.file && p.offset < first->e.place.offset))
            first = x;
    }
    return first;
}

void disk_start(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    struct disk_place at = {0, 0};
    struct event ev = {.kind = EV_DISK_FOUND};
    struct ext *x;

    if (!disk_is_on(w, d))
        return;
    k->starting = 1;
    k->last_file = 0;
    for (uint32_t i = 0; i < DISK_NFILES; i++)
        if (k->file[i].state != FILE_NONE && k->file[i].number > k->last_file)
            k->last_file = k->file[i].number;
    find_musts(w, d);
    while ((x = next_found(k, at)) != NULL) {
        at = x->e.place;
        ev.found.extent = x->e;
        ev.found.tokens = x->tokens;
        ev.found.keys = &x->key;
        TRACE("  daemon %u finds part %u of variant %u depth %u in file %llu%s%s\n", d, x->e.part,
              x->id.variant, x->e.depth, (unsigned long long)at.file, x->back ? ", back" : "",
              x->must ? ", must" : "");
        sim_step(w, d, &ev);
    }
    ev = (struct event){.kind = EV_DISK_READY};
    ev.ready.next_file = k->last_file + 1;
    ev.ready.served_ns = k->served_ns;
    sim_step(w, d, &ev);
    sim_timers(w, d);
    k->starting = 0;
    k->step++;
    find_halves(w, d);
    check_drops(w, d);
    check_budgets(w, d);
}

/* --- around a step --- */

void disk_before(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];

    if (!disk_is_on(w, d))
        return;
    k->unsure = core_deadline(w->d[d].core) <= w->now;
    k->step++;
    k->began = DISK_NFILES;
}

void disk_engine_died(struct sim *w, uint32_t d)
{
    if (disk_is_on(w, d))
        w->disk[d]->troubled = 1;
}

/* Was a store due for so long that its last copy is no longer kept? That is possible only after the
 * tenant had stores without a break for that time. */
static bool kept_too_long(struct sim *w, struct disks *k, uint32_t tenant, uint32_t stores)
{
    if (stores == 0)
        k->storing_since[tenant] = 0;
    else if (k->storing_since[tenant] == 0)
        k->storing_since[tenant] = w->now;
    return stores > 0 && w->now - k->storing_since[tenant] >= DISK_KEEP_MS_MAX * MS;
}

/* A request that needs records of nodes or tokens gets those of nodes that are due, too. A
 * tenant has half of a table at least and may have no more, so records count as short once half
 * is used. */
static bool records_are_short(const struct sim *w, uint32_t d)
{
    struct core_view v;

    core_view(w->d[d].core, &v);
    return v.token_blocks_free <= w->limits.token_blocks / 2 || v.nodes_free <= w->limits.nodes / 2;
}

/* D2: a store that is due fails only for a reason, whatever pages are needed. The model cannot know
 * which STATE is superseded meanwhile. */
static void check_lost(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    struct disk_view v;

    k->troubled |= k->written != TERN_OK || k->shutting || w->d[d].resets || w->d[d].spoilt ||
                   w->cfg.nstate || records_are_short(w, d);
    for (uint32_t t = 0; t < w->cfg.tenants && !k->troubled; t++) {
        core_disk(w->d[d].core, t, &v);
        if (kept_too_long(w, k, t, v.stores))
            k->troubled = 1;
        EXPECT(k->troubled || v.counts.failed - v.counts.refused == k->lost[t], "store_lost",
               "tenant %u: a store failed, and nothing has", t);
    }
}

void disk_after(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    bool left_over = false; /* T20: the core reports the other drops in its next step */

    if (!disk_is_on(w, d))
        return;
    if (k->began != DISK_NFILES) /* the drops that make room for it follow its action */
        check_write(w, d, &k->file[k->began]);
    if (k->moved || k->began != DISK_NFILES) {
        check_drops(w, d);
        note_late(w, d);
        left_over = core_deadline(w->d[d].core) <= w->now;
        if (!left_over)
            check_budgets(w, d);
    }
    check_ahead(w, d);
    if (k->began != DISK_NFILES)
        k->freed = 0;
    check_lost(w, d);
    k->told = DISK_EXTS;
    k->written = TERN_OK;
    k->moved = left_over;
}
