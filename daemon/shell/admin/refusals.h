/* Refusals of each tenant, for operators: counts by error, and the text of the last one. The
 * dispatch of answers counts them; status reports them. Owner thread. */
#ifndef SHELL_REFUSALS_H
#define SHELL_REFUSALS_H

#include "core/query.h"

#define REFUSAL_TEXT_BYTES 256 /* longer texts are cut */

struct refusals {
    uint64_t errors[TERN_ERR_COUNT]; /* answers and operations of a Step; [TERN_OK] stays 0 */
    enum tern_err last;              /* TERN_OK: none so far */
    enum op last_op;
    char last_text[REFUSAL_TEXT_BYTES]; /* "": the error alone */
    uint64_t last_ns;
    /* Time of the last refusal of each kind; 0: none. share_ns: for the tenant's share of a table;
     * exhausted_ns: POOL_EXHAUSTED, except the disk's; quota_ns: QUOTA. */
    uint64_t share_ns[CORE_SHARES], exhausted_ns, quota_ns;
};

void refusals_note(struct refusals *refusals, const struct reply *reply, uint64_t now_ns);

#endif
