/* See record_pages.h. Invariant: a bit of the bitmap is 1 if and only if one section of one turn
 * record has that page, and a session counts its own records' pages. The audit recounts both. */
#include "core/memory/record_pages.h"

#include <string.h>

/* Returns the first used page in [from, end); `end` if none is used. */
static uint32_t next_used(const struct core *c, const struct tenant *t, struct record_run in)
{
    uint32_t from = in.first, end = in.first + in.n;

    while (from < end) {
        uint64_t word = *record_bits(c, t->record_word + from / 64);
        uint64_t wanted = word >> from % 64;

        if (wanted) {
            from += (uint32_t)__builtin_ctzll(wanted);
            return from < end ? from : end;
        }
        from += 64 - from % 64;
    }
    return end;
}

/* Returns the number of leaves of the tenant's tree, one a word; extra ones count as free words. */
static uint32_t tree_leaves(const struct tenant *t)
{
    uint32_t words = div_up(t->record_pages, 64);

    return words > 1 ? 1u << (32 - __builtin_clz(words - 1)) : 1;
}

/* Returns a bit for each position in the word where `least` free pages in a row begin. */
static uint64_t free_in_word(uint64_t used, uint32_t least)
{
    uint64_t from = ~used;

    for (uint32_t i = 1; i < least; i++)
        from &= from >> 1;
    return from;
}

static struct record_runs word_runs(uint64_t used)
{
    uint32_t longest = 0;

    if (used == 0)
        return (struct record_runs){64, 64, 64};
    for (uint64_t from = ~used; from; from &= from >> 1)
        longest++;
    return (struct record_runs){(uint32_t)__builtin_ctzll(used), (uint32_t)__builtin_clzll(used),
                                longest};
}

struct tree_node {
    uint32_t i, span; /* pages */
};

/* Returns the lengths in free pages. */
static struct record_runs runs_of(const struct core *c, const struct tenant *t, struct tree_node n)
{
    uint32_t word = n.i - tree_leaves(t);
    const struct record_runs *r;

    if (n.span == 64)
        return word_runs(word < div_up(t->record_pages, 64) ? *record_bits(c, t->record_word + word)
                                                            : 0);
    r = record_runs(c, 2 * t->record_word + n.i);
    return (struct record_runs){n.span - r->head, n.span - r->tail, n.span - r->longest};
}

/* Updates the tree after the pages of that run have changed. */
static void tree_update(struct core *c, const struct tenant *t, struct record_run run)
{
    uint32_t first = run.first / 64 + tree_leaves(t),
             last = (run.first + run.n - 1) / 64 + tree_leaves(t);

    for (uint32_t half = 64; first > 1; half *= 2) {
        first /= 2;
        last /= 2;
        for (uint32_t i = first; i <= last; i++) {
            struct record_runs a = runs_of(c, t, (struct tree_node){2 * i, half}),
                               b = runs_of(c, t, (struct tree_node){2 * i + 1, half});
            uint32_t longest = a.longest > b.longest ? a.longest : b.longest;

            if (a.tail + b.head > longest)
                longest = a.tail + b.head;
            *record_runs(c, 2 * t->record_word + i) =
                (struct record_runs){.head = 2 * half - (a.head == half ? half + b.head : a.head),
                                     .tail = 2 * half - (b.tail == half ? half + a.tail : b.tail),
                                     .longest = 2 * half - longest};
        }
    }
}

/* Returns the start of the first run of `least` free pages, in as many looks as the tree is high;
 * NONE. */
static uint32_t first_free(const struct core *c, const struct tenant *t, uint32_t least)
{
    uint32_t i = 1, at = 0, half = 32 * tree_leaves(t);

    if (runs_of(c, t, (struct tree_node){i, 2 * half}).longest < least)
        return NONE;
    for (; half >= 64; half /= 2) {
        struct record_runs a = runs_of(c, t, (struct tree_node){2 * i, half});

        i *= 2;
        if (a.longest >= least)
            continue;
        if (a.tail + runs_of(c, t, (struct tree_node){i + 1, half}).head >= least)
            return at + half - a.tail;
        i++;
        at += half;
    }
    if (at >= t->record_pages)
        return NONE;
    return at + (uint32_t)__builtin_ctzll(
                    free_in_word(*record_bits(c, t->record_word + at / 64), least));
}

