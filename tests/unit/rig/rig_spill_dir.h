/* A disk tier on a directory of its own, over a real struct mem: four pools of two groups, files
 * that are made of their pages, and the events of the disk. Pool 0 (tenant 0) has two regions that
 * transfers carry, pool 1 (tenant 0) is another one of its layout, pools 2 and 3 (tenant 1) have
 * two regions with equal contents. */
#ifndef TEST_RIG_SPILL_DIR_H
#define TEST_RIG_SPILL_DIR_H

#include <stdint.h>

#include "seam/disk/disk.h"
#include "unit/rig/rig_mem.h"

#define RIG_SPILL_GROUPS  2u
#define RIG_SPILL_PAGES   24u /* of a group in a pool */
#define RIG_SPILL_EXTENTS 8u
#define RIG_SPILL_ALIGN   64u
#define RIG_SPILL_EVENTS  256u
#define RIG_SPILL_PATH    160 /* bytes of a file's path */
#define RIG_SPILL_ALL(n)  ((1ull << (n)) - 1)

struct rig_spill {
    struct mem *mem;
    struct disk *disk;
    struct disk_config config; /* of the next rig_spill_open */
    char dir[64];
    struct event got[RIG_SPILL_EVENTS];
    uint32_t ngot;
};

/* A file, with the arrays of its disk_write, and the place of each of its pages. */
struct rig_file {
    struct disk_write write;
    struct disk_extent extent[RIG_SPILL_EXTENTS];
    struct page_at page[4 * RIG_SPILL_PAGES];
    uint32_t token[RIG_SPILL_EXTENTS * RIG_SPILL_ALIGN];
    struct extra_key key[RIG_SPILL_EXTENTS];
    struct disk_page place[4 * RIG_SPILL_PAGES];
};

/* `below`: the parent of the directory; NULL: /tmp. */
void rig_spill_init(struct rig_spill *r, const char *below);
enum tern_err rig_spill_open(struct rig_spill *r); /* with r->config */
void rig_spill_close(struct rig_spill *r);
/* Below /tmp, with pages in pools 0 and 2. Skips the case if this machine cannot encrypt. */
void rig_spill_start(struct rig_spill *r, bool encrypt);
void rig_spill_reopen(struct rig_spill *r); /* another daemon */
struct disk_stats rig_spill_stats(const struct rig_spill *r);
void rig_spill_finish(struct rig_spill *r); /* removes the directory, too */

/* Fills all pages of a pool with numbers that depend on `seed`, and seals them. */
void rig_spill_fill(struct rig_spill *r, uint32_t pool, uint64_t seed);
void rig_spill_clear(struct rig_spill *r, uint32_t pool); /* zeros, without checksums */
struct page_at rig_spill_page(uint32_t pool, uint32_t group, uint32_t index);
/* Returns true if the two pages have equal bytes in all regions, and equal checksums. */
bool rig_spill_same(struct rig_spill *r, uint32_t pool, const struct page_at *page, uint32_t other,
                    const struct page_at *of);

/* An empty file; rig_file_add adds extents, of consecutive pages in each group. */
void rig_file_begin(struct rig_file *f, uint32_t tenant, uint32_t pool, uint64_t file);
void rig_file_add(struct rig_spill *r, struct rig_file *f, enum disk_part part, uint32_t pages,
                  uint32_t nkeys);
void rig_file_usual(struct rig_spill *r, struct rig_file *f, uint32_t tenant, uint32_t pool,
                    uint64_t file); /* two HISTORY, a STATE and an ENTRY */

/* Waits for n events since the last call. */
void rig_spill_events(struct rig_spill *r, uint32_t n);
void rig_spill_quiet_ms(struct rig_spill *r, uint32_t ms); /* polls for that long */
enum tern_err rig_spill_write(struct rig_spill *r, const struct rig_file *f);
/* Asks for pages [first, first + n) of the file, to the other pool of its layout. */
void rig_spill_ask(struct rig_spill *r, const struct rig_file *f, struct pull_id pull,
                   uint32_t batch, uint32_t first, uint32_t n);
/* The same, but waits. Returns the ok bits of up to 64 pages. */
uint64_t rig_spill_read(struct rig_spill *r, const struct rig_file *f, uint32_t first, uint32_t n);
void rig_spill_path(const struct rig_spill *r, const struct rig_file *f, bool unfinished, char *ret,
                    size_t cap);
uint32_t rig_spill_files(const struct rig_spill *r, uint32_t tenant); /* all files in its folder */
/* The pages of the file, up to 64, that are in the next pool as they were written: bit i. */
uint64_t rig_spill_alike(struct rig_spill *r, const struct rig_file *f);
void rig_spill_flip(const struct rig_spill *r, const struct rig_file *f, uint64_t at); /* a bit */
/* The whole file; owned by the caller. */
uint8_t *rig_spill_contents(const struct rig_spill *r, const struct rig_file *f,
                            uint64_t *ret_bytes);

#endif
