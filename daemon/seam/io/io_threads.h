/* Data threads: they move page bytes, so that the owner thread only decides. The owner submits a
 * task (a scattered receive, a gathered send, or plain work) and is notified when the task returns.
 * Until then the task, its msghdr and all that its `work` uses belong to the data thread, and the
 * owner does not touch them. Each thread has its own ring (io.h) and two bounded queues with the
 * owner, one each way, with one writer and one reader.
 *
 * Invariant: a task that is away returns exactly once, cancelled or not, and from then on no thread
 * and no kernel touches anything of it. The proofs of quiet wait for that. All functions are for
 * the owner thread; only `work` runs on a data thread. Nothing is allocated after
 * io_threads_create. The transfers use it. */
#ifndef SEAM_IO_THREADS_H
#define SEAM_IO_THREADS_H

#include "seam/io/io.h"
#include "seam/io/io_states.h"

struct io_threads;
struct io_thread;

#define IO_THREADS_MAX 66u /* data threads, or one for each tenant and one for the operators */

enum io_task_kind { IO_TASK_RECEIVE, IO_TASK_SEND, IO_TASK_WORK };

/* Embedded in a struct of the caller; zeroed before its first use. */
struct io_task {
    /* On the data thread, before each receive or send. Returns false if memory that it needs is
     * gone: the task returns with -EFAULT. NULL: no preparation. */
    bool (*ready)(struct io_task *task);
    /* On the data thread. For a receive or a send: `res` bytes were moved, more than 0; returns
     * true if msg names more, which the thread then moves unless the task was cancelled. NULL:
     * there is no more. For plain work: called once; the result is ignored. */
    bool (*work)(struct io_task *task, int32_t res);
    /* On the owner thread: the task has returned. res: of the last operation, as in io.h; 0 for
     * work. */
    void (*done)(struct io_task *task, int32_t res);
    struct msghdr msg; /* of a receive or a send; msg_flags apply to the call */

    /* The rest is io_threads' own. */
    enum io_task_state state; /* the owner's view */
    enum io_task_kind kind;
    struct io_thread *thread;
    struct io_op op;
    int fd;
    int32_t res;
    bool called_back; /* the data thread's view */
};

struct io_threads_config {
    struct io *io;    /* the owner's */
    uint32_t threads; /* 1 to IO_THREADS_MAX */
    uint32_t tasks;   /* away at a time, at most: receives and sends */
    uint32_t works;   /* the same for plain work, which is not cancelled */
    const char *name; /* of the threads; static, at most 15 bytes */
    /* On each thread, before it takes a task. If it returns the name of a missing resource
     * (static), io_threads_create fails. NULL: nothing to prepare. */
    const char *(*begin)(void);
};

/* Bytes that io_threads_create allocates, without stacks and the kernel's share. */
uint64_t io_threads_bytes(const struct io_threads_config *config);
/* Returns INTERNAL and sets *ret_why if a thread or its ring cannot be made. */
enum tern_err io_threads_create(const struct io_threads_config *config, struct io_threads **ret,
                                const char **ret_why);
/* Joins the threads, and runs the owner's ring until it no longer uses them. No task may be
 * away. */
void io_threads_destroy(struct io_threads *threads);
/* Runs the owner's ring until no task is away, and destroys them. Returns false if one still is at
 * until_ns: its thread stays, and all that it uses must stay: the process exits soon. `threads` may
 * be NULL. */
bool io_threads_end(struct io_threads *threads, uint64_t until_ns);

/* Submits the task to a thread: all tasks of one lane use the same thread, and a task keeps its
 * lane. The caller has set its `work`, `done` and `msg`, and it is not away. fd: -1 for plain
 * work. */
void io_threads_submit(struct io_threads *threads, struct io_task *task, enum io_task_kind kind,
                       uint32_t lane, int fd);
/* Cancels a task that is away: it returns soon, with -ECANCELED or its result. Not plain work. */
void io_threads_cancel(struct io_task *task);

struct io_threads_stats {
    uint32_t threads, away; /* away: tasks */
    uint64_t done;          /* tasks that returned */
};
void io_threads_stats(const struct io_threads *threads, struct io_threads_stats *ret);

#endif
