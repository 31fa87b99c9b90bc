/* Draft tokens from a block's logits, slot by slot: dflash/drafters/walk.py is the same in numpy.
 *
 * Ids have to be equal, so a score is one chain of float32 operations in the order written here,
 * each rounded by itself (portable_math.h turns contraction off). */
#include <math.h>

#include "noise.h"
#include "tape.h"

#define MOST_CANDIDATES 16

/* Filled by dflash/drafters/compiled_walk.py: same fields, same order. */
typedef struct {
    uint64_t seed;
    uint32_t choice;
    uint32_t position; /* of the anchor */
    double temperature;
    int64_t anchor;
    int64_t first_slot, num_slots;
} walk_row;

/* Mirrors _Slots in dflash/drafters/compiled_walk.py. Strides count elements. */
typedef struct {
    const float *logits;        /* [slots, columns] */
    const float *states;        /* [slots, rank] */
    const int64_t *target_ids;  /* [columns], ascending; NULL: a column is its id */
    const void *predecessors;   /* [ids, rank]; NULL: no selector */
    const void *successors;     /* [ids, rank] */
    int64_t columns, logits_stride, rank, states_stride;
    double softcap; /* 0: off */
    float multiplier;
    int32_t num_candidates, dtype; /* at most MOST_CANDIDATES; of the selector's tables */
} walk_slots;

/* Of one slot: its largest finite logits, descending, ties in order of id. */
typedef struct {
    int count;
    float score[MOST_CANDIDATES];      /* the logit at first */
    int64_t token_id[MOST_CANDIDATES]; /* the column at first */
} candidates;

static float least_to_beat(const candidates *best, int most) {
    return best->count < most ? -INFINITY : best->score[most - 1];
}

/* Columns are offered in ascending order: behind its equals, the lower one goes before. */
static void offer(candidates *best, int most, float logit, int64_t column) {
    if (!(logit > least_to_beat(best, most)) || logit == INFINITY) return;
    int place = best->count < most ? best->count++ : most - 1;
    for (; place > 0 && best->score[place - 1] < logit; place--) {
        best->score[place] = best->score[place - 1];
        best->token_id[place] = best->token_id[place - 1];
    }
    best->score[place] = logit;
    best->token_id[place] = column;
}

/* Bit i is set where lane i is over the bound; NaN is over nothing. */
static inline uint32_t lanes_over(f32x16 x, float bound) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(bound), _CMP_GT_OQ);
#else
    i32x16 is_over = x > bound;
    uint32_t bits = 0;
    for (int lane = 0; lane < LANES; lane++) bits |= (uint32_t)(is_over[lane] & 1) << lane;
    return bits;
#endif
}

/* After the first few hundred columns hardly any is over the bound: a vector costs a comparison. */
static candidates largest_of(const float *logits, int64_t columns, int most) {
    candidates best = {.count = 0};
    float bound = least_to_beat(&best, most);
    int64_t column = 0;
    for (; column + LANES <= columns; column += LANES) {
        uint32_t over = lanes_over(*(const f32x16_u *)(logits + column), bound);
        if (!over) continue;
        for (; over; over &= over - 1) {
            int64_t at = column + __builtin_ctz(over);
            offer(&best, most, logits[at], at);
        }
        bound = least_to_beat(&best, most);
    }
    for (; column < columns; column++) offer(&best, most, logits[column], column);
    return best;
}

/* Ask for the cache lines that hold these bytes. */
static void fetch(const char *from, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
    __builtin_prefetch(from + bytes - 1);
}

static float softcapped(float score, double softcap) {
    double wide = (double)score;
    double e = exponential(-2.0 * fabs(wide / softcap));
    double sign = (double)((wide > 0.0) - (wide < 0.0));
    return (float)(sign * softcap * (1.0 - e) / (1.0 + e));
}

/* From logits and columns to scores and target ids, before the selector. A loop for each step:
 * with the conditions inside one loop, GCC 12 masks its gather of target ids wrongly on AVX2. */
