/* Results of branches: what is stored of their output, artifacts, warnings; a plain job's detail
 * stays what it was. */
#include "common/model/branch_result.h"
#include "common/model/tree.h"
#include "tests/unit/common/job_case.h"

static struct bytes filled_bytes(size_t n, char first)
{
    struct bytes b = { .data = malloc(n + 1), .len = n };
    for (size_t i = 0; i < n; i++) {
        b.data[i] = (char)(first + (int)(i % 26));
    }
    b.data[n] = 0;
    return b;
}

static struct branch_result *three(struct job_spec **ret_spec)
{
    *ret_spec = parse(HEAD ",\"tests\":[{},{},{}]}");
    struct branch_result *b = branch_results_new((*ret_spec)->tree);
    b[0].result.run.out.head = filled_bytes(10, 'a');
    b[1].result.run.out.head = filled_bytes(1000, 'a');
    b[1].result.run.err_out.head = filled_bytes(20, 'A');
    b[2].result.run.out.head = filled_bytes(600, 'a');
    b[2].result.run.out.tail = filled_bytes(601, 'A');
    b[2].result.run.out.truncated = true;
    return b;
}

static int64_t cap(struct branch_result *b, int n, int64_t max_bytes)
{
    struct branch_result *each[3] = { &b[0], &b[1], &b[2] };
    return branch_results_cap(each, n, max_bytes);
}

Test(branch_result, new_results_know_their_nodes)
{
    struct job_spec *spec;
    struct branch_result *b = three(&spec);
    cr_assert(b[2].node == 3 && b[2].parent == 0 && b[2].leaf && b[2].weight == 1);
    cr_assert_str_eq(b[2].path, "root/2");
    cr_assert_str_eq(b[2].name_path, "2");
    cr_assert_eq(b[2].result.run.exit_code, -1);
    branch_results_free(b, 3);
    job_spec_free(spec);
}

Test(branch_result, what_fits_is_not_cut)
{
    struct job_spec *spec;
    struct branch_result *b = three(&spec);
    cr_assert_eq(branch_result_bytes(&b[1]), 1020);
    cr_assert_eq(cap(b, 3, 10 + 1020 + 1201), 0);
    cr_assert_eq(b[2].result.run.out.tail.len, 601);
    branch_results_free(b, 3);
    job_spec_free(spec);
}

Test(branch_result, the_largest_are_cut_in_the_middle)
{
    struct job_spec *spec;
    struct branch_result *b = three(&spec);
    /* 610 for all: the small one whole, 300 for each of the others */
    int64_t before = 10 + 1020 + 1201;
    int64_t cut = cap(b, 3, 610);
    cr_assert_eq(branch_result_bytes(&b[0]), 10);
    cr_assert_eq(branch_result_bytes(&b[1]), 300);
    cr_assert_eq(branch_result_bytes(&b[2]), 300);
    cr_assert_eq(cut, before - 610);
    /* within a branch the small stream stays whole too */
    const struct job_result *r = &b[1].result;
    cr_assert_eq(r->run.err_out.head.len, 20);
    cr_assert_eq(r->run.err_out.cut_bytes, 0);
    cr_assert_eq(r->run.out.cut_bytes, 720);
    cr_assert(r->run.out.head.len == 140 && r->run.out.tail.len == 140);
    cr_assert_eq(r->run.out.head.data[139], 'a' + 139 % 26);
    cr_assert_eq(r->run.out.tail.data[0], 'a' + 860 % 26);
    cr_assert_eq(r->run.out.tail.data[139], 'a' + 999 % 26);
    /* of one that was cut by its own limit, head and tail go on to be its ends */
    const struct stream_result *s = &b[2].result.run.out;
    cr_assert(s->head.len == 150 && s->tail.len == 150 && s->truncated && s->cut_bytes == 901);
    cr_assert_eq(s->tail.data[149], 'A' + 600 % 26);
    /* again: nothing more */
    cr_assert_eq(cap(b, 3, 610), 0);
    branch_results_free(b, 3);
    job_spec_free(spec);
}

Test(branch_result, cutting_in_between_gives_the_same)
{
    struct job_spec *spec, *spec2;
    struct branch_result *a = three(&spec), *b = three(&spec2);
    cap(a, 3, 200);
    cap(b, 2, 500);
    cap(b, 3, 300);
    cap(b, 3, 200);
    for (int i = 0; i < 3; i++) {
        const struct stream_result *x = &a[i].result.run.out, *y = &b[i].result.run.out;
        cr_assert_eq(x->head.len, y->head.len, "%d: %zu %zu", i, x->head.len, y->head.len);
        cr_assert_eq(x->tail.len, y->tail.len);
        cr_assert_eq(memcmp(x->head.data, y->head.data, x->head.len), 0);
        cr_assert_eq(x->tail.len ? memcmp(x->tail.data, y->tail.data, x->tail.len) : 0, 0);
        cr_assert_eq(x->cut_bytes, y->cut_bytes);
    }
    branch_results_free(a, 3);
    branch_results_free(b, 3);
    job_spec_free(spec);
    job_spec_free(spec2);
}

