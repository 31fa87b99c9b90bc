/* What log-probabilities need of a row: its total mass and its largest logits. */
#include "prefix.h"

int64_t dflash_total_mass(const float *row, int64_t vocab) {
    double largest = logit_of(largest_rank(row, vocab));
    int64_t total = 0;
    for (int64_t i = 0; i < vocab; i++) total += mass_of((double)row[i] - largest);
    return total;
}

/* Write the ids of the `count` largest logits in order of id; return how many there are. */
int64_t dflash_largest(const float *row, int64_t vocab, int64_t count, int64_t *token_ids) {
    last_member last = prefix_of_count(row, vocab, count);
    int64_t found = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (is_within(last, rank_of(row[i]), i)) token_ids[found++] = i;
    return found;
}
