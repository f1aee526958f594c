/* See rig_spill_dir.h. Pages of group 0 are larger than one move, and those of group 1 have a size
 * that divides nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "unit/rig/rig_spill_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/prng.h"

#define MIB        (1u << 20)
#define POOL_BYTES (20u * MIB)
#define WAIT_MS    30000

static const struct group_layout groups[RIG_SPILL_GROUPS] = {
    {.page_tokens = 32, .units = 3, .page_bytes = 700040},
    {.page_tokens = 64, .units = 2, .page_bytes = 20008},
};
static const char *const tenants[2] = {"alpha", "beta"};

/* ------------------------------------------------------------------ life */

void rig_spill_init(struct rig_spill *r, const char *below)
{
    struct mem_config c = {.tenants = 2,
                           .engines = 1,
                           .pools = 4,
                           .page_records = 4 * RIG_SPILL_GROUPS * RIG_SPILL_PAGES,
                           .page_bytes_min = 4096,
                           .sums_per_page = 6,
                           .workers = 2,
                           .jobs = 8,
                           .incarnation = 77};
    const char *why;

    for (uint32_t t = 0; t < 2; t++)
        c.tenant[t] =
            (struct tenant_config){.memory_bytes = 2 * POOL_BYTES, .regions = 2, .sessions_max = 1};
    memset(r, 0, sizeof *r);
    assert_int_equal(mem_create(&c, &r->mem, &why), TERN_OK);
    for (uint32_t pool = 0; pool < 4; pool++)
        mem_pool_set(r->mem, pool, TIER_DEVICE, pool / 2, pool % 2 * POOL_BYTES, POOL_BYTES, 2,
                     NULL, pool < 2 ? 2 : 1, RIG_SPILL_GROUPS, groups);
    snprintf(r->dir, sizeof r->dir, "%s/tern-disk-XXXXXX", below ? below : "/tmp");
    assert_non_null(mkdtemp(r->dir));
    r->config = (struct disk_config){.dir = r->dir,
                                     .mem = r->mem,
                                     .tenants = 2,
                                     .tenant = {tenants[0], tenants[1]},
                                     .threads = 2,
                                     .depth = 3,
                                     .writes = 4,
                                     .reads = 64,
                                     .pulls = 4,
                                     .drops = 64,
                                     .incarnation = 77};
    for (uint32_t i = 0; i < DISK_KEY_BYTES; i++)
        r->config.key[i] = (uint8_t)(3 * i + 1);
}

enum tern_err rig_spill_open(struct rig_spill *r)
{
    const char *why = NULL;
    enum tern_err err = disk_create(&r->config, &r->disk, &why);

    assert_true((err == TERN_OK) == (why == NULL));
    r->ngot = 0;
    return err;
}

void rig_spill_close(struct rig_spill *r)
{
    disk_destroy(r->disk);
    r->disk = NULL;
}

void rig_spill_start(struct rig_spill *r, bool encrypt)
{
    rig_spill_init(r, NULL);
    rig_spill_fill(r, 0, 1);
    rig_spill_fill(r, 2, 2);
    r->config.encrypt = encrypt;
    assert_int_equal(rig_spill_open(r), TERN_OK);
}

void rig_spill_reopen(struct rig_spill *r)
{
    rig_spill_close(r);
    assert_int_equal(rig_spill_open(r), TERN_OK);
}

struct disk_stats rig_spill_stats(const struct rig_spill *r)
{
    struct disk_stats s;

    disk_stats(r->disk, &s);
    return s;
}

void rig_spill_finish(struct rig_spill *r)
{
    char command[128];

    rig_spill_close(r);
    mem_destroy(r->mem);
    r->mem = NULL;
    if (!r->dir[0])
        return;
    snprintf(command, sizeof command, "rm -rf '%s'", r->dir);
    assert_int_equal(system(command), 0);
    r->dir[0] = '\0';
}

/* ------------------------------------------------------------------ pages */

