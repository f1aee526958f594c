/* The commands that show tables: status, pools, sessions, records, engines, peers. */
#include "ctl.h"

#include <stdio.h>
#include <string.h>

/* A count that should be 0 is highlighted if it is not. */
static enum colour alarm_if(uint64_t n)
{
    return n ? RED : DIM;
}

static enum colour dim_if_none(uint64_t n)
{
    return n ? PLAIN : DIM;
}

/* ---- the pages of each group: in short for status, in full for pools ---- */

static const char *const short_titles[] = {
    "=POOL",     "<TENANT",   "<TIER",     "<GROUP",       "TOTAL",      "FREE", "SESSION",
    "+SNAPSHOT", "+TRANSFER", "+RETIRING", "+RECLAIMABLE", "QUARANTINE", "LIVE", "EVICTABLE"};
/* PEAK is of the column before it. OTHER: on a ticket, or being zeroed. */
static const char *const group_titles[] = {
    "=POOL",     "<TIER",     "<GROUP",     "+<FAMILY", "+PAGE", "TOTAL",        "FREE",
    "+LEASED",   "SESSION",   "+PEAK",      "SNAPSHOT", "+PEAK", "+RECLAIMABLE", "+BORROWED",
    "+TRANSFER", "+RETIRING", "QUARANTINE", "+OTHER",   "LIVE",  "EVICTABLE",
};

/* Adds the family; a window with its tokens. */
static void add_family(struct table *t, const json_t *g)
{
    if (j_u64(g, "window") > 0)
        table_add(t, PLAIN, "%s %llu", j_str(g, "family"), (unsigned long long)j_u64(g, "window"));
    else
        table_add(t, PLAIN, "%s", j_str(g, "family"));
}

static void add_tier(struct table *t, const json_t *row)
{
    const char *tier = j_str(row, "tier");

    table_add(t, strcmp(tier, "host") == 0 ? DIM : PLAIN, "%s", tier);
}

static void add_count(struct table *t, const json_t *g, const char *key)
{
    uint64_t n = j_u64(g, key);

    if (json_is_null(json_object_get(g, key))) { /* too many to count */
        table_add(t, PLAIN, "?");
        return;
    }
    table_count(t, strcmp(key, "quarantine") == 0 ? alarm_if(n) : dim_if_none(n), n);
}

static void add_total(struct table *t, const json_t *g)
{
    uint64_t free_pages = j_u64(g, "free");

    table_num(t, g, "total");
    table_count(t, free_pages ? GREEN : YELLOW, free_pages);
}

/* Pages in use are live or evictable. */
static void add_used(struct table *t, const json_t *g)
{
    uint64_t total = j_u64(g, "total"), used = total - j_u64(g, "free");
    uint64_t evictable = j_u64(g, "evictable"), live = used > evictable ? used - evictable : 0;
    uint64_t percent = total ? 100 * live / total : 0;

    table_add(t, percent >= 95 ? YELLOW : PLAIN, "%llu %%", (unsigned long long)percent);
    table_count(t, dim_if_none(evictable), evictable);
}

static void add_group_short(struct table *t, const json_t *g)
{
    static const char *const states[] = {"session",  "snapshot",    "transfer",
                                         "retiring", "reclaimable", "quarantine"};

    table_add(t, PLAIN, "%s", j_str(g, "pool"));
    table_add(t, PLAIN, "%s", j_str(g, "tenant"));
    add_tier(t, g);
    table_add(t, BOLD, "%s", j_str(g, "group"));
    add_total(t, g);
    for (size_t i = 0; i < TITLES_N(states); i++)
        add_count(t, g, states[i]);
    add_used(t, g);
}

static void add_group(struct table *t, const json_t *g, const json_t *pool)
{
    static const char *const states[] = {"leased",        "session",     "peak_session", "snapshot",
                                         "peak_snapshot", "reclaimable", "borrowed",     "transfer",
                                         "retiring",      "quarantine"};
    uint64_t other = j_u64(g, "ticket") + j_u64(g, "zeroing");

    table_add(t, PLAIN, "%s", j_str(pool, "pool"));
    add_tier(t, pool);
    table_add(t, BOLD, "%s", j_str(g, "group"));
    add_family(t, g);
    table_add(t, PLAIN, "%s", human_bytes(j_u64(g, "page_bytes")));
    add_total(t, g);
    for (size_t i = 0; i < TITLES_N(states); i++)
        add_count(t, g, states[i]);
    table_count(t, dim_if_none(other), other);
    add_used(t, g);
}

