/* Turn records: the requests of libtern, the addresses that it returns, and its reaction to invalid
 * answers. The daemon is scripted, and its record memory is a memfd of the test; a real one is in
 * tests/e2e/test_records.c. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "client/libtern/internal.h"
#include "core/limits.h"
#include "unit/rig/rig_fds.h"

/* The client may not include the daemon's headers, so it has these numbers, too. */
_Static_assert(TERN_RECORD_SPANS_MAX == RECORD_RUNS_MAX, "spans of a section");
_Static_assert(TERN_BLOBS_MAX == RECORD_BLOBS_MAX, "blobs of a record");
_Static_assert(TERN_BLOB_NAME_MAX + 1 == BLOB_NAME_MAX, "a blob's name");

#define PAGES 16u
#define BYTES (PAGES * WIRE_RECORD_PAGE)
#define TURN  UINT64_C(0x8000000300000005)
#define WORDS (WIRE_RECORD_PAGE / 4) /* token ids of a page */

/* ---- the scripted daemon ---- */

/* A record in the daemon's answer, with the arrays of its messages. */
struct told {
    Tern__Wire__Record m;
    Tern__Wire__RecordSection before, own, at[TERN_BLOBS_MAX];
    Tern__Wire__RecordBlob blob[TERN_BLOBS_MAX], *blobs[TERN_BLOBS_MAX];
    uint32_t runs[2 + TERN_BLOBS_MAX][TERN_RECORD_SPANS_MAX][2];
};

#define RECORDS 130u /* more than fit two answers of a get */

enum map_twist { GOOD, NO_FD, TWO_FDS, TOO_SHORT, EMPTY, MAP_TWISTS, LATE };

static struct script {
    int memory;
    uint8_t *at; /* the daemon's mapping of it */
    enum map_twist map;
    /* The answers. */
    enum tern_err err;
    const char *text;
    bool no_body;
    uint32_t part, index;
    struct told told; /* of a prepare */
    uint32_t records; /* of a get: their number, of one token each */
    uint32_t most;    /* per answer */
    bool get_twisted; /* records are empty */
    bool dropped_at;  /* a dropped blob has an address */
    /* The requests. */
    uint32_t asked; /* requests */
    uint64_t session, step, bytes[TERN_BLOBS_MAX];
    uint32_t kind, length, logprobs, nblobs, first;
    char names[TERN_BLOBS_MAX][64];
    bool has_options, merging;
    uint32_t blobs_kept;
} d;

static void section(Tern__Wire__RecordSection *s, uint32_t runs[][2], uint64_t bytes, uint32_t n)
{
    tern__wire__record_section__init(s);
    s->has_bytes = s->has_runs = 1;
    s->bytes = bytes;
    s->runs = wire_bytes(runs, n * sizeof(runs[0]));
}

/* Fills an answer with the tokens [from, length) in pages of their own: `own` in two runs, the
 * second in front of the first, and the rest in runs of one page. */
static void tell(struct told *r, uint32_t from, uint32_t length, uint32_t logprobs)
{
    uint64_t own = 4ull * (length - from + logprobs);
    uint32_t pages = (uint32_t)((own + WIRE_RECORD_PAGE - 1) / WIRE_RECORD_PAGE);

    tern__wire__record__init(&r->m);
    r->m.has_from = r->m.has_length = r->m.has_logprobs = 1;
    r->m.from = from;
    r->m.length = length;
    r->m.logprobs = logprobs;
    r->runs[0][0][0] = 9;
    r->runs[0][0][1] = (4 * from + WIRE_RECORD_PAGE - 1) / WIRE_RECORD_PAGE;
    section(&r->before, r->runs[0], 4ull * from, from > 0);
    r->runs[1][0][0] = 14;
    r->runs[1][0][1] = 1;
    r->runs[1][1][0] = 2;
    r->runs[1][1][1] = pages - 1;
    section(&r->own, r->runs[1], own, pages > 1 ? 2 : 1);
    r->m.before = &r->before;
    r->m.own = &r->own;
    r->m.n_blobs = 0;
    r->m.blobs = r->blobs;
}

