/* Decoding where the body outlives the message: its arrays need no copy. A Step is read by hand, as
 * protobuf-c would take a tenth of its round trip; every other message as codec.h reads it. */
#ifndef PROTO_IN_PLACE_H
#define PROTO_IN_PLACE_H

#include "proto/codec.h"

/* As wire_decode, but that the bytes of a field may be those of the body, and that a Step is read
 * more strictly: a number that its field is too small for is MALFORMED, and so is a second list of
 * tokens in an operation. */
enum tern_err wire_decode_in_place(struct budget *budget, uint16_t type, const uint8_t *body,
                                   size_t n, const ProtobufCMessage **ret);

#endif
