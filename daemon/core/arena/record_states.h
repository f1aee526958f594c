/* The state machines of pools, engines, sessions and transfers (base/states.h explains the tables).
 * The last column is the word that operators see in the views. */
#ifndef CORE_RECORD_STATES_H
#define CORE_RECORD_STATES_H

#include "base/states.h"

#define POOL_STATE_TABLE(X)                                                                        \
    X(POOL, EMPTY, TO(POOL, OPEN), "there is none", "empty")                                       \
    X(POOL, OPEN, TO(POOL, CLOSING) | TO(POOL, EMPTY),                                             \
      "engines may map it; a host tier stays open until its device pool is being zeroed", "open")  \
    X(POOL, CLOSING, TO(POOL, ZEROING),                                                            \
      "allocates nothing more; its prefixes are evicted as their pins end", "closing")             \
    X(POOL, ZEROING, TO(POOL, EMPTY),                                                              \
      "a job zeroes its memory, which another pool may use afterwards", "zeroing")

STATE_MACHINE(pool, POOL, POOL_STATE_TABLE)

#define ENGINE_STATE_TABLE(X)                                                                      \
    X(ENGINE, EMPTY, TO(ENGINE, JOINING), "there is none", "empty")                                \
    X(ENGINE, JOINING, TO(ENGINE, LIVE) | TO(ENGINE, DYING) | TO(ENGINE, ENDING),                  \
      "not every rank has joined yet", "joining")                                                  \
    X(ENGINE, LIVE, TO(ENGINE, DYING) | TO(ENGINE, ENDING),                                        \
      "every rank has joined: the engine's requests are served", "live")                           \
    X(ENGINE, DYING, TO(ENGINE, ENDING),                                                           \
      "a process of the engine died or left: the engine's requests are refused, and none of its "  \
      "pages is reused",                                                                           \
      "dying")                                                                                     \
    X(ENGINE, ENDING, TO(ENGINE, EMPTY),                                                           \
      "its last process has exited: its sessions and pages are released in pieces, and then its "  \
      "name is free",                                                                              \
      "ending")

STATE_MACHINE(engine, ENGINE, ENGINE_STATE_TABLE)

/* Sessions in RETRACTING and all later states are away from the device, or on their way:
 * session_away names them, and the audit relies on their order. match.c, session_ops.c, retract.c
 * and record.c refuse the requests that a state does not allow. */
