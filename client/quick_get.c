/* Reading the answers to Match, Step, Fetch and Recover: one bounded cursor for all parsing.
 * Nothing is believed before it was checked: a length that leaves its message, a varint that does
 * not end, a field of the wrong type, a group number that an engine could not index, more runs than
 * fit: the answer is no message. */
#include "quick.h"

#include <string.h>

struct cursor {
    const uint8_t *p, *end;
};

enum field_type {
    VARINT = 0,
    FIXED64 = 1,
    BYTES = 2,
    FIXED32 = 5,
};

struct field {
    uint32_t number;
    enum field_type type;
    uint64_t v;           /* VARINT, FIXED64, FIXED32: the value. BYTES: their number */
    const uint8_t *bytes; /* BYTES: borrowed from the body */
};

static bool get_varint(struct cursor *c, uint64_t *ret)
{
    uint64_t v = 0;

    if (c->p < c->end && *c->p < 0x80) {
        *ret = *c->p++;
        return true;
    }
    for (uint32_t shift = 0; shift < 64 && c->p < c->end; shift += 7) {
        uint8_t b = *c->p++;

        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *ret = v;
            return true;
        }
    }
    return false;
}

static bool get_fixed(struct cursor *c, size_t n, uint64_t *ret)
{
    if ((size_t)(c->end - c->p) < n)
        return false;
    *ret = 0;
    memcpy(ret, c->p, n);
    c->p += n;
    return true;
}

/* 1: a field; 0: the message ended; -1: it is none. */
static int get_field(struct cursor *c, struct field *f)
{
    uint64_t tag;
    bool ok;

    if (c->p == c->end)
        return 0;
    if (!get_varint(c, &tag) || tag >> 3 == 0 || tag > UINT32_MAX)
        return -1;
    f->number = (uint32_t)(tag >> 3);
    f->type = (enum field_type)(tag & 7);
    f->bytes = c->p;
    switch (f->type) {
    case VARINT: ok = get_varint(c, &f->v); break;
    case FIXED64: ok = get_fixed(c, 8, &f->v); break;
    case FIXED32: ok = get_fixed(c, 4, &f->v); break;
    case BYTES:
        ok = get_varint(c, &f->v) && f->v <= (uint64_t)(c->end - c->p);
        if (ok) {
            f->bytes = c->p;
            c->p += f->v;
        }
        break;
    default: ok = false; break;
    }
    return ok ? 1 : -1;
}

/* Empty for a field that is no message; who reads it refuses the type. */
static struct cursor inside(const struct field *f)
{
    return (struct cursor){.p = f->bytes, .end = f->bytes + (f->type == BYTES ? f->v : 0)};
}

static bool take_u32(const struct field *f, uint32_t *ret)
{
    if (f->type != VARINT || f->v > UINT32_MAX)
        return false;
    *ret = (uint32_t)f->v;
    return true;
}

/* ---- Status {err 1, text 2, shortage 3} ---- */

static bool get_shortage(struct cursor c, struct tern_shortage *ret)
{
    struct field f;
    int rc;

    while ((rc = get_field(&c, &f)) > 0) {
        bool ok = true;

        switch (f.number) {
        case 1: ok = take_u32(&f, &ret->group); break;
        case 2: ok = take_u32(&f, &ret->needed); break;
        case 3: ok = take_u32(&f, &ret->free); break;
        case 4: ok = take_u32(&f, &ret->reclaimable); break;
        case 5: ok = take_u32(&f, &ret->retiring); break;
        case 6:
            ok = f.type == VARINT;
            ret->until_step = f.v;
            break;
        default: break; /* a newer daemon may say more */
        }
        if (!ok)
            return false;
    }
    return rc == 0;
}

static bool get_status(const struct field *status, struct quick_store *store,
                       enum tern_err *ret_err, struct tern_shortage *ret_shortage)
{
    struct cursor c = inside(status);
    uint32_t err = TERN_OK;
    struct field f;
    int rc;

