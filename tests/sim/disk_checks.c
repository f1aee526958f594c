/* Invariants of the disk (D1 to D9): the extents that an entry needs lie there as long as the entry
 * does, and go only for a reason; nothing is written twice; a tenant uses no more than its part;
 * and a start finds what was acknowledged. */
#include "disks.h"

static bool counts(const struct disks *k, const struct ext *x, enum look look)
{
    if (x->state == EXT_FREE || x->bad || x->doomed || x->rotten)
        return false;
    if (look == LOOK_MUST)
        return x->state == EXT_THERE && x->must;
    return x->state == EXT_THERE || (look == LOOK_THEN && ext_left(k, x)) ||
           (look == LOOK_COMING && x->state == EXT_COMING);
}

struct ext *ext_find(struct disks *k, struct ident id, enum disk_part part, enum look look)
{
    for (EXTS(k, x))
        if (x->e.part == part && ident_equal(x->id, id) && counts(k, x, look))
            return x;
    return NULL;
}

struct ext *ext_at(struct disks *k, struct disk_place at)
{
    for (EXTS(k, x))
        if (x->state != EXT_FREE && x->e.place.file == at.file && x->e.place.offset == at.offset)
            return x;
    return NULL;
}

/* A segment with more groups may lie beside the one that it will replace. */
static bool has_state(struct disks *k, struct ident id, uint32_t g, enum look look)
{
    for (EXTS(k, x))
        if (x->e.part == DISK_STATE && x->e.groups >> g & 1 && ident_equal(x->id, id) &&
            counts(k, x, look))
            return true;
    return false;
}

bool state_whole(struct sim *w, struct disks *k, struct ident id, enum look look)
{
    for (STATE_GROUPS(w, g))
        for (uint32_t i = 0; i < reach_of(w, g) && i < id.k; i++)
            if (!has_state(k, ident_at(w, id, id.k - i), g, look))
                return false;
    return true;
}

bool entry_whole(struct sim *w, struct disks *k, const struct ext *x, enum look look)
{
    for (uint32_t i = 1; i <= x->id.k; i++)
        if (!ext_find(k, ident_at(w, x->id, i), DISK_HISTORY, look))
            return false;
    return state_whole(w, k, x->id, look);
}

/* Does the prefix of `a` begin that of `b`? */
static bool begins(const struct sim *w, struct ident a, struct ident b)
{
    return a.k <= b.k && ident_equal(ident_at(w, b, a.k), a);
}

static bool prunes(const struct ext *x)
{
    return x->e.part == DISK_ENTRY && (x->e.reason == DISK_COLD || x->e.reason == DISK_CONTINUED);
}

/* --- writing --- */

static uint32_t lowered(uint32_t n, uint32_t by)
{
    return n - n % by;
}

/* D1: is the depth a multiple of the interval? */
static bool at_boundary(const struct sim *w, uint32_t depth)
{
    uint32_t every = w->cfg.disk_interval * w->cfg.disk_align * w->L;

    return w->cfg.nstate || lowered(depth, every) == depth;
}

void check_write(struct sim *w, uint32_t d, const struct dfile *f)
{
    struct disks *k = w->disk[d];
    uint32_t slot = (uint32_t)(f - k->file), files = 0, extents = 0;

    for (EXTS(k, x))
        extents += x->state == EXT_COMING && x->file == slot;
    for (EXTS(k, x)) {
        const struct ext *other;

        if (x->state != EXT_COMING || x->file != slot)
            continue;
        other = ext_find(k, x->id, x->e.part, LOOK_NOW);
        EXPECT(!other || x->e.part != DISK_HISTORY, "written_twice",
               "D9: depth %u lies in file %llu already", x->e.depth,
               (unsigned long long)other->e.place.file);
        EXPECT(!other || x->e.part != DISK_STATE || (x->e.groups & ~other->e.groups) != 0,
               "written_twice", "D9: STATE of depth %u, groups %x, lies there already", x->e.depth,
               x->e.groups);
        if (x->e.part != DISK_ENTRY)
            continue;
        EXPECT(entry_whole(w, k, x, LOOK_COMING), "entry_before_data",
               "an entry of depth %u, and not all that it needs is there or in its file",
               x->e.depth);
        EXPECT(x->e.reach == w->reach && x->e.reason < DISK_REASONS, "store_shape",
               "reach %u, reason %u", x->e.reach, x->e.reason);
        EXPECT(x->e.reason != DISK_CONTINUED || at_boundary(w, x->e.depth), "continued_anywhere",
               "D1: depth %u", x->e.depth);
        if (other && other->e.reason != DISK_COLD && x->e.reason == DISK_COLD)
            MARK(entry_made_cold);
        EXPECT(!other || x->e.reason == DISK_COLD || extents > 1, "written_twice",
               "D9: the entry of depth %u is there already", x->e.depth);
    }
    for (uint32_t i = 0; i < DISK_NFILES; i++)
        files += k->file[i].state != FILE_NONE;
    EXPECT(files <= w->cfg.disk_files, "disk_files", "%u files, the limit is %u", files,
           w->cfg.disk_files);
}

