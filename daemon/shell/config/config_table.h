/* The table of settings. A row has section and key in YAML (the flag is --SECTION.KEY, or --KEY
 * without a section), field, kind of value, range, default and meaning. The readers of the file and
 * of the flags walk the table, and so does the printer. A new setting is a row in config_table.c, a
 * field in config.h and a line in deploy/ternd.yaml (test_config compares). Used by config*.c, and
 * by alarms.c to find the limits that are settings. */
#ifndef SHELL_CONFIG_TABLE_H
#define SHELL_CONFIG_TABLE_H

#include "shell/config/config.h"

/* X(NAME, form of the value in --help) */
#define VALUE_TABLE(X)                                                                             \
    X(COUNT, "N")     /* a whole number; fields of 2, 4 and 8 bytes */                             \
    X(BYTES, "BYTES") /* a number of bytes, with an optional K, M, G or T (powers of 1024) */      \
    X(MODE, "MODE")   /* octal */                                                                  \
    X(BOOL, "BOOL")                                                                                \
    X(NAME, "NAME")                                                                                \
    X(PATH, "PATH")                                                                                \
    X(ENDPOINT, "HOST:PORT") /* [v6]:port */                                                       \
    X(LEVEL, "LEVEL")                                                                              \
    X(TRANSPORT, "TRANSPORT")                                                                      \
    X(DEVICES, "NAME+NAME") /* up to `max` different names; or `initial`, which is no name */      \
    X(NICS, "NAME+NAME")    /* the same with names that may be equal */                            \
    X(BY_PORT, "N|auto")    /* a whole number; or auto, read as XFER_BY_PORT */

enum value_kind {
#define X(NAME, form) VALUE_##NAME,
    VALUE_TABLE(X)
#undef X
};

/* The effect of a reload on a changed setting. */
enum setting_change {
    CHANGE_UNSAID = 0, /* not allowed in a row */
    CHANGE_LIVE,       /* applied: the value is read where it is used */
    CHANGE_SIZED,      /* needs a restart: memory and tables are sized by the value */
    CHANGE_STARTS,     /* needs a restart: the value is used once, at start */
};

struct setting {
    const char *section; /* "" for the top of the file */
    const char *key;
    enum value_kind kind;
    enum setting_change change;
    size_t offset, size; /* in struct config, struct config_tenant or struct config_peer */
    uint64_t min, max;
    const char *initial; /* default; NULL: derived from others, or required in a list's entry */
    const char *doc;
};

#define SETTINGS_MAX  CONFIG_SETTINGS_MAX
#define TENANT_FIELDS 15
#define TENANT_SIZES  4                   /* index of the first field that `reserve` has too */
#define PEER_FIELDS   3                   /* without the list of tenants, which is PEER_NAMES */
#define PEER_ADDRESS  1                   /* index of the address */
#define PEER_NAMES    TENANT_FIELDS       /* index of a peer's list of tenants */
#define ENTRY_ITSELF  (TENANT_FIELDS + 1) /* index that stands for the whole entry */
#define COUNT_MAX     (1u << 28)
#define MEMORY_MAX    ((uint64_t)1 << 50)
#define SPILL_PART    UINT64_MAX /* value of tenants[].spill_bytes while it is not set */
#define DEADLINE_MIN  10
#define DEADLINE_MAX  3600000

extern const struct setting config_settings[];
extern const size_t config_settings_n;
extern const struct setting config_tenant_fields[TENANT_FIELDS];
extern const struct setting config_peer_fields[PEER_FIELDS];

/* Settings of older versions, refused by name with advice. */
struct retired {
    const char *section, *keys, *instead; /* keys: separated by blanks */
};

#define RETIRED_SETTINGS 20
extern const struct retired config_retired[RETIRED_SETTINGS];

enum origin { ORIGIN_DEFAULT = 0, ORIGIN_FILE, ORIGIN_FLAG };

