/* job_parse field by field: what is kept, and what is refused with which words. */
#include "tests/unit/common/job_case.h"
#include "common/model/tree.h"

Test(job, minimal)
{
    cleanup_job_spec struct job_spec *s =
        parse("{\"template\":\"python\",\"command\":[\"python3\",\"-c\",\"\"]}");
    cr_assert_str_eq(s->template_name, "python");
    cr_assert_eq(s->command.argc, 3);
    cr_assert_str_eq(s->command.argv[2], "");
    cr_assert_null(s->command.argv[3]);
    cr_assert_eq(s->setup.argc, 0);
    cr_assert_null(s->name);
    cr_assert_null(s->idempotency_key);
    cr_assert(!s->has_expect && !s->stream);
    cr_assert_eq(s->expect.compare, COMPARE_TRIM);
    cr_assert_eq(s->stdin_data.len, 0);
}

Test(job, every_field)
{
    cleanup_job_spec struct job_spec *s =
        parse("{\"template\":\"c@0123abc\",\"name\":\"sum "
              "\\u00e9\",\"files\":[{\"path\":\"src/a.c\",\"text\":\"x\\u0000y\","
              "\"mode\":\"0755\"},{\"path\":\"b\",\"base64\":\"AP8=\"}],\"setup\":{\"command\":["
              "\"gcc\",\"src/a.c\"],\"limits\":"
              "{\"cpu_ms\":1000}},\"command\":\"./a.out "
              "\\\"$1\\\"\",\"args\":[\"one\",\"\"],\"stdin\":{\"base64\":\"AAEC\"},"
              "\"env\":{\"A_1\":\"b=c\"},\"expect\":{\"exit_code\":3,\"stdout\":\"1.5\","
              "\"compare\":\"float\",\"tolerance\":0.5},"
              "\"limits\":{\"processes\":4},\"labels\":{\"team/"
              "x\":\"y\"},\"idempotency_key\":\"k1\",\"stream\":true}");
    cr_assert_str_eq(s->template_name, "c@0123abc");
    cr_assert_eq(s->n_files, 2);
    cr_assert_str_eq(s->files[0].path, "src/a.c");
    cr_assert_eq(s->files[0].content.len, 3);
    cr_assert_eq(memcmp(s->files[0].content.data, "x\0y", 4), 0);
    cr_assert_eq(s->files[0].mode, 0755);
    cr_assert_eq(s->files[1].mode, 0644);
    cr_assert_eq(memcmp(s->files[1].content.data, "\0\xff", 2), 0);
    cr_assert_eq(s->setup.argc, 2);
    cr_assert_eq(s->setup.limits.cpu_ms, 1000);
    const char *want[] = { "/bin/sh", "-c", "./a.out \"$1\"", "sh", "one", "" };
    cr_assert_eq(s->command.argc, 6);
    for (int i = 0; i < 6; i++) {
        cr_assert_str_eq(s->command.argv[i], want[i]);
    }
    cr_assert_eq(s->stdin_data.len, 3);
    cr_assert_eq(s->n_env, 1);
    cr_assert_str_eq(s->env[0].key, "A_1");
    cr_assert_str_eq(s->env[0].value, "b=c");
    cr_assert(s->has_expect && s->expect.has_stdout && s->stream);
    cr_assert_eq(s->expect.exit_code, 3);
    cr_assert_float_eq(s->expect.tolerance_abs, 0.5, 0);
    cr_assert_float_eq(s->expect.tolerance_rel, 0.5, 0);
    cr_assert_eq(s->command.limits.processes, 4);
    cr_assert_str_eq(s->labels[0].key, "team/x");
    cr_assert_str_eq(s->idempotency_key, "k1");
}