/* --- why something goes --- */

static uint64_t used_of(const struct disks *k, uint32_t tenant, bool then)
{
    uint64_t used = 0;

    for (const struct ext *x = k->ext; x < k->ext + k->top; x++)
        if (x->id.tenant == tenant &&
            (ext_known(x) || x->state == EXT_COMING || (then && ext_left(k, x))))
            used += disk_extent_bytes(&x->e);
    return used;
}

/* T22: records that are in use, or reserved. */
static uint32_t share_taken(const struct sim *w, uint32_t limit, const uint32_t used[TENANTS])
{
    uint32_t each = share_each(w, limit), taken = 0;

    for (uint32_t t = 0; t < TENANTS; t++)
        taken += used[t] > each ? used[t] : each;
    return taken;
}

/* Number of such records that the tenant may still take. */
static uint32_t share_left(const struct sim *w, uint32_t limit, const uint32_t used[TENANTS],
                           uint32_t tenant)
{
    uint32_t each = share_each(w, limit), taken = share_taken(w, limit, used);

    return (limit > taken ? limit - taken : 0) + (used[tenant] < each ? each - used[tenant] : 0);
}

struct records_used {
    uint32_t chunks[TENANTS], files[TENANTS], blocks[TENANTS], keys[TENANTS];
};

/* Chunks and their roots, and files, before this step's drops. `but`: a file that is left out. */
static struct records_used records_of(struct disks *k, uint32_t but)
{
    struct records_used n = {.blocks = {0}};

    for (EXTS(k, x)) {
        bool root = true;

        if (x->e.part != DISK_HISTORY || x->file == but ||
            (!ext_known(x) && x->state != EXT_COMING && !ext_left(k, x)))
            continue;
        n.chunks[x->id.tenant]++;
        n.blocks[x->id.tenant]++;
        n.keys[x->id.tenant] += x->e.nkeys;
        for (const struct ext *y = k->ext; y < x; y++) /* the first of its tree counts the root */
            root &= y->state == EXT_FREE || y->e.part != DISK_HISTORY || y->file == but ||
                    (!ext_known(y) && y->state != EXT_COMING && !ext_left(k, y)) ||
                    y->id.tenant != x->id.tenant || y->id.ns != x->id.ns ||
                    y->id.ranks != x->id.ranks || y->doomed != x->doomed;
        n.chunks[x->id.tenant] += root;
    }
    for (uint32_t i = 0; i < DISK_NFILES; i++)
        n.files[k->file[i].tenant] += k->file[i].state != FILE_NONE && i != but;
    return n;
}

/* Does the store of this step have too little room without an eviction? */
static bool was_pressed(struct sim *w, uint32_t d, uint32_t tenant)
{
    struct disks *k = w->disk[d];
    const struct records_used n = records_of(k, k->began);
    uint64_t coming = 0;
    uint32_t chunks = 0, keys = 0;

    for (EXTS(k, x))
        if (x->state == EXT_COMING && x->file == k->began) {
            coming += disk_extent_bytes(&x->e);
            chunks += x->e.part == DISK_HISTORY;
            keys += x->e.nkeys;
        }
    return used_of(k, tenant, true) + coming / 100 > disk_budget(w, d, tenant) ||
           share_left(w, w->cfg.disk_chunks, n.chunks, tenant) < chunks + 1 ||
           share_left(w, w->cfg.disk_files, n.files, tenant) < 1 ||
           share_left(w, w->cfg.disk_tokens, n.blocks, tenant) < chunks ||
           share_left(w, w->cfg.disk_tokens / 2 + 1, n.keys, tenant) < keys;
}

/* A fetch reads the next entry to be evicted; or a file's record becomes free only when the file is
 * gone, and a store that waits for it pins its path. */
static bool room_comes_later(struct sim *w, uint32_t d, uint32_t tenant)
{
    const struct records_used n = records_of(w->disk[d], DISK_NFILES);
    struct disk_view told;
    struct core_view all;
    uint32_t known = 0;

    core_disk(w->d[d].core, tenant, &told);
    core_view(w->d[d].core, &all);
    for (uint32_t i = 0; i < PULLS * 2; i++) {
        if (w->d[d].pull[i].used && w->d[d].pull[i].disk)
            return true;
        known += w->d[d].pull[i].used;
    }
    if (told.stores > 1 || all.pulls > known) /* another store, or a fetch that asks for its first
                                               * page later, pins its path */
        return true;
    return w->disk[d]->freed || share_left(w, w->cfg.disk_files, n.files, tenant) == 0;
}

