/* Counts refusals for operators: dispatch.c and request.c report them, status shows them. */
#include <stdio.h>

#include "shell/daemon.h"

/* text: NULL or "": none. */
static void note(struct refusals *refusals, enum op op, enum tern_err err, const char *text,
                 const struct shortage *s, uint64_t now_ns)
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
    refusals->last_ns = now_ns;
    snprintf(refusals->last_text, sizeof refusals->last_text, "%s", text ? text : "");
    if (err == TERN_POOL_EXHAUSTED && s->needed && (!text || !*text))
        snprintf(refusals->last_text, sizeof refusals->last_text,
                 "group %u of the pool needs %u pages, and %u are free, %u evictable and %u "
                 "retiring",
                 s->group, s->needed, s->free, s->evictable, s->retiring);
}

void refusals_note(struct refusals *refusals, const struct reply *reply, uint64_t now_ns)
{
    note(refusals, reply->op, reply->err, reply->text, &reply->shortage, now_ns);
    if (reply->op != OP_STEP || reply->err != TERN_OK)
        return;
    for (uint32_t i = 0; i < reply->step.n; i++) {
        const struct op_result *o = &reply->step.results[i];

        note(refusals, reply->op, o->err, o->text, &o->shortage, now_ns);
    }
}