Test(job, unknown_fields_at_every_level)
{
    refused(HEAD ",\"comand\":1}", ERR_INVALID,
            "comand: unknown field; known here: template, name");
    refused(HEAD ",\"files\":[{\"path\":\"a\",\"text\":\"\",\"modus\":1}]}", ERR_INVALID,
            "files[0].modus: unknown field");
    refused(HEAD ",\"setup\":{\"command\":\"x\",\"cwd\":1}}", ERR_INVALID,
            "setup.cwd: unknown field");
    refused(HEAD ",\"setup\":{\"command\":\"x\",\"limits\":{\"cpu\":1}}}", ERR_INVALID,
            "setup.limits.cpu: unknown field");
    refused(HEAD ",\"limits\":{\"memory_mb\":1}}", ERR_INVALID, "limits.memory_mb: unknown field");
    refused(HEAD ",\"expect\":{\"stderr\":\"\"}}", ERR_INVALID, "expect.stderr: unknown field");
    refused(HEAD ",\"expect\":{\"stdout\":{\"b64\":\"\"}}}", ERR_INVALID,
            "expect.stdout.b64: unknown field");
    refused(HEAD ",\"expect\":{\"stdout\":\"\",\"compare\":\"float\",\"tolerance\":{\"abs\":1}}}",
            ERR_INVALID, "expect.tolerance.abs: unknown field");
    refused(HEAD ",\"stdin\":{\"text\":\"\"}}", ERR_INVALID, "stdin.text: unknown field");
    refused(HEAD ",\"a\\nb\\u00e9\":1}", ERR_INVALID, "a?b??: unknown field");
}

Test(job, json_itself)
{
    refused("", ERR_INVALID, "line 1, column 0");
    refused("{\"template\":\"a\",\n\"command\":x}", ERR_INVALID, "line 2, column");
    refused(HEAD "} x", ERR_INVALID, "end of file expected");
    refused("[]", ERR_INVALID, "job: must be an object");
    refused("\"x\"", ERR_INVALID, "not JSON");
    refused(HEAD ",\"template\":\"b\"}", ERR_INVALID, "duplicate object key");
    refused(HEAD ",\"env\":{\"A\":\"1\",\"A\":\"2\"}}", ERR_INVALID, "duplicate object key");
    refused("{\"template\":\"a\",\"command\":\"\xff\"}", ERR_INVALID, "not JSON: line 1");
    refused("{\"template\":\"a\",\"command\":\"\\ud800\"}", ERR_INVALID, "not JSON: line 1");
    refused("{\"a\\u0000b\":1}", ERR_INVALID, "not JSON: line 1");
    refused_n("{}\0", 3, ERR_INVALID, "not JSON");
    refused(HEAD ",\"limits\":{\"cpu_ms\":99999999999999999999}}", ERR_INVALID, "too big integer");
}

Test(job, json_bounds)
{
    /* depth: the maximum gets as far as the field's own rule, one more does not */
    refused("{\"x\":[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]}", ERR_INVALID,
            "x: unknown field");
    refused("{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]}", ERR_INVALID,
            "nested deeper than 24");
    too_much("{\"x\":[1", ",1", JOB_JSON_VALUES_MAX - 2, "]}", ERR_INVALID, "x: unknown field");
    too_much("{\"x\":[1", ",1", JOB_JSON_VALUES_MAX - 1, "]}", ERR_TOO_LARGE,
             "more than 131072 values");
    /* brackets inside strings do not count */
    fits(HEAD ",\"stdin\":\"", "[{\\\"", 10000, "\"}");
    /* bytes of JSON */
    size_t around = strlen(HEAD "}");
    fits(HEAD, " ", JOB_JSON_MAX - around, "}");
    too_much(HEAD, " ", JOB_JSON_MAX - around + 1, "}", ERR_TOO_LARGE, "of JSON; at most 25165824");
}

