# Make a small tree, count it, remove it again.
set -eu
for d in a b c; do
    mkdir -p "work/$d"
    for n in 1 2 3; do
        echo "$d$n" >"work/$d/$n.txt"
    done
done
find work -type f | wc -l
cat work/*/2.txt | tr '\n' ' '
echo
rm -r work
test ! -e work && echo gone
