/* Opening, mapping and closing pools. */
#ifndef CORE_POOL_REQUESTS_H
#define CORE_POOL_REQUESTS_H

#include "core/session/call.h"

void pool_zeroed(struct core *c, struct pool_id pool);
/* Takes closing pools on: their prefixes go as pins end, then their range is zeroed and given back.
 */
bool pool_flush(struct core *c, struct actions *out);

#endif
