/* tern-bench spill: files that the disk tier writes and reads, beside a plain O_DIRECT loop of 1, 4
 * and 16 pieces of 1 MiB in flight, with the same syncs, in the same directory, alternating. The
 * tier alone, over a real struct mem whose pages are written again and again: it gathers and hashes
 * each page, reads it back into memory and compares it with its checksums. Only bytes of pages
 * count; the raw loop moves as many. */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/prng.h"
#include "bench.h"
#include "engine/json.h"
#include "engine/stats.h"
#include "raw_file.h"
#include "seam/disk/disk.h"

#define DIR_DEFAULT   "/var/tmp"
#define BYTES_DEFAULT (4ull << 30)
#define QUICK_BYTES   (512ull << 20)
#define MEMORY_BYTES  (264ull << 20)
#define PAGE_BYTES    (128u << 10)
#define EXTENT_PAGES  8u
#define EXTENTS       256u /* of a file, which then has 256 MiB of pages */
#define FILE_PAGES    (EXTENTS * EXTENT_PAGES)
#define FILE_BYTES    ((uint64_t)FILE_PAGES * PAGE_BYTES)
#define ALIGN         256u
#define THREADS       4u
#define DEPTH         4u
#define WRITES        4u /* files in flight */
#define READS         PULL_BATCHES_MAX
#define PAIRS         5u
#define QUICK_PAIRS   1u
#define RATIO_MIN     0.8
#define DEPTHS        3u
#define WAIT_MS       60000

static_assert(FILE_PAGES % PULL_BATCH_PAGES == 0 && FILE_PAGES <= DISK_WRITE_PAGES, "");

static const uint32_t depths[DEPTHS] = {1, 4, 16};

struct way {                                        /* writing or reading */
    struct series ours, raw[DEPTHS], ratio[DEPTHS]; /* GB/s */
};

struct spill {
    char dir[160];
    struct mem *mem;
    struct disk *disk;
    uint32_t files;
    struct page_at page[FILE_PAGES];
    struct disk_extent extent[EXTENTS];
    struct disk_page place[FILE_PAGES];
    uint32_t token[EXTENTS * ALIGN];
    uint32_t pulls;          /* so far */
    uint32_t pending, wrong; /* files or batches; `wrong`: the failed ones among them */
    struct way write, read;
};

/* ------------------------------------------------------------------ set-up */

static void seal_done(void *ctx, struct event *event)
{
    (void)event;
    *(bool *)ctx = true;
}

static bool create_mem(struct spill *s)
{
    static const struct group_layout layout = {
        .page_tokens = ALIGN / EXTENT_PAGES, .units = 1, .page_bytes = PAGE_BYTES};
    struct mem_config c = {.tenants = 1,
                           .engines = 1,
                           .pools = 1,
                           .page_records = FILE_PAGES + 1,
                           .page_bytes_min = 4096,
                           .sums_per_page = 1,
                           .workers = 2,
                           .jobs = 4,
                           .incarnation = 1,
                           .huge_pages = true};
    const char *why;
    struct prng p;

    c.tenant[0] =
        (struct tenant_config){.memory_bytes = MEMORY_BYTES, .regions = 1, .sessions_max = 1};
    if (mem_create(&c, &s->mem, &why) != TERN_OK) {
        fprintf(stderr, "tern-bench spill: %s\n", why);
        return false;
    }
    mem_pool_set(s->mem, 0, TIER_DEVICE, 0, 0, MEMORY_BYTES, 1, NULL, 1, 1, &layout);
    prng_init(&p, 1);
    for (uint32_t i = 0; i < FILE_PAGES; i++) {
        uint64_t *at;

        s->page[i] = (struct page_at){.index = i + 1, .gen = 1, .record = i + 1}; /* of pool 0 */
        at = mem_page(s->mem, 0, 0, 0, i + 1);
        for (uint32_t k = 0; k < PAGE_BYTES / 8; k++)
            at[k] = prng_u64(&p);
    }
    return true;
}

static void seal(struct spill *s)
{
    for (uint32_t i = 0; i < FILE_PAGES; i += SEAL_PAGES_MAX) {
        uint32_t n = FILE_PAGES - i < SEAL_PAGES_MAX ? FILE_PAGES - i : SEAL_PAGES_MAX;
        struct pollfd p = {.fd = mem_event_fd(s->mem), .events = POLLIN};
        bool done = false;

        mem_seal(s->mem, (struct seal_id){0, i}, 0, s->page + i, n);
        mem_start(s->mem);
        while (!done && poll(&p, 1, WAIT_MS) == 1)
            mem_poll(s->mem, seal_done, &done);
    }
}