Test(job, template_and_texts)
{
    refused("{\"command\":\"x\"}", ERR_INVALID, "template: missing");
    refused("{\"template\":\"a\"}", ERR_INVALID, "command: missing");
    refused("{\"template\":7,\"command\":\"x\"}", ERR_INVALID, "template: must be a string");
    refused("{\"template\":\"\",\"command\":\"x\"}", ERR_INVALID, "template: must not be empty");
    const char *bad[] = { "a b", "a/b", "@x", "a@", "a@b@c", ".a", "-a", "\\u00e9" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char json[128];
        (void)snprintf(json, sizeof json, "{\"template\":\"%s\",\"command\":\"x\"}", bad[i]);
        refused(json, ERR_INVALID, "template: must be a name");
    }
    fits("{\"command\":\"x\",\"template\":\"", "t", JOB_TEMPLATE_MAX, "\"}");
    too_much("{\"command\":\"x\",\"template\":\"", "t", JOB_TEMPLATE_MAX + 1, "\"}", ERR_TOO_LARGE,
             "template: 97 bytes; at most 96");
    fits(HEAD ",\"name\":\"", "n", JOB_NAME_MAX, "\"}");
    too_much(HEAD ",\"name\":\"", "n", JOB_NAME_MAX + 1, "\"}", ERR_TOO_LARGE, "name: 129 bytes");
    refused(HEAD ",\"name\":\"a\\nb\"}", ERR_INVALID, "name: must not hold control characters");
    refused(HEAD ",\"name\":\"a\\u0000b\"}", ERR_INVALID, "name: must not hold a NUL");
    refused(HEAD ",\"name\":\"a\\u009fb\"}", ERR_INVALID, "name: must not hold control characters");
    fits(HEAD ",\"idempotency_key\":\"", "k", JOB_KEY_MAX, "\"}");
    too_much(HEAD ",\"idempotency_key\":\"", "k", JOB_KEY_MAX + 1, "\"}", ERR_TOO_LARGE,
             "idempotency_key: 129");
    refused(HEAD ",\"idempotency_key\":\"\"}", ERR_INVALID, "idempotency_key: must not be empty");
    refused(HEAD ",\"stream\":1}", ERR_INVALID, "stream: must be true or false");
    refused(HEAD ",\"stream\":null}", ERR_INVALID, "stream: must be true or false");
}

Test(job, commands)
{
    refused("{\"template\":\"a\",\"command\":[]}", ERR_INVALID,
            "command: must be a list of strings (at least one)");
    refused("{\"template\":\"a\",\"command\":\"\"}", ERR_INVALID, "command: must not be empty");
    refused("{\"template\":\"a\",\"command\":[\"\"]}", ERR_INVALID,
            "command[0]: must not be empty");
    refused("{\"template\":\"a\",\"command\":[\"a\",3]}", ERR_INVALID,
            "command[1]: must be a string");
    refused("{\"template\":\"a\",\"command\":[\"a\\u0000b\"]}", ERR_INVALID,
            "command[0]: must not hold a NUL");
    refused("{\"template\":\"a\",\"command\":\"a\\u0000b\"}", ERR_INVALID,
            "command: must not hold a NUL");
    refused(HEAD ",\"args\":\"x\"}", ERR_INVALID, "args: must be a list of strings");
    refused(HEAD ",\"args\":[\"a\\u0000\"]}", ERR_INVALID, "args[0]: must not hold a NUL");
    refused(HEAD ",\"setup\":[]}", ERR_INVALID, "setup: must be a list of strings");
    refused(HEAD ",\"setup\":{}}", ERR_INVALID, "setup.command: missing");
    refused(HEAD ",\"setup\":{\"command\":7}}", ERR_INVALID, "setup.command: must be a list");
    cleanup_job_spec struct job_spec *s = parse(HEAD ",\"setup\":\"make all\",\"args\":[]}");
    cr_assert_eq(s->setup.argc, 4);
    cr_assert_str_eq(s->setup.argv[2], "make all");
    cr_assert_eq(s->command.argc, 1);

    fits(HEAD ",\"args\":[\"a\"", ",\"b\"", JOB_ARGS_MAX - 2, "]}");
    too_much(HEAD ",\"args\":[\"a\"", ",\"b\"", JOB_ARGS_MAX - 1, "]}", ERR_TOO_LARGE,
             "args: more than 512 arguments");
    /* "true" and its NUL are 5 bytes */
    fits(HEAD ",\"args\":[\"", "b", JOB_ARGV_BYTES_MAX - 5 - 1, "\"]}");
    too_much(HEAD ",\"args\":[\"", "b", JOB_ARGV_BYTES_MAX - 5, "\"]}", ERR_TOO_LARGE,
             "args: more than 36000 bytes");
    /* "/bin/sh" "-c" "sh" and NULs are 14 */
    fits("{\"template\":\"a\",\"command\":\"", "b", JOB_ARGV_BYTES_MAX - 14 - 1, "\"}");
    too_much("{\"template\":\"a\",\"command\":\"", "b", JOB_ARGV_BYTES_MAX - 14, "\"}",
             ERR_TOO_LARGE, "command: more than");
}

