/* Finds the sessions that are in a lease. The lease keeps the lengths and the table of such a
 * session, and a call that bypasses the lease would make the lease and the daemon disagree. So such
 * a call is refused before anything is sent. The table is hashed by handle, because a batch looks
 * up each of its operations. */
#include "lease.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

/* Returns where the handle's chain begins. The low bits of handles are places in a table of the
 * daemon, and the high bits ascend. */
static uint32_t first_place(const struct tern_lease *l, tern_session s)
{
    return (uint32_t)(s * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (l->nplaces - 1);
}

uint32_t leased_places(uint32_t sessions)
{
    uint32_t n = 2;

    while (n < 2 * sessions)
        n *= 2;
    return n;
}

void leased_put(struct tern_lease *l, uint32_t at)
{
    uint32_t i = first_place(l, l->slot[at].session);

    while (l->place[i] != 0) /* at most half of the places are used */
        i = (i + 1) & (l->nplaces - 1);
    l->place[i] = at + 1;
}

void leased_again(struct tern_lease *l)
{
    memset(l->place, 0, l->nplaces * sizeof *l->place);
    for (uint32_t i = 0; i < l->nslots; i++)
        if (l->slot[i].state != LEASE_SLOT_FREE)
            leased_put(l, i);
}

/* Returns true if an operation of the session is gathered and not submitted. */
static bool is_gathered(const struct tern_lease *l, uint32_t at)
{
    const struct lease_step *s = &l->step[l->gathering];

    for (uint32_t i = 0; i < s->nops; i++)
        if (s->op[i].slot == at)
            return true;
    return false;
}

static enum tern_err check_slot(struct tern *t, const struct tern_lease *l, uint32_t at)
{
    char text[QUICK_TEXT_MAX];

    if (l->slot[at].state == LEASE_SLOT_LEAVING && is_gathered(l, at))
        return set_error(t, TERN_BUSY,
                         "the session has left its lease with operations that were not sent: call "
                         "tern_lease_submit first");
    if (l->slot[at].state == LEASE_SLOT_LEAVING)
        return TERN_OK;
    snprintf(text, sizeof text,
             "session 0x%" PRIx64 " is in a lease, as number %u: use the lease's calls for it, or "
             "call tern_lease_remove and tern_lease_submit first",
             l->slot[at].session, at);
    return set_error(t, TERN_CONFLICT, text);
}

enum tern_err check_leased(struct tern *t, tern_session s)
{
    for (const struct tern_lease *l = t->leases; l; l = l->next)
        for (uint32_t i = first_place(l, s); l->place[i] != 0; i = (i + 1) & (l->nplaces - 1))
            if (l->slot[l->place[i] - 1].session == s)
                TRY(check_slot(t, l, l->place[i] - 1));
    return TERN_OK;
}
