/* D3 and D8 of the writing threads: their log on a simulated disk, ended at every step and in every
 * way. Files that were reported as written exist whole; a file that was never reported exists whole
 * or not at all; and all existing bytes are as they were written. */
#include "testing/test.h"
#include "unit/rig/rig_spill_dir.h"
#include "unit/rig/sim_disk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seam/disk/disk.h"

#define FILES       4
#define CRASH_SEEDS 4 /* one of each way to lose what was not synced */
#define NEVER       SIZE_MAX

struct written {
    struct rig_file f;
    uint8_t *bytes; /* owned: contents when it was reported as written; NULL: it was not */
    size_t n, at, dropped;
    size_t hole[RIG_SPILL_EXTENTS];
};

struct tally {
    uint64_t crashes, found, lost, wrong, half_dropped;
};

static struct rig_spill rig;
static struct sim_disk *sim, *crashed;
static struct written file[FILES];
static bool there[FILES][RIG_SPILL_EXTENTS];
static struct disk_extent found[FILES * RIG_SPILL_EXTENTS];
static uint32_t nfound;
static size_t now;
static struct tally tally;

static void name_of(const struct written *w, char *ret)
{
    disk_file_name(ret, rig.config.tenant[w->f.write.tenant], w->f.write.file, false);
}

static void write_one(uint32_t i)
{
    struct written *w = &file[i];
    uint32_t tenant = i % 2;
    char name[DISK_NAME_MAX];
    const uint8_t *bytes;

    rig_file_begin(&w->f, tenant, tenant * 2, i * 7 + 1);
    rig_file_add(&rig, &w->f, DISK_HISTORY, 1, 1);
    if (i == 0)
        rig_file_add(&rig, &w->f, DISK_STATE, 1, 0);
    rig_file_add(&rig, &w->f, DISK_ENTRY, 0, 0);
    memset(w->hole, 0xff, sizeof w->hole);
    w->at = w->dropped = NEVER;
    w->bytes = NULL;
    if (rig_spill_write(&rig, &w->f) != TERN_OK)
        return;
    w->at = sim_disk_steps(sim);
    name_of(w, name);
    bytes = sim_disk_bytes(sim, name, &w->n);
    assert_non_null(bytes);
    w->bytes = malloc(w->n);
    assert_non_null(w->bytes);
    memcpy(w->bytes, bytes, w->n);
}

static void drop(uint32_t i, uint32_t extent)
{
    const struct disk_extent *e = &file[i].f.extent[extent];
    struct disk_drop d = {.tenant = e->tenant, .place = {e->place.file, 0}};

    if (i == 0) {
        d.bytes = disk_extent_bytes(e);
        d.place = e->place;
    }
    *(i == 0 ? &file[i].hole[extent] : &file[i].dropped) = sim_disk_steps(sim);
    disk_drop(rig.disk, &d);
    while (!disk_idle(rig.disk))
        rig_spill_quiet_ms(&rig, 1);
}

static void play(bool encrypt, const struct sim_disk_faults *faults)
{
    static const struct sim_disk_faults none;

    sim = sim_disk_make(&none);
    rig_spill_init(&rig, NULL);
    rig.config.files = sim_disk_files(sim);
    rig.config.threads = 1;
    rig.config.encrypt = encrypt;
    rig_spill_fill(&rig, 0, 1);
    rig_spill_fill(&rig, 2, 2);
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    sim_disk_set_faults(sim, faults);
    for (uint32_t i = 0; i < FILES; i++) {
        write_one(i);
        if (i == 1)
            drop(0, 1);
        if (i == 2)
            drop(1, 0);
    }
    sim_disk_set_faults(sim, &none);
}

static void end(void)
{
    for (uint32_t i = 0; i < FILES; i++) {
        free(file[i].bytes);
        file[i].bytes = NULL;
    }
    rig_spill_finish(&rig);
    sim_disk_free(sim);
}

/* ---- judged ---- */

static struct written *file_of(uint64_t number)
{
    for (uint32_t i = 0; i < FILES; i++)
        if (file[i].f.write.file == number)
            return &file[i];
    return NULL;
}

static bool list_right(const struct written *w, uint32_t k, const struct event *ev)
{
    const uint32_t *token = w->f.token;
    const struct extra_key *key = w->f.key;

    for (uint32_t i = 0; i < k; i++) {
        token += w->f.extent[i].tokens;
        key += w->f.extent[i].nkeys;
    }
    return memcmp(token, ev->found.tokens, w->f.extent[k].tokens * sizeof *token) == 0 &&
           memcmp(key, ev->found.keys, w->f.extent[k].nkeys * sizeof *key) == 0;
}

