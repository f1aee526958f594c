/* The table of messages: numbers that were given once stay what they are, each field that has a
 * limit is one, each list has one, and docs/protocol.md shows the table as it is. */
#include <string.h>

#include "proto/frame.h"
#include "testing/test.h"
#include "unit/rig/rig_wire.h"

/* What daemons and libraries that are out there speak. Append only. */
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

/* A request can be told apart from the answer, and every answer has a status where all others have
 * theirs: an error of any request can be said without looking at which one it was. */
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

#define TYPE_U32          PROTOBUF_C_TYPE_UINT32
#define TYPE_U64          PROTOBUF_C_TYPE_UINT64
#define TYPE_ENGINE       PROTOBUF_C_TYPE_FIXED64
#define TYPE_POOL         PROTOBUF_C_TYPE_FIXED64
#define TYPE_SESSION      PROTOBUF_C_TYPE_FIXED64
#define TYPE_LENGTHS      PROTOBUF_C_TYPE_MESSAGE
#define TYPE_RUNS         PROTOBUF_C_TYPE_MESSAGE
#define TYPE_RESULTS      PROTOBUF_C_TYPE_MESSAGE
#define TYPE_REGION_BYTES PROTOBUF_C_TYPE_UINT64

static uint32_t has_field(const ProtobufCMessageDescriptor *d, uint32_t number, const char *name,
                          ProtobufCType type)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(d, number);

    assert_non_null(f);
    assert_string_equal(f->name, name);
    assert_int_equal(f->type, type);
    return 1;
}

/* The numbers by which the daemon writes its answers are those of tern.proto, and none is left
 * out. The trace id of an Empty is for who asks. */
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