/* ---- status ---- */

/* Huge pages include those of the host tier and of record memory. */
static void show_memory(const json_t *memory)
{
    printf("  memory %s (%s)", human_bytes(j_u64(memory, "bytes")), j_str(memory, "kind"));
    if (j_u64(memory, "devices") > 0)
        printf(", %s of it on %s GPUs (%s lost)", human_bytes(j_u64(memory, "device_bytes")),
               num(memory, "devices"), num(memory, "devices_lost"));
    if (j_u64(memory, "host_bytes") > 0)
        printf(" + host %s", human_bytes(j_u64(memory, "host_bytes")));
    if (j_u64(memory, "record_bytes") > 0)
        printf(" + records %s", human_bytes(j_u64(memory, "record_bytes")));
    printf(", huge pages %s, %s workers\n", human_bytes(j_u64(memory, "huge_page_bytes")),
           num(memory, "workers"));
    printf("  hole punching by clients: ");
    if (j_u64(memory, "with_holes") == 0)
        printf("refused by the kernel\n");
    else
        printf("possible in %s pieces of memory; %s waits, %s ms in total\n",
               num(memory, "with_holes"), num(memory, "waits"), num(memory, "waited_ms"));
    if (j_u64(memory, "devices") > 0)
        printf("  copied between GPUs: %s by peer access, %s through memory of the host; within a "
               "GPU: %s\n",
               human_bytes(j_u64(memory, "moved_bytes_by_peer")),
               human_bytes(j_u64(memory, "moved_bytes_staged")),
               human_bytes(j_u64(memory, "moved_bytes_within")));
}

/* Reserved memory is reserved before a pool takes any of it. */
static void show_host(const json_t *host, uint64_t reserved)
{
    if (reserved == 0)
        printf("  no host tier");
    else if (j_u64(host, "bytes") == 0)
        printf("  host tier %s reserved, no pool uses it", human_bytes(reserved));
    else
        printf("  host tier %s of %s: %s nodes copied to it, %s failed, %s evicted without a copy, "
               "%s loaded back, %s under way",
               human_bytes(j_u64(host, "bytes")), human_bytes(reserved), num(host, "host_copies"),
               num(host, "host_copies_failed"), num(host, "host_uncopied"), num(host, "host_loads"),
               num(host, "copies"));
    printf("; retracts %s, recovers %s, undone %s\n", num(host, "retracts"), num(host, "recovers"),
           num(host, "retracts_undone"));
}

/* Connections that have not identified themselves, if there are any or were too many. */
static void show_doors(const json_t *doors)
{
    const json_t *door;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)doors, i, door)
    {
        if (j_u64(door, "waiting") + j_u64(door, "displaced") + j_u64(door, "overdue") +
                j_u64(door, "over_rate") ==
            0)
            continue;
        printf("  door %s: %s of %s places used by connections without Hello, at most %s by one "
               "origin; closed: %s to make room, %s at the deadline, %s by the rate limit of their "
               "address\n",
               j_str(door, "door"), num(door, "waiting"), num(door, "places"), num(door, "share"),
               num(door, "displaced"), num(door, "overdue"), num(door, "over_rate"));
    }
}

/* Shows how descriptors that clients send are refused. */
static void show_descriptors(const json_t *s)
{
    printf("  descriptors sent by clients: %s", j_str(s, "mode"));
    if (j_u64(s, "connections_ended") > 0)
        printf("; %s connections that sent descriptors were closed", num(s, "connections_ended"));
    if (j_u64(s, "closing") > 0)
        printf(", %s are being closed", num(s, "closing"));
    printf("\n");
}

/* Unread answers, if there are any or were too many. */
static void show_send_buffers(const json_t *s)
{
    const json_t *share;
    size_t i;

    printf("  send buffers: %s of %s shared ones in use", num(s, "common_used"), num(s, "common"));
    json_array_foreach(json_object_get(s, "shares"), i, share)
    {
        if (j_u64(share, "used") > 0)
            printf(", %s %s (%s reserved)", j_str(share, "share"), num(share, "used"),
                   num(share, "reserved"));
    }
    if (j_u64(s, "made_way") > 0)
        printf("; %s connections with the most unread bytes were closed", num(s, "made_way"));
    printf("\n");
}

