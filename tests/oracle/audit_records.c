/* The audit of turn records: every page of record memory is in one section of one record, or free
 * (T1); records are where their states say; and the right ones have their blobs (M1). See audit.h.
 */
#include "oracle/audit.h"

struct pages_of { /* one tenant */
    uint32_t used, held;
};

struct session_pages {
    uint32_t all, blobs;
};

static void meet_page(const struct core *c, const struct tenant *t, uint8_t *seen, uint32_t page)
{
    uint32_t bit = t->record_word * 64 + page;

    if (page >= t->record_pages)
        oracle_fail("audit: T1: record page %u of %u", page, t->record_pages);
    if (seen[bit]++)
        oracle_fail("audit: T1: record page %u is in two records", page);
    if (!(*record_bits(c, bit / 64) >> bit % 64 & 1))
        oracle_fail("audit: T1: record page %u is in a record, and free", page);
}

static uint32_t audit_section(const struct core *c, const struct turn_record *r,
                              const struct record_section *s, uint8_t *seen)
{
    const struct tenant *t = tenant_at(c, r->tenant);
    uint32_t n = 0;

    if (s->nruns > RECORD_RUNS_MAX)
        oracle_fail("audit: a section of %u runs", s->nruns);
    for (uint32_t i = 0; i < s->nruns; i++)
        for (uint32_t k = 0; k < s->run[i].n; k++, n++)
            meet_page(c, t, seen, s->run[i].first + k);
    if (n != s->bytes / RECORD_PAGE_BYTES + (s->bytes % RECORD_PAGE_BYTES != 0))
        oracle_fail("audit: a section of %llu bytes in %u pages", (unsigned long long)s->bytes, n);
    return n;
}

static void audit_record(const struct core *c, const struct turn_record *r, uint8_t *seen,
                         struct pages_of *of, struct session_pages *sessions)
{
    const struct record_body *b = &r->body;
    uint32_t n = audit_section(c, r, &b->before, seen) + audit_section(c, r, &b->own, seen),
             numbers = n;

    for (uint32_t i = 0; i < b->nblobs; i++)
        n += audit_section(c, r, &b->blob[i].at, seen);
    if (r->session != NONE) {
        sessions[r->session].all += n;
        sessions[r->session].blobs += n - numbers;
    }
    if (n != r->pages)
        oracle_fail("audit: a turn record counts %u pages and has %u", r->pages, n);
    of[r->tenant].used += n;
    of[r->tenant].held += r->state == TURN_RECORD_HELD ? n : 0;
    if (r->state == TURN_RECORD_KEPT && b->before.nruns > 0)
        oracle_fail("audit: M1: a record keeps the tokens of those before it");
}

static bool stripped(const struct turn_record *r)
{
    for (uint32_t i = 0; i < r->body.nblobs; i++)
        if (!r->body.blob[i].dropped)
            return false;
    return true;
}

static bool whole(const struct turn_record *r)
{
    for (uint32_t i = 0; i < r->body.nblobs; i++)
        if (r->body.blob[i].dropped)
            return false;
    return true;
}

/* M1, M3: records that no rollback reaches have no blobs. The first one of the others may have lost
 * its blobs, before a rollback, and the last one has them. */
static uint32_t audit_list(const struct core *c, uint32_t slot, const struct session *s)
{
    uint32_t length = 0, i = 0;
    bool later = false; /* a record with blobs came before */

    if (s->state == SESSION_CLOSING && s->records.n > 0) /* a close frees them from the first on */
        length = turn_record_at(c, s->records.head)->body.from;

    for (uint32_t at = s->records.head; at != NONE && i <= s->records.n;
         at = record_list_next(c, at), i++) {
        const struct turn_record *r = turn_record_at(c, at);
        uint32_t behind = s->records.n - 1 - i + s->rolled;

        if (r->state != TURN_RECORD_KEPT || r->session != slot)
            oracle_fail("audit: turn record %u of session %u is in state %u", at, slot, r->state);
        if (r->body.from != length || r->body.length <= length)
            oracle_fail("audit: M4: a record of [%u, %u) follows %u tokens", r->body.from,
                        r->body.length, length);
        if (s->blobs_kept > 0 && behind >= s->blobs_kept
                ? !stripped(r)
                : !whole(r) && (s->blobs_kept == 0 || later || i == s->records.n - 1))
            oracle_fail("audit: M1: record %u of %u of session %u, %u rolled back, of %u blobs", i,
                        s->records.n, slot, s->rolled, r->body.nblobs);
        length = r->body.length;
        later = later || (r->body.nblobs > 0 && whole(r));
    }
    if (i != s->records.n)
        oracle_fail("audit: %u of %u records of session %u", i, s->records.n, slot);
    return i;
}

