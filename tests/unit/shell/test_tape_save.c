/* Tapes as files: a failed write costs no earlier tape, those of crashes are counted, and a signal
 * during recording sees whole records. */

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "client/ctl/tape/tape_read.h"
#include "unit/rig/rig_dir.h"

static struct tape *make_tape(size_t bytes, uint32_t events)
{
    static const struct tenant_config none;
    struct tape_config config = {
        .bytes = bytes, .tenant = &none, .limits = {.conns = 4, .links = 4}, .secret = {1, 2}};
    struct event e = {.kind = EV_TIMER};
    struct tape *tape = NULL;

    assert_int_equal(tape_create(&config, &tape), TERN_OK);
    for (uint32_t i = 0; i < events; i++)
        tape_record(tape, &e);
    return tape;
}

static uint32_t files(void)
{
    DIR *d = opendir(dir);
    uint32_t n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2; /* . and .. */
}

/* Number of its events, all of which are readable. */
static uint64_t events_of_fd(int fd)
{
    struct tape_reader *reader = NULL;
    uint64_t n = 0;
    struct event e;

    assert_int_equal(tape_open_fd(fd, &reader), TERN_OK);
    do {
        assert_int_equal(tape_next(reader, &e), TERN_OK);
        n += e.kind != 0;
    } while (e.kind != 0);
    assert_int_equal(n, tape_header(reader)->events);
    tape_close(reader);
    return n;
}

static uint64_t events_in(const char *path)
{
    int fd = open(path, O_RDONLY);
    uint64_t n;

    assert_true(fd >= 0);
    n = events_of_fd(fd);
    close(fd);
    return n;
}

