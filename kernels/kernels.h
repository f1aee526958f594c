/* Device kernels: what each does, its arguments, and how it is launched. The caller, which has a
 * driver, fills a struct of arguments with device addresses, calls kernels_prepare, and launches
 * the returned grid with the struct, by value, as the kernel's only parameter. Every kernel has a
 * reference that does the same to host memory (reference.h), and the tests also compile the kernel
 * itself for the CPU (on_cpu.h).
 *
 * No kernel allocates, and none waits for another: if a launch reads what another has written (the
 * scratch of checksums), both are in one stream, which orders them. Addresses are of the device
 * that runs the kernel, or of memory that it can reach. Any thread. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/strided.h"

#define KERNELS_VECTOR         16 /* bytes of the widest load */
#define KERNELS_THREADS        256
#define KERNELS_EACH           4 /* vectors that a thread loads before it stores them */
#define KERNELS_TILE           (KERNELS_THREADS * KERNELS_EACH) /* vectors of a block at a time */
#define KERNELS_GRID_MAX       (1u << 20) /* blocks; for a longer list each takes several tiles */
#define KERNELS_PAGE_BYTES_MAX (1ull << 34)
#define KERNELS_BLOCK          4096 /* bytes of a sub-block, which is hashed by itself (X7) */
#define KERNELS_HASHED         (KERNELS_THREADS / 4) /* sub-blocks that a block hashes at a time */
#define KERNELS_ROWS_MAX       ((1u << 31) - 1 - KERNELS_TILE) /* of a piece; vectors of a row */
#define KERNELS_FP8_EACH       8     /* elements that a thread converts at a time */
#define KERNELS_UNITS_MAX      65536 /* of a page */
#define KERNELS_WORDS_MAX      512   /* of a launch, whose arguments take 4096 bytes */

/* X(NAME, function in the module, struct of its arguments): the table of all kernels. */
#define KERNELS_TABLE(X)                                                                           \
    X(GATHER, tern_gather, pages)   /* pages of a list to a staging buffer, packed */              \
    X(SCATTER, tern_scatter, pages) /* back; for a page listed twice: either of the two copies */  \
    X(ZERO, tern_zero, pages)       /* the pages of a list become zero */                          \
    X(CHECKSUM_BLOCKS, tern_checksum_blocks,                                                       \
      checksum)                                      /* of the pages of a list, to the scratch */  \
    X(CHECKSUM_UNITS, tern_checksum_units, checksum) /* after it: of their units (X7) */           \
    X(RESHARD, tern_reshard, reshard)   /* a plan of strided copies, over a list of spans */       \
    X(FP8_PACK, tern_fp8_pack, fp8)     /* pages of bf16 to e4m3 in a staging buffer */            \
    X(FP8_UNPACK, tern_fp8_unpack, fp8) /* and back */                                             \
    X(TELL, tern_tell, told)            /* words of the launch's arguments, to memory */

enum kernels_kind {
#define X(NAME, function, args) KERNELS_##NAME,
    KERNELS_TABLE(X)
#undef X
        KERNELS_KINDS
};

/* Why arguments are refused. X(NAME, text) */
#define KERNELS_REFUSAL_TABLE(X)                                                                   \
    X(NONE, "")                                                                                    \
    X(PAGE_BYTES, "a page has 0 bytes, too many, or a number that is not a multiple of 16")        \
    X(UNITS, "a page has 0 units, too many, or more units than bytes")                             \
    X(ROWS, "a piece of a plan has no rows or too many, or its rows have 0 bytes or too many")     \
    X(TILES, "a plan has no tiles, no pages, or more pieces than tiles")                           \
    X(HEADS, "a page has no heads, loops or rows, they do not fill it without gaps, or a row is "  \
             "not a multiple of 8 elements")                                                       \
    X(WORDS, "a launch has no words, or too many")                                                 \
    X(ALIGNED, "an address is not aligned: memory must begin at a multiple of 16, and a list at "  \
               "a multiple of the size of its elements")

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
    uint64_t packed; /* not used by ZERO */
    uint64_t list;   /* of n uint32_t: page indices */
    uint64_t page_bytes;
    uint32_t n;
    struct kernels_divisor vectors; /* of a page; set by kernels_prepare */
};

/* The checksums of all units of the pages of a list, equal to those of the host (X7): unit k of a
 * page has an equal share of its bytes, the last one also the rest. Two kernels, one after the
 * other. Pages may have any length and any address; those at a multiple of 16 are fast. */
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

