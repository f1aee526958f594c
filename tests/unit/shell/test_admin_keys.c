/* Programs read the keys of admin answers: a key that is removed breaks one of them. */
#include "unit/shell/test_admin_rig.h"

/* Appends the keys in their order; for an array, those of its first row. */
static void put_keys(const json_t *v, char *keys)
{
    const char *key;
    json_t *member;

    v = json_is_array(v) ? json_array_get(v, 0) : v;
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        size_t at = strlen(keys);

        sprintf(keys + at, "%s%s", at && keys[at - 1] != '(' ? " " : "", key);
        if (!json_is_object(member) && !json_is_array(member))
            continue;
        strcat(keys, "(");
        put_keys(member, keys);
        strcat(keys, ")");
    }
}

static bool peer_tls(struct daemon *d, uint32_t peer, struct tls_peer *ret)
{
    (void)d;
    (void)peer;
    *ret = (struct tls_peer){.version = "TLSv1.3", .not_after = "2031-11-29T08:35:07Z"};
    return true;
}

static bool peer_path(const struct xfer *d, uint32_t peer, uint32_t i, struct xfer_path_view *ret)
{
    (void)d;
    (void)peer;
    *ret = (struct xfer_path_view){.device = "rdma0"};
    return i == 0;
}

static bool alarm_that_is_on(struct daemon *d, uint32_t *at, uint64_t now_ns,
                             struct alarm_view *ret)
{
    (void)d;
    (void)now_ns;
    *ret = (struct alarm_view){.name = "peer_down", .severity = "warn", .action = "look"};
    return (*at)++ == 0;
}

/* Programs read these keys, so none may be removed. */
#define SPILL                                                                                      \
    "spill(dir direct encrypted state error budget_bytes used_bytes free_bytes headroom_bytes "    \
    "files_written bytes_written extents_read bytes_read write_errors read_errors corrupt "        \
    "dropped_files punched_bytes syncs recovery(ms files extents bytes holes unfinished "          \
    "removed_files faults(magic version checksum address tenant shape key read))) "
#define TICKETS " tickets(standing made taken dropped expired ended)"
#define SPILL_TENANT                                                                               \
    " spill(budget_bytes used_bytes entries chunks files stores stored(cold continued evict "      \
    "shutdown) written_bytes failed refused pruned evicted hits fetched_pages "                    \
    "recovered dropped)"
#define FIGURES_COUNTED                                                                            \
    "prompts prompt_tokens matched_device_tokens matched_host_tokens matched_disk_tokens "         \
    "fetched_peer_tokens handed_over_tokens committed_tokens evicted_nodes evicted_pages "         \
    "superseded_pages"
