/* The disk tier: its part of `status`, stored prefixes (`disk`), and a check of the files
 * (`verify`, which needs no daemon: it reads the files themselves). */
#include "ctl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "seam/disk/disk.h"
#include "seam/disk/disk_crypt.h"

#define HEX_SHOWN 8 /* digits of a hash */

/* ---- status ---- */

static void show_recovery(const json_t *recovery)
{
    const char *fault;
    json_t *n;

    printf("    found at the start: %s extents in %s files, %s; removed: %s unfinished files, %s "
           "unused files",
           num(recovery, "extents"), num(recovery, "files"), human_bytes(j_u64(recovery, "bytes")),
           num(recovery, "unfinished"), num(recovery, "removed_files"));
    json_object_foreach(json_object_get(recovery, "faults"), fault, n)
    {
        if (json_integer_value(n) > 0)
            printf("; not used (%s): %s", fault, human_count((uint64_t)json_integer_value(n)));
    }
    printf("\n");
}

/* Prints one line for each tenant that has a share. */
static void show_parts(const struct ctl *ctl, const json_t *tenants)
{
    json_t *tenant;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)tenants, i, tenant)
    {
        const json_t *p = json_object_get(tenant, "spill");

        if (j_u64(p, "budget_bytes") == 0)
            continue;
        printf("    of %s: %s of %s in %s entries; %s hits, %s pages fetched; %s evicted, %s "
               "pruned",
               j_str(tenant, "tenant"), human_bytes(j_u64(p, "used_bytes")),
               human_bytes(j_u64(p, "budget_bytes")), num(p, "entries"), num(p, "hits"),
               num(p, "fetched_pages"), num(p, "evicted"), num(p, "pruned"));
        if (j_u64(p, "stores") > 0)
            printf("; %s being stored", num(p, "stores"));
        if (j_u64(p, "failed") > 0)
            paint(ctl, YELLOW, "; %s stores failed", num(p, "failed"));
        if (j_u64(p, "dropped") > 0)
            printf("; %s extents found at the start were dropped (no record or no use)",
                   num(p, "dropped"));
        printf("\n");
    }
}

static void show_state(const struct ctl *ctl, const json_t *spill)
{
    const char *state = j_str(spill, "state");

    if (strcmp(state, "full") == 0)
        paint(ctl, RED,
              "  FULL: the last store found %s free in the file system, and spill.headroom (%s) "
              "must stay free",
              human_bytes(j_u64(spill, "free_bytes")), human_bytes(j_u64(spill, "headroom_bytes")));
    else if (strcmp(state, "gone") == 0)
        paint(ctl, RED, "  GONE: the folder was removed; the next store creates it again");
    else if (strcmp(state, "failing") == 0)
        paint(ctl, RED, "  FAILING: %s writes and %s reads failed, the last: %s",
              num(spill, "write_errors"), num(spill, "read_errors"), j_str(spill, "error"));
}

void show_spill(const struct ctl *ctl, const json_t *spill, const json_t *tenants)
{
    if (!json_is_object(spill)) {
        printf("  no disk tier\n");
        return;
    }
    printf("  disk tier %s of %s in %s (%s%s)", human_bytes(j_u64(spill, "used_bytes")),
           human_bytes(j_u64(spill, "budget_bytes")), j_str(spill, "dir"),
           j_bool(spill, "direct") ? "direct" : "buffered",
           j_bool(spill, "encrypted") ? ", encrypted" : "");
    show_state(ctl, spill);
    printf("\n    written %s in %s files, read %s; damaged %s\n",
           human_bytes(j_u64(spill, "bytes_written")), num(spill, "files_written"),
           human_bytes(j_u64(spill, "bytes_read")), num(spill, "corrupt"));
    show_recovery(json_object_get(spill, "recovery"));
    if (tenants)
        show_parts(ctl, tenants);
}

/* ---- disk ---- */

static int by_score(const void *a, const void *b)
{
    const json_t *const *p = a, *const *q = b;
    int order = strcmp(j_str(*p, "tenant"), j_str(*q, "tenant"));
    double x = j_f64(*p, "score"), y = j_f64(*q, "score");

    return order != 0 ? order : x < y ? -1 : x > y;
}

