#include "cli/branch_report.h"

#include <string.h>
#include <jansson.h>

#include "cli/money.h"
#include "cli/pages.h"
#include "cli/result_json.h"
#include "cli/safe_text.h"
#include "common/base/cleanup.h"

#define NAME_SHOWN_MAX 400

struct table {
    bool json;
    int rows;
};

static int64_t wall_us(const struct job_result *r)
{
    return r->setup.wall_us + r->run.wall_us;
}

static int64_t cpu_us(const struct job_result *r)
{
    return r->setup.cpu_us + r->run.cpu_us;
}

static int64_t peak_bytes(const struct job_result *r)
{
    return r->run.memory_peak_bytes > r->setup.memory_peak_bytes ? r->run.memory_peak_bytes
                                                                 : r->setup.memory_peak_bytes;
}

static void print_line(const char *name, int depth, bool leaf, int score_micro,
                       const struct job_result *r)
{
    char wall[MONEY_TEXT_MAX], cpu[MONEY_TEXT_MAX], shown[NAME_SHOWN_MAX], score[16] = "";
    duration_us_format(wall_us(r), wall);
    duration_us_format(cpu_us(r), cpu);
    safe_text(shown, sizeof shown, name, strlen(name));
    if (!leaf) {
        (void)snprintf(score, sizeof score, "%d.%04d", score_micro / 1000000,
                       score_micro % 1000000 / 100);
    }
    int width = 40 - 2 * depth;
    (void)printf("%*s%-*s %-16s %6s %12s %12s %8.1f  %s\n", 2 * depth, "", width > 1 ? width : 1,
                 shown, verdict_word(r->verdict), score, wall, cpu,
                 (double)peak_bytes(r) / (1 << 20), r->reason);
}

static int depth_of(const char *path)
{
    int depth = 0;
    for (const char *p = path; *p; p++) {
        depth += *p == '/';
    }
    return depth;
}

static int add_branch(void *ctx, const struct branch_result *b, struct err *err)
{
    struct table *t = ctx;
    const struct job_result *r = &b->result;
    if (t->json) {
        json_t *o = json_pack(
            "{s:i, s:i, s:s, s:s, s:b, s:s, s:s, s:i, s:i, s:I, s:I, s:I}", "node", b->node,
            "parent", b->parent, "path", b->path, "name", b->name_path, "leaf", (int)b->leaf,
            "verdict", verdict_word(r->verdict), "reason", r->reason, "score_micro",
            (int)b->score_micro, "tries", b->tries, "wall_us", (json_int_t)wall_us(r), "cpu_us",
            (json_int_t)cpu_us(r), "memory_peak_bytes", (json_int_t)peak_bytes(r));
        (void)(t->rows && putchar(','));
        (void)json_dumpf(o, stdout, JSON_COMPACT);
        json_decref(o);
    } else {
        print_line(b->name_path, depth_of(b->path), b->leaf, b->score_micro, r);
    }
    t->rows++;
    return cli_out_ok() ? 0 : err_set(err, ERR_CLOSED, "the reader of the output has gone");
}

static void print_head(const struct result_row *row)
{
    const struct result_tree *t = &row->result.tree;
    char cost[MONEY_TEXT_MAX];
    money_format(row->cost_nanousd, cost);
    (void)printf("job        %s%s%s\n", row->job_id, row->name ? "  " : "",
                 row->name ? row->name : "");
    (void)printf("verdict    %s%s%s\n",
                 row->has_result ? verdict_word(row->result.verdict) : job_state_word(row->state),
                 row->has_result && row->result.reason[0] ? ": " : "",
                 row->has_result ? row->result.reason : "");
    char want[JOB_LABEL_VALUE_MAX + 1];
    if (result_expected(row, want, sizeof want) &&
        !verdict_in(want, row->has_result ? row->result.verdict : VERDICT_NONE)) {
        (void)printf("wanted     %s\n", want);
    }
    if (row->has_result && t->nodes > 0) {
        (void)printf(
            "score      %d.%06d  (%d of %d accepted, %d failed, %d skipped, %d cancelled)\n",
            t->score_micro / 1000000, t->score_micro % 1000000, t->accepted, t->leaves, t->failed,
            t->skipped, t->cancelled);
    }
    (void)printf("billed     %s\n", cost);
    for (int i = 0; row->has_result && i < row->result.n_warnings; i++) {
        (void)printf("warning    %s\n", row->result.warnings[i]);
    }
}

/* Of node 0 itself: the row's verdict is the whole job's. When the set-up failed, no leaf ran and
 * the job's verdict says so. */
static struct job_result setup_only(const struct job_result *r)
{
    struct job_result own = *r;
    const struct run_result *s = &r->setup;
    bool well = !s->present ||
                (s->exit_code == 0 && s->signal == 0 && !s->out.truncated && !s->err_out.truncated);
    if (r->tree.accepted + r->tree.failed > 0 || well) {
        own.verdict = VERDICT_ACCEPTED;
        own.reason[0] = 0;
    }
    return own;
}

/* Of NULL: null. free(). */
static char *word_json(const char *word)
{
    json_t *v = word ? json_string(word) : json_null();
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    json_decref(v);
    return text;
}

int branch_report(const struct cli *cli, struct pg *pg, const struct result_row *row,
                  struct err *err)
{
    struct table t = { .json = cli->json };
    const struct result_tree *tree = &row->result.tree;
    if (cli->json) {
        char want[JOB_LABEL_VALUE_MAX + 1];
        cleanup_free char *verdict =
            word_json(row->has_result ? verdict_word(row->result.verdict) : NULL);
        cleanup_free char *expected =
            word_json(result_expected(row, want, sizeof want) ? want : NULL);
        (void)printf("{\"job\":\"%s\",\"verdict\":%s,\"expected_verdict\":%s,\"score_micro\":%d,"
                     "\"leaves\":%d,\"accepted\":%d,"
                     "\"failed\":%d,\"skipped\":%d,\"cancelled\":%d,\"cost_nanousd\":%lld,"
                     "\"branches\":[",
                     row->job_id, verdict, expected, tree->score_micro, tree->leaves,
                     tree->accepted, tree->failed, tree->skipped, tree->cancelled,
                     (long long)row->cost_nanousd);
    } else {
        print_head(row);
        (void)printf("\n%-40s %-16s %6s %12s %12s %8s\n", "BRANCH", "VERDICT", "SCORE", "TIME",
                     "CPU", "PEAK MiB");
        if (row->has_result) {
            struct job_result own = setup_only(&row->result);
            print_line("(setup)", 0, false, tree->score_micro, &own);
        }
    }
    int rc = pages_branches(pg, row->job_id, false, add_branch, &t, err);
    if (rc >= 0 && cli->json) {
        (void)printf("]}\n");
    }
    return rc < 0 ? rc : 0;
}