    if (status->type != BYTES)
        return false;
    while ((rc = get_field(&c, &f)) > 0) {
        if (f.number == 1) {
            if (!take_u32(&f, &err))
                return false;
        } else if (f.number == 2) {
            size_t n = f.v < QUICK_TEXT_MAX - 1 ? (size_t)f.v : QUICK_TEXT_MAX - 1;

            if (f.type != BYTES)
                return false;
            memcpy(store->text, f.bytes, n);
            store->text[n] = '\0';
        } else if (f.number == 3) {
            if (f.type != BYTES || !get_shortage(inside(&f), ret_shortage))
                return false;
        }
    }
    /* An error that this library does not know is still one: it must not be taken for anything
     * else. */
    *ret_err = err < TERN_ERR_COUNT ? (enum tern_err)err : TERN_INTERNAL;
    return rc == 0;
}

/* ---- Run {group 1, first 2, refs 3, from_index 4, from_generation 5}, Lengths {committed 1,
 * written 2, allocated 3} ---- */

static bool get_run(const struct field *run, struct quick_store *store)
{
    struct cursor c = inside(run);
    struct tern_run *out;
    struct field f;
    int rc;

    if (run->type != BYTES || store->nruns == QUICK_RUNS_MAX)
        return false;
    out = &store->runs[store->nruns];
    *out = (struct tern_run){.pages = &store->pages[store->npages]};
    while ((rc = get_field(&c, &f)) > 0) {
        if (f.number == 1) {
            if (!take_u32(&f, &out->group) || out->group >= TERN_GROUPS_MAX)
                return false;
        } else if (f.number == 2) {
            if (!take_u32(&f, &out->first))
                return false;
        } else if (f.number == 3) {
            if (f.type != BYTES || f.v % sizeof(struct tern_page) || out->n ||
                f.v / sizeof(struct tern_page) > store->pages_max - store->npages)
                return false;
            out->n = (uint32_t)(f.v / sizeof(struct tern_page));
            memcpy(&store->pages[store->npages], f.bytes, f.v);
        } else if (f.number == 4) {
            if (!take_u32(&f, &out->from.index))
                return false;
        } else if (f.number == 5) {
            if (!take_u32(&f, &out->from.generation))
                return false;
        }
    }
    if (rc < 0 || out->n > UINT32_MAX - out->first)
        return false;
    store->npages += out->n;
    store->nruns++;
    return true;
}

static bool get_lengths(const struct field *lengths, struct tern_lengths *ret)
{
    struct cursor c = inside(lengths);
    struct field f;
    int rc;

    if (lengths->type != BYTES)
        return false;
    while ((rc = get_field(&c, &f)) > 0) {
        bool ok = true;

        switch (f.number) {
        case 1: ok = take_u32(&f, &ret->committed); break;
        case 2: ok = take_u32(&f, &ret->written); break;
        case 3: ok = take_u32(&f, &ret->allocated); break;
        default: break;
        }
        if (!ok)
            return false;
    }
    return rc == 0;
}

static bool add_run(const struct field *f, struct quick_store *store, struct tern_result *ret)
{
    if (!get_run(f, store))
        return false;
    if (!ret->runs)
        ret->runs = &store->runs[store->nruns - 1];
    ret->nruns++;
    return true;
}

/* ---- MatchReply {status 1, lengths 2, tokens 3, matched 4, runs 5, host_depth 6} ---- */

bool quick_match_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                     struct tern_result *ret)
{
    struct cursor c = {.p = body, .end = body + n};
    struct field f;
    int rc;

    store->nruns = store->npages = 0;
    *ret = (struct tern_result){.err = TERN_OK};
    while ((rc = get_field(&c, &f)) > 0) {
        bool ok = true;

        switch (f.number) {
        case 1: ok = get_status(&f, store, &ret->err, &ret->shortage); break;
        case 2: ok = get_lengths(&f, &ret->lengths); break;
        case 3: ok = take_u32(&f, &ret->tokens); break;
        case 4: ok = take_u32(&f, &ret->matched); break;
        case 5: ok = add_run(&f, store, ret); break;
        case 6: ok = take_u32(&f, &ret->host_depth); break;
        default: break;
        }
        if (!ok)
            return false;
    }
    return rc == 0;
}