static void tell_blob(struct told *r, const char *name, uint32_t bytes)
{
    uint32_t i = (uint32_t)r->m.n_blobs++;

    tern__wire__record_blob__init(&r->blob[i]);
    r->blob[i].name = (char *)(uintptr_t)name;
    r->blob[i].has_dropped = 1;
    r->runs[2 + i][0][0] = 11 + i;
    r->runs[2 + i][0][1] = (bytes + WIRE_RECORD_PAGE - 1) / WIRE_RECORD_PAGE;
    section(&r->at[i], r->runs[2 + i], bytes, 1);
    r->blob[i].at = &r->at[i];
    r->blobs[i] = &r->blob[i];
}

static void reply_map(struct fake *f)
{
    Tern__Wire__RecordMapReply m = TERN__WIRE__RECORD_MAP_REPLY__INIT;
    int fds[2] = {d.memory, d.memory};
    uint8_t frame[256];

    m.has_bytes = 1;
    m.bytes = d.map == TOO_SHORT ? BYTES + WIRE_RECORD_PAGE : d.map == EMPTY ? 0 : BYTES;
    send_fds(f, frame, fake_pack(FRAME_RECORD_MAP_REPLY, f->h.request_id, &m, frame, sizeof(frame)),
             fds,
             d.map == NO_FD     ? 0
             : d.map == TWO_FDS ? 2
                                : 1);
}

static void reply_prepare(struct fake *f, const Tern__Wire__RecordPrepare *ask)
{
    Tern__Wire__RecordPrepareReply m = TERN__WIRE__RECORD_PREPARE_REPLY__INIT;

    d.kind = ask->kind;
    d.length = ask->length;
    d.logprobs = ask->logprobs;
    d.nblobs = (uint32_t)ask->n_blobs;
    for (uint32_t i = 0; i < d.nblobs; i++) {
        snprintf(d.names[i], sizeof(d.names[i]), "%s", ask->blobs[i]->name);
        d.bytes[i] = ask->blobs[i]->bytes;
    }
    m.body = d.no_body ? NULL : &d.told.m;
    fake_reply(f, &m);
}

static void reply_put(struct fake *f)
{
    Tern__Wire__RecordPutReply m = TERN__WIRE__RECORD_PUT_REPLY__INIT;
    Tern__Wire__Status status = fake_status(d.err, d.text, NULL);

    m.status = &status;
    m.has_part = m.has_index = m.has_length = m.has_records = 1;
    m.part = d.part;
    m.index = d.index;
    m.length = 70;
    m.records = 7;
    fake_reply(f, &m);
}

/* Records of one token each. The last one has no blob, if there are blobs. */
static void reply_get(struct fake *f, uint32_t first)
{
    static struct told told[64];
    static Tern__Wire__Record *list[64];
    Tern__Wire__RecordGetReply m = TERN__WIRE__RECORD_GET_REPLY__INIT;
    uint32_t n = d.records > first ? d.records - first : 0;

    n = n < d.most ? n : d.most;
    for (uint32_t i = 0; i < n; i++) {
        tell(&told[i], first + i, first + i + !d.get_twisted, 0);
        told[i].m.before = NULL;
        told[i].runs[1][0][0] = (first + i) % PAGES;
        if (d.get_twisted)
            section(&told[i].own, told[i].runs[1], 0, 0);
        tell_blob(&told[i], "hidden", 5);
        told[i].blob[0].dropped = first + i + 1 < d.records;
        if (told[i].blob[0].dropped && !d.dropped_at)
            told[i].blob[0].at = NULL;
        list[i] = &told[i].m;
    }
    m.has_records = 1;
    m.records = d.records;
    m.n_list = n;
    m.list = list;
    d.first = first;
    fake_reply(f, &m);
}

static void reply_open(struct fake *f, const Tern__Wire__SessionOpen *ask)
{
    Tern__Wire__SessionOpenReply m = TERN__WIRE__SESSION_OPEN_REPLY__INIT;

    d.has_options = ask->has_blobs_kept || ask->has_merging;
    d.blobs_kept = ask->blobs_kept;
    d.merging = ask->merging;
    m.has_session = 1;
    m.session = 3;
    fake_reply(f, &m);
}

