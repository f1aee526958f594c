/* The commands of ternctl, each with a table of options of its own. */
#include <stdlib.h>

#include "client/ctl/ctl.h"
#include "pages.h"

void page_commands(struct page *page)
{
    for (size_t i = 0; ctl_groups[i]; i++)
        for (const struct command *c = ctl_groups[i]; c->name; c++) {
            struct page_command *to = &page->command[page->commands++];

            if (page->commands == PAGE_COMMANDS_MAX)
                abort();
            *to = (struct page_command){
                .name = c->name, .args = c->args, .summary = c->summary, .text = c->examples};
            page_add_options(&to->options, c->options);
        }
}

bool page_other(const char *what, FILE *out)
{
    (void)what, (void)out;
    return false;
}