/* Bytes of scratch; 0 if the arguments are refused. */
uint64_t kernels_checksum_scratch(const struct kernels_checksum *a);

/* A piece of a plan in the kernel's form, made by kernels_piece_make. Loops as in struct
 * strided. */
struct kernels_piece {
    uint64_t from_at, to_at; /* where in the page the first row begins */
    uint64_t from_stride[STRIDED_LOOPS_MAX], to_stride[STRIDED_LOOPS_MAX];
    uint32_t from_page, to_page; /* of the span's pages in the tables below */
    uint32_t width;              /* bytes of a vector: 16, 8, 4, 2 or 1 */
    uint32_t outer;              /* runs of the outermost loop */
    struct kernels_divisor loops[STRIDED_LOOPS_MAX - 1]; /* the other loops */
    struct kernels_divisor row_vectors;
};

struct kernels_end {
    uint32_t page; /* such as page * ranks + rank of a struct reshard_end */
    uint64_t at;
};

enum kernels_refusal kernels_piece_make(const struct strided *s, const struct kernels_end *from,
                                        const struct kernels_end *to, struct kernels_piece *ret);

/* The unit of a block's copying: at most KERNELS_TILE vectors of a piece. */
struct kernels_tile {
    uint32_t piece, row, column, vectors; /* row of the piece, vector of the row, how many */
};

/* Makes all tiles; returns how many there are, even without room for them (NULL, 0). */
uint64_t kernels_tiles(const struct kernels_piece *pieces, uint32_t n, struct kernels_tile *ret,
                       uint64_t room);

/* The pages of span i are from_pages[i * from_width ...], each as an offset from `from`; `to_pages`
 * has offsets from `to` in the same form. The sum wraps, so an offset can reach any address of the
 * device. All addresses of pages are multiples of 16. No piece reads bytes that another piece of
 * the launch writes: so the spreads of a plan are a launch of their own after the moves, with `to`
 * at both ends. */
struct kernels_reshard {
    uint64_t from, to;
    uint64_t from_pages, to_pages; /* of uint64_t */
    uint32_t from_width, to_width; /* pages of a span */
    uint64_t pieces, tiles;        /* of struct kernels_piece and struct kernels_tile */
    uint32_t npieces, ntiles;
    uint32_t spans;
};

/* Converts pages of bf16 to e4m3 in a staging buffer: half the bytes, each element at half its
 * offset in the page. Each head of a page has its own scale. Element e of row r of head h lies at
 * h * head_stride + o * outer_stride + r * row_stride + e, all in elements, for each o: heads and
 * loops nest in any order, and cover the whole page.
 *
 * The scale is the least power of two that brings all finite elements to 448 or less, so a division
 * by it is exact, and a restored element differs by at most max(|x| / 16, scale / 1024); scale is
 * below 1/224 of the largest element, or 2^-126. Infinity is restored as 448 * scale or the largest
 * finite bf16, NaN as NaN. The conversion is lossy: nothing in Tern does it unless asked to, and
 * restored pages have another checksum. */
struct kernels_fp8 {
    uint64_t pool, list; /* as of kernels_pages */
    uint64_t packed;     /* page i of the list at packed + i * page_bytes / 2 */
    uint64_t scales;     /* of n * heads float: powers of two */
    uint64_t page_bytes;
    uint32_t n;
    uint32_t heads, outer, rows, row_elements;
    uint64_t head_stride, outer_stride, row_stride; /* unused where its count is 1 */
    struct kernels_divisor by_row, by_rows; /* vectors of 8 elements: set by kernels_prepare */
};

/* Words for a later launch in the stream, such as a list of pages: no host memory has to stay
 * unchanged until the stream has reached that launch. */
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
    const char *function; /* as returned by kernels_function */
    uint32_t grid, block; /* x alone. grid 0: nothing to do, do not launch */
};

/* The kernel's name in the module. */
const char *kernels_function(enum kernels_kind kind);

/* Checks the arguments, and sets the fields that it is documented to set. No kernel uses dynamic
 * shared memory. */
enum kernels_refusal kernels_prepare(enum kernels_kind kind, union kernels_args *io,
                                     struct kernels_launch *ret);

/* The module with all kernels, for cuModuleLoadData: code for sm_80, sm_90 and sm_100, and PTX for
 * newer devices. NULL if the build had no nvcc: ask for kernels at configure time. */
const void *kernels_fatbin(size_t *ret_bytes);

#endif
