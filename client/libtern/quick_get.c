/* Reads the answers to Match, Step, Fetch and Recover with the bounded reader. An answer is invalid
 * if the reader refuses it, or if it has a group number that an engine could not index, an
 * incomplete list of pages, or more runs or pages than fit. */
#include "quick.h"

#include <string.h>

#include "base/check.h"
#include "proto/reader.h"

/* ---- Status {err 1, text 2, shortage 3, first 4, second 5, goes_on 6} ---- */

static void get_shortage(struct reader *outer, const struct field *field, struct tern_shortage *ret)
{
    struct reader r = reader_enter(outer, field);
    struct field f;

    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1: reader_u32(&r, &f, &ret->group); break;
        case 2: reader_u32(&r, &f, &ret->needed); break;
        case 3: reader_u32(&r, &f, &ret->free); break;
        case 4: reader_u32(&r, &f, &ret->evictable); break;
        case 5: reader_u32(&r, &f, &ret->retiring); break;
        case 6: reader_u64(&r, &f, &ret->until_step); break;
        default: break; /* a newer daemon may send more */
        }
    }
    reader_leave(outer, &r);
}

/* `text` has room for QUICK_TEXT_MAX. */
static void get_text(struct reader *r, const struct field *f, char *text)
{
    size_t n = f->v < QUICK_TEXT_MAX - 1 ? (size_t)f->v : QUICK_TEXT_MAX - 1;

    if (f->type != FIELD_BYTES) {
        r->failed = true;
        return;
    }
    memcpy(text, f->bytes, n);
    text[n] = '\0';
}

static void get_status(struct reader *outer, const struct field *field, char *text,
                       uint64_t numbers[2], enum tern_err *ret_err,
                       struct tern_shortage *ret_shortage, bool *ret_goes_on)
{
    struct reader r = reader_enter(outer, field);
    uint32_t err = TERN_OK, goes_on = 0;
    struct field f;

    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1: reader_u32(&r, &f, &err); break;
        case 2: get_text(&r, &f, text); break;
        case 3: get_shortage(&r, &f, ret_shortage); break;
        case 4:
        case 5: reader_u64(&r, &f, &numbers[f.number - 4]); break;
        case 6: reader_u32(&r, &f, &goes_on); break;
        default: break;
        }
    }
    reader_leave(outer, &r);
    *ret_goes_on = goes_on != 0;
    /* An error that this library does not know must not be taken for success or another error. */
    *ret_err = err < TERN_ERR_COUNT ? (enum tern_err)err : TERN_INTERNAL;
}

/* ---- Run {group 1, first 2, refs 3, from_index 4, from_generation 5}, Lengths {committed 1,
 * written 2, allocated 3} ---- */

static void get_refs(struct reader *r, const struct field *f, struct quick_store *store,
                     struct tern_run *run)
{
    if (f->type != FIELD_BYTES || f->v % sizeof(struct tern_page) || run->n ||
        f->v / sizeof(struct tern_page) >
            (store->more ? QUICK_ANSWERS_MAX : 1) * store->pages_max - store->npages) {
        r->failed = true;
        return;
    }
    run->n = (uint32_t)(f->v / sizeof(struct tern_page));
    memcpy(&store->pages[store->npages], f->bytes, f->v);
}

static void get_run(struct reader *outer, const struct field *field, struct quick_store *store,
                    struct tern_result *ret)
{
    struct reader r = reader_enter(outer, field);
    struct tern_run run = {.pages = &store->pages[store->npages]};
    struct field f;

    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1: reader_u32(&r, &f, &run.group); break;
        case 2: reader_u32(&r, &f, &run.first); break;
        case 3: get_refs(&r, &f, store, &run); break;
        case 4: reader_u32(&r, &f, &run.from.index); break;
        case 5: reader_u32(&r, &f, &run.from.generation); break;
        default: break;
        }
    }
    if (store->nruns == (store->more ? QUICK_ANSWERS_MAX : 1) * QUICK_RUNS_MAX ||
        run.group >= TERN_GROUPS_MAX || run.n > UINT32_MAX - run.first)
        r.failed = true;
    reader_leave(outer, &r);
    if (r.failed)
        return;
    store->npages += run.n;
    store->runs[store->nruns] = run;
    if (!ret->runs)
        ret->runs = &store->runs[store->nruns];
    store->nruns++;
    ret->nruns++;
}

