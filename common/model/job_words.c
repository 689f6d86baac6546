#include "common/model/job.h"

#include <assert.h>
#include <string.h>

struct verdict_row {
    const char *word;
    bool billed, passed;
};

static const struct verdict_row verdicts[VERDICT_COUNT] = {
#define VERDICT_DEF(name, word, billed, passed) [VERDICT_##name] = { word, billed, passed },
#include "common/model/verdict.def"
#undef VERDICT_DEF
};

struct state_row {
    const char *word;
    bool terminal;
};

static const struct state_row states[STATE_COUNT] = {
#define JOB_STATE(name, word, terminal) [STATE_##name] = { word, terminal },
#include "common/model/state.def"
#undef JOB_STATE
};

const char *verdict_word(enum verdict v)
{
    assert((int)v >= 0 && v < VERDICT_COUNT);
    return verdicts[v].word;
}

static const char *const priority_words[PRIORITY_COUNT] = { "high", "normal", "bulk" };

const char *job_priority_word(enum job_priority p)
{
    assert((int)p >= 0 && p < PRIORITY_COUNT);
    return priority_words[p];
}

int job_priority_parse(const char *word)
{
    for (int i = 0; i < PRIORITY_COUNT; i++) {
        if (strcmp(priority_words[i], word) == 0) {
            return i;
        }
    }
    return -1;
}

int verdict_parse(const char *word)
{
    for (int i = 0; i < VERDICT_COUNT; i++) {
        if (strcmp(verdicts[i].word, word) == 0) {
            return i;
        }
    }
    return -1;
}

bool verdict_billed(enum verdict v)
{
    assert((int)v >= 0 && v < VERDICT_COUNT);
    return verdicts[v].billed;
}

const char *job_state_word(enum job_state s)
{
    assert((int)s >= 0 && s < STATE_COUNT);
    return states[s].word;
}

int job_state_parse(const char *word)
{
    for (int i = 0; i < STATE_COUNT; i++) {
        if (strcmp(states[i].word, word) == 0) {
            return i;
        }
    }
    return -1;
}

bool job_state_terminal(enum job_state s)
{
    assert((int)s >= 0 && s < STATE_COUNT);
    return states[s].terminal;
}

const char *compare_word(enum compare_mode m)
{
    static const char *const words[] = { "exact", "trim", "tokens", "float", "unordered" };
    assert((int)m >= COMPARE_EXACT && m < COMPARE_COUNT);
    return words[m];
}

const char *archive_word(enum archive_format f)
{
    static const char *const words[] = { "tar", "tar.gz", "tar.zst", "zip" };
    assert((int)f >= ARCHIVE_TAR && f <= ARCHIVE_ZIP);
    return words[f];
}

const char *job_stop_word(enum job_stop s)
{
    return s == JOB_STOP_FIRST_FAILURE ? "first_failure" : "all";
}

const char *job_isolation_word(enum job_isolation i)
{
    return i == ISOLATION_SHARED ? "shared" : "vm";
}
