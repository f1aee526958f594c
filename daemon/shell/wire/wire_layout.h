/* Complete layouts of pools on the wire: the fields of pages in a PoolOpen, and in messages between
 * daemons (N3). This module bounds received layouts; reshard_check_layout validates them. Called by
 * wire_in.c and link_send.c. */
#ifndef SHELL_WIRE_LAYOUT_H
#define SHELL_WIRE_LAYOUT_H

#include "base/tern_err.h"
#include "core/limits.h"
#include "proto/tern.pb-c.h"
#include "reshard/layout.h"

/* The most bytes of layouts in a message between daemons, beside tokens and pages. */
#define WIRE_LAYOUT_BYTES_MAX 16384u

/* Decodes one layout for each group. The caller sets ranks and stages, and page_tokens of a state,
 * which has none. INVALID: *ret_text (static) is the reason. */
enum tern_err wire_layout_in(Tern__Wire__Group *const *groups, size_t n, struct reshard_layout *ret,
                             const char **ret_text);

/* A hash of the fields' contents over all ranks, independent of the order of fields, axes and
 * sections and of their place in a page. Not 0. */
uint64_t wire_layout_fields(const struct reshard_layout *l, uint32_t n);

/* The parts of a message, which must live as long as the message. */
struct wire_layout {
    Tern__Wire__Group group[GROUPS_MAX], *groups[GROUPS_MAX];
    Tern__Wire__Field field[GROUPS_MAX][RESHARD_FIELDS_MAX],
        *fields[GROUPS_MAX][RESHARD_FIELDS_MAX];
    Tern__Wire__Axis axis[GROUPS_MAX][RESHARD_FIELDS_MAX][AXIS_KINDS],
        *axes[GROUPS_MAX][RESHARD_FIELDS_MAX][AXIS_KINDS];
    Tern__Wire__Section section[GROUPS_MAX][RESHARD_FIELDS_MAX][RESHARD_SECTIONS_MAX],
        *sections[GROUPS_MAX][RESHARD_FIELDS_MAX][RESHARD_SECTIONS_MAX];
};

/* `ret` borrows the names. */
void wire_layout_out(const struct reshard_layout *l, uint32_t n, struct wire_layout *ret);

#endif
