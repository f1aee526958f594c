/* A small core with two tenants for the tests of admin answers, and their helpers. Header only. */
#ifndef TEST_ADMIN_RIG_H
#define TEST_ADMIN_RIG_H

#include "unit/rig/rig_host.h"
#include "unit/rig/rig_pair.h"
#include "unit/rig/rig_record.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "shell/admin/admin.h"
#include "shell/daemon.h"

#define TEXT_BYTES (1u << 20)

/* Substitutes for the daemon's parts: see tern_wrap. NULL: unknown. */
struct parts {
    bool (*tls)(struct daemon *d, uint32_t peer, struct tls_peer *ret);
    bool (*region)(const struct xfer *x, const struct xfer_rdma_view *rdma, uint32_t tenant,
                   uint32_t region, struct xfer_region_view *ret);
    bool (*bytes)(const struct xfer *x, uint32_t peer, uint32_t i, const char **ret_transport,
                  uint64_t *ret_bytes);
    bool (*path)(const struct xfer *x, uint32_t peer, uint32_t i, struct xfer_path_view *ret);
    bool (*registration)(const struct xfer *x, uint32_t i, struct xfer_registration_view *ret);
    bool (*device)(const struct mem *m, uint32_t device, struct mem_device_view *ret);
    const char *(*no_peers)(const struct mem *m, uint32_t device, uint32_t other);
    bool (*pull)(const struct xfer *x, struct pull_id pull, struct xfer_flow_view *ret);
    bool (*serve)(const struct xfer *x, struct serve_id serve, struct xfer_flow_view *ret);
    bool (*alarm)(struct daemon *d, uint32_t *at, uint64_t now_ns, struct alarm_view *ret);
};

/* The state of a case. */
static struct scene {
    struct bench b;
    struct rig_engine other; /* of tenant 1 */
    struct pool_id other_pool;
    struct rig_session *other_session;
    struct config *config;
    struct admin_ctx ctx;
    struct parts parts;
    char *text;
    char why[ADMIN_WHY_BYTES]; /* of the last answer */
    uint64_t *bits;
    uint32_t visits;
    json_t *answer; /* the last */
} s;

#define POOLS_NAMED 8u
static struct pool_watch watched[POOLS_NAMED];
static struct daemon fake; /* its parts are those of the case */
static struct peer_link links[1];

/* Called in place of `name`: the case's part, or else `otherwise`. */
#define PART(type, name, params, part, args, otherwise)                                            \
    type __wrap_##name params;                                                                     \
    type __wrap_##name params                                                                      \
    {                                                                                              \
        return s.parts.part ? s.parts.part args : (otherwise);                                     \
    }

PART(bool, link_tls_peer, (struct daemon * d, uint32_t peer, struct tls_peer *ret), tls,
     (d, peer, ret), false)
PART(bool, xfer_region_view,
     (const struct xfer *x, const struct xfer_rdma_view *rdma, uint32_t tenant, uint32_t region,
      struct xfer_region_view *ret),
     region, (x, rdma, tenant, region, ret), false)
PART(bool, xfer_link_bytes,
     (const struct xfer *x, uint32_t peer, uint32_t i, const char **ret, uint64_t *ret_n), bytes,
     (x, peer, i, ret, ret_n), false)
PART(bool, xfer_path_view,
     (const struct xfer *x, uint32_t peer, uint32_t i, struct xfer_path_view *ret), path,
     (x, peer, i, ret), false)
PART(bool, xfer_registration_view,
     (const struct xfer *x, uint32_t i, struct xfer_registration_view *ret), registration,
     (x, i, ret), false)
PART(bool, mem_device_view, (const struct mem *m, uint32_t i, struct mem_device_view *ret), device,
     (m, i, ret), false)
PART(const char *, mem_no_peers, (const struct mem *m, uint32_t i, uint32_t k), no_peers, (m, i, k),
     NULL)
PART(bool, xfer_pull_view, (const struct xfer *x, struct pull_id pull, struct xfer_flow_view *ret),
     pull, (x, pull, ret), false)
PART(bool, xfer_serve_view,
     (const struct xfer *x, struct serve_id serve, struct xfer_flow_view *ret), serve,
     (x, serve, ret), false)
PART(bool, alarms_view, (struct daemon * d, uint32_t *at, uint64_t ns, struct alarm_view *ret),
     alarm, (d, at, ns, ret), false)

