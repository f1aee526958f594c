/* Reads a batch of pages, on a thread of the disk. Pages that follow each other in an extent are a
 * run. Its header, the part of the body before the pages, and the pages are read; an encrypted
 * extent is read whole, since its tag covers the whole body. Adjoining bytes of a file are read by
 * one read. Several pieces are in flight at a time, and are processed in the order of the file.
 *
 * Invariant: a page is right only if its extent is the wanted one, the part of the body before the
 * pages agrees with its sum, the page agrees with its checksums, and the body agrees with its tag.
 * The page's bytes are hashed in place, in the memory of the pool. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "seam/disk/disk_state.h"
#include "seam/mem/checksum.h"
#include "seam/mem/mem_touch.h"

#define SCATTER_BYTES (64u << 10) /* stays in a core's cache until it is hashed */
#define GAP_BYTES     (64u << 10) /* a gap of up to this many bytes is read rather than skipped */
#define SPANS_MAX     (2 * PULL_BATCH_PAGES)
#define FILES_MAX     (DISK_LANE_PIECES + 1) /* one for each piece, and one for the next */

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers in bodies are used as they lie");

struct run {
    uint32_t first, n;    /* pages of the batch */
    uint64_t offset, end; /* in the file: of the extent, and where its wanted bytes end */
};

struct span { /* of a file; has wanted bytes of runs up to `last` */
    uint64_t file, offset, bytes;
    uint32_t last, zero;
};

struct open_file {
    uint64_t number; /* 0: none */
    int file;
    uint32_t pieces; /* in flight or not yet processed */
};

struct reader {
    struct disk_thread *t;
    struct read_job *job;
    uint32_t nruns, nspans;
    struct run run[PULL_BATCH_PAGES];
    struct span span[SPANS_MAX];
    struct open_file file[FILES_MAX];
    /* Requesting. */
    uint32_t span_at;
    uint64_t span_done;
    uint32_t asked, looked;                /* pieces so far; they use the lane's pieces in turn */
    uint32_t piece_last[DISK_LANE_PIECES]; /* of each piece: `last` of its span */
    /* Processing: the current run. */
    uint32_t run_at;
    struct disk_head head;
    bool bad;     /* it does not match the wanted extent */
    bool missing; /* of the current piece: its file does not exist */
    bool opening; /* its body is being decrypted */
    uint32_t page, region;
    uint64_t region_at;
    bool begun, lost; /* of the current page: verification has begun; memory is gone */
    struct mem_verify verify;
};

uint64_t reader_bytes(void)
{
    return sizeof(struct reader);
}

static uint64_t page_bytes(const struct reader *r, uint32_t i)
{
    return mem_transfer_bytes(r->t->disk->config.mem, r->job->pool, r->job->page[i].group);
}

static uint32_t page_sums(const struct reader *r, uint32_t i)
{
    return mem_transfer_sums(r->t->disk->config.mem, r->job->pool, r->job->page[i].group);
}

/* Adds [from, to) of a file to the spans; joins it to the last span if that is near. */
static void span_add(struct reader *r, uint64_t file, uint64_t from, uint64_t to)
{
    struct span *last = r->nspans ? &r->span[r->nspans - 1] : NULL;
    uint64_t end = last ? last->offset + last->bytes : 0;

    if (last && last->file == file && from >= end && from <= end + GAP_BYTES) {
        last->bytes = to - last->offset;
        last->last = r->nruns - 1;
        return;
    }
    check(r->nspans < SPANS_MAX);
    r->span[r->nspans++] = (struct span){file, from, to - from, r->nruns - 1, 0};
}

static void run_add(struct reader *r, uint32_t first, uint32_t n)
{
    const struct disk_page *from = &r->job->from[first];
    const struct disk_page *last = &r->job->from[first + n - 1];
    const struct disk_extent *e = &from->extent;
    uint64_t body = e->place.offset + DISK_BLOCK;
    uint64_t meta_end = body + disk_whole_blocks(disk_meta_bytes(e));
    uint64_t pages = body + from->body_at / DISK_BLOCK * DISK_BLOCK;
    uint64_t end = body + disk_whole_blocks(last->body_at + page_bytes(r, first + n - 1));

    if (r->t->crypt)
        end = e->place.offset + disk_extent_bytes(e);
    if (r->t->crypt || pages < meta_end)
        pages = meta_end;
    r->run[r->nruns++] =
        (struct run){.first = first, .n = n, .offset = e->place.offset, .end = end};
    span_add(r, e->place.file, e->place.offset, meta_end);
    if (end > pages)
        span_add(r, e->place.file, pages, end);
}

