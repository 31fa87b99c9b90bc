/* Logits as integers whose order is the order of the floats: maxima and ranks without NaN rules. */
#ifndef DFLASH_LOGIT_ORDER_H
#define DFLASH_LOGIT_ORDER_H

#include <stdint.h>
#include <string.h>

#define RANK_OF_INFINITY INT32_C(0x7f800000)
#define RANK_OF_MINUS_INFINITY (-INT32_C(0x7f800001))

/* Equal floats have equal ranks: adding zero turns -0 into 0. */
static inline int32_t rank_of(float logit) {
    float canonical = logit + 0.0f;
    int32_t bits;
    memcpy(&bits, &canonical, sizeof bits);
    return bits ^ ((bits >> 31) & INT32_MAX);
}

static inline float logit_of(int32_t rank) {
    int32_t bits = rank ^ ((rank >> 31) & INT32_MAX);
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

static inline int32_t largest_rank(const float *logits, int64_t count) {
    int32_t largest = INT32_MIN;
    for (int64_t i = 0; i < count; i++) {
        int32_t rank = rank_of(logits[i]);
        largest = rank > largest ? rank : largest;
    }
    return largest;
}

#endif
