/* `ternctl tree --svg FILE`. */
#ifndef CTL_SVG_H
#define CTL_SVG_H

#include "forest.h"

struct svg_drawn {
    uint32_t cells, folded; /* folded: nodes that are drawn together for lack of room */
};

/* Draws the forest of the daemon `node` into the file; ends the program if that cannot be written.
 */
struct svg_drawn svg_write(const struct forest *f, const char *node, const char *path);

#endif
