/* The alarm for pages in quarantine: one line a transfer, in the turn in which its wait passes the
 * limit, with the peer, the transfer and what to do. */
#include "unit/rig/rig_pair.h"

#include "shell/loop/quarantine.h"
#include "unit/rig/rig_log.h"

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
    char why[CONFIG_WHY_BYTES];
    struct config *config;

    log_start(LEVEL_WARN);
    if (config_load_text("t", yaml, sizeof yaml - 1, &config, why, sizeof why) != TERN_OK)
        fail_msg("%s", why);
    return config;
}

TEST(quarantine_old_is_warned_of_once_a_transfer)
{
    struct pair p = pair_limited(1 << 20);
    struct config *config = config_with_peer();
    struct rig_session *d[2];
    uint64_t since_ns, seen_ns = 0;
    struct pull_id pull[2];

    p.dest->automatic = BY_HAND(RIG_PULL | RIG_PULL_STOP);
    fetch_many(&p, 2, 16, d);
    for (uint32_t i = 0; i < 2; i++)
        pull[i] = rig_job(p.dest, RIG_PULL, i)->pull;
    rig_advance(p.dest, 1000000);
    seen_ns = quarantine_warn(p.dest->core, config, seen_ns, p.dest->now_ns);
    since_ns = p.dest->now_ns;
    assert_ok(rig_fetch_cancel(d[1]));
    rig_advance(p.dest, 3000000);
    assert_ok(rig_fetch_cancel(d[0]));

    seen_ns = quarantine_warn(p.dest->core, config, seen_ns, since_ns + QUARANTINE_WARN_NS - 1);
    assert_string_equal(logged(), "");
    seen_ns = quarantine_warn(p.dest->core, config, seen_ns, since_ns + QUARANTINE_WARN_NS);
    assert_line(logged(), pull[1], 4, 10000);
    seen_ns =
        quarantine_warn(p.dest->core, config, seen_ns, since_ns + QUARANTINE_WARN_NS + 2999999);
    assert_string_equal(logged(), "");
    seen_ns =
        quarantine_warn(p.dest->core, config, seen_ns, since_ns + QUARANTINE_WARN_NS + 8000000);
    assert_line(logged(), pull[0], 4, 10005);
    seen_ns = quarantine_warn(p.dest->core, config, seen_ns, since_ns + 9 * QUARANTINE_WARN_NS);
    assert_string_equal(logged(), "");
    rig_complete(p.dest, RIG_PULL_STOP);
    rig_complete(p.dest, RIG_PULL_STOP);
    quarantine_warn(p.dest->core, config, 0, since_ns + 9 * QUARANTINE_WARN_NS);
    assert_string_equal(logged(), "");

    config_destroy(config);
    log_stop();
}
