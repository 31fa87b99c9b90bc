/* The next token of each row: argmax of score plus noise over the allowed ids. */
#include "noise.h"
#include "prefix.h"

/* Filled by dflash/kernels/draw.py: same fields, same order. */
typedef struct {
    const float *logits;
    uint64_t seed;
    uint32_t choice;
    uint32_t position;
    double temperature; /* 0: the largest logit */
    double top_p;       /* 1: off */
    double least_score; /* of min-p; -infinity: off */
    int64_t top_k;      /* 0: off */
} draw_row;

typedef struct {
    int32_t rank;
    int64_t token_id; /* -1: a logit is NaN or +infinity, or none is finite */
} largest_logit;

static largest_logit find_largest(const float *row, int64_t vocab) {
    largest_logit best = {RANK_OF_MINUS_INFINITY, -1};
    int64_t best_start = 0;
    int32_t least = INT32_MAX;
    for (int64_t start = 0; start < vocab; start += BLOCK) {
        int64_t count = vocab - start < BLOCK ? vocab - start : BLOCK;
        int32_t largest = INT32_MIN;
        for (int64_t i = 0; i < count; i++) {
            int32_t rank = rank_of(row[start + i]);
            largest = rank > largest ? rank : largest;
            least = rank < least ? rank : least;
        }
        if (largest > best.rank) {
            best.rank = largest;
            best_start = start;
        }
    }
    /* NaNs rank beyond the infinities, on the side of their sign bit. */
    int is_usable = best.rank > RANK_OF_MINUS_INFINITY && best.rank < RANK_OF_INFINITY &&
                    least >= RANK_OF_MINUS_INFINITY;
    if (!is_usable) return best;
    best.token_id = best_start;
    while (rank_of(row[best.token_id]) != best.rank) best.token_id++;
    return best;
}

static last_member allowed_members(const draw_row *draw, int64_t vocab, float largest) {
    last_member last = every_member(vocab);
    if (draw->top_k > 0) last = prefix_of_count(draw->logits, vocab, draw->top_k);
    if (draw->top_p < 1.0)
        last = prefix_of_mass(draw->logits, vocab, last, largest, draw->temperature, draw->top_p);
    return last;
}

typedef struct {
    double score;
    int64_t token_id;
} winner;

/* Let every id of one block whose word may win compete. */
static winner compete(const draw_row *draw, last_member last, float largest, int64_t start,
                      int64_t count, uint64_t least_word, winner best) {
    uint32_t words[4][NOISE_BLOCK / 4];
    noise_words((noise_key){draw->seed, draw->choice, draw->position}, start, words);
    const uint32_t *flat = &words[0][0];
    uint32_t highest = 0;
    for (int i = 0; i < NOISE_BLOCK; i++) highest = flat[i] > highest ? flat[i] : highest;
    if (highest < least_word) return best;
    for (int64_t i = 0; i < count; i++) {
        uint32_t word = words[i & 3][i >> 2];
        float logit = draw->logits[start + i];
        if (word < least_word || !is_within(last, rank_of(logit), start + i)) continue;
        double score = ((double)logit - (double)largest) / draw->temperature;
        if (score < draw->least_score) continue;
        score += gumbel_of(word);
        /* Ids come in ascending order, so the lower one keeps a tie. */
        if (score > best.score) best = (winner){score, start + i};
    }
    return best;
}

static int64_t choose(const draw_row *draw, int64_t vocab) {
    largest_logit top = find_largest(draw->logits, vocab);
    if (top.token_id < 0 || draw->temperature == 0.0) return top.token_id;
    float largest = logit_of(top.rank);
    last_member last = allowed_members(draw, vocab, largest);
    /* Under the lowest noise there is: the largest logit, always allowed, beats it. */
    winner best = {gumbel_of(0) - 1.0, top.token_id};
    for (int64_t start = 0; start < vocab; start += BLOCK) {
        int64_t count = vocab - start < BLOCK ? vocab - start : BLOCK;
        int32_t rank = largest_rank(draw->logits + start, count);
        if (rank < last.rank) continue;
        double score = ((double)logit_of(rank) - (double)largest) / draw->temperature;
        uint64_t least_word = word_that_may_reach(best.score - score);
        if (score < draw->least_score || least_word > UINT32_MAX) continue;
        best = compete(draw, last, largest, start, count, least_word, best);
    }
    return best.token_id;
}

void dflash_draw(const draw_row *draws, int64_t num_rows, int64_t vocab, int64_t *token_ids,
                 int64_t num_threads) {
#pragma omp parallel for schedule(dynamic) num_threads((int)num_threads) if (num_rows > 1)
    for (int64_t row = 0; row < num_rows; row++) token_ids[row] = choose(&draws[row], vocab);
}