Test(job, bytes_in)
{
    cleanup_job_spec struct job_spec *s = parse(HEAD ",\"stdin\":\"a\\u0000\\u00e9\"}");
    cr_assert_eq(s->stdin_data.len, 4);
    cr_assert_eq(memcmp(s->stdin_data.data, "a\0\xc3\xa9", 5), 0);
    const char *bad[] = { "A",    "AA",   "AAA",  "AA==\\n", " AA=",          "AB==",
                          "AA=A", "A===", "====", "AA-_",    "AAAA\\u0000AAA" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char json[160];
        (void)snprintf(json, sizeof json, HEAD ",\"stdin\":{\"base64\":\"%s\"}}", bad[i]);
        refused(json, ERR_INVALID, "stdin.base64: must be base64");
    }
    cleanup_job_spec struct job_spec *e = parse(HEAD ",\"stdin\":{\"base64\":\"\"}}");
    cr_assert_eq(e->stdin_data.len, 0);
    refused(HEAD ",\"stdin\":{}}", ERR_INVALID, "stdin.base64: missing");
    refused(HEAD ",\"stdin\":7}", ERR_INVALID, "stdin: must be a string or");
    fits(HEAD ",\"stdin\":\"", "xxxxxxxxxxxxxxxx", JOB_STDIN_BYTES_MAX / 16, "\"}");
    too_much(HEAD ",\"stdin\":\"x", "xxxxxxxxxxxxxxxx", JOB_STDIN_BYTES_MAX / 16, "\"}",
             ERR_TOO_LARGE, "stdin: 16777217 bytes");
    fits(HEAD ",\"expect\":{\"stdout\":\"", "xxxxxxxxxxxxxxxx", JOB_EXPECT_BYTES_MAX / 16, "\"}}");
    too_much(HEAD ",\"expect\":{\"stdout\":\"x", "xxxxxxxxxxxxxxxx", JOB_EXPECT_BYTES_MAX / 16,
             "\"}}", ERR_TOO_LARGE, "expect.stdout: 16777217 bytes");
    /* base64: 16 MiB are 22369624 characters, the last group short by two bytes */
    fits(HEAD ",\"stdin\":{\"base64\":\"AA==", "", 0, "\"}}");
    fits(HEAD ",\"stdin\":{\"base64\":\"", "AAAA", 5592405, "AA==\"}}");
    too_much(HEAD ",\"stdin\":{\"base64\":\"", "AAAA", 5592405, "AAA=\"}}", ERR_TOO_LARGE,
             "stdin.base64: 16777217 bytes");
}

