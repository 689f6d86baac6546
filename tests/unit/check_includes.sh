#!/bin/sh
# Who may include whom. Process folders share only common/ and schemas/; vmpool and guest know no store;
# libpq and hiredis stay inside common/store. Usage: check_includes.sh SOURCE_DIR
cd "$1" || exit 2
bad=0

# forbid FOLDERS PATTERN WHY: no #include in the C files below FOLDERS matches the extended regular expression.
forbid() {
    dirs=
    for d in $1; do
        [ -d "$d" ] && dirs="$dirs $d"
    done
    [ -n "$dirs" ] || return 0
    # shellcheck disable=SC2086
    found=$(grep -rnE --include='*.c' --include='*.h' --include='*.def' \
        "^[[:space:]]*#[[:space:]]*include[[:space:]]+[<\"]($2)" $dirs)
    if [ -n "$found" ]; then
        echo "not allowed: $3"
        echo "$found"
        bad=1
    fi
}

processes="api cli guest scheduler vmpool worker"
for p in $processes; do
    others=$(for q in $processes; do [ "$q" = "$p" ] || printf '%s/|' "$q"; done)
    forbid "$p" "${others%|}" "$p includes another process's folder"
    forbid "common" "$p/" "common includes the folder of the process $p"
done
forbid "guest vmpool" "common/store/" "guest and vmpool include no store"
forbid "common/base" "common/(wire|model|store)/" "common/base is the lowest layer"
forbid "common/wire" "common/(model|store)/" "common/wire needs only common/base"
forbid "common/model" "common/(wire|store)/" "common/model needs only common/base"
forbid "common/report" "common/(wire|model|store)/" "common/report needs only common/base"
forbid "$processes common/base common/wire common/model" "libpq|postgresql/|hiredis" \
    "libpq and hiredis are used in common/store only"
forbid "$processes common/base common/wire common/model" "curl/" "libcurl is used in common/store only"
[ $bad = 0 ] && echo "includes: as they should be"
exit $bad