static void serve_one(struct fake *f, const ProtobufCMessage *msg)
{
    d.asked++;
    d.session = f->h.session;
    if (d.err != TERN_OK && f->h.type != FRAME_RECORD_PUT && f->h.type != FRAME_ROLLBACK)
        fake_reply_err(f, d.err, d.text);
    else if (f->h.type == FRAME_RECORD_MAP)
        reply_map(f);
    else if (f->h.type == FRAME_RECORD_PREPARE)
        reply_prepare(f, (const Tern__Wire__RecordPrepare *)msg);
    else if (f->h.type == FRAME_RECORD_PUT)
        reply_put(f);
    else if (f->h.type == FRAME_ROLLBACK) {
        d.step = ((const Tern__Wire__Rollback *)msg)->step;
        reply_put(f);
    } else if (f->h.type == FRAME_RECORD_GET)
        reply_get(f, ((const Tern__Wire__RecordGet *)msg)->first);
    else if (f->h.type == FRAME_SESSION_OPEN)
        reply_open(f, (const Tern__Wire__SessionOpen *)msg);
    else
        fake_reply_empty(f);
}

static void serve(struct fake *f)
{
    struct frame_header late = {0}, now;
    const ProtobufCMessage *msg;

    while ((msg = fake_read(f))) {
        if (d.map == LATE && !late.type) { /* answered after the client timed out */
            late = f->h;
            continue;
        }
        if (late.type && d.map == LATE) {
            now = f->h;
            d.map = GOOD;
            f->h = late;
            reply_map(f);
            f->h = now;
        }
        serve_one(f, msg);
    }
}

static void start_records(enum map_twist map)
{
    d = (struct script){.map = map, .most = 64};
    d.memory = memfd_create("records", MFD_CLOEXEC);
    assert_int_equal(ftruncate(d.memory, BYTES), 0);
    d.at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, d.memory, 0);
    start(serve, NULL);
}

/* The first call about records maps the memory. */
static enum tern_err map(uint32_t deadline_ms)
{
    uint32_t n;

    return tern_record_get(t, TURN, 0, NULL, 0, deadline_ms, &n, NULL);
}

static void start_mapped(void)
{
    start_records(GOOD);
    assert_ok(map(2000));
    d.asked = 0;
}

FIXTURE(stop_records)
{
    client_stop(NULL);
    if (d.at) {
        munmap(d.at, BYTES);
        close(d.memory);
    }
    d.at = NULL;
    return 0;
}

TEST_EACH(client_setup, stop_records);

/* ---- the mapping ---- */

TEST(records_map_shares_bytes_and_leaves_no_descriptor)
{
    const uint8_t *at;
    uint32_t before;

    start_records(GOOD);
    before = open_fds();
    assert_ok(map(2000));
    at = t->records.base;
    assert_ok(map(2000));
    assert_int_equal(d.asked, 1 + 2); /* one map */
    assert_true(t->records.base == at);
    assert_int_equal(open_fds(), before);
    assert_int_equal(t->records.bytes, BYTES);
    t->records.base[100] = 0xab;
    assert_int_equal(d.at[100], 0xab);
    d.at[BYTES - 1] = 0xcd;
    assert_int_equal(at[BYTES - 1], 0xcd);
    assert_non_null(strstr(flags_of(at), " dc "));
    stop();
    assert_string_equal(flags_of(at), "");
}