/* The disk has the part at another place. A reset of the namespace dooms both places alike. */
static bool was_replaced(struct disks *k, const struct ext *x)
{
    for (EXTS(k, y))
        if (ext_known(y) && !y->bad && y->doomed == x->doomed && y->uid != x->uid &&
            y->e.part == x->e.part && ident_equal(y->id, x->id))
            return true;
    return false;
}

/* D5: a longer entry became durable, in this step or before. In the latter case a fetch still read
 * this entry, and it goes as long as a chunk behind it exists, of that entry or of another. */
static bool was_pruned(struct sim *w, struct disks *k, const struct ext *x)
{
    const struct ext *told = k->told == DISK_EXTS ? NULL : &k->ext[k->told];

    for (EXTS(k, y))
        if (x->e.reason == DISK_CONTINUED && x->id.k < y->id.k && begins(w, x->id, y->id) &&
            (ext_known(y) || ext_left(k, y) || (x->late && y->state == EXT_COMING)) &&
            (x->late ? y->e.part != DISK_STATE : y == told && y->e.part == DISK_ENTRY && prunes(y)))
            return true;
    return false;
}

/* Checks the reason why an entry has gone. */
static void check_entry_left(struct sim *w, uint32_t d, const struct ext *x)
{
    struct disks *k = w->disk[d];

    if (x->bad || x->doomed || was_replaced(k, x) ||
        (k->resetting && x->id.tenant == k->reset_tenant && x->id.ns == k->reset_ns)) {
        if (x->bad)
            MARK(bad_entry_left);
        return;
    }
    if (was_pruned(w, k, x)) {
        MARK(entry_pruned);
        return;
    }
    if (k->starting) {
        EXPECT(!x->must || k->over[x->id.tenant] || k->short_of, "not_recovered",
               "an entry of variant %u depth %u, file %llu, was durable and is dropped at a start",
               x->id.variant, x->e.depth, (unsigned long long)x->e.place.file);
        return;
    }
    if (room_comes_later(w, d, x->id.tenant)) {
        MARK(evicted_ahead);
        return;
    }
    /* T20: entries are evicted in pieces, and the rest follows in the next step. */
    if (k->began == DISK_NFILES && core_deadline(w->d[d].core) <= w->now) {
        k->ahead[x->id.tenant] = 1;
        return;
    }
    EXPECT(k->began != DISK_NFILES && k->file[k->began].tenant == x->id.tenant,
           "evicted_for_nothing", "an entry of variant %u depth %u, reason %u", x->id.variant,
           x->e.depth, x->e.reason);
    EXPECT(was_pressed(w, d, x->id.tenant), "evicted_unpressed",
           "an entry of variant %u depth %u file %llu, and there is room", x->id.variant,
           x->e.depth, (unsigned long long)x->e.place.file);
    MARK(entry_evicted);
}

/* A tenant for which entries were evicted in pieces begins its write before the core has no work
 * left, or its store waits for the checksums of chunks that were committed between two pieces. */
void check_ahead(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    struct disk_view told;

    if (k->began != DISK_NFILES)
        k->ahead[k->file[k->began].tenant] = 0;
    if (core_deadline(w->d[d].core) <= w->now)
        return;
    for (uint32_t t = 0; t < TENANTS; t++) {
        if (!k->ahead[t])
            continue;
        core_disk(w->d[d].core, t, &told);
        EXPECT(told.stores > 0 || room_comes_later(w, d, t), "evicted_for_nothing",
               "entries of tenant %u, and no file began", t);
        k->ahead[t] = 0;
    }
}

/* No fetch reads a dropped extent, unless it was written anew. */
static void check_unread(struct sim *w, uint32_t d, const struct ext *x)
{
    struct disks *k = w->disk[d];

    for (uint32_t i = 0; i < PULLS * 2; i++) {
        const struct pull *p = &w->d[d].pull[i];

        for (uint32_t n = 0; p->used && p->disk && n < BATCHES; n++)
            for (uint32_t at = 0; p->batch[n].used && at < p->batch[n].n; at++)
                EXPECT(p->batch[n].span[at].seen || p->batch[n].ext[at] != x - k->ext ||
                           p->batch[n].uid[at] != x->uid || was_replaced(k, x),
                       "disk_drop_read", "part %u of depth %u is dropped, and pull %u.%u reads it",
                       x->e.part, x->e.depth, p->id.slot, p->id.gen);
    }
}

