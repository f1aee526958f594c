/* The one table of messages. A request is one row here, its message in tern.proto, and the two
 * lists of fields below, from which the shell converts it to the core's struct and back. This file
 * defines the frame numbers, the answer of each request, decoding and its limits, the allowed
 * senders, the tape and the table in docs/protocol.md; tests/unit/proto/test_messages.c compares it
 * with tern.proto and the document.
 *
 * Four requests and their answers are also read or written by hand, where the field numbers are
 * repeated: Step in proto/in_place.c, and Step, Match, Fetch and Recover in
 * client/libtern/quick_*.c.
 *
 * Invariant: numbers, messages and field numbers never change their meaning; a new row takes the
 * next free odd number. The lists are text for the preprocessor: a file that expands a list of
 * fields includes the structs that the list names. */
#ifndef PROTO_MESSAGES_H
#define PROTO_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

/* The allowed senders. An engine's processes, scheduler and ranks, use their tenant's socket,
 * operators the admin socket; peers are other daemons. */
enum message_from {
    FROM_ENGINE = 1,
    FROM_OPERATOR = 2,
    FROM_PEER = 4,
    FROM_CLIENT = FROM_ENGINE | FROM_OPERATOR,
    FROM_ANYONE = FROM_CLIENT | FROM_PEER,
};

/* The state that the request requires. */
enum message_needs {
    NEEDS_NOTHING = 0,
    NEEDS_ENGINE,  /* the connection has joined an engine, and all of its ranks have joined */
    NEEDS_SESSION, /* and the frame's header names an open session of that engine */
};

enum message_answer {
    ANSWER_NONE = 0,
    ANSWER_AT_ONCE, /* one frame, before the next request of the connection is read */
    ANSWER_LATER,   /* one frame, when the work is done; other answers may precede it */
    ANSWER_PIECES,  /* several frames at once, to be joined; the last one is marked */
    ANSWER_STREAM,  /* one frame at once, then one whenever something has changed */
};

/* The effect of sending a request again, under a new request id, after its answer was lost. */
enum message_repeat {
    REPEAT_HARMLESS = 0, /* a repeat changes nothing that the first one had not changed */
    REPEAT_ACTS_AGAIN,   /* it opens, joins or counts once more, or ends the connection */
};

/* The most bytes of a body. */
enum message_body {
    BODY_AGREED = 0,   /* frame_body_max, as the answer to Hello says */
    BODY_HELLO = 4096, /* before the sender is known */
    BODY_PEER = (1 << 20) + (128 << 10),
};

/* Operations of the core: each row has the name of one of the core's operations (core/request.h).
 * X(number, NAME, message, message of the answer, from, needs, answered, repeat, body) */
