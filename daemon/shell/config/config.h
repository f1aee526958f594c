/* The daemon's configuration: defaults, then the YAML file, then flags, then checks. main reads it
 * at start; later only a reload changes it (shell/admin/reload.c, on the owner thread); the rest of
 * the shell borrows it. One table (config_table.h) defines each scalar's YAML schema, flag,
 * default, range and help text, so that every setting exists in all forms. */
#ifndef SHELL_CONFIG_H
#define SHELL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/tern_err.h"
#include "core/core.h"
#include "seam/xfer/xfer.h"
#include "shell/log/log.h"

#define CONFIG_SETTINGS_MAX 96
#define CONFIG_TENANTS_MAX  64
#define CONFIG_PEERS_MAX    4096
#define CONFIG_NAME_BYTES   64  /* with the NUL; letters, digits, '-', '_' and '.' */
#define CONFIG_PATH_BYTES   108 /* with the NUL: the size of sun_path */
#define CONFIG_HOST_BYTES   256 /* with the NUL */
#define CONFIG_FILE_MAX     (16u << 20)
#define CONFIG_ADMIN_CONNS  16u /* operators' connections at a time */
#define CONFIG_STRANGERS    64u /* callers that wait at a door: see seam/io/door.h */
#define CONFIG_WHY_BYTES    512 /* enough for every message of config_load */

struct config_endpoint {
    char host[CONFIG_HOST_BYTES]; /* "": not configured; an IPv6 address has no brackets */
    uint16_t port;                /* 0 in a listener: the kernel chooses, the daemon reports it */
};

/* Names of devices. */
struct config_names {
    uint32_t n; /* 0: the setting has its default, which is no name */
    char name[RANKS_MAX][CONFIG_NAME_BYTES];
};

struct config_tenant {
    char name[CONFIG_NAME_BYTES];
    char socket[CONFIG_PATH_BYTES];
    uint32_t mode;         /* of the socket file */
    bool events_tokens;    /* subscribers may receive the tokens of stored chunks */
    uint64_t memory_bytes; /* of one region */
    uint64_t host_bytes;   /* of one region's host tier; 0: none */
    uint64_t record_bytes; /* for turn records; 0: none */
    uint64_t spill_bytes;  /* of the disk; 0: none */
    bool host_write_through;
    uint32_t regions;
    struct config_names devices;      /* of the regions; n 0: host memory, named by its index */
    bool device_memory;               /* the regions are on these GPUs, not in host memory */
    struct config_names rdma_devices; /* of the regions; n 0: the nearest */
    uint32_t sessions_max;
    uint32_t conns_max;
};

struct config_peer {
    char name[CONFIG_NAME_BYTES];
    struct config_endpoint address; /* of its control listener */
    uint64_t tenants;               /* bit i: both sides may request pages of tenant i */
    enum xfer_transport transport;  /* of the pages that it sends us */
    bool by_operator;               /* an operator added it; it is in no file */
    bool by_member; /* by_operator, and by tern-member, which removes only its own */
    bool leaving;   /* it has left, but its slot is still referred to */
};

struct config_deadlines {
    uint32_t progress_ms;   /* a message, an answer on its socket, a TLS handshake */
    uint32_t transfer_ms;   /* from the start of a transfer to its terminal state */
    uint32_t drain_ms;      /* from SIGTERM to the exit, even if sessions are left */
    uint32_t step_alarm_ms; /* releases wait while no step of their engine passes */
    uint32_t ticket_ms;     /* life of a ticket, since it was made or renewed */
    uint32_t turn_ms;       /* from the beginning of a session's turn to its end */
    uint32_t shutdown_ms;   /* after the drain, to store cached pages on the disk */
};

struct config {
    char file[4096];                 /* the YAML file; "": none */
    int argc;                        /* arguments of config_load, for a reload */
    char **argv;                     /* borrowed */
    bool given[CONFIG_SETTINGS_MAX]; /* row i of config_settings is set by the file or a flag */
    char node[CONFIG_NAME_BYTES];
    struct config_endpoint listen; /* control connections of peers; host "" for no listener */
    uint16_t data_port;            /* on the same host as `listen`; 0: the kernel chooses */
    char admin_socket[CONFIG_PATH_BYTES];
    uint32_t admin_mode;

    /* The tenants of the file and, after them at start, those of the reserve. A slot without a name
     * is free. A tenant keeps its slot, which is its index in the core. */
    uint32_t ntenants;
    struct config_tenant tenants[CONFIG_TENANTS_MAX];
    uint64_t spill_parts; /* bit i: tenant i's spill_bytes is derived */
    uint32_t reserve_tenants;
    char reserve_like[CONFIG_NAME_BYTES]; /* tenant whose sizes the reserve gets; "": no reserve */
    /* While the daemon runs these are slots; a slot without a name is free. A peer keeps its slot,
     * which is its index in the core and the index of its outbound link. */
    uint32_t npeers;
    struct config_peer peers[CONFIG_PEERS_MAX];
    uint32_t by_name[CONFIG_PEERS_MAX]; /* slots of the peers as loaded, sorted by name */

    uint64_t page_bytes_min;   /* smallest page of the tenants; sizes page records */
    uint32_t data_conns_max;   /* data connections in both directions */
    uint32_t send_buffers;     /* buffers of 16 KiB common to all shares */
    struct core_limits limits; /* every field is set and checked */
    struct config_deadlines deadlines;
    uint32_t frame_body_max;
    uint32_t workers, data_threads;
    uint32_t connections; /* data connections to one peer */
    bool huge_pages;
    bool peer_access;                                 /* between GPUs that reach each other */
    bool insecure_peers;                              /* peers talk in the clear */
    char tls_ca[4096], tls_cert[4096], tls_key[4096]; /* PEM files: all three or none */
    struct config_names rdma_device;                  /* n 0: "auto" */
    uint32_t rdma_rails; /* devices in use at a time, ours or a peer's */
    struct xfer_rdma_tuning rdma;
    enum log_level log_level;

