/* ternd: configuration, one daemon, its exit status. Exit 0: drained; 1: it could not start; 2: the
 * configuration is wrong. A failed check or a crash leaves the tape of the last events. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/daemon.h"
#include "shell/log.h"

/* The hook and the handlers get no context of ours. */
static struct daemon *running;

static void on_failed_check(const char *text)
{
    (void)text;
    if (running)
        operator_dump_tape(running);
}

static void on_crash(int number)
{
    if (running)
        operator_dump_tape(running);
    /* SA_RESETHAND: the next one ends the process. A fault comes again by itself, a signal that was
     * sent does not. */
    raise(number);
}

static void watch_crashes(void)
{
    struct sigaction sa = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND};

    sigaction(SIGSEGV, &sa, NULL);
    sigaction(SIGILL, &sa, NULL);
    sigaction(SIGFPE, &sa, NULL);
    check_set_hook(on_failed_check);
}

int main(int argc, char **argv)
{
    char why[CONFIG_WHY_BYTES] = "";
    struct config *config = NULL;
    enum tern_err err = config_load(argc, argv, &config, why, sizeof(why));
    int status;

    if (err != TERN_OK) {
        fprintf(stderr, "ternd: %s\n", why);
        return 2;
    }
    if (config->check_only) {
        config_print(config, stdout);
        config_destroy(config);
        return 0;
    }
    log_init(config->log_level, 2, NULL);
    if (config->insecure_peers)
        log_event(LEVEL_WARN, "insecure_peers", "reason=%s",
                  "peers talk in the clear: everyone on the network between them can read and "
                  "change pages");
    err = daemon_create(config, &running, why, sizeof(why));
    if (err != TERN_OK) {
        log_event(LEVEL_ERROR, "start_failed", "err=%s reason=%s", err_name(err), why);
        config_destroy(config);
        return 1;
    }
    watch_crashes();
    status = daemon_run(running);
    daemon_destroy(running);
    config_destroy(config);
    return status;
}