/* ---- FetchReply {status 1, lengths 2, runs 3, kib 4} ---- */

bool quick_fetch_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                     struct tern_result *ret)
{
    struct cursor c = {.p = body, .end = body + n};
    struct field f;
    int rc;

    store->nruns = store->npages = 0;
    *ret = (struct tern_result){.err = TERN_OK};
    while ((rc = get_field(&c, &f)) > 0) {
        bool ok = true;

        switch (f.number) {
        case 1: ok = get_status(&f, store, &ret->err, &ret->shortage); break;
        case 2: ok = get_lengths(&f, &ret->lengths); break;
        case 3: ok = add_run(&f, store, ret); break;
        case 4: ok = take_u32(&f, &ret->fetched_kib); break;
        default: break;
        }
        if (!ok)
            return false;
    }
    return rc == 0;
}

/* ---- RecoverReply {status 1, lengths 2, tokens 3, runs 4, kib 5} ---- */

bool quick_recover_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                       struct tern_result *ret)
{
    struct cursor c = {.p = body, .end = body + n};
    struct field f;
    int rc;

    store->nruns = store->npages = 0;
    *ret = (struct tern_result){.err = TERN_OK};
    while ((rc = get_field(&c, &f)) > 0) {
        bool ok = true;

        switch (f.number) {
        case 1: ok = get_status(&f, store, &ret->err, &ret->shortage); break;
        case 2: ok = get_lengths(&f, &ret->lengths); break;
        case 3: ok = take_u32(&f, &ret->tokens); break;
        case 4: ok = add_run(&f, store, ret); break;
        case 5: ok = take_u32(&f, &ret->fetched_kib); break;
        default: break;
        }
        if (!ok)
            return false;
    }
    return rc == 0;
}

/* ---- StepReply {status 1, results 2: {status 1, committed 2, written 3, allocated 4, tokens 5,
 * runs 6}} ---- */

static bool get_result(const struct field *result, struct quick_store *store,
                       struct tern_result *ret)
{
    struct cursor c = inside(result);
    struct field f;
    int rc;

    if (result->type != BYTES)
        return false;
    *ret = (struct tern_result){.err = TERN_OK};
    while ((rc = get_field(&c, &f)) > 0) {
        bool ok = true;

        switch (f.number) {
        case 1: ok = get_status(&f, store, &ret->err, &ret->shortage); break;
        case 2: ok = take_u32(&f, &ret->lengths.committed); break;
        case 3: ok = take_u32(&f, &ret->lengths.written); break;
        case 4: ok = take_u32(&f, &ret->lengths.allocated); break;
        case 5: ok = take_u32(&f, &ret->tokens); break;
        case 6: ok = add_run(&f, store, ret); break;
        default: break;
        }
        if (!ok)
            return false;
    }
    return rc == 0;
}

bool quick_step_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                    struct tern_result *ret, uint32_t max, uint32_t *ret_done,
                    enum tern_err *ret_err)
{
    struct cursor c = {.p = body, .end = body + n};
    struct tern_shortage ignored = {0};
    enum tern_err err = TERN_OK;
    uint32_t done = 0;
    struct field f;
    int rc;

    store->nruns = store->npages = 0;
    while ((rc = get_field(&c, &f)) > 0) {
        if (f.number == 1 && !get_status(&f, store, &err, &ignored))
            return false;
        if (f.number == 2) {
            if (done == max || !get_result(&f, store, &ret[done]))
                return false;
            done++;
        }
    }
    if (rc < 0)
        return false;
    *ret_done = done;
    *ret_err = err;
    return true;
}