void check_drops(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    bool all_said = core_deadline(w->d[d].core) > 0; /* else the next step drops more */

    for (EXTS(k, x)) {
        if (ext_left(k, x) && !x->rotten) {
            check_unread(w, d, x);
            if (x->e.part == DISK_ENTRY)
                check_entry_left(w, d, x);
        }
        if (!k->starting && all_said && x->e.part == DISK_ENTRY && ext_known(x) && !x->bad &&
            !x->doomed && !x->half)
            EXPECT(entry_whole(w, k, x, LOOK_NOW), "entry_not_whole",
                   "an entry of variant %u depth %u is there, and not all that it needs",
                   x->id.variant, x->e.depth);
    }
}

/* D5: the needless entries that still exist are being read, and go later. */
void note_late(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    const struct ext *told = k->told == DISK_EXTS ? NULL : &k->ext[k->told];

    for (EXTS(k, x))
        if (told && prunes(told) && ext_known(x) && x->e.part == DISK_ENTRY &&
            x->e.reason == DISK_CONTINUED && x->id.k < told->id.k && begins(w, x->id, told->id)) {
            x->late = 1;
            MARK(pruned_late);
        }
}

/* --- how much --- */

/* STATE on the disk for the entry. A bad entry's STATE is bad as well, and counts until it goes. */
static uint64_t state_bytes(struct disks *k, struct ident id, const struct ext *entry)
{
    for (EXTS(k, x))
        if (x->e.part == DISK_STATE && ident_equal(x->id, id) && ext_known(x) &&
            x->bad == entry->bad && !x->doomed)
            return disk_extent_bytes(&x->e);
    return 0;
}

/* D5: bytes that the store being written will make needless, and those that a finished store has;
 * at most DISK_PRUNE_BYTES. */
static uint64_t credit_of(struct sim *w, struct disks *k, uint32_t tenant)
{
    const struct ext *deepest = NULL;
    uint64_t n = 0;

    for (EXTS(k, x))
        if (x->state == EXT_COMING && x->id.tenant == tenant &&
            (!deepest || x->id.k > deepest->id.k || prunes(x)))
            deepest = x;
    if (deepest && deepest->e.part == DISK_ENTRY && !prunes(deepest))
        deepest = NULL;
    for (EXTS(k, x)) {
        if (x->e.part != DISK_ENTRY || x->e.reason != DISK_CONTINUED || !ext_known(x) ||
            x->id.tenant != tenant || !(x->late || (deepest && begins(w, x->id, deepest->id))))
            continue;
        n += disk_extent_bytes(&x->e);
        for (uint32_t i = 0; i < w->reach && i < x->id.k; i++)
            n += state_bytes(k, ident_at(w, x->id, x->id.k - i), x);
    }
    return n < DISK_PRUNE_BYTES ? n : DISK_PRUNE_BYTES;
}

static bool reset_goes_on(struct disks *k, uint32_t tenant)
{
    if (k->resetting && k->reset_tenant == tenant)
        return true;
    for (EXTS(k, x))
        if (x->doomed && x->id.tenant == tenant && (ext_known(x) || x->state == EXT_COMING))
            return true;
    return false;
}

void check_budgets(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];

    for (uint32_t t = 0; t < w->cfg.tenants && !k->starting; t++) {
        uint64_t used = used_of(k, t, false),
                 most = disk_budget(w, d, t) + (used ? credit_of(w, k, t) : 0);

        /* A reset also removes, file by file, entries that counted as gone: the use may not
         * grow. */
        if (most < k->used[t] && reset_goes_on(k, t))
            most = k->used[t];
        EXPECT(used <= most, "disk_budget", "tenant %u uses %llu of %llu bytes", t,
               (unsigned long long)used, (unsigned long long)most);
        k->used[t] = used;
    }
}

/* --- at a start --- */

void find_musts(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    struct records_used n;

    for (EXTS(k, x))
        if (x->must && x->e.part == DISK_ENTRY && ext_known(x) &&
            !entry_whole(w, k, x, LOOK_MUST)) {
            x->must = 0;
            MARK(start_misses_rotten);
        }
    for (EXTS(k, x)) {
        if (x->e.part == DISK_ENTRY && ext_known(x) && x->must)
            MARK(recovered);
        if (x->e.part == DISK_ENTRY && ext_known(x) && x->back)
            MARK(found_what_was_dropped);
    }
    n = records_of(k, DISK_NFILES);
    for (uint32_t t = 0; t < TENANTS; t++) {
        k->over[t] = used_of(k, t, false) > disk_budget(w, d, t);
        k->short_of |= disk_is_on(w, d) && n.chunks[t] > 0 &&
                       (share_left(w, w->cfg.disk_chunks, n.chunks, t) == 0 ||
                        share_left(w, w->cfg.disk_files, n.files, t) == 0);
    }
    k->short_of |= share_taken(w, w->cfg.disk_tokens, n.blocks) > w->cfg.disk_tokens ||
                   share_taken(w, w->cfg.disk_tokens / 2 + 1, n.keys) > w->cfg.disk_tokens / 2 + 1;
}

