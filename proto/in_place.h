/* Decoding for a body that outlives the message, so that arrays need no copy. A Step is read by
 * hand, because protobuf-c would take a tenth of its round trip; every other message is read as
 * codec.h does. */
#ifndef PROTO_IN_PLACE_H
#define PROTO_IN_PLACE_H

#include "proto/codec.h"

/* Decodes as wire_decode does, but the bytes of a field may be those of the body, and a Step is
 * read more strictly: a number that is too large for its field is MALFORMED, and so is a second
 * list of tokens in an operation. */
enum tern_err wire_decode_in_place(struct budget *budget, uint16_t type, const uint8_t *body,
                                   size_t n, const ProtobufCMessage **ret);

#endif