/* The state of config_load until the configuration is whole. */
struct loader {
    struct config *config; /* owned until returned */
    enum origin origin[SETTINGS_MAX];
    enum origin tenant_origin[CONFIG_TENANTS_MAX], peer_origin[CONFIG_PEERS_MAX];
    uint32_t reserved;                         /* tenants of the reserve, the last ones */
    uint32_t tenant_given[CONFIG_TENANTS_MAX]; /* bit f: the entry sets config_tenant_fields[f] */
    /* Owned. Names, each followed by '+'; config_resolve reads them. NULL: none. */
    char *peer_tenants[CONFIG_PEERS_MAX];
    const char *file_name; /* borrowed; for messages */
    const uint8_t *text;   /* the YAML bytes; NULL without a file */
    uint8_t *file_bytes;   /* owned; the same bytes, if config_load read them */
    size_t text_bytes;
    /* Lines of the file, from 1; 0: not in the file. Lines of an entry: by loader_field's index. */
    uint32_t line; /* line being read; 0: none is */
    uint32_t row_line[SETTINGS_MAX];
    uint32_t tenant_line[CONFIG_TENANTS_MAX][ENTRY_ITSELF + 1];
    uint32_t peer_line[CONFIG_PEERS_MAX][ENTRY_ITSELF + 1];
    char *why; /* borrowed */
    size_t why_cap;
};

/* config_values.c. Reads `text` into the field at `base`; ret_reason receives the valid form. */
#define REASON_BYTES 256
enum tern_err value_parse(const struct setting *s, const char *text, void *base,
                          char ret_reason[REASON_BYTES]);
/* The text that is read as that value, cut to `cap`; "": a file or tenant without a name. Allocates
 * nothing. */
#define VALUE_TEXT_BYTES 8448 /* enough for any value */
void value_text(const struct setting *s, const void *base, char *ret, size_t cap);

/* config_yaml.c */
enum tern_err yaml_load(struct loader *l);

/* config_flags.c. first: reads only the flags that choose the file and its use. */
enum tern_err flags_read(int argc, char **argv, struct loader *l, bool first);

/* config_loader.c: these store values of the file and of flags. On failure each writes *why. */
enum tern_err loader_set(struct loader *l, size_t setting, const char *text, enum origin origin);
enum tern_err loader_entry_add(struct loader *l, const char *list, enum origin origin,
                               uint32_t *ret_slot); /* list: tenants or peers */
enum tern_err loader_entry_set(struct loader *l, const char *list, uint32_t slot, size_t field,
                               const char *text);
enum tern_err loader_peer_tenant(struct loader *l, uint32_t slot, const char *name);
bool loader_is_list(const char *section); /* tenants or peers */
/* The row of a setting; config_settings_n: no such setting. */
size_t loader_row(const char *section, const char *key);
/* The field of an entry of `tenants` or `peers`; ENTRY_ITSELF: no such field. */
size_t loader_field(struct loader *l, const char *list, const char *key);
/* The advice for a retired setting; NULL: no retired setting has that name. */
const char *loader_retired(const char *section, const char *key);
uint32_t *loader_lines(struct loader *l, const char *list, uint32_t slot); /* indexed by field */
/* The origin of a setting's value. */
enum origin loader_origin(const struct loader *l, const char *section, const char *key);
/* Writes the place of a value (line of the file, or flag), then the message. Returns INVALID.
 * index: of a list's entry; -1: no list. */
enum tern_err loader_fail(struct loader *l, enum origin origin, const char *section, int index,
                          const char *key, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* The same for a setting, or for entry i of a list; key NULL: the whole entry. */
#define setting_fail(l, section, key, ...)                                                         \
    loader_fail(l, loader_origin(l, section, key), section, -1, key, __VA_ARGS__)
#define tenant_fail(l, i, key, ...)                                                                \
    loader_fail(l, (l)->tenant_origin[i], "tenants", (int)(i), key, __VA_ARGS__)
#define peer_fail(l, i, key, ...)                                                                  \
    loader_fail(l, (l)->peer_origin[i], "peers", (int)(i), key, __VA_ARGS__)

/* ---- config_derive.c, the second half of loading. config.c calls config_resolve, config_derive
 * and config_check, in this order. ---- */

/* Resolves the tenants of peers and adds the reserve's tenants. Refuses duplicates, and entries
 * without a name, a socket or memory. */
enum tern_err config_resolve(struct loader *l);

/* config_peer.c: the fault in the entry of a peer that has a name; NULL: none. */
const char *config_peer_wrong(const struct config_peer *peer);
/* Reads NAME+NAME into the bits of those tenants. INVALID: an unknown name, or none. */
enum tern_err config_peer_tenants(const struct config *config, const char *names, uint64_t *ret,
                                  char why[REASON_BYTES]);

/* Derives settings that have neither a value nor a fixed default. */
void config_derive(struct loader *l);

/* Checks the whole. Refuses, among others, more memory than the machine has, limits that the core
 * does not accept, and peers in the clear without consent. */
enum tern_err config_check(struct loader *l);

#endif
