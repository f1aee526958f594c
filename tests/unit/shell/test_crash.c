/* A process that ends by a bug: by that signal, with one line that names the cause and the place,
 * and with a readable tape. Each case is a child that ends in that way. */

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "client/ctl/tape/tape_read.h"
#include "seam/mem/mem_fault.h"
#include "shell/loop/loop.h"
#include "unit/rig/rig_dir.h"

#define INCARNATION 0x1122334455667788
#define EVENTS      7

static char text[8192];
static struct config config;
static struct tape *tape;

FIXTURE(make_all)
{
    static const struct tenant_config none;
    struct tape_config t = {
        .bytes = 1 << 16, .tenant = &none, .limits = {.links = 4}, .secret = {1, 2}};
    struct event e = {.kind = EV_TIMER};

    make_dir(NULL);
    snprintf(config.admin_socket, sizeof config.admin_socket, "%s/a", dir);
    snprintf(config.tape_file, sizeof config.tape_file, "%s/a.tape", dir);
    assert_int_equal(tape_create(&t, &tape), TERN_OK);
    for (uint32_t i = 0; i < EVENTS; i++)
        tape_record(tape, &e);
    return 0;
}

FIXTURE(remove_all)
{
    tape_destroy(tape);
    return remove_dir(NULL);
}

TEST_EACH(make_all, remove_all);

/* How a child that does this ends; its output is in `text`. */
static int end_of(void (*act)(void))
{
    int fds[2], status;
    size_t n = 0;
    ssize_t got;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {0};

        setrlimit(RLIMIT_CORE, &none);
        dup2(fds[1], STDERR_FILENO);
        crash_watch();
        crash_tape(&config, tape, INCARNATION);
        act();
        _exit(0);
    }
    close(fds[1]);
    while ((got = read(fds[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    return WTERMSIG(status);
}

static void says(const char *words)
{
    if (!strstr(text, words))
        fail_msg("no '%s' in: %s", words, text);
}

static void one_line(void)
{
    const char *first = strstr(text, "level=error");

    assert_non_null(first);
    assert_null(strstr(first + 1, "level=error"));
}

static void left(const char *name)
{
    struct tape_reader *reader = NULL;
    const char *path = in_dir(name);
    char words[600];
    int fd;

    snprintf(words, sizeof words, " tape=\"%s\"", path);
    says(words);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(tape_open_fd(fd, &reader), TERN_OK);
    assert_int_equal(tape_header(reader)->events, EVENTS);
    tape_close(reader);
    close(fd);
}

static void ends_with_a_line(void (*act)(void), int signal)
{
    assert_int_equal(end_of(act), signal);
    one_line();
}

static volatile uintptr_t nowhere = 16;

static void touch_nothing(void)
{
    *(volatile char *)nowhere = 1;
}

TEST(crash_fault_says_what_and_where)
{
    ends_with_a_line(touch_nothing, SIGSEGV);
    says("event=crash signal=SIGSEGV code=1 address=0x10 at=ternd+0x");
    left("a.tape.1122334455667788");
}

TEST(crash_named_file_is_that_file)
{
    snprintf(config.tape_file, sizeof config.tape_file, "%s/mine", dir);
    assert_int_equal(end_of(touch_nothing), SIGSEGV);
    left("mine");
}

static void abort_me(void)
{
    kill(getpid(), SIGABRT);
}

TEST(crash_sent_signal_says_from_whom)
{
    char words[64];

    ends_with_a_line(abort_me, SIGABRT);
    says("event=crash signal=SIGABRT code=0 sender_pid=");
    snprintf(words, sizeof words, " sender_uid=%u ", getuid());
    says(words);
    left("a.tape.1122334455667788");
}

static void fail_a_check(void)
{
    check(1 == 2);
}

TEST(crash_failed_check_leaves_one_tape_and_its_text)
{
    ends_with_a_line(fail_a_check, SIGABRT);
    says("event=check_failed check=\"");
    says("check failed: 1 == 2\" thread=");
    left("a.tape.1122334455667788");
}

static void overflow(void)
{
    volatile char room[4096];

    room[0] = 1;
    if (room[0])
        overflow();
    room[1] = 1;
}

TEST(crash_stack_that_overflowed_is_told)
{
    ends_with_a_line(overflow, SIGSEGV);
    left("a.tape.1122334455667788");
}

/* The seam handles SIGBUS for its own memory and passes on the rest. */
static void fault_on_bus(void)
{
    static char watched[4096];
    int fd = memfd_create("empty", 0);
    volatile char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    check(mem_fault_watch(watched, sizeof watched, sizeof watched, true));
    *at = 1;
}

TEST(crash_bus_error_of_others_is_told)
{
    ends_with_a_line(fault_on_bus, SIGBUS);
    says("signal=SIGBUS code=2 address=0x");
    left("a.tape.1122334455667788");
}

static void damaged_tape(void)
{
    crash_tape(&config, (struct tape *)(uintptr_t)4096, INCARNATION);
    abort_me();
}

TEST(crash_fault_while_the_tape_is_written_still_ends)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* it blocks all signals in a handler, so that the kernel ends the process at once */
#endif
    ends_with_a_line(damaged_tape, SIGSEGV);
    says("signal=SIGSEGV");
    says("tape=none reason=fault_while_writing_it");
}

static void full_disk(void)
{
    struct rlimit small = {.rlim_cur = 16, .rlim_max = 16};

    setrlimit(RLIMIT_FSIZE, &small);
    touch_nothing();
}

TEST(crash_on_a_full_disk_says_so)
{
    ends_with_a_line(full_disk, SIGSEGV);
    says("tape=none reason=EFBIG path=\"");
}

static void *fault(void *go)
{
    pthread_barrier_wait(go);
    touch_nothing();
    return NULL;
}

static void four_at_once(void)
{
    pthread_barrier_t go;
    pthread_t thread[4];

    pthread_barrier_init(&go, NULL, 4);
    for (uint32_t i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, fault, &go);
    for (uint32_t i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

TEST(crash_of_several_threads_is_one)
{
    for (uint32_t round = 0; round < 20; round++) {
        ends_with_a_line(four_at_once, SIGSEGV);
        left("a.tape.1122334455667788");
    }
}
