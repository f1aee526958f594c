/* The place of a section's bytes of a turn record in a rig's record memory. */
#ifndef TEST_RIG_SECTION_H
#define TEST_RIG_SECTION_H

#include <string.h>

#include "unit/rig/rig.h"

static inline uint8_t *rig_section_byte(const struct rig *rig, uint32_t tenant,
                                        const struct record_section *s, uint64_t at)
{
    uint32_t run = 0;

    if (at >= s->bytes)
        rig_fail("byte %llu of a section of %llu", (unsigned long long)at,
                 (unsigned long long)s->bytes);
    for (; at >= (uint64_t)s->run[run].n * RECORD_PAGE_BYTES; run++)
        at -= (uint64_t)s->run[run].n * RECORD_PAGE_BYTES;
    return rig->records[tenant] + (uint64_t)s->run[run].first * RECORD_PAGE_BYTES + at;
}

static inline void rig_section_put(const struct rig *rig, uint32_t tenant,
                                   const struct record_section *s, uint64_t i, uint32_t word)
{
    memcpy(rig_section_byte(rig, tenant, s, 4 * i), &word, sizeof word);
}

static inline uint32_t rig_section_word(const struct rig *rig, uint32_t tenant,
                                        const struct record_section *s, uint64_t i)
{
    uint32_t word;

    memcpy(&word, rig_section_byte(rig, tenant, s, 4 * i), sizeof word);
    return word;
}

#endif