static struct stream_result *stream_of(struct branch_result *b, int i)
{
    struct job_result *r = &b->result;
    struct stream_result *all[] = { &r->run.out, &r->run.err_out, &r->setup.out,
                                    &r->setup.err_out };
    return all[i];
}

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 16;
}

/* Amounts that are no multiple of anything: what is left of a division goes the same way. */
Test(branch_result, cutting_with_each_that_ends_gives_the_same)
{
    for (uint32_t round = 0; round < 500; round++) {
        struct job_spec *spec, *spec2;
        struct branch_result *once = three(&spec), *often = three(&spec2);
        uint32_t seed = round;
        int64_t max = next(&seed) % 200;
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 4; k++) {
                size_t n = next(&seed) % 3 ? next(&seed) % 100 : 0;
                struct stream_result *a = stream_of(&once[i], k), *b = stream_of(&often[i], k);
                free(a->head.data);
                free(a->tail.data);
                free(b->head.data);
                free(b->tail.data);
                *a = (struct stream_result){ .head = filled_bytes(n, 'a') };
                *b = (struct stream_result){ .head = filled_bytes(n, 'a') };
            }
            cap(often, i + 1, max);
        }
        cap(once, 3, max);
        for (int i = 0; i < 12; i++) {
            const struct stream_result *a = stream_of(&once[i / 4], i % 4);
            const struct stream_result *b = stream_of(&often[i / 4], i % 4);
            cr_assert(a->head.len == b->head.len && a->tail.len == b->tail.len,
                      "round %u, stream %d: %zu + %zu, not %zu + %zu", round, i, b->head.len,
                      b->tail.len, a->head.len, a->tail.len);
            cr_assert_eq(memcmp(a->head.data, b->head.data, a->head.len), 0);
            cr_assert(a->tail.len == 0 || memcmp(a->tail.data, b->tail.data, a->tail.len) == 0);
            cr_assert_eq(a->cut_bytes, b->cut_bytes);
        }
        branch_results_free(once, 3);
        branch_results_free(often, 3);
        job_spec_free(spec);
        job_spec_free(spec2);
    }
}

Test(branch_result, everything_may_go)
{
    struct job_spec *spec;
    struct branch_result *b = three(&spec);
    cap(b, 3, 0);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(branch_result_bytes(&b[i]), 0);
    }
    branch_results_free(b, 3);
    job_spec_free(spec);
}

Test(branch_result, a_manifest_becomes_sums_and_warnings)
{
    struct manifest m = { .truncated = true, .left_out = 2 };
    struct artifact *a;
    struct err err;
    cr_assert_eq(manifest_add(&m, "a", 1, NULL, 0, &a, &err), 0);
    a->size = 5;
    a->stored = true;
    cr_assert_eq(manifest_add(&m, "b", 1, NULL, 0, &a, &err), 0);
    a->size = 70;
    a->reason = ARTIFACT_TOO_LARGE;
    m.unmatched = malloc(8);
    memcpy(m.unmatched, "*.xml\0x", 8);
    m.unmatched_len = 8;
    struct job_result r;
    job_result_init(&r);
    job_result_take_manifest(&r, &m);
    cr_assert(r.artifacts.listed == 2 && r.artifacts.stored == 1 && r.artifacts.stored_bytes == 5);
    cr_assert(r.artifacts.truncated);
    cr_assert_eq(r.n_warnings, 4);
    cr_assert_str_eq(r.warnings[0], "artifacts: *.xml matched nothing");
    cr_assert_str_eq(r.warnings[1], "artifacts: x matched nothing");
    manifest_done(&m);
    job_result_take_manifest(&r, &m);
    cr_assert(r.artifacts.truncated, "of a job: of any node");
    job_result_done(&r);
}

/* Nothing came at all: no number says so. */
Test(branch_result, a_list_that_broke_off_at_once_is_told)
{
    struct job_result r, back;
    struct err err = { 0 };
    job_result_init(&r);
    job_result_take_manifest(&r, &(struct manifest){ .truncated = true });
    cleanup_free char *detail = job_result_detail(&r);
    cr_assert_eq(job_result_parse_detail(detail, strlen(detail), &back, &err), 0, "%s", err.text);
    cr_expect(back.artifacts.truncated, "%s", detail);
    job_result_done(&r);
    job_result_done(&back);
}

Test(branch_result, warnings_are_bounded_and_said_once)
{
    struct job_result r;
    job_result_init(&r);
    for (int i = 0; i < 2 * JOB_WARNINGS_MAX; i++) {
        job_result_warn(&r, "warning %d", i);
        job_result_warn(&r, "warning %d", 0);
    }
    cr_assert_eq(r.n_warnings, JOB_WARNINGS_MAX);
    cr_assert_str_eq(r.warnings[0], "warning 0");
    cr_assert_str_eq(r.warnings[JOB_WARNINGS_MAX - 1],
                     "there were more warnings than the 16 that are kept");
    job_result_done(&r);
    cr_assert_eq(r.n_warnings, 0);
}