/* Shown only if engines use turns. */
static void show_turns(const json_t *turns)
{
    if (j_u64(turns, "turns_begun") == 0)
        return;
    printf("  turns: %s in flight, %s ended at the deadline, %s with their connection\n",
           num(turns, "turns_in_flight"), num(turns, "turns_expired"), num(turns, "turns_lost"));
}

/* One line a tenant that has record memory. */
static void show_records(const struct ctl *ctl, const char *before, const json_t *tenants)
{
    const json_t *tenant, *r;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)tenants, i, tenant)
    {
        r = json_object_get(tenant, "records");
        if (j_u64(r, "pages") == 0)
            continue;
        printf("%sturn records of %s: %s, in %s of %s pages of %s", before, j_str(tenant, "tenant"),
               num(r, "records"), num(r, "used"), num(r, "pages"),
               human_bytes(j_u64(r, "page_bytes")));
        if (j_u64(r, "held") > 0)
            paint(ctl, YELLOW, ", %s held", num(r, "held"));
        printf("\n");
    }
}

static void show_tape(const json_t *tape)
{
    const json_t *back = json_object_get(tape, "reaches_back_s");

    if (json_is_number(back))
        printf("  tape: the last %s, %s events; %s earlier events were overwritten\n",
               human_age(json_number_value(back)),
               human_count(j_u64(tape, "recorded") - j_u64(tape, "dropped")), num(tape, "dropped"));
}

static void show_daemon(const struct ctl *ctl, const json_t *s)
{
    const json_t *memory = json_object_get(s, "memory"), *data = json_object_get(s, "data");
    const json_t *events = json_object_get(s, "events");

    paint(ctl, BOLD, "%s", j_str(s, "node"));
    printf("  version %s  up %s  incarnation %s  ", j_str(s, "version"),
           human_age((double)j_u64(s, "uptime_s")), j_str(s, "incarnation"));
    if (j_bool(s, "draining"))
        paint(ctl, YELLOW, "draining: new sessions are refused\n");
    else
        paint(ctl, GREEN, "serving\n");
    printf("  sessions %s, engines %s, prefix nodes %s, connections %s", num(s, "sessions"),
           num(s, "engines"), num(s, "prefix_nodes"), num(s, "conns"));
    if (j_u64(s, "conns_refused") > 0)
        printf(" (%s refused)", num(s, "conns_refused"));
    printf("\n");
    printf("  peers %s of %s up", num(s, "peers_up"), num(s, "peers"));
    if (j_u64(s, "peers_fallback") > 0)
        printf(", %s by TCP although RDMA is preferred (`ternctl peers`)",
               num(s, "peers_fallback"));
    printf(", transfers %s", num(s, "transfers_active"));
    if (j_u64(s, "resets_spreading") > 0)
        printf(", resets of namespaces that wait for peers %s", num(s, "resets_spreading"));
    printf("\n");
    show_tape(json_object_get(s, "tape"));
    show_turns(json_object_get(s, "turns"));
    show_records(ctl, "  ", json_object_get(s, "tenants"));
    show_memory(memory);
    printf("  pages in %s (%s), out %s (%s), corrupt %s\n", num(data, "pages_in"),
           human_bytes(j_u64(data, "payload_bytes_in")), num(data, "pages_out"),
           human_bytes(j_u64(data, "payload_bytes_out")), num(data, "corrupt_detected"));
    printf("  data threads %s: %s tasks under way, %s done\n",
           num(json_object_get(data, "threads"), "threads"),
           num(json_object_get(data, "threads"), "tasks"),
           num(json_object_get(data, "threads"), "tasks_done"));
    printf("  data connections from peers: %s of %s, %s reserved for each peer, %s of %s shared "
           "ones in use\n",
           num(json_object_get(data, "from_peers"), "conns"),
           num(json_object_get(data, "from_peers"), "limit"),
           num(json_object_get(data, "from_peers"), "reserved"),
           num(json_object_get(data, "from_peers"), "common_used"),
           num(json_object_get(data, "from_peers"), "common"));
    show_doors(json_object_get(s, "doors"));
    show_descriptors(json_object_get(s, "descriptors"));
    show_send_buffers(json_object_get(s, "send_buffers"));
    show_host(json_object_get(s, "host_tier"), j_u64(memory, "host_bytes"));
    show_spill(ctl, json_object_get(s, "spill"), json_object_get(s, "tenants"));
    printf("  evicted %s nodes, %s pages\n", num(s, "evicted_nodes"), num(s, "evicted_pages"));
    printf("  subscriptions %s: %s changes of the tree sent, %s lost\n\n",
           num(events, "subscriptions"), num(events, "told"), num(events, "lost"));
}