static void add_entry(struct table *t, const json_t *row)
{
    table_add(t, PLAIN, "%s", j_str(row, "tenant"));
    table_hex(t, j_str(row, "namespace"), HEX_SHOWN);
    table_hex(t, j_str(row, "chain"), HEX_SHOWN);
    table_count(t, BOLD, j_u64(row, "depth"));
    table_add(t, PLAIN, "%s", j_str(row, "reason"));
    table_num(t, row, "hits");
    table_add(t, PLAIN, "%s", human_bytes(j_u64(row, "bytes")));
    table_add(t, PLAIN, "%s", human_bytes(j_u64(row, "own_bytes")));
    table_add(t, PLAIN, "%s", human_age(j_f64(row, "age_s")));
    table_add(t, PLAIN, "%.4g", j_f64(row, "score"));
    table_add(t, PLAIN, "%s", j_bool(row, "in_use") ? "in use" : "");
}

static int run_disk(struct ctl *ctl)
{
    static const char *const titles[] = {"<TENANT", "=NAMESPACE", "=CHAIN", "TOKENS",
                                         "<REASON", "HITS",       "BYTES",  "OWN",
                                         "AGE",     "SCORE",      "<STATUS"};
    json_t *answer = ctl_list(ctl, "disk", NULL), *rows, **sorted;
    size_t n, i;
    struct table t;

    if (!ctl_print_json(ctl, answer)) {
        rows = json_object_get(answer, "disk");
        n = json_array_size(rows);
        sorted = calloc(n + 1, sizeof *sorted);
        if (!sorted)
            ctl_fail(CTL_FAILED, "no memory for a table of that size: use --json");
        for (i = 0; i < n; i++)
            sorted[i] = json_array_get(rows, i);
        qsort(sorted, n, sizeof *sorted, by_score);
        show_spill(ctl, json_object_get(answer, "spill"), NULL);
        table_init(&t, ctl, titles, TITLES_N(titles));
        for (i = 0; i < n; i++)
            add_entry(&t, sorted[i]);
        table_print(&t, "nothing is stored");
        free(sorted);
    }
    json_decref(answer);
    return CTL_OK;
}

/* ---- verify ---- */

struct verified {
    uint64_t extents, good, bytes, files;
    uint64_t faults[DISK_FAULTS];
    char last[DISK_NAME_MAX]; /* the file of the previous extent */
    json_t *bad;
};

static void verified(void *ctx, const struct disk_verified *v)
{
    struct verified *all = ctx;

    if (strcmp(all->last, v->file) != 0) {
        snprintf(all->last, sizeof all->last, "%s", v->file);
        all->files++;
    }
    all->extents++;
    all->faults[v->fault]++;
    if (v->fault == DISK_FAULT_NONE) {
        all->good++;
        all->bytes += disk_extent_bytes(&v->extent);
        return;
    }
    json_array_append_new(all->bad, json_pack("{s:s, s:s, s:I, s:s}", "tenant", v->tenant, "file",
                                              v->file, "offset", (json_int_t)v->extent.place.offset,
                                              "fault", disk_fault_word(v->fault)));
}

static bool is_folder(DIR *dir, const struct dirent *e)
{
    struct stat st;

    if (e->d_type != DT_UNKNOWN)
        return e->d_type == DT_DIR;
    return fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Each folder is named after its tenant. */
static void find_tenants(const char *path, struct disk_config *config)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    if (!dir)
        ctl_fail(CTL_FAILED, "%s: %s", path, strerror(errno));
    while ((e = readdir(dir)) != NULL) {
        if (e->d_name[0] == '.' || !is_folder(dir, e) || strlen(e->d_name) >= DISK_TENANT_NAME)
            continue;
        if (config->tenants == MEM_TENANTS_MAX)
            ctl_fail(CTL_FAILED, "%s: it has more than %u folders, so it is not a spill directory",
                     path, MEM_TENANTS_MAX);
        config->tenant[config->tenants] = strdup(e->d_name);
        if (!config->tenant[config->tenants++])
            ctl_fail(CTL_FAILED, "no memory");
    }
    closedir(dir);
}

/* Returns true if a daemon has used the path, so that a wrong path is not reported as good. */
static bool is_kept(const char *path)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is = dir >= 0 && faccessat(dir, FILE_OPS_LOCK, F_OK, 0) == 0;

    if (dir >= 0)
        close(dir);
    return is;
}