#define SESSION_STATE_TABLE(X)                                                                     \
    X(SESSION, EMPTY, TO(SESSION, OPEN), "there is none", "empty")                                 \
    X(SESSION, OPEN,                                                                               \
      TO(SESSION, OPEN) | TO(SESSION, MATCHING) | TO(SESSION, TURN) | TO(SESSION, RETRACTING) |    \
          TO(SESSION, RETRACTED) | TO(SESSION, CLOSING),                                           \
      "no turn was admitted: the session has no pages", "open")                                    \
    X(SESSION, MATCHING,                                                                           \
      TO(SESSION, MATCHING) | TO(SESSION, OPEN) | TO(SESSION, TURN) | TO(SESSION, CLOSING),        \
      "some pieces of a Match have arrived: the session pins the HISTORY that they found",         \
      "matching")                                                                                  \
    X(SESSION, TURN,                                                                               \
      TO(SESSION, MATCHING) | TO(SESSION, TURN) | TO(SESSION, IDLE) | TO(SESSION, OPEN) |          \
          TO(SESSION, FETCHING) | TO(SESSION, RETRACTING) | TO(SESSION, RETRACTED) |               \
          TO(SESSION, LOADING) | TO(SESSION, HANDED) | TO(SESSION, CLOSING),                       \
      "a turn is under way", "turn")                                                               \
    X(SESSION, IDLE,                                                                               \
      TO(SESSION, MATCHING) | TO(SESSION, IDLE) | TO(SESSION, TURN) | TO(SESSION, OPEN) |          \
          TO(SESSION, FETCHING) | TO(SESSION, RETRACTING) | TO(SESSION, RETRACTED) |               \
          TO(SESSION, LOADING) | TO(SESSION, HANDED) | TO(SESSION, CLOSING),                       \
      "its last turn is finished: the session keeps its pages for the next", "idle")               \
    X(SESSION, FETCHING, TO(SESSION, TURN) | TO(SESSION, OPEN) | TO(SESSION, CLOSING),             \
      "a fetch adds chunks to the session", "fetching")                                            \
    X(SESSION, HANDED, TO(SESSION, CLOSING),                                                       \
      "handed over: its engine cannot use it any more, and whoever has the ticket may fetch it",   \
      "handed_over")                                                                               \
    X(SESSION, CLOSING, TO(SESSION, EMPTY),                                                        \
      "closed: nobody can use it any more, and its pages and pins are released in pieces",         \
      "closing")                                                                                   \
    X(SESSION, RETRACTING,                                                                         \
      TO(SESSION, RETRACTED) | TO(SESSION, OPEN) | TO(SESSION, TURN) | TO(SESSION, IDLE) |         \
          TO(SESSION, CLOSING),                                                                    \
      "a Retract waits until the host tier has all pages of the session and the session's step "   \
      "has passed",                                                                                \
      "retracting")                                                                                \
    X(SESSION, RETRACTED,                                                                          \
      TO(SESSION, LOADING) | TO(SESSION, OPEN) | TO(SESSION, TURN) | TO(SESSION, IDLE) |           \
          TO(SESSION, CLOSING),                                                                    \
      "retracted: a Recover loads its pages; an Abort or a Close ends the state", "retracted")     \
    X(SESSION, LOADING,                                                                            \
      TO(SESSION, RETRACTED) | TO(SESSION, OPEN) | TO(SESSION, TURN) | TO(SESSION, IDLE) |         \
          TO(SESSION, CLOSING),                                                                    \
      "pages of the host tier are being loaded for a Recover or a Fetch", "loading")

STATE_MACHINE(session, SESSION, SESSION_STATE_TABLE)

/* The load of a LOADING session: several walks up the path, each in pieces (tier/host.h). */
#define LOAD_STATE_TABLE(X)                                                                        \
    X(LOAD, NONE, TO(LOAD, COUNTING), "there is none", "none")                                     \
    X(LOAD, COUNTING, TO(LOAD, BEGINNING) | TO(LOAD, LEAVING),                                     \
      "counts the pages that the device lacks, and evicts others to make room", "counting")        \
    X(LOAD, BEGINNING, TO(LOAD, COUNTING) | TO(LOAD, COMING) | TO(LOAD, LEAVING),                  \
      "adds itself to the loaders of each node, and begins the node's copy", "beginning")          \
    X(LOAD, COMING, TO(LOAD, COUNTING) | TO(LOAD, LOOKING) | TO(LOAD, ENDING) | TO(LOAD, LEAVING), \
      "waits for the copies", "coming")                                                            \
    X(LOAD, LOOKING, TO(LOAD, COMING) | TO(LOAD, LEAVING),                                         \
      "a copy of some load failed: checks whether its node is on the path", "looking")             \
    X(LOAD, ENDING, TO(LOAD, NONE),                                                                \
      "the session pins the path on the device, and the load leaves the nodes' loaders", "ending") \
    X(LOAD, LEAVING, TO(LOAD, NONE),                                                               \
      "the load failed or was cancelled: it leaves the nodes' loaders, and the session borrows "   \
      "their STATE on the host tier again",                                                        \
      "leaving")

STATE_MACHINE(load, LOAD, LOAD_STATE_TABLE)

