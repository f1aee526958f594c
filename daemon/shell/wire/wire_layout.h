/* Layouts of pools on the wire, in full: what a PoolOpen says of the fields of its pages, and what
 * daemons tell each other of theirs (N3). What comes in is bounded here, and judged by
 * reshard_check_layout. Called by wire_in.c and link_send.c. */
#ifndef SHELL_WIRE_LAYOUT_H
#define SHELL_WIRE_LAYOUT_H

#include "base/tern_err.h"
#include "core/limits.h"
#include "proto/tern.pb-c.h"
#include "reshard/layout.h"

/* What a layout may take of a message between daemons, beside tokens and pages. */
#define WIRE_LAYOUT_BYTES_MAX 16384u

/* One for each group; ranks and stages are the caller's to set, and page_tokens of a state, which
 * has none. INVALID: *ret_text (static) says what cannot be a layout. */
enum tern_err wire_layout_in(Tern__Wire__Group *const *groups, size_t n, struct reshard_layout *ret,
                             const char **ret_text);

/* What the fields hold over all ranks, whatever the order of fields, axes and sections, and however
 * they lie in a page. Not 0. */
uint64_t wire_layout_fields(const struct reshard_layout *l, uint32_t n);

/* The parts of a message; they live as long as what points to them. */
struct wire_layout {
    Tern__Wire__Group group[GROUPS_MAX], *groups[GROUPS_MAX];
    Tern__Wire__Field field[GROUPS_MAX][RESHARD_FIELDS_MAX],
        *fields[GROUPS_MAX][RESHARD_FIELDS_MAX];
    Tern__Wire__Axis axis[GROUPS_MAX][RESHARD_FIELDS_MAX][AXIS_KINDS],
        *axes[GROUPS_MAX][RESHARD_FIELDS_MAX][AXIS_KINDS];
    Tern__Wire__Section section[GROUPS_MAX][RESHARD_FIELDS_MAX][RESHARD_SECTIONS_MAX],
        *sections[GROUPS_MAX][RESHARD_FIELDS_MAX][RESHARD_SECTIONS_MAX];
};

/* Borrows the names. */
void wire_layout_out(const struct reshard_layout *l, uint32_t n, struct wire_layout *ret);

#endif
