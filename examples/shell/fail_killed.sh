# A signal that nobody catches.
echo before
kill -s SEGV $$