/* The ticket of a session (Y1 to Y3): PROMISED while the session runs; otherwise it is HANDED. */
#define TICKET_STATE_TABLE(X)                                                                      \
    X(TICKET, NONE, TO(TICKET, PROMISED) | TO(TICKET, WAITING), "there is none", "none")           \
    X(TICKET, PROMISED, TO(TICKET, WAITING) | TO(TICKET, NONE),                                    \
      "its session still runs: a Handoff sets the ticket's length, and until then the ticket "     \
      "pins nothing",                                                                              \
      "promised")                                                                                  \
    X(TICKET, WAITING, TO(TICKET, QUEUED) | TO(TICKET, NONE),                                      \
      "the last step that writes its pages has not passed", "waiting")                             \
    X(TICKET, QUEUED, TO(TICKET, SEALING) | TO(TICKET, OPEN) | TO(TICKET, NONE),                   \
      "waits for a job that computes the checksums of its own pages", "sealing")                   \
    X(TICKET, SEALING, TO(TICKET, OPEN), "a job computes these checksums", "sealing")              \
    X(TICKET, OPEN, TO(TICKET, SERVED) | TO(TICKET, NONE), "a fetch may use it", "open")           \
    X(TICKET, SERVED, TO(TICKET, OPEN), "a transfer out reads its pages", "served")

STATE_MACHINE(ticket, TICKET, TICKET_STATE_TABLE)

/* The right to use a session (M5 to M7, M12), whatever its state. */
#define GATE_STATE_TABLE(X)                                                                        \
    X(GATE, FREE, TO(GATE, CLAIMED), "whoever has the session's handle may use it", "free")        \
    X(GATE, CLAIMED, TO(GATE, FREE) | TO(GATE, CLOSING),                                           \
      "a turn is in flight: only the handle that TurnBegin returned is valid", "in_flight")        \
    X(GATE, CLOSING, TO(GATE, FREE) | TO(GATE, CLOSED) | TO(GATE, UNCLOSED),                       \
      "a turn is in flight, and a SessionClose waits for its end: requests with the session's "    \
      "own handle get GONE",                                                                       \
      "closing")                                                                                   \
    X(GATE, UNCLOSED, TO(GATE, FREE),                                                              \
      "the turn has ended without naming its last step, and the waiting SessionClose is about to " \
      "be refused for that",                                                                       \
      "unclosed")                                                                                  \
    X(GATE, CLOSED, TO(GATE, FREE),                                                                \
      "the turn has ended: the session is closed as soon as its pages and pins can be released",   \
      "closed")

STATE_MACHINE(gate, GATE, GATE_STATE_TABLE)

/* A turn record (M1 to M11). */
#define TURN_RECORD_STATE_TABLE(X)                                                                 \
    X(TURN_RECORD, EMPTY, TO(TURN_RECORD, PREPARED), "there is none", "empty")                     \
    X(TURN_RECORD, PREPARED,                                                                       \
      TO(TURN_RECORD, CHECKING) | TO(TURN_RECORD, HELD) | TO(TURN_RECORD, EMPTY),                  \
      "the turn in flight has the record's pages, and writes them", "prepared")                    \
    X(TURN_RECORD, CHECKING,                                                                       \
      TO(TURN_RECORD, KEPT) | TO(TURN_RECORD, LEAVING) | TO(TURN_RECORD, EMPTY),                   \
      "written: a worker checks the record before anything is stored", "checking")                 \
    X(TURN_RECORD, LEAVING, TO(TURN_RECORD, EMPTY),                                                \
      "its turn ended while a worker checks the record: nothing will be stored", "leaving")        \
    X(TURN_RECORD, KEPT, TO(TURN_RECORD, HELD) | TO(TURN_RECORD, EMPTY),                           \
      "stored with its session", "kept")                                                           \
    X(TURN_RECORD, HELD, TO(TURN_RECORD, EMPTY),                                                   \
      "nobody needs the record, but a turn that never reported its end may still touch the "       \
      "pages: they are free when the turn's engine has ended",                                     \
      "held")

STATE_MACHINE(turn_record, TURN_RECORD, TURN_RECORD_STATE_TABLE)