/* The first run of at least `least` free pages, cut to `most`; n is 0 if there is none. Searches
 * always start at the beginning: sections that last as long as their session, a page or a few of
 * numbers, then fill the gaps between blobs. Spread over the memory, they would cut freed blobs
 * into pieces too short for the next blobs, which are always longer. */
struct wanted {
    uint32_t least, most;
};

static struct record_run search(struct core *c, const struct tenant *t, struct wanted want)
{
    uint32_t first = first_free(c, t, want.least), most;

    c->visits++;
    if (first == NONE || first + want.least > t->record_pages)
        return (struct record_run){0, 0};
    most = t->record_pages - first < want.most ? t->record_pages - first : want.most;
    return (struct record_run){first, next_used(c, t, (struct record_run){first, most}) - first};
}

static void mark(struct core *c, const struct tenant *t, struct record_run run, bool used)
{
    for (uint32_t at = run.first, end = run.first + run.n; at < end;) {
        uint64_t *word = record_bits(c, t->record_word + at / 64);
        uint32_t n = 64 - at % 64 < end - at ? 64 - at % 64 : end - at;
        uint64_t bits = (n == 64 ? ~0ull : (1ull << n) - 1) << at % 64;

        check((*word & bits) == (used ? 0 : bits));
        *word ^= bits;
        at += n;
    }
    c->visits += run.n / 64;
    tree_update(c, t, run);
}

static bool is_blob(const struct turn_record *r, const struct record_section *section)
{
    return section != &r->body.before && section != &r->body.own;
}

static uint32_t section_pages(const struct record_section *section)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < section->nruns; i++)
        n += section->run[i].n;
    return n;
}

/* Updates the session's page counts for operators, so that a view does not walk its records. */
static void session_count(struct core *c, const struct turn_record *r,
                          const struct record_section *section, bool used)
{
    uint32_t n = section_pages(section);
    struct session *s;

    if (r->session == NONE)
        return;
    s = session_at(c, r->session);
    s->record_pages += used ? n : -n;
    if (is_blob(r, section))
        s->blob_pages += used ? n : -n;
}

/* Detaches a record, which is in no session's list, from its session. */
static void session_forget(struct core *c, struct turn_record *r)
{
    session_count(c, r, &r->body.before, false);
    session_count(c, r, &r->body.own, false);
    for (uint32_t i = 0; i < r->body.nblobs; i++)
        session_count(c, r, &r->body.blob[i].at, false);
    r->session = NONE;
}

/* Frees pages that no session counts, not yet or no longer. */
static void pages_free(struct core *c, struct turn_record *r, struct record_section *section)
{
    struct tenant *t = tenant_at(c, r->tenant);

    for (uint32_t i = 0; i < section->nruns; i++) {
        mark(c, t, section->run[i], false);
        t->record_used -= section->run[i].n;
        t->record_held -= r->state == TURN_RECORD_HELD ? section->run[i].n : 0;
        r->pages -= section->run[i].n;
    }
    *section = (struct record_section){0};
    touch(c);
}

void section_free(struct core *c, struct turn_record *r, struct record_section *section)
{
    session_count(c, r, section, false);
    pages_free(c, r, section);
}

bool section_take(struct core *c, struct turn_record *r, struct record_section *section,
                  uint64_t bytes)
{
    struct tenant *t = tenant_at(c, r->tenant);
    uint64_t pages = bytes / RECORD_PAGE_BYTES + (bytes % RECORD_PAGE_BYTES != 0);

    *section = (struct record_section){.bytes = bytes};
    if (pages > t->record_pages - t->record_used) {
        *section = (struct record_section){0};
        return false;
    }
    while (pages > 0) {
        uint32_t left = RECORD_RUNS_MAX - section->nruns, need = (uint32_t)pages;
        struct record_run run = search(c, t, (struct wanted){need, need});

        if (run.n == 0 && left > 1)
            run = search(c, t, (struct wanted){div_up(need, left), need});
        if (run.n == 0) {
            pages_free(c, r, section);
            return false;
        }
        mark(c, t, run, true);
        t->record_used += run.n;
        r->pages += run.n;
        section->run[section->nruns++] = run;
        pages -= run.n;
    }
    session_count(c, r, section, true);
    return true;
}

