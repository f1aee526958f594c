/* The table of messages: numbers never change, each field with a limit has that limit, each list
 * has one, and docs/protocol.md shows the table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/test.h"
#include "unit/rig/rig_wire.h"

/* The numbers in use by existing daemons and libraries. Append only. */
static const struct {
    uint16_t type;
    const char *name, *request, *reply;
} given[] = {
    {1, "HELLO", "Hello", "HelloReply"},
    {3, "ENGINE_JOIN", "EngineJoin", "EngineJoinReply"},
    {5, "ENGINE_LEAVE", "EngineLeave", "Empty"},
    {7, "POOL_OPEN", "PoolOpen", "PoolOpenReply"},
    {9, "POOL_MAP", "PoolRef", "PoolMapReply"},
    {11, "POOL_CLOSE", "PoolRef", "Empty"},
    {13, "SESSION_OPEN", "SessionOpen", "SessionOpenReply"},
    {15, "PEEK", "Peek", "PeekReply"},
    {17, "MATCH", "Match", "MatchReply"},
    {19, "STEP", "Step", "StepReply"},
    {21, "FETCH", "Fetch", "FetchReply"},
    {23, "FETCH_CANCEL", "FetchCancel", "Empty"},
    {25, "PING", "Empty", "Empty"},
    {27, "STATS", "Empty", "AdminReply"},
    {29, "RETRACT", "Retract", "RetractReply"},
    {31, "RECOVER", "Recover", "RecoverReply"},
    {33, "NAMESPACE_RESET", "NamespaceReset", "NamespaceResetReply"},
    {35, "SUBSCRIBE", "Subscribe", "SubscribeReply"},
    {55, "STORE", "Store", "StoreReply"},
    {57, "HANDOFF", "Handoff", "HandoffReply"},
    {59, "TICKET_RENEW", "TicketRenew", "HandoffReply"},
    {61, "TICKET_DROP", "TicketDrop", "Empty"},
    {63, "PAGE_LEASE", "PageLease", "PageLeaseReply"},
    {67, "TICKET_OPEN", "TicketOpen", "HandoffReply"},
    {69, "FETCH_WAIT", "FetchWait", "FetchReply"},
    {65, "ADMIN", "Admin", "AdminReply"},
    {129, "PEER_HELLO", "PeerHello", "PeerHelloReply"},
    {131, "PEER_MSG", "PeerMsg", NULL},
    {133, "PEER_PATH", "PeerPath", NULL},
};

TEST(messages_given_numbers_keep_their_meaning)
{
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        const struct message *m = message_of(given[i].type);

        assert_non_null(m);
        assert_int_equal(m->type, given[i].type);
        assert_string_equal(m->name, given[i].name);
        assert_string_equal(m->request->short_name, given[i].request);
        if (!given[i].reply) {
            assert_null(m->reply);
            continue;
        }
        assert_string_equal(m->reply->short_name, given[i].reply);
        assert_ptr_equal(message_of((uint16_t)(given[i].type + 1)), m);
    }
    assert_true(messages_n >= sizeof given / sizeof given[0]);
}

TEST(messages_rows_are_found_and_nothing_else)
{
    uint32_t found = 0, rows = 0;

    for (uint32_t type = 0; type <= UINT16_MAX; type++)
        found += message_of((uint16_t)type) != NULL;
    for (uint32_t i = 0; i < messages_n; i++)
        rows += messages[i].reply ? 2 : 1;
    assert_int_equal(found, rows);
    assert_null(message_of(FRAME_PEER_MSG + 1));
}

/* A request differs from an answer by its type, and every answer has its status in the same field:
 * the error of any request can be read without knowing its type. */
TEST(messages_every_answer_has_its_status_first)
{
    for (uint32_t i = 0; i < messages_n; i++) {
        const struct message *m = &messages[i];

        assert_int_equal(m->type % 2, 1);
        assert_int_equal(m->answer == ANSWER_NONE, m->reply == NULL);
        if (m->reply)
            assert_string_equal(protobuf_c_message_descriptor_get_field(m->reply, 1)->name,
                                "status");
    }
}