/* One line for each tenant: its use of each table, and the amount reserved for it. */
static void show_shares(const json_t *shares)
{
    const json_t *first = json_object_get(json_array_get(shares, 0), "used");
    const char *tenant;
    json_t *unused, *table;
    size_t i;

    json_object_foreach((json_t *)(uintptr_t)first, tenant, unused)
    {
        printf("\nshares of %s (in use / reserved):", tenant);
        json_array_foreach(shares, i, table)
        {
            printf("%s %s %s/%s", i ? "," : "", j_str(table, "table"),
                   human_count(j_u64(json_object_get(table, "used"), tenant)),
                   human_count(j_u64(json_object_get(table, "reserved"), tenant)));
        }
        printf("\n");
    }
}

static void show_errors(const struct ctl *ctl, const char *before, const json_t *errors)
{
    const char *name;
    json_t *count;

    json_object_foreach((json_t *)(uintptr_t)errors, name, count)
    {
        if (json_integer_value(count) == 0)
            continue;
        printf("%s%s ", before, name);
        paint(ctl, strcmp(name, "INTERNAL") == 0 ? RED : YELLOW, "%s",
              human_count((uint64_t)json_integer_value(count)));
        before = ", ";
    }
    if (before[0] == ',')
        printf("\n");
}

/* For each tenant with refusals: their number, and the last reason. */
static void show_refusals(const struct ctl *ctl, const json_t *refusals)
{
    char before[128];
    json_t *row;
    size_t i;

    json_array_foreach(refusals, i, row)
    {
        if (!json_is_string(json_object_get(row, "last")))
            continue;
        snprintf(before, sizeof before, "  of %s: ", j_str(row, "tenant"));
        show_errors(ctl, before, json_object_get(row, "errors"));
        printf("    last %s ago: %s, %s%s%s\n", human_age(j_f64(row, "last_s")),
               j_str(row, "last_op"), j_str(row, "last"),
               json_is_string(json_object_get(row, "last_text")) ? ": " : "",
               json_is_string(json_object_get(row, "last_text")) ? j_str(row, "last_text") : "");
    }
}

static void show_certificate(const struct ctl *ctl, const json_t *certificate)
{
    double left_s = j_f64(certificate, "left_s");

    if (!json_is_object(certificate))
        return;
    if (left_s <= 0)
        paint(ctl, RED,
              "\nalarm: this node's certificate has expired (%s): peers refuse every new link. "
              "Issue a new one, then run `ternctl reload`.\n",
              j_str(certificate, "not_after"));
    else if (left_s <= j_f64(certificate, "life_s") / 10)
        paint(ctl, YELLOW,
              "\nwarning: this node's certificate expires in %s (%s): issue a new one, then run "
              "`ternctl reload`.\n",
              human_age(left_s), j_str(certificate, "not_after"));
    if (!j_bool(certificate, "own_ca"))
        paint(ctl, YELLOW,
              "\nwarning: no CA in tls.ca has issued this node's certificate: peers that trust the "
              "same CA refuse it.\n");
}

/* The active alarms. The daemon limits their number. */
static void show_on(const struct ctl *ctl, const json_t *s)
{
    const json_t *alarms = json_object_get(s, "alarms"), *a;
    uint64_t on = j_u64(s, "alarms_on");
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)alarms, i, a)
    {
        paint(ctl, RED, "\nalarm: %s%s%s, for %s: %s.\n", j_str(a, "name"),
              j_str(a, "subject")[0] ? " of " : "", j_str(a, "subject"),
              human_age(j_f64(a, "since_s")), j_str(a, "text"));
        printf("What to do: %s.\n", j_str(a, "action"));
    }
    if (on > json_array_size(alarms))
        printf("\n%s more alarms are on.\n", human_count(on - json_array_size(alarms)));
}

