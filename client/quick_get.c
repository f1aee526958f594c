/* Reading the answers to Match, Step, Fetch and Recover: one bounded cursor for all parsing.
 * Nothing is believed before it was checked: a length that leaves its message, a varint that does
 * not end, a field of the wrong type, a group number that an engine could not index, more runs than
 * fit: the answer is no message. */
#include "quick.h"

#include <string.h>

#include "proto/fields.h"

/* ---- Status {err 1, text 2, shortage 3} ---- */

static bool get_shortage(struct fields c, struct tern_shortage *ret)
{
    struct field f;
    int rc;

    while ((rc = fields_next(&c, &f)) > 0) {
        bool ok = true;

        switch (f.number) {
        case 1: ok = field_u32(&f, &ret->group); break;
        case 2: ok = field_u32(&f, &ret->needed); break;
        case 3: ok = field_u32(&f, &ret->free); break;
        case 4: ok = field_u32(&f, &ret->reclaimable); break;
        case 5: ok = field_u32(&f, &ret->retiring); break;
        case 6:
            ok = f.type == FIELD_VARINT;
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
    struct fields c = fields_inside(status);
    uint32_t err = TERN_OK;
    struct field f;
    int rc;

    if (status->type != FIELD_BYTES)
        return false;
    while ((rc = fields_next(&c, &f)) > 0) {
        if (f.number == 1) {
            if (!field_u32(&f, &err))
                return false;
        } else if (f.number == 2) {
            size_t n = f.v < QUICK_TEXT_MAX - 1 ? (size_t)f.v : QUICK_TEXT_MAX - 1;

            if (f.type != FIELD_BYTES)
                return false;
            memcpy(store->text, f.bytes, n);
            store->text[n] = '\0';
        } else if (f.number == 3) {
            if (f.type != FIELD_BYTES || !get_shortage(fields_inside(&f), ret_shortage))
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
    struct fields c = fields_inside(run);
    struct tern_run *out;
    struct field f;
    int rc;

    if (run->type != FIELD_BYTES || store->nruns == QUICK_RUNS_MAX)
        return false;
    out = &store->runs[store->nruns];
    *out = (struct tern_run){.pages = &store->pages[store->npages]};
    while ((rc = fields_next(&c, &f)) > 0) {
        if (f.number == 1) {
            if (!field_u32(&f, &out->group) || out->group >= TERN_GROUPS_MAX)
                return false;
        } else if (f.number == 2) {
            if (!field_u32(&f, &out->first))
                return false;
        } else if (f.number == 3) {
            if (f.type != FIELD_BYTES || f.v % sizeof(struct tern_page) || out->n ||
                f.v / sizeof(struct tern_page) > store->pages_max - store->npages)
                return false;
            out->n = (uint32_t)(f.v / sizeof(struct tern_page));
            memcpy(&store->pages[store->npages], f.bytes, f.v);
        } else if (f.number == 4) {
            if (!field_u32(&f, &out->from.index))
                return false;
        } else if (f.number == 5) {
            if (!field_u32(&f, &out->from.generation))
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
    struct fields c = fields_inside(lengths);
    struct field f;
    int rc;

    if (lengths->type != FIELD_BYTES)
        return false;
    while ((rc = fields_next(&c, &f)) > 0) {
        bool ok = true;

        switch (f.number) {
        case 1: ok = field_u32(&f, &ret->committed); break;
        case 2: ok = field_u32(&f, &ret->written); break;
        case 3: ok = field_u32(&f, &ret->allocated); break;
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

/* ---- MatchReply, FetchReply and RecoverReply differ in their numbers alone ---- */

enum part { PART_NONE = 0, STATUS, LENGTHS, TOKENS, MATCHED, RUN, HOST_DEPTH, KIB };
#define PARTS 8 /* field numbers below it */

static bool get_part(enum part part, const struct field *f, struct quick_store *store,
                     struct tern_result *ret)
{
    switch (part) {
    case STATUS: return get_status(f, store, &ret->err, &ret->shortage);
    case LENGTHS: return get_lengths(f, &ret->lengths);
    case TOKENS: return field_u32(f, &ret->tokens);
    case MATCHED: return field_u32(f, &ret->matched);
    case RUN: return add_run(f, store, ret);
    case HOST_DEPTH: return field_u32(f, &ret->host_depth);
    case KIB: return field_u32(f, &ret->fetched_kib);
    default: return true; /* a newer daemon may say more */
    }
}

static bool get_answer(const enum part parts[PARTS], const uint8_t *body, uint32_t n,
                       struct quick_store *store, struct tern_result *ret)
{
    struct fields c = {.p = body, .end = body + n};
    struct field f;
    int rc;

    store->nruns = store->npages = 0;
    *ret = (struct tern_result){.err = TERN_OK};
    while ((rc = fields_next(&c, &f)) > 0)
        if (f.number < PARTS && !get_part(parts[f.number], &f, store, ret))
            return false;
    return rc == 0;
}

bool quick_match_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                     struct tern_result *ret)
{
    static const enum part parts[PARTS] = {0, STATUS, LENGTHS, TOKENS, MATCHED, RUN, HOST_DEPTH};

    return get_answer(parts, body, n, store, ret);
}

bool quick_fetch_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                     struct tern_result *ret)
{
    static const enum part parts[PARTS] = {0, STATUS, LENGTHS, RUN, KIB};

    return get_answer(parts, body, n, store, ret);
}

bool quick_recover_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                       struct tern_result *ret)
{
    static const enum part parts[PARTS] = {0, STATUS, LENGTHS, TOKENS, RUN, KIB};

    return get_answer(parts, body, n, store, ret);
}

/* ---- StepReply {status 1, results 2: {status 1, committed 2, written 3, allocated 4, tokens 5,
 * runs 6}} ---- */

static bool get_result(const struct field *result, struct quick_store *store,
                       struct tern_result *ret)
{
    struct fields c = fields_inside(result);
    struct field f;
    int rc;

    if (result->type != FIELD_BYTES)
        return false;
    *ret = (struct tern_result){.err = TERN_OK};
    while ((rc = fields_next(&c, &f)) > 0) {
        bool ok = true;

        switch (f.number) {
        case 1: ok = get_status(&f, store, &ret->err, &ret->shortage); break;
        case 2: ok = field_u32(&f, &ret->lengths.committed); break;
        case 3: ok = field_u32(&f, &ret->lengths.written); break;
        case 4: ok = field_u32(&f, &ret->lengths.allocated); break;
        case 5: ok = field_u32(&f, &ret->tokens); break;
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
    struct fields c = {.p = body, .end = body + n};
    struct tern_shortage ignored = {0};
    enum tern_err err = TERN_OK;
    uint32_t done = 0;
    struct field f;
    int rc;

    store->nruns = store->npages = 0;
    while ((rc = fields_next(&c, &f)) > 0) {
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
