/* See loop.h. All code after crash_watch runs in a signal handler, or within a step whose check
 * failed, so it uses only system calls and existing buffers. The first thread here ends the
 * process; threads that fault meanwhile wait for that end. */
#include "shell/loop/loop.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/check.h"
#include "proto/shown.h"

#define STACK_BYTES   65536 /* the handler's stack, also after a stack overflow */
#define LINE_BYTES    6144
#define INCARNATION   24 /* of a name, at most */
#define READER_MS     1000
#define KERNEL_FAULTS 0 /* si_code above: from the kernel; otherwise the signal was sent */

static struct {
    struct tape *tape;
    bool keep_tokens;
    char path[sizeof(((struct config *)NULL)->tape_file) + INCARNATION];
} leaves;

static atomic_int ending; /* the thread that ends the process */
static atomic_bool reported;

struct line {
    char text[LINE_BYTES];
    size_t n;
};

static void put(struct line *l, const char *text)
{
    while (*text != '\0' && l->n < sizeof l->text - 1)
        l->text[l->n++] = *text++;
}

static void put_number(struct line *l, uint64_t v, uint32_t base, uint32_t width)
{
    char digits[24];
    size_t at = sizeof digits;

    digits[--at] = '\0';
    do {
        digits[--at] = "0123456789abcdef"[v % base];
        v /= base;
    } while (v > 0 || sizeof digits - 1 - at < width);
    put(l, digits + at);
}

static void put_dec(struct line *l, const char *key, int64_t v)
{
    put(l, key);
    if (v < 0)
        put(l, "-");
    put_number(l, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, 10, 1);
}

static void put_hex(struct line *l, const char *key, uint64_t v)
{
    put(l, key);
    put(l, "0x");
    put_number(l, v, 16, 1);
}

static void put_quoted(struct line *l, const char *key, const char *value)
{
    char quoted[LINE_BYTES];

    put(l, key);
    put(l, "\"");
    put(l, shown_quoted(quoted, sizeof quoted, value));
    put(l, "\"");
}

static void put_head(struct line *l, const char *event)
{
    struct timespec t = {0};

    l->n = 0;
    clock_gettime(CLOCK_REALTIME, &t);
    put_dec(l, "ts=", t.tv_sec);
    put(l, ".");
    put_number(l, (uint64_t)t.tv_nsec / 1000, 10, 6);
    put(l, " level=error event=");
    put(l, event);
}

static void put_signal(struct line *l, int number, const siginfo_t *info)
{
    const char *name = sigabbrev_np(number);

    put(l, " signal=SIG");
    put(l, name ? name : "?");
    put_dec(l, " code=", info->si_code);
    if (info->si_code > KERNEL_FAULTS) {
        put_hex(l, " address=", (uintptr_t)info->si_addr);
        return;
    }
    put_dec(l, " sender_pid=", info->si_pid);
    put_dec(l, " sender_uid=", info->si_uid);
}

/* Writes an address of our own code in the form of addr2line. */
static void put_place(struct line *l, const void *context)
{
    extern const char __executable_start[], etext[];
    const ucontext_t *at = context;
    uintptr_t pc = 0, first = (uintptr_t)__executable_start;

#if defined(__x86_64__)
    pc = (uintptr_t)at->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    pc = at->uc_mcontext.pc;
#else
    (void)at;
#endif
    if (pc >= first && pc < (uintptr_t)etext)
        put_hex(l, " at=ternd+", pc - first);
    else
        put_hex(l, " at=", pc);
    put_dec(l, " thread=", gettid());
}

/* A stopped log reader must not delay the restart of a crashed daemon. */
static void write_line(struct line *l)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};

    l->text[l->n++] = '\n';
    if (poll(&p, 1, READER_MS) == 1)
        (void)!write(STDERR_FILENO, l->text, l->n);
}

/* Writes the tape, and ends the line with its path. */
static void leave_tape(struct line *l)
{
    const char *name;
    int cause = 0;

    if (!leaves.tape) {
        put(l, " tape=none");
    } else if (tape_save(leaves.tape, leaves.path, leaves.keep_tokens, &cause) == TERN_OK) {
        put_quoted(l, " tape=", leaves.path);
    } else {
        name = strerrorname_np(cause);
        put(l, " tape=none reason=");
        put(l, name ? name : "?");
        put_quoted(l, " path=", leaves.path);
    }
    atomic_store(&reported, true);
    write_line(l);
}

const char *crash_keep_tape(void)
{
    int cause;

    return leaves.tape && tape_save(leaves.tape, leaves.path, leaves.keep_tokens, &cause) == TERN_OK
               ? leaves.path
               : "none";
}

/* Returns true if this thread is the first here, false if the same thread is here again. */
static bool first_to_end(void)
{
    int me = gettid(), before = 0;

    if (atomic_compare_exchange_strong(&ending, &before, me))
        return true;
    while (before != me)
        pause();
    return false;
}

static struct line line; /* the ending thread's */

static void on_signal(int number, siginfo_t *info, void *context)
{
    bool first = first_to_end();

    if (first || !atomic_load(&reported)) {
        put_head(&line, "crash");
        put_signal(&line, number, info);
        put_place(&line, context);
    }
    if (first) {
        leave_tape(&line);
    } else if (!atomic_exchange(&reported, true)) {
        put(&line, " tape=none reason=fault_while_writing_it");
        write_line(&line);
    }
    /* A fault repeats by itself; a sent signal does not. */
    signal(number, SIG_DFL);
    raise(number);
}

/* check_failed has written the failed check; abort() follows. */
static void on_failed_check(const char *text)
{
    if (!first_to_end())
        return;
    put_head(&line, "check_failed");
    put_quoted(&line, " check=", text);
    put_dec(&line, " thread=", gettid());
    leave_tape(&line);
}

void crash_watch(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    struct sigaction sa = {.sa_sigaction = on_signal,
                           .sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_NODEFER)};
    stack_t stack = {.ss_size = STACK_BYTES};

    stack.ss_sp =
        mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack.ss_sp != MAP_FAILED)
        sigaltstack(&stack, NULL);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &sa, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is a failed write */
    check_set_hook(on_failed_check);
}

/* A configured name is used unchanged; a default name gets the incarnation, so that each crash has
 * a tape of its own. */
void crash_tape(const struct config *config, struct tape *tape, uint64_t incarnation)
{
    static const char suffix[] = ".tape";
    size_t n = strlen(config->admin_socket);

    leaves.tape = NULL;
    if (!tape)
        return;
    strcpy(leaves.path, config->tape_file);
    if (strncmp(config->tape_file, config->admin_socket, n) == 0 &&
        strcmp(config->tape_file + n, suffix) == 0) {
        tapes_keep(config->tape_file, TAPE_CRASHES_KEPT - 1); /* plus the next one */
        tape_crash_name(leaves.path, sizeof leaves.path, config->tape_file, incarnation);
    }
    leaves.keep_tokens = config->tape_tokens;
    atomic_signal_fence(memory_order_seq_cst);
    leaves.tape = tape;
}
