/* The alarm for pages in quarantine: one line a transfer, in the turn in which its wait passes the
 * limit, with the peer, the transfer and what to do. */
#include "unit/rig/rig_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shell/log/log.h"
#include "shell/loop/quarantine.h"

static int log_fd;

/* Everything since the last call. */
static const char *written(void)
{
    static char text[1 << 14];
    ssize_t n = pread(log_fd, text, sizeof text - 1, 0);

    assert_true(n >= 0);
    text[n] = '\0';
    assert_int_equal(ftruncate(log_fd, 0), 0);
    assert_true(lseek(log_fd, 0, SEEK_SET) == 0);
    return text;
}

static void assert_line(const char *text, struct pull_id pull, uint32_t pages, uint64_t age_ms)
{
    char wanted[160];

    snprintf(wanted, sizeof wanted,
             "level=warn event=quarantine_old peer=beta transfer=%016" PRIx64
             " pages=%u age_ms=%" PRIu64 " reason=",
             pull_id_pack(pull), pages, age_ms);
    if (strstr(text, wanted) == NULL)
        fail_msg("no \"%s\" in: %s", wanted, text);
    assert_non_null(strstr(text, "ternctl peers"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
}

static struct config *config_with_peer(void)
{
    static const char yaml[] =
        "node: alpha\ninsecure_peers: true\n"
        "tenants:\n  - {name: first, socket: /tmp/1, memory: 4M}\n"
        "peers:\n  - {name: beta, address: \"[::1]:7001\", tenants: [first]}\n";
    char path[] = "/tmp/tern-log-XXXXXX", why[CONFIG_WHY_BYTES];
    struct config *config;

    log_fd = mkstemp(path);
    assert_true(log_fd >= 0);
    unlink(path);
    log_init(LEVEL_WARN, log_fd, NULL);
    if (config_load_text("t", yaml, sizeof yaml - 1, &config, why, sizeof why) != TERN_OK)
        fail_msg("%s", why);
    return config;
}

TEST(quarantine_old_is_warned_of_once_a_transfer)
{
    struct pair p = pair_limited(1 << 20);
    struct config *config = config_with_peer();
    struct rig_session *d[2];
    uint64_t fetch[2], since_ns, seen_ns = 0;
    struct pull_id pull[2];

    p.dest->automatic = BY_HAND(RIG_PULL | RIG_PULL_STOP);
    fetch_many(&p, 2, 16, d, fetch);
    for (uint32_t i = 0; i < 2; i++)
        pull[i] = rig_job(p.dest, RIG_PULL, i)->pull;
    rig_advance(p.dest, 1000000);
    seen_ns = quarantine_warn(p.dest->core, config, seen_ns, p.dest->now_ns);
    since_ns = p.dest->now_ns;
    assert_ok(rig_fetch_cancel(d[1]));
    rig_advance(p.dest, 3000000);
    assert_ok(rig_fetch_cancel(d[0]));

    seen_ns = quarantine_warn(p.dest->core, config, seen_ns, since_ns + QUARANTINE_WARN_NS - 1);
    assert_string_equal(written(), "");
    seen_ns = quarantine_warn(p.dest->core, config, seen_ns, since_ns + QUARANTINE_WARN_NS);
    assert_line(written(), pull[1], 4, 10000);
    seen_ns =
        quarantine_warn(p.dest->core, config, seen_ns, since_ns + QUARANTINE_WARN_NS + 2999999);
    assert_string_equal(written(), "");
    seen_ns =
        quarantine_warn(p.dest->core, config, seen_ns, since_ns + QUARANTINE_WARN_NS + 8000000);
    assert_line(written(), pull[0], 4, 10005);
    seen_ns = quarantine_warn(p.dest->core, config, seen_ns, since_ns + 9 * QUARANTINE_WARN_NS);
    assert_string_equal(written(), "");
    rig_complete(p.dest, RIG_PULL_STOP);
    rig_complete(p.dest, RIG_PULL_STOP);
    quarantine_warn(p.dest->core, config, 0, since_ns + 9 * QUARANTINE_WARN_NS);
    assert_string_equal(written(), "");

    config_destroy(config);
    close(log_fd);
}
