/* Writes a file, on a thread of the disk: gathers tokens, keys, checksums and pages into pieces of
 * staging memory, of which several are in flight at a time.
 *
 * Invariant (D3): no header is written before all bodies are durable, and the file has no name
 * before all headers are. Bytes are hashed in the staging memory, before they are encrypted there:
 * so the written bytes agree with their checksum, even if somebody writes to the page meanwhile.
 * After an error nothing of the file is left. */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "seam/disk/disk_state.h"
#include "seam/mem/checksum.h"
#include "seam/mem/mem_touch.h"

#define GATHER_BYTES (64u << 10) /* whole CHECKSUM_BLOCKs; fits a core's cache */

/* A file as a stream: `at` bytes of it were written to pieces. */
struct stream {
    struct disk_thread *t;
    const struct write_job *job;
    int file;
    uint64_t at;
    struct piece *piece; /* being filled; NULL: none */
    uint64_t sealed;     /* of the piece: all bytes before it are encrypted */
    bool sealing;        /* the bytes being put belong to an encrypted body */
};

/* The next extent's position in the arrays of the job. */
struct cursor {
    const struct page_at *page;
    const uint32_t *token;
    const struct extra_key *key;
};

static void stream_seal(struct stream *s)
{
    if (s->sealing)
        disk_crypt_update(s->t->crypt, s->piece->memory + s->sealed, s->piece->bytes - s->sealed);
    s->sealed = s->piece->bytes;
}

static void stream_send(struct stream *s)
{
    if (!s->piece)
        return;
    stream_seal(s);
    pieces_send(&s->t->pieces, s->piece, s->file, true);
    s->piece = NULL;
}

/* Returns room for the next bytes: at least one, at most the rest of the piece. */
static uint8_t *stream_room(struct stream *s, uint64_t *ret_bytes)
{
    if (!s->piece) {
        s->piece = pieces_take(&s->t->pieces);
        s->piece->offset = s->at;
        s->piece->bytes = 0;
        s->sealed = 0;
    }
    *ret_bytes = DISK_PIECE_BYTES - s->piece->bytes;
    return s->piece->memory + s->piece->bytes;
}

static void stream_put(struct stream *s, uint64_t n)
{
    s->piece->bytes += n;
    s->at += n;
    if (s->piece->bytes == DISK_PIECE_BYTES)
        stream_send(s);
}

/* `from` NULL: zeros. */
static void stream_bytes(struct stream *s, const void *from, uint64_t n)
{
    const uint8_t *at = from;

    while (n > 0) {
        uint64_t room;
        uint8_t *to = stream_room(s, &room);

        room = n < room ? n : room;
        if (at)
            memcpy(to, at, room);
        else
            memset(to, 0, room);
        at = at ? at + room : NULL;
        n -= room;
        stream_put(s, room);
    }
}

static void stream_fill_block(struct stream *s)
{
    stream_bytes(s, NULL, (DISK_BLOCK - s->at % DISK_BLOCK) % DISK_BLOCK);
}

/* Begins or ends a body: encrypts the bytes put before, if they belong to one. */
static void stream_turn(struct stream *s, bool sealing)
{
    if (s->piece)
        stream_seal(s);
    s->sealing = sealing;
}

static bool gather(const struct stream *s, uint8_t *to, const uint8_t *from, uint64_t n,
                   struct checksum *sum)
{
    if (!mem_get(s->t->disk->config.mem, to, from, n))
        return false;
    checksum_feed(sum, to, n);
    return true;
}

/* Puts one unit of a page. A block that spans two pieces is hashed in a copy. Returns false if the
 * bytes do not agree with `want`, or memory is gone. */
static bool put_unit(struct stream *s, const uint8_t *from, uint64_t bytes, uint64_t want)
{
    uint8_t across[CHECKSUM_BLOCK];
    struct checksum sum;

    checksum_begin(&sum);
    while (bytes > 0) {
        uint64_t room, n = bytes < GATHER_BYTES ? bytes : GATHER_BYTES;
        uint8_t *to = stream_room(s, &room);

        if (n > room)
            n = room - room % CHECKSUM_BLOCK;
        if (n > 0) {
            if (!gather(s, to, from, n, &sum))
                return false;
            stream_put(s, n);
        } else {
            n = bytes < CHECKSUM_BLOCK ? bytes : CHECKSUM_BLOCK;
            if (!gather(s, across, from, n, &sum))
                return false;
            stream_bytes(s, across, n);
        }
        from += n;
        bytes -= n;
    }
    return want != CHECKSUM_NONE && checksum_end(&sum) == want;
}

