#!/bin/sh
# Every C file of ours is as clang-format 14 writes it (.clang-format). Usage: check_format.sh CLANG-FORMAT SOURCE_DIR
cd "$2" || exit 2
find api cli common guest scheduler vmpool worker bench tests deploy \( -name '*.c' -o -name '*.h' \) 2>/dev/null |
    xargs "$1" --dry-run -Werror
