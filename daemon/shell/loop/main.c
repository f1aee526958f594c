/* ternd reads the configuration, runs one daemon and returns its exit status. 0: drained; 1: the
 * start failed; 2: the configuration is wrong, or --check-config finds that the daemon cannot start
 * here. A failed check or a crash writes the tape of the last events (crash.c). */
#include <stdio.h>

#include "base/err.h"
#include "shell/config/plan.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/loop/loop.h"

static void log_memory(const struct plan_memory *m)
{
    log_event(LEVEL_INFO, "memory",
              "memory_bytes=%" PRIu64 " pages=%" PRIu64 " host_pages=%" PRIu64 " records=%" PRIu64
              " core=%" PRIu64 " checksums=%" PRIu64 " disk=%" PRIu64 " transfers=%" PRIu64
              " rdma=%" PRIu64 " connections=%" PRIu64 " tls=%" PRIu64 " tape=%" PRIu64
              " machine=%" PRIu64,
              m->total, m->pages, m->host_pages, m->records, m->core, m->checksums, m->disk,
              m->transfers, m->rdma, m->connections, m->tls, m->tape, plan_machine_bytes());
}

int main(int argc, char **argv)
{
    char why[CONFIG_WHY_BYTES] = "";
    struct config *config = NULL;
    struct daemon *running = NULL;
    struct plan_memory memory;
    enum tern_err err = config_load(argc, argv, &config, why, sizeof(why));
    int status;

    if (err != TERN_OK) {
        fprintf(stderr, "ternd: %s\n", why);
        return 2;
    }
    if (config->plan_only) {
        plan_report(config, "", stdout);
        config_destroy(config);
        return 0;
    }
    plan_memory(config, &memory);
    if (config->check_only) {
        status = preflight(config, stderr) > 0 ? 2 : 0;
        if (status == 0) {
            config_print(config, stdout);
            plan_print_shares(config, stdout);
            plan_report(config, "# ", stdout);
        }
        config_destroy(config);
        return status;
    }
    log_init(config->log_level, 2, NULL);
    if (config->insecure_peers)
        log_event(LEVEL_WARN, "insecure_peers", "reason=%s",
                  "peers connect without TLS: everyone on the network between them can read and "
                  "change token ids and pages");
    log_memory(&memory);
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
