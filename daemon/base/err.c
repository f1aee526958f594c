/* The error table as functions. */
#include "base/err.h"

static const struct {
    const char *name, *text;
    enum tern_err_category category;
} table[TERN_ERR_COUNT] = {
#define X(name, id, category, text) [id] = {#name, text, TERN_CAT_##category},
    TERN_ERR_TABLE(X)
#undef X
};

static int known(enum tern_err err)
{
    return (unsigned)err < TERN_ERR_COUNT;
}

const char *err_name(enum tern_err err)
{
    return known(err) ? table[err].name : "UNKNOWN";
}

const char *err_text(enum tern_err err)
{
    return known(err) ? table[err].text : "an error number that this build does not know";
}

enum tern_err_category err_category(enum tern_err err)
{
    return known(err) ? table[err].category : TERN_CAT_INTERNAL;
}