#define REQUEST_TABLE(X)                                                                           \
    X(3, ENGINE_JOIN, engine_join, engine_join_reply, FROM_ENGINE, NEEDS_NOTHING, ANSWER_AT_ONCE,  \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(5, ENGINE_LEAVE, engine_leave, empty, FROM_ENGINE, NEEDS_NOTHING, ANSWER_AT_ONCE,            \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(7, POOL_OPEN, pool_open, pool_open_reply, FROM_ENGINE, NEEDS_ENGINE, ANSWER_AT_ONCE,         \
      REPEAT_ACTS_AGAIN, BODY_AGREED)                                                              \
    X(9, POOL_MAP, pool_ref, pool_map_reply, FROM_ENGINE, NEEDS_ENGINE, ANSWER_AT_ONCE,            \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(11, POOL_CLOSE, pool_ref, empty, FROM_ENGINE, NEEDS_ENGINE, ANSWER_AT_ONCE, REPEAT_HARMLESS, \
      BODY_AGREED)                                                                                 \
    X(13, SESSION_OPEN, session_open, session_open_reply, FROM_ENGINE, NEEDS_ENGINE,               \
      ANSWER_AT_ONCE, REPEAT_ACTS_AGAIN, BODY_AGREED)                                              \
    X(15, PEEK, peek, peek_reply, FROM_ENGINE, NEEDS_ENGINE, ANSWER_AT_ONCE, REPEAT_HARMLESS,      \
      BODY_AGREED)                                                                                 \
    X(17, MATCH, match, match_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_AT_ONCE, REPEAT_HARMLESS,  \
      BODY_AGREED)                                                                                 \
    X(19, STEP, step, step_reply, FROM_ENGINE, NEEDS_ENGINE, ANSWER_AT_ONCE, REPEAT_HARMLESS,      \
      BODY_AGREED)                                                                                 \
    X(21, FETCH, fetch, fetch_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_LATER, REPEAT_HARMLESS,    \
      BODY_AGREED)                                                                                 \
    X(23, FETCH_CANCEL, fetch_cancel, empty, FROM_ENGINE, NEEDS_SESSION, ANSWER_AT_ONCE,           \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(29, RETRACT, retract, retract_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_AT_ONCE,             \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(31, RECOVER, recover, recover_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_LATER,               \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(33, NAMESPACE_RESET, namespace_reset, namespace_reset_reply, FROM_ENGINE, NEEDS_ENGINE,      \
      ANSWER_LATER, REPEAT_HARMLESS, BODY_AGREED)                                                  \
    X(37, WAIT_PUBLISHED, wait_published, empty, FROM_ENGINE, NEEDS_ENGINE, ANSWER_LATER,          \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(39, TURN_BEGIN, turn_begin, turn_begin_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_AT_ONCE,    \
      REPEAT_ACTS_AGAIN, BODY_AGREED)                                                              \
    X(41, TURN_END, turn_end, empty, FROM_ENGINE, NEEDS_SESSION, ANSWER_AT_ONCE, REPEAT_HARMLESS,  \
      BODY_AGREED)                                                                                 \
    X(43, SESSION_CLOSE, session_close, empty, FROM_ENGINE, NEEDS_SESSION, ANSWER_LATER,           \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(45, RECORD_MAP, record_map, record_map_reply, FROM_ENGINE, NEEDS_ENGINE, ANSWER_AT_ONCE,     \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(47, RECORD_PREPARE, record_prepare, record_prepare_reply, FROM_ENGINE, NEEDS_SESSION,        \
      ANSWER_AT_ONCE, REPEAT_HARMLESS, BODY_AGREED)                                                \
    X(49, RECORD_PUT, record_put, record_put_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_LATER,      \
      REPEAT_ACTS_AGAIN, BODY_AGREED)                                                              \
    X(51, ROLLBACK, rollback, record_put_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_LATER,          \
      REPEAT_ACTS_AGAIN, BODY_AGREED)                                                              \
    X(53, RECORD_GET, record_get, record_get_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_AT_ONCE,    \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(55, STORE, store, store_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_LATER, REPEAT_HARMLESS,    \
      BODY_AGREED)                                                                                 \
    X(57, HANDOFF, handoff, handoff_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_AT_ONCE,             \
      REPEAT_ACTS_AGAIN, BODY_AGREED)                                                              \
    X(59, TICKET_RENEW, ticket_renew, handoff_reply, FROM_ENGINE, NEEDS_ENGINE, ANSWER_AT_ONCE,    \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(61, TICKET_DROP, ticket_drop, empty, FROM_ENGINE, NEEDS_ENGINE, ANSWER_AT_ONCE,              \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(63, PAGE_LEASE, page_lease, page_lease_reply, FROM_ENGINE, NEEDS_ENGINE, ANSWER_AT_ONCE,     \
      REPEAT_ACTS_AGAIN, BODY_AGREED)                                                              \
    X(67, TICKET_OPEN, ticket_open, handoff_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_AT_ONCE,     \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(69, FETCH_WAIT, fetch_wait, fetch_reply, FROM_ENGINE, NEEDS_SESSION, ANSWER_LATER,           \
      REPEAT_HARMLESS, BODY_AGREED)                                                                \
    X(71, BLOCKS, blocks, blocks_reply, FROM_ENGINE, NEEDS_ENGINE, ANSWER_LATER, REPEAT_HARMLESS,  \
      BODY_AGREED)

/* Requests that the shell itself answers: X as above. */
#define SHELL_TABLE(X)                                                                             \
    X(1, HELLO, hello, hello_reply, FROM_CLIENT, NEEDS_NOTHING, ANSWER_AT_ONCE, REPEAT_ACTS_AGAIN, \
      BODY_HELLO)                                                                                  \
    X(25, PING, empty, empty, FROM_ANYONE, NEEDS_NOTHING, ANSWER_AT_ONCE, REPEAT_HARMLESS,         \
      BODY_AGREED)                                                                                 \
    X(27, STATS, empty, admin_reply, FROM_CLIENT, NEEDS_NOTHING, ANSWER_PIECES, REPEAT_HARMLESS,   \
      BODY_AGREED)                                                                                 \
    X(35, SUBSCRIBE, subscribe, subscribe_reply, FROM_CLIENT, NEEDS_NOTHING, ANSWER_STREAM,        \
      REPEAT_ACTS_AGAIN, BODY_AGREED)                                                              \
    X(65, ADMIN, admin, admin_reply, FROM_OPERATOR, NEEDS_NOTHING, ANSWER_PIECES,                  \
      REPEAT_ACTS_AGAIN, BODY_AGREED)                                                              \
    X(129, PEER_HELLO, peer_hello, peer_hello_reply, FROM_PEER, NEEDS_NOTHING, ANSWER_AT_ONCE,     \
      REPEAT_ACTS_AGAIN, BODY_HELLO)

/* Operations that an operator requests by the text of an Admin. They have no frame of their own.
 * X(NAME) */
#define COMMAND_TABLE(X)                                                                           \
    X(EVICT)                                                                                       \
    X(DRAIN)                                                                                       \
    X(PIN)                                                                                         \
    X(SESSION_END)                                                                                 \
    X(ENGINE_KICK)                                                                                 \
    X(POOL_END)

/* Messages between peers without an answer: the next number is unused.
 * X(number, NAME, message, from, repeat, body) */
#define NOTICE_TABLE(X)                                                                            \
    X(131, PEER_MSG, peer_msg, FROM_PEER, REPEAT_ACTS_AGAIN, BODY_PEER)                            \
    X(133, PEER_PATH, peer_path, FROM_PEER, REPEAT_ACTS_AGAIN, BODY_PEER)

/* ---- fields by which the core's structs are filled, and answers from them ----
 *
 * The fields of each request in the order of the tape: F(struct, member, KIND, limit). The member
 * has the same name in tern.proto and in the core's struct request. shell/wire/ and shell/tape/
 * convert each kind:
 * - SESSION: a handle, which is in the frame's header. POOL, NODE, ENGINE: a handle.
 * - NAMESPACE: five strings; the core has a hash of them.
 * - TOKENS: a token list.
 * - U32, U64: a number. CHOICE: a number up to the limit, an enum of the core. TRUTH: 0 or 1.
 * - NAME: of an engine.
 * - PEER: a peer's name, "" for the host tier, WIRE_DISK for the disk, WIRE_ANY_PEER; the core has
 *   its slot.
 * - DEVICE: a device's name, "" if none is named; the core has the region that lies on it.
 * - GROUPS, HASH, HASH64: a pool's layout: the values that the core computes with, and hashes of
 *   the rest.
 * - OPS: the operations of a Step.
 * - BLOBS: blobs of a turn record, by name and size.
 * - TICKET: a string (proto/ticket.h).
 * - BLOB: bytes; the core has them as a list of words, and `blob_bytes` beside it.
 * - KEY: random numbers from the shell, which are in no message. */
#define REQUEST_ENGINE_JOIN(F)                                                                     \
    F(join, name, NAME, 0)                                                                         \
    F(join, role, CHOICE, ROLE_BOTH)                                                               \
    F(join, rank, U32, 0)                                                                          \
    F(join, world, U32, 0)                                                                         \
    F(join, device, DEVICE, 0)
#define REQUEST_ENGINE_LEAVE(F)
#define REQUEST_POOL_OPEN(F)                                                                       \
    F(pool_open, groups, GROUPS, 0)                                                                \
    F(pool_open, shard, CHOICE, SHARD_TOKENS)                                                      \
    F(pool_open, supersede, CHOICE, SUPERSEDE_OFF)                                                 \
    F(pool_open, axes_hash, HASH, 0)                                                               \
    F(pool_open, fields_hash, HASH64, 0)                                                           \
    F(pool_open, copies, HASH, 0)                                                                  \
    F(pool_open, bytes, U64, 0)                                                                    \
    F(pool_open, host_bytes, U64, 0)                                                               \
    F(pool_open, align_tokens, U32, 0)                                                             \
    F(pool_open, shared, TRUTH, 0)
#define REQUEST_POOL_MAP(F)                                                                        \
    F(pool_map, pool, POOL, 0)                                                                     \
    F(pool_map, sums, TRUTH, 0)
#define REQUEST_POOL_CLOSE(F) F(pool_close, pool, POOL, 0)
#define REQUEST_SESSION_OPEN(F)                                                                    \
    F(session_open, pool, POOL, 0)                                                                 \
    F(session_open, ns, NAMESPACE, 0)                                                              \
    F(session_open, blobs_kept, U32, 0)                                                            \
    F(session_open, merging, TRUTH, 0)
#define REQUEST_PEEK(F)                                                                            \
    F(peek, pool, POOL, 0)                                                                         \
    F(peek, ns, NAMESPACE, 0)                                                                      \
    F(peek, tokens, TOKENS, 0)                                                                     \
    F(peek, from, NODE, 0)                                                                         \
    F(peek, pieces, TRUTH, 0)
#define REQUEST_MATCH(F)                                                                           \
    F(match, session, SESSION, 0)                                                                  \
    F(match, tokens, TOKENS, 0)                                                                    \
    F(match, step, U64, 0)                                                                         \
    F(match, earlier, U32, 0)                                                                      \
    F(match, more, TRUTH, 0)                                                                       \
    F(match, pieces, TRUTH, 0)
#define REQUEST_STEP(F) F(step, ops, OPS, 0)
#define REQUEST_FETCH(F)                                                                           \
    F(fetch, session, SESSION, 0)                                                                  \
    F(fetch, peer, PEER, 0)                                                                        \
    F(fetch, depth, U32, 0)                                                                        \
    F(fetch, at_least, U32, 0)                                                                     \
    F(fetch, wait_ms, U32, 0)                                                                      \
    F(fetch, step, U64, 0)                                                                         \
    F(fetch, ticket, TICKET, 0)                                                                    \
    F(fetch, follow, TRUTH, 0)                                                                     \
    F(fetch, prefetch, TRUTH, 0)
#define REQUEST_FETCH_CANCEL(F) F(fetch_cancel, session, SESSION, 0)
#define REQUEST_RETRACT(F)                                                                         \
    F(retract, session, SESSION, 0)                                                                \
    F(retract, mode, CHOICE, RETRACT_DROP)                                                         \
    F(retract, step, U64, 0)
#define REQUEST_RECOVER(F)         F(recover, session, SESSION, 0)
#define REQUEST_NAMESPACE_RESET(F) F(namespace_reset, ns, NAMESPACE, 0)
#define REQUEST_WAIT_PUBLISHED(F)  F(wait_published, step, U64, 0)
#define REQUEST_TURN_BEGIN(F)      F(turn_begin, session, SESSION, 0)
#define REQUEST_TURN_END(F)        F(turn_end, session, SESSION, 0) F(turn_end, step, U64, 0)
#define REQUEST_SESSION_CLOSE(F)                                                                   \
    F(session_close, session, SESSION, 0) F(session_close, step, U64, 0)
#define REQUEST_RECORD_MAP(F)
#define REQUEST_RECORD_PREPARE(F)                                                                  \
    F(record_prepare, session, SESSION, 0)                                                         \
    F(record_prepare, kind, CHOICE, RECORD_ROLLBACK)                                               \
    F(record_prepare, length, U32, 0)                                                              \
    F(record_prepare, logprobs, U32, 0)                                                            \
    F(record_prepare, blobs, BLOBS, 0)
#define REQUEST_RECORD_PUT(F) F(record_put, session, SESSION, 0)
#define REQUEST_ROLLBACK(F)   F(rollback, session, SESSION, 0) F(rollback, step, U64, 0)
#define REQUEST_RECORD_GET(F) F(record_get, session, SESSION, 0) F(record_get, first, U32, 0)
#define REQUEST_STORE(F)      F(store, session, SESSION, 0) F(store, depth, U32, 0)
#define REQUEST_HANDOFF(F)                                                                         \
    F(handoff, session, SESSION, 0)                                                                \
    F(handoff, step, U64, 0)                                                                       \
    F(handoff, deadline_ms, U32, 0)                                                                \
    F(handoff, blob, BLOB, 0)                                                                      \
    F(handoff, key, KEY, 0)
#define REQUEST_TICKET_RENEW(F)                                                                    \
    F(ticket_renew, ticket, TICKET, 0) F(ticket_renew, deadline_ms, U32, 0)
#define REQUEST_TICKET_DROP(F) F(ticket_drop, ticket, TICKET, 0)
#define REQUEST_PAGE_LEASE(F)                                                                      \
    F(page_lease, pool, POOL, 0) F(page_lease, group, U32, 0) F(page_lease, pages, U32, 0)
#define REQUEST_TICKET_OPEN(F)                                                                     \
    F(ticket_open, session, SESSION, 0)                                                            \
    F(ticket_open, deadline_ms, U32, 0)                                                            \
    F(ticket_open, key, KEY, 0)
#define REQUEST_FETCH_WAIT(F)                                                                      \
    F(fetch_wait, session, SESSION, 0)                                                             \
    F(fetch_wait, above, U32, 0)                                                                   \
    F(fetch_wait, pages, TRUTH, 0)
#define REQUEST_BLOCKS(F)                                                                          \
    F(blocks, pool, POOL, 0)                                                                       \
    F(blocks, ns, NAMESPACE, 0)                                                                    \
    F(blocks, what, CHOICE, BLOCKS_ASK)                                                            \
    F(blocks, keys, TOKENS, 0)                                                                     \
    F(blocks, host, PEER, 0)
#define REQUEST_EVICT(F)       F(evict, pool, POOL, 0) F(evict, nodes, U32, 0)
#define REQUEST_DRAIN(F)       F(drain, on, TRUTH, 0)
#define REQUEST_PIN(F)         F(pin, node, NODE, 0) F(pin, on, TRUTH, 0)
#define REQUEST_SESSION_END(F) F(session_end, session, SESSION, 0)
#define REQUEST_ENGINE_KICK(F) F(engine_kick, engine, ENGINE, 0)
#define REQUEST_POOL_END(F)    F(pool_end, pool, POOL, 0)

/* Cases of a switch by operation, for either table, with the same F for each field. */
#define REQUEST_CASE(number, NAME, ...) COMMAND_CASE(NAME)
#define COMMAND_CASE(NAME)                                                                         \
    case OP_##NAME: REQUEST_##NAME(F) break;

/* The fields of each answer after its status, in the order of their numbers in tern.proto:
 * F(struct, number, member, KIND). Kinds are as above, and:
 * - LENGTHS: the three lengths of a session.
 * - RUNS: runs of pages, which belong to the answer whatever its struct.
 * - RESULTS: results of the operations of a Step.
 * - REGION_BYTES: bytes of the whole region that a pool lies in; REGION_DEVICE: its GPU, if any;
 *   REGION_SUMS: the memory for checksums of its pages, if any. The shell has them.
 * - HOSTS: names of peers; the core has their slots.
 * - RECORD, RECORDS: turn records, with their places. */
#define REPLY_ENGINE_JOIN(F) F(join, 2, engine, ENGINE)
#define REPLY_ENGINE_LEAVE(F)
#define REPLY_POOL_OPEN(F)                                                                         \
    F(pool_open, 2, pool, POOL)                                                                    \
    F(pool_open, 3, align_tokens, U32)                                                             \
    F(pool_open, 4, bytes, U64)
#define REPLY_POOL_MAP(F)                                                                          \
    F(pool_map, 2, region, U32)                                                                    \
    F(pool_map, 3, offset, U64)                                                                    \
    F(pool_map, 4, bytes, U64)                                                                     \
    F(pool_map, 5, region_bytes, REGION_BYTES)                                                     \
    F(pool_map, 6, device, REGION_DEVICE)                                                          \
    F(pool_map, 7, sums, REGION_SUMS)
#define REPLY_POOL_CLOSE(F)
#define REPLY_SESSION_OPEN(F) F(session_open, 2, session, SESSION)
#define REPLY_PEEK(F)                                                                              \
    F(peek, 2, depth, U32)                                                                         \
    F(peek, 3, history_depth, U32)                                                                 \
    F(peek, 4, host_depth, U32)                                                                    \
    F(peek, 5, reached, NODE)                                                                      \
    F(peek, 6, walked, U32)                                                                        \
    F(peek, 7, disk_depth, U32)                                                                    \
    F(peek, 8, taken, U32)
#define REPLY_MATCH(F)                                                                             \
    F(match, 2, lengths, LENGTHS)                                                                  \
    F(match, 3, tokens, U32)                                                                       \
    F(match, 4, matched, U32)                                                                      \
    F(match, 5, runs, RUNS)                                                                        \
    F(match, 6, host_depth, U32)                                                                   \
    F(match, 7, disk_depth, U32)                                                                   \
    F(match, 8, taken, U32)
#define REPLY_STEP(F) F(step, 2, results, RESULTS)
#define REPLY_FETCH(F)                                                                             \
    F(fetch, 2, lengths, LENGTHS)                                                                  \
    F(fetch, 3, runs, RUNS)                                                                        \
    F(fetch, 4, kib, U32)                                                                          \
    F(fetch, 5, retry_ms, U32)                                                                     \
    F(fetch, 6, tokens, U32)                                                                       \
    F(fetch, 7, blob, BLOB)                                                                        \
    F(fetch, 8, handed, U32)                                                                       \
    F(fetch, 9, arriving, U32)                                                                     \
    F(fetch, 10, hosts, HOSTS)
#define REPLY_FETCH_CANCEL(F)
#define REPLY_RETRACT(F)                                                                           \
    F(retract, 2, lengths, LENGTHS)                                                                \
    F(retract, 3, free_now, U32)                                                                   \
    F(retract, 4, free_at_step, U32)                                                               \
    F(retract, 5, evictable, U32)
#define REPLY_RECOVER(F)                                                                           \
    F(recover, 2, lengths, LENGTHS)                                                                \
    F(recover, 3, tokens, U32)                                                                     \
    F(recover, 4, runs, RUNS)                                                                      \
    F(recover, 5, kib, U32)
#define REPLY_NAMESPACE_RESET(F)                                                                   \
    F(namespace_reset, 2, nodes, U32)                                                              \
    F(namespace_reset, 3, unreached, U32)
#define REPLY_WAIT_PUBLISHED(F)
#define REPLY_TURN_BEGIN(F) F(turn_begin, 2, turn, SESSION)
#define REPLY_TURN_END(F)
#define REPLY_SESSION_CLOSE(F)
#define REPLY_RECORD_MAP(F)     F(record_map, 2, bytes, U64)
#define REPLY_RECORD_PREPARE(F) F(record_prepare, 2, body, RECORD)
#define REPLY_RECORD_PUT(F)                                                                        \
    F(record_put, 2, part, U32)                                                                    \
    F(record_put, 3, index, U32)                                                                   \
    F(record_put, 4, length, U32)                                                                  \
    F(record_put, 5, records, U32) F(record_put, 6, lengths, LENGTHS) F(record_put, 7, tokens, U32)
#define REPLY_ROLLBACK(F)                                                                          \
    F(rollback, 2, part, U32)                                                                      \
    F(rollback, 3, index, U32)                                                                     \
    F(rollback, 4, length, U32)                                                                    \
    F(rollback, 5, records, U32) F(rollback, 6, lengths, LENGTHS) F(rollback, 7, tokens, U32)
#define REPLY_RECORD_GET(F) F(record_get, 2, records, U32) F(record_get, 3, list, RECORDS)
#define REPLY_STORE(F)      F(store, 2, depth, U32) F(store, 3, written, U64)
#define REPLY_HANDOFF(F)    F(handoff, 2, ticket, TICKET) F(handoff, 3, deadline_ms, U32)
#define REPLY_TICKET_RENEW(F)                                                                      \
    F(ticket_renew, 2, ticket, TICKET) F(ticket_renew, 3, deadline_ms, U32)
#define REPLY_TICKET_DROP(F)
#define REPLY_PAGE_LEASE(F)  F(page_lease, 2, runs, RUNS) F(page_lease, 3, leased, U32)
#define REPLY_TICKET_OPEN(F) F(ticket_open, 2, ticket, TICKET) F(ticket_open, 3, deadline_ms, U32)
#define REPLY_FETCH_WAIT(F)                                                                        \
    F(fetch_wait, 2, lengths, LENGTHS)                                                             \
    F(fetch_wait, 3, runs, RUNS)                                                                   \
    F(fetch_wait, 4, kib, U32)                                                                     \
    F(fetch_wait, 5, retry_ms, U32)                                                                \
    F(fetch_wait, 6, tokens, U32)                                                                  \
    F(fetch_wait, 7, blob, BLOB)                                                                   \
    F(fetch_wait, 8, handed, U32)                                                                  \
    F(fetch_wait, 9, arriving, U32)                                                                \
    F(fetch_wait, 10, hosts, HOSTS)
#define REPLY_BLOCKS(F) F(blocks, 2, runs, RUNS) F(blocks, 3, hosts, HOSTS)

/* The frame numbers of each request and its answer. */
enum frame_type {
#define X(number, NAME, ...) FRAME_##NAME = (number), FRAME_##NAME##_REPLY = (number) + 1,
    REQUEST_TABLE(X) SHELL_TABLE(X)
#undef X
#define X(number, NAME, ...) FRAME_##NAME = (number),
        NOTICE_TABLE(X)
#undef X
            FRAME_TYPES_END
};

/* ---- limits of decoded messages ---- */

#define WIRE_GROUPS_MAX    16u    /* of a PoolOpen */
#define WIRE_BLOBS_MAX     4u     /* of a turn record */
#define WIRE_RECORDS_MAX   64u    /* of a RecordGetReply */
#define WIRE_SPANS_MAX     8u     /* of a section of a turn record */
#define WIRE_AXES_MAX      8u     /* of a group, or of a field */
#define WIRE_FIELDS_MAX    8u     /* of a group */
#define WIRE_SECTIONS_MAX  8u     /* of a field */
#define WIRE_OPS_MAX       1024u  /* of a Step, and results of its answer */
#define WIRE_SHORT_BYTES   16384u /* the fields of a shorter body are not counted */
#define WIRE_BODY_FIELDS   40960u /* at most of a longer one, inner messages included */
#define WIRE_RUNS_MAX      4096u  /* of one message, all its results or operations together */
#define WIRE_STEP_RUNS_MAX 16u    /* of an operation of a Step */
#define WIRE_KEYS_MAX      1024u  /* extra keys of one token list */
#define WIRE_ARGS_MAX      16u    /* of an Admin */
#define WIRE_EVENTS_MAX    4096u  /* of a SubscribeReply */
#define WIRE_NAMES_MAX     64u    /* of tenants in a SubscribeReply */
#define WIRE_HOSTS_MAX     64u    /* names of peers in an answer */
#define WIRE_CHUNKS_MAX    64u    /* of a PeerPath */
#define WIRE_WINDOWS_MAX   64u    /* of a PeerPath */
#define WIRE_STRING_MAX    255u   /* bytes of every string without a limit below */
#define WIRE_TEXT_MAX      1023u  /* bytes of Status.text and PeerPath.text */

/* Fetch.peer of the daemon's own disk: no peer can have such a name. */
#define WIRE_DISK     "/disk"
#define WIRE_ANY_PEER "/any" /* Fetch.peer of any peer that has the prefix */

/* Equal to the core's (wire_out.c checks that). */
#define WIRE_SESSION_TOKENS_MAX (1u << 22) /* tokens of a session */
#define WIRE_RECORD_PAGE        16384u     /* bytes of a page of the record memory */

/* The members of struct peer_msg that a PeerMsg has under the same names, F(member, kind). A member
 * that is 0 is not sent. */
#define PEER_MSG_NUMBERS(F)                                                                        \
    F(trace_id, U64)                                                                               \
    F(retry_ms, U32)                                                                               \
    F(layout_hash, U64)                                                                            \
    F(fields_hash, U64)                                                                            \
    F(history, U32)                                                                                \
    F(at_least, U32)                                                                               \
    F(prefetch, TRUTH)                                                                             \
    F(from, U32)                                                                                   \
    F(to, U32)                                                                                     \
    F(at, U32)                                                                                     \
    F(until, U32)                                                                                  \
    F(follow, TRUTH)                                                                               \
    F(handed, U32)                                                                                 \
    F(busy, U32)                                                                                   \
    F(differs, U32)                                                                                \
    F(reset, U64)                                                                                  \
    F(origin, U64)                                                                                 \
    F(number, U64)                                                                                 \
    F(hops, U32)                                                                                   \
    F(each, U32)

/* Elements of the byte arrays. */
#define WIRE_TOKEN_BYTES  4u /* Tokens.tokens, PeerMsg.tokens: u32 */
#define WIRE_REF_BYTES    8u /* Run.refs: u32 index, u32 generation */
#define WIRE_SPAN_BYTES   8u /* RecordSection.runs: u32 first page, u32 number of pages */
#define WIRE_GID_BYTES    16u
#define WIRE_CHUNK_BYTES  32u
#define WIRE_WINDOW_BYTES 4u
#define WIRE_KEY_BYTES    24u /* Tokens.keys, PeerMsg.keys: u32 position, u32 0, u64 hi, u64 lo */
#define WIRE_EVENT_BYTES  56u /* SubscribeReply.events: struct wire_event */

#define WIRE_BLOB_MAX 65536u /* of a ticket */

#define WIRE_ANY UINT32_MAX /* limited only by the size of the body */

/* Elements that are counted together over the whole message. */
enum limit_sum { SUM_NONE = 0, SUM_RUNS, LIMIT_SUMS };

/* Every list and every array, and the strings that may be longer than WIRE_STRING_MAX. A list or an
 * array without a row must be empty. The most frequent rows come first, because rows are searched
 * in order.
 * X(message, field, bytes of an element, fewest elements if present, most, counted with) */
#define LIMIT_TABLE(X)                                                                             \
    X(tokens, tokens, WIRE_TOKEN_BYTES, 0, WIRE_ANY, SUM_NONE)                                     \
    X(tokens, keys, WIRE_KEY_BYTES, 0, WIRE_KEYS_MAX, SUM_NONE)                                    \
    X(run, refs, WIRE_REF_BYTES, 0, WIRE_ANY, SUM_NONE)                                            \
    X(op_result, runs, 0, 0, WIRE_RUNS_MAX, SUM_RUNS)                                              \
    X(match_reply, runs, 0, 0, WIRE_RUNS_MAX, SUM_RUNS)                                            \
    X(fetch_reply, runs, 0, 0, WIRE_RUNS_MAX, SUM_RUNS)                                            \
    X(recover_reply, runs, 0, 0, WIRE_RUNS_MAX, SUM_RUNS)                                          \
    X(step_op, runs, 0, 0, WIRE_RUNS_MAX, SUM_RUNS)                                                \
    X(page_lease_reply, runs, 0, 0, WIRE_RUNS_MAX, SUM_RUNS)                                       \
    X(blocks_reply, runs, 0, 0, WIRE_RUNS_MAX, SUM_RUNS)                                           \
    X(peer_msg, runs, 0, 0, WIRE_RUNS_MAX, SUM_RUNS)                                               \
    X(peer_msg, tokens, WIRE_TOKEN_BYTES, 0, WIRE_ANY, SUM_NONE)                                   \
    X(peer_msg, keys, WIRE_KEY_BYTES, 0, WIRE_KEYS_MAX, SUM_NONE)                                  \
    X(step, ops, 0, 0, WIRE_OPS_MAX, SUM_NONE)                                                     \
    X(step_reply, results, 0, 0, WIRE_OPS_MAX, SUM_NONE)                                           \
    X(handoff, blob, 1, 0, WIRE_BLOB_MAX, SUM_NONE)                                                \
    X(fetch_reply, blob, 1, 0, WIRE_BLOB_MAX, SUM_NONE)                                            \
    X(peer_msg, blob, 1, 0, WIRE_BLOB_MAX, SUM_NONE)                                               \
    X(status, text, 1, 0, WIRE_TEXT_MAX, SUM_NONE)                                                 \
    X(pool_open, groups, 0, 0, WIRE_GROUPS_MAX, SUM_NONE)                                          \
    X(group, axes, 0, 0, WIRE_AXES_MAX, SUM_NONE)                                                  \
    X(group, fields, 0, 0, WIRE_FIELDS_MAX, SUM_NONE)                                              \
    X(field, axes, 0, 0, WIRE_AXES_MAX, SUM_NONE)                                                  \
    X(field, sections, 0, 0, WIRE_SECTIONS_MAX, SUM_NONE)                                          \
    X(peer_msg, groups, 0, 0, WIRE_GROUPS_MAX, SUM_NONE)                                           \
    X(subscribe_reply, events, WIRE_EVENT_BYTES, 0, WIRE_EVENTS_MAX, SUM_NONE)                     \
    X(subscribe_reply, chunks, 0, 0, WIRE_EVENTS_MAX, SUM_NONE)                                    \
    X(subscribe_reply, tenants, 0, 0, WIRE_NAMES_MAX, SUM_NONE)                                    \
    X(fetch_reply, hosts, 0, 0, WIRE_HOSTS_MAX, SUM_NONE)                                          \
    X(blocks_reply, hosts, 0, 0, WIRE_HOSTS_MAX, SUM_NONE)                                         \
    X(record_prepare, blobs, 0, 0, WIRE_BLOBS_MAX, SUM_NONE)                                       \
    X(record_section, runs, WIRE_SPAN_BYTES, 0, WIRE_SPANS_MAX, SUM_NONE)                          \
    X(record, blobs, 0, 0, WIRE_BLOBS_MAX, SUM_NONE)                                               \
    X(record_get_reply, list, 0, 0, WIRE_RECORDS_MAX, SUM_NONE)                                    \
    X(admin, args, 0, 0, WIRE_ARGS_MAX, SUM_NONE)                                                  \
    X(admin_reply, json, 1, 0, WIRE_ANY, SUM_NONE)                                                 \
    X(peer_path, text, 1, 0, WIRE_TEXT_MAX, SUM_NONE)                                              \
    X(peer_path, gid, WIRE_GID_BYTES, 1, 1, SUM_NONE)                                              \
    X(peer_path, chunks, WIRE_CHUNK_BYTES, 0, WIRE_CHUNKS_MAX, SUM_NONE)                           \
    X(peer_path, windows, WIRE_WINDOW_BYTES, 0, WIRE_WINDOWS_MAX, SUM_NONE)

/* ---- the rows at run time ---- */

struct message {
    uint16_t type;    /* of the request or notice; the answer's is the next number */
    const char *name; /* "ENGINE_JOIN" */
    const ProtobufCMessageDescriptor *request, *reply; /* reply NULL: it has no answer */
    enum message_from from;                            /* bits */
    enum message_needs needs;
    enum message_answer answer;
    enum message_repeat repeat;
    enum message_body body;
};

#define MESSAGES_MAX 64

extern const struct message messages[];
extern const uint32_t messages_n;

/* Returns the row of that number, a request's or its answer's. NULL: unknown to this build. */
const struct message *message_of(uint16_t type);
/* Returns the message in a frame of that type; NULL: unknown to this build. */
const ProtobufCMessageDescriptor *wire_descriptor(uint16_t type);

struct field_limit {
    const ProtobufCMessageDescriptor *message;
    uint32_t offset; /* of the field in its struct */
    uint32_t element_bytes, least, most;
    enum limit_sum sum;
};

extern const struct field_limit field_limits[];
extern const uint32_t field_limits_n;

/* NULL: there is no row for that field. */
const struct field_limit *message_limit(const ProtobufCMessageDescriptor *message,
                                        const ProtobufCFieldDescriptor *field);

#endif