static bool put_page(struct stream *s, const struct page_at *page)
{
    struct mem *mem = s->t->disk->config.mem;
    const struct group_layout *g = mem_group(mem, page->pool, page->group);
    uint32_t regions = mem_place(mem, page->pool)->transfer_regions;
    const uint64_t *sums = mem_sums(mem, page->record);

    for (uint32_t r = 0; r < regions; r++) {
        const uint8_t *base = mem_page(mem, page->pool, r, page->group, page->index);

        for (uint32_t u = 0; u < g->units; u++) {
            uint64_t from, to = checksum_unit_span(g->page_bytes, g->units, u, &from);

            if (!put_unit(s, base + from, to - from, sums[r * g->units + u]))
                return false;
        }
    }
    return true;
}

/* Builds the body's beginning: tokens, keys and checksums. Returns its length in bytes. */
static uint64_t build_meta(const struct stream *s, const struct disk_extent *e,
                           const struct cursor *c)
{
    struct mem *mem = s->t->disk->config.mem;
    uint8_t *at = s->t->meta;
    uint64_t tokens = (uint64_t)e->tokens * sizeof *c->token;
    uint64_t keys = (uint64_t)e->nkeys * sizeof *c->key;

    check(disk_meta_bytes(e) <= s->t->disk->meta_bytes);
    memcpy(at, c->token, tokens);
    memset(at + tokens, 0, tokens % 8);
    at += (tokens + 7) / 8 * 8;
    memcpy(at, c->key, keys);
    at += keys;
    for (uint32_t i = 0; i < e->npages; i++) {
        uint64_t n = mem_transfer_sums(mem, s->job->write.pool, c->page[i].group) * 8ull;

        memcpy(at, mem_sums(mem, c->page[i].record), n);
        at += n;
    }
    check((uint64_t)(at - s->t->meta) == disk_meta_bytes(e)); /* the core computes the same */
    return disk_meta_bytes(e);
}

/* Builds the extent's header; its seal is in the thread's list. */
static void build_head(const struct stream *s, uint32_t i, const struct page_at *page,
                       struct disk_head *ret)
{
    const struct disk *disk = s->t->disk;
    const struct disk_extent *e = &s->job->write.extents[i];
    uint32_t pool = s->job->write.pool;
    struct disk_run *run = NULL;

    memset(ret, 0, sizeof *ret);
    ret->extent = *e;
    ret->incarnation = disk->config.incarnation;
    ret->seal = s->t->seal[i];
    for (uint32_t k = 0; k < e->npages; k++) {
        uint32_t g = page[k].group;

        if (k == 0 || g != page[k - 1].group) {
            const struct group_layout *of = mem_group(disk->config.mem, pool, g);

            check(ret->nruns < GROUPS_MAX);
            run = &ret->run[ret->nruns++];
            run->units = of->units;
            run->regions = mem_place(disk->config.mem, pool)->transfer_regions;
            run->page_bytes = of->page_bytes;
        }
        run->pages++;
    }
}

static const char *tenant_of(const struct stream *s)
{
    return s->t->disk->tenant[s->job->write.tenant];
}

/* Leaves room for the header, and puts the body. */
static enum tern_err put_extent(struct stream *s, uint32_t i, const struct cursor *c)
{
    const struct disk_extent *e = &s->job->write.extents[i];
    struct disk_seal *seal = &s->t->seal[i];
    struct disk_crypt *crypt = s->t->crypt;
    struct disk_head head;
    uint64_t n;