static void audit_prepared(const struct core *c, uint32_t slot, const struct session *s)
{
    const struct turn_record *r;

    if (s->prepared == NONE)
        return;
    r = turn_record_at(c, s->prepared);
    if (r->session != slot || r->turn_gen != s->turn_gen ||
        (r->state != TURN_RECORD_PREPARED && r->state != TURN_RECORD_CHECKING))
        oracle_fail("audit: M7: session %u has prepared a record in state %u", slot, r->state);
    if (s->gate != GATE_CLAIMED && s->gate != GATE_CLOSING)
        oracle_fail("audit: M7: session %u has prepared a record, and no turn", slot);
}

static void audit_counts(uint32_t slot, const struct session *s, const struct session_pages *of)
{
    if (s->record_pages != of->all || s->blob_pages != of->blobs)
        oracle_fail("audit: session %u counts %u pages of records, %u of them of blobs; its "
                    "records have %u and %u",
                    slot, s->record_pages, s->blob_pages, of->all, of->blobs);
}

/* Every bit that is 1 was met, so the number of pages in use equals the number met. */
static void audit_bits(const struct core *c, const struct pages_of *of)
{
    for (uint32_t i = 0; i < c->limits.tenants; i++) {
        const struct tenant *t = tenant_at(c, i);
        uint32_t n = 0;

        for (uint32_t w = 0; w < div_up(t->record_pages, 64); w++)
            n += (uint32_t)__builtin_popcountll(*record_bits(c, t->record_word + w));
        if (n != of[i].used || t->record_used != n || t->record_held != of[i].held)
            oracle_fail("audit: T1: tenant %u has %u record pages in use, counts %u, of which %u "
                        "are held; its records have %u and %u",
                        i, n, t->record_used, t->record_held, of[i].used, of[i].held);
    }
}

void audit_records(struct audit *a)
{
    const struct core *c = a->c;
    uint8_t *seen = audit_scratch(c->limits.record_pages ? c->limits.record_pages : 1, 1);
    struct pages_of *of = audit_scratch(c->limits.tenants, sizeof *of);
    struct session_pages *pages = audit_scratch(c->limits.sessions, sizeof *pages);
    uint32_t in[TURN_RECORD_HELD + 1] = {0}, prepared = 0;

    for (uint32_t i = 0; i < c->limits.turn_records; i++) {
        const struct turn_record *r = turn_record_at(c, i);

        in[r->state]++;
        if (r->state != TURN_RECORD_EMPTY)
            audit_record(c, r, seen, of, pages);
    }
    for (uint32_t i = 0; i < c->limits.sessions; i++) {
        const struct session *s = session_at(c, i);

        if (s->state == SESSION_EMPTY)
            continue;
        in[TURN_RECORD_KEPT] -= audit_list(c, i, s);
        audit_prepared(c, i, s);
        audit_counts(i, s, &pages[i]);
        prepared +=
            s->prepared != NONE && turn_record_at(c, s->prepared)->state == TURN_RECORD_PREPARED;
    }
    for (uint32_t i = 0; i < c->limits.engines; i++)
        if (engine_at(c, i)->state != ENGINE_EMPTY)
            in[TURN_RECORD_HELD] -= engine_at(c, i)->held_records.n;
    if (in[TURN_RECORD_KEPT] != 0 || in[TURN_RECORD_HELD] != 0 ||
        in[TURN_RECORD_PREPARED] != prepared ||
        in[TURN_RECORD_CHECKING] + in[TURN_RECORD_LEAVING] != c->checks.n ||
        in[TURN_RECORD_EMPTY] != c->free_turn_records.n)
        oracle_fail("audit: turn records are in no list, or in two");
    audit_bits(c, of);
}
