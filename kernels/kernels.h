/* Device kernels: what each does, its arguments, and how it is launched. Whoever has a driver fills
 * a struct of arguments with device addresses, calls kernels_prepare, and gives the struct, by
 * value, as the kernel's only parameter to the grid that it was told. Every kernel has a reference
 * that does the same to host memory (reference.h), and is itself compiled for the CPU, too, by the
 * tests (on_cpu.h).
 *
 * No kernel allocates, and none waits for another: what one leaves for the next (the scratch of
 * checksums) is ordered by the stream that both are launched on. Addresses are of the device that
 * runs the kernel, or of memory that it can reach. Any thread. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/strided.h"

#define KERNELS_VECTOR         16 /* bytes of the widest load */
#define KERNELS_THREADS        256
#define KERNELS_EACH           4 /* vectors that a thread loads before it stores them */
#define KERNELS_TILE           (KERNELS_THREADS * KERNELS_EACH) /* vectors of a block at a time */
#define KERNELS_GRID_MAX       (1u << 20) /* blocks; those of a longer list go round */
#define KERNELS_PAGE_BYTES_MAX (1ull << 34)
#define KERNELS_BLOCK          4096 /* bytes of a sub-block, which is hashed by itself (X7) */
#define KERNELS_HASHED         (KERNELS_THREADS / 4) /* of them that a block hashes at a time */
#define KERNELS_ROWS_MAX       ((1u << 31) - 1 - KERNELS_TILE) /* of a piece; and vectors of a row */
#define KERNELS_FP8_EACH       8     /* elements that a thread converts at a time */
#define KERNELS_UNITS_MAX      65536 /* of a page */
#define KERNELS_WORDS_MAX      512   /* that come with a launch, whose arguments take 4096 bytes */

/* X(NAME, function in the module, struct of its arguments): the table of all kernels. */
#define KERNELS_TABLE(X)                                                                           \
    X(GATHER, tern_gather, pages)   /* pages of a list to a staging buffer, packed */              \
    X(SCATTER, tern_scatter, pages) /* and back; a page that the list has twice: either of them */ \
    X(ZERO, tern_zero, pages)       /* the pages of a list become zero */                          \
    X(CHECKSUM_BLOCKS, tern_checksum_blocks,                                                       \
      checksum)                                      /* of the pages of a list, to the scratch */  \
    X(CHECKSUM_UNITS, tern_checksum_units, checksum) /* behind it: of their units (X7) */          \
    X(RESHARD, tern_reshard, reshard)   /* a plan of strided copies, over a list of spans */       \
    X(FP8_PACK, tern_fp8_pack, fp8)     /* pages of bf16 to e4m3 in a staging buffer */            \
    X(FP8_UNPACK, tern_fp8_unpack, fp8) /* and back */                                             \
    X(TELL, tern_tell, told)            /* words that came with the launch, into memory */

enum kernels_kind {
#define X(NAME, function, args) KERNELS_##NAME,
    KERNELS_TABLE(X)
#undef X
        KERNELS_KINDS
};

/* Why arguments are refused. X(NAME, text) */
#define KERNELS_REFUSAL_TABLE(X)                                                                   \
    X(NONE, "")                                                                                    \
    X(PAGE_BYTES, "the bytes of a page are none, too many, or no multiple of 16")                  \
    X(UNITS, "the units of a page are none, too many, or more than its bytes")                     \
    X(ROWS, "a piece of a plan has no rows, or too many, or rows of no bytes or too many")         \
    X(TILES, "a plan without tiles or pages, or more pieces than tiles")                           \
    X(HEADS, "heads, loops and rows of a page are none, are not all of it without gaps, or have "  \
             "rows that are no multiple of 8 elements")                                            \
    X(WORDS, "a launch brings too many words, or none")                                            \
    X(ALIGNED, "an address is not aligned: memory must begin at a multiple of 16, a list at one "  \
               "of the size of its elements")

enum kernels_refusal {
#define X(NAME, text) KERNELS_REFUSED_##NAME,
    KERNELS_REFUSAL_TABLE(X)
#undef X
        KERNELS_REFUSALS
};

const char *kernels_text(enum kernels_refusal refusal);

/* Divides numbers below 2^31 without a division. */
struct kernels_divisor {
    uint32_t by, times, shift;
};

struct kernels_divisor kernels_divide_by(uint32_t by); /* 1 <= by < 2^31 */

/* Page i of a pool lies at pool + i * page_bytes, page i of the list in a staging buffer at
 * packed + i * page_bytes. */
struct kernels_pages {
    uint64_t pool;
    uint64_t packed; /* ZERO does not look at it */
    uint64_t list;   /* of n uint32_t: page indices */
    uint64_t page_bytes;
    uint32_t n;
    struct kernels_divisor vectors; /* of a page: kernels_prepare fills it in */
};

/* The checksums of all units of the pages of a list, equal to those of the host (X7): unit k of a
 * page has an equal share of its bytes, the last one what is left over. Two kernels, one behind the
 * other. Pages may have any length and lie anywhere; those at a multiple of 16 are fast. */
