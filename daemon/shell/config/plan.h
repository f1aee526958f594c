/* The plan of the daemon, derived from the configuration alone: the seams' configurations, and the
 * memory of each part. config_derive.c refuses a plan that is too large for this machine, main.c
 * prints and logs the plan, daemon.c executes it. Invariant: every part that grows with the
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

void plan_tenants(const struct config *config, struct tenant_config ret[CONFIG_TENANTS_MAX]);
/* Fields unknown before the start (incarnation, io, mem, callbacks) stay 0. */
void plan_mem(const struct config *config, struct mem_config *ret);
void plan_xfer(const struct config *config, struct xfer_config *ret);
/* Returns false if there is no disk tier. */
bool plan_disk(const struct config *config, struct disk_config *ret);
/* The number of peers with guaranteed resources: each has data connections and buffers for a large
 * message on each of its two links, no matter what the others use. */
uint32_t plan_busy_peers(const struct config *config);
/* Shares of the streams' buffers: each tenant, the operators, the peers. */
uint32_t plan_stream_shares(const struct config *config);
void plan_streams(const struct config *config, struct stream_config *ret);
uint32_t plan_conns(const struct config *config); /* connections on Unix sockets */
void plan_closer(const struct config *config, struct closer_config *ret);
uint32_t plan_procs(const struct config *config); /* watched processes: at most one for each
                                                     connection of a tenant */
uint32_t plan_body_max(const struct config *config);
/* The longest wait for a connection's first whole message, before its sender is known. */
uint64_t plan_hello_ns(const struct config *config);

#define PLAN_PARTS 11

/* The most bytes of each part. */
struct plan_memory {
    union {
        struct {
            uint64_t pages, host_pages; /* pages of the tenants, in all regions */
            uint64_t records;           /* record memory of the tenants */
            uint64_t core, checksums;   /* the core's arena; checksums of pages */
            uint64_t disk;              /* buffers to and from the disk; 0: no disk tier */
            uint64_t transfers;         /* connections and tables of the data path */
            uint64_t rdma;              /* tables of RDMA paths; 0: no peer wants RDMA */
            uint64_t connections;       /* buffers and queues of clients, operators and peers */
            uint64_t tls, tape;
        };
        uint64_t part[PLAN_PARTS];
    };
    uint64_t total;
};

/* The core must accept the limits. */
void plan_memory(const struct config *config, struct plan_memory *ret);
/* The memory of the machine, or the limit of its control group if that is lower. */
uint64_t plan_machine_bytes(void);
/* The most descriptors open at a time. */
uint64_t plan_descriptors(const struct config *config);
/* The most descriptors in unread answers: one answer for each connection of a tenant. The kernel
 * counts them for the daemon's user and also limits them by RLIMIT_NOFILE. */
uint64_t plan_descriptors_in_flight(const struct config *config);
/* Bytes of the tenants' memory on GPUs, which are not memory of the machine. */
uint64_t plan_device_bytes(const struct config *config);
/* The most RDMA devices in use. All tenants without GPUs and names count as one. */
uint32_t plan_rails(const struct config *config);
uint32_t plan_rails_named(const struct config *config); /* named by rdma_device or the tenants */
/* Bytes of the tenants' memory locked for RDMA, over all devices; 0: no peer wants RDMA. */
uint64_t plan_pinned(const struct config *config);
/* For --plan and --check-config: what a host needs for this configuration, one line per figure:
 * key, value and advice. `prefix` begins each line. */
void plan_report(const struct config *config, const char *prefix, FILE *out);
/* For --check-config: what each tenant has reserved in the shared tables. */
void plan_print_shares(const struct config *config, FILE *out);
/* plan_text: all parts in one line, as in the log. plan_hint: how to reduce the largest part. */
#define PLAN_TEXT_BYTES 416
void plan_text(const struct plan_memory *m, char ret[PLAN_TEXT_BYTES]);
const char *plan_hint(const struct plan_memory *m);

#endif
