/* Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). */
#include "noise.h"

#define ROUNDS 10
/* Over the Gumbel number of the last word, 33 ln 2. */
#define HIGHEST_NOISE 23.0

typedef struct {
    uint32_t c0, c1, c2, c3;
} four_words;

/* The words of ids 4 * group to 4 * group + 3. */
static inline four_words words_of_group(noise_key key, uint32_t group) {
    uint32_t c0 = group, c1 = key.position, c2 = key.choice, c3 = 0;
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)UINT32_C(0xD2511F53) * c0;
        uint64_t p1 = (uint64_t)UINT32_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
    return (four_words){c0, c1, c2, c3};
}

void noise_words(noise_key key, int64_t first, uint32_t words[4][NOISE_BLOCK / 4]) {
    uint32_t group = (uint32_t)(first >> 2);
    for (uint32_t i = 0; i < NOISE_BLOCK / 4; i++) {
        four_words four = words_of_group(key, group + i);
        words[0][i] = four.c0;
        words[1][i] = four.c1;
        words[2][i] = four.c2;
        words[3][i] = four.c3;
    }
}

double noise_of(noise_key key, int64_t token_id) {
    four_words four = words_of_group(key, (uint32_t)(token_id >> 2));
    const uint32_t words[4] = {four.c0, four.c1, four.c2, four.c3};
    return gumbel_of(words[token_id & 3]);
}

uint64_t word_that_may_reach(double least) {
    if (least > HIGHEST_NOISE) return UINT64_C(1) << 32;
    /* The inverse of gumbel_of, exp(-exp(-g)). The slack is thousands of times the rounding of
     * the scores (under 32 in size where they matter) and of both inverses; what it lets through
     * too much is computed in full. */
    double uniform = exponential(-exponential(-(least - 1e-9)));
    double word = uniform * 0x1p32 - 2.0;
    return word > 0.0 ? (uint64_t)word : 0;
}

/* The noise of ids 0 to `vocab - 1`, by which a build is compared with numpy before it is used. */
void dflash_noise(uint64_t seed, uint32_t choice, uint32_t position, int64_t vocab,
                  double *noise) {
    uint32_t words[4][NOISE_BLOCK / 4];
    noise_key key = {seed, choice, position};
    for (int64_t first = 0; first < vocab; first += NOISE_BLOCK) {
        noise_words(key, first, words);
        int64_t count = vocab - first < NOISE_BLOCK ? vocab - first : NOISE_BLOCK;
        for (int64_t i = 0; i < count; i++) noise[first + i] = gumbel_of(words[i & 3][i >> 2]);
    }
}