static void show_log(const struct ctl *ctl, const json_t *log)
{
    if (j_u64(log, "lost") > 0)
        paint(ctl, YELLOW,
              "\nwarning: %s lines of the daemon's log could not be written: the log's reader is "
              "slow or has ended, or the disk is full.\n",
              num(log, "lost"));
}

/* Lists what needs an operator's attention, with what to do. */
static void show_alarms(const struct ctl *ctl, const json_t *s)
{
    show_on(ctl, s);
    show_certificate(ctl, json_object_get(s, "certificate"));
    if (j_u64(json_object_get(s, "steps_over"), "steps") > 0)
        paint(ctl, YELLOW,
              "\nwarning: %s steps of the core took longer than allowed: report this as a bug, "
              "with the tape that the log names (step_over).\n",
              num(json_object_get(s, "steps_over"), "steps"));
    if (j_u64(json_object_get(s, "fault_injection"), "corrupt_pages") > 0)
        paint(ctl, YELLOW,
              "\nwarning: faults.corrupt_pages is set: this daemon damages received pages, on "
              "purpose.\n");
    if (j_u64(json_object_get(s, "fault_injection"), "copy_corrupt_every") > 0)
        paint(ctl, YELLOW,
              "\nwarning: faults.copy_corrupt_every is set: this daemon damages copies between the "
              "tiers, on purpose.\n");
    if (j_u64(json_object_get(s, "fault_injection"), "disk_write_every") +
            j_u64(json_object_get(s, "fault_injection"), "disk_full_after") >
        0)
        paint(ctl, YELLOW,
              "\nwarning: faults.disk_... is set: this daemon's disk fails, on purpose.\n");
    show_log(ctl, json_object_get(s, "log"));
    if (j_u64(json_object_get(s, "memory"), "faults") > 0)
        paint(ctl, RED,
              "\nwarning: the daemon lost %s pages of memory: look for hardware errors, then drain "
              "and restart the daemon.\n",
              num(json_object_get(s, "memory"), "faults"));
    if (j_bool(s, "insecure_peers"))
        paint(ctl, YELLOW, "\nwarning: peers connect without TLS (insecure_peers).\n");
}

/* Prints nothing if all memory is registered, or RDMA is not in use. */
static void show_unregistered(const json_t *s)
{
    const json_t *verbs = json_object_get(json_object_get(s, "data"), "verbs");
    uint64_t unknown = j_u64(verbs, "gpu_regions_unregistered");

    if (unknown > 0)
        printf("\nregions on GPUs: %s of %s are not registered for RDMA, and their pages can only "
               "be sent by TCP (`ternctl doctor` shows the cause)\n",
               human_count(unknown), human_count(unknown + j_u64(verbs, "gpu_regions")));
}

static int run_status(struct ctl *ctl)
{
    json_t *s = ctl_ask(ctl, "status", NULL, 0), *row;
    struct table t;
    size_t i;

    if (!ctl_print_json(ctl, s)) {
        show_daemon(ctl, s);
        table_init(&t, ctl, short_titles, TITLES_N(short_titles));
        json_array_foreach(json_object_get(s, "pools"), i, row) add_group_short(&t, row);
        table_print(&t, "no pool is open");
        show_shares(json_object_get(s, "shares"));
        show_errors(ctl, "\nanswered errors: ", json_object_get(s, "errors"));
        show_refusals(ctl, json_object_get(s, "refusals"));
        show_unregistered(s);
        show_alarms(ctl, s);
    }
    json_decref(s);
    return CTL_OK;
}

/* ---- lists ---- */

/* Prints a table of the daemon's list `name`, or `empty`. */
static int show_list(struct ctl *ctl, const char *name, const char *const *titles, uint32_t n,
                     void (*add_row)(struct table *t, json_t *row), const char *empty)
{
    json_t *answer = ctl_list(ctl, name, NULL), *row;
    struct table t;
    size_t i;

    if (!ctl_print_json(ctl, answer)) {
        table_init(&t, ctl, titles, n);
        json_array_foreach(json_object_get(answer, name), i, row) add_row(&t, row);
        table_print(&t, empty);
    }
    json_decref(answer);
    return CTL_OK;
}