TEST(records_map_forked_child_has_no_mapping_and_may_let_go)
{
    int status;
    pid_t pid;

    start_mapped();
    pid = fork();
    if (pid == 0) {
        bool none = flags_of(t->records.base)[0] == '\0' && map(2000) == TERN_DAEMON_LOST;

        tern_destroy(t);
        _exit(none ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    t->records.base[0] = 1;
    assert_int_equal(d.at[0], 1);
}

TEST(records_map_answer_twisted_typed_error_no_leak)
{
    for (enum map_twist twist = NO_FD; twist < MAP_TWISTS; twist++) {
        uint32_t before = open_fds();

        start_records(twist);
        assert_err(TERN_MALFORMED, map(2000));
        assert_null(t->records.base);
        stop_records(NULL);
        assert_int_equal(open_fds(), before);
    }
}

TEST(records_map_late_answer_its_descriptor_closed)
{
    uint32_t before;

    start_records(LATE);
    before = open_fds();
    assert_err(TERN_TIMED_OUT, map(50));
    assert_null(t->records.base);
    assert_ok(map(2000));
    assert_int_equal(open_fds(), before);
    t->records.base[0] = 0x5a;
    assert_int_equal(d.at[0], 0x5a);
}

TEST(records_map_refused_says_why)
{
    start_records(GOOD);
    d.err = TERN_UNSUPPORTED;
    d.text = "set its record_memory";
    assert_err(TERN_UNSUPPORTED, map(2000));
    assert_string_equal(tern_error_text(t, NULL), "set its record_memory");
    assert_null(t->records.base);
    d.err = TERN_OK;
    assert_ok(map(2000));
}

/* ---- sessions ---- */

TEST(session_open_with_options)
{
    static const struct tern_namespace ns = {.model = "m"};
    struct tern_session_options options = {.blobs_kept = 5};
    tern_session s;

    start_records(GOOD);
    assert_ok(tern_session_open(t, 1, &ns, NULL, 2000, &s));
    assert_false(d.has_options);
    assert_ok(tern_session_open(t, 1, &ns, &(struct tern_session_options){0}, 2000, &s));
    assert_false(d.has_options);
    assert_ok(tern_session_open(t, 1, &ns, &options, 2000, &s));
    assert_int_equal(s, 3);
    assert_int_equal(d.blobs_kept, 5);
    assert_false(d.merging);
    options = (struct tern_session_options){.merging = true};
    assert_ok(tern_session_open(t, 1, &ns, &options, 2000, &s));
    assert_int_equal(d.blobs_kept, 0);
    assert_true(d.merging);
}

/* ---- preparing ---- */

static const struct tern_blob blobs[2] = {{.name = "hidden", .bytes = 40000},
                                          {.name = "a name of as many as 31 bytes..", .bytes = 1}};

/* Tokens [100, 100 + 5 pages / 2): 2.5 pages of token ids, and as many of log-probabilities. */
#define FROM   100u
#define NEW    (5 * WORDS / 2)
#define LENGTH (FROM + NEW)

static void tell_all(void)
{
    tell(&d.told, FROM, LENGTH, NEW);
    tell_blob(&d.told, blobs[0].name, 40000);
    tell_blob(&d.told, blobs[1].name, 1);
    d.told.runs[3][0][0] = 15;
}

static enum tern_err prepare_all(struct tern_record *ret)
{
    return tern_record_prepare(
        t, TURN,
        &(struct tern_new_record){.ntokens = LENGTH, .nlogprobs = NEW, .blobs = blobs, .nblobs = 2},
        2000, ret);
}

static void assert_span(const struct tern_section *s, uint32_t i, uint32_t at, uint32_t bytes)
{
    assert_true(s->span[i].at == t->records.base + at);
    assert_int_equal(s->span[i].bytes, bytes);
}

TEST(prepare_asks_and_says_where_each_section_lies)
{
    struct tern_record r;

    start_mapped();
    tell_all();
    assert_ok(prepare_all(&r));
    assert_true(d.session == TURN);
    assert_int_equal(d.kind, 0);
    assert_int_equal(d.length, LENGTH);
    assert_int_equal(d.logprobs, NEW);
    assert_int_equal(d.nblobs, 2);
    assert_string_equal(d.names[1], blobs[1].name);
    assert_int_equal(d.bytes[0], 40000);
    assert_int_equal(r.from, FROM);
    assert_int_equal(r.length, LENGTH);
    assert_int_equal(r.before.nspans, 1);
    assert_span(&r.before, 0, 9 * WIRE_RECORD_PAGE, 4 * FROM);
    assert_int_equal(r.tokens.bytes, 4 * NEW); /* pages 14, 2, and half of 3 */
    assert_int_equal(r.tokens.nspans, 2);
    assert_span(&r.tokens, 0, 14 * WIRE_RECORD_PAGE, WIRE_RECORD_PAGE);
    assert_span(&r.tokens, 1, 2 * WIRE_RECORD_PAGE, 3 * WIRE_RECORD_PAGE / 2);
    assert_int_equal(r.logprobs.bytes, 4 * NEW); /* the other half, and pages 4 and 5 of the run */
    assert_int_equal(r.logprobs.nspans, 1);
    assert_span(&r.logprobs, 0, 7 * WIRE_RECORD_PAGE / 2, 5 * WIRE_RECORD_PAGE / 2);
    assert_int_equal(r.nblobs, 2);
    assert_string_equal(r.blobs[0].name, "hidden");
    assert_false(r.blobs[0].dropped);
    assert_int_equal(r.blobs[0].at.bytes, 40000);
    assert_span(&r.blobs[0].at, 0, 11 * WIRE_RECORD_PAGE, 40000);
    assert_span(&r.blobs[1].at, 0, 15 * WIRE_RECORD_PAGE, 1);
}

TEST(prepare_to_roll_back_has_the_list_alone)
{
    struct tern_record r;

    start_mapped();
    tell(&d.told, 3, 3, 0);
    d.told.m.from = 0;
    d.told.m.own = NULL;
    assert_ok(tern_record_prepare(
        t, TURN, &(struct tern_new_record){.ntokens = 3, .rollback = true}, 2000, &r));
    assert_int_equal(d.kind, 1);
    assert_int_equal(d.length, 3);
    assert_int_equal(r.before.bytes, 12);
    assert_span(&r.before, 0, 9 * WIRE_RECORD_PAGE, 12);
    assert_int_equal(r.tokens.bytes + r.logprobs.bytes + r.nblobs, 0);
}

TEST(prepare_refused_leaves_what_is_returned)
{
    struct tern_record r = {.length = 99};

    start_mapped();
    d.err = TERN_CONFLICT;
    d.text = "roll back first";
    assert_err(TERN_CONFLICT, prepare_all(&r));
    assert_string_equal(tern_error_text(t, NULL), "roll back first");
    assert_int_equal(r.length, 99);
}

/* One thing in the daemon's answer is wrong: no span of it is returned, and no pointer ever leaves
 * the mapping. */
static void twist(uint32_t which)
{
    struct told *r = &d.told;

    switch (which) {
    case 0: d.no_body = true; break;
    case 1: r->m.length++; break;
    case 2: r->m.from++; break;
    case 3: r->m.from = r->m.length + 1; break;
    case 4: r->m.logprobs--; break;
    case 5: r->m.n_blobs = 1; break;
    case 6: r->blob[0].name = (char *)(uintptr_t) "hiddem"; break;
    case 7: r->blob[0].name = NULL; break;
    case 8: r->blob[0].dropped = true; break;
    case 9: r->blob[0].at = NULL; break;
    case 10: r->at[0].bytes--; break;
    case 11: r->runs[2][0][0] = PAGES - 2; break; /* ends one page behind the mapping */
    case 12: r->runs[2][0][0] = UINT32_MAX; break;
    case 13: r->runs[2][0][1]++; break; /* a page too many */
    case 14: r->runs[2][0][1]--; break;
    case 15: r->runs[2][0][1] = 0; break;
    case 16: r->own.bytes -= 4; break;
    case 17: r->m.own = NULL; break;
    case 18: r->runs[1][1][1] = UINT32_MAX; break;
    case 19: r->m.before = NULL; break;
    case 20: r->before.bytes += 4; break;
    case 21: r->runs[0][0][0] = PAGES; break;
    case 22: r->own.runs.len -= WIRE_SPAN_BYTES; break;
    default: assert_int_equal(which, UINT32_MAX);
    }
}

TEST(prepare_answer_makes_no_sense_connection_ends)
{
    for (uint32_t which = 0; which <= 22; which++) {
        struct tern_record r = {.length = 99};

        start_mapped();
        tell_all();
        twist(which);
        if (prepare_all(&r) != TERN_MALFORMED)
            fail_msg("twist %u was believed", which);
        assert_int_equal(r.length, 99);
        assert_err(TERN_DAEMON_LOST, tern_ping(t, 100));
        stop_records(NULL);
    }
}

static void assert_prepare_invalid(uint32_t length, const struct tern_blob *b, uint32_t n,
                                   const char *words)
{
    struct tern_record r;

    assert_err(TERN_INVALID,
               tern_record_prepare(
                   t, TURN, &(struct tern_new_record){.ntokens = length, .blobs = b, .nblobs = n},
                   2000, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), words));
}

TEST(prepare_what_is_never_right_is_not_asked)
{
    static const struct tern_blob twins[2] = {{.name = "a", .bytes = 1}, {.name = "a", .bytes = 2}},
                                  nameless = {.bytes = 1}, blank = {.name = "", .bytes = 1},
                                  empty = {.name = "a"},
                                  wordy = {.name = "a name of more bytes than 31 ...", .bytes = 1};
    uint32_t asked;

    start_mapped();
    asked = d.asked;
    assert_prepare_invalid(SESSION_TOKENS_MAX + 1, NULL, 0, "4,194,304 tokens");
    assert_prepare_invalid(5, twins, TERN_BLOBS_MAX + 1, "TERN_BLOBS_MAX");
    assert_prepare_invalid(5, NULL, 1, "`blobs` points");
    assert_prepare_invalid(5, twins, 2, "two blobs");
    assert_prepare_invalid(5, &nameless, 1, "1 to 31 bytes");
    assert_prepare_invalid(5, &blank, 1, "1 to 31 bytes");
    assert_prepare_invalid(5, &wordy, 1, "1 to 31 bytes");
    assert_prepare_invalid(5, &empty, 1, "at least one byte");
    assert_int_equal(d.asked, asked);
}

TEST(prepare_with_fields_that_exclude_each_other_names_both)
{
    static const struct {
        struct tern_new_record record;
        const char *other;
    } wrong[] = {{{.ntokens = 5, .nlogprobs = 5, .rollback = true}, "nlogprobs"},
                 {{.ntokens = 5, .blobs = blobs, .nblobs = 1, .rollback = true}, "nblobs"}};
    struct tern_record r;

    start_mapped();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_err(TERN_INVALID, tern_record_prepare(t, TURN, &wrong[i].record, 2000, &r));
        assert_non_null(strstr(tern_error_text(t, NULL), "rollback"));
        assert_non_null(strstr(tern_error_text(t, NULL), wrong[i].other));
    }
    assert_err(TERN_INVALID, tern_record_prepare(t, TURN, NULL, 2000, &r));
    assert_int_equal(d.asked, 0);
}