static const char answer_keys[] =
    "node version incarnation uptime_s draining sessions "
    "turns(turns_in_flight turns_begun turns_expired turns_lost) "
    "tenants(tenant records(pages used held records page_bytes)" TICKETS SPILL_TENANT
    ") figures(tenant " FIGURES_COUNTED ") pools(pool tenant tier device_memory ranks bytes group "
    "family page_tokens page_bytes window total free leased session snapshot "
    "reclaimable evictable borrowed transfer ticket retiring zeroing quarantine peak_session "
    "peak_snapshot) shares(table records limit common_free reserved(first second) used(first "
    "second)) "
    "errors(INVALID MALFORMED UNSUPPORTED CONFLICT POOL_EXHAUSTED PEER_LOST TIMED_OUT "
    "BUSY GONE DENIED QUOTA CORRUPT DISK INTERNAL DAEMON_LOST) refusals(tenant "
    "errors(INVALID MALFORMED UNSUPPORTED CONFLICT POOL_EXHAUSTED PEER_LOST TIMED_OUT "
    "BUSY GONE DENIED QUOTA CORRUPT DISK INTERNAL DAEMON_LOST) last last_op last_text last_s) "
    "steps_overdue() engines_stuck() engines "
    "prefix_nodes peers "
    "peers_up peers_fallback "
    "links_up listen_port transfers_active namespaces_reset resets_spreading "
    "alarms_on alarm_counts(name severity on) alarms(name severity subject since_s text action) "
    "steps_over(steps bound longest_event longest_visits) evicted_nodes evicted_pages "
    "pages_corrupt pages_pulled pages_served dup_chunks "
    "token_blocks_free nodes_free retires_free quarantine_oldest_ms "
    "quarantine_holder(peer transfer pages) host_tier(bytes host_copies "
    "host_copies_failed host_copies_again host_uncopied host_loads copies copied_bytes "
    "copies_corrupt "
    "retracts retracts_undone recovers) " SPILL "memory(kind bytes device_bytes devices "
    "devices_lost device_checksums checksums_by_kernels checksums_by_copies checksums_by_engine "
    "rows_by_kernels rows_by_copies moved_bytes_within moved_bytes_by_peer moved_bytes_staged "
    "huge_pages_wanted "
    "huge_page_bytes sealed_pages zeroed_bytes host_bytes record_bytes records_checked "
    "copied_pages copied_bytes "
    "copies_corrupt copies_spoilt queue_high_water faults with_holes waits waited_ms workers) "
    "data(port conns "
    "pages_in pages_out payload_bytes_in payload_bytes_out socket_bytes_in "
    "socket_bytes_out corrupt_detected corrupt_injected gone_answers refused over_share "
    "conns_retired pages_again "
    "threads(threads tasks tasks_done) from_peers(conns limit reserved common_used common) "
    "verbs(paths_up paths_made "
    "paths_failed pieces_again batches_moved pages_in pages_out bytes_in ring_bytes_in "
    "read_errors writes_posted grants_revoked late_writes windows_open "
    "stale_completions "
    "stale_answers cq_high_water cq_events gpu_regions gpu_regions_unregistered)) events(first "
    "next limit subscriptions told "
    "lost) doors(door waiting places share displaced overdue over_rate) descriptors(mode "
    "connections_ended closing closed_apart) send_buffers(bytes "
    "shares(share used reserved) common_used common made_way) conns conns_refused "
    "engine_processes_exited "
    "io(completions cq_overflows sq_waits buffers_empty) tape(recorded dropped "
    "bytes_used reaches_back_s tokens_kept) log(suppressed lost level) insecure_peers "
    "certificate(not_after left_s "
    "life_s own_ca) "
    "fault_injection(corrupt_pages copy_corrupt_every checks_on_owner disk_write_every "
    "disk_full_after step_visits) slots sessions(session "
    "tenant "
    "engine pool namespace state committed written allocated tokens node node_id ref "
    "ref_s turn turn_s records recorded idle_s) next slots "
    "tenants(tenant records(pages used held records page_bytes)" TICKETS SPILL_TENANT
    ") records(session tenant engine "
    "pool records recorded pages blob_pages turn turn_s) next slots "
    "tenants(tenant records(pages used held records page_bytes)" TICKETS SPILL_TENANT
    ") tickets(session tenant engine pool namespace ticket length committed blob_bytes age_s "
    "left_s) next "
    "slots pools(pool slot tenant engine "
    "state tier other_tier "
    "devices() "
    "offset bytes slab_bytes slabs slabs_free nodes align_tokens supersede groups(group "
    "family page_tokens page_bytes window total free leased session snapshot "
    "reclaimable evictable borrowed transfer ticket retiring zeroing quarantine peak_session "
    "peak_snapshot units reserve cap_pages)) next slots engines(engine name tenant "
    "state world procs_alive pids() sessions done_step() retiring_until named_step jumps) next "
    "slots "
    "breaches_unnamed tls(not_after reloads reloads_failed handshakes memory_bytes "
    "memory_used_max memory_refused refused_unnamed(no_certificate wrong_ca wrong_name "
    "expired bad_certificate old_version bad_handshake bad_record refused_by_peer "
    "timeout clear_text no_room)) peers(peer host port origin state breaches last_error attempts "
    "since_s "
    "incarnation transport moves transport_reason fallback connections(limit up calling retired) "
    "tenants() "
    "paths(device tenant state "
    "reason) tls(version cipher peer_name not_after refused(no_certificate wrong_ca "
    "wrong_name expired bad_certificate old_version bad_handshake bad_record "
    "refused_by_peer timeout clear_text no_room))) next slots tree(slot id parent parent_id pool "
    "namespace "
    "chain depth children pages tier copying host_pages refs(device transfer job "
    "retracted admin handoff host) admin_s age_s visible sealed state_pages reclaimable "
    "resumable borrowers) next slots " SPILL "disk() next";

/* Keys of a transfer in, and of a transfer out. */
#define TRANSFER_NAMED                                                                             \
    "slots transfers(transfer direction tier peer link tenant ticket class trace_id state stage "
static const char *const transfer_keys[] = {
    TRANSFER_NAMED
    "stage_s(queued wire published ending) "
    "waits_for wait_s(source busy_source commit credit proof) waited_s "
    "from to published pages bytes pages_asked bytes_asked pages_arrived bytes_arrived "
    "pages_verified bytes_verified pages_published bytes_published "
    "bytes_per_s mean_bytes_per_s node_id age_s left_s) next",
    TRANSFER_NAMED "stage_s(walking sealing offered released ending) "
                   "waits_for wait_s(tokens seal proof) waited_s from to published pages bytes "
                   "pages_sent bytes_sent bytes_per_s mean_bytes_per_s node_id age_s left_s) next"};

TEST(transfers_have_all_their_keys)
{
    struct pair p = pair_limited(512);
    const struct core *sides[] = {p.dest->core, p.source->core};
    char keys[sizeof answer_keys];

    pair_offer(&p, 16);
    fetch_held(&p, RIG_PULL);
    for (uint32_t i = 0; i < 2; i++) {
        s.ctx.core = sides[i];
        keys[0] = '\0';
        put_keys(ask("transfers"), keys);
        assert_string_equal(keys, transfer_keys[i]);
    }
}

TEST(answers_have_all_their_keys)
{
    static const char *const commands[] = {"status",  "sessions", "records", "tickets", "pools",
                                           "engines", "peers",    "tree",    "disk"};
    struct disk_recovery recovery = {.files = 1};
    struct disk_stats disk = {.direct = true};
    static char keys[2 * sizeof answer_keys];
    struct recorder r = recorder_of_other();
    size_t same = 0;
    struct tls_stats tls = {.own.not_after = "2031-11-29T08:35:07Z"};

    s.ctx.disk = &disk;
    s.ctx.recovery = &recovery;
    s.ctx.tls = &tls;
    s.parts.tls = peer_tls;
    s.parts.path = peer_path;
    s.parts.alarm = alarm_that_is_on;
    records_turn(&r, 10);
    ticket_stands();
    keys[0] = '\0';
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        put_keys(ask(commands[i]), keys);
    while (keys[same] && keys[same] == answer_keys[same])
        same++;
    if (keys[same] || answer_keys[same])
        fail_msg("wanted ...%.60s, got ...%.60s", answer_keys + same, keys + same);
}