static void get_lengths(struct reader *outer, const struct field *field, struct tern_lengths *ret)
{
    struct reader r = reader_enter(outer, field);
    struct field f;

    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1: reader_u32(&r, &f, &ret->committed); break;
        case 2: reader_u32(&r, &f, &ret->written); break;
        case 3: reader_u32(&r, &f, &ret->allocated); break;
        default: break;
        }
    }
    reader_leave(outer, &r);
}

static bool bytes_fit(struct reader *r, const struct field *f, uint32_t most)
{
    if (!f->bytes || f->v > most)
        r->failed = true;
    return !r->failed;
}

static void get_blob(struct reader *r, const struct field *f, struct quick_store *store,
                     struct tern_result *ret)
{
    if (!bytes_fit(r, f, TERN_BLOB_BYTES))
        return;
    memcpy(store->blob, f->bytes, f->v);
    ret->blob = store->blob;
    ret->blob_bytes = (uint32_t)f->v;
}

static void get_host(struct reader *r, const struct field *f, struct quick_store *store,
                     struct tern_result *ret)
{
    if (!bytes_fit(r, f, WIRE_STRING_MAX))
        return;
    memcpy(store->host, f->bytes, f->v);
    store->host[f->v] = '\0';
    ret->host = store->host;
}

/* ---- MatchReply, FetchReply and RecoverReply differ only in their field numbers ---- */

enum part {
    PART_NONE = 0,
    STATUS,
    LENGTHS,
    TOKENS,
    MATCHED,
    RUN,
    HOST_DEPTH,
    DISK_DEPTH,
    TAKEN,
    KIB,
    RETRY_MS,
    BLOB,
    HANDED,
    ARRIVING,
    HOST
};
#define PARTS 11 /* above all field numbers */

static void get_part(struct reader *r, enum part part, const struct field *f,
                     struct quick_store *store, struct tern_result *ret)
{
    switch (part) {
    case STATUS:
        get_status(r, f, store->text, store->numbers, &ret->err, &ret->shortage, &store->goes_on);
        break;
    case LENGTHS: get_lengths(r, f, &ret->lengths); break;
    case TOKENS: reader_u32(r, f, &ret->tokens); break;
    case MATCHED: reader_u32(r, f, &ret->matched); break;
    case RUN: get_run(r, f, store, ret); break;
    case HOST_DEPTH: reader_u32(r, f, &ret->host_depth); break;
    case DISK_DEPTH: reader_u32(r, f, &ret->disk_depth); break;
    case TAKEN: reader_u32(r, f, &store->taken); break;
    case KIB: reader_u32(r, f, &ret->fetched_kib); break;
    case RETRY_MS: reader_u32(r, f, &ret->retry_ms); break;
    case BLOB: get_blob(r, f, store, ret); break;
    case HANDED: reader_u32(r, f, &ret->handed); break;
    case ARRIVING: reader_u32(r, f, &ret->arriving); break;
    case HOST: get_host(r, f, store, ret); break;
    case PART_NONE: break; /* a newer daemon may send more */
    }
}

bool quick_get(uint16_t type, const uint8_t *body, uint32_t n, struct quick_store *store,
               struct tern_result *ret)
{
    static const enum part match[PARTS] = {0,   STATUS,     LENGTHS,    TOKENS, MATCHED,
                                           RUN, HOST_DEPTH, DISK_DEPTH, TAKEN};
    static const enum part fetch[PARTS] = {0,      STATUS, LENGTHS, RUN,      KIB, RETRY_MS,
                                           TOKENS, BLOB,   HANDED,  ARRIVING, HOST};
    static const enum part recover[PARTS] = {0, STATUS, LENGTHS, TOKENS, RUN, KIB};
    static const enum part status_alone[PARTS] = {0, STATUS};
    const enum part *parts = type == FRAME_MATCH_REPLY            ? match
                             : type == FRAME_FETCH_REPLY          ? fetch
                             : type == FRAME_FETCH_WAIT_REPLY     ? fetch
                             : type == FRAME_WAIT_PUBLISHED_REPLY ? status_alone
                                                                  : recover;
    struct reader r = reader_of(body, n);
    struct field f;

