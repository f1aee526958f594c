/* Data threads: they carry out what moves page bytes, so that the owner thread only decides. The
 * owner hands a task over (a scattered receive, a gathered send, or plain work) and hears when it
 * is back; between the two the task, its msghdr and all that its `work` uses are the data thread's,
 * and the owner does not touch them. Each thread has a ring of its own (io.h) and two bounded
 * queues with the owner, one each way, of one writer and one reader.
 *
 * What must stay true: a task that is away comes back exactly once, cancelled or not, and when it
 * has, no thread and no kernel touches anything of it. That is what the proofs of quiet wait for.
 * All functions are for the owner thread; only `work` runs on a data thread. Nothing is allocated
 * after io_threads_create. The transfers use it. */
#ifndef SEAM_IO_THREADS_H
#define SEAM_IO_THREADS_H

#include "seam/io/io.h"
#include "seam/io/io_states.h"

struct io_threads;
struct io_thread;

#define IO_THREADS_MAX 66u /* data threads, or one a tenant and one of the operators */

enum io_task_kind { IO_TASK_RECEIVE, IO_TASK_SEND, IO_TASK_WORK };

/* The caller's, embedded in what it belongs to; zeroed before its first use. */
struct io_task {
    /* On the data thread, before each receive or send. False: memory that it needs is not there,
     * and it comes back with -EFAULT. NULL: there is nothing to be done. */
    bool (*ready)(struct io_task *task);
    /* On the data thread. Of a receive or a send: `res` bytes were moved, more than 0; true: msg
     * names more, which the thread goes on with unless it was called back. NULL: that was all. Of
     * plain work: once, and what it returns says nothing. */
    bool (*work)(struct io_task *task, int32_t res);
    /* On the owner thread: it is back. res: of the last operation, as in io.h; of work 0. */
    void (*done)(struct io_task *task, int32_t res);
    struct msghdr msg; /* of a receive or a send; msg_flags hold for the call */

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
    uint32_t tasks;   /* that can be away at a time, of those that receive and send */
    uint32_t works;   /* and of plain work, which is not called back */
    const char *name; /* of the threads; static, at most 15 bytes */
    /* On each thread, before it takes a task; what is missing, static, ends io_threads_create.
     * NULL: there is nothing to prepare. */
    const char *(*begin)(void);
};

/* What io_threads_create will take, but for stacks and the kernel's share. */
uint64_t io_threads_bytes(const struct io_threads_config *config);
/* INTERNAL with *ret_why set if a thread or its ring cannot be made. */
enum tern_err io_threads_create(const struct io_threads_config *config, struct io_threads **ret,
                                const char **ret_why);
/* No task is away. Joins the threads, and runs the owner's ring until it has done with us. */
void io_threads_destroy(struct io_threads *threads);
/* Runs the owner's ring until no task is away, and destroys them. False: one still is by then.
 * The thread of that task stays, and so must all that it uses: the process exits soon. `threads`
 * may be NULL. */
bool io_threads_end(struct io_threads *threads, uint64_t until_ns);

/* Hands the task to a thread: all tasks of one lane go to the same one, and a task keeps its lane.
 * Its `work`, `done` and `msg` are set, and it is not away. */
void io_threads_receive(struct io_threads *threads, struct io_task *task, uint32_t lane, int fd);
void io_threads_send(struct io_threads *threads, struct io_task *task, uint32_t lane, int fd);
void io_threads_work(struct io_threads *threads, struct io_task *task, uint32_t lane);
/* Calls one that is away back: it comes soon, with -ECANCELED or what it did. Not plain work. */
void io_threads_cancel(struct io_threads *threads, struct io_task *task);

struct io_threads_stats {
    uint32_t threads, away; /* away: tasks */
    uint64_t done;          /* tasks that came back */
};
void io_threads_stats(const struct io_threads *threads, struct io_threads_stats *ret);

#endif