static bool set_up(struct spill *s, const struct bench_args *args)
{
    struct disk_config c = {.tenants = 1,
                            .tenant = {"bench"},
                            .threads = THREADS,
                            .depth = DEPTH,
                            .writes = WRITES,
                            .reads = READS,
                            .pulls = 1,
                            .drops = 64,
                            .incarnation = 1};
    uint64_t bytes = args->bytes ? args->bytes : args->quick ? QUICK_BYTES : BYTES_DEFAULT;
    const char *why;

    s->files = (uint32_t)(bytes / FILE_BYTES);
    if (s->files == 0)
        s->files = 1;
    snprintf(s->dir, sizeof s->dir, "%s/tern-bench-XXXXXX", args->dir ? args->dir : DIR_DEFAULT);
    if (!mkdtemp(s->dir)) {
        fprintf(stderr, "tern-bench spill: %s: not to be made: give another --dir\n", s->dir);
        s->dir[0] = '\0';
        return false;
    }
    if (!create_mem(s))
        return false;
    seal(s);
    c.dir = s->dir;
    c.mem = s->mem;
    if (disk_create(&c, &s->disk, &why) == TERN_OK)
        return true;
    fprintf(stderr, "tern-bench spill: %s\n", why);
    return false;
}

static void tear_down(struct spill *s)
{
    char name[200];

    disk_destroy(s->disk);
    mem_destroy(s->mem);
    if (!s->dir[0])
        return;
    snprintf(name, sizeof name, "%s/bench", s->dir);
    rmdir(name);
    snprintf(name, sizeof name, "%s/.lock", s->dir);
    unlink(name);
    rmdir(s->dir);
}

/* ------------------------------------------------------------------ the tier */

static void took(void *ctx, struct event *event)
{
    struct spill *s = ctx;

    s->pending--;
    if (event->kind == EV_DISK_WRITTEN) {
        s->wrong += event->written.err != TERN_OK ? 1 : 0;
    } else if (event->kind == EV_PULLED) {
        for (uint32_t k = 0; k < PULL_BATCH_PAGES / 64; k++)
            s->wrong += event->pulled.ok[k] != UINT64_MAX ? 1 : 0;
    } else if (event->kind != EV_DISK_DROPPED) {
        s->wrong++;
    }
}

static bool wait_below(struct spill *s, uint32_t n)
{
    while (s->pending >= n) {
        struct pollfd p = {.fd = disk_event_fd(s->disk), .events = POLLIN};

        if (poll(&p, 1, WAIT_MS) != 1)
            return false;
        disk_poll(s->disk, took, s);
    }
    return true;
}

/* The extents in the order of the file of that number. */
static void lay_out(struct spill *s, uint64_t file)
{
    uint64_t offset = DISK_BLOCK;

    for (uint32_t i = 0; i < EXTENTS; i++) {
        struct disk_extent *e = &s->extent[i];

        *e = (struct disk_extent){.part = DISK_HISTORY,
                                  .layout_hash = 1,
                                  .chain = i + 1,
                                  .parent_chain = i,
                                  .depth = (i + 1) * ALIGN,
                                  .align = ALIGN,
                                  .tokens = ALIGN,
                                  .npages = EXTENT_PAGES,
                                  .nsums = EXTENT_PAGES,
                                  .page_bytes = EXTENT_PAGES * PAGE_BYTES,
                                  .groups = 1,
                                  .place = {file, offset}};
        if (i > 0)
            e->above = (struct disk_place){file, DISK_BLOCK};
        for (uint32_t k = 0; k < EXTENT_PAGES; k++)
            s->place[i * EXTENT_PAGES + k] =
                (struct disk_page){.extent = *e,
                                   .body_at = disk_meta_bytes(e) + k * (uint64_t)PAGE_BYTES,
                                   .sum_at = k};
        offset += disk_extent_bytes(e);
    }
}

static bool write_pass(struct spill *s, double *ret_s)
{
    uint64_t start = clock_ns();

    for (uint32_t i = 0; i < s->files; i++) {
        struct disk_write w = {.store = {0, i},
                               .file = i + 1,
                               .nextents = EXTENTS,
                               .npages = FILE_PAGES,
                               .ntokens = EXTENTS * ALIGN,
                               .extents = s->extent,
                               .pages = s->page,
                               .tokens = s->token};

        if (!wait_below(s, WRITES))
            return false;
        lay_out(s, i + 1);
        disk_write(s->disk, &w);
        s->pending++;
    }
    if (!wait_below(s, 1))
        return false;
    *ret_s = (double)(clock_ns() - start) / 1e9;
    return true;
}

static bool read_pass(struct spill *s, double *ret_s)
{
    uint64_t start = clock_ns();

    s->pulls++;
    for (uint32_t i = 0; i < s->files; i++) {
        lay_out(s, i + 1);
        for (uint32_t first = 0; first < FILE_PAGES; first += PULL_BATCH_PAGES) {
            struct action act = {.kind = ACT_PULL};

            act.pull.pull = (struct pull_id){0, s->pulls};
            act.pull.n = PULL_BATCH_PAGES;
            act.pull.pages = s->page + first;
            act.pull.from = s->place + first;
            if (!wait_below(s, READS))
                return false;
            disk_read(s->disk, &act);
            s->pending++;
        }
    }
    if (!wait_below(s, 1))
        return false;
    *ret_s = (double)(clock_ns() - start) / 1e9;
    return true;
}

