/* The names by which clients may address the agent: none that a web page could own. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "client/agent/hosts.h"
#include "testing/test.h"

static struct sockaddr_in four(const char *address)
{
    struct sockaddr_in a = {.sin_family = AF_INET};

    assert_int_equal(inet_pton(AF_INET, address, &a.sin_addr), 1);
    return a;
}

static bool allows(const struct hosts *h, const char *host, const char *local)
{
    const struct sockaddr_in a = four(local);

    return hosts_allow(h, host, (const struct sockaddr *)&a);
}

TEST(agent_is_called_by_its_address_and_localhost)
{
    static const char *const right[] = {
        "10.0.0.1", "10.0.0.1:7003",  "127.0.0.1:7003", "127.1.2.3",  "[::1]:7003",
        "[::1]",    "localhost:7003", "LocalHost",      "localhost.", "a.localhost:80"};
    static const char *const wrong[] = {"10.0.0.2",
                                        "evil.example",
                                        "evil.example:7003",
                                        "localhost.evil.example",
                                        "evillocalhost",
                                        "127.0.0.1.evil.example",
                                        "10.0.0.1.nip.io",
                                        "10.0.0.1:70x",
                                        "10.0.0.1@evil.example",
                                        "[::1",
                                        "[::1]x",
                                        "::1",
                                        "[localhost]",
                                        "0.0.0.0",
                                        "",
                                        ":7003",
                                        "-x",
                                        "localhost\n"};
    const struct hosts none = {.n = 0};

    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        if (!allows(&none, right[i], "10.0.0.1"))
            fail_msg("'%s' is refused", right[i]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (allows(&none, wrong[i], "10.0.0.1"))
            fail_msg("'%s' is taken", wrong[i]);
    assert_false(allows(&none, NULL, "10.0.0.1"));
}

TEST(agent_is_called_by_names_that_were_added)
{
    struct hosts h = {.n = 0};

    assert_true(hosts_add(&h, "node1.example"));
    assert_true(hosts_add(&h, "10.9.9.9"));
    assert_false(hosts_add(&h, "-x"));
    assert_false(hosts_add(&h, "*"));
    assert_true(allows(&h, "NODE1.example:7003", "10.0.0.1"));
    assert_true(allows(&h, "10.9.9.9", "10.0.0.1"));
    assert_false(allows(&h, "node2.example", "10.0.0.1"));
    while (h.n < HOSTS_MAX)
        assert_true(hosts_add(&h, "h"));
    assert_false(hosts_add(&h, "h"));
}

TEST(agent_at_an_address_of_both_families_knows_it_in_either)
{
    const struct hosts none = {.n = 0};
    struct sockaddr_in6 a = {.sin6_family = AF_INET6};

    assert_int_equal(inet_pton(AF_INET6, "::ffff:10.0.0.1", &a.sin6_addr), 1);
    assert_true(hosts_allow(&none, "10.0.0.1:1", (const struct sockaddr *)&a));
    assert_false(hosts_allow(&none, "10.0.0.2:1", (const struct sockaddr *)&a));
    assert_int_equal(inet_pton(AF_INET6, "fd00::7", &a.sin6_addr), 1);
    assert_true(hosts_allow(&none, "[fd00:0::7]:1", (const struct sockaddr *)&a));
    assert_false(hosts_allow(&none, "[fd00::8]:1", (const struct sockaddr *)&a));
}
