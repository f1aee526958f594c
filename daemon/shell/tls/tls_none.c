/* A build without OpenSSL: no session is made, and a configuration that asks for TLS is refused. */
#include <stdio.h>

#include "base/check.h"
#include "shell/tls/tls.h"

/* Each function takes what the one with OpenSSL needs. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

bool tls_built(void)
{
    return false;
}

uint64_t tls_bytes(uint32_t sessions)
{
    return 0;
}

enum tern_err tls_create(const struct tls_config *config, struct tls **ret, char *why, size_t cap)
{
    snprintf(why, cap, "this ternd was built without OpenSSL");
    return TERN_UNSUPPORTED;
}

void tls_destroy(struct tls *tls)
{
    check(!tls);
}

enum tern_err tls_reload(struct tls *tls, const struct tls_files *files, bool dry_run,
                         struct tls_own *ret, char *why, size_t cap)
{
    snprintf(why, cap, "this ternd was built without OpenSSL");
    return TERN_UNSUPPORTED;
}

void tls_stats(const struct tls *tls, struct tls_stats *ret)
{
    *ret = (struct tls_stats){.reloads = 0};
}

enum tern_err tls_open(struct tls *tls, const char *peer, tls_send *send, void *ctx,
                       struct tls_session **ret)
{
    return TERN_UNSUPPORTED;
}

void tls_close(struct tls_session *s)
{
    check(!s);
}

enum tls_got tls_take(struct tls_session *s, const uint8_t **in, size_t *n, size_t plain_max,
                      const uint8_t **ret_plain, size_t *ret_n)
{
    return TLS_FAILED;
}

bool tls_put(struct tls_session *s, const uint8_t *plain, size_t n)
{
    return false;
}

bool tls_secured(const struct tls_session *s)
{
    return false;
}

enum tls_refusal tls_refusal_of(const struct tls_session *s)
{
    return TLS_BAD_HANDSHAKE;
}

const char *tls_detail(const struct tls_session *s)
{
    return "";
}

bool tls_names(const struct tls_session *s, const char *name)
{
    return false;
}

void tls_peer(const struct tls_session *s, struct tls_peer *ret)
{
    *ret = (struct tls_peer){.version = "", .cipher = ""};
}