Test(job, env_and_labels)
{
    refused(HEAD ",\"env\":[]}", ERR_INVALID, "env: must be an object");
    refused(HEAD ",\"env\":{\"1A\":\"\"}}", ERR_INVALID, "env.1A: a variable's name");
    refused(HEAD ",\"env\":{\"A=B\":\"\"}}", ERR_INVALID, "env.A=B: a variable's name");
    refused(HEAD ",\"env\":{\"\":\"\"}}", ERR_INVALID, "env.: a variable's name");
    refused(HEAD ",\"env\":{\"A\":1}}", ERR_INVALID, "env.A: must be a string");
    refused(HEAD ",\"env\":{\"A\":\"x\\u0000\"}}", ERR_INVALID, "env.A: must not hold a NUL");
    /* A=...NUL */
    fits(HEAD ",\"env\":{\"A\":\"", "v", JOB_ENV_BYTES_MAX - 3, "\"}}");
    too_much(HEAD ",\"env\":{\"A\":\"", "v", JOB_ENV_BYTES_MAX - 2, "\"}}", ERR_TOO_LARGE,
             "env: more than 16000 bytes");
    refused(HEAD ",\"labels\":{\"a b\":\"\"}}", ERR_INVALID, "labels.a b: a label's key");
    refused(HEAD ",\"labels\":{\"a\":\"\\u0007\"}}", ERR_INVALID,
            "labels.a: must not hold control");
    refused(HEAD ",\"labels\":{\"a\":\"\\u0000\"}}", ERR_INVALID, "labels.a: must not hold a NUL");
    refused(HEAD ",\"labels\":{\"a\":\"\\u007f\"}}", ERR_INVALID,
            "labels.a: must not hold control");
    fits(HEAD ",\"labels\":{\"", "a", JOB_LABEL_KEY_MAX, "\":\"\\u00e9 x\"}}");
    too_much(HEAD ",\"labels\":{\"", "a", JOB_LABEL_KEY_MAX + 1, "\":\"\"}}", ERR_INVALID,
             "a label's key is 1 to 64");
    fits(HEAD ",\"labels\":{\"a\":\"", "v", JOB_LABEL_VALUE_MAX, "\"}}");
    too_much(HEAD ",\"labels\":{\"a\":\"", "v", JOB_LABEL_VALUE_MAX + 1, "\"}}", ERR_TOO_LARGE,
             "labels.a: 257 bytes");
    struct {
        const char *field;
        int max;
    } counts[] = { { "env", JOB_ENV_MAX }, { "labels", JOB_LABELS_MAX } };
    for (int c = 0; c < 2; c++) {
        for (int extra = 0; extra < 2; extra++) {
            struct buf b;
            struct err err;
            buf_init(&b, 1 << 20);
            cr_assert_eq(buf_addf(&b, &err, HEAD ",\"%s\":{", counts[c].field), 0);
            for (int i = 0; i < counts[c].max + extra; i++) {
                cr_assert_eq(buf_addf(&b, &err, "%s\"K%d\":\"v\"", i ? "," : "", i), 0);
            }
            cr_assert_eq(buf_add_str(&b, "}}", &err), 0);
            if (extra) {
                refused_n(b.data, b.len, ERR_TOO_LARGE, "at most");
            } else {
                job_spec_free(parse_n(b.data, b.len));
            }
            buf_done(&b);
        }
    }
}

