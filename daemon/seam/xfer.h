/* Moving pages between daemons: a pull. The destination asks for pages by the source's (group,
 * index, generation) and receives straight into its own pages; the source asks the core whether
 * each page may leave, and sends from the page. Checksums travel beside the bytes and are verified
 * here, before the core hears of a page. Owner thread only; no allocation after create.
 * Implementation: xfer_tcp.c; verbs later. */
#ifndef SEAM_XFER_H
#define SEAM_XFER_H

#include "core/core.h"
#include "seam/io.h"
#include "seam/mem.h"

struct xfer;

struct xfer_config {
    struct io *io;
    struct mem *mem;
    uint32_t links, pulls, serves; /* as in core_limits */
    uint32_t data_conns_max;       /* both ways together */
    uint64_t idle_ns; /* a data connection that makes no progress with work outstanding is broken */
    uint32_t fault_corrupt_pages; /* fault injection: flip one byte at the receive in that many
                                     distinct pages, once each */
    uint32_t socket_buffer_bytes; /* SO_SNDBUF and SO_RCVBUF; 0: 1 MiB, or what the kernel makes of
                                     it where net.core.rmem_max and wmem_max are below that */
    uint64_t incarnation;         /* ours: a data connection that names another is refused */
    /* EV_PULLED, EV_PULL_BROKEN (PEER_LOST: the connection ended; GONE: the source gave a page or
     * the serve up; BUSY: no data connection to be had), EV_PULL_QUIET, EV_SERVE_QUIET; may be
     * called from inside xfer_* calls: the shell queues. now_ns is the shell's to set. */
    void (*emit)(void *ctx, struct event *event);
    /* core_serve_page on the live core. */
    enum tern_err (*serve_page)(void *ctx, struct id serve, uint32_t group, struct page_ref ref,
                                uint32_t *ret_record);
    /* May who was admitted by that link ask for pages of that serve? False only for one that lives
     * and is another link's. NULL: each may ask for all. */
    bool (*serve_allowed)(void *ctx, struct id serve, uint32_t link);
    void *ctx;
};

enum tern_err xfer_create(const struct xfer_config *config, struct xfer **ret,
                          const char **ret_why);
void xfer_destroy(
    struct xfer *xfer); /* before io and mem: runs the ring until its operations ended */

/* Listens for data connections; *ret_port is the port taken (for port 0). host NULL: all. */
enum tern_err xfer_listen(struct xfer *xfer, const char *host, uint16_t port, uint16_t *ret_port);

/* An outbound link is up: its peer's data address, its incarnation, and the token that the peer
 * gave out on it. xfer_link_down breaks its pulls. */
enum tern_err xfer_link_up(struct xfer *xfer, uint32_t link, const struct sockaddr *addr,
                           socklen_t len, uint64_t peer_incarnation, uint64_t token);
void xfer_link_down(struct xfer *xfer, uint32_t link);

/* An inbound link gave that token out (not 0): data connections that say it are that link's, until
 * xfer_dismiss, which ends them. Nobody else may ask for a page. */
void xfer_admit(struct xfer *xfer, uint32_t link, uint64_t token);
void xfer_dismiss(struct xfer *xfer, uint32_t link);

void xfer_pull(struct xfer *xfer, const struct action *act); /* ACT_PULL; copies what it needs */
void xfer_pull_stop(struct xfer *xfer, const struct action *act);   /* ACT_PULL_STOP */
void xfer_serve_start(struct xfer *xfer, const struct action *act); /* ACT_SERVE_START */
void xfer_serve_stop(struct xfer *xfer, const struct action *act);  /* ACT_SERVE_STOP */
void xfer_tick(struct xfer *xfer, uint64_t now_ns); /* enforces idle_ns; call about every 100 ms */

struct xfer_stats {
    uint64_t payload_bytes_in, payload_bytes_out; /* page bytes */
    uint64_t socket_bytes_in, socket_bytes_out;   /* all on data connections, heads included */
    uint64_t pages_in, pages_out, corrupt_detected, corrupt_injected, gone_answers, conns;
    uint64_t refused; /* data connections with no token of a link that is up, or another's serve */
};
void xfer_stats(const struct xfer *xfer, struct xfer_stats *ret);

#endif
