# shellcheck shell=bash
# Shared by the scripts: elapsed time, steps with a log and a sign of life, ending what was started.
# Sourced by bash with `set -euo pipefail`, in the repository's top folder.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
started_us=${EPOCHREALTIME/[.,]/}
logs=${BROOD_LOGS:-$top/build/logs}
sign_of_life_s=5 # a step that is still running says so this often

note() {
    local ms=$(((${EPOCHREALTIME/[.,]/} - started_us) / 1000))
    printf '[%4d.%d s] %s\n' $((ms / 1000)) $((ms % 1000 / 100)) "$*"
}

die() {
    note "$*" >&2
    exit 1
}

# The last line of a log, short; of a JSON log line its message and what it is about.
last_line() {
    tail -c 2000 "$1" | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 |
        sed -E 's/^\{"ts".*"msg":"([^"]*)"(,"template":"([^"]*)")?.*/\1 \3/' | cut -c 1-110 || true
}

# begin NAME COMMAND...: run it in the background, its output in a log; join NAME waits for it.
declare -A begun_pid begun_us
begin() {
    local name=$1
    shift
    mkdir -p "$logs"
    begun_us[$name]=${EPOCHREALTIME/[.,]/}
    # a session of its own, so that end_begun can end all of it
    setsid -- "$@" >"$logs/$name.log" 2>&1 </dev/null 9>&- &
    begun_pid[$name]=$!
}

join() {
    local name=$1 pid=${begun_pid[$1]} log=$logs/$1.log rc=0 shown=$SECONDS waited=
    while kill -0 "$pid" 2>/dev/null; do
        waited=1
        sleep 0.1
        if ((SECONDS - shown >= sign_of_life_s)); then
            shown=$SECONDS
            note "$name ... $(last_line "$log")"
        fi
    done
    wait "$pid" || rc=$?
    unset "begun_pid[$name]"
    if ((rc != 0)); then
        note "$name failed with status $rc; the end of $log:" >&2
        tail -n 40 "$log" >&2
        exit "$rc"
    fi
    if [ -z "$waited" ]; then
        note "$name: done meanwhile"
        return
    fi
    local ms=$(((${EPOCHREALTIME/[.,]/} - begun_us[$name]) / 1000))
    note "$name: done in $((ms / 1000)).$((ms % 1000 / 100)) s"
}

# step NAME COMMAND...: begin and join.
step() {
    note "$1"
    begin "$@"
    join "$1"
}

# End what begin started and nobody joined (from a trap).
end_begun() {
    local name
    for name in "${!begun_pid[@]}"; do
        kill -TERM -- "-${begun_pid[$name]}" 2>/dev/null || true
        wait "${begun_pid[$name]}" 2>/dev/null || true
    done
    begun_pid=()
}
