/* Shared by the files of the links, lowest first: link_state.c, link_send.c, link_tls.c,
 * link_path.c, link_greet.c, link_dial.c, link_door.c, link.c, link_members.c. Each calls only
 * files before it. */
#ifndef SHELL_LINK_INTERNAL_H
#define SHELL_LINK_INTERNAL_H

#include "shell/peers/link.h"

const char *link_peer_name(const struct peer_link *l); /* "" until it is known */
bool link_is_outbound(const struct peer_link *l);
/* Sets when the tick next examines the link; no tick touches it earlier, because a large
 * configuration has thousands of links. */
void link_due(const struct peer_link *l, uint64_t at_ns);
#define LINK_NEVER UINT64_MAX
#define LINK_WAITS 1u /* the link is due, but no attempt could begin: see links_pace_allows */
/* Moves the link to the list of its state after the state changed. The lists make the cost of a
 * caller at the door independent of the number of links. */
void link_listed(struct peer_link *l);
/* Sets why the link is not up. Returns true if the text differs from the last one. */
bool link_record_cause(struct peer_link *l, const char *text);
void link_clear_cause(struct peer_link *l); /* the link is up */
/* Sets a better cause than the reason with which an outbound link is closed next. The text may
 * contain the peer's words. Returns what link_record_cause returns, or false if the link already
 * has a better cause or is inbound. */
bool link_set_cause(struct peer_link *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counts a breach of the protocol and closes the link. */
void link_protocol_error(struct peer_link *l, const char *why);

/* Sends a message that fits HELLO_BODY_MAX, in any state that has a stream. */
bool link_send_message(struct peer_link *l, uint16_t type, uint64_t request_id,
                       const ProtobufCMessage *m);
void link_send_ping(struct peer_link *l, uint16_t type, uint64_t request_id);
void link_log_transfer(const struct peer_link *l, const struct peer_msg *msg, const char *dir);

/* Makes TLS ready; does nothing without a certificate in the configuration. */
enum tern_err links_tls_init(struct daemon *d, char *why, size_t cap);
/* Logs that our certificate expires soon. */
void links_tls_tick(struct daemon *d);
/* Starts TLS on a stream just opened. If refused: counted, and the stream closed. */
void link_secure(struct peer_link *l);
/* Logs and counts a refusal of the peer or of the bytes that it sent. */
void link_tls_refused(struct peer_link *l, enum tls_refusal why, const char *detail);

/* Counts callers that sent no whole first record within the deadline. */
void link_tls_silent(struct daemon *d, uint64_t callers);

enum tern_err link_path_read(struct peer_link *l, const struct frame_header *h, const uint8_t *body,
                             uint64_t sequence);

/* Call when the stream is open and, with TLS, secured: the dialling side sends Hello. */
void link_greet(struct peer_link *l);
/* The peer speaks TLS and this daemon does not: reports that on both sides and ends the link. */
void link_tls_met(struct stream *s);
/* Processes a frame of a link that is not up yet. */
void link_greeting_frame(struct peer_link *l, const struct frame_header *h, const uint8_t *body);

enum tern_err links_names_init(struct daemon *d, char *why, size_t cap);
/* Sets when an outbound link dials again. */
void link_schedule_redial(struct peer_link *l, uint64_t now_ns);
/* The peer of an outbound link has dialled us, so it is running: limits the wait for the next
 * attempt to LINK_REDIAL_MIN_NS. A peer that dials in a loop causes no additional attempts. */
void link_redial_soon(struct peer_link *l, uint64_t now_ns);
/* Adds the attempts that the time since the last tick allows. */
void links_pace_tick(struct peer_links *ls, uint64_t now_ns);
/* Returns true if an attempt may begin. lost: the link was up a moment ago. */
bool links_pace_allows(const struct peer_links *ls, bool lost);
/* Ends an attempt that is under way. */
void link_give_up(struct peer_link *l);
/* Dials a due outbound link that is not up, or ends an attempt that takes too long. */
void link_dial_tick(struct peer_link *l, uint64_t now_ns);

#endif