/* Group 0 lies in front, group 1 behind it. */
struct page_at rig_spill_page(uint32_t pool, uint32_t group, uint32_t index)
{
    uint32_t first = group == 0 ? 1 : (uint32_t)(17ull * MIB / groups[1].page_bytes) + 1;

    return (struct page_at){.group = group,
                            .index = first + index,
                            .gen = 1,
                            .record = (pool * RIG_SPILL_GROUPS + group) * RIG_SPILL_PAGES + index};
}

void rig_spill_fill(struct rig_spill *r, uint32_t pool, uint64_t seed)
{
    struct page_at pages[RIG_SPILL_GROUPS * RIG_SPILL_PAGES];
    bool alike = mem_place(r->mem, pool)->transfer_regions == 1;
    struct taken back = {0};
    struct prng p;

    for (uint32_t i = 0; i < RIG_SPILL_GROUPS * RIG_SPILL_PAGES; i++) {
        pages[i] = rig_spill_page(pool, i % RIG_SPILL_GROUPS, i / RIG_SPILL_GROUPS);
        for (uint32_t region = 0; region < 2; region++) {
            uint8_t *at = mem_page(r->mem, pool, region, pages[i].group, pages[i].index);
            uint64_t n = groups[pages[i].group].page_bytes;

            prng_init(&p, seed * 1000 + i * 2 + (alike ? 0 : region));
            for (uint64_t b = 0; b + 8 <= n; b += 8) {
                uint64_t v = prng_u64(&p);

                memcpy(at + b, &v, 8);
            }
        }
    }
    mem_seal(r->mem, (struct seal_id){1, 1}, pool, pages, RIG_SPILL_GROUPS * RIG_SPILL_PAGES);
    take_events(r->mem, &back, 1);
}

void rig_spill_clear(struct rig_spill *r, uint32_t pool)
{
    for (uint32_t i = 0; i < RIG_SPILL_GROUPS * RIG_SPILL_PAGES; i++) {
        struct page_at page = rig_spill_page(pool, i % RIG_SPILL_GROUPS, i / RIG_SPILL_GROUPS);

        for (uint32_t region = 0; region < 2; region++)
            memset(mem_page(r->mem, pool, region, page.group, page.index), 0,
                   groups[page.group].page_bytes);
        memset(mem_sums(r->mem, page.record), 0, 6 * sizeof(uint64_t));
    }
}

bool rig_spill_same(struct rig_spill *r, uint32_t pool, const struct page_at *page, uint32_t other,
                    const struct page_at *of)
{
    const struct group_layout *g = &groups[page->group];

    for (uint32_t region = 0; region < 2; region++)
        if (memcmp(mem_page(r->mem, pool, region, page->group, page->index),
                   mem_page(r->mem, other, region, of->group, of->index), g->page_bytes) != 0)
            return false;
    return memcmp(mem_sums(r->mem, page->record), mem_sums(r->mem, of->record),
                  2 * g->units * sizeof(uint64_t)) == 0;
}

/* ------------------------------------------------------------------ files */

void rig_file_begin(struct rig_file *f, uint32_t tenant, uint32_t pool, uint64_t file)
{
    memset(f, 0, sizeof *f);
    f->write = (struct disk_write){.store = {7, (uint32_t)file},
                                   .file = file,
                                   .tenant = tenant,
                                   .pool = pool,
                                   .extents = f->extent,
                                   .pages = f->page,
                                   .tokens = f->token,
                                   .keys = f->key};
}

/* Sets the places of an extent's pages in its body. */
static void place_pages(struct rig_spill *r, struct rig_file *f, const struct disk_extent *e)
{
    uint64_t at = disk_meta_bytes(e);
    uint32_t sum = 0;

    for (uint32_t i = f->write.npages - e->npages; i < f->write.npages; i++) {
        f->place[i] = (struct disk_page){.extent = *e, .body_at = at, .sum_at = sum};
        at += mem_transfer_bytes(r->mem, f->write.pool, f->page[i].group);
        sum += mem_transfer_sums(r->mem, f->write.pool, f->page[i].group);
    }
    assert_int_equal(at, disk_body_bytes(e));
    assert_int_equal(sum, e->nsums);
}

