/* log, exp and probability mass with the same bits on every machine.
 *
 * Only +, -, *, / and exponent bits, in the order written here; dflash/portable_math.py is the
 * same text in numpy and a test compares them bit for bit. A fused multiply-add would round once
 * where numpy rounds twice, so contraction is off: clang obeys the standard pragma, GCC ignores
 * it in gnu11 and obeys its own.
 */
#ifndef DFLASH_PORTABLE_MATH_H
#define DFLASH_PORTABLE_MATH_H

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include <stdint.h>
#include <string.h>

/* ln 2 in two parts. The first has 20 zero bits at its end: times an exponent it is exact. */
#define LN2_HIGH 0x1.62e42fefp-1
#define LN2_LOW 0x1.473de6af278edp-34
#define LOG2_E 0x1.71547652b82fep+0
#define SQRT_HALF_BITS 0x3fe6a09e667f3bcdLL
/* Adding this rounds a double below 2^51 to an integer, ties to even, in its lowest bits. */
#define TO_INTEGER 0x1.8p52
#define LEAST_EXPONENT (-700.0)
#define MASS_OF_LARGEST 0x1p43

static inline int64_t bits_of(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double double_of(int64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Natural logarithm of a positive normal number. */
static inline double natural_log(double value) {
    int64_t bits = bits_of(value);
    int64_t exponent = (bits - SQRT_HALF_BITS) >> 52;
    double e = (double)exponent;
    double f = double_of(bits - (int64_t)((uint64_t)exponent << 52)) - 1.0;
    double s = f / (2.0 + f);
    double z = s * s;
    double r = 2.0 / 21.0;
    r = r * z + 2.0 / 19.0;
    r = r * z + 2.0 / 17.0;
    r = r * z + 2.0 / 15.0;
    r = r * z + 2.0 / 13.0;
    r = r * z + 2.0 / 11.0;
    r = r * z + 2.0 / 9.0;
    r = r * z + 2.0 / 7.0;
    r = r * z + 2.0 / 5.0;
    r = r * z + 2.0 / 3.0;
    r = r * z;
    return e * LN2_HIGH + (f - (s * (f - r) - e * LN2_LOW));
}

/* e to the value; values under -700 count as -700. Not for values over 700. */
static inline double exponential(double value) {
    double x = value > LEAST_EXPONENT ? value : LEAST_EXPONENT;
    double rounded = x * LOG2_E + TO_INTEGER;
    double k = rounded - TO_INTEGER;
    int64_t exponent = bits_of(rounded) - bits_of(TO_INTEGER);
    double r = (x - k * LN2_HIGH) - k * LN2_LOW;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 1.0 / 2.0;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return p * double_of((int64_t)((uint64_t)(exponent + 1023) << 52));
}

/* Probability mass of a score at or under 0, in units of 2^-43 of the largest. Whole numbers:
 * their sum is the same in any order. */
static inline int64_t mass_of(double score) {
    double mass = exponential(score) * MASS_OF_LARGEST;
    return bits_of(mass + TO_INTEGER) - bits_of(TO_INTEGER);
}

#endif
