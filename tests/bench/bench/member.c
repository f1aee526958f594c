/* One engine of one process: see member.h. */
#include "member.h"

#include <stdio.h>

bool member_fails(struct member *m, const char *what, enum tern_err err)
{
    const char *text = m->tern ? tern_error_text(m->tern) : "";

    fprintf(stderr, "tern-bench: %s: %s%s%s\n", what, tern_strerror(err), *text ? ": " : "", text);
    return false;
}

bool member_start(struct member *m, const char *socket, const char *name, uint32_t page_tokens,
                  uint64_t page_bytes, uint32_t pages)
{
    uint32_t align;
    enum tern_err err;

    *m = (struct member){
        .profile = {.name = "bench",
                    .group = "kv",
                    .page_tokens = page_tokens,
                    .page_bytes = page_bytes,
                    .layers = 1,
                    .heads = 1},
        .ns = {.model = "bench"},
    };
    geometry_init(&m->geometry, &m->profile, 0, 1, pages);
    err = tern_connect(socket, MEMBER_CALL_MS, &m->tern);
    if (err != TERN_OK)
        return member_fails(m, socket, err);
    err = tern_join(m->tern, name, TERN_BOTH, 0, 1, MEMBER_CALL_MS);
    if (err == TERN_OK)
        err = tern_pool_open(m->tern, &m->geometry.layout, MEMBER_CALL_MS, &m->pool, &align);
    if (err == TERN_OK)
        err = tern_pool_map(m->tern, m->pool, MEMBER_CALL_MS, &m->map);
    return err == TERN_OK ? true : member_fails(m, "joining and opening a pool", err);
}

void member_finish(struct member *m)
{
    tern_destroy(m->tern);
    m->tern = NULL;
}

bool member_open(struct member *m, tern_session *ret)
{
    enum tern_err err = tern_session_open(m->tern, m->pool, &m->ns, MEMBER_CALL_MS, ret);

    return err == TERN_OK ? true : member_fails(m, "opening a session", err);
}

bool member_do(struct member *m, struct tern_op op, struct tern_result *ret)
{
    struct tern_result result;
    enum tern_err err = tern_do(m->tern, &op, MEMBER_CALL_MS, ret ? ret : &result);

    return err == TERN_OK ? true : member_fails(m, "an operation on a session", err);
}