static int run_pools(struct ctl *ctl)
{
    static const char *const titles[] = {"=POOL",  "SLOT",        "<TENANT",     "<ENGINE", "<TIER",
                                         "<STATE", "BYTES",       "+SLABS",      "+UNUSED", "NODES",
                                         "+ALIGN", "+<SUPERSEDE", "+=OTHER TIER"};
    json_t *answer = ctl_list(ctl, "pools", NULL), *row, *group;
    struct table pools, groups;
    size_t i, k;

    if (ctl_print_json(ctl, answer)) {
        json_decref(answer);
        return CTL_OK;
    }
    table_init(&pools, ctl, titles, TITLES_N(titles));
    table_init(&groups, ctl, group_titles, TITLES_N(group_titles));
    json_array_foreach(json_object_get(answer, "pools"), i, row)
    {
        const char *state = j_str(row, "state");

        table_add(&pools, PLAIN, "%s", j_str(row, "pool"));
        table_num(&pools, row, "slot");
        table_add(&pools, PLAIN, "%s", j_str(row, "tenant"));
        table_add(&pools, BOLD, "%s", j_str(row, "engine"));
        add_tier(&pools, row);
        table_add(&pools, strcmp(state, "open") == 0 ? GREEN : YELLOW, "%s", state);
        table_add(&pools, PLAIN, "%s", human_bytes(j_u64(row, "bytes")));
        table_num(&pools, row, "slabs");
        table_num(&pools, row, "slabs_free");
        table_num(&pools, row, "nodes");
        table_add(&pools, PLAIN, "%s tokens", num(row, "align_tokens"));
        table_add(&pools, PLAIN, "%s", j_str(row, "supersede"));
        table_add(&pools, PLAIN, "%s", j_str(row, "other_tier"));
        json_array_foreach(json_object_get(row, "groups"), k, group) add_group(&groups, group, row);
    }
    table_print(&pools, "no pool is open");
    if (groups.cells) {
        printf("\n");
        table_print(&groups, "");
    }
    json_decref(answer);
    return CTL_OK;
}

/* Highlights sessions that are away from the device, or on their way. */
static void add_session_state(struct table *t, const char *state)
{
    bool away = strcmp(state, "retracting") == 0 || strcmp(state, "retracted") == 0 ||
                strcmp(state, "loading") == 0;

    table_add(t, away ? YELLOW : PLAIN, "%s", state);
}

/* Shows the node that the row's session or transfer pins, the kind of its ref, and the ref's
 * age. */
static void add_hold(struct table *t, const json_t *row)
{
    bool holds = json_is_string(json_object_get(row, "ref"));

    table_add(t, PLAIN, "%s", j_str(row, "ref"));
    table_add(t, PLAIN, "%s", holds ? human_age(j_f64(row, "ref_s")) : "-");
    table_add(t, DIM, "%s", j_str(row, "node_id"));
}

static void add_session(struct table *t, json_t *row)
{
    table_add(t, PLAIN, "%s", j_str(row, "session"));
    table_add(t, PLAIN, "%s", j_str(row, "tenant"));
    table_add(t, BOLD, "%s", j_str(row, "engine"));
    table_add(t, PLAIN, "%s", j_str(row, "pool"));
    table_hex(t, j_str(row, "namespace"), 16);
    add_session_state(t, j_str(row, "state"));
    table_add(t, PLAIN, "%s",
              json_is_string(json_object_get(row, "turn")) ? j_str(row, "turn") : "-");
    table_num(t, row, "committed");
    table_num(t, row, "written");
    table_num(t, row, "allocated");
    table_num(t, row, "tokens");
    table_add(t, PLAIN, "%s", human_age(j_f64(row, "idle_s")));
    add_hold(t, row);
}

static int run_sessions(struct ctl *ctl)
{
    static const char *const titles[] = {"=SESSION",    "<TENANT",   "<ENGINE", "+=POOL",
                                         "+=NAMESPACE", "<STATE",    "<TURN",   "COMMITTED",
                                         "WRITTEN",     "ALLOCATED", "+TOKENS", "IDLE",
                                         "+<PIN",       "+PIN AGE",  "+=NODE"};

    return show_list(ctl, "sessions", titles, TITLES_N(titles), add_session, "no session is open");
}