static uint64_t file_end(const struct rig_file *f)
{
    const struct disk_extent *last;

    if (f->write.nextents == 0)
        return DISK_BLOCK;
    last = &f->extent[f->write.nextents - 1];
    return last->place.offset + disk_extent_bytes(last);
}

void rig_file_add(struct rig_spill *r, struct rig_file *f, enum disk_part part, uint32_t pages,
                  uint32_t nkeys)
{
    struct disk_write *w = &f->write;
    uint64_t offset = file_end(f);
    struct disk_extent *e = &f->extent[w->nextents++];

    assert_true(w->nextents <= RIG_SPILL_EXTENTS && w->nkeys + nkeys <= RIG_SPILL_EXTENTS);
    *e = (struct disk_extent){.part = part,
                              .tenant = w->tenant,
                              .ns = {5, 6},
                              .layout_hash = 99,
                              .chain = 1000 + w->nextents,
                              .parent_chain = 999 + w->nextents,
                              .depth = w->nextents * RIG_SPILL_ALIGN,
                              .align = RIG_SPILL_ALIGN,
                              .tokens = part == DISK_HISTORY ? RIG_SPILL_ALIGN : 0,
                              .nkeys = nkeys,
                              .npages = RIG_SPILL_GROUPS * pages,
                              .groups = pages > 0 ? (1u << RIG_SPILL_GROUPS) - 1 : 0,
                              .place = {w->file, offset}};
    if (part != DISK_HISTORY || e->depth > e->align)
        e->above = (struct disk_place){w->file, DISK_BLOCK};
    for (uint32_t i = 0; i < e->tokens; i++)
        f->token[w->ntokens++] = 70000 * w->nextents + i;
    for (uint32_t i = 0; i < nkeys; i++)
        f->key[w->nkeys++] =
            (struct extra_key){.position = e->depth - e->align + i, .hi = w->nextents, .lo = i};
    for (uint32_t g = 0; g < RIG_SPILL_GROUPS; g++) {
        for (uint32_t i = 0; i < pages; i++) {
            uint32_t before = w->npages - g * pages - i; /* pages of earlier extents */

            f->page[w->npages] = rig_spill_page(w->pool, g, before / RIG_SPILL_GROUPS + i);
            f->page[w->npages].pool = w->pool;
            e->nsums += mem_transfer_sums(r->mem, w->pool, g);
            e->page_bytes += mem_transfer_bytes(r->mem, w->pool, g);
            w->npages++;
        }
    }
    place_pages(r, f, e);
}

void rig_file_usual(struct rig_spill *r, struct rig_file *f, uint32_t tenant, uint32_t pool,
                    uint64_t file)
{
    rig_file_begin(f, tenant, pool, file);
    rig_file_add(r, f, DISK_HISTORY, 3, 1);
    rig_file_add(r, f, DISK_HISTORY, 4, 0);
    rig_file_add(r, f, DISK_STATE, 1, 0);
    rig_file_add(r, f, DISK_ENTRY, 0, 0);
}

/* ------------------------------------------------------------------ requests and events */

static void take_event(void *ctx, struct event *event)
{
    struct rig_spill *r = ctx;

    assert_true(r->ngot < RIG_SPILL_EVENTS);
    r->got[r->ngot++] = *event;
}

void rig_spill_events(struct rig_spill *r, uint32_t n)
{
    r->ngot = 0;
    while (r->ngot < n) {
        struct pollfd p = {.fd = disk_event_fd(r->disk), .events = POLLIN};

        assert_int_equal(poll(&p, 1, WAIT_MS), 1);
        disk_poll(r->disk, take_event, r);
    }
    assert_int_equal(r->ngot, n);
}

