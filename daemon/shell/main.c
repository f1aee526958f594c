/* ternd: configuration, one daemon, its exit status. Exit 0: drained; 1: it could not start; 2: the
 * configuration is wrong. A failed check or a crash leaves the tape of the last events (crash.c).
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "shell/crash.h"
#include "shell/daemon.h"
#include "shell/log.h"

int main(int argc, char **argv)
{
    char why[CONFIG_WHY_BYTES] = "";
    struct config *config = NULL;
    struct daemon *running = NULL;
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
    crash_watch();
    err = daemon_create(config, &running, why, sizeof(why));
    if (err != TERN_OK) {
        log_event(LEVEL_ERROR, "start_failed", "err=%s reason=%s", err_name(err), why);
        config_destroy(config);
        return 1;
    }
    crash_tape(config, running->tape, running->incarnation);
    status = daemon_run(running);
    crash_tape(config, NULL, 0);
    daemon_destroy(running);
    config_destroy(config);
    return status;
}