    check(e->place.file == s->job->write.file && e->place.offset == s->at);
    memset(seal, 0, sizeof *seal);
    stream_bytes(s, NULL, DISK_BLOCK);
    n = build_meta(s, e, c);
    if (crypt && !disk_crypt_fresh(crypt, &seal->key_id, seal->nonce))
        return TERN_DISK;
    build_head(s, i, c->page, &head);
    if (disk_check_head(&head, UINT64_MAX) != DISK_FAULT_NONE)
        return TERN_DISK; /* the format cannot describe this layout */
    if (crypt) {
        disk_put_extent(s->t->block, &head, tenant_of(s));
        disk_crypt_begin(crypt, DISK_KEY_BODIES, DISK_SEAL, seal->nonce, s->t->block,
                         DISK_ASSOCIATED);
    }
    seal->meta_sum = checksum_unit(s->t->meta, n);
    seal->list_sum = checksum_unit(s->t->meta, disk_list_bytes(e));
    stream_turn(s, crypt != NULL);
    stream_bytes(s, s->t->meta, n);
    for (uint32_t k = 0; k < e->npages; k++)
        if (!put_page(s, &c->page[k]))
            return TERN_CORRUPT;
    stream_turn(s, false);
    if (crypt && !disk_seal_end(crypt, seal->tag))
        return TERN_DISK;
    stream_fill_block(s);
    check(s->at == e->place.offset + disk_extent_bytes(e));
    return TERN_OK;
}

static struct cursor cursor_of(const struct write_job *w)
{
    return (struct cursor){w->write.pages, w->write.tokens, w->write.keys};
}

static void cursor_next(struct cursor *c, const struct disk_extent *e)
{
    c->page += e->npages;
    c->token += e->tokens;
    c->key += e->nkeys;
}

static enum tern_err put_bodies(struct stream *s)
{
    struct cursor c = cursor_of(s->job);

    stream_bytes(s, NULL, DISK_BLOCK);
    for (uint32_t i = 0; i < s->job->write.nextents && s->t->pieces.err == 0; i++) {
        TRY(put_extent(s, i, &c));
        cursor_next(&c, &s->job->write.extents[i]);
    }
    stream_send(s);
    return TERN_OK;
}

static void file_header(const struct stream *s, struct disk_file_header *ret)
{
    const struct disk_write *w = &s->job->write;

    memset(ret, 0, sizeof *ret);
    ret->file = w->file;
    ret->incarnation = s->t->disk->config.incarnation;
    ret->key_id = disk_crypt_key_id(s->t->crypt);
    strcpy(ret->tenant, tenant_of(s));
    for (uint32_t i = 0; i < w->nextents; i++)
        if (w->extents[i].served_ns > ret->served_ns)
            ret->served_ns = w->extents[i].served_ns;
}

/* Puts all headers, and the footer after the extents. */
static enum tern_err put_headers(struct stream *s)
{
    const struct disk_write *w = &s->job->write;
    struct cursor c = cursor_of(s->job);
    struct disk_file_header header;
    struct disk_footer footer;
    struct disk_head head;
    size_t n;

    file_header(s, &header);
    disk_put_file_header(s->t->block, &header);
    pieces_write_block(&s->t->pieces, s->file, 0, s->t->block);
    disk_footer_begin(&footer, s->t->footer, disk_footer_bytes_max());
    for (uint32_t i = 0; i < w->nextents; i++) {
        build_head(s, i, c.page, &head);
        disk_put_extent(s->t->block, &head, tenant_of(s));
        disk_footer_add(&footer, s->t->block, &w->extents[i], c.token, c.key);
        if (s->t->crypt && !disk_seal_extent(s->t->crypt, s->t->block))
            return TERN_DISK;
        pieces_write_block(&s->t->pieces, s->file, w->extents[i].place.offset, s->t->block);
        cursor_next(&c, &w->extents[i]);
    }
    n = disk_footer_end(&footer, (struct disk_place){w->file, s->at}, &header, s->t->crypt);
    if (n == 0)
        return TERN_DISK;
    stream_bytes(s, s->t->footer, n);
    stream_send(s);
    return TERN_OK;
}

/* POOL_EXHAUSTED: there is no room; otherwise DISK, and its errno is kept for the stats. */
static enum tern_err disk_err(struct disk *disk, int error)
{
    if (error == -ENOSPC || error == -EDQUOT)
        return TERN_POOL_EXHAUSTED;
    pthread_mutex_lock(&disk->lock);
    disk->stats.error = -error;
    pthread_mutex_unlock(&disk->lock);
    return TERN_DISK;
}

