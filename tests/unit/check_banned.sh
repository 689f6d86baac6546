#!/bin/sh
# Calls that cannot be used safely (docs: git's banned.h), and variables that are cleaned up at a return that may come before
# they have a value. Usage: check_banned.sh SOURCE_DIR
cd "$1" || exit 2
dirs=
for d in api bench cli common guest scheduler tests vmpool worker; do
    [ -d "$d" ] && dirs="$dirs $d"
done
# shellcheck disable=SC2086
found=$(grep -rnE --include='*.c' --include='*.h' \
    '(^|[^a-zA-Z0-9_"])(strcpy|strcat|strncpy|strncat|sprintf|vsprintf|gets|atoi|atol|strtok|alloca)[[:space:]]*\(' $dirs)
if [ -n "$found" ]; then
    echo "banned calls:"
    echo "$found"
    exit 1
fi
# shellcheck disable=SC2086
found=$(grep -rnE --include='*.c' --include='*.h' '^[[:space:]]*cleanup_[a-z_]+ [^=;()]*;' ${dirs% tests*} vmpool worker)
if [ -n "$found" ]; then
    echo "cleaned up without having a value from the start:"
    echo "$found"
    exit 1
fi
echo "banned calls: none"