Test(branch_result, extras_round_trip)
{
    struct job_result r, back;
    struct err err = { 0 };
    job_result_init(&r);
    r.verdict = VERDICT_PARTIAL;
    r.setup = (struct run_result){ .present = true, .exit_code = 1 };
    r.setup_steps = 3;
    r.setup_failed = 1;
    r.tree = (struct result_tree){ 7, 5, 2, 1, 1, 1, 400000, 6 };
    r.artifacts = (struct result_artifacts){ 3, 2, 999, false };
    r.setup.out.cut_bytes = 44;
    job_result_warn(&r, "bad \xff text");
    cleanup_free char *detail = job_result_detail(&r);
    cr_assert_eq(job_result_parse_detail(detail, strlen(detail), &back, &err), 0, "%s", err.text);
    cr_assert_eq(memcmp(&back.tree, &r.tree, sizeof r.tree), 0);
    cr_assert(back.artifacts.listed == 3 && back.artifacts.stored == 2);
    cr_assert(back.artifacts.stored_bytes == 999 && !back.artifacts.truncated);
    cr_assert(back.setup_steps == 3 && back.setup_failed == 1 && back.setup.out.cut_bytes == 44);
    cr_assert_eq(back.n_warnings, 1);
    cr_assert_str_eq(back.warnings[0], "bad ? text");
    job_result_done(&r);
    job_result_done(&back);
}

/* A plain job has nothing of what only forks, artifacts or checkers need. */
Test(branch_result, a_plain_jobs_detail_has_no_extras)
{
    struct job_result r;
    job_result_init(&r);
    r.verdict = VERDICT_ACCEPTED;
    r.run = (struct run_result){ .present = true };
    cleanup_free char *detail = job_result_detail(&r);
    cr_assert_str_eq(
        detail,
        "{\"verdict\":\"accepted\",\"reason\":\"\",\"run\":{\"exit_code\":0,\"signal\":null,\"cpu_"
        "us\":0,\"wall_us\":0,\"host_wait_us\":0,\"guest_cpu_us\":0,\"memory_peak_bytes\":0,"
        "\"oom_kills\":0,\"process_refusals\":0,\"leftover_processes\":0,\"disk_used_bytes\":0,"
        "\"disk_files_used\":0,\"disk_refusals\":0,\"open_file_refusals\":0,\"warm\":false,"
        "\"stdout\":{\"total_bytes\":0,\"truncated\":false},"
        "\"stderr\":{\"total_bytes\":0,\"truncated\":false}},"
        "\"limits\":{\"cpu_ms\":0,\"wall_ms\":0,\"memory_mib\":0,\"processes\":0,\"disk_mib\":0,"
        "\"disk_files\":0,\"output_bytes\":0,\"open_files\":0},\"compare\":null,\"engine\":\"\","
        "\"snapshot\":\"\",\"worker\":\"\",\"vcpus\":0,\"memory_mib\":0,\"leased_wall_ms\":0,"
        "\"ended_wall_ms\":0,\"measured_ms\":0,\"lease_us\":0,\"first_byte_us\":-1}");
}

/* Stored by the first version: what it did not have is 0. */
Test(branch_result, a_detail_of_the_first_version_is_read)
{
    const char *stored =
        "{\"verdict\":\"accepted\",\"reason\":\"\",\"run\":{\"exit_code\":0,\"signal\":null,\"cpu_"
        "us\":7,\"wall_us\":9,\"guest_cpu_us\":0,\"memory_peak_bytes\":0,\"oom_kills\":0,"
        "\"process_refusals\":0,\"leftover_processes\":0,\"disk_used_bytes\":5,\"warm\":false,"
        "\"stdout\":{\"total_bytes\":0,\"truncated\":false},"
        "\"stderr\":{\"total_bytes\":0,\"truncated\":false}},"
        "\"limits\":{\"cpu_ms\":3,\"wall_ms\":0,\"memory_mib\":0,\"processes\":0,\"disk_mib\":0,"
        "\"output_bytes\":0,\"open_files\":0},\"compare\":null,\"engine\":\"\",\"snapshot\":\"\","
        "\"worker\":\"\",\"vcpus\":0,\"memory_mib\":0,\"leased_wall_ms\":0,\"ended_wall_ms\":0,"
        "\"measured_ms\":0,\"lease_us\":0,\"first_byte_us\":-1}";
    struct job_result r;
    struct err err;
    job_result_init(&r);
    cr_assert_eq(job_result_parse_detail(stored, strlen(stored), &r, &err), 0, "%s", err.text);
    cr_assert(r.run.present && r.run.cpu_us == 7 && r.run.wall_us == 9);
    cr_assert_eq(r.run.disk_used_bytes, 5);
    cr_assert(r.run.host_wait_us == 0 && r.run.disk_refusals == 0 && r.run.disk_files_used == 0);
    cr_assert(r.limits.cpu_ms == 3 && r.limits.disk_files == 0);
    job_result_done(&r);
}
