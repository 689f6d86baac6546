# The most frequent words of stdin, by the usual pipeline.
tr -cs 'A-Za-z' '\n' | tr 'A-Z' 'a-z' | grep . | sort | uniq -c | sort -k1,1nr -k2 | head -4 | awk '{ print $2, $1 }'
