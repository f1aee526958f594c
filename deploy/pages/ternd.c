/* The page of ternd's configuration file, from the table of settings that reads it. */
#include <string.h>

#include <tern_version.h>

#include "pages.h"
#include "shell/config/config_table.h"

void page_commands(struct page *page)
{
    (void)page;
}

static void setting(const struct setting *s, FILE *out)
{
    fputc('*', out);
    page_words(s->key, out);
    fputc('*', out);
    if (s->initial && *s->initial) {
        fputs(" (", out);
        page_words(s->initial, out);
        fputc(')', out);
    }
    fputs("\n\t", out);
    page_words(s->doc, out);
    fputs(".\n\n", out);
}

static void list(const char *name, const char *text, const struct setting *fields, size_t n,
                 FILE *out)
{
    fprintf(out, "# %s\n\n", name);
    page_text(text, out);
    for (size_t i = 0; i < n; i++)
        setting(&fields[i], out);
}

bool page_other(const char *what, FILE *out)
{
    const char *section = "";

    if (strcmp(what, "yaml") != 0)
        return false;
    fprintf(out,
            "ternd.yaml(5) \"Tern %s\" \"Tern\"\n\n# NAME\n\nternd.yaml - the configuration of "
            "ternd\n\n# DESCRIPTION\n\n",
            TERN_VERSION);
    page_text(
        "The file is YAML. A setting is a key at the top of the file or below its section, with "
        "its "
        "default in brackets here. What has none is derived from the others, and `ternd "
        "--check-config` prints it.\n\nSizes may end in K, M, G or T, in powers of 1024. An "
        "unknown "
        "key is an error, and every error names its line. Each setting is a flag of ternd(8) too, "
        "and a flag overrides the file.\n\n",
        out);
    fputs("# SETTINGS\n\n", out);
    for (size_t i = 0; i < config_settings_n; i++) {
        const struct setting *s = &config_settings[i];

        if (strcmp(section, s->section) != 0)
            fprintf(out, "## %s:\n\n", s->section);
        section = s->section;
        setting(s, out);
    }
    list(
        "TENANTS",
        "`tenants` is a list. Each entry has these keys; name, socket and memory have to be there.",
        config_tenant_fields, TENANT_FIELDS, out);
    list("PEERS",
         "`peers` is a list. Each entry has these keys, and `tenants`: a list of the names of "
         "those that the "
         "peer may ask for.",
         config_peer_fields, PEER_FIELDS, out);
    return true;
}
