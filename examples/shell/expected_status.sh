# grep finds nothing and says so by its status, which is what this job expects.
echo "no needles" | grep needle$
