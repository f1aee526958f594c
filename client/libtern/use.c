/* Records which thread is in a call on a connection, and detects forks. One process owns a
 * connection, and one thread at a time uses it: every call of tern.h begins with ENTER, which
 * refuses any other before anything is touched. Invariant: `user` is USE_NOBODY outside of calls,
 * else the mark of the thread in the call. Its page is zero in a forked child, so neither check
 * makes a system call. */
#include <stdio.h>
#include <sys/mman.h>

#include "base/err.h"
#include "internal.h"

#define USE_FORKED ((uintptr_t)0) /* what MADV_WIPEONFORK leaves */
#define USE_NOBODY ((uintptr_t)1)

/* The address of this struct is the mark of the thread. The struct keeps the reason of a refusal,
 * because the text in the connection belongs to the thread in the call. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    const struct tern *refused;
    const char *why;
} here;

static const char forked_text[] =
    "the connection belongs to the parent of this forked process: a child may only call "
    "tern_destroy on it, and opens its own with tern_connect";
static const char in_use_text[] = "another thread is in a call on this connection: use a "
                                  "connection in one thread at a time, or give each thread its own";

enum tern_err use_create(struct tern *t)
{
    void *page =
        mmap(NULL, sizeof(*t->user), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return TERN_INTERNAL;
    t->user = page;
    atomic_init(t->user, USE_NOBODY);
    return madvise(page, sizeof(*t->user), MADV_WIPEONFORK) == 0 ? TERN_OK : TERN_INTERNAL;
}

void use_finish(struct tern *t)
{
    if (t->user)
        munmap(t->user, sizeof(*t->user));
}

bool is_owner(const struct tern *t)
{
    return atomic_load_explicit(t->user, memory_order_relaxed) != USE_FORKED;
}

enum tern_err use_begin(struct tern *t, struct tern **ret)
{
    uintptr_t found = USE_NOBODY;

    if (here.refused == t)
        here.refused = NULL;
    if (atomic_compare_exchange_strong_explicit(t->user, &found, (uintptr_t)&here,
                                                memory_order_acquire, memory_order_relaxed)) {
        *ret = t;
        return TERN_OK;
    }
    if (found == (uintptr_t)&here)
        return TERN_OK; /* a call within a call */
    here.refused = t;
    here.why = found == USE_FORKED ? forked_text : in_use_text;
    return found == USE_FORKED ? TERN_DAEMON_LOST : TERN_CONFLICT;
}

void use_end(struct tern **t)
{
    if (*t)
        atomic_store_explicit((*t)->user, USE_NOBODY, memory_order_release);
}

const char *use_refused(const struct tern *t)
{
    return here.refused == t ? here.why : NULL;
}
