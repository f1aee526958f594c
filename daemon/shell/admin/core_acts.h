/* What an operator does that the core answers: evict, pin, close a session or a pool, kick an
 * engine. Each becomes one request of the core, so that a tape has it; operator.c logs it and sends
 * what comes back. */
#ifndef SHELL_CORE_ACTS_H
#define SHELL_CORE_ACTS_H

#include "core/core.h"
#include "proto/tern.pb-c.h"
#include "shell/admin/text_out.h"
#include "shell/conn/conn.h"

#define CORE_ACT_RESULT_BYTES 256

bool core_act_is(const char *command);
/* Hands the core the request that the command says. Its answer comes back as a reply of one of
 * these operations, in this call or later. INVALID, GONE: nothing was asked, and *ret_text, which
 * is borrowed until the next call, says why. */
enum tern_err core_act(struct daemon *d, const struct client_conn *c, const struct frame_header *h,
                       const Tern__Wire__Admin *m, const char **ret_text);

/* The command of such an operation; NULL: it is none. */
const char *core_act_name(enum op op);
/* What came of it, in words for the log. */
void core_act_result(const struct reply *r, char ret[CORE_ACT_RESULT_BYTES]);
/* The fields of the answer; it was carried out. */
void core_act_answer(const struct daemon *d, const struct reply *r, struct text_out *out);

#endif
