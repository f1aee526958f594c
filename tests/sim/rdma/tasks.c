/* The seam's data threads (seam/io/io_threads.h), played by turns: a task is posted, its work is
 * done, it returns, and its cancel takes effect, each at a random time of its own, so that the
 * owner's actions fall between any two of these. As with real threads, a cancel never takes effect
 * before the hand-over or after the return. */
#include "seam/io/io_threads.h"

#include <errno.h>

#include "redirect.h"
#include "world.h"

#define TASKS 768u /* two of each data connection, one of each piece and path */

enum stage { STAGE_POST, STAGE_MOVES, STAGE_WORK, STAGE_BACK };

struct io_threads {
    struct io *io;
    uint32_t node, away;
};

struct away {
    bool used, cancelled;
    uint32_t gen;
    enum stage stage;
    struct io_task *task;
    struct io_threads *threads;
};

static struct away away[TASKS];
static bool working;      /* a data thread is running */
static uint64_t slept_ns; /* by the running task */

void tasks_reset(void)
{
    working = false; /* the history before may have failed in one */
    for (uint32_t i = 0; i < TASKS; i++) {
        away[i].used = false;
        away[i].gen++;
    }
}

void tasks_kill(uint32_t node)
{
    for (uint32_t i = 0; i < TASKS; i++)
        if (away[i].used && away[i].threads->node == node)
            away[i].used = false;
}

static void later(struct away *a, enum stage stage)
{
    a->stage = stage;
    rw_post(slept_ns + rw_soon(), T_TASK, (uint32_t)(a - away), a->gen);
    slept_ns = 0;
}

void tasks_sleep(uint64_t ns)
{
    slept_ns += ns;
}

static struct away *away_of(const struct io_task *task)
{
    for (uint32_t i = 0; i < TASKS; i++)
        if (away[i].used && away[i].task == task)
            return &away[i];
    return NULL;
}

static void moved(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct io_task *task = (struct io_task *)(void *)((char *)op - offsetof(struct io_task, op));
    struct away *a = away_of(task);

    (void)flags, (void)buffer;
    check(a);
    task->res = res;
    later(a, res > 0 && task->work ? STAGE_WORK : STAGE_BACK);
}

static bool ready(struct io_task *task)
{
    bool is;

    working = true;
    is = !task->ready || task->ready(task);
    working = false;
    return is;
}

static void post(struct away *a)
{
    struct io_task *task = a->task;

    a->stage = STAGE_MOVES;
    if (!ready(task)) {
        task->res = -EFAULT;
        later(a, STAGE_BACK);
        return;
    }
    task->op.done = moved;
    if (task->kind == IO_TASK_RECEIVE)
        io_recvmsg(a->threads->io, &task->op, task->fd, &task->msg);
    else
        io_sendmsg(a->threads->io, &task->op, task->fd, &task->msg);
    if (a->cancelled)
        io_cancel(a->threads->io, &task->op);
}

static void back(struct away *a)
{
    struct io_task *task = a->task;

    a->used = false;
    a->threads->away--;
    rnet_completed(a->threads->node);
    rw.current = a->threads->node;
    io_task_state_move(&task->state, IO_TASK_HOME);
    task->done(task, task->res);
}

bool tasks_working(void)
{
    return working;
}

static bool work(struct io_task *task)
{
    bool more;

    working = true;
    more = task->work(task, task->res);
    working = false;
    return more;
}

void tasks_run(uint32_t number, uint32_t gen)
{
    struct away *a = &away[number];

    if (!a->used || a->gen != gen)
        return;
    rw.current = a->threads->node;
    switch (a->stage) {
    case STAGE_POST: post(a); break;
    case STAGE_MOVES: break;
    case STAGE_WORK:
        if (work(a->task) && a->task->kind != IO_TASK_WORK && !a->cancelled)
            post(a);
        else
            later(a, STAGE_BACK);
        break;
    case STAGE_BACK: back(a); break;
    }
}

void tasks_cancel(uint32_t number, uint32_t gen)
{
    struct away *a = &away[number];

    if (!a->used || a->gen != gen)
        return;
    a->cancelled = true;
    if (a->stage == STAGE_MOVES)
        io_cancel(a->threads->io, &a->task->op);
}

/* ------------------------------------------------------------------ seam/io/io_threads.h */

uint64_t io_threads_bytes(const struct io_threads_config *config)
{
    (void)config;
    return 0;
}

enum tern_err io_threads_create(const struct io_threads_config *config, struct io_threads **ret,
                                const char **ret_why)
{
    struct io_threads *threads = calloc(1, sizeof *threads);

    (void)ret_why;
    check(threads);
    *threads = (struct io_threads){.io = config->io, .node = rw.current};
    *ret = threads;
    return TERN_OK;
}

void io_threads_destroy(struct io_threads *threads)
{
    for (uint32_t i = 0; i < TASKS; i++)
        check(!away[i].used || away[i].threads != threads);
    free(threads);
}

bool io_threads_end(struct io_threads *threads, uint64_t until_ns)
{
    while (threads && threads->away > 0)
        io_run(threads->io, until_ns);
    io_threads_destroy(threads);
    return true;
}

void io_threads_submit(struct io_threads *threads, struct io_task *task, enum io_task_kind kind,
                       uint32_t lane, int fd)
{
    uint32_t i = 0;

    (void)lane;
    while (i < TASKS && away[i].used)
        i++;
    check(i < TASKS);
    io_task_state_move(&task->state, IO_TASK_AWAY);
    task->kind = kind;
    task->fd = fd;
    task->res = 0;
    threads->away++;
    away[i] = (struct away){.used = true, .gen = away[i].gen + 1, .task = task, .threads = threads};
    later(&away[i], kind == IO_TASK_WORK ? STAGE_WORK : STAGE_POST);
}

void io_threads_stats(const struct io_threads *threads, struct io_threads_stats *ret)
{
    *ret = (struct io_threads_stats){.threads = 1, .away = threads->away};
}

void io_threads_cancel(struct io_task *task)
{
    struct away *a = away_of(task);

    if (task->state != IO_TASK_AWAY)
        return;
    check(a);
    io_task_state_move(&task->state, IO_TASK_CALLED_BACK);
    rw_post(rw_soon(), T_TASK_CANCEL, (uint32_t)(a - away), a->gen);
}
