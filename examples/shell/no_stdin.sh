# No input is given: cat must see the end at once.
cat
echo "end of input"