void __wrap_xfer_link_view(const struct xfer *x, uint32_t link, struct xfer_link_view *ret);
void __wrap_xfer_link_view(const struct xfer *x, uint32_t link, struct xfer_link_view *ret)
{
    (void)x;
    (void)link;
    *ret = (struct xfer_link_view){.reason = ""};
}

bool __wrap_link_falls_back(const struct daemon *d, uint32_t peer);
bool __wrap_link_falls_back(const struct daemon *d, uint32_t peer)
{
    (void)d;
    (void)peer;
    return false;
}

void __wrap_stream_share_view(const struct stream_pool *pool, uint32_t i, struct stream_share *ret);
void __wrap_stream_share_view(const struct stream_pool *pool, uint32_t i, struct stream_share *ret)
{
    (void)pool;
    *ret = (struct stream_share){.reserved = 1 + i};
}

void __wrap_door_stats(const struct door *door, struct door_stats *ret);
void __wrap_door_stats(const struct door *door, struct door_stats *ret)
{
    (void)door;
    *ret = (struct door_stats){.places = 1};
}

pid_t __wrap_proc_pid(const struct proc_table *t, uint32_t proc);
pid_t __wrap_proc_pid(const struct proc_table *t, uint32_t proc)
{
    (void)t;
    return (pid_t)(4000 + proc);
}

#define refused_to fake.refusals

FIXTURE(scene_start)
{
    static const char yaml[] =
        "node: alpha\ninsecure_peers: true\nfaults: {corrupt_pages: 7}\n"
        "tenants:\n  - {name: first, socket: /tmp/1, memory: 4M}\n"
        "  - {name: second, socket: /tmp/2, memory: 4M}\n"
        "peers:\n  - {name: beta, address: \"[::1]:7001\", tenants: [second]}\n";
    char why[CONFIG_WHY_BYTES];

    rig_test_setup(NULL);
    s = (struct scene){.b = bench_start(4, 32)};
    s.other = rig_engine(s.b.rig, 1, "o", 2);
    s.other_pool = rig_pool_pages(s.b.rig, &s.other, 4, 16);
    s.other_session = rig_session(s.b.rig, &s.other, s.other_pool, 1);
    rig_put(s.b.rig, &s.b.e, s.b.pool, 5, 12);
    rig_put(s.b.rig, &s.other, s.other_pool, 6, 8);
    if (config_load_text("t", yaml, sizeof yaml - 1, &s.config, why, sizeof why) != TERN_OK)
        fail_msg("%s", why);
    s.text = malloc(TEXT_BYTES);
    s.bits = calloc((s.b.rig->options.limits.nodes + 63) / 64, sizeof *s.bits);
    s.ctx = (struct admin_ctx){.core = s.b.rig->core,
                               .config = s.config,
                               .now_ns = s.b.rig->now_ns + 90000000000u,
                               .mem = {.bytes = 8 << 20, .huge_page_bytes = 2 << 20},
                               .xfer = {.payload_bytes_in = UINT64_MAX / 4, .corrupt_detected = 3},
                               .tape = {.recorded = 9},
                               .daemon = &fake,
                               .visits = &s.visits};
    s.visits = ADMIN_VISITS_MAX;
    links[0] =
        (struct peer_link){.d = &fake, .state = PEER_LINK_UP, .incarnation = 0xf00dull << 48};
    fake = (struct daemon){.xfer = (struct xfer *)&fake,
                           .pools = watched,
                           .start_ns = s.b.rig->now_ns,
                           .conns = {.open = 6},
                           .links = {.v = links, .n = 1, .peers = 1},
                           .control_port = 7001,
                           .node_bits = s.bits};
    memset(watched, 0, sizeof watched);
    watched[s.b.pool.slot].gen = s.b.pool.gen;
    strcpy(watched[s.b.pool.slot].names[0], "kv");
    return 0;
}

FIXTURE(scene_stop)
{
    config_destroy(s.config);
    free(s.text);
    free(s.bits);
    json_decref(s.answer);
    return rig_test_teardown(NULL);
}

TEST_EACH(scene_start, scene_stop);

