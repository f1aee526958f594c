/* See host_name.h. */
#include "proto/host_name.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <string.h>

#define LABEL_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

/* A link-local address may be followed by its interface. */
static bool is_ipv6(const char *host)
{
    char text[INET6_ADDRSTRLEN];
    const char *scope = strchr(host, '%');
    size_t n = scope ? (size_t)(scope - host) : strlen(host);
    struct in6_addr address;

    if (n >= sizeof text || (scope && (strlen(scope + 1) == 0 || strlen(scope + 1) >= IF_NAMESIZE ||
                                       scope[1 + strspn(scope + 1, LABEL_CHARS ".")] != '\0')))
        return false;
    memcpy(text, host, n);
    text[n] = '\0';
    return inet_pton(AF_INET6, text, &address) == 1;
}

bool host_name_ok(const char *host)
{
    size_t n;

    if (strchr(host, ':'))
        return is_ipv6(host);
    if (strlen(host) > HOST_NAME_CHARS_MAX)
        return false;
    do {
        n = strspn(host, LABEL_CHARS);
        if (n == 0 || n > HOST_NAME_LABEL_MAX || host[0] == '-' || host[n - 1] == '-')
            return false;
        host += n + (host[n] == '.');
    } while (*host != '\0' && host[-1] == '.');
    return *host == '\0';
}
