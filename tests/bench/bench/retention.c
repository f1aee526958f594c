/* tern-bench retention (M-d): how much record memory sessions need that record every turn with a
 * blob of the whole list, keeping the blobs of the last two records or of all; and how long the
 * owner thread takes to append a record while it drops the blob of another one. The core alone: it
 * touches no byte of record memory, so none is backed, and this program makes the hashes that a
 * worker would compute. Turns of the sessions interleave, so free pages are as fragmented as in a
 * daemon. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "bench.h"
#include "core_rig.h"
#include "engine/json.h"
#include "engine/stats.h"

#define SESSIONS      64
#define SESSIONS_OFF  4 /* at 1/16 scale */
#define TURNS         50
#define TURN_TOKENS   1000
#define BLOB_BYTES    1000u        /* for each token of the whole list */
#define RECORD_PAGES  (100u << 12) /* 6.7 GB: at most 96 % of them are in use */
#define EDGE_TURNS    5            /* in the medians of the first and of the last turns */
#define KEPT_MAX      6.4e9
#define APPEND_RATIO  2
#define APPEND_MORE   5 /* us */
#define KV_PAGES      256
#define SAMPLES_MAX   65536
#define ROUNDS        20
#define BLOBS_OF_LAST 2 /* R = 1 */

struct retention {
    struct core_rig rig;
    struct session_id session[SESSIONS];
    struct series append_first, append_last, prepare_first, prepare_last; /* us */
    uint32_t sessions;
    bool merging;   /* nothing is dropped */
    uint32_t peak;  /* most pages ever in use, including the turn under way */
    uint64_t bytes; /* kept at the end */
};

static uint32_t pages_of(uint64_t bytes)
{
    return (uint32_t)((bytes + RECORD_PAGE_BYTES - 1) / RECORD_PAGE_BYTES);
}

/* Pages that all sessions together must keep, counted without the core. */
static uint32_t pages_wanted(const struct retention *b)
{
    uint32_t n = 0;

    for (uint32_t turn = 1; turn <= TURNS; turn++) {
        n += pages_of(8ull * TURN_TOKENS);
        if (b->merging || turn + BLOBS_OF_LAST > TURNS)
            n += pages_of((uint64_t)turn * TURN_TOKENS * BLOB_BYTES);
    }
    return n * b->sessions;
}

static struct records_view view(const struct retention *b)
{
    struct records_view v;

    v = core_tenant_view(b->rig.core, 0).records;
    return v;
}

static struct list_hash hash_of(uint32_t session, uint32_t length)
{
    return (struct list_hash){hash_mix(session, length), hash_mix(length, session)};
}

static const struct record_job *job_of(const struct core_rig *rig)
{
    for (uint32_t i = 0; i < rig->out->n; i++)
        if (rig->out->v[i].kind == ACT_RECORD_CHECK)
            return rig->out->v[i].record;
    return NULL;
}

static bool prepare(struct retention *b, struct session_id turn, uint32_t length, struct series *us)
{
    struct request request = {
        .op = OP_RECORD_PREPARE,
        .record_prepare = {
            .session = turn, .length = length, .logprobs = TURN_TOKENS, .blobs = {.n = 1}}};
    struct req_blob *blob = &request.record_prepare.blobs.v[0];
    const struct reply *r;
    uint64_t start;

    strcpy(blob->name, "hidden");
    blob->bytes = (uint64_t)length * BLOB_BYTES;
    start = clock_ns();
    r = core_rig_ask(&b->rig, &request);
    if (us)
        series_add(us, (double)(clock_ns() - start) / 1e3);
    return r && r->err == TERN_OK;
}

/* The one step that a worker's answer causes on the owner thread. */
static bool append(struct retention *b, uint32_t session, uint32_t length, struct series *us)
{
    const struct record_job *job = job_of(&b->rig);
    struct event event = {.kind = EV_RECORD_CHECKED, .now_ns = ++b->rig.now_ns};
    const struct actions *out = b->rig.out;
    uint64_t start;

    if (!job)
        return false;
    event.checked.id = job->id;
    event.checked.nhashes = job->nat;
    for (uint32_t i = 0; i < job->nat; i++)
        event.checked.hash[i] = hash_of(session, job->at[i]);
    start = clock_ns();
    core_step(b->rig.core, &event, b->rig.out);
    if (us)
        series_add(us, (double)(clock_ns() - start) / 1e3);
    for (uint32_t i = 0; i < out->n; i++)
        if (out->v[i].kind == ACT_REPLY && out->v[i].reply.op == OP_RECORD_PUT)
            return out->v[i].reply.err == TERN_OK && out->v[i].reply.record_put.length == length;
    return false;
}

static bool take_turn(struct retention *b, uint32_t i, uint32_t turn)
{
    bool first = turn <= EDGE_TURNS, last = turn > TURNS - EDGE_TURNS;
    struct request begin = {.op = OP_TURN_BEGIN, .turn_begin.session = b->session[i]};
    struct request put = {.op = OP_RECORD_PUT}, end = {.op = OP_TURN_END};
    uint32_t length = turn * TURN_TOKENS;
    const struct reply *r = core_rig_ask(&b->rig, &begin);

    if (!r || r->err != TERN_OK)
        return false;
    put.record_put.session = end.turn_end.session = r->turn_begin.turn;
    if (!prepare(b, end.turn_end.session, length,
                 first  ? &b->prepare_first
                 : last ? &b->prepare_last
                        : NULL))
        return false;
    b->peak = view(b).used > b->peak ? view(b).used : b->peak;
    core_rig_ask(&b->rig, &put);
    if (!append(b, i, length, first ? &b->append_first : last ? &b->append_last : NULL))
        return false;
    r = core_rig_ask(&b->rig, &end);
    return r && r->err == TERN_OK;
}