/* The answer stays valid until the next question. */
static inline enum tern_err ask_sized(const char *command, const char *a, const char *b,
                                      uint32_t tenant, size_t cap)
{
    char *args[2] = {(char *)(uintptr_t)a, (char *)(uintptr_t)b};
    struct text_out out;
    enum tern_err err;

    json_decref(s.answer);
    s.answer = NULL;
    text_init(&out, s.text, cap);
    err = admin_answer(&s.ctx, command, args, (size_t)(a != NULL) + (size_t)(b != NULL), tenant,
                       &out, s.why);
    if (err != TERN_OK) {
        assert_int_equal(out.len, 0);
        assert_int_equal(s.text[0], '\0');
        return err;
    }
    assert_true(text_whole(&out));
    s.answer = json_loads(s.text, JSON_REJECT_DUPLICATES, NULL);
    if (!s.answer)
        fail_msg("not JSON: %s", s.text);
    return err;
}

static inline enum tern_err ask_with(const char *command, const char *arg, uint32_t tenant)
{
    return ask_sized(command, arg, NULL, tenant, TEXT_BYTES);
}

static inline json_t *ask(const char *command)
{
    assert_ok(ask_with(command, NULL, NONE));
    return s.answer;
}

/* The rows of a list, under its command's name. */
static inline json_t *rows_of(const char *command)
{
    return json_object_get(ask(command), command);
}

/* The only row, or row `at` of `n`. */
static inline json_t *row_of(const char *command, size_t at, size_t n)
{
    json_t *rows = rows_of(command);

    assert_int_equal(json_array_size(rows), n);
    return json_array_get(rows, at);
}

/* Compares all wanted members of objects, each entry of arrays, and everything else for
 * equality. */
static inline bool holds(const json_t *got, const json_t *wanted)
{
    const char *key;
    json_t *member;

    if (json_is_array(wanted)) {
        size_t n = json_array_size(wanted);

        for (size_t i = 0; i < n; i++)
            if (!holds(json_array_get(got, i), json_array_get(wanted, i)))
                return false;
        return json_array_size(got) == n;
    }
    if (!json_is_object(wanted))
        return json_equal(got, wanted);
    json_object_foreach((json_t *)(uintptr_t)wanted, key,
                        member) if (!holds(json_object_get(got, key), member)) return false;
    return true;
}

/* `format` is JSON with ' for ", and \\' for an escaped one. */
__attribute__((format(printf, 3, 4))) static inline void tells_at(int line, const json_t *got,
                                                                  const char *format, ...)
{
    char text[1024];
    json_t *wanted;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if (*c == '\'')
            *c = '"';
    wanted = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!wanted || !holds(got, wanted))
        fail_msg("line %d: wanted %s, got %s", line, text, json_dumps(got, JSON_ENCODE_ANY));
    json_decref(wanted);
}

#define tells(...) tells_at(__LINE__, __VA_ARGS__)

static inline uint64_t number_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    if (!json_is_integer(v))
        fail_msg("%s is no number", key);
    return (uint64_t)json_integer_value(v);
}

static inline const char *string_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    if (!json_is_string(v))
        fail_msg("%s is no string", key);
    return json_string_value(v);
}

static inline uint64_t id_of(const json_t *object, const char *key)
{
    return strtoull(string_of(object, key), NULL, 16);
}

/* A recorder whose turns leave records: the session of tenant 1. */
static inline struct recorder recorder_of_other(void)
{
    return (struct recorder){.rig = s.b.rig,
                             .conn = s.other.conn[0],
                             .tenant = 1,
                             .session = s.other_session->id,
                             .seed = 1};
}

/* Hands over a session of the bench's engine: 8 tokens, with a blob of 5 bytes. */
static inline struct ticket ticket_stands(void)
{
    struct rig_session *t = rig_committed(s.b.rig, &s.b.e, s.b.pool, 77, 8);
    struct request request = {.op = OP_HANDOFF,
                              .handoff = {.session = t->id,
                                          .blob_bytes = 5,
                                          .blob = {.v = (const uint32_t[]){1, 2}, .n = 2}}};

    assert_ok(rig_request(s.b.rig, t->conn, &request)->err);
    return s.b.rig->last->handoff.ticket;
}

/* The row of that list whose `key` is the id. */
static inline json_t *row_with(const char *command, const char *key, uint64_t id)
{
    json_t *row;
    size_t i;

    json_array_foreach(rows_of(command), i, row)
    {
        if (id_of(row, key) == id)
            return row;
    }
    fail_msg("%s do not tell of %016llx", command, (unsigned long long)id);
    return NULL;
}

#endif
