/* The daemon's life: the start in its order, the owner loop, the end. */
#include "shell/daemon.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/container.h"
#include "base/err.h"
#include "base/undumped.h"
#include "seam/mem/mem_fault.h"
#include "shell/admin/operator.h"
#include "shell/config/plan.h"
#include "shell/log/log.h"
#include "shell/loop/loop.h"

/* ---- callbacks of seams and threads ---- */

static enum tern_err serve_page(void *ctx, struct serve_id serve, uint32_t group,
                                struct page_ref ref, uint32_t *ret_record)
{
    const struct daemon *d = ctx;

    return core_serve_page(d->core, serve, group, ref, ret_record);
}

static enum tern_err serve_next(void *ctx, struct serve_id serve, uint32_t group,
                                struct page_ref ref, struct page_ref *ret)
{
    struct daemon *d = ctx;

    return core_serve_next(d->core, serve, group, ref, ret);
}

static bool serve_allowed(void *ctx, struct serve_id serve, uint32_t link)
{
    const struct daemon *d = ctx;
    struct transfer_view view;

    return !core_serve_view(d->core, serve.slot, &view) || !serve_id_equal(view.serve, serve) ||
           view.link == link;
}

static bool layout_used(void *ctx, uint64_t hash)
{
    const struct daemon *d = ctx;

    return core_layout_used(d->core, hash);
}

static void proc_gone(void *ctx, uint32_t slot)
{
    struct daemon *d = ctx;
    struct event ev = {.kind = EV_PROC_GONE, .proc = {.proc = slot}};

    log_event(LEVEL_DEBUG, "proc_gone", "proc=%u pid=%d", slot, (int)proc_pid(&d->procs, slot));
    engine_log_exited(d, slot);
    conns_close_proc(d, slot);
    daemon_event(d, &ev);
}

static void mem_ready(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct daemon *d = container_of(op, struct daemon, mem_op);
    const char *device, *why;

    (void)res, (void)flags, (void)buffer;
    if (d->state == DAEMON_STOPPED)
        return; /* its verdicts would reach transfers that are being destroyed */
    mem_poll(d->mem, daemon_emit, d);
    while (mem_device_lost(d->mem, &device, &why))
        alarms_gpus(d, io_now_ns());
}

/* The configuration file was read again. */
static void reloaded(struct daemon *d)
{
    struct reload_result result;

    if (d->state == DAEMON_STOPPED)
        return;
    reload_finish(d, &result);
    operator_reloaded(d, &result);
    if (result.by_signal && d->state == DAEMON_SERVING) {
        notify_state("READY=1");
        drain_tell_serving(d, result.err == TERN_OK ? "" : "; the last reload failed: ",
                           result.err == TERN_OK ? "" : result.why);
    }
    if (d->reload.again)
        reload_by_signal(d);
}

static void take_signal(struct daemon *d, uint32_t number)
{
    log_event(LEVEL_INFO, "signal", "signal=%u state=%d", number, (int)d->state);
    if (number == SIGHUP)
        reload_by_signal(d);
    else if (d->state == DAEMON_SERVING)
        drain_begin(d, DAEMON_LEAVING);
    else if (d->state != DAEMON_STARTING && d->state != DAEMON_STOPPED)
        daemon_state_move(&d->state, DAEMON_STOPPED); /* second signal: end at once */
}