static bool open_sessions(struct retention *b)
{
    for (uint32_t i = 0; i < b->sessions; i++) {
        struct request open = {.op = OP_SESSION_OPEN,
                               .session_open = {.pool = b->rig.pool,
                                                .ns = {.hi = 1, .lo = 2},
                                                .merging = b->merging,
                                                .blobs_kept = b->merging ? 0 : BLOBS_OF_LAST}};
        const struct reply *r = core_rig_ask(&b->rig, &open);

        if (!r || r->err != TERN_OK)
            return false;
        b->session[i] = r->session_open.session;
    }
    return true;
}

static bool all_free(struct retention *b)
{
    for (uint32_t i = 0; i < b->sessions; i++)
        if (!core_rig_close(&b->rig, b->session[i]))
            return false;
    return bench_count(view(b).used == 0 && view(b).records == 0,
                       "no page is in use when all sessions are closed");
}

/* Plays all turns of every session, then closes it. */
static bool play(struct retention *b)
{
    bool ok = open_sessions(b);

    for (uint32_t turn = 1; turn <= TURNS; turn++)
        for (uint32_t i = 0; i < b->sessions; i++)
            ok = ok && take_turn(b, i, turn);
    if (!ok)
        return false;
    b->bytes = (uint64_t)view(b).used * RECORD_PAGE_BYTES;
    ok = bench_count(view(b).used == pages_wanted(b) && view(b).held == 0,
                     "pages in use are those of the records that are kept");
    return all_free(b) && ok;
}

static bool measure(struct retention *b, uint32_t sessions, bool merging, uint32_t rounds)
{
    static const struct req_pool_open layout = {.ngroups = 1, .group = {{.page_tokens = 64}}};
    const struct core_rig_records records = {
        .sessions = sessions, .records = sessions * (TURNS + 1), .pages = RECORD_PAGES};
    bool ok;

    b->sessions = sessions;
    b->merging = merging;
    ok = core_rig_init_records(&b->rig, &layout, KV_PAGES, &records);
    for (uint32_t i = 0; i < rounds && ok; i++)
        ok = play(b);
    core_rig_finish(&b->rig);
    return ok;
}

static int show(struct retention *on, const struct retention *off, const struct bench_args *args)
{
    double first = series_median(&on->append_first), last = series_median(&on->append_last);
    const struct bench_figure figures[] = {
        {"kept_bytes", (double)on->bytes, "kept, 2 blobs a session", "B", "at most 6.4e9"},
        {"peak_bytes", (double)on->peak * RECORD_PAGE_BYTES, "while a turn writes", "B", NULL},
        {"kept_bytes_off_x16", 16 * (double)off->bytes, "kept, all blobs (x 16)", "B", NULL},
        {"append_us_first", first, "append, turns 1 to 5", "us", NULL},
        {"append_us_last", last, "append, turns 46 to 50", "us", "at most 2 x first + 5"},
        {"prepare_us_first", series_median(&on->prepare_first), "prepare, turns 1 to 5", "us",
         NULL},
        {"prepare_us_last", series_median(&on->prepare_last), "prepare, turns 46 to 50", "us",
         NULL},
    };
    json_t *o = json_object();
    bool ok;

    if (!args->json)
        puts("retention: 64 sessions of 50 turns of 1,000 tokens, a blob of 1,000 B a token of the "
             "list");
    bench_show(args, o, figures, sizeof figures / sizeof figures[0]);
    json_put_u64(o, "kept_bytes", on->bytes); /* exactly */
    json_put_u64(o, "peak_bytes", (uint64_t)on->peak * RECORD_PAGE_BYTES);
    json_put_u64(o, "kept_bytes_off_x16", 16 * off->bytes);
    if (args->json)
        json_print(o);
    json_decref(o);
    ok = bench_count((double)on->bytes <= KEPT_MAX, "kept_bytes <= 6.4e9");
    return bench_limit(last <= APPEND_RATIO * first + APPEND_MORE,
                       "append_us_last <= 2 x append_us_first + 5") &&
                   ok
               ? 0
               : 1;
}

int bench_retention(const struct bench_args *args)
{
    static struct retention on, off;
    struct series *all[] = {&on.append_first,   &on.append_last,   &on.prepare_first,
                            &on.prepare_last,   &off.append_first, &off.append_last,
                            &off.prepare_first, &off.prepare_last};
    int status;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        series_init(all[i], SAMPLES_MAX);
    if (!measure(&on, SESSIONS, false, args->quick ? 1 : ROUNDS) ||
        !measure(&off, SESSIONS_OFF, true, 1)) {
        fprintf(stderr, "tern-bench retention: the core did not answer or count as it must\n");
        status = 2;
    } else {
        status = show(&on, &off, args);
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        series_finish(all[i]);
    return status;
}