void rig_spill_quiet_ms(struct rig_spill *r, uint32_t ms)
{
    for (uint32_t i = 0; i < ms; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        disk_poll(r->disk, take_event, r);
    }
}

enum tern_err rig_spill_write(struct rig_spill *r, const struct rig_file *f)
{
    disk_write(r->disk, &f->write);
    rig_spill_events(r, 1);
    assert_int_equal(r->got[0].kind, EV_DISK_WRITTEN);
    assert_true(store_id_equal(r->got[0].written.store, f->write.store));
    return r->got[0].written.err;
}

void rig_spill_ask(struct rig_spill *r, const struct rig_file *f, struct pull_id pull,
                   uint32_t batch, uint32_t first, uint32_t n)
{
    struct page_at page[PULL_BATCH_PAGES];
    struct action act = {.kind = ACT_PULL};

    for (uint32_t i = 0; i < n; i++) {
        page[i] = f->page[first + i];
        page[i].record += RIG_SPILL_GROUPS * RIG_SPILL_PAGES; /* of the next pool */
    }
    act.pull.pull = pull;
    act.pull.pool = f->write.pool + 1;
    act.pull.batch = batch;
    act.pull.n = n;
    act.pull.pages = page;
    act.pull.from = f->place + first;
    disk_read(r->disk, &act);
}

uint64_t rig_spill_read(struct rig_spill *r, const struct rig_file *f, uint32_t first, uint32_t n)
{
    static uint32_t gen;
    struct pull_id pull = {1, ++gen};

    assert_true(n <= 64);
    rig_spill_ask(r, f, pull, 5, first, n);
    rig_spill_events(r, 1);
    assert_int_equal(r->got[0].kind, EV_PULLED);
    assert_true(pull_id_equal(r->got[0].pulled.pull, pull));
    assert_int_equal(r->got[0].pulled.batch, 5);
    return r->got[0].pulled.ok[0];
}

void rig_spill_path(const struct rig_spill *r, const struct rig_file *f, bool unfinished, char *ret,
                    size_t cap)
{
    snprintf(ret, cap, "%s/%s/%016llx.tern%s", r->dir, tenants[f->write.tenant],
             (unsigned long long)f->write.file, unfinished ? ".tmp" : "");
}

uint32_t rig_spill_files(const struct rig_spill *r, uint32_t tenant)
{
    char path[128];
    struct dirent *entry;
    uint32_t n = 0;
    DIR *dir;

    snprintf(path, sizeof path, "%s/%s", r->dir, tenants[tenant]);
    dir = opendir(path);
    while (dir && (entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.' ? 1 : 0;
    if (dir)
        closedir(dir);
    return n;
}

uint64_t rig_spill_alike(struct rig_spill *r, const struct rig_file *f)
{
    uint64_t same = 0;

    for (uint32_t i = 0; i < f->write.npages; i++) {
        struct page_at to = f->page[i];

        to.record += RIG_SPILL_GROUPS * RIG_SPILL_PAGES;
        if (rig_spill_same(r, f->write.pool, &f->page[i], f->write.pool + 1, &to))
            same |= 1ull << i;
    }
    return same;
}

void rig_spill_flip(const struct rig_spill *r, const struct rig_file *f, uint64_t at)
{
    char path[RIG_SPILL_PATH];
    uint8_t byte;
    int fd;

    rig_spill_path(r, f, false, path, sizeof path);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

uint8_t *rig_spill_contents(const struct rig_spill *r, const struct rig_file *f,
                            uint64_t *ret_bytes)
{
    char path[RIG_SPILL_PATH];
    struct stat st;
    uint8_t *bytes;
    int fd;

    rig_spill_path(r, f, false, path, sizeof path);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    bytes = malloc((size_t)st.st_size);
    assert_non_null(bytes);
    assert_int_equal(pread(fd, bytes, (size_t)st.st_size, 0), st.st_size);
    close(fd);
    *ret_bytes = (uint64_t)st.st_size;
    return bytes;
}
