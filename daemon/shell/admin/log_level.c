/* See operator.h. */
#include "shell/admin/operator.h"

#include "shell/log/log.h"

#define SECOND_NS UINT64_C(1000000000)

/* The line comes out if either level lets it. */
static void back(struct daemon *d)
{
    enum log_level was = log_level_now(), is = d->config->log_level;

    log_level_set(is > was ? is : was);
    log_event(LEVEL_INFO, "log_level_ended", "was=%s is=%s", log_level_name(was),
              log_level_name(is));
    log_level_set(is);
    d->log_level_ns = 0;
}

void log_level_change(struct daemon *d, enum log_level level, uint32_t for_s)
{
    if (level == d->config->log_level) {
        if (d->log_level_ns)
            back(d);
        return;
    }
    log_level_set(level);
    d->log_level_ns = io_now_ns() + for_s * SECOND_NS;
}

void log_level_configured(struct daemon *d)
{
    if (!d->log_level_ns)
        log_level_set(d->config->log_level);
}

void log_level_tick(struct daemon *d, uint64_t now_ns)
{
    if (d->log_level_ns && now_ns >= d->log_level_ns)
        back(d);
}
