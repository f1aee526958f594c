/* See hosts.h. */
#include "client/agent/hosts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#include "proto/host_name.h"

#define LOCALHOST "localhost"

/* Reads the host without its port, brackets and last dot. Returns false if it is invalid. */
static bool read_host(const char *text, char ret[HOST_NAME_CHARS_MAX + 2])
{
    const char *end = text + strlen(text), *colon = strrchr(text, ':'), *from = text;

    if (*text == '[') {
        const char *close = strchr(text, ']');

        if (!close || (close[1] != '\0' && close[1] != ':'))
            return false;
        colon = close[1] ? close + 1 : NULL;
        from = text + 1;
        end = close;
    } else if (colon) {
        end = colon;
    }
    if (colon && colon[1 + strspn(colon + 1, "0123456789")] != '\0')
        return false;
    if (end > from && end[-1] == '.')
        end--;
    if (end - from > HOST_NAME_CHARS_MAX)
        return false;
    memcpy(ret, from, (size_t)(end - from));
    ret[end - from] = '\0';
    return (*text == '[') == (strchr(ret, ':') != NULL) && host_name_ok(ret);
}

/* Reads an address; IPv4 becomes the mapped IPv6 address. Returns false if it is invalid. */
static bool read_address(const char *host, struct in6_addr *ret)
{
    struct in_addr four;

    if (inet_pton(AF_INET, host, &four) != 1)
        return inet_pton(AF_INET6, host, ret) == 1;
    *ret = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&ret->s6_addr[12], &four, sizeof four);
    return true;
}

static bool is_loopback(const struct in6_addr *a)
{
    return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

static bool is_local(const struct in6_addr *a, const struct sockaddr *local)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct in6_addr here;

    if (local->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)local)->sin_addr, text,
                  sizeof text);
    else if (local->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)local)->sin6_addr, text,
                  sizeof text);
    return read_address(text, &here) && memcmp(&here, a, sizeof here) == 0;
}

/* localhost, and names that end in .localhost, which never go to a name service. */
static bool is_localhost(const char *host)
{
    size_t n = strlen(host), last = strlen(LOCALHOST);

    return n >= last && strcasecmp(host + n - last, LOCALHOST) == 0 &&
           (n == last || host[n - last - 1] == '.');
}

bool hosts_add(struct hosts *hosts, const char *name)
{
    if (hosts->n == HOSTS_MAX || !host_name_ok(name))
        return false;
    hosts->name[hosts->n++] = name;
    return true;
}

bool hosts_allow(const struct hosts *hosts, const char *host, const struct sockaddr *local)
{
    char name[HOST_NAME_CHARS_MAX + 2];
    struct in6_addr address;

    if (!host || !read_host(host, name))
        return false;
    for (uint32_t i = 0; i < hosts->n; i++)
        if (strcasecmp(name, hosts->name[i]) == 0)
            return true;
    if (read_address(name, &address))
        return is_loopback(&address) || is_local(&address, local);
    return is_localhost(name);
}
