/* Rules of the driver about copies between devices and exported memory, as the stand-in
 * (tests/standin) keeps them. A unit test checks the stand-in, tern-gpu a real driver. */
#ifndef GPU_RULES_H
#define GPU_RULES_H

#include "kernels/driver.h"

/* X(NAME, text): in the order in which they are checked. */
#define RULES_TABLE(X)                                                                             \
    X(PEER_NEEDED, "a copy from memory of another device without access to it: INVALID_VALUE")     \
    X(PEER_GIVEN, "cuMemSetAccess alone lets a device copy from memory of another one")            \
    X(PEER_ADDED, "access that another device is given leaves the own device's")                   \
    X(PEER_REFUSED, "access for a device that does not reach the memory's: INVALID_DEVICE")        \
    X(EXPORT_LIVES, "exported memory keeps its bytes when its process is killed")                  \
    X(OWN_NEEDED, "a copy from memory of the same device without access to it: INVALID_VALUE")

enum rules_name {
#define X(NAME, text) RULES_##NAME,
    RULES_TABLE(X)
#undef X
        RULES_NAMES
};

struct rules_answer {
    enum rules_word { RULES_NOT_TRIED, RULES_CONFIRMED, RULES_REFUTED } word;
    const char *seen; /* static: the driver's result */
};

const char *rules_text(enum rules_name name);
const char *rules_word(enum rules_word word);

/* Checks all rules; cuInit must have succeeded. A refuted rule may have lost a device, so the
 * program calls this last. Rules between devices are not tried if the driver shows only one.
 * exported: as from exporter_end, borrowed; -1: that rule is not tried. */
void rules_ask(const struct driver *d, int exported, struct rules_answer ret[RULES_NAMES]);

#endif