static json_t *verified_json(const char *path, uint32_t tenants, const struct verified *all)
{
    json_t *faults = json_object();

    for (uint32_t i = DISK_FAULT_NONE + 1; i < DISK_FAULTS; i++)
        json_object_set_new(faults, disk_fault_word((enum disk_fault)i),
                            json_integer((json_int_t)all->faults[i]));
    return json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:o, s:O}", "dir", path, "tenants",
                     (int)tenants, "files", (json_int_t)all->files, "extents",
                     (json_int_t)all->extents, "good", (json_int_t)all->good, "bytes",
                     (json_int_t)all->bytes, "faults", faults, "bad", all->bad);
}

static void show_verified(struct ctl *ctl, const char *path, const struct verified *all)
{
    static const char *const titles[] = {"<FILE", "OFFSET", "<FAULT"};
    struct table t;
    json_t *row;
    size_t i;

    if (all->good < all->extents) {
        table_init(&t, ctl, titles, TITLES_N(titles));
        json_array_foreach(all->bad, i, row)
        {
            table_add(&t, PLAIN, "%s", j_str(row, "file"));
            table_add(&t, PLAIN, "%llu", (unsigned long long)j_u64(row, "offset"));
            table_add(&t, RED, "%s", j_str(row, "fault"));
        }
        table_print(&t, "");
    }
    printf("%s: %s extents in %s files, %s: ", path, human_count(all->extents),
           human_count(all->files), human_bytes(all->bytes));
    if (all->extents == 0)
        printf("the folder has no files of a disk tier\n");
    else if (all->good == all->extents)
        paint(ctl, GREEN, "all good\n");
    else
        paint(ctl, RED, "%s not good\n", human_count(all->extents - all->good));
    if (all->faults[DISK_FAULT_KEY] > 0 && !ctl->key)
        printf("the files are encrypted: pass their key by --key FILE\n");
    else if (all->faults[DISK_FAULT_KEY] > 0)
        printf("key: these files were written with another key, or without one\n");
}

static int run_verify(struct ctl *ctl)
{
    static struct disk_config config;
    struct verified all = {.bad = json_array()};
    const char *why = "";
    char key_why[DISK_KEY_WHY];
    enum tern_err err;
    json_t *answer;

    config.dir = ctl->operand;
    config.encrypt = ctl->key != NULL;
    if (ctl->key && disk_key_read(ctl->key, config.key, key_why) != TERN_OK)
        ctl_fail(CTL_FAILED, "%s", key_why);
    find_tenants(ctl->operand, &config);
    err = disk_verify(&config, verified, &all, &why);
    explicit_bzero(config.key, sizeof config.key);
    if (err != TERN_OK)
        ctl_fail(CTL_FAILED, "%s: %s", ctl->operand, why);
    answer = verified_json(ctl->operand, config.tenants, &all);
    if (!ctl_print_json(ctl, answer))
        show_verified(ctl, ctl->operand, &all);
    json_decref(answer);
    json_decref(all.bad);
    return all.good == all.extents && (all.files > 0 || is_kept(ctl->operand)) ? CTL_OK
                                                                               : CTL_FAILED;
}

/* ---- the rows ---- */

static const struct argp_option disk_options[] = {OPTION_TENANT, OPTION_WIDE, {0}};

static const struct argp_option verify_options[] = {
    {"key", OPT_KEY, "FILE", 0, "The key of encrypted files: spill.encrypt_key_file", 0},
    OPTION_WIDE,
    {0},
};

const struct command disk_commands[] = {
    {"disk", "", "Entries of the disk tier",
     "  ternctl disk\n  ternctl disk --json | jq '.disk[] | select(.reason == \"cold\")'\n\nCHAIN "
     "is the beginning of the hash of all tokens; --json prints the whole hash. BYTES are those of "
     "all extents that the entry needs, OWN those that no other entry needs. SCORE is in tokens "
     "per MiB: the entry with the lowest score is evicted first.\n",
     disk_options, 0, run_disk},
    {"verify", "DIR", "Reads every byte of a spill directory; needs no daemon",
     "  ternctl verify /var/lib/tern/spill\n  ternctl verify /backup/spill --key "
     "/etc/tern/spill.key\n\nThe command only reads, so a daemon may run meanwhile. Exit status 1: "
     "something is damaged, or DIR is not a spill directory.\n",
     verify_options, 1, run_verify},
    {0},
};
