#include <criterion/criterion.h>
#include <string.h>

#include "guest/strs.h"

static struct strs list, env;

static int split(struct strs *s, const char *text, size_t len, size_t max, struct err *err)
{
    static char data[2][8192];
    char *to = data[s == &env];
    memcpy(to, text, len);
    return strs_split(s, to, len, max, "argv", err);
}
#define SPLIT(s, text) cr_assert_eq(split(s, text, sizeof(text) - 1, 64, NULL), 0)

Test(strs, splits)
{
    SPLIT(&list, "a\0\0b c\0");
    cr_expect_eq(list.n, 3);
    cr_expect_str_eq(list.v[0], "a");
    cr_expect_str_eq(list.v[1], "");
    cr_expect_str_eq(list.v[2], "b c");
    cr_expect_null(list.v[3]);
    cr_expect_eq(split(&list, "", 0, 4, NULL), 0);
    cr_expect_eq(list.n, 0);
}

Test(strs, refuses_a_missing_nul_and_one_too_many)
{
    struct err err;
    cr_expect_eq(split(&list, "a\0b", 3, 4, &err), -ERR_INVALID);
    cr_expect_eq(split(&list, "a\0b\0", 4, 2, &err), 0);
    cr_expect_eq(split(&list, "a\0b\0c\0", 6, 2, &err), -ERR_INVALID);
}

Test(strs, defaults_fill_only_what_is_not_given)
{
    char *defaults[] = { (char *)"A=1", (char *)"AB=2", (char *)"C=3" };
    SPLIT(&env, "AB=x\0D=\0");
    strs_env_defaults(&env, defaults, 3);
    cr_expect_eq(env.n, 4);
    cr_expect_str_eq(strs_env(&env, "A"), "1");
    cr_expect_str_eq(strs_env(&env, "AB"), "x");
    cr_expect_str_eq(strs_env(&env, "C"), "3");
    cr_expect_str_eq(strs_env(&env, "D"), "");
    cr_expect_null(strs_env(&env, "E"));
}

#define FITS(argv, vars)                                                                           \
    ({                                                                                             \
        SPLIT(&list, argv);                                                                        \
        SPLIT(&env, vars);                                                                         \
        strs_fits_warm(&list, &env);                                                               \
    })
#define PLAIN "PATH=/usr/local/bin:/usr/bin:/bin\0PYTHONHASHSEED=0\0LANG=C.UTF-8\0"

Test(strs, warm_takes_scripts_code_and_modules)
{
    cr_expect(FITS("python3\0x.py\0-v\0", PLAIN));
    cr_expect(FITS("python\0-c\0print(1)\0", PLAIN));
    cr_expect(FITS("/usr/bin/python3\0-m\0json.tool\0", PLAIN));
}

Test(strs, warm_leaves_the_rest_to_python_itself)
{
    cr_expect_not(FITS("python3\0", PLAIN), "reads the program from stdin");
    cr_expect_not(FITS("python3\0-\0", PLAIN));
    cr_expect_not(FITS("python3\0-c\0", PLAIN));
    cr_expect_not(FITS("python3\0-u\0x.py\0", PLAIN));
    cr_expect_not(FITS("python3\0-O\0-c\0pass\0", PLAIN));
    cr_expect_not(FITS("./python3\0x.py\0", PLAIN));
    cr_expect_not(FITS("python3.11\0x.py\0", PLAIN));
    cr_expect_not(FITS("sh\0-c\0x\0", PLAIN));
    cr_expect_not(FITS("python3\0x.py\0", PLAIN "PYTHONPATH=/work\0"));
    cr_expect_not(FITS("python3\0x.py\0", "PATH=/usr/bin\0PYTHONHASHSEED=1\0"));
    cr_expect_not(FITS("python3\0x.py\0", "PATH=/opt/bin:/usr/bin\0"));
    cr_expect_not(FITS("python3\0x.py\0", "PATH=/usr/bin\0LANG=de_DE.UTF-8\0"));
    cr_expect_not(FITS("python3\0x.py\0", "PATH=/usr/bin\0LD_PRELOAD=/opt/a.so\0"));
    cr_expect_not(FITS("python3\0x.py\0", "A=1\0"), "no PATH: nothing is found");
}
