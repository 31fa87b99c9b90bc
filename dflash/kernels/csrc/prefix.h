/* The ids a row may choose from, found without a sort.
 *
 * Order a row by logit, largest first, ties by the lower id. The sets of top-k and top-p are
 * prefixes of that order, so a set is its last member.
 */
#ifndef DFLASH_PREFIX_H
#define DFLASH_PREFIX_H

#include "logit_order.h"
#include "portable_math.h"

#define BLOCK 256

typedef struct {
    int32_t rank;
    int64_t token_id;
} last_member;

static inline int is_within(last_member last, int32_t rank, int64_t token_id) {
    return rank > last.rank || (rank == last.rank && token_id <= last.token_id);
}

/* Every id that is not banned. */
last_member every_member(int64_t vocab);

/* The first `count`, at least 1, of every member. */
last_member prefix_of_count(const float *row, int64_t vocab, int64_t count);

/* The shortest prefix with `share` of the mass of the prefix that ends with `outer`. */
last_member prefix_of_mass(const float *row, int64_t vocab, last_member outer, float largest,
                           double temperature, double share);

#endif
