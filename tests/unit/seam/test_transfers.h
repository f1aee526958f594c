/* The generic suite of transfers: the requirements for every transport. A TRANSFER_TEST is a case
 * over TCP and the same again in memory; a new transport is one more line of the macro. */
#ifndef TEST_TRANSFERS_H
#define TEST_TRANSFERS_H

#include "unit/seam/test_pulls_rig.h"
#include "unit/seam/transport_memory.h"

static const struct transport_ops *const over_memory[] = {&memory_transport, NULL};

#define TRANSFER_TEST(name)                                                                        \
    static void name##_over(void);                                                                 \
    TEST(name)                                                                                     \
    {                                                                                              \
        rig_transports = NULL;                                                                     \
        name##_over();                                                                             \
    }                                                                                              \
    TEST(name##_in_memory)                                                                         \
    {                                                                                              \
        rig_transports = over_memory;                                                              \
        name##_over();                                                                             \
        rig_transports = NULL;                                                                     \
    }                                                                                              \
    static void name##_over(void)

#endif
