/* Decoding where the body outlives the message: its arrays need no copy. Match and Step, of which
 * there are hundreds of thousands a second, are read by hand; all others as codec.h reads them. */
#ifndef PROTO_IN_PLACE_H
#define PROTO_IN_PLACE_H

#include "proto/codec.h"

/* As wire_decode, but that the bytes of a field may be those of the body, and that Match and Step
 * are read more strictly: a number that its field is too small for is MALFORMED, and so is a second
 * list of tokens where there is one. */
enum tern_err wire_decode_in_place(struct budget *budget, uint16_t type, const uint8_t *body,
                                   size_t n, const ProtobufCMessage **ret);

#endif
