/* What a caller of libtern may not ask for, found before anything is sent; and names put into
 * messages. Used by every file that makes a request. */
#include "internal.h"

#include <string.h>
#include <unistd.h>

#include "base/err.h"

bool is_owner(const struct tern *t)
{
    return t->pid == getpid();
}

enum tern_err check_tokens(struct tern *t, const struct tern_tokens *tokens)
{
    if (!tokens || (tokens->n && !tokens->v) || (tokens->nkeys && !tokens->keys))
        return set_error(t, TERN_INVALID, "a token list that points nowhere");
    if (tokens->nkeys > WIRE_KEYS_MAX)
        return set_error(t, TERN_INVALID, "more than TERN_KEYS_MAX extra keys in one request");
    return TERN_OK;
}

enum tern_err check_step(struct tern *t, uint64_t step)
{
    if (step == 0)
        return set_error(t, TERN_INVALID,
                         "no step is named: name the last one that may touch the pages, or "
                         "TERN_STEP_NONE if nothing is in flight");
    return TERN_OK;
}

enum tern_err check_wait(struct tern *t, uint64_t step)
{
    TRY(check_step(t, step));
    if (step == TERN_STEP_NONE)
        return set_error(t, TERN_INVALID, "nothing is in flight, so there is no step to wait for");
    return TERN_OK;
}

static bool gives_back(enum client_op_kind kind)
{
    return kind != CLIENT_EXTEND && kind != CLIENT_SNAPSHOT_RELEASE;
}

enum tern_err check_op(struct tern *t, const struct client_op *op)
{
    TRY(check_tokens(t, &op->tokens));
    return gives_back(op->kind) ? check_step(t, op->step) : TERN_OK;
}

enum tern_err check_peer(struct tern *t, const char *peer)
{
    if (peer && (!peer[0] || strnlen(peer, WIRE_STRING_MAX + 1) > WIRE_STRING_MAX))
        return set_error(t, TERN_INVALID,
                         "a peer's name has 1 to 255 bytes; NULL is the pool's own host tier");
    return TERN_OK;
}

static bool ns_fits(const struct tern_namespace *ns)
{
    const char *parts[] = {ns->model, ns->revision, ns->kv_dtype, ns->lora, ns->salt};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (parts[i] && strnlen(parts[i], WIRE_STRING_MAX + 1) > WIRE_STRING_MAX)
            return false;
    }
    return true;
}

enum tern_err put_namespace(struct tern *t, const struct tern_namespace *ns,
                            Tern__Wire__Namespace *ret)
{
    if (!ns || !ns_fits(ns))
        return set_error(t, TERN_INVALID, "a namespace's parts are strings of at most 255 bytes");
    tern__wire__namespace__init(ret);
    ret->model = (char *)(uintptr_t)ns->model;
    ret->revision = (char *)(uintptr_t)ns->revision;
    ret->kv_dtype = (char *)(uintptr_t)ns->kv_dtype;
    ret->lora = (char *)(uintptr_t)ns->lora;
    ret->salt = (char *)(uintptr_t)ns->salt;
    return TERN_OK;
}