struct turn_record *record_take(struct core *c, struct session *s)
{
    uint32_t tenant = engine_at(c, s->engine)->tenant, slot, gen;
    struct turn_record *r;

    slot = turn_record_slot_take(c, tenant);
    r = turn_record_at(c, slot);
    gen = gen_next(r->gen);
    memset(r, 0, sizeof *r);
    r->gen = gen;
    r->tenant = tenant;
    r->session = session_slot(c, s);
    r->turn_gen = s->turn_gen;
    r->in_list = (struct list_links){.next = NONE, .prev = NONE};
    turn_record_state_move(&r->state, TURN_RECORD_PREPARED);
    s->prepared = slot;
    touch(c);
    return r;
}

/* Removes the record from its list: its session's, or that of checked records. A HELD record is in
 * its engine's list. */
static void leave(struct core *c, struct turn_record *r)
{
    uint32_t slot = turn_record_slot(c, r);

    switch (r->state) {
    case TURN_RECORD_KEPT: record_list_remove(c, &session_at(c, r->session)->records, slot); break;
    case TURN_RECORD_CHECKING:
    case TURN_RECORD_LEAVING: record_list_remove(c, &c->checks, slot); break;
    default: break;
    }
    if (r->session != NONE && session_at(c, r->session)->prepared == slot)
        session_at(c, r->session)->prepared = NONE;
}

void record_free(struct core *c, struct turn_record *r)
{
    leave(c, r);
    section_free(c, r, &r->body.before);
    section_free(c, r, &r->body.own);
    for (uint32_t i = 0; i < r->body.nblobs; i++)
        section_free(c, r, &r->body.blob[i].at);
    check(r->pages == 0);
    turn_record_state_move(&r->state, TURN_RECORD_EMPTY);
    turn_record_slot_put(c, turn_record_slot(c, r), r->tenant);
}

/* Removes the record from its list, but keeps its pages until the engine has ended: they may still
 * be used. */
static void hold(struct core *c, struct turn_record *r, struct engine *e)
{
    leave(c, r);
    session_forget(c, r);
    tenant_at(c, r->tenant)->record_held += r->pages;
    turn_record_state_move(&r->state, TURN_RECORD_HELD);
    record_list_push(c, &e->held_records, turn_record_slot(c, r));
    touch(c);
}

bool record_exposed(const struct core *c, const struct turn_record *r)
{
    return r->body.from < session_at(c, r->session)->records_exposed;
}

void record_drop(struct core *c, struct turn_record *r)
{
    if (record_exposed(c, r))
        hold(c, r, engine_at(c, session_at(c, r->session)->engine));
    else
        record_free(c, r);
}

void session_records_turn_over(struct core *c, struct session *s, bool ended)
{
    struct turn_record *r = s->prepared == NONE ? NULL : turn_record_at(c, s->prepared);

    if (!ended && s->records_lent && s->records.n > 0)
        s->records_exposed = turn_record_at(c, record_list_last(c, &s->records))->body.length;
    s->records_lent = 0;
    if (!r)
        return;
    if (r->state == TURN_RECORD_CHECKING) { /* its writer is done with it */
        turn_record_state_move(&r->state, TURN_RECORD_LEAVING);
        session_forget(c, r);
        s->prepared = NONE;
    } else if (ended) {
        record_free(c, r);
    } else {
        hold(c, r, engine_at(c, s->engine));
    }
}

bool session_record_drop(struct core *c, struct session *s)
{
    struct turn_record *r;

    if (s->records.n == 0)
        return false;
    r = turn_record_at(c, s->records.head);
    c->visits += 1 + r->pages / 64;
    record_drop(c, r);
    return true;
}

bool engine_record_drop(struct core *c, struct engine *e)
{
    struct turn_record *r;

    if (e->held_records.n == 0)
        return false;
    r = turn_record_at(c, e->held_records.head);
    c->visits += 1 + r->pages / 64;
    record_list_remove(c, &e->held_records, e->held_records.head);
    record_free(c, r);
    return true;
}
