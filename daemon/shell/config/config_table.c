/* The table of settings. The core refuses to start with a limit of 0, so every range begins at 1
 * unless 0 has a stated meaning. config_derive.c derives NULL defaults from the tenants' memory. */
#include <assert.h>
#include <stddef.h>

#include "seam/disk/disk.h"
#include "shell/config/config_table.h"

#define ROW_OF(type, kind, change, section, key, member, min, max, initial, doc)                   \
    {                                                                                              \
        section, key, VALUE_##kind, CHANGE_##change, offsetof(type, member),                       \
            sizeof(((type *)0)->member), min, max, initial, doc                                    \
    }
/* The second word is what a reload does: LIVE, SIZED or STARTS (enum setting_change). */
#define ROW(...) ROW_OF(struct config, __VA_ARGS__)
/* A value without a range. */
#define PLAIN(kind, change, section, key, member, initial, doc)                                    \
    ROW(kind, change, section, key, member, 0, UINT64_MAX, initial, doc)
#define RDMA(kind, name, min, max, initial, doc)                                                   \
    ROW(kind, STARTS, "rdma", #name, rdma.name, min, max, initial, doc)
#define LIMIT(name, initial, doc)                                                                  \
    ROW(COUNT, SIZED, "limits", #name, limits.name, 1, COUNT_MAX, initial, doc)
#define DEADLINE(change, name, initial, doc)                                                       \
    ROW(COUNT, change, "deadlines", #name, deadlines.name, DEADLINE_MIN, DEADLINE_MAX, initial, doc)
#define TENANT(kind, change, key, member, min, max, initial, doc)                                  \
    ROW_OF(struct config_tenant, kind, change, "tenants", key, member, min, max, initial, doc)
#define PEER(kind, key, member, initial, doc)                                                      \
    ROW_OF(struct config_peer, kind, LIVE, "peers", key, member, 0, 0, initial, doc)

const struct setting config_settings[] = {
    PLAIN(NAME, STARTS, "", "node", node, "node",
          "Name of this node: in the log, in messages to peers and in its certificate"),
    PLAIN(ENDPOINT, STARTS, "", "listen", listen, "",
          "HOST:PORT at which peers connect; empty: no peer can connect"),
    ROW(COUNT, STARTS, "", "data_port", data_port, 0, 65535, "0",
        "Port for pages, on the host of `listen`; 0: the kernel chooses one"),
    PLAIN(BOOL, STARTS, "", "insecure_peers", insecure_peers, "false",
          "Peers connect without TLS: only where the network between them is trusted"),
    ROW(DEVICES, STARTS, "", "rdma_device", rdma_device, 0, XFER_RAILS_MAX, "auto",
        "RDMA devices for pages, NAME or NAME+NAME; auto: the device nearest to host memory, and "
        "those nearest to the GPUs of device_memory"),
    ROW(BYTES, SIZED, "", "page_bytes_min", page_bytes_min, 64, (uint64_t)1 << 30, "4096",
        "Smallest page of any engine, in one region; the number of page records follows from it"),
    ROW(BYTES, SIZED, "", "frame_body_max", frame_body_max, 4096, 1u << 28, "1M",
        "Largest message body, including answers; it limits the pages in a session's table"),
    ROW(COUNT, STARTS, "", "workers", workers, 1, MEM_WORKERS_MAX, NULL,
        "Threads for checksums, copies and zeroing; default: one for each core, at most 16"),
    ROW(COUNT, STARTS, "", "data_threads", data_threads, 1, XFER_THREADS_MAX, NULL,
        "Threads that receive, send and verify pages; default: one for each core, at most 16"),
    PLAIN(BOOL, STARTS, "", "huge_pages", huge_pages, "true",
          "Use huge pages for tenants' memory if possible; `ternctl status` shows the result"),
    PLAIN(BOOL, STARTS, "", "peer_access", peer_access, "true",
          "Copy between GPUs directly where they have peer access; `ternctl doctor` shows which "
          "have it"),
    PLAIN(LEVEL, LIVE, "", "log_level", log_level, "info",
          "Least severe level that is logged: error, warn, info or debug"),

    PLAIN(PATH, LIVE, "tls", "ca", tls_ca, NULL,
          "PEM file of the CA that must have issued every peer's certificate"),
    PLAIN(PATH, LIVE, "tls", "cert", tls_cert, NULL,
          "PEM file of this node's certificate, with `node` as a DNS name, and of the intermediate "
          "certificates up to the CA"),
    PLAIN(PATH, LIVE, "tls", "key", tls_key, NULL, "PEM file of the certificate's private key"),

    PLAIN(PATH, STARTS, "admin", "socket", admin_socket, "/run/tern/admin.sock",
          "Unix socket of ternctl"),
    PLAIN(MODE, STARTS, "admin", "mode", admin_mode, "0600", "Octal mode of the admin socket"),

    ROW(BYTES, SIZED, "tape", "bytes", tape_bytes, 0, (uint64_t)1 << 36, "8M",
        "Memory for the last events; 0: no tape. Only a tape with every event since the start "
        "can be replayed"),
    PLAIN(PATH, STARTS, "tape", "file", tape_file, NULL,
          "File to which a crash or a failed check writes the tape; the next crash replaces it. "
          "Default: a file for each crash (the admin socket's path with .tape and the "
          "incarnation), of which the last 4 are kept"),
    PLAIN(BOOL, STARTS, "tape", "tokens", tape_tokens, "false",
          "Store token ids in tapes in place of their hashes; token ids are your users' text"),

    ROW(COUNT, SIZED, "reserve", "tenants", reserve_tenants, 0, CONFIG_TENANTS_MAX, "0",
        "Number of unnamed tenants that the daemon creates at start; a reload assigns them to "
        "new entries of `tenants` with exactly their sizes"),
    PLAIN(NAME, SIZED, "reserve", "like", reserve_like, NULL,
          "The tenant whose sizes each tenant of the reserve gets. An entry of `tenants` without "
          "`memory` also gets its missing sizes from that tenant"),

    PLAIN(PATH, STARTS, "spill", "dir", spill_dir, NULL,
          "Folder of the disk tier, for this daemon alone; empty: no disk tier"),
    ROW(BYTES, SIZED, "spill", "bytes", spill_bytes, 0, MEMORY_MAX, "0",
        "Most bytes that the disk tier may use in spill.dir, for all tenants together"),
    ROW(BYTES, STARTS, "spill", "headroom", spill_headroom, 0, MEMORY_MAX, "1G",
        "Bytes of spill.dir's file system that stay free"),
    ROW(COUNT, STARTS, "spill", "interval", limits.disk_interval, 1, SESSION_TOKENS_MAX, "10000",
        "Tokens between two stores of a growing session; rounded up to a multiple of `align`"),
    ROW(COUNT, STARTS, "spill", "align", limits.disk_align, 1, SESSION_TOKENS_MAX, "2048",
        "The prompt's length less align / 64, rounded down to a multiple of align, is stored; if "
        "the result is less than align / 4, the whole prompt is stored"),
    ROW(COUNT, STARTS, "spill", "threads", spill_threads, 1, DISK_THREADS_MAX, "4",
        "Threads that write and read the disk tier"),
    PLAIN(PATH, STARTS, "spill", "encrypt_key_file", spill_key_file, NULL,
          "File with the key that encrypts stored data: 32 bytes or 64 hexadecimal digits, mode "
          "0600; empty: no encryption"),

    ROW(COUNT, STARTS, "transfer", "connections", connections, 1, XFER_CONNECTIONS_MAX, "2",
        "Connections to one peer for transfers by TCP"),

    RDMA(BY_PORT, gid_index, 0, 255, "auto",
         "Index of the port's GID; auto: a GID of RoCE v2 over IPv4, else of RoCE v2, else any"),
    RDMA(BY_PORT, mtu, 0, 4096, "auto",
         "Path MTU in bytes, at most the port's active MTU; auto: the active MTU"),
    RDMA(COUNT, pkey_index, 0, 65535, "0", "Index of the partition in the port's table of P_Keys"),
    RDMA(COUNT, traffic_class, 0, 255, "0",
         "Traffic class of packets; the upper six bits are the DSCP"),
    RDMA(COUNT, service_level, 0, 15, "0", "Service level of packets"),
    RDMA(COUNT, timeout, 1, 31, "16",
         "Timeout before a retry, as the exponent in 4.096 us x 2^timeout; 16: 268 ms"),
    RDMA(COUNT, retries, 0, 7, "6",
         "Retries until the path fails; with 7, soft-RoCE retries for ever"),

    DEADLINE(
        STARTS, progress_ms, "5000",
        "Longest time from a message's first byte to its last, of an answer without progress, and "
        "of a TLS handshake: raise it if clients or the network stall for longer"),
    DEADLINE(STARTS, transfer_ms, "30000", "Longest time of a transfer"),
    DEADLINE(LIVE, drain_ms, "10000",
             "Longest time of a drain: the daemon then ends, even if sessions are open"),
    DEADLINE(LIVE, step_alarm_ms, "30000",
             "Longest time that pages wait while no step of their engine passes, before an alarm"),
    DEADLINE(STARTS, ticket_ms, "60000",
             "Longest life of a ticket, from its creation or last renewal"),
    DEADLINE(STARTS, turn_ms, "600000",
             "Longest time of a session's turn: the daemon ends a turn that lasts longer"),
    DEADLINE(LIVE, shutdown_ms, "10000",
             "Longest time after a drain to store cached prefixes on the disk"),

    LIMIT(sessions, "4096", "Sessions over all tenants"),
    ROW(COUNT, SIZED, "limits", "engines", limits.engines, 1, 64, NULL,
        "Engines over all tenants; default: one for each tenant, at least 32"),
    ROW(COUNT, SIZED, "limits", "pools", limits.pools, 1, 64, NULL,
        "Pools over all tenants; a host tier counts as a pool; default: as many as engines"),
    ROW(COUNT, SIZED, "limits", "groups", limits.groups, 1, GROUPS_MAX, "8",
        "Most groups of a pool; each node of the prefix tree reserves room for this number"),
    LIMIT(namespaces, "1024", "Namespaces in use at a time"),
    ROW(COUNT, SIZED, "limits", "nodes", limits.nodes, 2, COUNT_MAX, NULL,
        "Nodes of the prefix tree; default: one for each page record, at most 8388608"),
    LIMIT(token_blocks, NULL,
          "Blocks of 64 tokens for prefixes and sessions; default: 4 for each page record and 64 "
          "for each session"),
    LIMIT(extra_keys, "65536",
          "Extra keys of prefixes and sessions in memory, such as image hashes; prefixes on the "
          "disk have room for as many again"),
    LIMIT(pages, NULL,
          "Page records; default: (memory + host_memory) x regions / page_bytes_min of all "
          "tenants, at least 4096"),
    LIMIT(retires, "65536", "Releases that wait for a step"),
    LIMIT(turn_records, NULL,
          "Turn records of all sessions; default: 16384 if a tenant has record_memory"),
    ROW(COUNT, SIZED, "limits", "pulls", limits.pulls, 1, TRANSFERS_MAX, NULL,
        "Inbound transfers at a time, and as many outbound; default: 4 for each tenant with each "
        "peer, at least 256"),
    ROW(COUNT, SIZED, "limits", "disk_chunks", limits.disk_chunks, 0, COUNT_MAX, "0",
        "Chunks of prefixes on the disk; 0: the number that fits into spill.bytes with one page "
        "of page_bytes_min each, from 1024 to 262144"),
    LIMIT(events, "4096", "Changes of the prefix tree kept for subscribers, for each tenant"),
    LIMIT(sums_per_page, NULL,
          "Checksums that are kept for a page, which needs units x regions; default: the largest "
          "number of regions of a tenant"),
    ROW(COUNT, SIZED, "limits", "peers", limits.peers, 0, CONFIG_PEERS_MAX, NULL,
        "Peers at a time; default: the configured peers, and with tls or insecure_peers 8 more, "
        "which may join while the daemon runs"),
    ROW(COUNT, SIZED, "limits", "data_conns_max", data_conns_max, 2, 65536, NULL,
        "Data connections at a time, half of them from peers; default: 2 for each peer, 4 if its "
        "pages may use RDMA, more for transfer.connections; at least 128"),
    ROW(COUNT, SIZED, "limits", "rdma_rails", rdma_rails, 1, XFER_RAILS_MAX, NULL,
        "RDMA devices in use on this host, and known of each peer; default: the number that "
        "rdma_device names, or one for each GPU, at least 4"),
    ROW(COUNT, SIZED, "limits", "send_buffers", send_buffers, 1, 65536, "1024",
        "Buffers of 16 KiB for unread answers, shared by all connections"),
    ROW(BYTES, STARTS, "limits", "peer_bytes_in_flight", limits.peer_bytes_in_flight, 4096,
        MEMORY_MAX, "256M",
        "Most bytes requested and not yet received, for each peer; a tenant may use a quarter of "
        "them"),
    ROW(BYTES, STARTS, "limits", "tenant_bytes_in_flight", limits.tenant_bytes_in_flight, 4096,
        MEMORY_MAX, "256M", "Most bytes requested and not yet received, for each tenant"),
    ROW(COUNT, STARTS, "limits", "lease_pages", limits.lease_pages, 1, LEASE_PAGES, "4096",
        "Most pages of one pool that an engine may lease ahead of need"),

    ROW(COUNT, STARTS, "faults", "corrupt_pages", fault_corrupt_pages, 0, COUNT_MAX, "0",
        "Fault injection: number of received pages in which one byte is flipped, once each"),
    ROW(COUNT, STARTS, "faults", "copy_corrupt_every", fault_copy_corrupt_every, 0, COUNT_MAX, "0",
        "Fault injection: flip one byte in every Nth copy between the tiers; 0: never"),
    PLAIN(BOOL, STARTS, "faults", "checks_on_owner", fault_checks_on_owner, "false",
          "Fault injection: the owner thread checks turn records, as if there were no workers"),
    ROW(COUNT, STARTS, "faults", "disk_write_every", fault_disk_write_every, 0, COUNT_MAX, "0",
        "Fault injection: the write of every Nth file of the disk tier fails; 0: never"),
    ROW(COUNT, STARTS, "faults", "disk_full_after", fault_disk_full_after, 0, COUNT_MAX, "0",
        "Fault injection: number of files after which the disk is full; 0: never"),
    ROW(COUNT, STARTS, "faults", "step_visits", limits.step_visits, 0, COUNT_MAX, "0",
        "Fault injection: most records that a step of the core may visit before it counts as too "
        "long; 0: the built-in limit"),
};

const size_t config_settings_n = sizeof config_settings / sizeof *config_settings;
static_assert(sizeof config_settings / sizeof *config_settings <= SETTINGS_MAX,
              "struct loader.origin");

const struct setting config_tenant_fields[TENANT_FIELDS] = {
    TENANT(NAME, SIZED, "name", name, 0, 0, NULL, "Name, the same on every host"),
    TENANT(PATH, STARTS, "socket", socket, 0, 0, NULL, "Unix socket for the tenant's engines"),
    TENANT(MODE, STARTS, "mode", mode, 0, 0, "0660", "Octal mode of the socket"),
    TENANT(BOOL, STARTS, "events_tokens", events_tokens, 0, 0, "false",
           "Clients may subscribe to the token ids of stored prefixes; token ids are your users' "
           "text"),
    TENANT(BYTES, SIZED, "memory", memory_bytes, 4096, MEMORY_MAX, NULL,
           "Bytes for pages, in each region"),
    TENANT(BYTES, SIZED, "host_memory", host_bytes, 0, MEMORY_MAX, "0",
           "Bytes of the host tier, in each region; 0: none"),
    TENANT(BYTES, SIZED, "record_memory", record_bytes, 0, MEMORY_MAX, "0",
           "Bytes for turn records, in pages of 16 KiB, which the tenant's engines map; 0: none"),
    TENANT(BYTES, SIZED, "spill_bytes", spill_bytes, 0, MEMORY_MAX, NULL,
           "Bytes of the disk tier; 0: none; default: an equal part of the rest of spill.bytes"),
    TENANT(BOOL, SIZED, "host_write_through", host_write_through, 0, 0, "false",
           "true: copy each prefix to the host tier at its commit, and evictions never wait for a "
           "copy; false: copy it shortly before its eviction, and both tiers together keep more"),
    TENANT(COUNT, SIZED, "regions", regions, 1, RANKS_MAX, "1",
           "Regions of memory, one for each device: an engine uses one for each of its ranks, and "
           "engines in different regions run side by side"),
    TENANT(
        DEVICES, SIZED, "devices", devices, 0, RANKS_MAX, "index",
        "Names of the regions' devices, by which ranks join: one UUID for each region, NAME+NAME; "
        "index: 0, 1 and so on"),
    TENANT(BOOL, SIZED, "device_memory", device_memory, 0, 0, "false",
           "true: the regions lie in the memory of the GPUs in `devices` (needs NVIDIA's driver); "
           "false: in host memory"),
    TENANT(NICS, STARTS, "rdma_devices", rdma_devices, 0, RANKS_MAX, "auto",
           "RDMA devices of the regions: one name for each region, NAME+NAME; auto: the nearest "
           "device"),
    TENANT(COUNT, SIZED, "sessions_max", sessions_max, 1, COUNT_MAX, "4096", "Sessions at a time"),
    TENANT(COUNT, SIZED, "conns_max", conns_max, 1, 65536, "256", "Connections at a time"),
};

const struct setting config_peer_fields[PEER_FIELDS] = {
    PEER(NAME, "name", name, NULL, "Name of the peer's node"),
    PEER(ENDPOINT, "address", address, NULL, "HOST:PORT of the peer's `listen`"),
    PEER(TRANSPORT, "transport", transport, "tcp",
         "Transport of the peer's pages: tcp, auto or verbs; see docs/rdma.md"),
};

#define FIXED "was retired: no installation needed another value; leave it out"

const struct retired config_retired[RETIRED_SETTINGS] = {
    {"", "rdma_mr_bytes", FIXED},
    {"admin", "conns_max", FIXED},
    {"rdma", "wide_keys",
     "was retired: pages sent by RDMA are pushed and never read; leave it out"},
    {"rdma", "rnr_retries rnr_timer", FIXED},
    {"peers", "push",
     "was retired: pages sent by RDMA are pushed; leave it out, or set transport: tcp"},
    {"spill", "depth", "was retired: a thread has 16 pieces in flight; set spill.threads"},
    {"spill", "trim least", "was retired: set spill.align, from which it follows"},
    {"deadlines", "partial_frame_ms slow_reader_ms tls_handshake_ms",
     "was retired: set deadlines.progress_ms"},
    {"deadlines", "hello_ms data_idle_ms", FIXED},
    {"limits",
     "seal_jobs copy_jobs busy_retry_ms record_jobs asks resets reserved_percent strangers "
     "strangers_per_address handshakes_per_address",
     FIXED},
    {"limits", "tenant_batches", "was retired: set limits.tenant_bytes_in_flight"},
    {"limits", "flow_bytes_in_flight",
     "was retired: set limits.peer_bytes_in_flight, of which it is a quarter"},
    {"limits", "procs",
     "was retired: set conns_max of the tenants, which also limits their processes"},
    {"limits", "slabs", "was retired: set limits.pools or limits.pages, from which it follows"},
    {"limits", "serves", "was retired: set limits.pulls, which also limits transfers out"},
    {"limits", "disk_files disk_blocks",
     "was retired: set limits.disk_chunks, from which it follows"},
    {"limits", "disk_keys",
     "was retired: set limits.extra_keys, which also limits those on the disk"},
    {"limits", "disk_stores", "was retired: it follows from the number of tenants; leave it out"},
    {"limits", "inbound_links", "was retired: set limits.peers, from which it follows"},
    {"limits", "send_buffers_reserved",
     "was retired: set frame_body_max, for one message of which buffers are reserved"},
};
