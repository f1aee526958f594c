/* The agent's HTTP server, over libmicrohttpd: only GET and HEAD of a few paths. */
#ifndef AGENT_HTTP_H
#define AGENT_HTTP_H

#include "client/agent/agent.h"
#include "client/agent/hosts.h"

#define HTTP_CONNECTIONS_MAX    32u /* open at a time */
#define HTTP_CONNECTIONS_OF_ONE 16u /* of one address */
#define HTTP_REQUEST_BYTES_MAX  16384u
#define HTTP_CONNECTION_MS_MAX  10000u /* without a completely answered request */
#define HTTP_LISTEN_BACKLOG     64
#define HTTP_ANSWER_BYTES_MAX   (16u << 20)
#define HTTP_WHY_BYTES          256u

struct addrinfo;
struct http;

/* Reads ADDRESS:PORT, or [ADDRESS]:PORT, for freeaddrinfo; for port 0 the kernel chooses one. The
 * address is numeric: no name is resolved. NULL: `why` is the error. */
struct addrinfo *http_listen_address(const char *listen, char why[HTTP_WHY_BYTES]);

/* `agent` and `hosts` are borrowed. NULL: `why` is the error. */
struct http *http_create(struct agent *agent, const struct addrinfo *listen,
                         const struct hosts *hosts, char why[HTTP_WHY_BYTES]);
void http_address(const struct http *h, char ret[HTTP_WHY_BYTES]); /* where it listens */
/* Waits for requests, or until `wake_fd` is readable, and answers. Takes at most a second. */
void http_run(struct http *h, int wake_fd);
void http_destroy(struct http *h);

#endif
