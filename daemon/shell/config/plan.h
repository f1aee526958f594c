/* The plan of the daemon, made from the configuration alone: the seams' configurations, and the
 * memory that each part takes. config_derive.c refuses what this machine cannot hold, main.c prints
 * and logs the plan, daemon.c carries it out. What must stay true: a part that grows with the
 * configuration is counted here, by a function beside the one that allocates it
 * (tests/e2e/test_memory.sh compares the sum with the address space). */
#ifndef SHELL_PLAN_H
#define SHELL_PLAN_H

#include <stdio.h>

#include "seam/disk/disk.h"
#include "seam/mem/mem.h"
#include "seam/xfer/xfer.h"
#include "shell/config/config.h"
#include "shell/stream/stream.h"

/* The limits of the configuration, with one more connection for the daemon itself. */
struct core_limits plan_limits(const struct config *config);
void plan_tenants(const struct config *config, struct tenant_config ret[CONFIG_TENANTS_MAX]);
/* Fields that are not known before the start (incarnation, io, mem, callbacks) are left 0. */
void plan_mem(const struct config *config, struct mem_config *ret);
void plan_xfer(const struct config *config, struct xfer_config *ret);
/* False: there is no disk tier. */
bool plan_disk(const struct config *config, struct disk_config *ret);
/* Peers that may all be busy at a time: each of so many has data connections, and buffers for a
 * large message on each of its two links, however much of them the others use. */
uint32_t plan_busy_peers(const struct config *config);
/* Who shares the buffers of streams: each tenant, the operators, the peers. */
uint32_t plan_stream_shares(const struct config *config);
void plan_streams(const struct config *config, struct stream_config *ret);
uint32_t plan_conns(const struct config *config); /* on Unix sockets */
void plan_closer(const struct config *config, struct closer_config *ret);
/* The most processes of that tenant that are watched: its share of limits.procs is by conns_max. */
uint32_t plan_procs(const struct config *config, uint32_t tenant);
uint32_t plan_body_max(const struct config *config);

/* Bytes, at the most. */
struct plan_memory {
    uint64_t pages, host_pages; /* of the tenants, in all regions */
    uint64_t records;           /* their record memory */
    uint64_t core, checksums;   /* the core's arena; those of the pages */
    uint64_t disk;              /* what is on its way to the disk and back; 0: there is none */
    uint64_t transfers;         /* connections and tables of the data path */
    uint64_t rdma;              /* tables of RDMA paths; 0: no peer wants them */
    uint64_t connections;       /* of clients, operators and peers: buffers, queues */
    uint64_t tls, tape;
    uint64_t total;
};

/* The core has to accept the limits. */
void plan_memory(const struct config *config, struct plan_memory *ret);
/* The memory of the machine, or what its control group may use if that is less. */
uint64_t plan_machine_bytes(void);
/* Descriptors that may be open at a time. */
uint64_t plan_descriptors(const struct config *config);
/* The most descriptors that unread answers can hold: one answer for each connection of a tenant.
 * The kernel counts them against the daemon's user and compares them with RLIMIT_NOFILE, too. */
uint64_t plan_descriptors_in_flight(const struct config *config);
/* Bytes of the tenants' memory that lie on GPUs, and so are none of the machine's. */
uint64_t plan_device_bytes(const struct config *config);
/* RDMA devices in use, at the most: of tenants without GPUs and names one for all. */
uint32_t plan_rails(const struct config *config);
uint32_t plan_rails_named(const struct config *config); /* by rdma_device or the tenants */
/* Bytes of the tenants' memory that are locked for RDMA, on all devices; 0: no peer wants it. */
uint64_t plan_pinned(const struct config *config);
/* For --plan and --check-config: what a host needs for this configuration, a line a figure with its
 * key, its value and what to do with it. `prefix` begins each line. */
void plan_report(const struct config *config, const char *prefix, FILE *out);
/* For --check-config: what is reserved for each tenant of the tables that all share. */
void plan_print_shares(const struct config *config, FILE *out);
/* plan_text: one line of every part, as in the log. plan_hint: how to make the largest smaller. */
#define PLAN_TEXT_BYTES 416
void plan_text(const struct plan_memory *m, char ret[PLAN_TEXT_BYTES]);
const char *plan_hint(const struct plan_memory *m);

#endif
