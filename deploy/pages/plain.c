/* Programs without commands: nothing to add. */
#include "pages.h"

void page_commands(struct page *page)
{
    (void)page;
}

bool page_other(const char *what, FILE *out)
{
    (void)what, (void)out;
    return false;
}
