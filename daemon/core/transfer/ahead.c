/* See ahead.h. */
#include "core/transfer/ahead.h"

#include "core/arena/refuse.h"

void ahead_cut(struct session *s, uint32_t length)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->nahead && length > 0; i++) {
        s->ahead[n] = s->ahead[i];
        if (s->ahead[n].until > length)
            s->ahead[n].until = length;
        n++;
    }
    s->nahead = n;
}

/* Is all that `a` says said by both of these together, as `io`? */
static bool joined(const struct ahead *a, struct ahead *io)
{
    if (a->group != io->group || a->until > io->until ||
        (a->until < io->until && (a->units & ~io->units) != 0))
        return false;
    io->units |= a->units;
    io->from = a->from < io->from ? a->from : io->from;
    return true;
}

void ahead_join(struct session *s, uint64_t done)
{
    uint32_t n = 0, passed = 0;

    while (passed < s->nahead && s->ahead[passed].step <= done)
        passed++;
    for (uint32_t i = 0; i < s->nahead; i++) {
        uint32_t k = i + 1;

        while (k < passed && !joined(&s->ahead[i], &s->ahead[k]))
            k++;
        if (k >= passed)
            s->ahead[n++] = s->ahead[i];
    }
    s->nahead = n;
}

static enum tern_err fits(const struct session *s, const struct group *g, const struct step_op *op,
                          struct op_result *ret)
{
    const uint32_t units = g->layout.units;

    if (g->layout.family != FAMILY_HISTORY)
        return refuse_op(ret, TERN_INVALID,
                         "only pages of HISTORY groups go ahead: STATE comes with the end");
    if (units > UNITS_EARLY_MAX)
        return refuse_op(ret, TERN_UNSUPPORTED,
                         "pages of more than 64 units go whole: open the pool with fewer, or leave "
                         "this out");
    if (op->unit_n == 0 || op->unit_first >= units || op->unit_n > units - op->unit_first)
        return refuse_op(
            ret, TERN_INVALID,
            "the pages of this group have not these units: name at least one, of those "
            "that the pool was opened with");
    if (op->length == 0 || op->length > s->allocated)
        return refuse_op(ret, TERN_INVALID,
                         "no pages are allocated up to there: extend the session first");
    if (s->nahead > 0 && op->step < s->ahead[s->nahead - 1].step)
        return refuse_op(ret, TERN_INVALID,
                         "units of it wait for a later step: say what is written in the order of "
                         "steps");
    return TERN_OK;
}

static uint64_t units_of(const struct step_op *op)
{
    uint64_t n = op->unit_n == 64 ? UINT64_MAX : (UINT64_C(1) << op->unit_n) - 1;

    return n << op->unit_first;
}

enum tern_err ahead_written(struct core *c, struct engine *e, struct session *s,
                            const struct step_op *op, struct op_result *ret)
{
    const struct pool *p = pool_at(c, s->pool);

    if (op->group >= p->ngroups)
        return refuse_op(ret, TERN_INVALID, "the pool has no such group");
    TRY(fits(s, &p->group[op->group], op, ret));
    if (s->ticket_state == TICKET_NONE)
        return TERN_OK; /* nobody can follow it */
    ahead_join(s, e->done_min);
    if (s->nahead == WRITTEN_MAX)
        return refuse_op(ret, TERN_BUSY,
                         "too many units of the session wait for their steps: leave these out, "
                         "they come with the commit");
    s->ahead[s->nahead++] = (struct ahead){
        .step = op->step, .units = units_of(op), .group = op->group, .until = op->length};
    touch(c);
    return TERN_OK;
}