/* Waits until all pieces in flight have landed, and makes them durable. */
static enum tern_err settle(struct stream *s)
{
    int r = pieces_land(&s->t->pieces);

    if (r == 0)
        r = s->job->fault ? -s->job->fault : disk_sync_file(s->t->disk, s->file);
    return r < 0 ? disk_err(s->t->disk, r) : TERN_OK;
}

static uint64_t extents_end(const struct disk_write *w)
{
    const struct disk_extent *last = &w->extents[w->nextents - 1];

    return last->place.offset + disk_extent_bytes(last);
}

/* Checks for room before anything is written. */
static enum tern_err make_room(struct disk *disk, const struct disk_write *w)
{
    uint64_t room, needed = extents_end(w) + disk->config.headroom_bytes;
    int r = disk->files->room(disk->files->ctx, &room);

    if (r < 0)
        return disk_err(disk, r);
    pthread_mutex_lock(&disk->lock);
    disk->stats.free_bytes = room;
    disk->lacked_bytes = room < needed ? needed : 0;
    pthread_mutex_unlock(&disk->lock);
    return room < needed ? TERN_POOL_EXHAUSTED : TERN_OK;
}

static enum tern_err fill(struct stream *s)
{
    const struct disk_files *files = s->t->disk->files;
    int r = 0;

    if (s->job->fault == ENOSPC)
        r = -ENOSPC;
    else if (files->reserve)
        r = files->reserve(files->ctx, s->file, extents_end(&s->job->write));
    if (r < 0)
        return disk_err(s->t->disk, r);
    TRY(put_bodies(s));
    TRY(settle(s));
    TRY(put_headers(s));
    return settle(s);
}

/* Renames the file to its real name. Removes it again if the name is not known to be durable. */
static enum tern_err give_name(struct disk *disk, const char *from, const char *to)
{
    const struct disk_files *files = disk->files;
    int r = files->rename(files->ctx, from, to);

    if (r < 0)
        return disk_err(disk, r);
    r = disk_sync_folder(disk, to);
    if (r < 0)
        files->remove(files->ctx, to);
    return r < 0 ? disk_err(disk, r) : TERN_OK;
}

static enum tern_err write_file(struct disk_thread *t, const struct write_job *w)
{
    struct disk *disk = t->disk;
    const struct disk_files *files = disk->files;
    const char *tenant = disk->tenant[w->write.tenant];
    char from[DISK_NAME_MAX], to[DISK_NAME_MAX];
    struct stream s = {.t = t, .job = w};
    enum tern_err err;
    int r;

    if (disk_is_gone(disk) && !atomic_exchange(&disk->remake, true))
        return disk_err(disk, -ENOENT); /* the operator is notified before it is made again */
    TRY(make_room(disk, &w->write));
    disk_file_name(from, tenant, w->write.file, true);
    disk_file_name(to, tenant, w->write.file, false);
    r = files->make(files->ctx, from, &s.file);
    if (r < 0)
        return disk_err(disk, r);
    err = fill(&s);
    pieces_land(&t->pieces);
    files->close(files->ctx, s.file);
    if (err == TERN_OK)
        err = give_name(disk, from, to);
    if (err != TERN_OK)
        files->remove(files->ctx, from);
    else
        DISK_COUNT(disk, bytes_written, s.at);
    return err;
}

void disk_write_run(struct disk_thread *t, struct write_job *w)
{
    struct disk *disk = t->disk;

    w->job.err = write_file(t, w);
    pthread_mutex_lock(&disk->lock);
    disk->stats.full = w->job.err == TERN_POOL_EXHAUSTED;
    if (w->job.err == TERN_OK)
        disk->remake = disk->stats.gone = false;
    disk->stats.files_written += w->job.err == TERN_OK ? 1 : 0;
    disk->stats.write_errors += w->job.err == TERN_DISK ? 1 : 0;
    disk->stats.corrupt += w->job.err == TERN_CORRUPT ? 1 : 0;
    if (w->job.err == TERN_OK || w->job.err == TERN_DISK)
        disk->write_failing = w->job.err == TERN_DISK;
    pthread_mutex_unlock(&disk->lock);
}
