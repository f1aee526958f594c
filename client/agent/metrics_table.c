/* The metrics. Names follow Prometheus' conventions: tern_, the counted thing, its unit last;
 * seconds and bytes. metrics.h explains the columns. Rows of one family are adjacent. */
#include "client/agent/metrics.h"

#define METRIC(name, kind, from, label, help, scale)                                               \
    {                                                                                              \
        name, METRIC_##kind, from, label, help, scale                                              \
    }
#define COUNTS(name, from, help)           METRIC(name, COUNTER, from, NULL, help, 0)
#define COUNTS_OF(name, from, label, help) METRIC(name, COUNTER, from, label, help, 0)
#define IS(name, from, help)               METRIC(name, GAUGE, from, NULL, help, 0)
#define IS_OF(name, from, label, help)     METRIC(name, GAUGE, from, label, help, 0)
#define MS(name, from, help)               METRIC(name, GAUGE, from, NULL, help, 0.001)
#define TIMES(name, from, help)            METRIC(name, HISTOGRAM, from, NULL, help, 0)
#define TIMES_OF(name, from, label, help)  METRIC(name, HISTOGRAM, from, label, help, 0)
#define TENANT                             "stats.tenants[tenant]."
#define GROUP                              "status.pools[pool,tenant,tier,group]."
#define SPACE                              "namespaces.namespaces[namespace,tenant]."

#define MATCHED                                                                                    \
    "Prompt tokens found on a tier: by Match on the device, or loaded by fetches from the host "   \
    "tier or the disk"
#define FETCHED                                                                                    \
    "Prompt tokens that fetches added to sessions, from peers or by tickets of this daemon"
#define PAGES "Pages of a group of a pool, by state; the states sum to tern_pool_pages_limit"
#define STAGES                                                                                     \
    "Time that fetches spent in a stage: with nothing in flight (queued), with pages in flight "   \
    "(wire), or waiting for credit (credit)"

