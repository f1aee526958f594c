/* A core dump of the daemon has nothing of its tenants. Token ids are sent to a daemon and go to
 * its peer in a fetch, and pages come back. Wherever these lie in memory of either daemon, the
 * mapping is excluded from dumps, and a dump written by the kernel does not have them. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define PAGE    4096
#define TOKENS  1024u
#define OF_PAGE 64u
#define FIRST   0x5eed1234u
#define NEEDLE  128u /* bytes: 32 token ids in a row, or bytes of a page */
#define CHUNK   (1u << 20)
#define CORE_MS 20000u
#define LINE    512u

static struct daemon source, rig; /* rig fetches from source */
static char dir[RIG_DIR_BYTES], cwd[] = "/tmp/tern-core-XXXXXX";
static uint32_t tokens[TOKENS];
static uint8_t page[NEEDLE];

enum { HAS_TOKENS = 1, HAS_PAGE = 2, HAS_BOTH = 3 };

struct seen {
    unsigned excluded, dumped; /* found in excluded mappings, and in others */
    char which[LINE];          /* the last of the others */
};

static unsigned has(const uint8_t *bytes, size_t n)
{
    return (memmem(bytes, n, tokens + TOKENS / 2, NEEDLE) ? HAS_TOKENS : 0u) |
           (memmem(bytes, n, page, NEEDLE) ? HAS_PAGE : 0u);
}

/* Searches the bytes [from, to) of a file. Pieces overlap. */
static unsigned range_has(int fd, uint64_t from, uint64_t to)
{
    unsigned found = 0;
    static uint8_t bytes[CHUNK + NEEDLE];

    while (from < to) {
        uint64_t n = to - from < sizeof bytes ? to - from : sizeof bytes;
        ssize_t got = pread(fd, bytes, (size_t)n, (off_t)from);

        if (got <= 0)
            break;
        found |= has(bytes, (size_t)got);
        if ((size_t)got < sizeof bytes)
            from += (uint64_t)got;
        else
            from += CHUNK;
    }
    return found;
}

static struct seen look(const struct daemon *d)
{
    struct seen ret = {0};
    char path[64], line[LINE], head[LINE] = "";
    unsigned long long from = 0, to = 0, rss = 0;
    int mem;
    FILE *maps;

    snprintf(path, sizeof path, "/proc/%d/mem", (int)d->pid);
    mem = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(mem >= 0);
    snprintf(path, sizeof path, "/proc/%d/smaps", (int)d->pid);
    maps = fopen(path, "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        if (line[0] < 'A' || line[0] > 'Z') { /* "ADDRESS-ADDRESS ...", then lines "Field: ..." */
            assert_int_equal(sscanf(line, "%llx-%llx ", &from, &to), 2);
            memcpy(head, line, sizeof head);
        } else if (sscanf(line, "Rss: %llu", &rss) != 1 && strncmp(line, "VmFlags:", 8) == 0 &&
                   rss > 0 && strstr(line, " rd ")) {
            unsigned found = range_has(mem, from, to);

            *(strstr(line, " dd") ? &ret.excluded : &ret.dumped) |= found;
            if (found && !strstr(line, " dd"))
                memcpy(ret.which, head, sizeof head);
        }
    }
    fclose(maps);
    close(mem);
    return ret;
}

/* After a transfer both ends have tokens and pages. */
FIXTURE(start)
{
    struct daemon_options o[2] = {
        {.node = "source", .memory_bytes = 8u << 20, .page_bytes_min = PAGE, .core = -1}};
    struct engine from, to;
    struct engine_session s, t;

    assert_non_null(mkdtemp(cwd));
    assert_int_equal(chdir(cwd), 0); /* folder of the dump */
    o[1] = o[0];
    o[1].node = "rig";
    rig_start_pair(&source, &rig, dir, o);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = FIRST + 7 * i;
    from = rig_engine(source.socket, "from", OF_PAGE, 2u << 20);
    to = rig_engine(rig.socket, "to", OF_PAGE, 2u << 20);
    assert_ok(from.tern, engine_begin(&s, &from, tokens, TOKENS));
    assert_ok(from.tern, engine_run(&s));
    memcpy(page, engine_page(&from, 0, s.table.group[0].index[1]), NEEDLE);
    rig_wait_linked(&rig, "source");
    assert_ok(to.tern, engine_begin(&t, &to, tokens, TOKENS));
    assert_ok(to.tern, engine_fetch(&t, "source", 0, RIG_WAIT_MS));
    assert_int_equal(t.len.committed, TOKENS);
    assert_ok(from.tern, engine_end(&s));
    assert_ok(to.tern, engine_end(&t));
    engine_close(&from);
    engine_close(&to);
    return 0;
}

FIXTURE(stop)
{
    daemon_stop(&rig);
    daemon_stop(&source);
    tempdir_remove(dir);
    assert_int_equal(chdir("/"), 0);
    tempdir_remove(cwd);
    return 0;
}

TEST_GROUP(start, stop);

TEST(memory_with_tokens_or_pages_is_left_out_of_dumps)
{
    const struct daemon *both[] = {&source, &rig};

    for (size_t i = 0; i < 2; i++) {
        struct seen seen = look(both[i]);

        if (seen.dumped > 0)
            fail_msg("kind %u would be dumped, in %s", seen.dumped, seen.which);
        assert_int_equal(seen.excluded, HAS_BOTH);
    }
}

/* Opens the core file in that folder and removes it; -1: none comes. */
static int core_of(const char *folder)
{
    for (uint64_t end = rig_now_ms() + CORE_MS; rig_now_ms() < end; usleep(10000)) {
        DIR *d = opendir(folder);
        char path[SPAWN_PATH_BYTES + 256];
        int fd = -1;

        assert_non_null(d);
        for (struct dirent *e = readdir(d); e && fd < 0; e = readdir(d)) {
            if (strncmp(e->d_name, "core", 4) != 0)
                continue;
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            fd = open(path, O_RDONLY | O_CLOEXEC);
            unlink(path);
        }
        closedir(d);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

TEST(core_dump_has_no_tokens_and_no_pages)
{
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    char pattern[LINE] = "";
    FILE *f = fopen("/proc/sys/kernel/core_pattern", "re");
    struct stat st = {0};
    int fd;

    if (!f || !fgets(pattern, sizeof pattern, f) || strncmp(pattern, "core", 4) != 0 ||
        prlimit(rig.pid, RLIMIT_CORE, &all, NULL) != 0) {
        printf("skipped: kernel.core_pattern is %s, so no dump can be looked at\n", pattern);
        skip();
    }
    fclose(f);
    kill(rig.pid, SIGABRT);
    fd = core_of(cwd);
    if (fd < 0) {
        printf("skipped: no dump came\n");
        skip();
    }
    daemon_stop(&rig); /* the dump is complete once the process is gone */
    assert_int_equal(fstat(fd, &st), 0);
    printf("core dump: %lld bytes\n", (long long)st.st_size);
    assert_true(st.st_size > 0);
    assert_int_equal(range_has(fd, 0, (uint64_t)st.st_size), 0);
    close(fd);
}