TEST_WITH(tape_save_replaces_the_file_whole, make_dir, remove_dir)
{
    struct tape *few = make_tape(1 << 16, 3), *many = make_tape(1 << 16, 50);
    struct stat st;
    int why = -1;
    FILE *left = fopen(in_dir("a.tape.tmp"), "we"); /* of a daemon that died while writing it */

    assert_non_null(left);
    fclose(left);
    assert_int_equal(tape_save(few, in_dir("a.tape"), false, &why), TERN_OK);
    assert_int_equal(events_in(in_dir("a.tape")), 3);
    assert_int_equal(tape_save(many, in_dir("a.tape"), false, &why), TERN_OK);
    assert_int_equal(events_in(in_dir("a.tape")), 50);
    assert_int_equal(stat(in_dir("a.tape"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(files(), 1);
    tape_destroy(few);
    tape_destroy(many);
}

TEST_WITH(tape_save_that_fails_keeps_what_was_there, make_dir, remove_dir)
{
    struct tape *few = make_tape(1 << 16, 3), *many = make_tape(1 << 16, 1000);
    struct rlimit before, small;
    enum tern_err err;
    int why = -1;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(tape_save(few, in_dir("a.tape"), false, &why), TERN_OK);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &small);
    err = tape_save(many, in_dir("a.tape"), false, &why);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(err, TERN_DISK);
    assert_int_equal(why, EFBIG);
    assert_int_equal(events_in(in_dir("a.tape")), 3);
    assert_int_equal(files(), 1);
    tape_destroy(few);
    tape_destroy(many);
}

TEST_WITH(tape_save_says_why, make_dir, remove_dir)
{
    struct tape *tape = make_tape(1 << 16, 3);
    char longer[5000];
    int why = -1;

    assert_int_equal(tape_save(tape, in_dir("no/a.tape"), false, &why), TERN_DISK);
    assert_int_equal(why, ENOENT);
    assert_int_equal(tape_save(tape, dir, false, &why), TERN_DISK);
    assert_int_equal(why, EISDIR);
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0); /* nobody reads: it must not wait */
    assert_int_equal(tape_save(tape, in_dir("fifo"), false, &why), TERN_DISK);
    assert_int_equal(why, EINVAL);
    assert_int_equal(symlink("/nowhere", in_dir("link")), 0);
    assert_int_equal(tape_save(tape, in_dir("link"), false, &why), TERN_DISK);
    assert_int_equal(why, ELOOP);
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(tape_save(tape, longer, false, &why), TERN_DISK);
    assert_int_equal(why, ENAMETOOLONG);
    assert_int_equal(files(), 2);
    tape_destroy(tape);
}

/* A file that is `age` seconds old. */
static void put(const char *name, int age)
{
    struct timespec times[2] = {{.tv_sec = 1000000 - age}, {.tv_sec = 1000000 - age}};
    int fd = open(in_dir(name), O_WRONLY | O_CREAT, 0600);

    assert_true(fd >= 0);
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

TEST_WITH(tapes_keep_drops_the_oldest_of_crashes_alone, make_dir, remove_dir)
{
    char name[64];

    tape_crash_name(name, sizeof name, "s.tape", 0xabc);
    assert_string_equal(name, "s.tape.0000000000000abc");
    assert_int_equal(tapes_keep(in_dir("s.tape"), 2), 0);
    put("s.tape", 100); /* ternctl's, not a crash's */
    put("s.tape.old", 100);
    put("s.tape.0123456789abcdef0", 100);
    put("other.tape.0123456789abcdef", 100);
    put(name, 20);
    put("s.tape.0123456789abcdef", 40);
    put("s.tape.1123456789abcdef", 10);
    put("s.tape.2123456789abcdef", 30);
    put("s.tape.3123456789abcdef.tmp", 1); /* incomplete */
    assert_int_equal(files(), 9);
    assert_int_equal(tapes_keep(in_dir("s.tape"), 4), 4);
    assert_int_equal(files(), 8);
    assert_int_equal(tapes_keep(in_dir("s.tape"), 2), 2);
    assert_int_equal(files(), 6);
    assert_int_equal(access(in_dir(name), F_OK), 0);
    assert_int_equal(access(in_dir("s.tape.1123456789abcdef"), F_OK), 0);
    assert_int_equal(tapes_keep(in_dir("none/s.tape"), 2), 0);
}

static struct tape *recorded; /* by the case below */
static int dumped_to;
static volatile sig_atomic_t dumped;

static void on_timer(int number)
{
    (void)number;
    if (!dumped)
        dumped = tape_dump(recorded, dumped_to, true) == TERN_OK ? 1 : -1;
}

/* Another thread may cause a crash. The ring is small, so that records are dropped as well. */
TEST_WITH(tape_dump_in_the_middle_of_recording_is_whole, make_dir, remove_dir)
{
    struct itimerval soon = {.it_interval = {.tv_usec = 97}, .it_value = {.tv_usec = 97}}, no = {0};
    struct sigaction sa = {.sa_handler = on_timer}, old;
    struct event e = {.kind = EV_REQUEST, .request = {.op = OP_MATCH}};
    uint32_t tokens[700] = {0};

    recorded = make_tape(TAPE_BYTES_MIN * 4, 0);
    e.request.match.tokens.v = tokens;
    sigaction(SIGALRM, &sa, &old);
    for (uint32_t round = 0; round < 300; round++) {
        dumped_to = memfd_create("tape", 0);
        assert_true(dumped_to >= 0);
        dumped = 0;
        setitimer(ITIMER_REAL, &soon, NULL);
        while (!dumped) {
            e.request.match.tokens.n = (e.request.match.tokens.n + 13) % 700;
            tape_record(recorded, &e);
        }
        setitimer(ITIMER_REAL, &no, NULL);
        assert_int_equal(dumped, 1);
        assert_int_equal(lseek(dumped_to, 0, SEEK_SET), 0);
        events_of_fd(dumped_to);
        close(dumped_to);
    }
    sigaction(SIGALRM, &old, NULL);
    tape_destroy(recorded);
}

TEST(hint_is_of_the_cause)
{
    assert_non_null(strstr(tape_save_hint(ENOSPC), "free space"));
    assert_non_null(strstr(tape_save_hint(EMFILE), "RLIMIT_NOFILE"));
    assert_non_null(strstr(tape_save_hint(ENAMETOOLONG), "shorter"));
    assert_non_null(strstr(tape_save_hint(EISDIR), "plain file"));
}