static uint32_t limits_in(const ProtobufCMessageDescriptor *d, bool *ret_lists_have_one)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        const struct field_limit *limit = message_limit(d, f);

        n += limit != NULL;
        if (f->label == PROTOBUF_C_LABEL_REPEATED || f->type == PROTOBUF_C_TYPE_BYTES)
            *ret_lists_have_one &= limit != NULL;
        if (limit && f->type == PROTOBUF_C_TYPE_BYTES)
            assert_true(limit->element_bytes > 0);
        if (f->type == PROTOBUF_C_TYPE_MESSAGE)
            n += limits_in(f->descriptor, ret_lists_have_one);
    }
    return n;
}

TEST(messages_every_list_and_array_has_a_limit)
{
    bool lists_have_one = true;

    for (const uint16_t *type = rig_wire_types; *type; type++)
        limits_in(wire_descriptor(*type), &lists_have_one);
    assert_true(lists_have_one);
}

/* ---- the fields of answers ---- */

#define TYPE_U32           PROTOBUF_C_TYPE_UINT32
#define TYPE_U64           PROTOBUF_C_TYPE_UINT64
#define TYPE_ENGINE        PROTOBUF_C_TYPE_FIXED64
#define TYPE_POOL          PROTOBUF_C_TYPE_FIXED64
#define TYPE_SESSION       PROTOBUF_C_TYPE_FIXED64
#define TYPE_NODE          PROTOBUF_C_TYPE_FIXED64
#define TYPE_TOKENS        PROTOBUF_C_TYPE_MESSAGE
#define TYPE_LENGTHS       PROTOBUF_C_TYPE_MESSAGE
#define TYPE_RUNS          PROTOBUF_C_TYPE_MESSAGE
#define TYPE_RESULTS       PROTOBUF_C_TYPE_MESSAGE
#define TYPE_RECORD        PROTOBUF_C_TYPE_MESSAGE
#define TYPE_RECORDS       PROTOBUF_C_TYPE_MESSAGE
#define TYPE_REGION_BYTES  PROTOBUF_C_TYPE_UINT64
#define TYPE_REGION_DEVICE PROTOBUF_C_TYPE_STRING
#define TYPE_REGION_SUMS   PROTOBUF_C_TYPE_MESSAGE
#define TYPE_TICKET        PROTOBUF_C_TYPE_STRING
#define TYPE_HOSTS         PROTOBUF_C_TYPE_STRING
#define TYPE_BLOB          PROTOBUF_C_TYPE_BYTES

static uint32_t has_field(const ProtobufCMessageDescriptor *d, uint32_t number, const char *name,
                          ProtobufCType type)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(d, number);

    assert_non_null(f);
    assert_string_equal(f->name, name);
    assert_int_equal(f->type, type);
    return 1;
}

/* The daemon writes its answers with the numbers of tern.proto, and leaves none out. The trace id
 * of an Empty is for requests. */