/* A start does not know which groups of STATE an entry needs, only how far up it needs some. */
void find_halves(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];

    for (EXTS(k, x)) {
        x->half = x->e.part == DISK_ENTRY && ext_known(x) && !entry_whole(w, k, x, LOOK_NOW);
        EXPECT(!x->half || !x->must || k->short_of, "not_recovered",
               "an entry of variant %u depth %u lacks what it needs", x->id.variant, x->e.depth);
    }
}

/* --- at rest --- */

void disk_check(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    struct disk_view v;

    if (!disk_is_on(w, d) || core_deadline(w->d[d].core) <= w->now)
        return; /* some of it may be on its way */
    for (uint32_t t = 0; t < w->cfg.tenants; t++) {
        uint32_t entries = 0, chunks = 0, files = 0;

        for (EXTS(k, x)) {
            entries += x->e.part == DISK_ENTRY && x->id.tenant == t && ext_known(x);
            chunks += x->e.part == DISK_HISTORY && x->id.tenant == t &&
                      (ext_known(x) || x->state == EXT_COMING);
        }
        for (uint32_t i = 0; i < DISK_NFILES; i++)
            files += k->file[i].state != FILE_NONE && k->file[i].tenant == t;
        core_disk(w->d[d].core, t, &v);
        EXPECT(v.used == used_of(k, t, false) && v.entries == entries && v.chunks == chunks &&
                   v.files == files,
               "disk_counts",
               "tenant %u: %llu bytes of %u entries and %u chunks in %u files; the model has %llu "
               "of %u and %u in %u",
               t, (unsigned long long)v.used, v.entries, v.chunks, v.files,
               (unsigned long long)used_of(k, t, false), entries, chunks, files);
    }
}

void check_pruned(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];

    for (EXTS(k, x))
        for (const struct ext *y = k->ext; y < k->ext + k->top; y++)
            EXPECT(x->e.part != DISK_ENTRY || x->e.reason != DISK_CONTINUED || !ext_known(x) ||
                       x->back || !ext_known(y) || !prunes(y) || y->old || y->id.k <= x->id.k ||
                       y->uid < x->uid || !begins(w, x->id, y->id),
                   "not_pruned", "D5: a continued entry of depth %u, and one of depth %u behind it",
                   x->e.depth, y->e.depth);
}

void disk_check_rest(struct sim *w, uint32_t d)
{
    struct disks *k = w->disk[d];
    struct disk_view v;

    if (!disk_is_on(w, d))
        return;
    disk_check(w, d);
    check_pruned(w, d);
    EXPECT(core_disk_idle(w->d[d].core), "stores_left", "daemon %u", d);
    for (uint32_t t = 0; t < w->cfg.tenants; t++) {
        core_disk(w->d[d].core, t, &v);
        EXPECT(v.stores == 0, "stores_left", "tenant %u has %u", t, v.stores);
    }
    for (uint32_t i = 0; i < DISK_ASKS; i++)
        EXPECT(k->ask[i].request == 0, "store_unanswered", "request %llu",
               (unsigned long long)k->ask[i].request);
    for (uint32_t i = 0; i < DISK_NFILES; i++)
        EXPECT(k->file[i].state == FILE_NONE || k->file[i].state == FILE_THERE, "files_left",
               "file %llu is in state %u", (unsigned long long)k->file[i].number, k->file[i].state);
    for (EXTS(k, x)) {
        bool needed = false;

        for (const struct ext *y = k->ext; y < k->ext + k->top; y++)
            needed |= y->e.part == DISK_ENTRY && ext_known(y) && begins(w, x->id, y->id) &&
                      (x->e.part == DISK_HISTORY || y->id.k < x->id.k + w->reach ||
                       x->e.part == DISK_ENTRY);
        EXPECT(!ext_known(x) || (needed && !x->bad && !x->doomed), "needless_left",
               "part %u of variant %u depth %u, bad %u, reset %u", x->e.part, x->id.variant,
               x->e.depth, x->bad, x->doomed);
    }
}
