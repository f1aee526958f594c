/* Valid names of hosts: an IPv4 or IPv6 address, or a name of RFC 1123, in which an underscore
 * counts as a letter. A name that begins with '-' is invalid, because a program would take it for
 * an option. */
#ifndef PROTO_HOST_NAME_H
#define PROTO_HOST_NAME_H

#include <stdbool.h>

#define HOST_NAME_CHARS_MAX 253 /* the most characters of a whole name */
#define HOST_NAME_LABEL_MAX 63  /* the most characters of a part between dots */
#define HOST_NAME_WANTED                                                                           \
    "a host has a name of at most 253 characters a-z A-Z 0-9 - _ in parts "                        \
    "of 1 to 63 with dots between them, none with a - at an end, or an "                           \
    "IP address"

bool host_name_ok(const char *host);

#endif