/* A transfer in. */
#define PULL_STATE_TABLE(X)                                                                        \
    X(PULL, EMPTY, TO(PULL, ASKED), "there is none", "empty")                                      \
    X(PULL, ASKED,                                                                                 \
      TO(PULL, RUNNING) | TO(PULL, PUT_OFF) | TO(PULL, WAITING) | TO(PULL, ASKED_ENDS) |           \
          TO(PULL, EMPTY),                                                                         \
      "the request was sent, and the source has not sent an offer yet", "asked")                   \
    X(PULL, PUT_OFF, TO(PULL, ASKED) | TO(PULL, ASKED_ENDS),                                       \
      "the source is busy; one transfer of the tenant at a time asks it again, at the time that "  \
      "the source named",                                                                          \
      "waiting")                                                                                   \
    X(PULL, WAITING, TO(PULL, ASKED) | TO(PULL, PUT_OFF) | TO(PULL, ASKED_ENDS),                   \
      "the source has not published enough, and is asked again after growing pauses; or pages "    \
      "are being allocated before the request; or peers are being asked which of them has the "    \
      "tokens",                                                                                    \
      "waiting")                                                                                   \
    X(PULL, ASKED_ENDS, TO(PULL, EMPTY),                                                           \
      "ends without having requested a page, as soon as a step has room for the actions", "asked") \
    X(PULL, RUNNING, TO(PULL, GIVEN_UP) | TO(PULL, RUNNING_ENDS),                                  \
      "pages arrive, batch by batch, and are published", "running")                                \
    X(PULL, GIVEN_UP, TO(PULL, RUNNING_ENDS),                                                      \
      "the source refused a page; the transfer waits for the source's message with the reason",    \
      "running")                                                                                   \
    X(PULL, RUNNING_ENDS, TO(PULL, STOPPING),                                                      \
      "requests no more pages, and ends as soon as a step has room for the actions", "running")    \
    X(PULL, STOPPING, TO(PULL, EMPTY),                                                             \
      "ended for its session; waits for the proof that nothing writes its pages", "stopping")

STATE_MACHINE(pull, PULL, PULL_STATE_TABLE)

/* A transfer out. */
#define SERVE_STATE_TABLE(X)                                                                       \
    X(SERVE, EMPTY, TO(SERVE, WALKING), "there is none", "empty")                                  \
    X(SERVE, WALKING, TO(SERVE, SEALING) | TO(SERVE, SEALING_ENDS) | TO(SERVE, EMPTY),             \
      "the peer is asked for its next tokens; the prefix found so far is pinned", "walking")       \
    X(SERVE, SEALING, TO(SERVE, OPEN) | TO(SERVE, SEALING_ENDS),                                   \
      "its pages are pinned; some checksums are still being computed", "sealing")                  \
    X(SERVE, SEALING_ENDS, TO(SERVE, EMPTY),                                                       \
      "ends before its offer, as soon as a step has room for the actions", "sealing")              \
    X(SERVE, OPEN, TO(SERVE, OPEN_ENDS), "offered: the peer may read the pages", "open")           \
    X(SERVE, OPEN_ENDS, TO(SERVE, STOPPING), "ends as soon as there is room for the actions",      \
      "open")                                                                                      \
    X(SERVE, STOPPING, TO(SERVE, UNTOLD) | TO(SERVE, EMPTY),                                       \
      "ended; the pages stay pinned until the data path proves that nothing reads them",           \
      "stopping")                                                                                  \
    X(SERVE, UNTOLD, TO(SERVE, EMPTY),                                                             \
      "a ticket was offered, and nothing reads its pages any more; the peer has not reported how " \
      "the fetch ended, and may have all pages",                                                   \
      "stopping")

STATE_MACHINE(serve, SERVE, SERVE_STATE_TABLE)

