/* What each tenant was refused, for operators: how often, by error, and the last time in words. The
 * dispatch of answers counts; status tells. Owner thread. */
#ifndef SHELL_REFUSALS_H
#define SHELL_REFUSALS_H

#include "core/query.h"

#define REFUSAL_TEXT_BYTES 256 /* longer ones are cut */

struct refusals {
    uint64_t errors[TERN_ERR_COUNT]; /* answers, and operations of a Step; [TERN_OK] stays 0 */
    enum tern_err last;              /* TERN_OK: there was none */
    enum op last_op;
    char last_text[REFUSAL_TEXT_BYTES]; /* "": the error says it all */
    uint64_t last_ns;
    /* When the last one was of its kind; 0: none was. share_ns: because of the tenant's share of a
     * table; exhausted_ns: POOL_EXHAUSTED, but for the disk's; quota_ns: QUOTA. */
    uint64_t share_ns[CORE_SHARES], exhausted_ns, quota_ns;
};

void refusals_note(struct refusals *refusals, const struct reply *reply, uint64_t now_ns);

#endif