/* Reads all pending signals: one wake-up may stand for several. */
static void signalled(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct daemon *d = container_of(op, struct daemon, signal_op);
    struct signalfd_siginfo info;

    (void)res, (void)flags, (void)buffer;
    while (read(d->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        take_signal(d, info.ssi_signo);
}

/* ---- start ---- */

/* A start with much memory takes long: SIGTERM and SIGINT end it, SIGHUP waits for its end. */
static void start_process(const struct config *config)
{
    uint64_t most = plan_descriptors(config), flight = plan_descriptors_in_flight(config);
    struct rlimit files = {.rlim_max = RLIM_INFINITY};
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (files.rlim_max < most || files.rlim_max < flight)
        log_event(LEVEL_WARN, "few_descriptors",
                  "has=%" PRIu64 " wants=%" PRIu64 " in_flight=%" PRIu64 " reason=%s",
                  (uint64_t)files.rlim_max, most, flight,
                  "the daemon refuses connections and mappings when no descriptor is free: raise "
                  "LimitNOFILE= or ulimit -Hn");
}

/* From now on the loop receives the signals; all other threads block them. */
static enum tern_err start_signals(struct daemon *d, char *why, size_t cap)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (d->signal_fd < 0)
        return fail_with(why, cap, TERN_INTERNAL, "signalfd failed");
    d->signal_op.done = signalled;
    io_poll_in(d->io, &d->signal_op, d->signal_fd, true);
    return TERN_OK;
}

static enum tern_err start_core(struct daemon *d, char *why, size_t cap)
{
    struct tenant_config tenants[CONFIG_TENANTS_MAX] = {0};
    struct event opened = {.kind = EV_CONN_OPENED,
                           .conn = {.conn = d->conns.internal, .proc = NONE, .admin = true}};
    struct tape_config tape = {.bytes = d->config->tape_bytes,
                               .limits = d->limits,
                               .tenant = tenants,
                               .tenants = d->config->ntenants,
                               .incarnation = d->incarnation};
    struct hash_secret secret;
    size_t bytes;

    plan_tenants(d->config, tenants);
    if (d->limits.table_pages > STEP_TABLE_MAX)
        log_event(LEVEL_WARN, "long_tables", "pages=%u most=%u reason=%s", d->limits.table_pages,
                  STEP_TABLE_MAX,
                  "frame_body_max allows tables with more pages than a transfer may have: such "
                  "sessions cannot be fetched or handed over");
    if (core_size(&d->limits, &bytes) != TERN_OK)
        return fail_with(why, cap, TERN_INVALID,
                         "the core rejects the limits: one of them is 0 or too large");
    d->arena = undumped_take(bytes, true);
    d->actions = undumped_take(actions_bytes(&d->limits), true);
    d->queue.cap = daemon_queue_bound(&d->limits, plan_procs(d->config));
    d->queue.v = calloc(d->queue.cap, sizeof(*d->queue.v));
    d->engines = calloc(d->limits.engines, sizeof(*d->engines));
    d->pools = calloc(d->limits.pools, sizeof(*d->pools));
    d->node_bits = calloc((d->limits.nodes + 63u) / 64, sizeof(*d->node_bits));
    if (!d->arena || !d->actions || !d->queue.v || !d->engines || !d->pools || !d->node_bits)
        return fail_with(why, cap, TERN_INTERNAL,
                         "no memory for the core: %zu bytes; lower the limits or raise "
                         "page_bytes_min",
                         bytes);
    actions_init(d->actions, &d->limits);
    if (getrandom(tape.secret, sizeof(tape.secret), 0) != (ssize_t)sizeof(tape.secret) ||
        getrandom(&secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
        return fail_with(why, cap, TERN_INTERNAL, "getrandom failed");
    if (tape.bytes && tape_create(&tape, &d->tape) != TERN_OK)
        return fail_with(why, cap, TERN_INTERNAL, "no memory for the tape: lower tape.bytes");
    d->core = core_init(d->arena, &d->limits, tenants, d->incarnation, &secret);
    explicit_bzero(&secret, sizeof(secret));
    daemon_event(d, &opened);
    return TERN_OK;
}

/* Logs pairs of GPUs whose copies use host memory: for each GPU one other GPU that is not logged
 * yet, and the number of the rest, because the log limits lines of one event. */
static void log_peers(const struct daemon *d)
{
    struct mem_device_view a, b;

    for (uint32_t i = 0; mem_device_view(d->mem, i, &a); i++) {
        uint32_t n = 0, first = 0;

        for (uint32_t k = i + 1; mem_device_view(d->mem, k, &b); k++)
            if (mem_no_peers(d->mem, i, k) && n++ == 0)
                first = k;
        if (n > 0 && mem_device_view(d->mem, first, &b))
            log_event(d->config->peer_access ? LEVEL_WARN : LEVEL_INFO, "device_peers",
                      "device=%s other=%s more=%" PRIu32 " way=staged reason=%s", a.uuid, b.uuid,
                      n - 1, mem_no_peers(d->mem, i, first));
    }
}

static void log_devices(const struct daemon *d)
{
    struct mem_device_view view;

    for (uint32_t t = 0; t < d->config->ntenants; t++)
        for (uint32_t r = 0; r < d->config->tenants[t].regions; r++) {
            uint64_t bytes;
            bool lost;
            const char *device = mem_region_device(d->mem, t, r, &bytes, &lost);

            if (device)
                log_event(LEVEL_INFO, "device_memory",
                          "tenant=%s region=%" PRIu32 " device=%s mib=%" PRIu64,
                          config_tenant_word(d->config, t), r, device, bytes >> 20);
        }
    for (uint32_t i = 0; mem_device_view(d->mem, i, &view); i++)
        if (view.no_kernels)
            log_event(LEVEL_WARN, "device_kernels", "device=%s way=copies reason=%s", view.uuid,
                      view.no_kernels);
        else
            log_event(LEVEL_INFO, "device_kernels", "device=%s way=kernels", view.uuid);
    log_peers(d);
}

static enum tern_err start_mem(struct daemon *d, char *why, size_t cap)
{
    struct mem_config mem;
    struct mem_stats stats;
    const char *text = "";
    enum tern_err err;

    plan_mem(d->config, &mem);
    mem.incarnation = d->incarnation;
    err = mem_create(&mem, &d->mem, &text);
    if (err != TERN_OK)
        return fail_with(why, cap, err, "%s", text);
    log_devices(d);
    mem_stats(d->mem, &stats);
    log_event(stats.holes.memories > 0 ? LEVEL_WARN : LEVEL_INFO, "client_memory",
              "with_holes=%" PRIu32, stats.holes.memories);
    d->mem_op.done = mem_ready;
    io_poll_in(d->io, &d->mem_op, mem_event_fd(d->mem), true);
    return TERN_OK;
}

static void register_progress(void *ctx, const char *device, uint64_t done, uint64_t all,
                              uint32_t threads, uint64_t ns)
{
    (void)ctx;
    log_event(LEVEL_INFO, done == all ? "registered" : "registering",
              "device=%s mib=%" PRIu64 " of=%" PRIu64 " ms=%" PRIu64 " threads=%u", device,
              done >> 20, all >> 20, ns / 1000000, threads);
}

/* Logs only GPU memory's registrations: host memory can be registered in one way only, and a NIC
 * that cannot do that is not used. */
static void log_regions(const struct daemon *d)
{
    struct xfer_registration_view v;

    for (uint32_t i = 0; xfer_registration_view(d->xfer, i, &v); i++)
        if (v.gpu && v.device)
            log_event(v.how == XFER_REGISTERED_NO ? LEVEL_WARN : LEVEL_INFO, "device_registered",
                      "tenant=%s region=%" PRIu32 " gpu=%s device=%s way=%s reason=%s",
                      config_tenant_word(d->config, v.tenant), v.region, v.gpu, v.device,
                      xfer_registered_word[v.how], v.why);
}

static void self_tested(void *ctx, const struct xfer_registration_view *row)
{
    const struct daemon *d = ctx;
    const struct xfer_self_test *test = row->test;

    if (row->tenant == NONE)
        log_event(LEVEL_INFO, "rdma_self_test",
                  "device=%s result=passed pairs=%" PRIu32 " bytes=%" PRIu64 " us=%" PRIu64,
                  row->device, row->regions, test->bytes, test->ns / 1000);
    else
        log_event(LEVEL_WARN, "rdma_self_test",
                  "device=%s tenant=%s region=%" PRIu32 " gpu=%s result=%s reason=%s", row->device,
                  config_tenant_word(d->config, row->tenant), row->region,
                  row->gpu ? row->gpu : "none", xfer_self_test_word[test->result], test->why);
}

static void device_alarm(void *ctx, const char *device, const char *text)
{
    (void)ctx;
    log_event(LEVEL_ERROR, "rdma_device", "device=%s reason=%s", device, text);
}

static enum tern_err start_xfer(struct daemon *d, char *why, size_t cap)
{
    const struct config *config = d->config;
    struct xfer_config xfer;
    struct xfer_rdma_view view;
    const char *text = "";
    enum tern_err err;

    plan_xfer(config, &xfer);
    xfer.io = d->io;
    xfer.mem = d->mem;
    xfer.incarnation = d->incarnation;
    xfer.emit = daemon_emit;
    xfer.serve_page = serve_page;
    xfer.serve_next = serve_next;
    xfer.serve_allowed = serve_allowed;
    xfer.layout_used = layout_used;
    xfer.data_dialled = link_data_dialled;
    xfer.ctx = d;
    xfer.rdma.path_send = link_path_send;
    xfer.rdma.path_note = link_path_note;
    xfer.rdma.path_changed = link_path_changed;
    xfer.rdma.progress = register_progress;
    xfer.rdma.self_tested = self_tested;
    xfer.rdma.device_alarm = device_alarm;
    err = xfer_create(&xfer, &d->xfer, &text);
    if (err != TERN_OK)
        return fail_with(why, cap, err, "%s", text);
    xfer_rdma_view(d->xfer, &view);
    d->rdma = view.open;
    if (xfer.rdma.pulls > 0 || xfer.rdma.serves)
        log_event(LEVEL_INFO, "rdma", "rails=%u reason=%s", view.nrails, view.why);
    for (uint32_t i = 0; i < view.nrails; i++)
        log_event(LEVEL_INFO, "rail", "device=%s port=%u gid=%u registered_bytes=%" PRIu64,
                  view.rail[i].device, view.rail[i].port, view.rail[i].gid_index,
                  view.rail[i].registered_bytes);
    log_regions(d);
    if (!config->listen.host[0])
        return TERN_OK;
    err = xfer_listen(d->xfer, config->listen.host, config->data_port, &d->data_port, &text);
    if (err != TERN_OK)
        snprintf(why, cap, "data port %u on %s cannot be opened: %s; %s", config->data_port,
                 config->listen.host, text,
                 err == TERN_CONFLICT ? "choose another data_port, or 0 to let the kernel choose"
                                      : "`listen` must name an address of this host");
    return err;
}

static enum tern_err start_sockets(struct daemon *d, char *why, size_t cap)
{
    const struct config *config = d->config;
    struct stream_config streams;
    struct closer_config closer;
    const char *text;

    plan_closer(config, &closer);
    closer.io = d->io;
    plan_streams(config, &streams);
    streams.io = d->io;
    d->frame = undumped_take(FRAME_HEADER_BYTES + (size_t)plan_body_max(config), true);
    d->text = undumped_take(ADMIN_TEXT_BYTES, true);
    if (closer_create(&closer, &d->closer, &text) != TERN_OK)
        return fail_with(why, cap, TERN_INTERNAL, "%s", text);
    streams.closer = d->closer;
    if (!d->frame || !d->text || stream_pool_create(&streams, &d->streams) != TERN_OK ||
        wire_in_init(&d->in, config, plan_body_max(config)) != TERN_OK ||
        proc_table_init(&d->procs, d->io, plan_procs(config), proc_gone, d) != TERN_OK ||
        subscribe_init(d) != TERN_OK)
        return fail_with(why, cap, TERN_INTERNAL, "no memory for connections: lower conns_max");
    TRY(links_init(d, why, cap));
    links_members_init(d);
    TRY(conns_listen(d, why, cap));
    return links_listen(d, why, cap);
}

static enum tern_err start(struct daemon *d, char *why, size_t cap)
{
    struct io_config io = {.entries = IO_ENTRIES,
                           .groups = plan_stream_shares(d->config),
                           .buffers = IO_BUFFERS,
                           .buffer_bytes = IO_BUFFER_BYTES};
    const char *text = "";
    enum tern_err err;

    d->start_ns = io_now_ns();
    if (getrandom(&d->incarnation, sizeof(d->incarnation), 0) != (ssize_t)sizeof(d->incarnation))
        return fail_with(why, cap, TERN_INTERNAL, "getrandom failed");
    d->incarnation |= 1; /* 0 means none */
    notify_open();
    start_process(d->config);
    err = io_create(&io, &d->io, &text);
    if (err != TERN_OK)
        return fail_with(why, cap, err, "%s", text);
    if (conns_init(d) != TERN_OK)
        return fail_with(why, cap, TERN_INTERNAL, "no memory for connections: lower conns_max");
    d->limits = d->config->limits;
    TRY(start_mem(d, why, cap));
    TRY(start_core(d, why, cap));
    TRY(spill_start(d, why, cap));
    TRY(start_xfer(d, why, cap));
    TRY(start_sockets(d, why, cap));
    TRY(reload_init(d, reloaded, why, cap));
    TRY(start_signals(d, why, cap));
    if (alarms_init(d) != TERN_OK)
        return fail_with(why, cap, TERN_INTERNAL, "no memory for the alarms");
    daemon_state_move(&d->state, DAEMON_SERVING);
    return TERN_OK;
}

enum tern_err daemon_create(struct config *config, struct daemon **ret, char *why, size_t cap)
{
    struct daemon *d = undumped_take(sizeof(*d), false);
    enum tern_err err;

    if (!d)
        return fail_with(why, cap, TERN_INTERNAL, "no memory");
    d->config = config;
    d->carry_out = dispatch_actions;
    d->conns.frame = request_frame;
    d->conns.closed = subscribe_forget;
    d->signal_fd = -1;
    d->links.listener.fd = -1;
    for (uint32_t i = 0; i <= CONFIG_TENANTS_MAX; i++)
        d->conns.share[i].listener.fd = -1;
    err = start(d, why, cap);
    if (err != TERN_OK) {
        daemon_destroy(d);
        return err;
    }
    *ret = d;
    return TERN_OK;
}

void daemon_destroy(struct daemon *d)
{
    size_t bytes;

    if (!d)
        return;
    notify_close();
    /* The doors and xfer run the ring until their own operations have ended, which also completes
     * operations of others. Those completions must not step the core or reach a destroyed part, so
     * streams are muted, and the ring is destroyed before the owners of its other operations. */
    if (d->state != DAEMON_STOPPED)
        daemon_state_move(&d->state, DAEMON_STOPPED);
    if (d->streams)
        stream_pool_mute(d->streams);
    closer_end(d->closer);
    reload_end(d);
    conn_doors_destroy(d);
    door_destroy(d->links.door); /* before any link: it runs the ring */
    d->links.door = NULL;
    links_names_finish(d);
    xfer_destroy(d->xfer);
    io_destroy(d->io);
    disk_destroy(d->disk);
    d->disk = NULL;
    conns_finish(d);
    closer_destroy(d->closer);
    subscribe_finish(d);
    links_finish(d);
    stream_pool_destroy(d->streams);
    proc_table_finish(&d->procs);
    mem_destroy(d->mem);
    wire_in_finish(&d->in);
    tape_destroy(d->tape);
    alarms_finish(d);
    if (core_size(&d->limits, &bytes) == TERN_OK)
        undumped_put(d->arena, bytes);
    undumped_put(d->actions, actions_bytes(&d->limits));
    undumped_put(d->frame, FRAME_HEADER_BYTES + (size_t)plan_body_max(d->config));
    undumped_put(d->text, ADMIN_TEXT_BYTES);
    free(d->queue.v);
    free(d->engines);
    free(d->pools);
    free(d->node_bits);
    if (d->signal_fd >= 0)
        close(d->signal_fd);
    undumped_put(d, sizeof(*d));
}

/* ---- the loop ---- */

static uint64_t next_deadline(const struct daemon *d)
{
    bool more = d->subs.more || d->queue.n > 0 || stream_pool_has_input(d->streams);
    uint64_t at = more ? 0 : core_deadline(d->core);

    if (core_waits_for_steps(d->core) && d->step_poll_ns < at)
        at = d->step_poll_ns;
    return d->tick_ns < at ? d->tick_ns : at;
}

/* A fault or a wait means that a client punched a hole into its memory or that the machine lost the
 * page. After a fault, the operation that touched the page has failed. */
static void warn_of_faults(struct daemon *d)
{
    struct mem_stats stats;

    mem_stats(d->mem, &stats);
    if (stats.faults != d->faults_seen)
        log_event(LEVEL_WARN, "memory_lost", "touches=%" PRIu64 " all=%" PRIu64,
                  stats.faults - d->faults_seen, stats.faults);
    if (stats.holes.waits != d->waits_seen)
        log_event(LEVEL_WARN, "memory_waited", "tenant=%s waits=%" PRIu64 " all_ms=%" PRIu64,
                  config_tenant_word(d->config, stats.holes.waited_for), stats.holes.waits,
                  stats.holes.waited_ns / 1000000);
    d->faults_seen = stats.faults;
    d->waits_seen = stats.holes.waits;
}

static void tick(struct daemon *d, uint64_t now_ns)
{
    d->tick_ns = now_ns + TICK_NS;
    notify_tick(now_ns);
    stream_pool_sweep(d->streams, now_ns);
    xfer_tick(d->xfer, now_ns);
    conns_tick(d, now_ns);
    links_tick(d, now_ns);
    links_members_tick(d);
    alarms_tick(d, now_ns);
    warn_of_faults(d);
    if (d->state == DAEMON_SERVING || d->state == DAEMON_STOPPED)
        return;
    if (drain_nears_end(d, now_ns))
        operator_drained(d);
    drain_tick(d, now_ns);
}

static void turn(struct daemon *d)
{
    struct event timer = {.kind = EV_TIMER};
    uint64_t now_ns;

    if (mem_has_unstarted(d->mem)) {
        io_submit(d->io); /* send answers first: waking a thread may take tens of microseconds */
        mem_start(d->mem);
    }
    io_run(d->io, xfer_poll(d->xfer) ? 0 : next_deadline(d));
    conn_fds_sent(d);
    engine_watch_hear(d);
    daemon_run_queue(d);
    stream_pool_serve(d->streams);
    daemon_run_queue(d);
    now_ns = io_now_ns();
    if (now_ns >= d->step_poll_ns && core_waits_for_steps(d->core)) {
        d->step_poll_ns = now_ns + STEP_POLL_NS;
        daemon_poll_engines(d);
    }
    if (now_ns >= core_deadline(d->core))
        daemon_event(d, &timer);
    if (now_ns >= d->tick_ns)
        tick(d, now_ns);
    conn_doors_again(d);
    links_door_again(d);
    daemon_run_queue(d);
    subscribe_pump(d);
    stream_pool_flush(d->streams);
}

int daemon_run(struct daemon *d)
{
    mem_fault_decides();
    log_event(LEVEL_INFO, "ready",
              "node=%s pid=%d incarnation=%016" PRIx64 " control_port=%u data_port=%u admin=%s",
              d->config->node, (int)getpid(), d->incarnation, d->control_port, d->data_port,
              d->config->admin_socket);
    notify_state("READY=1");
    drain_tell_serving(d, "", "");
    while (d->state != DAEMON_STOPPED)
        turn(d);
    log_event(LEVEL_INFO, "stopped", "uptime_ms=%" PRIu64, (io_now_ns() - d->start_ns) / 1000000);
    return 0;
}
