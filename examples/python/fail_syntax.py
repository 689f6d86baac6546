"""A colon is missing; the setup step byte-compiles and says so."""
def double(x)
    return 2 * x


print(double(21))
