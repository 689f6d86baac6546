"""Right numbers, but a blank behind each line: exact comparison is exact."""
for n in range(1, 4):
    print(n, end=" \n")
