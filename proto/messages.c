/* The rows of messages.h as constants, found by number. See messages.h. */
#include "proto/messages.h"

#include <assert.h>
#include <stddef.h>

#include "proto/codec.h"

#define DESCRIPTOR(message) (&tern__wire__##message##__descriptor)

const struct message messages[] = {
#define X(number, NAME, request, reply, from, needs, answer, repeat, body)                         \
    {number, #NAME, DESCRIPTOR(request), DESCRIPTOR(reply), from, needs, answer, repeat, body},
    REQUEST_TABLE(X) SHELL_TABLE(X)
#undef X
#define X(number, NAME, message, from, repeat, body)                                               \
    {number, #NAME, DESCRIPTOR(message), NULL, from, NEEDS_NOTHING, ANSWER_NONE, repeat, body},
        NOTICE_TABLE(X)
#undef X
};

const uint32_t messages_n = sizeof(messages) / sizeof(messages[0]);

static_assert(sizeof(messages) / sizeof(messages[0]) <= MESSAGES_MAX, "raise MESSAGES_MAX");

/* Even numbers are those of answers. */
#define X(number, NAME, ...) static_assert((number) % 2 == 1, #NAME " has an odd number");
REQUEST_TABLE(X)
SHELL_TABLE(X)
NOTICE_TABLE(X)
#undef X

/* Place in `messages`, plus 1, by number / 2; 0: none. */
enum row {
#define X(number, NAME, ...) ROW_##NAME,
    REQUEST_TABLE(X) SHELL_TABLE(X) NOTICE_TABLE(X)
#undef X
};

static const uint8_t row_of[FRAME_TYPES_END / 2 + 1] = {
#define X(number, NAME, ...) [(number) / 2] = ROW_##NAME + 1,
    REQUEST_TABLE(X) SHELL_TABLE(X) NOTICE_TABLE(X)
#undef X
};

const struct message *message_of(uint16_t type)
{
    const struct message *m;
    uint32_t place = ((uint32_t)type + 1) / 2 - 1; /* an answer has the same place as its request */

    if (type == 0 || place >= sizeof(row_of) || row_of[place] == 0)
        return NULL;
    m = &messages[row_of[place] - 1];
    return type == m->type || m->reply ? m : NULL;
}

const ProtobufCMessageDescriptor *wire_descriptor(uint16_t type)
{
    const struct message *m = message_of(type);

    if (!m)
        return NULL;
    return type == m->type ? m->request : m->reply;
}

const struct field_limit field_limits[] = {
#define X(message, field, element, least, most, sum)                                               \
    {DESCRIPTOR(message), offsetof(MESSAGE_STRUCT(message), field), element, least, most, sum},
    LIMIT_TABLE(X)
#undef X
};

const uint32_t field_limits_n = sizeof(field_limits) / sizeof(field_limits[0]);

const struct field_limit *message_limit(const ProtobufCMessageDescriptor *message,
                                        const ProtobufCFieldDescriptor *field)
{
    for (size_t i = 0; i < field_limits_n; i++)
        if (field_limits[i].message == message && field_limits[i].offset == field->offset)
            return &field_limits[i];
    return NULL;
}