    char spill_dir[4096];      /* "": there is no disk tier */
    char spill_key_file[4096]; /* "": files on the disk are not encrypted */
    uint64_t spill_bytes, spill_headroom;
    uint32_t spill_threads;

    uint64_t tape_bytes;
    char tape_file[4096]; /* where a crash or failed check writes the tape */
    bool tape_tokens;     /* tapes keep token ids, not hashes */

    uint32_t fault_corrupt_pages;      /* fault injection, see xfer_config */
    uint32_t fault_copy_corrupt_every; /* the same, see mem_config */
    bool fault_checks_on_owner;
    uint32_t fault_disk_write_every, fault_disk_full_after; /* see disk_config */
    bool plan_only;  /* --plan: print the needs of a host and exit */
    bool check_only; /* --check-config: see preflight.c, print the settings and exit */
};

/* On failure `why` receives the fault and what to do, after "FILE:LINE: " where YAML gives a line.
 * argp answers --help, --usage, --version and unknown flags, and exits. */
#define CONFIG_LOAD_STACK_BYTES (1u << 20) /* thousands of names are compared on the stack */
enum tern_err config_load(int argc, char **argv, struct config **ret, char *why, size_t why_cap);
void config_destroy(struct config *config);

/* Loads YAML text as config_load loads the file, without flags. For fuzzing and tests. */
enum tern_err config_load_text(const char *name, const void *bytes, size_t n, struct config **ret,
                               char *why, size_t why_cap);

/* Prints the configuration as a YAML file that loads as the same configuration. */
void config_print(const struct config *config, FILE *out);

/* Finds a tenant or a peer by its name. INVALID: no such name; *ret is untouched. */
enum tern_err config_tenant_slot(const struct config *config, const char *name, uint32_t *ret);
enum tern_err config_peer_slot(const struct config *config, const char *name, uint32_t *ret);
uint32_t config_tenants(const struct config *config); /* slots of tenants in use */
uint32_t config_peers(const struct config *config);   /* slots of peers in use */
static inline bool config_tenant_free(const struct config *config, uint32_t slot)
{
    return config->tenants[slot].name[0] == '\0';
}
/* For output. No tenant can have the name that a free slot gets. */
static inline const char *config_tenant_word(const struct config *config, uint32_t slot)
{
    return config_tenant_free(config, slot) ? "(reserve)" : config->tenants[slot].name;
}
/* Reads a peer like an entry of `peers` in the file; NULL: the file's default. `tenants`: names
 * joined by '+'. INVALID: `why` receives the valid values. */
struct config_peer_text {
    const char *name, *address, *transport, *tenants;
};
enum tern_err config_peer_read(const struct config *config, const struct config_peer_text *text,
                               struct config_peer *ret, char why[CONFIG_WHY_BYTES]);
/* The source of the peer's entry: file, operator or membership. */
const char *config_peer_origin(const struct config_peer *peer);
/* Finds a tenant's region by its device, or by its index if no devices are configured. */
enum tern_err config_region_slot(const struct config *config, uint32_t tenant, const char *name,
                                 uint32_t *ret);
/* Returns the name of that region. */
void config_region_name(const struct config *config, uint32_t tenant, uint32_t region,
                        char ret[CONFIG_NAME_BYTES]);

/* ---- config_change.c: compares the configuration in force with a new one, row by row of the
 * tables that load both. shell/admin/reload.c reports the differences and applies those that need
 * no restart. ---- */

#define CONFIG_CHANGE_NAME  192 /* "tenants[NAME].KEY" */
#define CONFIG_CHANGE_VALUE 256 /* size of a value in an answer; a longer value ends in "..." */

enum config_change_of {
    CHANGE_OF_SETTING, /* a row of config_settings */
    CHANGE_OF_TENANT,
    CHANGE_OF_TENANT_ADDED, /* tenants[from] of the new one takes `slot`; NONE: none free */
    CHANGE_OF_PEER_ADDED,   /* peers[slot] of the new configuration */
    CHANGE_OF_PEER_REMOVED, /* peers[slot] of the configuration in force */
    CHANGE_OF_PEER, /* a field of peers[slot], which is peers[from] in the new configuration */
};

struct config_change {
    enum config_change_of of;
    size_t row;
    uint32_t slot, from;
    uint64_t tenants; /* a peer's tenants, by slots of the configuration in force */
    char setting[CONFIG_CHANGE_NAME];
    char was[CONFIG_CHANGE_VALUE], is[CONFIG_CHANGE_VALUE]; /* as in the file; "": none */
    const char *why; /* why the change needs a restart, borrowed for the call; NULL: no restart */
};

/* Returns false if the change is not applied: peers then get no access to an added tenant. */
typedef bool config_change_fn(void *ctx, const struct config_change *change);

/* Calls `found` for each difference. Skips derived settings: those that neither the file nor a flag
 * sets in either configuration. Changes neither configuration; `found` may apply its change. */
void config_compare(const struct config *was, const struct config *is, config_change_fn *found,
                    void *ctx);
/* Sets the setting of that change to its new value. */
void config_take(struct config *config, const struct config *from,
                 const struct config_change *change);

#endif