static void add_recorded(struct table *t, const json_t *row)
{
    table_add(t, PLAIN, "%s", j_str(row, "session"));
    table_add(t, BOLD, "%s", j_str(row, "engine"));
    table_add(t, PLAIN, "%s", j_str(row, "pool"));
    table_num(t, row, "records");
    table_num(t, row, "recorded");
    table_num(t, row, "pages");
    table_num(t, row, "blob_pages");
    table_add(t, PLAIN, "%s", j_str(row, "turn"));
}

static int run_records(struct ctl *ctl)
{
    static const char *const titles[] = {"=SESSION", "<ENGINE", "=POOL",      "RECORDS",
                                         "TOKENS",   "PAGES",   "BLOB PAGES", "<TURN"};
    json_t *answer = ctl_list(ctl, "records", NULL), *row;
    struct table t;
    size_t i;

    if (!ctl_print_json(ctl, answer)) {
        show_records(ctl, "", json_object_get(answer, "tenants"));
        table_init(&t, ctl, titles, TITLES_N(titles));
        json_array_foreach(json_object_get(answer, "records"), i, row) add_recorded(&t, row);
        table_print(&t, "no session has turn records");
    }
    json_decref(answer);
    return CTL_OK;
}

/* "7 7 6": one number for each rank or process. */
static void add_numbers(struct table *t, const json_t *numbers)
{
    char text[(TERN_RANKS_MAX + 1) * 22] = "";
    size_t at = 0, i;
    json_t *v;

    json_array_foreach(numbers, i, v)
    {
        if (at + 22 < sizeof(text))
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%llu", i ? " " : "",
                                   (unsigned long long)json_integer_value(v));
    }
    table_add(t, PLAIN, "%s", text);
}

static void add_engine(struct table *t, json_t *row)
{
    uint64_t alive = j_u64(row, "procs_alive"), world = j_u64(row, "world");

    table_add(t, PLAIN, "%s", j_str(row, "engine"));
    table_add(t, BOLD, "%s", j_str(row, "name"));
    table_add(t, PLAIN, "%s", j_str(row, "tenant"));
    table_add(t, PLAIN, "%s", j_str(row, "state"));
    table_part(t, alive < world ? YELLOW : PLAIN, alive, world);
    add_numbers(t, json_object_get(row, "pids"));
    table_num(t, row, "sessions");
    table_num(t, row, "retiring_until");
    add_numbers(t, json_object_get(row, "done_step"));
}

static int run_engines(struct ctl *ctl)
{
    static const char *const titles[] = {"=ENGINE",  "<NAME",           "<TENANT",
                                         "<STATE",   "ALIVE",           "<PIDS",
                                         "SESSIONS", "+RETIRING UNTIL", "<DONE STEP OF EACH RANK"};

    return show_list(ctl, "engines", titles, TITLES_N(titles), add_engine, "no engine has joined");
}

/* The TLS version of a link that is up, or `none` without TLS. An earlier refusal is not shown
 * here: REASON has why the link is down. */
static const char *tls_of(const json_t *row)
{
    const json_t *tls = json_object_get(row, "tls");
    const char *version = json_string_value(json_object_get(tls, "version"));

    if (!json_is_object(tls))
        return "none";
    return version ? version : "-";
}

/* "-": it was never up. */
static const char *incarnation_of(const json_t *row)
{
    const char *hex = j_str(row, "incarnation");

    return hex[strspn(hex, "0")] ? hex : "-";
}

/* Paths get rows beneath their peer's if there are several, or one that is not ready. */
static void peer_paths(struct table *t, json_t *peer)
{
    json_t *paths = json_object_get(peer, "paths"), *path;
    size_t i;

    json_array_foreach(paths, i, path)
    {
        bool ready = strcmp(j_str(path, "state"), "ready") == 0;

        if (ready && json_array_size(paths) == 1)
            return;
        table_add(t, DIM, "  path");
        table_add(t, PLAIN, "%s", j_str(path, "device"));
        table_add(t, ready ? GREEN : YELLOW, "%s", j_str(path, "state"));
        for (int blank = 0; blank < 3; blank++)
            table_add(t, PLAIN, "%s", "");
        table_add(t, PLAIN, "%s", j_str(path, "tenant"));
        table_add(t, PLAIN, "%s", j_str(path, "reason"));
    }
}

