/* This host's daemon, by its admin socket: how it is, and its peers. One connection is kept; one
 * that failed is made anew by the next question. A refusal leaves it as it is. */
#ifndef MEMBER_LOCAL_H
#define MEMBER_LOCAL_H

#include "client/member/decide.h"
#include "tern.h"

#define LOCAL_DEADLINE_MS     1000u /* of one question, by default */
#define LOCAL_DEADLINE_MS_MAX 60000u
#define LOCAL_PAGE_ROWS       256u /* of one answer: the daemon has other work */
#define LOCAL_PAGES_MAX       64u  /* of the list of peers */
#define LOCAL_WHY_BYTES       256u

struct local {
    const char *socket; /* borrowed */
    uint32_t deadline_ms;
    struct tern *tern; /* owned; NULL: not connected */
    bool misnamed;     /* when it last answered it had another name than self->name */
    char why[LOCAL_WHY_BYTES];
};

/* Each is false where the daemon did not answer, or refused: `why` says the reason in one line
 * without quotes.
 *
 * Fills in what the daemon says of itself: incarnation, health and capacity. It is not healthy
 * while it drains or has an alarm of the severity `error`. False, too, where it is
 * misnamed.
 */
bool local_status(struct local *l, struct node *self);
bool local_peers(struct local *l, struct peers *ret);
bool local_change(struct local *l, const struct change *change);
void local_end(struct local *l);

/* What local_status makes of the answer to `status`; pure. */
bool local_read_status(const json_t *status, struct node *self);

#endif