Test(job, checker)
{
    cleanup_job_spec struct job_spec *k = parse(
        HEAD ",\"expect\":{\"stdout\":\"any\",\"checker\":{\"command\":[\"./c\"],\"args\":[\"x\"],"
             "\"files\":[{\"path\":\"c\",\"text\":\"\"}],\"setup\":\"true\",\"limits\":{\"cpu_ms\":"
             "700}}}}");
    const struct job_checker *c = k->expect.checker;
    cr_assert_not_null(c);
    cr_assert(c->protocol == CHECKER_KATTIS && !c->template_name && c->n_files == 1);
    cr_assert(c->n_steps == 1 && c->command.limits.cpu_ms == 700 && c->command.argc == 5);
    const char *argv[] = { "./c", "input", "answer", "feedback/", "x" };
    for (int i = 0; i < 5; i++) {
        cr_assert_str_eq(c->command.argv[i], argv[i]);
    }
    cr_assert_eq(k->tree->nodes[0].expect->checker, c);
    cleanup_job_spec struct job_spec *t = parse(
        HEAD ",\"expect\":{\"checker\":{\"command\":\"./c \\\"$@\\\"\",\"protocol\":\"testlib\","
             "\"template\":\"c\"}},\"tests\":[{\"expect\":{\"checker\":{\"command\":\"a\"}}}]}");
    c = t->expect.checker;
    cr_assert(c->protocol == CHECKER_TESTLIB && c->command.argc == 7);
    cr_assert_str_eq(c->template_name, "c");
    cr_assert_str_eq(c->command.argv[5], "output");
    cr_assert_neq(t->tree->nodes[1].expect->checker, c);
#define CHECKER(text) HEAD ",\"expect\":{\"checker\":{" text "}}}"
    refused(CHECKER(""), ERR_INVALID, "expect.checker.command: missing");
    refused(CHECKER("\"command\":\"a\",\"args\":\"b\""), ERR_INVALID,
            "expect.checker.args: must be a list");
    refused(CHECKER("\"command\":\"a\",\"protocol\":\"icpc\""), ERR_INVALID,
            "expect.checker.protocol: must be kattis or testlib");
    refused(CHECKER("\"command\":\"a\",\"template\":\"a@b\""), ERR_INVALID,
            "expect.checker.template: must be a name");
    refused(CHECKER("\"command\":\"a\",\"stdin\":\"b\""), ERR_INVALID,
            "expect.checker.stdin: unknown field");
    refused(CHECKER("\"command\":\"a\",\"files\":[{\"path\":\"feedback/x\",\"text\":\"\"}]"),
            ERR_INVALID, "expect.checker.files[0].path: \"feedback\"");
    refused(HEAD
            ",\"expect\":{\"stdout\":\"\",\"compare\":\"trim\",\"checker\":{\"command\":\"a\"}}}",
            ERR_INVALID, "expect.compare: not together with a checker");
}

Test(job, expect)
{
    const char *words[] = { "exact", "trim", "tokens", "float", "unordered" };
    for (int i = 0; i < COMPARE_COUNT; i++) {
        char json[160];
        (void)snprintf(json, sizeof json, HEAD ",\"expect\":{\"stdout\":\"x\",\"compare\":\"%s\"}}",
                       words[i]);
        cleanup_job_spec struct job_spec *s = parse(json);
        cr_assert_eq((int)s->expect.compare, i);
        cr_assert_str_eq(compare_word(s->expect.compare), words[i]);
        cr_assert_float_eq(s->expect.tolerance_abs, 1e-6, 0);
        cr_assert_float_eq(s->expect.tolerance_rel, 1e-6, 0);
    }
    cleanup_job_spec struct job_spec *one = parse(
        HEAD
        ",\"expect\":{\"stdout\":\"1\",\"compare\":\"float\",\"tolerance\":{\"absolute\":0.25}}}");
    cr_assert_float_eq(one->expect.tolerance_abs, 0.25, 0);
    cr_assert_float_eq(one->expect.tolerance_rel, 0, 0);
    cleanup_job_spec struct job_spec *none = parse(HEAD ",\"expect\":{}}");
    cr_assert(none->has_expect && !none->expect.has_stdout);
    cleanup_job_spec struct job_spec *empty = parse(HEAD ",\"expect\":{\"stdout\":\"\"}}");
    cr_assert(empty->expect.has_stdout);
    cr_assert_eq(empty->expect.text.len, 0);
    cleanup_job_spec struct job_spec *top = parse(HEAD ",\"expect\":{\"exit_code\":255}}");
    cr_assert_eq(top->expect.exit_code, 255);
    refused(HEAD ",\"expect\":{\"exit_code\":256}}", ERR_INVALID,
            "expect.exit_code: must be a whole number from 0 to 255");
    refused(HEAD ",\"expect\":{\"exit_code\":-1}}", ERR_INVALID, "expect.exit_code");
    refused(HEAD ",\"expect\":{\"exit_code\":1.0}}", ERR_INVALID,
            "expect.exit_code: must be a whole number");
    refused(HEAD ",\"expect\":{\"stdout\":\"\",\"compare\":\"fuzzy\"}}", ERR_INVALID,
            "expect.compare: must be exact, trim");
    refused(HEAD ",\"expect\":{\"compare\":\"trim\"}}", ERR_INVALID,
            "expect.compare: only together with expect.stdout");
    refused(HEAD ",\"expect\":{\"stdout\":\"\",\"tolerance\":1}}", ERR_INVALID,
            "expect.tolerance: only with");
    refused(HEAD ",\"expect\":{\"stdout\":\"\",\"compare\":\"float\",\"tolerance\":-1}}",
            ERR_INVALID, "must be a number from 0");
    refused(HEAD ",\"expect\":{\"stdout\":\"\",\"compare\":\"float\",\"tolerance\":{}}}",
            ERR_INVALID, "expect.tolerance: must be");
    refused(
        HEAD
        ",\"expect\":{\"stdout\":\"\",\"compare\":\"float\",\"tolerance\":{\"relative\":\"1\"}}}",
        ERR_INVALID, "expect.tolerance.relative: must be a number");
    refused(HEAD ",\"expect\":{\"stdout\":\"\",\"compare\":\"float\",\"tolerance\":1e999}}",
            ERR_INVALID, "real number overflow");
    refused(HEAD ",\"expect\":[]}", ERR_INVALID, "expect: must be an object");
}