/* Shows why the link is not up; else why its pages use their transport. */
static void add_peer_reason(struct table *t, const json_t *row)
{
    uint64_t attempts = j_u64(row, "attempts");

    if (!json_is_string(json_object_get(row, "last_error")))
        table_add(t, PLAIN, "%s", j_str(row, "transport_reason"));
    else
        table_add(t, YELLOW, "%s (%s attempt%s, %s)", j_str(row, "last_error"),
                  human_count(attempts), attempts == 1 ? "" : "s",
                  human_age(j_f64(row, "since_s")));
}

/* The transport of its pages, and the connections in use of the most allowed. */
static void add_peer_pages(struct table *t, const json_t *row)
{
    const json_t *conns = json_object_get(row, "connections");
    unsigned long long limit = j_u64(conns, "limit"), retired = j_u64(conns, "retired");
    char text[64] = "", failed[32] = "";

    if (retired > 0)
        snprintf(failed, sizeof failed, ", %llu retired", retired);
    if (limit > 0)
        snprintf(text, sizeof text, " (%llu of %llu up%s)", (unsigned long long)j_u64(conns, "up"),
                 limit, failed);
    table_add(t, retired > 0 || j_bool(row, "fallback") ? YELLOW : PLAIN, "%s%s%s",
              j_str(row, "transport"), strcmp(j_str(row, "moves"), "push") == 0 ? " push" : "",
              text);
}

static void add_peer(struct table *t, json_t *row)
{
    const char *state = j_str(row, "state");
    char names[256] = "";
    json_t *tenant;
    size_t at = 0, i;

    table_add(t, BOLD, "%s", j_str(row, "peer"));
    table_add(t, PLAIN, "%s:%llu", j_str(row, "host"), (unsigned long long)j_u64(row, "port"));
    table_add(t, strcmp(state, "up") == 0 ? GREEN : YELLOW, "%s", state);
    table_add(t, PLAIN, "%s", tls_of(row));
    table_add(t, PLAIN, "%s", incarnation_of(row));
    add_peer_pages(t, row);
    json_array_foreach(json_object_get(row, "tenants"), i, tenant)
    {
        const char *name = json_string_value(tenant);

        if (name && at + strlen(name) + 3 < sizeof(names))
            at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", i ? ", " : "", name);
    }
    table_add(t, PLAIN, "%s", names);
    add_peer_reason(t, row);
    peer_paths(t, row);
}

static int run_peers(struct ctl *ctl)
{
    static const char *const titles[] = {"<PEER",         "<ADDRESS", "<STATE",   "<TLS",
                                         "+=INCARNATION", "<PAGES",   "<TENANTS", "<REASON"};

    return show_list(ctl, "peers", titles, TITLES_N(titles), add_peer, "no peer is configured");
}

/* ---- the rows ---- */

static const struct argp_option wide[] = {OPTION_WIDE, {0}};
static const struct argp_option by_engine[] = {OPTION_TENANT, OPTION_ENGINE, OPTION_WIDE, {0}};
static const struct argp_option by_peer[] = {OPTION_TENANT, OPTION_PEER, OPTION_WIDE, {0}};

const struct command show_commands[] = {
    {"status", "", "Version, state, memory, alarms and refusals of the daemon",
     "  ternctl status\n  ternctl status --json | jq '.pools[] | {group, free, total}'\n", wide, 0,
     run_status},
    {"pools", "", "Pools and where their pages are",
     "  ternctl pools\n  ternctl pools --engine prefill-0\n", by_engine, 0, run_pools},
    {"sessions", "", "Open sessions: committed, written and allocated tokens",
     "  ternctl sessions\n  ternctl sessions --json | jq '.sessions | length'\n", by_engine, 0,
     run_sessions},
    {"records", "", "Turn records of sessions, and their memory",
     "  ternctl records\n  ternctl records --json | jq '.tenants[].records'\n", by_engine, 0,
     run_records},
    {"engines", "", "Engines, their live processes and their finished steps", "  ternctl engines\n",
     by_engine, 0, run_engines},
    {"peers", "", "Other daemons, and whether they are reachable", "  ternctl peers\n", by_peer, 0,
     run_peers},
    {0},
};
