/* The changes that a reload finds, and what a reload can do about each setting. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell/config/config.h"
#include "shell/config/config_table.h"
#include "testing/test.h"

#define FOUND_MAX              32
#define TENANT(name)           "  - {name: " name ", socket: /tmp/" name ".sock, memory: 64M}\n"
#define PEER(name, port, rest) "  - {name: " name ", address: \"h:" port "\", tenants: " rest "}\n"

static struct config *configs[4];
static uint32_t nconfigs;
static struct config_change found[FOUND_MAX];
static uint32_t nfound;
static char refusal[1024]; /* words of the last one, which are borrowed for the call */

FIXTURE(drop_all)
{
    while (nconfigs > 0)
        config_destroy(configs[--nconfigs]);
    return 0;
}

TEST_EACH(NULL, drop_all);

static struct config *loaded(const char *text)
{
    char why[CONFIG_WHY_BYTES] = "";

    assert_true(nconfigs < sizeof configs / sizeof *configs);
    if (config_load_text("t.yaml", text, strlen(text), &configs[nconfigs], why, sizeof why) !=
        TERN_OK)
        fail_msg("refused: %s", why);
    return configs[nconfigs++];
}

static bool take(void *ctx, const struct config_change *change)
{
    (void)ctx;
    assert_true(nfound < FOUND_MAX);
    found[nfound++] = *change;
    if (change->why)
        snprintf(refusal, sizeof refusal, "%s", change->why);
    return change->why == NULL;
}

static void compare(const struct config *was, const struct config *is)
{
    nfound = 0;
    config_compare(was, is, take, NULL);
}

static void assert_found(uint32_t i, const char *setting, const char *was, const char *is)
{
    assert_true(i < nfound);
    assert_string_equal(found[i].setting, setting);
    assert_string_equal(found[i].was, was);
    assert_string_equal(found[i].is, is);
}

static const char *source_of(const char *file, char ret[4096])
{
    const char *source = getenv("TERN_SOURCE");

    snprintf(ret, 4096, "%s/%s", source ? source : ".", file);
    return ret;
}

TEST(every_setting_says_what_a_reload_can_do)
{
    static char text[1 << 20];
    char path[4096], name[128], *list, *end;
    FILE *f = fopen(source_of("docs/operations.md", path), "re");

    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    list = strstr(text, "A reload changes `");
    assert_non_null(list);
    end = strstr(list, ". ");
    assert_non_null(end);
    *end = '\0';
    for (size_t i = 0; i < config_settings_n; i++) {
        const struct setting *s = &config_settings[i];

        if (s->change == CHANGE_UNSAID)
            fail_msg("%s.%s does not say it", s->section, s->key);
        snprintf(name, sizeof name, "`%s%s%s`", s->section, *s->section ? "." : "", s->key);
        if ((strstr(list, name) != NULL) != (s->change == CHANGE_LIVE))
            fail_msg("docs/operations.md says otherwise of %s", name);
    }
    for (size_t i = 0; i < TENANT_FIELDS; i++)
        assert_int_not_equal(config_tenant_fields[i].change, CHANGE_UNSAID);
    for (size_t i = 0; i < PEER_FIELDS; i++)
        assert_int_equal(config_peer_fields[i].change, CHANGE_LIVE);
}

/* Each setting in turn gets another value: that change alone is found, and can be applied. */
TEST(each_setting_is_compared)
{
    const char *text = "tenants:\n" TENANT("default");
    struct config *was = loaded(text), *is = loaded(text);

    compare(was, is);
    assert_int_equal(nfound, 0);
    for (size_t i = 0; i < config_settings_n; i++) {
        const struct setting *s = &config_settings[i];
        uint8_t *field = (uint8_t *)is + s->offset;

        field[0] ^= 1;
        compare(was, is);
        assert_int_equal(nfound, 0); /* not set: it follows from others */
        is->given[i] = true;
        compare(was, is);
        assert_int_equal(nfound, 1);
        assert_int_equal(found[0].row, i);
        assert_int_equal(found[0].why == NULL, s->change == CHANGE_LIVE);
        config_take(was, is, &found[0]);
        compare(was, is);
        assert_int_equal(nfound, 0);
    }
}

