/* The full layout of the pages of one group of a pool over its ranks, which resharding must know of
 * both ends (N3). A pool has one such layout for each of its groups. It consists of numbers and
 * names, without pointers, and nothing here touches a byte of a page.
 *
 * The ranks of a pool are stages of `ranks` each: rank r of stage s is number s * ranks + r. Layers
 * are divided over the stages in equal runs, and within a stage heads or channels over its ranks. A
 * rank's page has the same shape on every rank. It consists of fields, and a field is an array: KV
 * is (layer, kv, token, head, dim, in any order of memory), a recurrent state (layer, head, dim,
 * state), a convolution state (layer, state, channel). Lengths are of the whole pool; a stride and
 * an offset are those in the page of one rank. */
#ifndef RESHARD_LAYOUT_H
#define RESHARD_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define RESHARD_RANKS_MAX         8 /* of a stage: 1, 2, 4 or 8 */
#define RESHARD_STAGES_MAX        2
#define RESHARD_FIELDS_MAX        8 /* of a page */
#define RESHARD_SECTIONS_MAX      8 /* of the channels of a field */
#define RESHARD_NAME_MAX          32
#define RESHARD_UNITS_MAX         65536      /* of a rank's page */
#define RESHARD_SPAN_PAGES_MAX    64         /* pages of one end within a page of the other */
#define RESHARD_LENGTH_MAX        (1u << 20) /* of an axis */
#define RESHARD_ELEMENT_BYTES_MAX 4096
#define RESHARD_PAGE_BYTES_MAX    (1ull << 40)
#define RESHARD_PIECES_MAX        65536 /* of a plan */

/* KV: keys, values. CHANNEL: of a convolution state, divided like heads. DIM, STATE: never
 * divided. */
enum reshard_axis_kind {
    AXIS_LAYER,
    AXIS_KV,
    AXIS_TOKEN,
    AXIS_HEAD,
    AXIS_CHANNEL,
    AXIS_DIM,
    AXIS_STATE,
    AXIS_KINDS
};

struct reshard_axis {
    enum reshard_axis_kind kind;
    uint32_t length; /* over all ranks and stages; TOKEN: of a page */
    uint64_t stride; /* bytes between neighbours in a rank's page */
};

/* A named run of channels, such as x, B and C, or q, k and v: `count` parts of `width` channels,
 * such as those of a head; a part is never split. A rank's page has the rank's parts of each
 * section, in the layout's order of sections. */
struct reshard_section {
    char name[RESHARD_NAME_MAX];
    uint32_t count, width;
};

/* DIVIDED: each rank has an equal run of the heads, or of the parts of every section. If there are
 * fewer of them than ranks, neighbouring ranks have the same one (GQA). REPLICATED: every rank of
 * the stage has all of it (MLA). */
enum reshard_over { OVER_DIVIDED, OVER_REPLICATED };

struct reshard_field {
    char name[RESHARD_NAME_MAX];
    enum reshard_over over;
    uint32_t element_bytes;
    uint64_t offset; /* of the first element in the page */
    uint32_t naxes;
    struct reshard_axis axis[AXIS_KINDS]; /* each kind at most once; not both HEAD and CHANNEL */
    uint32_t nsections;                   /* 1 or more with CHANNEL, else 0 */
    struct reshard_section section[RESHARD_SECTIONS_MAX];
};

struct reshard_layout {
    char name[RESHARD_NAME_MAX]; /* of the group */
    uint32_t ranks, stages;
    uint32_t page_tokens;  /* 0: the page is a state at one depth, and has no TOKEN axis */
    uint32_t align_tokens; /* L of the pool */
    uint32_t units;        /* checksums of a rank's page: equal shares of its bytes (X7) */
    uint64_t page_bytes;   /* of one rank */
    uint32_t nfields;
    struct reshard_field field[RESHARD_FIELDS_MAX];
};

/* Why a layout, a pair of layouts, or a check of their bytes is refused, as a text for the caller
 * of a fetch. X(NAME, text) */
