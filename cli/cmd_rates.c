/* brood rates: the price book: list, set. */
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "cli/cli.h"
#include "cli/money.h"
#include "cli/usage_args.h"
#include "common/base/clock.h"
#include "common/store/ledger.h"

enum {
    OPT_TENANT = 0x2001,
    OPT_FROM,
    OPT_VCPU,
    OPT_GIB,
    OPT_SNAPSHOT,
    OPT_ARTIFACT,
    OPT_ROUNDING,
    OPT_MINIMUM,
    OPT_NOTE
};
enum action { ACTION_NONE, ACTION_LIST, ACTION_SET };

struct opts {
    struct cli_opts base;
    enum action action;
    const char *tenant, *note;
    int64_t from_ms, vcpu, gib, snapshot, artifact, rounding_ms, minimum_ms; /* -1: as before */
};

static void price(int64_t *out, const char *arg, struct argp_state *state)
{
    struct err err;
    if (money_parse(arg, out, &err) < 0) {
        argp_error(state, "%s", err.text);
    } else if (*out < 0) {
        argp_error(state, "%s: a price is not below 0", arg);
    }
}

static void length(int64_t *out, const char *arg, struct argp_state *state)
{
    struct err err;
    if (duration_parse(arg, out, &err) < 0) {
        argp_error(state, "%s", err.text);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    struct err err;
    switch (key) {
    case OPT_TENANT:
        o->tenant = arg;
        return 0;
    case OPT_FROM:
        if (moment_parse(arg, &o->from_ms, &err) < 0) {
            argp_error(state, "%s", err.text);
        }
        return 0;
    case OPT_VCPU:
        price(&o->vcpu, arg, state);
        return 0;
    case OPT_GIB:
        price(&o->gib, arg, state);
        return 0;
    case OPT_SNAPSHOT:
        price(&o->snapshot, arg, state);
        return 0;
    case OPT_ARTIFACT:
        price(&o->artifact, arg, state);
        return 0;
    case OPT_ROUNDING:
        length(&o->rounding_ms, arg, state);
        return 0;
    case OPT_MINIMUM:
        length(&o->minimum_ms, arg, state);
        return 0;
    case OPT_NOTE:
        o->note = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (o->action != ACTION_NONE ||
            (o->action = strcmp(arg, "list") == 0  ? ACTION_LIST
                         : strcmp(arg, "set") == 0 ? ACTION_SET
                                                   : ACTION_NONE) == ACTION_NONE) {
            argp_error(state, "list or set?");
        }
        return 0;
    case ARGP_KEY_END:
        if (o->action == ACTION_NONE) {
            argp_error(state, "list or set?");
        }
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "tenant", .key = OPT_TENANT, .arg = "NAME", .doc = "a card for this tenant alone" },
    { .name = "from",
      .key = OPT_FROM,
      .arg = "TIME",
      .doc = "when it comes into force (UTC, a whole second; default: in a minute)" },
    { .name = "vcpu-second", .key = OPT_VCPU, .arg = "DOLLARS", .doc = "of one vCPU-second" },
    { .name = "gib-second", .key = OPT_GIB, .arg = "DOLLARS", .doc = "of one GiB-second" },
    { .name = "snapshot-gib-hour",
      .key = OPT_SNAPSHOT,
      .arg = "DOLLARS",
      .doc = "of one GiB-hour of kept snapshots" },
    { .name = "artifact-gib-hour",
      .key = OPT_ARTIFACT,
      .arg = "DOLLARS",
      .doc = "of one GiB-hour of artifacts" },
    { .name = "rounding",
      .key = OPT_ROUNDING,
      .arg = "TIME",
      .doc = "a sandbox is charged up to a multiple of this" },
    { .name = "minimum", .key = OPT_MINIMUM, .arg = "TIME", .doc = "and at least this" },
    { .name = "note", .key = OPT_NOTE, .arg = "TEXT", .doc = "kept with the card" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "list\nset",
    .doc =
        "The price book. A card is never changed; a new one comes into force at its time, and what "
        "runs across that moment is billed in two parts.\v"
        "What is not given to set stays as it is at that time. A card of a tenant goes before "
        "those for everyone.\n\n"
        "Examples:\n"
        "  brood rates list\n"
        "  brood rates set --vcpu-second 0.000016 --from 2027-01-01T00:00:00Z\n"
        "  brood rates set --tenant acme --rounding 100ms --minimum 100ms\n",
    .children = cli_globals,
};

static json_t *card_json(const struct rate_card *c)
{
    char from[CLOCK_TEXT_MAX];
    clock_format_ms(c->valid_from_ms, from);
    return json_pack("{s:i, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "id", c->id, "tenant",
                     c->tenant[0] ? json_string(c->tenant) : json_null(), "valid_from", from,
                     "vcpu_second_nanousd", (json_int_t)c->vcpu_second_nanousd,
                     "gib_second_nanousd", (json_int_t)c->gib_second_nanousd,
                     "snapshot_gib_hour_nanousd", (json_int_t)c->snapshot_gib_hour_nanousd,
                     "artifact_gib_hour_nanousd", (json_int_t)c->artifact_gib_hour_nanousd,
                     "rounding_ms", (json_int_t)c->rounding_ms, "minimum_ms",
                     (json_int_t)c->minimum_ms);
}

static void print_json(json_t *root)
{
    (void)json_dumpf(root, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(root);
}

static void print_card(const struct rate_card *c)
{
    char from[MOMENT_TEXT_MAX], p[4][MONEY_TEXT_MAX], rounding[MONEY_TEXT_MAX],
        minimum[MONEY_TEXT_MAX];
    const int64_t v[4] = { c->vcpu_second_nanousd, c->gib_second_nanousd,
                           c->snapshot_gib_hour_nanousd, c->artifact_gib_hour_nanousd };
    for (int i = 0; i < 4; i++) {
        money_format(v[i], p[i]);
    }
    moment_format(c->valid_from_ms, 0, from);
    duration_format(c->rounding_ms, rounding);
    duration_format(c->minimum_ms, minimum);
    (void)printf("%4d  %-16s  %-20s  %12s  %12s  %14s  %14s  %9s  %9s\n", c->id,
                 c->tenant[0] ? c->tenant : "everyone", from, p[0], p[1], p[2], p[3], rounding,
                 minimum);
}

static void print_head(void)
{
    (void)printf("%4s  %-16s  %-20s  %12s  %12s  %14s  %14s  %9s  %9s\n", "card", "for", "from",
                 "vCPU-second", "GiB-second", "snapshot GiB-h", "artifact GiB-h", "rounding",
                 "minimum");
}

static int list(struct cli *cli, struct pg *pg, const struct opts *o, struct err *err)
{
    struct rate_book b;
    int rc = store_rates(pg, &b, err);
    if (rc < 0) {
        return rc;
    }
    json_t *cards = json_array();
    if (!cli->json) {
        print_head();
    }
    for (int i = 0; i < b.n; i++) {
        const struct rate_card *c = &b.cards[i];
        if (o->tenant && c->tenant[0] && strcmp(c->tenant, o->tenant) != 0) {
            continue;
        }
        if (cli->json) {
            (void)json_array_append_new(cards, card_json(c));
        } else {
            print_card(c);
        }
    }
    rate_book_done(&b);
    if (cli->json) {
        print_json(cards);
    } else {
        json_decref(cards);
    }
    return 0;
}

static int set(struct cli *cli, struct pg *pg, const struct opts *o, struct err *err)
{
    struct rate_book b;
    int rc = store_rates(pg, &b, err);
    if (rc < 0) {
        return rc;
    }
    const char *tenant = o->tenant ? o->tenant : "";
    const struct rate_card *now = rate_book_at(
        &b, tenant, o->from_ms > 0 ? o->from_ms : wall_ms() + 2 * RATE_NOTICE_S * 1000);
    struct rate_card card = now ? *now : (struct rate_card){ .rounding_ms = 1 };
    rate_book_done(&b);
    if (strlen(tenant) > JOB_TENANT_MAX) {
        return err_set(err, ERR_INVALID, "tenant: at most %d bytes", JOB_TENANT_MAX);
    }
    memset(card.tenant, 0, sizeof card.tenant);
    memcpy(card.tenant, tenant, strlen(tenant));
    card.valid_from_ms = o->from_ms;
    card.vcpu_second_nanousd = o->vcpu >= 0 ? o->vcpu : card.vcpu_second_nanousd;
    card.gib_second_nanousd = o->gib >= 0 ? o->gib : card.gib_second_nanousd;
    card.snapshot_gib_hour_nanousd =
        o->snapshot >= 0 ? o->snapshot : card.snapshot_gib_hour_nanousd;
    card.artifact_gib_hour_nanousd =
        o->artifact >= 0 ? o->artifact : card.artifact_gib_hour_nanousd;
    card.rounding_ms = o->rounding_ms >= 0 ? o->rounding_ms : card.rounding_ms;
    card.minimum_ms = o->minimum_ms >= 0 ? o->minimum_ms : card.minimum_ms;
    struct rate_card made;
    rc = store_rates_set(pg, &card, o->note ? o->note : "", &made, err);
    if (rc < 0) {
        return rc;
    }
    if (cli->json) {
        print_json(card_json(&made));
    } else {
        print_head();
        print_card(&made);
    }
    return 0;
}

int cmd_rates(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base.cli = cli,
                      .vcpu = -1,
                      .gib = -1,
                      .snapshot = -1,
                      .artifact = -1,
                      .rounding_ms = -1,
                      .minimum_ms = -1 };
    struct err err;
    cleanup_pg struct pg pg = { 0 };
    int rc = cli_begin(cli, &argp, argc, argv, &o.base, &pg, NULL);
    if (rc != 0) {
        return rc;
    }
    rc = o.action == ACTION_SET ? set(cli, &pg, &o, &err) : list(cli, &pg, &o, &err);
    return rc < 0 ? cli_fail(cli, &err) : CLI_OK;
}
