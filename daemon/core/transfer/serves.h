/* Transfers out. */
#ifndef CORE_SERVES_H
#define CORE_SERVES_H

#include "core/arena/arena.h"

void serve_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg);
void serve_proved_quiet(struct core *c, struct serve_id serve);
void serve_sealed(struct core *c, uint32_t node);
void serve_link_down(struct core *c, uint32_t link);
void serve_end_pool(struct core *c, uint32_t pool);
bool serve_flush(struct core *c, struct actions *out, bool sealed);
uint64_t serve_deadline(const struct core *c);

#endif