/* ---- putting and rolling back ---- */

TEST(put_says_what_is_recorded)
{
    struct tern_recorded r;

    start_mapped();
    assert_ok(tern_record_put(t, TURN, NULL, 2000, &r));
    assert_true(d.session == TURN);
    assert_int_equal(r.length, 70);
    assert_int_equal(r.records, 7);
    assert_int_equal(r.part, TERN_PART_NONE);
}

TEST(put_malformed_names_part_and_index)
{
    struct tern_recorded r;

    start_mapped();
    d.err = TERN_MALFORMED;
    d.text = "the record is invalid";
    d.part = TERN_PART_LOGPROBS;
    d.index = 17;
    assert_err(TERN_MALFORMED, tern_record_put(t, TURN, NULL, 2000, &r));
    assert_non_null(
        strstr(tern_error_text(t, NULL), "log-probability 17 of the new tokens is not finite"));
    assert_int_equal(r.part, TERN_PART_LOGPROBS);
    assert_int_equal(r.index, 17);
    d.part = TERN_PART_TOKENS;
    d.index = 1234567;
    assert_err(TERN_MALFORMED, tern_record_rollback(t, TURN, NULL, TERN_STEP_NONE, 2000, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), "token 1234567 of the list is 2^31 or more"));
    assert_int_equal(r.part, TERN_PART_TOKENS);
    d.part = 77; /* of a newer daemon */
    assert_err(TERN_MALFORMED, tern_record_put(t, TURN, NULL, 2000, &r));
    assert_string_equal(tern_error_text(t, NULL), "the record is invalid");
    assert_int_equal(r.part, TERN_PART_NONE);
    d.err = TERN_OK;
    assert_ok(tern_ping(t, 2000)); /* the connection is fine */
}