/* A reset of a namespace on its way to the peers. */
#define RESET_STATE_TABLE(X)                                                                       \
    X(RESET, EMPTY, TO(RESET, ASKED), "there is none", "empty")                                    \
    X(RESET, ASKED, TO(RESET, OWED) | TO(RESET, OVER) | TO(RESET, EMPTY),                          \
      "the reset is being sent to the peers; an engine, or the peer that sent it here, may wait "  \
      "for the answer",                                                                            \
      "asked")                                                                                     \
    X(RESET, OWED, TO(RESET, ASKED) | TO(RESET, OVER) | TO(RESET, EMPTY),                          \
      "answered; peers that were not connected receive the reset when they connect", "owed")       \
    X(RESET, OVER, TO(RESET, EMPTY),                                                               \
      "all peers have received it; it is kept while there is room, so that no older reset takes "  \
      "effect",                                                                                    \
      "over")

STATE_MACHINE(reset, RESET, RESET_STATE_TABLE)

/* A peer's knowledge of a reset. */
#define HEARD_STATE_TABLE(X)                                                                       \
    X(HEARD, NOTHING, TO(HEARD, NOTHING) | TO(HEARD, TOLD) | TO(HEARD, ALL),                       \
      "the reset is sent to the peer as soon as it is connected", "nothing")                       \
    X(HEARD, TOLD, TO(HEARD, NOTHING) | TO(HEARD, PARTLY) | TO(HEARD, ALL),                        \
      "the reset was sent to the peer, which has not answered", "told")                            \
    X(HEARD, PARTLY, TO(HEARD, NOTHING) | TO(HEARD, PARTLY) | TO(HEARD, ALL),                      \
      "the peer has reset the namespace and some of its own peers have not, or it has not "        \
      "answered in time",                                                                          \
      "partly")                                                                                    \
    X(HEARD, ALL, TO(HEARD, NOTHING) | TO(HEARD, ALL),                                             \
      "the peer, and all daemons that it could fetch from, have reset the namespace; or there is " \
      "no such peer",                                                                              \
      "all")

STATE_MACHINE(heard, HEARD, HEARD_STATE_TABLE)

/* A file of the disk tier. */
#define DISK_FILE_STATE_TABLE(X)                                                                   \
    X(DISK_FILE, EMPTY, TO(DISK_FILE, WRITING) | TO(DISK_FILE, KEPT), "there is none", "empty")    \
    X(DISK_FILE, WRITING, TO(DISK_FILE, KEPT) | TO(DISK_FILE, EMPTY),                              \
      "is being written; nothing in it can be found yet", "writing")                               \
    X(DISK_FILE, KEPT, TO(DISK_FILE, LEAVING), "durable, and entries need some of its extents",    \
      "kept")                                                                                      \
    X(DISK_FILE, LEAVING, TO(DISK_FILE, EMPTY),                                                    \
      "no entry needs it; its number is free when the file has been removed", "leaving")

STATE_MACHINE(disk_file, DISK_FILE, DISK_FILE_STATE_TABLE)

/* A prefix that is being stored on the disk. */
#define DISK_STORE_STATE_TABLE(X)                                                                  \
    X(DISK_STORE, EMPTY, TO(DISK_STORE, DUE), "there is none", "empty")                            \
    X(DISK_STORE, DUE, TO(DISK_STORE, QUEUED) | TO(DISK_STORE, EMPTY),                             \
      "the store pins nothing: the step that wrote its node has not passed, or the pins were "     \
      "released because others needed the pages",                                                  \
      "due")                                                                                       \
    X(DISK_STORE, QUEUED, TO(DISK_STORE, WRITING) | TO(DISK_STORE, DUE) | TO(DISK_STORE, EMPTY),   \
      "waits for its turn, for checksums or for room on the disk; the pages that it needs are "    \
      "pinned on their tier",                                                                      \
      "queued")                                                                                    \
    X(DISK_STORE, WRITING, TO(DISK_STORE, QUEUED) | TO(DISK_STORE, EMPTY),                         \
      "a file with its next chunks is being written", "writing")

STATE_MACHINE(disk_store, DISK_STORE, DISK_STORE_STATE_TABLE)

/* The words of a machine's states, indexed by state. */
#define STATE_WORD(machine, name, next, comment, word) [machine##_##name] = (word),

#endif