/* Returns false if the core's figures do not place the page within its extent. */
static bool page_fits(const struct reader *r, uint32_t i)
{
    const struct disk_page *p = &r->job->from[i];
    uint64_t body = disk_body_bytes(&p->extent), bytes = page_bytes(r, i);

    return p->body_at >= disk_meta_bytes(&p->extent) && bytes <= body &&
           p->body_at <= body - bytes && page_sums(r, i) <= p->extent.nsums &&
           p->sum_at <= p->extent.nsums - page_sums(r, i) &&
           disk_meta_bytes(&p->extent) <= r->t->disk->meta_bytes;
}

static void plan(struct reader *r)
{
    const struct read_job *job = r->job;
    uint32_t n;

    r->nruns = r->nspans = 0;
    for (uint32_t i = 0; i < job->n; i += n) {
        n = 1;
        if (!page_fits(r, i))
            continue; /* left out: not set in `ok` */
        while (i + n < job->n && page_fits(r, i + n) &&
               disk_place_equal(job->from[i + n].extent.place, job->from[i].extent.place) &&
               job->from[i + n].body_at >= job->from[i + n - 1].body_at + page_bytes(r, i + n - 1))
            n++;
        run_add(r, i, n);
    }
}

/* Returns a slot in the list of open files that no piece needs. */
static struct open_file *file_place(struct reader *r)
{
    for (uint32_t i = 0; i < FILES_MAX; i++)
        if (r->file[i].pieces == 0)
            return &r->file[i];
    check_failed("there are more places than pieces", __FILE__, __LINE__);
}

static void file_close(struct reader *r, struct open_file *f)
{
    const struct disk_files *files = r->t->disk->files;

    if (f->number)
        files->close(files->ctx, f->file);
    f->number = 0;
}

static int file_of(struct reader *r, uint64_t number, struct open_file **ret)
{
    struct disk *disk = r->t->disk;
    char name[DISK_NAME_MAX];
    uint64_t bytes;
    int err;

    for (uint32_t i = 0; i < FILES_MAX; i++)
        if (r->file[i].number == number) {
            *ret = &r->file[i];
            return 0;
        }
    *ret = file_place(r);
    file_close(r, *ret);
    disk_file_name(name, disk->tenant[mem_place(disk->config.mem, r->job->pool)->tenant], number,
                   false);
    err = disk->files->open(disk->files->ctx, name, &(*ret)->file, &bytes);
    if (err == 0)
        (*ret)->number = number;
    return err;
}

/* A missing file stays missing; all other errors may be temporary. */
static bool is_gone(int err)
{
    return err == -ENOENT || err == -ENOTDIR || err == -ELOOP || err == -ESTALE;
}

/* Requests the next piece of a file, in the thread's next staging piece. A piece of a missing file
 * completes at once. */
static int ask(struct reader *r)
{
    const struct span *span = &r->span[r->span_at];
    uint64_t left = span->bytes - r->span_done;
    struct pieces *p = &r->t->pieces;
    struct piece *piece = &p->piece[r->asked % p->depth];
    struct open_file *f;
    int err = file_of(r, span->file, &f);

    if (err < 0 && !is_gone(err))
        return err;
    piece->file = (uint32_t)(f - r->file);
    piece->offset = span->offset + r->span_done;
    piece->bytes = left < DISK_PIECE_BYTES ? left : DISK_PIECE_BYTES;
    r->piece_last[r->asked % p->depth] = span->last;
    piece->res = err;
    if (err == 0)
        pieces_send(p, piece, f->file, false);
    f->pieces++;
    r->asked++;
    r->span_done += piece->bytes;
    if (r->span_done == span->bytes) {
        r->span_at++;
        r->span_done = 0;
    }
    return 0;
}