TEST(a_change_says_what_was_and_what_is)
{
    struct config *was = loaded("deadlines: {drain_ms: 100}\ntenants:\n" TENANT("a") TENANT("b")),
                  *is = loaded("log_level: debug\ntls: {}\nlimits: {pools: 9}\ntenants:\n"
                               "  - {name: b, socket: /tmp/b.sock, memory: 32M}\n" TENANT("c"));

    compare(was, is);
    assert_int_equal(nfound, 6);
    assert_found(0, "log_level", "info", "debug");
    assert_null(found[0].why);
    assert_found(1, "deadlines.drain_ms", "100", "10000"); /* no longer set */
    assert_found(2, "limits.pools", "32", "9");
    assert_non_null(found[2].why);
    assert_found(3, "tenants[a]", "a", "");
    assert_found(4, "tenants[b].memory", "67108864", "33554432");
    assert_found(5, "tenants[c]", "", "c");
    assert_non_null(found[5].why);
}

TEST(a_value_that_is_too_long_for_an_answer_is_cut)
{
    static char text[4096];
    struct config *was = loaded("tenants:\n" TENANT("a")), *is;
    size_t n;

    snprintf(text, sizeof text, "tape: {file: /%01000d}\ntenants:\n" TENANT("a"), 0);
    is = loaded(text);
    compare(was, is);
    assert_int_equal(nfound, 1);
    n = strlen(found[0].is);
    assert_int_equal(n, CONFIG_CHANGE_VALUE - 1);
    assert_string_equal(found[0].is + n - 3, "...");
}

/* Peers are found by name, at any place of the list. */
TEST(peers_are_compared_by_name)
{
    const char *head = "insecure_peers: true\n";
    char text[2][1024];
    struct config *was, *is;

    snprintf(text[0], sizeof text[0],
             "%stenants:\n" TENANT("a") TENANT("b") "peers:\n" PEER("x", "1", "[a]")
                 PEER("y", "2", "[a, b]") PEER("z", "3", "[b]"),
             head);
    snprintf(text[1], sizeof text[1],
             "%stenants:\n" TENANT("b") TENANT("a") "peers:\n" PEER("z", "3", "[b]")
                 PEER("w", "4", "[a]") PEER("y", "5", "[b]"),
             head);
    was = loaded(text[0]);
    is = loaded(text[0]);
    compare(was, is);
    assert_int_equal(nfound, 0);
    is = loaded(text[1]);
    compare(was, is);
    assert_int_equal(nfound, 4);
    assert_found(0, "peers[x]", "\"h:1\"", "");
    assert_int_equal(found[0].of, CHANGE_OF_PEER_REMOVED);
    assert_found(1, "peers[y].address", "\"h:2\"", "\"h:5\"");
    assert_int_equal(found[1].of, CHANGE_OF_PEER);
    assert_int_equal(found[1].slot, 1);
    assert_int_equal(found[1].from, 2);
    assert_found(2, "peers[y].tenants", "a+b", "b"); /* z has the same change */
    assert_found(3, "peers[w]", "", "\"h:4\"");
    assert_int_equal(found[3].of, CHANGE_OF_PEER_ADDED);
    assert_int_equal(found[3].slot, 1);
}

/* ---- tenants that join ---- */

#define RESERVE          "reserve: {tenants: 2, like: a}\nspill: {dir: /tmp, bytes: 60M}\n"
#define NEW(name, sizes) "  - {name: " name ", socket: /tmp/" name ".sock" sizes "}\n"