static void on_event(void *ctx, struct event *ev)
{
    const struct disk_extent *e = &ev->found.extent;
    struct written *w;

    (void)ctx;
    if (ev->kind != EV_DISK_FOUND)
        return;
    tally.found++;
    w = file_of(e->place.file);
    for (uint32_t k = 0; w && k < w->f.write.nextents; k++)
        if (disk_extent_agrees(e, &w->f.extent[k]) && list_right(w, k, ev)) {
            there[w - file][k] = true;
            found[nfound++] = *e;
            return;
        }
    tally.wrong++;
}

/* Besides the verification, compares the bytes, where they are known. */
static bool bytes_right(const struct written *w, const struct disk_extent *e)
{
    const uint8_t *bytes;
    char name[DISK_NAME_MAX];
    size_t n;

    if (!w->bytes)
        return true;
    name_of(w, name);
    bytes = sim_disk_bytes(crashed, name, &n);
    return bytes && n == w->n &&
           memcmp(bytes + e->place.offset, w->bytes + e->place.offset,
                  DISK_BLOCK + disk_body_bytes(e)) == 0;
}

static void on_verified(void *ctx, const struct disk_verified *v)
{
    (void)ctx;
    for (uint32_t i = 0; i < nfound; i++) {
        const struct written *w = file_of(found[i].place.file);
        const struct disk_place *p = &found[i].place;
        bool dropped = false;

        if (p->file != v->extent.place.file || p->offset != v->extent.place.offset)
            continue;
        for (uint32_t k = 0; k < w->f.write.nextents; k++)
            dropped |= w->f.extent[k].place.offset == p->offset && w->hole[k] < now;
        if (v->fault == DISK_FAULT_NONE)
            tally.wrong += !bytes_right(w, &found[i]);
        else if (dropped)
            tally.half_dropped++;
        else
            tally.wrong++;
    }
}

static void judge(uint64_t seed)
{
    struct disk_config config = rig.config;
    struct disk_recovery recovery;
    const char *why;

    crashed = sim_disk_crash(sim, now, seed);
    memset(there, 0, sizeof there);
    nfound = 0;
    tally.crashes++;
    config.files = sim_disk_files(crashed);
    assert_int_equal(disk_recover_files(&config, on_event, NULL, NULL, &recovery, &why), TERN_OK);
    assert_int_equal(disk_verify(&config, on_verified, NULL, &why), TERN_OK);
    for (uint32_t i = 0; i < FILES; i++)
        for (uint32_t k = 0; k < file[i].f.write.nextents; k++)
            if (file[i].at <= now && file[i].dropped >= now && file[i].hole[k] >= now)
                tally.lost += !there[i][k];
    sim_disk_free(crashed);
}

static void crash_everywhere(const char *what)
{
    tally = (struct tally){.crashes = 0};
    for (now = 0; now <= sim_disk_steps(sim); now++)
        for (uint64_t seed = 0; seed < CRASH_SEEDS; seed++)
            judge(seed + now * CRASH_SEEDS);
    printf("%s: crash_points=%" PRIu64 " found=%" PRIu64 " half_dropped=%" PRIu64
           " wrong_bytes=%" PRIu64 " lost=%" PRIu64 "\n",
           what, tally.crashes, tally.found, tally.half_dropped, tally.wrong, tally.lost);
    assert_int_equal(tally.wrong, 0);
    assert_int_equal(tally.lost, 0);
    assert_true(tally.found > 0);
}

TEST(the_writers_files_survive_a_crash_at_any_step)
{
    play(false, &(struct sim_disk_faults){.seed = 1});
    crash_everywhere("clear");
    for (uint32_t i = 0; i < FILES; i++)
        assert_true(file[i].at != NEVER);
    end();
}

TEST(the_writers_encrypted_files_survive_a_crash_at_any_step)
{
    play(true, &(struct sim_disk_faults){.seed = 1});
    crash_everywhere("encrypted");
    end();
}

/* A file whose sync or write failed was reported as not written: none of it counts, and none is
 * wrong. */
TEST(errors_of_the_disk_lose_nothing_that_was_told_as_written)
{
    uint32_t failed = 0;

    for (uint64_t seed = 0; seed < 4; seed++) {
        play(false, &(struct sim_disk_faults){.seed = seed, .sync_eio = 8, .write_eio = 50});
        crash_everywhere("errors");
        for (uint32_t i = 0; i < FILES; i++)
            failed += file[i].at == NEVER;
        end();
    }
    assert_true(failed > 0 && failed < 4 * FILES);
}
