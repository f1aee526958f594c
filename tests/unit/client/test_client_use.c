/* Only the process that connected may be in a call of a connection, and one thread of it at a time.
 * Any other is refused by name without a system call, and the connection is not touched. */
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "unit/rig/rig_client.h"

static _Atomic bool asked, answers;

/* Answers when the test allows it. */
static void serve_when_told(struct fake *f)
{
    while (fake_read(f)) {
        atomic_store(&asked, true);
        while (!atomic_load(&answers))
            usleep(100);
        fake_reply_empty(f);
    }
}

static void *ping(void *arg)
{
    enum tern_err *ret = arg;

    *ret = tern_ping(t, 0);
    return NULL;
}

static pthread_t ping_begins(enum tern_err *ret)
{
    pthread_t other;

    assert_int_equal(pthread_create(&other, NULL, ping, ret), 0);
    return other;
}

TEST(use_of_two_threads_at_once_is_refused_by_name)
{
    enum tern_err first = TERN_INTERNAL;
    struct tern_batch *batch;
    struct tern_answer answer;
    pthread_t other;

    start(serve_when_told, NULL);
    assert_ok(tern_batch_create(t, &batch));
    atomic_store(&asked, false);
    atomic_store(&answers, false);
    other = ping_begins(&first);
    while (!atomic_load(&asked))
        usleep(100);
    assert_err(TERN_CONFLICT, tern_ping(t, 0));
    assert_non_null(strstr(tern_error_text(t, NULL), "another thread is in a call"));
    assert_err(TERN_CONFLICT, tern_poll(t, &answer));
    assert_err(TERN_CONFLICT, tern_batch_snapshot_release(batch, 1));
    atomic_store(&answers, true);
    pthread_join(other, NULL);
    assert_ok(first);
    assert_ok(tern_ping(t, 0)); /* it has had no effect */
    assert_string_equal(tern_error_text(t, NULL), "");
    tern_batch_destroy(batch);
}

TEST(use_is_handed_on_between_calls)
{
    enum tern_err err = TERN_INTERNAL;

    start(serve_when_told, NULL);
    atomic_store(&answers, true);
    for (uint32_t i = 0; i < 8; i++) {
        pthread_join(ping_begins(&err), NULL);
        assert_ok(err);
        assert_ok(tern_ping(t, 0));
    }
}

/* Ends the child without the system calls of exit(). The compiler must not know that it does not
 * return: before such a call ASan asks the kernel for the signal stack. */
static void ends(bool as_wanted)
{
    syscall(SYS_exit, as_wanted ? 7 : 1);
}

static void child_is_ok(pid_t pid)
{
    int status = -1;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status)); /* a system call would have killed it */
    assert_int_equal(WEXITSTATUS(status), 7);
}

TEST(use_in_a_forked_child_is_refused_by_name_without_a_system_call)
{
    struct tern_answer answer;
    bool as_wanted;
    pid_t pid;

    start(serve_when_told, NULL);
    atomic_store(&answers, true);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        as_wanted =
            tern_ping(t, 0) == TERN_DAEMON_LOST && tern_poll(t, &answer) == TERN_DAEMON_LOST;
        ends(as_wanted && strstr(tern_error_text(t, NULL), "forked process"));
    }
    child_is_ok(pid);
    pid = fork();
    if (pid == 0) {
        tern_destroy(t);
        ends(true);
    }
    child_is_ok(pid);
    assert_ok(tern_ping(t, 0));
}

/* KiB of this process's memory that a child finds zeroed. */
static uint32_t kib_wiped_in_a_child(void)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    uint32_t kib = 0, size = 0;
    char line[512];

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        (void)sscanf(line, "Size: %u kB", &size);
        if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " wf"))
            kib += size;
    }
    fclose(f);
    return kib;
}

TEST(use_of_a_connection_takes_memory_until_it_ends)
{
    const uint32_t before = kib_wiped_in_a_child();

    start(serve_when_told, NULL);
    assert_true(kib_wiped_in_a_child() > before);
    stop();
    assert_int_equal(kib_wiped_in_a_child(), before);
}

/* Calls that neither send nor receive: a system call would kill the child. */
TEST(use_is_checked_without_a_system_call)
{
    struct tern_batch *batch;
    bool as_wanted = true;
    pid_t pid;

    fake_start(&fake, serve_when_told, NULL);
    pid = fork();
    if (pid == 0) {
        if (tern_connect(fake.path, 0, &t) != TERN_OK || tern_batch_create(t, &batch) != TERN_OK)
            ends(false);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        for (uint32_t i = 0; i < 100; i++)
            as_wanted = as_wanted && tern_batch_commit(batch, 1, 16, 1) == TERN_OK;
        ends(as_wanted);
    }
    child_is_ok(pid);
}
