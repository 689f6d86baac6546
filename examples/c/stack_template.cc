// A bounded stack as a C++ template, with a destructor that must run and an exception that must be caught.
#include <cstdio>

template <typename T, int N> class Stack
{
    T item[N];
    int n = 0;

  public:
    void push(T x)
    {
        if (n == N) {
            throw N;
        }
        item[n++] = x;
    }
    T pop()
    {
        return item[--n];
    }
    ~Stack()
    {
        std::printf("destroyed with %d\n", n);
    }
};

int main()
{
    try {
        Stack<double, 3> s;
        const double some[] = { 1.5, 2.5 };
        for (double x : some) {
            s.push(x);
        }
        std::printf("%g\n", s.pop());
        for (int i = 0; i < 5; i++) {
            s.push(i);
        }
    } catch (int limit) {
        std::printf("full at %d\n", limit);
    }
    return 0;
}