struct kernels_checksum {
    uint64_t pool, list; /* as of kernels_pages */
    uint64_t page_bytes;
    uint32_t n, units;
    uint64_t blocks; /* scratch of kernels_checksum_scratch bytes: the sub-blocks' values */
    uint64_t sums;   /* of n * units uint64_t: the checksums, page by page */
    uint64_t places; /* 0, or of n uint32_t: those of page i of the list begin at
                        sums + places[i] * place_bytes instead */
    uint64_t place_bytes;
    uint32_t unit_blocks, page_blocks; /* sub-blocks of a unit but the last one, and of a page:
                                          kernels_prepare fills them in */
};

/* Bytes; 0 if it is refused. */
uint64_t kernels_checksum_scratch(const struct kernels_checksum *a);

/* A piece of a plan as the kernel takes it: kernels_piece_make makes it. Loops as in struct
 * strided. */
struct kernels_piece {
    uint64_t from_at, to_at; /* where in the page the first row begins */
    uint64_t from_stride[STRIDED_LOOPS_MAX], to_stride[STRIDED_LOOPS_MAX];
    uint32_t from_page, to_page; /* of the span's pages in the tables below */
    uint32_t width;              /* bytes of a vector: 16, 8, 4, 2 or 1 */
    uint32_t outer;              /* how often the outermost loop runs */
    struct kernels_divisor loops[STRIDED_LOOPS_MAX - 1]; /* the other loops */
    struct kernels_divisor row_vectors;
};

struct kernels_end {
    uint32_t page; /* such as page * ranks + rank of a struct reshard_end */
    uint64_t at;
};

enum kernels_refusal kernels_piece_make(const struct strided *s, const struct kernels_end *from,
                                        const struct kernels_end *to, struct kernels_piece *ret);

/* What a block copies at a time: KERNELS_TILE vectors of a piece at most. */
struct kernels_tile {
    uint32_t piece, row, column, vectors; /* row of the piece, vector of the row, how many */
};

/* All of them; returns how many there are, also where there is not room for them (NULL, 0). */
uint64_t kernels_tiles(const struct kernels_piece *pieces, uint32_t n, struct kernels_tile *ret,
                       uint64_t room);

/* The pages of span i are from_pages[i * from_width ...], each as an offset from `from`; likewise
 * `to`. An offset may come to any address of the device, since the sum wraps. All addresses of
 * pages are multiples of 16. No piece reads what another one of the launch writes: what is spread
 * is a launch of its own behind what moves, with `to` at both ends. */
struct kernels_reshard {
    uint64_t from, to;
    uint64_t from_pages, to_pages; /* of uint64_t */
    uint32_t from_width, to_width; /* pages of a span */
    uint64_t pieces, tiles;        /* of struct kernels_piece and struct kernels_tile */
    uint32_t npieces, ntiles;
    uint32_t spans;
};

/* Pages of bf16, of which a staging buffer gets e4m3: half the bytes, each element at half its
 * place in the page. A head of a page has a scale of its own. Element e of row r of head h lies at
 * h * head_stride + o * outer_stride + r * row_stride + e, all in elements, for each o: heads and
 * loops nest in any order, and are all of the page.
 *
 * The scale is the least power of two by which all finite elements come to 448 or less, so a
 * division by it is exact, and what comes back differs by at most
 * max(|x| / 16, scale / 1024); scale is below 1/224 of the largest element, or 2^-126. Infinity
 * comes back as 448 * scale or the largest finite bf16, NaN as NaN. It is lossy: nothing in Tern
 * does it unless it is asked for, and what comes back has another checksum. */
struct kernels_fp8 {
    uint64_t pool, list; /* as of kernels_pages */
    uint64_t packed;     /* page i of the list at packed + i * page_bytes / 2 */
    uint64_t scales;     /* of n * heads float: powers of two */
    uint64_t page_bytes;
    uint32_t n;
    uint32_t heads, outer, rows, row_elements;
    uint64_t head_stride, outer_stride, row_stride; /* of no meaning where there is one of it */
    struct kernels_divisor by_row, by_rows; /* vectors of 8 elements: kernels_prepare fills in */
};

/* Words for what is launched behind it in the stream, such as a list of pages: no memory of the
 * host has to stay as it is until the stream has come there. */
struct kernels_told {
    uint64_t to;
    uint32_t n;
    uint32_t word[KERNELS_WORDS_MAX];
};

union kernels_args {
    struct kernels_told told;
    struct kernels_fp8 fp8;
    struct kernels_reshard reshard;
    struct kernels_pages pages;
    struct kernels_checksum checksum;
};

struct kernels_launch {
    const char *function; /* as kernels_function has it */
    uint32_t grid, block; /* x alone. grid 0: there is nothing to do, so it is not launched */
};

/* Its name in the module. */
const char *kernels_function(enum kernels_kind kind);

/* Checks the arguments, and fills in those that it says so of. No kernel uses shared memory of the
 * launch. */
enum kernels_refusal kernels_prepare(enum kernels_kind kind, union kernels_args *io,
                                     struct kernels_launch *ret);

/* The module with all of them, for cuModuleLoadData: code for sm_80, sm_90 and sm_100, and PTX for
 * what is newer. NULL where the build had no nvcc: ask for it by its configure line. */
const void *kernels_fatbin(size_t *ret_bytes);

#endif