static bool remove_files(struct spill *s)
{
    for (uint32_t i = 0; i < s->files; i++) {
        struct disk_drop drop = {.place = {.file = i + 1}};

        if (!wait_below(s, 32))
            return false;
        disk_drop(s->disk, &drop);
        s->pending++;
    }
    return wait_below(s, 1);
}

/* ------------------------------------------------------------------ measuring */

static void add(struct way *way, uint32_t d, double bytes, double ours_s, double raw_s)
{
    series_add(&way->raw[d], bytes / raw_s / 1e9);
    series_add(&way->ratio[d], raw_s / ours_s);
}

/* Ours, then the raw loop at each depth; written files are read and removed. */
static bool measure_pair(struct spill *s, const struct raw_file *raw)
{
    double write_s, read_s, raw_write_s, raw_read_s, bytes = (double)s->files * FILE_BYTES;

    if (!write_pass(s, &write_s) || !read_pass(s, &read_s) || !remove_files(s))
        return false;
    series_add(&s->write.ours, bytes / write_s / 1e9);
    series_add(&s->read.ours, bytes / read_s / 1e9);
    for (uint32_t d = 0; d < DEPTHS; d++) {
        if (!raw_file_write(raw, depths[d], &raw_write_s) ||
            !raw_file_read(raw, depths[d], &raw_read_s))
            return false;
        add(&s->write, d, bytes, write_s, raw_write_s);
        add(&s->read, d, bytes, read_s, raw_read_s);
    }
    raw_file_remove(raw);
    return true;
}

static bool measure(struct spill *s, const struct bench_args *args)
{
    const struct raw_file raw = {.dir = s->dir, .file_bytes = FILE_BYTES, .files = s->files};
    uint32_t pairs = args->quick ? QUICK_PAIRS : PAIRS;
    bool ok = true;

    for (uint32_t i = 0; ok && i < pairs; i++)
        ok = measure_pair(s, &raw);
    raw_file_remove(&raw);
    return ok;
}

static uint32_t best_depth(struct way *way)
{
    uint32_t best = 0;

    for (uint32_t d = 1; d < DEPTHS; d++)
        if (series_median(&way->raw[d]) > series_median(&way->raw[best]))
            best = d;
    return best;
}

static int show(struct spill *s, const struct bench_args *args)
{
    uint32_t w = best_depth(&s->write), r = best_depth(&s->read);
    double write_ratio = series_median(&s->write.ratio[w]);
    double read_ratio = series_median(&s->read.ratio[r]);
    const struct bench_figure figures[] = {
        {"write_gb_s", series_median(&s->write.ours), "written", "GB/s", NULL},
        {"raw_write_gb_s", series_median(&s->write.raw[w]), "raw, best depth", "GB/s", NULL},
        {"write_ratio", write_ratio, "ratio", "", "at least 0.8"},
        {"raw_write_depth", depths[w], NULL, NULL, NULL},
        {"read_gb_s", series_median(&s->read.ours), "read", "GB/s", NULL},
        {"raw_read_gb_s", series_median(&s->read.raw[r]), "raw, best depth", "GB/s", NULL},
        {"read_ratio", read_ratio, "ratio", "", "at least 0.8"},
        {"raw_read_depth", depths[r], NULL, NULL, NULL},
    };
    struct disk_stats stats;
    json_t *o = json_object();
    bool right, fast;

    disk_stats(s->disk, &stats);
    if (!args->json)
        printf("spill: %u files of 256 MiB%s, beside an O_DIRECT loop with the same syncs\n",
               s->files, stats.direct ? "" : " through the page cache");
    bench_show(args, o, figures, sizeof figures / sizeof figures[0]);
    json_object_set_new(o, "direct", json_boolean(stats.direct));
    json_put_u64(o, "wrong", s->wrong);
    if (args->json)
        json_print(o);
    json_decref(o);
    right = bench_count(s->wrong == 0, "every page that was written comes back right");
    fast = bench_limit(write_ratio >= RATIO_MIN, "write_ratio >= 0.8");
    fast = bench_limit(read_ratio >= RATIO_MIN, "read_ratio >= 0.8") && fast;
    return right && fast ? 0 : 1;
}

static void ways(struct spill *s, bool begin)
{
    struct way *way[] = {&s->write, &s->read};

    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t d = 0; d < DEPTHS; d++) {
            begin ? series_init(&way[i]->raw[d], PAIRS) : series_finish(&way[i]->raw[d]);
            begin ? series_init(&way[i]->ratio[d], PAIRS) : series_finish(&way[i]->ratio[d]);
        }
        begin ? series_init(&way[i]->ours, PAIRS) : series_finish(&way[i]->ours);
    }
}

int bench_spill(const struct bench_args *args)
{
    static struct spill spill;
    int status = 2;

    ways(&spill, true);
    if (set_up(&spill, args) && measure(&spill, args))
        status = show(&spill, args);
    else
        fprintf(stderr, "tern-bench spill: it could not be measured\n");
    tear_down(&spill);
    ways(&spill, false);
    return status;
}