TEST(messages_fields_of_answers_are_those_of_the_schema)
{
    const ProtobufCMessageDescriptor *d;
    uint32_t fields;

#define F(op, number, member, KIND) fields += has_field(d, number, #member, TYPE_##KIND);
#define X(number, NAME, ...)                                                                       \
    d = wire_descriptor(FRAME_##NAME##_REPLY);                                                     \
    fields = 1 + (strcmp(d->short_name, "Empty") == 0);                                            \
    REPLY_##NAME(F) assert_int_equal(fields, d->n_fields);
    REQUEST_TABLE(X)
#undef X
#undef F
}

/* ---- docs/protocol.md ---- */

#define DOCUMENT   TERN_SOURCE_DIR "/docs/protocol.md"
#define TEXT_BYTES (1u << 20)

static const char *body_limit(enum message_body body)
{
    switch (body) {
    case BODY_HELLO: return "4,096";
    case BODY_PEER: return "1,179,648";
    default: return "`frame_body_max`";
    }
}

static const char *senders(enum message_from from)
{
    switch (from) {
    case FROM_ENGINE: return "engine";
    case FROM_OPERATOR: return "operator";
    case FROM_PEER: return "peer";
    case FROM_CLIENT: return "engine, operator";
    default: return "engine, operator, peer";
    }
}

static void put_message_row(FILE *out, const struct message *m)
{
    static const char *const needs[] = {"nothing", "an engine", "a session"};
    static const char *const answers[] = {"not", "at once", "later", "in pieces", "as a stream"};

    fprintf(out, "| %u | %s | %s%s%s | %s | %s | %s | %s | %s |\n", m->type, m->name,
            m->request->short_name, m->reply ? ", " : "", m->reply ? m->reply->short_name : "",
            senders(m->from), needs[m->needs], answers[m->answer],
            m->repeat == REPEAT_HARMLESS ? "harmless" : "acts again", body_limit(m->body));
}

static void put_messages(FILE *out)
{
    fprintf(out,
            "| number | name | messages | may send | needs | answered | once more | bytes of a "
            "body |\n|---|---|---|---|---|---|---|---|\n");
    for (const uint16_t *type = rig_wire_types; *type; type++)
        if (message_of(*type)->type == *type)
            put_message_row(out, message_of(*type));
}

/* With commas between thousands. */
static void put_limit(FILE *out, uint32_t v)
{
    if (v == WIRE_ANY)
        fprintf(out, "as the body allows");
    else if (v >= 1000)
        fprintf(out, "%u,%03u", v / 1000, v % 1000);
    else
        fprintf(out, "%u", v);
}

static void put_limit_row(FILE *out, const struct field_limit *l, const ProtobufCFieldDescriptor *f)
{
    fprintf(out, "| %s.%s | ", l->message->short_name, f->name);
    put_limit(out, l->most);
    if (l->element_bytes > 1)
        fprintf(out, " | elements of %u bytes |\n", l->element_bytes);
    else
        fprintf(out, " | %s |\n",
                l->element_bytes == 1                ? "bytes"
                : f->type == PROTOBUF_C_TYPE_MESSAGE ? "messages"
                                                     : "strings");
}

static void put_limits(FILE *out)
{
    fprintf(out, "| field | at most | |\n|---|---|---|\n");
    for (uint32_t i = 0; i < field_limits_n; i++) {
        const struct field_limit *l = &field_limits[i];

        for (unsigned k = 0; k < l->message->n_fields; k++)
            if (l->message->fields[k].offset == l->offset)
                put_limit_row(out, l, &l->message->fields[k]);
    }
}

/* Copies `text` up to a table, and writes the table. Returns the text behind the old table. */
static const char *put_table(FILE *out, const char *text, const char *name, void (*put)(FILE *out))
{
    char mark[64];
    const char *at;

    snprintf(mark, sizeof mark, "<!-- %s -->\n", name);
    at = strstr(text, mark);
    if (!at)
        fail_msg("docs/protocol.md lacks the mark %s", mark);
    at += strlen(mark);
    fwrite(text, 1, (size_t)(at - text), out);
    put(out);
    while (*at == '|')
        at = strchr(at, '\n') + 1;
    return at;
}

/* TERN_WRITE_DOCS in the environment: writes the tables instead. */
TEST(messages_document_shows_the_tables)
{
    char *text = calloc(1, TEXT_BYTES), *anew = NULL;
    FILE *f = fopen(DOCUMENT, "r"), *out;
    const char *rest;
    size_t n;

    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, TEXT_BYTES - 1, f) > 0);
    fclose(f);
    out = open_memstream(&anew, &n);
    rest = put_table(out, text, "messages", put_messages);
    rest = put_table(out, rest, "limits", put_limits);
    fputs(rest, out);
    fclose(out);
    if (strcmp(text, anew) != 0 && getenv("TERN_WRITE_DOCS")) {
        f = fopen(DOCUMENT, "w");
        assert_non_null(f);
        assert_int_equal(fwrite(anew, 1, n, f), n);
        fclose(f);
    } else if (strcmp(text, anew) != 0) {
        fail_msg("the tables of docs/protocol.md are not those of proto/messages.h: run this test "
                 "with TERN_WRITE_DOCS=1");
    }
    free(text);
    free(anew);
}
