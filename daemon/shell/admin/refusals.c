/* See refusals.h. */
#include "shell/admin/refusals.h"

#include <stdio.h>

static void note(struct refusals *refusals, enum op op, enum tern_err err, const char *text,
                 uint64_t now_ns)
{
    uint32_t table;

    if (err == TERN_OK)
        return;
    if (core_share_refusal(text, &table))
        refusals->share_ns[table] = now_ns;
    if (err == TERN_POOL_EXHAUSTED && op != OP_STORE)
        refusals->exhausted_ns = now_ns;
    if (err == TERN_QUOTA)
        refusals->quota_ns = now_ns;
    refusals->errors[err]++;
    refusals->last = err;
    refusals->last_op = op;
    snprintf(refusals->last_text, sizeof refusals->last_text, "%s", text ? text : "");
    refusals->last_ns = now_ns;
}

void refusals_note(struct refusals *refusals, const struct reply *reply, uint64_t now_ns)
{
    note(refusals, reply->op, reply->err, reply->text, now_ns);
    if (reply->op != OP_STEP || reply->err != TERN_OK)
        return;
    for (uint32_t i = 0; i < reply->step.n; i++)
        note(refusals, reply->op, reply->step.results[i].err, reply->step.results[i].text, now_ns);
}