const struct metric metrics_table[] = {
    /* ---- the daemon ---- */
    IS("tern_up", "agent.up",
       "1 if the daemon answered this scrape; else 0, and most metrics are absent"),
    IS("tern_build_info", "status[node,version]", "1, with the name and the version of the daemon"),
    IS("tern_incarnation_info", "status[incarnation]", "1, with the incarnation of the daemon"),
    IS("tern_start_time_seconds", "agent.start_time_s", "Unix time at which the daemon started"),
    IS("tern_uptime_seconds", "status.uptime_s", "Time since the daemon started"),
    IS("tern_draining", "status.draining", "1 while the daemon refuses new sessions"),

    IS("tern_alarms", "status.alarm_counts[name,severity].on", "Alarms that are on"),

    /* ---- prompts and their results ---- */
    COUNTS("tern_prompts", TENANT "prompts",
           "Match requests with tokens that were new to their session"),
    COUNTS("tern_prompt_tokens", TENANT "prompt_tokens", "New tokens of these requests"),
    COUNTS_OF("tern_matched_tokens", TENANT "matched_device_tokens", "tier=device", MATCHED),
    COUNTS_OF("tern_matched_tokens", TENANT "matched_host_tokens", "tier=host", MATCHED),
    COUNTS_OF("tern_matched_tokens", TENANT "matched_disk_tokens", "tier=disk", MATCHED),
    COUNTS_OF("tern_fetched_tokens", TENANT "fetched_peer_tokens", "source=peer", FETCHED),
    COUNTS_OF("tern_fetched_tokens", TENANT "handed_over_tokens", "source=ticket", FETCHED),
    COUNTS("tern_committed_tokens", TENANT "committed_tokens",
           "Tokens that engines computed and committed"),
    COUNTS("tern_evicted_nodes", TENANT "evicted_nodes",
           "Prefix nodes that were evicted from the device, or from all memory"),
    COUNTS("tern_evicted_pages", TENANT "evicted_pages", "Pages that these evictions freed"),
    COUNTS("tern_superseded_pages", TENANT "superseded_pages",
           "Pages that were freed because their STATE was superseded"),

    /* ---- namespaces ---- */
    COUNTS("tern_namespace_prompts", SPACE "prompts",
           "Prompts of a namespace; other: namespaces beyond --namespaces, and prompts before the "
           "agent knew their namespace"),
    COUNTS("tern_namespace_prompt_tokens", SPACE "prompt_tokens", "Tokens of these prompts"),
    COUNTS_OF("tern_namespace_matched_tokens", SPACE "matched_device_tokens", "tier=device",
              MATCHED),
    COUNTS_OF("tern_namespace_matched_tokens", SPACE "matched_host_tokens", "tier=host", MATCHED),
    COUNTS_OF("tern_namespace_matched_tokens", SPACE "matched_disk_tokens", "tier=disk", MATCHED),
    COUNTS_OF("tern_namespace_fetched_tokens", SPACE "fetched_peer_tokens", "source=peer", FETCHED),
    COUNTS_OF("tern_namespace_fetched_tokens", SPACE "handed_over_tokens", "source=ticket",
              FETCHED),

    /* ---- durations ---- */
    TIMES("tern_publish_seconds", "stats.latencies.publish",
          "From a commit until other sessions can match it"),
    TIMES("tern_seal_seconds", "stats.latencies.seal",
          "From that time until peers can fetch the commit"),
    TIMES("tern_fetch_seconds", "stats.latencies.fetch",
          "From a fetch to its answer, for fetches that added tokens"),
    TIMES_OF("tern_fetch_stage_seconds", "stats.latencies.fetch_queued", "stage=queued", STAGES),
    TIMES_OF("tern_fetch_stage_seconds", "stats.latencies.fetch_wire", "stage=wire", STAGES),
    TIMES_OF("tern_fetch_stage_seconds", "stats.latencies.fetch_credit", "stage=credit", STAGES),
    TIMES("tern_serve_seconds", "stats.latencies.serve",
          "From a peer's request to the end of its transfer, for transfers that were offered"),
    TIMES("tern_serve_sealing_seconds", "stats.latencies.serve_sealing",
          "Part of tern_serve_seconds in which checksums were missing"),
    TIMES("tern_evicted_age_seconds", "stats.latencies.evicted_age",
          "From the last use of a node to its eviction"),
    TIMES("tern_request_seconds", "stats.requests{request}",
          "From the last byte of a request until the core has processed the request"),

    /* ---- refusals ---- */
    COUNTS("tern_errors", "status.errors{reason}", "Answers with an error"),
    COUNTS("tern_refused", "status.refusals[tenant].errors{reason}",
           "Answers with an error to engines of a tenant"),
    COUNTS("tern_connections_refused", "status.conns_refused",
           "Connections of clients that were refused"),
    COUNTS("tern_engine_processes_exited", "status.engine_processes_exited",
           "Engine processes that exited without leaving their engine, such as by a crash"),
    COUNTS("tern_connections_ended_for_room", "status.send_buffers.made_way",
           "Connections that were closed to free send buffers, because they did not read their "
           "answers"),

    /* ---- numbers of objects ---- */
    IS("tern_connections", "status.conns", "Connections of clients and operators"),
    IS("tern_engines", "status.engines", "Engines"),
    IS("tern_engines_stuck", "status.engines_stuck[#]",
       "Engines with an exited process while others still run"),
    IS("tern_steps_overdue", "status.steps_overdue[#]",
       "Engines whose pages wait for a step while no step passes"),
    IS("tern_sessions", "status.sessions", "Open sessions"),
    IS("tern_prefix_nodes", "status.prefix_nodes", "Nodes of the prefix trees"),
    IS("tern_turns", "status.turns.turns_in_flight", "Turns in flight"),
    COUNTS("tern_turns_begun", "status.turns.turns_begun", "Turns that began"),
    COUNTS("tern_turns_expired", "status.turns.turns_expired",
           "Turns that ended at their deadline"),
    COUNTS("tern_turns_lost", "status.turns.turns_lost",
           "Turns that ended because their connection closed"),

    /* ---- pages ---- */
    IS_OF("tern_pool_pages", GROUP "free", "state=free", PAGES),
    IS_OF("tern_pool_pages", GROUP "leased", "state=leased", PAGES),
    IS_OF("tern_pool_pages", GROUP "session", "state=session", PAGES),
    IS_OF("tern_pool_pages", GROUP "snapshot", "state=snapshot", PAGES),
    IS_OF("tern_pool_pages", GROUP "reclaimable", "state=reclaimable", PAGES),
    IS_OF("tern_pool_pages", GROUP "transfer", "state=transfer", PAGES),
    IS_OF("tern_pool_pages", GROUP "ticket", "state=ticket", PAGES),
    IS_OF("tern_pool_pages", GROUP "retiring", "state=retiring", PAGES),
    IS_OF("tern_pool_pages", GROUP "zeroing", "state=zeroing", PAGES),
    IS_OF("tern_pool_pages", GROUP "quarantine", "state=quarantine", PAGES),
    IS("tern_pool_pages_limit", GROUP "total", "All pages of a group of a pool"),
    IS("tern_pool_borrowed_pages", GROUP "borrowed",
       "Snapshot pages in tables of running sessions; absent where too many nodes would have to be "
       "counted"),
    IS("tern_pool_page_size_bytes", GROUP "page_bytes", "Bytes of one page"),
    IS("tern_quarantined_pages", "status.pools[].quarantine",
       "Pages of aborted transfers that a remote write may still reach"),
    MS("tern_quarantine_oldest_seconds", "status.quarantine_oldest_ms",
       "Time that the oldest page in quarantine has waited"),
    COUNTS("tern_corrupt_pages", "status.pages_corrupt",
           "Pages whose bytes did not match their checksum, from peers or from the host tier"),
    COUNTS("tern_memory_faults", "status.memory.faults",
           "Pages of memory that the daemon lost to hardware errors"),
    IS("tern_gpus", "status.memory.devices", "GPUs with pool memory"),
    IS("tern_gpus_lost", "status.memory.devices_lost",
       "GPUs with pool memory that failed; their pages are lost until the daemon restarts"),
    IS("tern_gpu_regions_unregistered", "status.data.verbs.gpu_regions_unregistered",
       "Regions on GPUs that are configured for RDMA and not registered, counted once for each "
       "device"),
    IS("tern_memory_bytes", "status.memory.bytes", "Bytes of device pools' memory"),
    IS("tern_host_memory_bytes", "status.memory.host_bytes", "Bytes of the host tier's memory"),

    /* ---- tenants' use of shared tables ---- */
    IS("tern_share_used_records", "status.shares[table].used{tenant}",
       "Records of a shared table that a tenant uses"),
    IS("tern_share_reserved_records", "status.shares[table].reserved{tenant}",
       "Records of a shared table that are reserved for a tenant"),
    IS("tern_share_common_free_records", "status.shares[table].common_free",
       "Free records of a shared table that are reserved for no tenant"),
    IS("tern_share_limit_records", "status.shares[table].limit", "All records of a shared table"),

    /* ---- peers and transfers ---- */
    IS("tern_peers", "status.peers", "Configured peers"),
    IS("tern_peers_up", "status.peers_up", "Peers from which this daemon can fetch"),
    IS("tern_peers_fallback", "status.peers_fallback",
       "Peers whose pages arrive by TCP although RDMA is preferred (`transport: auto`)"),
    IS("tern_peer_up", "peers.peers[peer].state=up", "1 if this daemon can fetch from the peer"),
    COUNTS("tern_peer_breaches", "peers.peers[peer].breaches",
           "Connections that were closed because the peer broke the protocol, and errors that no "
           "peer may send"),
    COUNTS("tern_peer_refused", "peers.peers[peer].tls.refused{reason}",
           "Connections of a peer that TLS refused"),
    COUNTS("tern_transfer_bytes", "stats.peers[peer].bytes_in{transport}",
           "Page bytes received from a peer"),
    COUNTS("tern_peer_fetched_tokens", "stats.peers[peer].fetched_tokens",
           "Prompt tokens that sessions received by fetches from a peer"),
    COUNTS("tern_peer_fetches", "stats.peers[peer].fetch.count",
           "Fetches from a peer that added tokens"),
    METRIC("tern_peer_fetch_seconds", COUNTER, "stats.peers[peer].fetch.sum_us", NULL,
           "Total time of the fetches in tern_peer_fetches", 1e-6),
    COUNTS("tern_peer_failed_fetches", "stats.peers[peer].failed_fetches",
           "Fetches from a peer that ended in PEER_LOST, TIMED_OUT or CORRUPT"),
    IS("tern_transfers", "status.transfers_active", "Transfers under way, in and out"),
    COUNTS("tern_received_pages", "status.data.pages_in", "Pages received from peers"),
    COUNTS("tern_sent_pages", "status.data.pages_out", "Pages sent to peers"),
    COUNTS("tern_received_bytes", "status.data.payload_bytes_in", "Page bytes received from peers"),
    COUNTS("tern_sent_bytes", "status.data.payload_bytes_out", "Page bytes sent to peers"),
    COUNTS("tern_pages_asked_again", "status.data.pages_again",
           "Pages that were requested from a peer again"),
    IS("tern_data_connections", "status.data.conns", "Data connections, in both directions"),

    /* ---- tickets and turn records ---- */
    IS("tern_tickets", "status.tenants[tenant].tickets.standing", "Valid tickets"),
    COUNTS("tern_tickets_made", "status.tenants[tenant].tickets.made", "Tickets that were created"),
    COUNTS_OF("tern_tickets_ended", "status.tenants[tenant].tickets.taken", "how=taken",
              "Tickets that ended, by how"),
    COUNTS_OF("tern_tickets_ended", "status.tenants[tenant].tickets.dropped", "how=dropped",
              "Tickets that ended, by how"),
    COUNTS_OF("tern_tickets_ended", "status.tenants[tenant].tickets.expired", "how=expired",
              "Tickets that ended, by how"),
    COUNTS_OF("tern_tickets_ended", "status.tenants[tenant].tickets.ended", "how=with_session",
              "Tickets that ended, by how"),
    IS("tern_turn_records", "status.tenants[tenant].records.records", "Stored turn records"),
    IS("tern_record_pages", "status.tenants[tenant].records.pages",
       "Pages of a tenant's record memory"),
    IS("tern_record_used_pages", "status.tenants[tenant].records.used",
       "Pages of a tenant's record memory that are in use"),
    IS("tern_record_held_pages", "status.tenants[tenant].records.held",
       "Pages of a tenant's record memory that nobody needs, but that a turn without a reported "
       "end may still touch"),

    /* ---- the host tier and the disk ---- */
    COUNTS("tern_host_copied_nodes", "status.host_tier.host_copies",
           "Prefix nodes that were copied to the host tier"),
    COUNTS("tern_host_uncopied_nodes", "status.host_tier.host_uncopied",
           "Prefix nodes that were evicted from the device without a copy"),
    COUNTS("tern_host_loaded_nodes", "status.host_tier.host_loads",
           "Prefix nodes that were loaded from the host tier"),
    COUNTS("tern_retracts", "status.host_tier.retracts",
           "Sessions that were retracted to the host tier"),
    COUNTS("tern_recovers", "status.host_tier.recovers", "Sessions that were recovered"),
    IS_OF("tern_spill_state", "status.spill.state=ok", "state=ok",
          "1 for the current state of the disk tier"),
    IS_OF("tern_spill_state", "status.spill.state=full", "state=full",
          "1 for the current state of the disk tier"),
    IS_OF("tern_spill_state", "status.spill.state=failing", "state=failing",
          "1 for the current state of the disk tier"),
    IS_OF("tern_spill_state", "status.spill.state=gone", "state=gone",
          "1 for the current state of the disk tier"),
    IS("tern_spill_budget_bytes", "status.tenants[tenant].spill.budget_bytes",
       "Bytes of the disk tier that a tenant may use"),
    IS("tern_spill_used_bytes", "status.tenants[tenant].spill.used_bytes",
       "Bytes of the disk tier that a tenant uses"),
    IS("tern_spill_free_bytes", "status.spill.free_bytes",
       "Free bytes of the disk tier's file system, as of the last store or check for room"),
    COUNTS("tern_spill_written_bytes", "status.spill.bytes_written",
           "Bytes written to the disk tier"),
    COUNTS("tern_spill_read_bytes", "status.spill.bytes_read", "Bytes read from the disk tier"),
    COUNTS("tern_spill_corrupt_extents", "status.spill.corrupt",
           "Extents that were read with other bytes than were written"),
    COUNTS("tern_spill_failed_stores", "status.tenants[tenant].spill.failed",
           "Prefixes whose store to the disk failed"),
    COUNTS("tern_spill_evicted_entries", "status.tenants[tenant].spill.evicted",
           "Disk entries that were evicted to make room"),
    COUNTS("tern_spill_hits", "status.tenants[tenant].spill.hits",
           "Disk entries that fetches used"),

    /* ---- certificate, log and lost changes ---- */
    IS("tern_certificate_left_seconds", "status.certificate.left_s",
       "Time until this node's certificate expires; negative: it has expired"),
    COUNTS("tern_log_lost_lines", "status.log.lost", "Log lines that could not be written"),
    COUNTS("tern_log_suppressed_lines", "status.log.suppressed",
           "Log lines that were dropped because too many were alike"),
    COUNTS("tern_events_lost", "status.events.lost",
           "Changes of the prefix tree that subscribers lost because they read too slowly"),

    /* ---- the agent itself ---- */
    COUNTS("tern_agent_question_failures", "agent.failures{reason}",
           "Rounds of requests that the daemon did not answer"),
    {"tern_agent_questions_seconds", METRIC_GAUGE, "agent.asked_us", NULL,
     "Time that the daemon took to answer the last round of requests", 1e-6},
};

const size_t metrics_n = sizeof(metrics_table) / sizeof(*metrics_table);