static void met_bad(struct reader *r, struct disk_place at)
{
    struct disk *disk = r->t->disk;

    if (r->missing && !disk_is_gone(disk))
        r->job->lost_file = at.file;
    at.offset = r->missing ? 0 : at.offset;
    pthread_mutex_lock(&disk->lock);
    disk->stats.corrupt += r->missing ? 0 : 1;
    disk->stats.bad = (struct disk_bad){.n = disk->stats.bad.n + 1,
                                        .at = at,
                                        .tenant = mem_place(disk->config.mem, r->job->pool)->tenant,
                                        .missing = r->missing};
    pthread_mutex_unlock(&disk->lock);
}

static void page_begin(struct reader *r)
{
    const struct disk_page *from = &r->job->from[r->page];
    const uint64_t *sums =
        (const uint64_t *)(const void *)(r->t->meta + disk_list_bytes(&from->extent));

    r->begun = true;
    r->lost = false;
    r->region = 0;
    r->region_at = 0;
    mem_verify_begin(&r->verify, r->t->disk->config.mem, r->job->pool, &r->job->page[r->page],
                     sums + from->sum_at);
}

static void page_end(struct reader *r)
{
    if (!r->lost && mem_verify_landed(&r->verify))
        r->job->ok[r->page / 64] |= 1ull << r->page % 64;
    else if (r->lost)
        DISK_COUNT(r->t->disk, corrupt, 1);
    else
        met_bad(r, r->job->from[r->page].extent.place);
    r->begun = false;
    r->page++;
}

/* Takes the next n bytes of the page's current region. */
static void page_bytes_came(struct reader *r, const uint8_t *from, uint64_t n)
{
    const struct mem *mem = r->t->disk->config.mem;
    const struct page_at *page = &r->job->page[r->page];
    uint8_t *to = mem_page(mem, r->job->pool, r->region, page->group, page->index);

    while (n > 0 && !r->lost) {
        uint64_t part = n < SCATTER_BYTES ? n : SCATTER_BYTES;

        if (!mem_put(mem, to + r->region_at, from, part)) {
            r->lost = true;
            return;
        }
        from += part;
        n -= part;
        r->region_at += part;
        mem_verify_arrived(&r->verify, r->region, r->region_at);
    }
}

/* Takes the bytes of the run's pages that lie in [at, end) of the body. */
static void pages_came(struct reader *r, const uint8_t *bytes, uint64_t at, uint64_t end)
{
    const struct run *run = &r->run[r->run_at];
    struct mem *mem = r->t->disk->config.mem;

    while (r->page < run->first + run->n) {
        uint64_t region_bytes =
                     mem_group(mem, r->job->pool, r->job->page[r->page].group)->page_bytes,
                 n;
        uint64_t next = r->job->from[r->page].body_at;

        if (r->begun)
            next += r->region * region_bytes + r->region_at;
        if (next >= end)
            return;
        check(next >= at);
        if (!r->begun)
            page_begin(r);
        n = region_bytes - r->region_at;
        n = n < end - next ? n : end - next;
        page_bytes_came(r, bytes + (next - at), n);
        if (r->lost) {
            page_end(r);
            continue;
        }
        if (r->region_at < region_bytes)
            return;
        r->region_at = 0;
        if (++r->region == mem_place(mem, r->job->pool)->transfer_regions)
            page_end(r);
    }
}

static void run_bad(struct reader *r)
{
    const struct run *run = &r->run[r->run_at];

    r->bad = true;
    for (uint32_t i = run->first; i < run->first + run->n; i++)
        r->job->ok[i / 64] &= ~(1ull << i % 64);
    met_bad(r, r->job->from[run->first].extent.place);
}

static void header_came(struct reader *r, uint8_t *block)
{
    struct disk *disk = r->t->disk;
    const struct disk_extent *e = &r->job->from[r->run[r->run_at].first].extent;
    const char *tenant = disk->tenant[mem_place(disk->config.mem, r->job->pool)->tenant];

    if (disk_open_extent(r->t->crypt, block) != DISK_FAULT_NONE ||
        disk_get_extent(block, e->place, UINT64_MAX, tenant, &r->head) != DISK_FAULT_NONE ||
        !disk_extent_agrees(&r->head.extent, e)) {
        run_bad(r);
        return;
    }
    r->opening = r->t->crypt != NULL;
    if (r->opening)
        disk_crypt_begin(r->t->crypt, DISK_KEY_BODIES, DISK_OPEN, r->head.seal.nonce, block,
                         DISK_ASSOCIATED);
}

