/* This host's daemon, by its admin socket: its status and its peers. One connection is kept; after
 * a failure the next question connects anew. A refusal keeps the connection. */
#ifndef MEMBER_LOCAL_H
#define MEMBER_LOCAL_H

#include "client/member/decide.h"
#include "tern.h"

#define LOCAL_DEADLINE_MS     1000u /* default deadline of one question */
#define LOCAL_DEADLINE_MS_MAX 60000u
#define LOCAL_PAGE_ROWS       256u /* rows of one answer: the daemon has other work */
#define LOCAL_PAGES_MAX       64u  /* pages of the list of peers */
#define LOCAL_WHY_BYTES       256u

struct local {
    const char *socket; /* borrowed */
    uint32_t deadline_ms;
    struct tern *tern; /* owned; NULL: not connected */
    bool misnamed;     /* its last answer had another name than self->name */
    char why[LOCAL_WHY_BYTES];
};

/* Each returns false if the daemon did not answer, or refused: `why` is the reason in one line
 * without quotes.
 *
 * Fills in the daemon's incarnation, health and capacity. The daemon is not healthy while it drains
 * or has an alarm of severity `error`. Returns false also if it is misnamed.
 */
bool local_status(struct local *l, struct node *self);
bool local_peers(struct local *l, struct peers *ret);
bool local_change(struct local *l, const struct change *change);
void local_end(struct local *l);

/* Reads the answer to `status` for local_status; pure. */
bool local_read_status(const json_t *status, struct node *self);

#endif
