/* Leased pages, which an engine has ahead of need (E5). They are admitted as those of an Extend
 * are, all or none. An Assign moves them to a session, an Unlease frees them behind a step, and the
 * engine's end frees them; nothing else frees or moves them earlier, whatever the engine does with
 * its sessions. Invariant: a page is in its engine's list exactly while it is LEASED, and its
 * `chain` is NONE between two operations. */
#include "core/session/engines.h"

#include "core/memory/pages.h"
#include "core/session/record.h"
#include "core/session/retires.h"
#include "core/session/room.h"

static_assert(LEASE_PAGES <= TABLE_PAGES_MIN, "one answer names all pages of a lease");
static_assert(LEASE_PAGES <= BATCH_VISITS_MAX, "one step can free all pages of a lease");

/* `chain` of a page that the running operation has already named */
#define NAMED 0u

static uint32_t lease_most(const struct core *c)
{
    return c->limits.lease_pages ? c->limits.lease_pages : LEASE_PAGES;
}

static enum tern_err lease_check(const struct core *c, const struct engine *e, const struct pool *p,
                                 const struct req_page_lease *r, struct reply *ret)
{
    if (r->group >= p->ngroups || r->pages == 0)
        return refuse(ret, TERN_INVALID, "a lease needs a group of the pool and at least one page");
    if (p->group[r->group].layout.family == FAMILY_RECURRENT)
        return refuse(ret, TERN_INVALID,
                      "pages of a RECURRENT group cannot be leased: the first Extend of a turn "
                      "returns one and the page to copy into it");
    if (r->pages > lease_most(c) - e->leased_of[r->pool.slot])
        return refuse_numbers(
            ret, TERN_QUOTA,
            "this engine would have # leased pages of the pool, and may have #: assign or unlease "
            "some, ask for fewer, or raise limits.lease_pages",
            e->leased_of[r->pool.slot] + r->pages, lease_most(c));
    return TERN_OK;
}

enum tern_err page_lease(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_page_lease *r = &call->req->page_lease;
    struct engine *e = call->engine;
    uint32_t need[GROUPS_MAX] = {0};
    struct page_ref *refs;
    struct pool *p;
    enum tern_err err;

    TRY(session_pool_find(c, e, r->pool, &p, ret));
    ret->page_lease.leased = e->leased_of[r->pool.slot];
    TRY(lease_check(c, e, p, r, ret));
    need[r->group] = r->pages;
    err = pages_make_room(c, e, p, (struct page_need){need, NULL}, &ret->shortage);
    if (err != TERN_OK)
        return room_refused(ret, err,
                            "the group has too few free pages for the lease: ask for fewer, or "
                            "wait for the step that the answer names");
    /* The answer has no other runs. */
    refs = run_add(call->out, (struct table_run){.group = r->group, .n = r->pages});
    for (uint32_t i = 0; i < r->pages; i++) {
        uint32_t record = page_take(c, p, r->group, PAGE_LEASED, engine_slot(c, e));

        page_list_push(c, &e->leased, record);
        refs[i] = page_ref_of(c, record);
    }
    e->leased_of[r->pool.slot] += r->pages;
    e->leases = 1;
    ret->page_lease.leased = e->leased_of[r->pool.slot];
    return TERN_OK;
}

static enum tern_err page_named(const struct core *c, const struct engine *e, const struct pool *p,
                                const struct table_run *run, uint32_t i, struct op_result *ret)
{
    struct page *page = page_find(c, p, run->group, run->refs[i]);

    if (!page)
        return refuse_op(ret, TERN_GONE,
                         "the pool has no such page in that group: its index is wrong, or the page "
                         "was released and reused");
    if (page->state != PAGE_LEASED || page->owner != engine_slot(c, e))
        return refuse_op(
            ret, TERN_CONFLICT,
            "that page is not leased to this engine: it was already assigned, or never leased");
    if (page->chain == NAMED)
        return refuse_op(ret, TERN_CONFLICT, "the operation names a page twice");
    page->chain = NAMED;
    return TERN_OK;
}

static void forget_names(const struct core *c, const struct pool *p, const struct table_run *run,
                         uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        page_find(c, p, run->group, run->refs[i])->chain = NONE;
}

/* Marks all pages of the runs as named, or leaves none marked. */
static enum tern_err name_all(const struct core *c, const struct engine *e, const struct pool *p,
                              const struct step_op *op, struct op_result *ret)
{
    for (uint32_t r = 0; r < op->nruns; r++)
        for (uint32_t i = 0; i < op->runs[r].n; i++) {
            enum tern_err err = page_named(c, e, p, &op->runs[r], i, ret);

            if (err == TERN_OK)
                continue;
            forget_names(c, p, &op->runs[r], i);
            while (r-- > 0)
                forget_names(c, p, &op->runs[r], op->runs[r].n);
            return err;
        }
    return TERN_OK;
}

enum tern_err lease_claim(struct core *c, struct engine *e, const struct pool *p,
                          const struct step_op *op, struct list ret_pages[GROUPS_MAX],
                          struct op_result *ret)
{
    for (uint32_t r = 1; r < op->nruns; r++)
        if (op->runs[r].group <= op->runs[r - 1].group)
            return refuse_op(
                ret, TERN_INVALID,
                "the operation's runs must name groups in ascending order, each group once");
    TRY(name_all(c, e, p, op, ret));
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        ret_pages[g] = LIST_EMPTY;
    for (uint32_t r = 0; r < op->nruns; r++) {
        const struct table_run *run = &op->runs[r];

        forget_names(c, p, run, run->n);
        for (uint32_t i = 0; i < run->n; i++) {
            uint32_t record = page_slot(c, page_find(c, p, run->group, run->refs[i]));

            page_list_remove(c, &e->leased, record);
            page_list_push(c, &ret_pages[run->group], record);
        }
        e->leased_of[pool_slot(c, p)] -= run->n;
    }
    touch(c);
    return TERN_OK;
}

enum tern_err lease_return(struct core *c, struct engine *e, const struct step_op *op,
                           struct op_result *ret)
{
    struct list of[GROUPS_MAX], pages = LIST_EMPTY;
    struct reply said = {.text = NULL};
    struct pool *p;
    enum tern_err err = session_pool_find(c, e, op->pool, &p, &said);
    uint32_t n = 0;

    if (err != TERN_OK)
        return refuse_op(ret, err, said.text);
    for (uint32_t r = 0; r < op->nruns; r++)
        n += op->runs[r].n;
    if (n > GIVE_AT_ONCE_PAGES && c->visits > 0 && c->visits + n > batch_end(c))
        return refuse_op(
            ret, TERN_BUSY,
            "the operation releases too many pages for this Step: repeat it in a Step of its own");
    if (!retire_ready(c, e, op->step))
        return refuse_op(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
    TRY(lease_claim(c, e, p, op, of, ret));
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        page_list_append(c, &pages, &of[g]);
    c->visits += pages.n;
    retire_release(c, e, op->step, &pages, (struct path){NONE, 0});
    return TERN_OK;
}

bool leases_drop(struct core *c, struct engine *e, uint32_t end)
{
    for (; e->leased.n > 0 && c->visits < end; c->visits++) {
        uint32_t record = page_list_pop(c, &e->leased);

        e->leased_of[page_at(c, record)->pool]--;
        page_free(c, record);
    }
    return e->leased.n == 0;
}
