/* Gauss elimination with pivots; the solution is compared as floats. */
#include <math.h>
#include <stdio.h>

#define MAX 16

int main(void)
{
    static double a[MAX][MAX + 1];
    int n;
    if (scanf("%d", &n) != 1 || n < 1 || n > MAX) {
        return 2;
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j <= n; j++) {
            if (scanf("%lf", &a[i][j]) != 1) {
                return 2;
            }
        }
    }
    for (int col = 0; col < n; col++) {
        int pivot = col;
        for (int row = col + 1; row < n; row++) {
            if (fabs(a[row][col]) > fabs(a[pivot][col])) {
                pivot = row;
            }
        }
        if (fabs(a[pivot][col]) < 1e-12) {
            puts("singular");
            return 0;
        }
        for (int j = 0; j <= n; j++) {
            double t = a[col][j];
            a[col][j] = a[pivot][j];
            a[pivot][j] = t;
        }
        for (int row = 0; row < n; row++) {
            if (row != col) {
                double f = a[row][col] / a[col][col];
                for (int j = col; j <= n; j++) {
                    a[row][j] -= f * a[col][j];
                }
            }
        }
    }
    for (int i = 0; i < n; i++) {
        printf("%.10f%c", a[i][n] / a[i][i], i + 1 < n ? ' ' : '\n');
    }
    return 0;
}
