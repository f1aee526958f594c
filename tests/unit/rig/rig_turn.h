/* Requests about turns in tests. Header only. */
#ifndef TEST_RIG_TURN_H
#define TEST_RIG_TURN_H

#include "unit/rig/rig_test.h"

/* Begins a turn of the session `id`. *ret: the turn's handle. */
static inline enum tern_err turn_begin(struct rig *rig, uint32_t conn, struct session_id id,
                                       struct session_id *ret)
{
    struct request request = {.op = OP_TURN_BEGIN, .turn_begin.session = id};
    const struct reply *r = rig_request(rig, conn, &request);

    assert_non_null(r);
    *ret = r->err == TERN_OK ? r->turn_begin.turn : (struct session_id){0, 0};
    return r->err;
}

static inline enum tern_err turn_end(struct rig *rig, uint32_t conn, struct session_id turn,
                                     uint64_t step)
{
    struct request request = {.op = OP_TURN_END, .turn_end = {.session = turn, .step = step}};
    const struct reply *r = rig_request(rig, conn, &request);

    assert_non_null(r);
    return r->err;
}

/* Returns the id of the request, which is answered later. */
static inline uint64_t session_close_asked(struct rig *rig, uint32_t conn, struct session_id id,
                                           uint64_t step)
{
    struct request request = {.op = OP_SESSION_CLOSE,
                              .session_close = {.session = id, .step = step}};

    rig_request(rig, conn, &request);
    return request.request_id;
}

/* Runs an operation of a Step by the handle `id`. */
static inline enum tern_err step_by(struct rig_session *s, struct session_id id,
                                    enum step_op_kind kind)
{
    struct session_id own = s->id;
    enum tern_err err;

    s->id = id;
    err = kind == STEP_EXTEND  ? rig_extend(s, s->len.allocated, s->len.written, NULL, 0)
          : kind == STEP_ABORT ? rig_abort(s, 0)
                               : rig_close(s, 0);
    s->id = own;
    return err;
}

/* The gate's answer, before the shell decodes a body. */
static inline enum tern_err gate_says(struct rig *rig, uint32_t conn, enum op op,
                                      struct session_id id, const char **ret_text)
{
    struct reply r = {.op = op, .conn = conn};
    enum tern_err err = core_gate(rig->core, id, &r);

    *ret_text = r.text;
    return err;
}

static inline void assert_answer(struct rig *rig, uint64_t id, enum tern_err err)
{
    assert_non_null(rig_reply_to(rig, id));
    assert_err(err, rig_reply_to(rig, id)->err);
}

static inline struct turns_view turns_of(const struct rig *rig, uint32_t tenant)
{
    struct turns_view v;

    v = core_tenant_view(rig->core, tenant).turns;
    return v;
}

#endif
