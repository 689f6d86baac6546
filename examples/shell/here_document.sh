# Functions, here-documents, arithmetic, and a trap that runs at the end.
trap 'echo bye' EXIT
gcd() {
    if [ "$2" -eq 0 ]; then
        echo "$1"
    else
        gcd "$2" $(($1 % $2))
    fi
}
while read -r a b; do
    echo "$a $b $(gcd "$a" "$b")"
done <<END
12 18
17 5
1000 24
END