TEST(new_tenants_take_the_free_slots)
{
    struct config *was = loaded(RESERVE "insecure_peers: true\ntenants:\n" TENANT(
                      "a") "peers:\n" PEER("x", "1", "[a]")),
                  *is = loaded(RESERVE "insecure_peers: true\ntenants:\n" NEW("c", "") TENANT("a")
                                   NEW("b", ", memory: 64M, mode: 0600")
                                       NEW("d", "") "peers:\n" PEER("x", "1", "[b, a, d]"));

    compare(was, is);
    assert_int_equal(nfound, 4); /* but no part of the disk tier, which was not set */
    assert_found(0, "tenants[c]", "", "c");
    assert_int_equal(found[0].of, CHANGE_OF_TENANT_ADDED);
    assert_int_equal(found[0].slot, 1);
    assert_int_equal(found[0].from, 0);
    assert_null(found[0].why);
    assert_found(1, "tenants[b]", "", "b");
    assert_int_equal(found[1].slot, 2);
    assert_int_equal(found[1].from, 2);
    assert_null(found[1].why);
    assert_found(2, "tenants[d]", "", "d"); /* there is no third */
    assert_int_equal(found[2].slot, NONE);
    assert_non_null(found[2].why);
    assert_found(3, "peers[x].tenants", "a", "a+b+d");
    assert_int_equal(found[3].tenants, 1 | 1 << 2); /* a tenant that does not join is no peer's */
}

static void assert_unfit(const char *sizes, const char *why)
{
    struct config *was = loaded(RESERVE "tenants:\n" TENANT("a")), *is;
    char text[512];

    snprintf(text, sizeof text, RESERVE "tenants:\n" TENANT("a") NEW("b", "%s"), sizes);
    is = loaded(text);
    compare(was, is);
    assert_int_equal(nfound, 1);
    assert_found(0, "tenants[b]", "", "b");
    assert_int_equal(found[0].slot, 1);
    assert_non_null(found[0].why);
    assert_ptr_equal(strstr(refusal, why), refusal);
}

TEST(a_new_tenant_of_other_sizes_hears_which)
{
    assert_unfit(", memory: 63M",
                 "memory is 66060288, and that of the reserve is 67108864; use the sizes of");
    drop_all(NULL);
    assert_unfit(", memory: 64M, regions: 2, sessions_max: 7",
                 "regions is 2, and that of the reserve is 1; sessions_max is 7, and that of the "
                 "reserve is 4096;");
    drop_all(NULL);
    assert_unfit(", devices: x, spill_bytes: 1M",
                 "spill_bytes is 1048576, and that of the reserve is 20971520; devices is");
}

TEST(without_a_reserve_new_tenants_hear_of_it)
{
    struct config *was = loaded("tenants:\n" TENANT("a")),
                  *is = loaded("tenants:\n" TENANT("a") TENANT("b"));

    compare(was, is);
    assert_int_equal(nfound, 1);
    assert_int_equal(found[0].slot, NONE);
    assert_non_null(strstr(refusal, "reserve.tenants reserves memory"));
}

/* A tenant that has joined keeps its slot, at any place of the file; its removed settings are
 * reported as for any other. */
TEST(a_tenant_that_has_joined_is_one_of_the_file)
{
    struct config *was = loaded(RESERVE "tenants:\n" TENANT("a")),
                  *is = loaded(RESERVE "tenants:\n" NEW("b", "") TENANT("a"));

    memcpy(was->tenants[1].name, "b", 2);
    memcpy(was->tenants[1].socket, "/tmp/b.sock", sizeof "/tmp/b.sock");
    was->tenants[1].mode = 0660;
    compare(was, is);
    assert_int_equal(nfound, 0);
    compare(was, loaded(RESERVE "tenants:\n" TENANT("a")));
    assert_int_equal(nfound, 1);
    assert_found(0, "tenants[b]", "b", "");
    assert_non_null(found[0].why);
}
