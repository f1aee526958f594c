/* The error table: every error that Tern can return, written once. The wire, tern_strerror, the
 * documentation and the test that provokes each error use it. Installed beside tern.h, so it
 * includes nothing. Ids are on the wire: append, never renumber. */
#ifndef TERN_ERR_H
#define TERN_ERR_H

/* Category: what the caller does next. */
enum tern_err_category {
    TERN_CAT_OK = 0,
    TERN_CAT_BAD_REQUEST, /* the request is wrong: change it */
    TERN_CAT_RETRY,       /* the same request may succeed later */
    TERN_CAT_BUSY,        /* another caller is working on it: wait, then retry */
    TERN_CAT_GONE,        /* the named object no longer exists: drop the handle */
    TERN_CAT_DENIED,      /* not allowed for this tenant */
    TERN_CAT_IO,          /* bytes could not be read or written as they were */
    TERN_CAT_INTERNAL     /* a bug in Tern: report it with the daemon's log */
};

/* X(name, id, category, text) */
#define TERN_ERR_TABLE(X)                                                                          \
    X(OK, 0, OK, "no error")                                                                       \
    X(INVALID, 1, BAD_REQUEST, "a value is out of range or does not fit the object's state")       \
    X(MALFORMED, 2, BAD_REQUEST,                                                                   \
      "the bytes are not a message of this protocol, or not a turn record")                        \
    X(UNSUPPORTED, 3, BAD_REQUEST, "this build or this peer does not know that request")           \
    X(CONFLICT, 4, BAD_REQUEST, "it conflicts with something that already exists")                 \
    X(POOL_EXHAUSTED, 5, RETRY,                                                                    \
      "not enough pages: wait for the step that the answer names, or release some")                \
    X(PEER_LOST, 6, RETRY, "the other host's daemon is not connected, or was lost")                \
    X(TIMED_OUT, 7, RETRY, "the deadline passed first")                                            \
    X(BUSY, 8, BUSY, "a limit on concurrent work is reached: retry later")                         \
    X(GONE, 9, GONE, "the handle names something that no longer exists")                           \
    X(DENIED, 10, DENIED, "this tenant may not do that")                                           \
    X(QUOTA, 11, DENIED, "more than a configured limit allows: waiting does not help")             \
    X(CORRUPT, 12, IO, "bytes do not match their checksum, also after a repeated transfer")        \
    X(DISK, 13, IO, "the disk could not be written or read")                                       \
    X(INTERNAL, 14, INTERNAL, "a bug in Tern; the daemon's log names the place")                   \
    X(DAEMON_LOST, 15, RETRY, "the connection to this host's daemon ended: connect again")

enum tern_err {
#define X(name, id, category, text) TERN_##name = (id),
    TERN_ERR_TABLE(X)
#undef X
        TERN_ERR_COUNT
};

#endif
