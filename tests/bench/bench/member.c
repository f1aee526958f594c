/* The engine of a benchmark: see member.h. */
#include "member.h"

#include <stdio.h>

#include "engine/profile.h"

bool member_ok(const struct engine *e, const char *what, enum tern_err err)
{
    const char *text = e->tern ? engine_why(e) : "";

    if (err != TERN_OK)
        fprintf(stderr, "tern-bench: %s: %s%s%s\n", what, tern_strerror(err), *text ? ": " : "",
                text);
    return err == TERN_OK;
}

bool member_start(struct engine *e, const char *socket, const char *name, uint32_t page_tokens,
                  uint64_t page_bytes, uint32_t pages)
{
    struct geometry g;

    geometry_plain(&g, page_tokens, page_bytes, pages);
    *e = (struct engine){.ns = {.model = "bench"}};
    return member_ok(e, socket, engine_open(e, socket, name, &g.layout, MEMBER_CALL_MS));
}