#define RESHARD_REFUSAL_TABLE(X)                                                                   \
    X(NONE, "")                                                                                    \
    X(RANKS, "the ranks of a pipeline stage must be 1, 2, 4 or 8")                                 \
    X(STAGES, "the pipeline stages must be 1 or 2")                                                \
    X(PAGE_BYTES, "a page has 0 bytes, or more than 2^40")                                         \
    X(UNITS, "a page has 0 units, more than 65,536, or more units than bytes")                     \
    X(FIELDS, "a page has no fields, more than 8, or two fields of one name")                      \
    X(ELEMENT, "an element of a field has 0 bytes, or more than 4,096")                            \
    X(AXES,                                                                                        \
      "a field has no axis, an unknown one, two axes of one kind, or both heads and channels")     \
    X(LENGTH, "the length of an axis is 0, or more than 1,048,576")                                \
    X(TOKENS, "a field has no token axis of length page_tokens")                                   \
    X(NO_LAYERS, "a field without layers cannot be divided over pipeline stages")                  \
    X(LAYERS, "the number of layers is not a multiple of the number of pipeline stages")           \
    X(NO_HEADS, "a field that is divided over ranks has neither heads nor channels")               \
    X(HEADS, "neither the number of heads nor the number of ranks is a multiple of the other")     \
    X(SECTIONS, "the sections of a field are empty, more than 8, do not add up to its channels, "  \
                "or two have one name")                                                            \
    X(SECTION_DIVIDES, "neither the number of a section's parts nor the number of ranks is a "     \
                       "multiple of the other")                                                    \
    X(STRIDES, "the strides of a field let its elements overlap")                                  \
    X(BEYOND, "a field goes beyond the end of its page")                                           \
    X(OVERLAP, "two fields of a page overlap")                                                     \
    X(OTHER_GROUP, "the groups have different names")                                              \
    X(OTHER_FIELDS, "the pages have different fields")                                             \
    X(OTHER_AXES, "a field has different axes")                                                    \
    X(OTHER_ELEMENT, "a field has elements of different size")                                     \
    X(OTHER_LAYERS, "a field has a different number of layers")                                    \
    X(OTHER_HEADS, "a field has a different number of heads")                                      \
    X(OTHER_SECTIONS, "a field has different sections of channels")                                \
    X(OTHER_DIMS, "a field has different dimensions")                                              \
    X(PAGE_TOKENS, "neither of the two page_tokens is a multiple of the other")                    \
    X(ALIGN, "the pools share prefixes in chunks of different length: open both with the same "    \
             "align_tokens, a multiple of both page_tokens")                                       \
    X(SPAN_PAGES, "a page of one pool has the tokens of more than 64 pages of the other")          \
    X(PIECES, "the plan has more than 65,536 pieces: the layouts differ too much")                 \
    X(ROOM, "the caller's array is too small for the plan")                                        \
    X(UNIT_PADDED,                                                                                 \
      "a unit of the source has bytes of a field and bytes of no field: declare smaller units")    \
    X(ROWS,                                                                                        \
      "the plan has too many rows: the stretches that are contiguous in both pages are too short") \
    X(VISITS, "the plans would visit too many parts of pages: use fewer fields, sections, ranks "  \
              "or pages of a span")

enum reshard_refusal {
#define X(NAME, text) RESHARD_##NAME,
    RESHARD_REFUSAL_TABLE(X)
#undef X
        RESHARD_REFUSALS
};

const char *reshard_text(enum reshard_refusal refusal);

/* A transfer from pages of `from` to pages of `to`. */
struct reshard_pair {
    const struct reshard_layout *from, *to; /* borrowed */
};

/* Check that a layout is consistent, and that two consistent layouts have the same contents. */
enum reshard_refusal reshard_check_layout(const struct reshard_layout *l);
enum reshard_refusal reshard_check(const struct reshard_pair *pair);
/* Returns true if both are equal, and so lead to the same plans. A new layout starts as zeros. */
static inline bool reshard_same_layout(const struct reshard_layout *a,
                                       const struct reshard_layout *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

#endif