Test(job, canonical_and_hash)
{
    cleanup_job_spec struct job_spec *a = parse(
        "{ \"template\" : \"p\", \"command\":[\"\\u00e9\"], \"env\":{\"B\":\"1\",\"A\":\"2\"}}");
    cleanup_job_spec struct job_spec *b =
        parse("{\"env\":{\"A\":\"2\",\"B\":\"1\"},\"command\":[\"\xc3\xa9\"],\"template\":\"p\"}");
    cr_assert_str_eq(
        a->canonical,
        "{\"command\":[\"\\u00E9\"],\"env\":{\"A\":\"2\",\"B\":\"1\"},\"template\":\"p\"}");
    cr_assert_str_eq(a->canonical, b->canonical);
    cr_assert_eq(a->canonical_len, strlen(a->canonical));
    uint8_t ha[32], hb[32];
    job_spec_hash(a, ha);
    job_spec_hash(b, hb);
    cr_assert_eq(memcmp(ha, hb, 32), 0);
    /* what is stored must stay the same for ever: known answer (b2sum -l 256 of the text above) */
    char hex[65];
    for (int i = 0; i < 32; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", ha[i]);
    }
    cr_assert_str_eq(hex, "39e0f76f87e14475f52e389fa59e9fc0491777a33b9213cc55f33675deb0fb32");
    cleanup_job_spec struct job_spec *other =
        parse("{\"env\":{\"A\":\"2\",\"B\":\"3\"},\"command\":[\"\xc3\xa9\"],\"template\":\"p\"}");
    job_spec_hash(other, hb);
    cr_assert_neq(memcmp(ha, hb, 32), 0);
    cleanup_job_spec struct job_spec *again = parse_n(a->canonical, a->canonical_len);
    cr_assert_str_eq(again->canonical, a->canonical);
}

Test(job, canonical_must_be_readable_again)
{
    /* 5 MiB of two-byte letters are 15 MiB of escapes and fit, 9 MiB are 27 and do not */
    fits(HEAD ",\"stdin\":\"", "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 5u << 17, "\"}");
    too_much(HEAD ",\"stdin\":\"", "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 9u << 17, "\"}",
             ERR_TOO_LARGE, "as ASCII JSON; at most");
}