    check(parts != recover || type == FRAME_RECOVER_REPLY);
    store->nruns = store->npages = store->taken = 0;
    store->numbers[0] = store->numbers[1] = 0;
    *ret = (struct tern_result){.err = TERN_OK};
    while (reader_next(&r, &f))
        get_part(&r, f.number < PARTS ? parts[f.number] : PART_NONE, &f, store, ret);
    return reader_ok(&r);
}

/* ---- StepReply {status 1, results 2: {status 1, committed 2, written 3, allocated 4, tokens 5,
 * runs 6, align 7}} ---- */

/* Returns the offset of the kept text; 0: it is empty, or there is no room. */
static uint32_t keep_text(struct quick_store *store, const char *text, const uint64_t numbers[2])
{
    size_t n = strlen(text) + 1;
    uint32_t at = store->texts_end;

    if (n == 1 || n + QUICK_NUMBERS_BYTES > QUICK_TEXTS_MAX - at)
        return 0;
    memcpy(store->texts + at, text, n);
    memcpy(store->texts + at + n, numbers, QUICK_NUMBERS_BYTES);
    store->texts_end += (uint32_t)(n + QUICK_NUMBERS_BYTES);
    return at;
}

void quick_numbers(const struct quick_store *store, uint32_t i, uint64_t ret[2])
{
    const char *text = store->texts + store->text_at[i];

    ret[0] = ret[1] = 0;
    if (store->text_at[i])
        memcpy(ret, text + strlen(text) + 1, QUICK_NUMBERS_BYTES);
}

static void get_result(struct reader *outer, const struct field *field, struct quick_store *store,
                       struct tern_result *ret, uint32_t *ret_text_at)
{
    struct reader r = reader_enter(outer, field);
    char text[QUICK_TEXT_MAX];
    uint64_t numbers[2] = {0, 0};
    struct field f;

    text[0] = '\0';
    store->goes_on = false;
    *ret = (struct tern_result){.err = TERN_OK};
    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1:
            get_status(&r, &f, text, numbers, &ret->err, &ret->shortage, &store->goes_on);
            break;
        case 2: reader_u32(&r, &f, &ret->lengths.committed); break;
        case 3: reader_u32(&r, &f, &ret->lengths.written); break;
        case 4: reader_u32(&r, &f, &ret->lengths.allocated); break;
        case 5: reader_u32(&r, &f, &ret->tokens); break;
        case 6: get_run(&r, &f, store, ret); break;
        case 7: reader_u32(&r, &f, &ret->align); break;
        default: break;
        }
    }
    reader_leave(outer, &r);
    *ret_text_at = keep_text(store, text, numbers);
}

bool quick_step_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                    struct tern_result *ret, uint32_t max, uint32_t *ret_done,
                    enum tern_err *ret_err)
{
    struct reader r = reader_of(body, n);
    struct tern_shortage ignored = {0};
    enum tern_err err = TERN_OK;
    uint32_t done = 0;
    struct field f;

    if (!store->more) {
        store->nruns = store->npages = 0;
        store->texts[0] = '\0';
        store->texts_end = 1;
    }
    store->numbers[0] = store->numbers[1] = 0;
    while (reader_next(&r, &f)) {
        if (f.number == 1)
            get_status(&r, &f, store->text, store->numbers, &err, &ignored, &store->goes_on);
        else if (f.number == 2 && done == max)
            r.failed = true;
        else if (f.number == 2) {
            const uint32_t at = store->at + done++;

            get_result(&r, &f, store, &ret[at], &store->text_at[at]);
        }
    }
    if (!reader_ok(&r))
        return false;
    *ret_done = done;
    *ret_err = err;
    return true;
}