TEST(put_refused_says_why)
{
    struct tern_recorded r = {.length = 99};

    start_mapped();
    d.err = TERN_CONFLICT;
    d.text = "the stored list is not a prefix of this one";
    assert_err(TERN_CONFLICT, tern_record_put(t, TURN, NULL, 2000, &r));
    assert_string_equal(tern_error_text(t, NULL), d.text);
    assert_int_equal(r.length, 70);
}

TEST(rollback_names_a_step)
{
    struct tern_recorded r;

    start_mapped();
    assert_ok(tern_record_rollback(t, TURN, NULL, 9, 2000, &r));
    assert_int_equal(d.step, 9);
    assert_int_equal(r.records, 7);
    assert_ok(tern_record_rollback(t, TURN, NULL, TERN_STEP_NONE, 2000, &r));
    assert_int_equal(d.step, 0);
    assert_err(TERN_INVALID, tern_record_rollback(t, TURN, NULL, 0, 2000, &r));
    assert_err(TERN_INVALID, tern_record_rollback(t, TURN, &(struct tern_tokens){0}, 0, 2000, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), "TERN_STEP_NONE"));
}

/* ---- reading ---- */

TEST(get_goes_on_until_all_are_there)
{
    static struct tern_record r[RECORDS];
    uint32_t n, records;

    start_mapped();
    d.records = RECORDS;
    assert_ok(tern_record_get(t, TURN, 0, r, RECORDS, 2000, &n, &records));
    assert_int_equal(d.asked, 3);
    assert_int_equal(n, RECORDS);
    assert_int_equal(records, RECORDS);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(r[i].from, i);
        assert_int_equal(r[i].length, i + 1);
        assert_span(&r[i].tokens, 0, i % PAGES * WIRE_RECORD_PAGE, 4);
        assert_int_equal(r[i].logprobs.bytes, 0);
        assert_int_equal(r[i].blobs[0].dropped, i + 1 < n);
        assert_int_equal(r[i].blobs[0].at.bytes, i + 1 < n ? 0 : 5);
    }
}