static void score_alone(const walk_slots *slots, candidates *found) {
    for (int i = 0; i < found->count; i++) found->score[i] *= slots->multiplier;
    if (slots->softcap != 0.0)
        for (int i = 0; i < found->count; i++)
            found->score[i] = softcapped(found->score[i], slots->softcap);
    if (slots->target_ids)
        for (int i = 0; i < found->count; i++)
            found->token_id[i] = slots->target_ids[found->token_id[i]];
}

/* A slot's candidates, with their rows of the selector's table on the way: those lie anywhere in
 * it, and what is asked for now is there when the slot before has been walked. */
static candidates candidates_of(const walk_slots *slots, int64_t slot) {
    candidates found = largest_of(slots->logits + slot * slots->logits_stride, slots->columns,
                                  slots->num_candidates);
    score_alone(slots, &found);
    if (slots->successors) {
        int64_t bytes = slots->rank * (slots->dtype == DTYPE_BF16 ? 2 : 4);
        for (int i = 0; i < found.count; i++)
            fetch((const char *)slots->successors + found.token_id[i] * bytes, bytes);
    }
    return found;
}

/* Add what following the token `previous` adds to each. The candidates' sums are side by side:
 * none waits for another. */
static void score_pairs(const walk_slots *slots, const float *state, int64_t previous,
                        candidates *found) {
    float sum[MOST_CANDIDATES] = {0};
    int64_t rank = slots->rank;
    for (int64_t j = 0; j < rank; j++) {
        float gate = load_f32(slots->predecessors, previous * rank + j, slots->dtype) * state[j];
        for (int i = 0; i < found->count; i++)
            sum[i] += gate * load_f32(slots->successors, found->token_id[i] * rank + j,
                                      slots->dtype);
    }
    for (int i = 0; i < found->count; i++) found->score[i] += sum[i];
}

/* Leave out the candidates whose score is not finite; return the largest score of the others. */
static float keep_finite(candidates *found) {
    int kept = 0;
    float largest = -INFINITY;
    for (int i = 0; i < found->count; i++) {
        if (!isfinite(found->score[i])) continue;
        largest = found->score[i] > largest ? found->score[i] : largest;
        found->score[kept] = found->score[i];
        found->token_id[kept++] = found->token_id[i];
    }
    found->count = kept;
    return largest;
}

/* The candidate of the highest rank, ties to the lower id; -1 where there is none. */
static int64_t best_of(candidates *found, const walk_row *row, uint32_t position) {
    noise_key key = {row->seed, row->choice, position};
    float largest = keep_finite(found);
    int64_t best = -1;
    double best_rank = -INFINITY;
    for (int i = 0; i < found->count; i++) {
        double rank = (double)found->score[i] - (double)largest;
        if (row->temperature > 0.0)
            rank = rank / row->temperature + noise_of(key, found->token_id[i]);
        if (best < 0 || rank > best_rank || (rank == best_rank && found->token_id[i] < best)) {
            best = found->token_id[i];
            best_rank = rank;
        }
    }
    return best;
}

/* Write the row's draft tokens from its first slot on; return how many there are. */
static int64_t walk_along(const walk_slots *slots, const walk_row *row, int64_t *token_ids) {
    int64_t previous = row->anchor, end = row->first_slot + row->num_slots;
    candidates next = {.count = 0};
    if (row->first_slot < end) next = candidates_of(slots, row->first_slot);
    for (int64_t i = 0; i < row->num_slots; i++) {
        int64_t slot = row->first_slot + i;
        candidates found = next;
        if (slot + 1 < end) next = candidates_of(slots, slot + 1);
        if (slots->predecessors)
            score_pairs(slots, slots->states + slot * slots->states_stride, previous, &found);
        previous = best_of(&found, row, row->position + 1 + (uint32_t)i);
        if (previous < 0) return i;
        token_ids[slot] = previous;
    }
    return row->num_slots;
}

void dflash_walk(const walk_slots *slots, const walk_row *rows, int64_t num_rows,
                 int64_t *token_ids, int64_t *counts, int64_t num_threads) {
#pragma omp parallel for schedule(dynamic) num_threads((int)num_threads) if (num_rows > 1)
    for (int64_t row = 0; row < num_rows; row++)
        counts[row] = walk_along(slots, &rows[row], token_ids);
}
