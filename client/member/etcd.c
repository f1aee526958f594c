/* See etcd.h. */
#include "client/member/etcd.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/member/gateway.h"
#include "proto/shown.h"

#define URL_BYTES  (ETCD_ENDPOINT_BYTES + 64)
#define BODY_BYTES 65536u /* bytes of a question: a key and a value in base64 need far less */
#define HTTP_OK    200L

struct etcd {
    CURL *curl; /* owned */
    struct curl_slist *headers;
    const char *endpoints[ETCD_ENDPOINTS_MAX];
    uint32_t n, next, asked; /* endpoints: their number, the one to ask, the one asked last */
    char *answer;            /* owned: GATEWAY_BYTES_MAX */
    size_t bytes;
    bool too_long;
    char error[CURL_ERROR_SIZE], why[ETCD_WHY_BYTES];
};

bool etcd_endpoint_ok(const char *endpoint)
{
    const char *rest = endpoint;
    char address[NODE_ADDRESS_BYTES];

    if (strncmp(endpoint, "http://", 7) == 0)
        rest += 7;
    else if (strncmp(endpoint, "https://", 8) == 0)
        rest += 8;
    return rest != endpoint && strlen(endpoint) < ETCD_ENDPOINT_BYTES &&
           node_address_read(rest, address);
}

static size_t take(char *data, size_t one, size_t n, void *ctx)
{
    struct etcd *e = ctx;

    if (n > GATEWAY_BYTES_MAX - e->bytes) {
        e->too_long = true;
        return 0; /* fewer than received, so libcurl ends the transfer */
    }
    memcpy(e->answer + e->bytes, data, n * one);
    e->bytes += n;
    return n;
}

/* Sets the options of every question. Returns false if this libcurl lacks one. */
static bool set_up(struct etcd *e, const struct etcd_options *o)
{
    CURL *c = e->curl;
    long ms = (long)o->deadline_ms;

    return curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_NOPROXY, "*") == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, ms) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, ms) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_HTTPHEADER, e->headers) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_ERRORBUFFER, e->error) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_WRITEDATA, e) == CURLE_OK &&
           (!o->ca || curl_easy_setopt(c, CURLOPT_CAINFO, o->ca) == CURLE_OK) &&
           (!o->cert || curl_easy_setopt(c, CURLOPT_SSLCERT, o->cert) == CURLE_OK) &&
           (!o->key || curl_easy_setopt(c, CURLOPT_SSLKEY, o->key) == CURLE_OK);
}

struct etcd *etcd_create(const struct etcd_options *options, char why[ETCD_WHY_BYTES])
{
    struct etcd *e = calloc(1, sizeof(*e));

    if (e) {
        memcpy(e->endpoints, options->endpoints, sizeof(e->endpoints));
        e->n = options->nendpoints;
        e->answer = malloc(GATEWAY_BYTES_MAX);
        e->headers = curl_slist_append(NULL, "Content-Type: application/json");
        e->curl = curl_easy_init();
    }
    if (e && e->answer && e->headers && e->curl && set_up(e, options))
        return e;
    snprintf(why, ETCD_WHY_BYTES,
             "there is too little memory, or this libcurl lacks HTTP, or TLS for https://");
    etcd_destroy(e);
    return NULL;
}

void etcd_destroy(struct etcd *e)
{
    if (!e)
        return;
    curl_easy_cleanup(e->curl);
    curl_slist_free_all(e->headers);
    free(e->answer);
    free(e);
}

const char *etcd_why(const struct etcd *e)
{
    return e->why;
}

const char *etcd_endpoint(const struct etcd *e)
{
    return e->endpoints[e->asked];
}

uint32_t etcd_endpoints(const struct etcd *e)
{
    return e->n;
}

static void why_is(struct etcd *e, const char *text)
{
    shown_quoted(e->why, sizeof(e->why), text);
}

void etcd_misread(struct etcd *e)
{
    why_is(e, "the answer is not that of etcd 3.4 or later: check --endpoint");
    e->next = (e->asked + 1) % e->n;
}

/* Returns what an operator should check first, because libcurl names the error but not the setting.
 * An etcd that refuses a certificate may close the connection without naming that reason. */
static const char *advice(CURLcode rc, bool tls)
{
    switch (rc) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return "--cacert must name the CA of etcd's certificate, and the certificate must name the "
               "endpoint's host: ";
    case CURLE_SSL_CERTPROBLEM: return "--cert and --key must be PEM files of one pair: ";
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
        return tls ? "etcd closed the connection, and may require --cert and --key with a "
                     "certificate of its CA: "
                   : "etcd closed the connection, and may require https://: ";
    default: return "";
    }
}

static bool transfer(struct etcd *e, const char *path, const char *body)
{
    char url[URL_BYTES], text[ETCD_WHY_BYTES];
    long status = 0;
    CURLcode rc;

    snprintf(url, sizeof(url), "%s%s", e->endpoints[e->asked], path);
    e->bytes = 0;
    e->too_long = false;
    e->error[0] = '\0';
    if (curl_easy_setopt(e->curl, CURLOPT_URL, url) != CURLE_OK ||
        curl_easy_setopt(e->curl, CURLOPT_POSTFIELDS, body) != CURLE_OK) {
        why_is(e, "there is too little memory");
        return false;
    }
    rc = curl_easy_perform(e->curl);
    if (rc != CURLE_OK) {
        snprintf(text, sizeof(text), "%s%.128s", advice(rc, strncmp(url, "https", 5) == 0),
                 e->too_long   ? "the answer is too long"
                 : e->error[0] ? e->error
                               : curl_easy_strerror(rc));
        why_is(e, text);
        return false;
    }
    curl_easy_getinfo(e->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == HTTP_OK)
        return true;
    snprintf(text, sizeof(text), "status %ld: %.*s", status, (int)(e->bytes < 128 ? e->bytes : 128),
             e->answer);
    why_is(e, text);
    return false;
}

bool etcd_ask(struct etcd *e, const char *path, json_t *body, json_t **ret)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_t *answer = NULL;
    bool ok = false;

    json_decref(body);
    e->asked = e->next;
    if (!text || strlen(text) > BODY_BYTES) {
        why_is(e, "there is too little memory");
    } else if (transfer(e, path, text)) {
        answer = json_loadb(e->answer, e->bytes, JSON_REJECT_DUPLICATES, NULL);
        ok = json_is_object(answer);
        if (!ok)
            why_is(e, "the answer is not a JSON object: check --endpoint");
    }
    free(text);
    if (!ok) {
        json_decref(answer);
        e->next = (e->asked + 1) % e->n;
        return false;
    }
    *ret = answer;
    return true;
}