TEST(get_hands_out_no_more_than_was_asked_for)
{
    struct tern_record r[4] = {{0}};
    uint32_t n = 99, records = 99;

    start_mapped();
    d.records = RECORDS;
    r[3].length = 99;
    assert_ok(tern_record_get(t, TURN, 100, r, 3, 2000, &n, NULL));
    assert_int_equal(n, 3);
    assert_int_equal(r[2].from, 102);
    assert_int_equal(r[3].length, 99);
    assert_ok(tern_record_get(t, TURN, 0, NULL, 0, 2000, &n, &records));
    assert_int_equal(n, 0);
    assert_int_equal(records, RECORDS);
    assert_ok(tern_record_get(t, TURN, RECORDS, r, 3, 2000, &n, &records));
    assert_int_equal(n, 0);
}

TEST(get_answer_makes_no_sense_connection_ends)
{
    for (int which = 0; which < 3; which++) {
        struct tern_record r[2];
        uint32_t n = 99;

        start_mapped();
        d.records = 2;
        d.most = which == 0 ? 0 : 2; /* none, although there are some */
        d.get_twisted = which == 1;
        d.dropped_at = which == 2;
        assert_err(TERN_MALFORMED, tern_record_get(t, TURN, 0, r, 2, 2000, &n, NULL));
        assert_int_equal(n, 99);
        assert_err(TERN_DAEMON_LOST, tern_ping(t, 100));
        stop_records(NULL);
    }
}

/* ---- sections ---- */

TEST(sections_are_copied_whatever_their_spans)
{
    static const uint8_t letters[6] = {'a', 'b', 'c', 'd', 'e', 'f'}, place[6] = {8, 9, 1, 4, 5, 6};
    uint8_t memory[12] = {0}, out[6] = {0};
    struct tern_section s = {
        .bytes = 6, .nspans = 3, .span = {{memory + 8, 2}, {memory + 1, 1}, {memory + 4, 3}}};

    for (uint64_t at = 0; at <= 6; at++)
        for (uint64_t n = 0; at + n <= 6; n++) {
            memset(memory, 0, sizeof(memory));
            memset(out, 0, sizeof(out));
            assert_ok(tern_section_write(&s, at, letters + at, n));
            for (uint64_t i = 0; i < 6; i++)
                assert_int_equal(memory[place[i]], i >= at && i < at + n ? letters[i] : 0);
            assert_ok(tern_section_read(&s, at, out, n));
            assert_memory_equal(out, letters + at, n);
        }
    assert_err(TERN_INVALID, tern_section_write(&s, 3, letters, 4));
    assert_err(TERN_INVALID, tern_section_read(&s, 7, out, 0));
    assert_err(TERN_INVALID, tern_section_read(&s, UINT64_MAX, out, 2));
}

/* ---- as a whole ---- */

static uint32_t tokens[LENGTH];
static float logprobs[NEW];
static uint8_t hidden[40000];

