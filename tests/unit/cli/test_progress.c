#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cli/progress.h"

Test(progress, plain_line)
{
    char line[PROGRESS_LINE_MAX];
    struct progress p = { .started_ms = 1000, .first_done = 10 };
    struct batch_counts c = { .total = 100, .done = 60 };
    c.by_verdict[VERDICT_ACCEPTED] = 50;
    c.by_verdict[VERDICT_WRONG_ANSWER] = 10;
    progress_line(&p, &c, 6000, 0, line);
    cr_assert_str_eq(line, "60/100  10.0/s  left 4 s  accepted 50, wrong_answer 10");
}

Test(progress, bar_and_width)
{
    char line[PROGRESS_LINE_MAX];
    struct progress p = { .started_ms = 0 };
    struct batch_counts c = { .total = 4, .done = 2 };
    progress_line(&p, &c, 0, 40, line);
    cr_assert_str_eq(line, "[#####.....] 2/4");
    c.by_verdict[VERDICT_ACCEPTED] = 2;
    progress_line(&p, &c, 1000, 20, line);
    cr_assert_eq(strlen(line), 20, "%s", line);
}

Test(progress, ended_has_no_time_left)
{
    char line[PROGRESS_LINE_MAX];
    struct progress p = { .started_ms = 0 };
    struct batch_counts c = { .total = 3, .done = 3 };
    c.by_verdict[VERDICT_ACCEPTED] = 3;
    progress_line(&p, &c, 2000, 0, line);
    cr_assert_str_eq(line, "3/3  1.5/s  accepted 3");
}

Test(progress, nothing_yet)
{
    char line[PROGRESS_LINE_MAX];
    struct progress p = { .started_ms = 5 };
    struct batch_counts c = { .total = 3 };
    progress_line(&p, &c, 5, 0, line);
    cr_assert_str_eq(line, "0/3");
}

Test(progress, verdicts_most_frequent_first_and_bounded)
{
    int by[VERDICT_COUNT] = { 0 };
    char text[300], small[16];
    by[VERDICT_NONE] = 99;
    by[VERDICT_TIME_LIMIT] = 3;
    by[VERDICT_ACCEPTED] = 1;
    by[VERDICT_MEMORY_LIMIT] = 7;
    progress_verdicts(by, text, sizeof text);
    cr_assert_str_eq(text, "memory_limit 7, time_limit 3, accepted 1");
    progress_verdicts(by, small, sizeof small);
    cr_assert_lt(strlen(small), sizeof small);
}
