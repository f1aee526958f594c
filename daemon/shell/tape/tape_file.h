/* The head of a tape file. A tape can be read on the machine type that wrote it and by the same
 * build of the core; `version` and `limits_bytes` refuse others. Internal to tape*.c. */
#ifndef SHELL_TAPE_FILE_H
#define SHELL_TAPE_FILE_H

#include <assert.h>

#include "core/core.h"

#define TAPE_MAGIC       0x455041544e524554u /* "TERNTAPE" */
#define TAPE_COMPLETE    1u
#define TAPE_TOKENS_KEPT 2u

struct tape_file_head {
    uint64_t magic;
    uint32_t version, flags;
    uint32_t limits_bytes, tenants; /* configurations that follow the head */
    uint64_t incarnation, first, events;
    struct core_limits limits;
};

static_assert(sizeof(struct tape_file_head) % 8 == 0, "records behind it are aligned");
static_assert(sizeof(struct tenant_config) == 48,
              "records behind it are aligned, and nothing undefined is written");

#endif
