/* The names of the reasons in tls.h, with TLS in the build or without. */
#include "base/check.h"
#include "shell/tls/tls.h"

const char *tls_refusal_name(enum tls_refusal why)
{
    static const char *const names[TLS_REFUSALS] = {
        [TLS_NO_CERTIFICATE] = "no_certificate",   [TLS_WRONG_CA] = "wrong_ca",
        [TLS_WRONG_NAME] = "wrong_name",           [TLS_EXPIRED] = "expired",
        [TLS_BAD_CERTIFICATE] = "bad_certificate", [TLS_OLD_VERSION] = "old_version",
        [TLS_BAD_HANDSHAKE] = "bad_handshake",     [TLS_BAD_RECORD] = "bad_record",
        [TLS_PEER_REFUSED] = "refused_by_peer",    [TLS_TIMEOUT] = "timeout",
        [TLS_CLEAR_TEXT] = "clear_text",           [TLS_NO_ROOM] = "no_room",
    };

    check(why < TLS_REFUSALS);
    return names[why];
}
