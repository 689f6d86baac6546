"""Never stops talking."""
line = "spam " * 200
while True:
    print(line)
