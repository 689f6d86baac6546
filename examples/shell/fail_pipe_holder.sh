# The shell waits for a background child that holds the pipe open; time is up for the whole tree.
(sleep 60; echo late) | cat
