# Totals by column with awk; a float comparison.
awk -F, 'NR > 1 { n[$1] += $2; c[$1]++ } END { for (k in n) printf "%s %.3f\n", k, n[k] / c[k] }' | sort
