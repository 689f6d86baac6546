/* Celsius to Fahrenheit with integers: 9 / 5 is 1. */
#include <stdio.h>

int main(void)
{
    double celsius;
    while (scanf("%lf", &celsius) == 1) {
        printf("%.1f\n", celsius * (9 / 5) + 32);
    }
    return 0;
}
