/* core/page_states.h has the only table of page states: docs/states.md must show exactly that
 * table, and every state must be reachable from FREE and lead back to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena/page_states.h"
#include "testing/test.h"

static const struct {
    const char *name, *comment;
    unsigned next;
} states[PAGE_STATES] = {
#define X(machine, name, next, comment) {#name, comment, next},
    PAGE_STATE_TABLE(X)
#undef X
};

static char *read_all(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);

    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static void row_of(unsigned s, char *row, size_t cap)
{
    int n = snprintf(row, cap, "| %s | ", states[s].name);
    const char *sep = "";

    for (unsigned to = 0; to < PAGE_STATES; to++)
        if (states[s].next & 1u << to) {
            n += snprintf(row + n, cap - (size_t)n, "%s%s", sep, states[to].name);
            sep = ", ";
        }
    snprintf(row + n, cap - (size_t)n, " | %s |\n", states[s].comment);
}

TEST(page_states_document_shows_the_table)
{
    char *text = read_all(TERN_SOURCE_DIR "/docs/states.md"), row[512];

    for (unsigned s = 0; s < PAGE_STATES; s++) {
        row_of(s, row, sizeof row);
        if (!strstr(text, row))
            fail_msg("docs/states.md lacks the row: %s", row);
    }
    free(text);
}

static unsigned reach(unsigned from)
{
    unsigned set = 1u << from, last = 0;

    while (set != last) {
        last = set;
        for (unsigned s = 0; s < PAGE_STATES; s++)
            if (set & 1u << s)
                set |= states[s].next;
    }
    return set;
}

TEST(page_states_all_come_from_free_and_lead_back)
{
    assert_int_equal(reach(PAGE_FREE), (1u << PAGE_STATES) - 1);
    for (unsigned s = 0; s < PAGE_STATES; s++)
        assert_true(reach(s) & 1u << PAGE_FREE);
}
