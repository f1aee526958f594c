/* See config_reader.h. One mutex guards the state; it is not held while the file is read. What must
 * stay true: the memory is there for as long as the thread is. */
#include "shell/config/config_reader.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "seam/own_threads.h"
#include "shell/config/config_reader_states.h"

struct config_reader {
    pthread_mutex_t lock;
    pthread_cond_t wake, left;
    enum config_reader_state state;
    int argc;
    char **argv; /* borrowed */
    int event_fd;
    /* READ: */
    struct config *config; /* owned */
    enum tern_err err;
    char why[CONFIG_WHY_BYTES];
};

static void reader_free(struct config_reader *r)
{
    if (r->event_fd >= 0)
        close(r->event_fd);
    config_destroy(r->config);
    pthread_cond_destroy(&r->wake);
    pthread_cond_destroy(&r->left);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* Called with the lock held; the lock is released while the file is read. */
static void read_now(struct config_reader *r)
{
    char why[CONFIG_WHY_BYTES] = "";
    struct config *config = NULL;
    enum tern_err err;

    pthread_mutex_unlock(&r->lock);
    err = config_load(r->argc, r->argv, &config, why, sizeof why);
    pthread_mutex_lock(&r->lock);
    r->config = config;
    r->err = err;
    memcpy(r->why, why, sizeof why);
    if (r->state == CONFIG_READER_ORPHANED)
        return;
    config_reader_state_move(&r->state, CONFIG_READER_READ);
    eventfd_wake(r->event_fd);
}

static void *run(void *ctx)
{
    struct config_reader *r = ctx;
    bool orphan;

    pthread_mutex_lock(&r->lock);
    while (r->state != CONFIG_READER_ENDING && r->state != CONFIG_READER_ORPHANED) {
        if (r->state == CONFIG_READER_READING)
            read_now(r);
        else
            pthread_cond_wait(&r->wake, &r->lock);
    }
    orphan = r->state == CONFIG_READER_ORPHANED;
    if (!orphan) {
        config_reader_state_move(&r->state, CONFIG_READER_ENDED);
        pthread_cond_signal(&r->left);
    }
    pthread_mutex_unlock(&r->lock);
    if (orphan)
        reader_free(r);
    return NULL;
}

/* Nobody joins the thread, because a disk may keep it at the end. */
static bool start_thread(struct config_reader *r)
{
    sigset_t before;
    pthread_attr_t attr;
    pthread_t thread;
    bool started;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, CONFIG_READER_STACK_BYTES);
    own_threads_mask(&before);
    started = pthread_create(&thread, &attr, run, r) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return started;
}

enum tern_err config_reader_create(int argc, char **argv, struct config_reader **ret)
{
    struct config_reader *r = calloc(1, sizeof *r);

    if (!r)
        return TERN_INTERNAL;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->wake, NULL);
    pthread_cond_init(&r->left, NULL);
    r->argc = argc;
    r->argv = argv;
    r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->event_fd < 0 || !start_thread(r)) {
        reader_free(r);
        return TERN_INTERNAL;
    }
    *ret = r;
    return TERN_OK;
}

void config_reader_destroy(struct config_reader *r)
{
    bool orphan;

    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    orphan = r->state == CONFIG_READER_READING;
    config_reader_state_move(&r->state, orphan ? CONFIG_READER_ORPHANED : CONFIG_READER_ENDING);
    pthread_cond_signal(&r->wake);
    while (!orphan && r->state != CONFIG_READER_ENDED)
        pthread_cond_wait(&r->left, &r->lock);
    pthread_mutex_unlock(&r->lock);
    if (!orphan)
        reader_free(r);
}

int config_reader_event_fd(const struct config_reader *r)
{
    return r->event_fd;
}

bool config_reader_ask(struct config_reader *r)
{
    bool idle;

    pthread_mutex_lock(&r->lock);
    idle = r->state == CONFIG_READER_IDLE;
    if (idle) {
        config_reader_state_move(&r->state, CONFIG_READER_READING);
        pthread_cond_signal(&r->wake);
    }
    pthread_mutex_unlock(&r->lock);
    return idle;
}

bool config_reader_take(struct config_reader *r, struct config **ret, enum tern_err *ret_err,
                        char why[CONFIG_WHY_BYTES])
{
    uint64_t count;
    bool any;

    (void)!read(r->event_fd, &count, sizeof count);
    pthread_mutex_lock(&r->lock);
    any = r->state == CONFIG_READER_READ;
    if (any) {
        *ret_err = r->err;
        memcpy(why, r->why, CONFIG_WHY_BYTES);
        *ret = r->config;
        r->config = NULL;
        config_reader_state_move(&r->state, CONFIG_READER_IDLE);
    }
    pthread_mutex_unlock(&r->lock);
    return any;
}
