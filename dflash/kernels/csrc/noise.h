/* Standard Gumbel noise as a pure function of (seed, choice, position, token id). */
#ifndef DFLASH_NOISE_H
#define DFLASH_NOISE_H

#include <stdint.h>

#include "portable_math.h"

/* Token ids that one call of `noise_words` covers: 64 counters of four words. */
#define NOISE_BLOCK 256

typedef struct {
    uint64_t seed;
    uint32_t choice;
    uint32_t position;
} noise_key;

/* Words of the ids `first` to `first + 255`; `first` is a multiple of 4. The word of id
 * `first + 4 * i + j` is `words[j][i]`. */
void noise_words(noise_key key, int64_t first, uint32_t words[4][NOISE_BLOCK / 4]);

/* Gumbel number of a word: the uniform is (word + 1/2) / 2^32, never 0 or 1. */
static inline double gumbel_of(uint32_t word) {
    double uniform = ((double)word + 0.5) * 0x1p-32;
    return -natural_log(-natural_log(uniform));
}

/* Gumbel number of one id: for a few of them, where `noise_words` would compute hundreds. */
double noise_of(noise_key key, int64_t token_id);

/* A word under the returned one has a Gumbel number under `least`. */
uint64_t word_that_may_reach(double least);

#endif