static struct tern_new_record make_record(struct tern_blob own[2])
{
    for (uint32_t i = 0; i < LENGTH; i++)
        tokens[i] = 7 * i + 1;
    for (uint32_t i = 0; i < NEW; i++)
        logprobs[i] = -(float)i / 8;
    for (uint32_t i = 0; i < sizeof(hidden); i++)
        hidden[i] = (uint8_t)(i + i / 251);
    own[0] = blobs[0];
    own[1] = blobs[1];
    own[0].from = hidden;
    own[1].from = "x";
    return (struct tern_new_record){.tokens = tokens,
                                    .ntokens = LENGTH,
                                    .logprobs = logprobs,
                                    .nlogprobs = NEW,
                                    .blobs = own,
                                    .nblobs = 2};
}

TEST(append_writes_each_byte_where_it_belongs)
{
    struct tern_blob own[2];
    struct tern_new_record record = make_record(own);
    struct tern_recorded r;

    start_mapped();
    tell_all();
    memset(d.at, 0xee, BYTES);
    assert_ok(tern_record_put(t, TURN, &record, 2000, &r));
    assert_int_equal(r.records, 7);
    assert_memory_equal(d.at + 9 * WIRE_RECORD_PAGE, tokens, 4 * FROM);
    assert_memory_equal(d.at + 14 * WIRE_RECORD_PAGE, tokens + FROM, WIRE_RECORD_PAGE);
    assert_memory_equal(d.at + 2 * WIRE_RECORD_PAGE, tokens + FROM + WORDS,
                        3 * WIRE_RECORD_PAGE / 2);
    assert_memory_equal(d.at + 7 * WIRE_RECORD_PAGE / 2, logprobs, sizeof(logprobs));
    assert_memory_equal(d.at + 11 * WIRE_RECORD_PAGE, hidden, sizeof(hidden));
    assert_int_equal(d.at[15 * WIRE_RECORD_PAGE], 'x');
    assert_int_equal(d.at[15 * WIRE_RECORD_PAGE + 1], 0xee);
    assert_int_equal(d.at[9 * WIRE_RECORD_PAGE + 4 * FROM], 0xee);
    assert_int_equal(d.at[2 * WIRE_RECORD_PAGE - 1], 0xee);
}

TEST(append_what_points_nowhere_is_not_asked)
{
    struct tern_blob own[2];
    struct tern_new_record record = make_record(own);
    struct tern_recorded r;

    start_mapped();
    record.logprobs = NULL;
    assert_err(TERN_INVALID, tern_record_put(t, TURN, &record, 2000, &r));
    record = make_record(own);
    record.tokens = NULL;
    assert_err(TERN_INVALID, tern_record_put(t, TURN, &record, 2000, &r));
    record = make_record(own);
    own[1].from = NULL;
    assert_err(TERN_INVALID, tern_record_put(t, TURN, &record, 2000, &r));
    record = make_record(own);
    record.ntokens = NEW - 1;
    assert_err(TERN_INVALID, tern_record_put(t, TURN, &record, 2000, &r));
    assert_err(TERN_INVALID,
               tern_record_rollback(t, TURN, &(struct tern_tokens){.n = 1}, 9, 2000, &r));
    assert_err(TERN_INVALID,
               tern_record_rollback(t, TURN, &(struct tern_tokens){.v = tokens, .n = 1, .base = 1},
                                    9, 2000, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), "set base and nkeys to 0"));
    record = make_record(own);
    record.rollback = true;
    assert_err(TERN_INVALID, tern_record_put(t, TURN, &record, 2000, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), "rollback is for tern_record_prepare"));
    assert_int_equal(d.asked, 0);
}

TEST(rollback_writes_the_whole_list)
{
    struct tern_recorded r;
    static const uint32_t list[3] = {5, 6, 7};

    start_mapped();
    tell(&d.told, 3, 3, 0);
    d.told.m.from = 0;
    d.told.m.own = NULL;
    assert_ok(tern_record_rollback(t, TURN, &(struct tern_tokens){.v = list, .n = 3}, 9, 2000, &r));
    assert_memory_equal(d.at + 9 * WIRE_RECORD_PAGE, list, sizeof(list));
    assert_int_equal(d.step, 9);
    assert_int_equal(r.length, 70);
    tell(&d.told, 0, 0, 0);
    d.told.m.own = d.told.m.before = NULL;
    assert_ok(tern_record_rollback(t, TURN, &(struct tern_tokens){0}, 9, 2000, &r));
}
