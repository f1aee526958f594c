/* What the files of the links share, lowest first: link_state.c, link_send.c, link_tls.c,
 * link_path.c, link_greet.c, link_dial.c, link_door.c, link.c, link_members.c. Each calls those
 * before it alone. */
#ifndef SHELL_LINK_INTERNAL_H
#define SHELL_LINK_INTERNAL_H

#include "shell/peers/link.h"

const char *link_peer_name(const struct peer_link *l); /* "" until it is known */
bool link_is_outbound(const struct peer_link *l);
/* The tick looks at the link at that time, and not earlier: all the links of a large configuration
 * are not touched ten times a second. */
void link_due(const struct peer_link *l, uint64_t at_ns);
#define LINK_NEVER UINT64_MAX
#define LINK_WAITS 1u /* it is due, and no attempt could begin: see links_pace_allows */
/* The state of the link has changed: it goes into the list of that state. A caller at the door
 * costs the same however many links there are. */
void link_listed(struct peer_link *l);
/* Sets why the link is not up. True: the text differs from the last one. */
bool link_record_cause(struct peer_link *l, const char *text);
void link_clear_cause(struct peer_link *l); /* it is up */
/* Sets a better cause than the reason with which an outbound link is closed next. It may hold what
 * the peer said. True: as link_record_cause; false: it had a better one, or is inbound. */
bool link_set_cause(struct peer_link *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counts a breach of the protocol. */
void link_count_breach(const struct peer_link *l);
/* The same, and closes the link. */
void link_protocol_error(struct peer_link *l, const char *why);

/* Sends a message that fits HELLO_BODY_MAX, in any state that has a stream. */
bool link_send_message(struct peer_link *l, uint16_t type, uint64_t request_id,
                       const ProtobufCMessage *m);
void link_send_ping(struct peer_link *l, uint16_t type, uint64_t request_id);
void link_log_transfer(const struct peer_link *l, const struct peer_msg *msg, const char *dir);
/* The message says an error that a peer may not say; the core hears another one. */
void link_word_refused(const struct peer_link *l, const struct peer_msg *msg, uint32_t word);
/* The layout that it tells is not kept: its hash becomes LAYOUT_NONE. */
void link_layout_refused(const struct peer_link *l, struct peer_msg *io, const char *why);
/* Logs which tenant the peer refused or was refused, and the setting, before the core gets it. */
void link_log_tenant(const struct peer_link *l, const struct peer_msg *msg);

/* Makes TLS ready; does nothing without a certificate in the configuration. */
enum tern_err links_tls_init(struct daemon *d, char *why, size_t cap);
/* Says in the log that our certificate comes to its end. */
void links_tls_tick(struct daemon *d);
/* Puts TLS under a stream that was just opened. False: it was refused, counted, and closed. */
bool link_secure(struct peer_link *l);
/* Logs and counts that the peer, or what it sent, was not accepted. */
void link_tls_refused(struct peer_link *l, enum tls_refusal why, const char *detail);

/* So many callers said no first record within the deadline. */
void link_tls_silent(struct daemon *d, uint64_t callers);

enum tern_err link_path_read(struct peer_link *l, const struct frame_header *h, const uint8_t *body,
                             uint64_t sequence);

/* The stream is open and, with TLS, secured: the dialling side says hello. */
void link_greet(struct peer_link *l);
/* The peer speaks TLS, and this daemon does not: says so on both sides, and ends the link. */
void link_tls_met(struct peer_link *l);
/* Takes a frame on a link that is not up yet. */
void link_greeting_frame(struct peer_link *l, const struct frame_header *h, const uint8_t *body);

enum tern_err links_names_init(struct daemon *d, char *why, size_t cap);
/* Sets when an outbound link dials again. */
void link_schedule_redial(struct peer_link *l, uint64_t now_ns);
/* The peer of an outbound link has dialled us, so it is there: the link waits no longer than
 * LINK_REDIAL_MIN_NS for its next attempt. A peer that dials in a loop gets no more attempts. */
void link_redial_soon(struct peer_link *l, uint64_t now_ns);
/* Lets so many attempts begin as the time that has passed allows. */
void links_pace_tick(struct peer_links *ls, uint64_t now_ns);
/* May an attempt begin? lost: of a link that was up a moment ago. */
bool links_pace_allows(const struct peer_links *ls, bool lost);
/* Ends an attempt that is under way. */
void link_give_up(struct peer_link *l);
/* Dials an outbound link that is not up, or gives up an attempt that takes too long. It is due. */
void link_dial_tick(struct peer_link *l, uint64_t now_ns);

#endif