/* Takes bytes [at, end) of the body, in which the pages come last. */
static void body_came(struct reader *r, uint8_t *bytes, uint64_t at, uint64_t end)
{
    const struct disk_extent *e = &r->head.extent;
    uint64_t meta = disk_meta_bytes(e), body = disk_body_bytes(e);

    end = end < body ? end : body;
    if (at >= end)
        return;
    if (r->opening)
        disk_crypt_update(r->t->crypt, bytes, end - at);
    if (at < meta) {
        uint64_t to = end < meta ? end : meta;

        memcpy(r->t->meta + at, bytes, to - at);
        if (to == meta && checksum_unit(r->t->meta, meta) != r->head.seal.meta_sum) {
            run_bad(r);
            return;
        }
    }
    if (end > meta)
        pages_came(r, bytes + (at < meta ? meta - at : 0), at < meta ? meta : at, end);
}

static void run_begin(struct reader *r)
{
    r->bad = r->opening = r->begun = false;
    r->page = r->run_at < r->nruns ? r->run[r->run_at].first : 0;
}

static void run_end(struct reader *r)
{
    if (r->opening && !disk_open_end(r->t->crypt, r->head.seal.tag) && !r->bad)
        run_bad(r);
    r->run_at++;
    run_begin(r);
}

/* Processes a piece of a file: the runs in it, in order. */
static void piece_came(struct reader *r, const struct piece *piece, uint32_t last)
{
    uint64_t end = piece->offset + piece->bytes;

    while (r->run_at <= last) {
        const struct run *run = &r->run[r->run_at];
        uint64_t at = run->offset > piece->offset ? run->offset : piece->offset;
        uint64_t to = run->end < end ? run->end : end;
        uint8_t *bytes = piece->memory + (at - piece->offset);

        if (at >= end)
            return;
        if (at == run->offset) {
            header_came(r, bytes);
            at += DISK_BLOCK;
            bytes += DISK_BLOCK;
        }
        if (!r->bad && at < to)
            body_came(r, bytes, at - run->offset - DISK_BLOCK, to - run->offset - DISK_BLOCK);
        if (run->end > end)
            return;
        run_end(r);
    }
}

/* Processes the oldest piece. A file that ends before the piece is damaged; the disk has not
 * failed. */
static int look(struct reader *r)
{
    struct pieces *p = &r->t->pieces;
    struct piece *piece = &p->piece[r->looked % p->depth];
    uint32_t last = r->piece_last[r->looked % p->depth];

    pieces_wait(p, piece);
    r->looked++;
    r->file[piece->file].pieces--;
    r->missing = is_gone(piece->res);
    if (piece->res == -ENODATA || r->missing)
        memset(piece->memory, 0, piece->bytes);
    else if (piece->res < 0)
        return piece->res;
    else
        DISK_COUNT(r->t->disk, bytes_read, piece->bytes);
    piece_came(r, piece, last);
    return 0;
}

static int read_all(struct reader *r)
{
    int err = 0;

    while (err == 0 && !atomic_load(&r->job->stop)) {
        while (err == 0 && r->span_at < r->nspans && r->asked - r->looked < r->t->pieces.depth)
            err = ask(r);
        if (r->asked == r->looked)
            break;
        if (err == 0)
            err = look(r);
    }
    pieces_land(&r->t->pieces);
    return err;
}

void disk_read_run(struct disk_thread *t, struct read_job *job)
{
    struct reader *r = t->reader;
    int err;

    memset(job->ok, 0, sizeof job->ok);
    job->lost_file = 0;
    r->t = t;
    r->job = job;
    plan(r);
    r->span_at = r->asked = r->looked = r->run_at = 0;
    r->span_done = 0;
    run_begin(r);
    err = read_all(r);
    for (uint32_t i = 0; i < FILES_MAX; i++) {
        r->file[i].pieces = 0;
        file_close(r, &r->file[i]);
    }
    job->job.err = err < 0 ? TERN_DISK : TERN_OK;
    pthread_mutex_lock(&t->disk->lock);
    t->disk->read_failing = err < 0;
    if (t->disk->read_failing)
        t->disk->stats.error = -err;
    t->disk->stats.read_errors += err < 0 ? 1 : 0;
    t->disk->stats.extents_read += r->run_at;
    pthread_mutex_unlock(&t->disk->lock);
}
