/* Quicksort by hand against qsort, on numbers from a fixed generator. */
#include <stdio.h>
#include <stdlib.h>

#define N 5000

static unsigned state = 12345;

static int next_number(void)
{
    state = state * 1103515245u + 12345u;
    return (int)(state >> 16) % 1000;
}

static void sort(int *a, int n)
{
    while (n > 1) {
        int pivot = a[n / 2], i = 0, j = n - 1;
        while (i <= j) {
            while (a[i] < pivot) {
                i++;
            }
            while (a[j] > pivot) {
                j--;
            }
            if (i <= j) {
                int t = a[i];
                a[i++] = a[j];
                a[j--] = t;
            }
        }
        sort(a, j + 1);
        a += i;
        n -= i;
    }
}

static int compare(const void *x, const void *y)
{
    return *(const int *)x - *(const int *)y;
}

int main(void)
{
    static int a[N], b[N];
    for (int i = 0; i < N; i++) {
        a[i] = b[i] = next_number();
    }
    sort(a, N);
    qsort(b, N, sizeof b[0], compare);
    for (int i = 0; i < N; i++) {
        if (a[i] != b[i]) {
            printf("differs at %d\n", i);
            return 1;
        }
    }
    printf("%d %d %d\n", a[0], a[N / 2], a[N - 1]);
    return 0;
}
