/* Weighted selection by the digits of the rank: three passes of 12, 12 and 8 bits. */
#include "prefix.h"

#define BINS 4096
#define MOST_RANKED 64
static const int SHIFTS[] = {20, 8, 0};
static const int WIDTHS[] = {12, 12, 8};

typedef struct {
    const float *row;
    int64_t vocab;
    last_member outer;
    int32_t floor; /* members under this rank are known not to be in the answer */
    double largest;
    double temperature; /* 0: every member weighs 1 */
} weighing;

static int64_t weight_of(const weighing *w, float logit) {
    return w->temperature == 0.0 ? 1 : mass_of(((double)logit - w->largest) / w->temperature);
}

static void weigh_block(const weighing *w, int64_t start, int64_t count, int64_t *weights) {
    if (w->temperature == 0.0) {
        for (int64_t i = 0; i < count; i++) weights[i] = 1;
        return;
    }
    for (int64_t i = 0; i < count; i++)
        weights[i] = mass_of(((double)w->row[start + i] - w->largest) / w->temperature);
}

static uint32_t digits_of(int32_t rank) { return (uint32_t)rank ^ UINT32_C(0x80000000); }

/* Add up the members whose rank starts with `head`, by the digit that follows it. */
static void fill_bins(const weighing *w, uint32_t head, int pass, int64_t *bins) {
    int64_t weights[BLOCK];
    int head_shift = SHIFTS[pass] + WIDTHS[pass];
    uint32_t digit_mask = (1u << WIDTHS[pass]) - 1;
    memset(bins, 0, BINS * sizeof *bins);
    for (int64_t start = 0; start < w->vocab; start += BLOCK) {
        int64_t count = w->vocab - start < BLOCK ? w->vocab - start : BLOCK;
        int any = 0;
        for (int64_t i = 0; i < count; i++) {
            int32_t rank = rank_of(w->row[start + i]);
            uint64_t digits = digits_of(rank);
            any |= ((digits >> head_shift) == head) & (rank >= w->floor);
        }
        if (!any) continue;
        /* Later passes have few members a block: those are weighed one by one. */
        if (pass == 0) weigh_block(w, start, count, weights);
        for (int64_t i = 0; i < count; i++) {
            int32_t rank = rank_of(w->row[start + i]);
            uint64_t digits = digits_of(rank);
            if ((digits >> head_shift) != head || !is_within(w->outer, rank, start + i)) continue;
            int64_t weight = pass == 0 ? weights[i] : weight_of(w, w->row[start + i]);
            bins[(digits >> SHIFTS[pass]) & digit_mask] += weight;
        }
    }
}

/* Return the id at which the members of one rank, in order of id, make up what is missing. */
static int64_t last_of_rank(const weighing *w, int32_t rank, int64_t missing) {
    int64_t weight = weight_of(w, logit_of(rank));
    for (int64_t token_id = 0; token_id < w->vocab; token_id++) {
        if (rank_of(w->row[token_id]) != rank) continue;
        missing -= weight;
        if (missing <= 0) return token_id;
    }
    return w->vocab;
}

/* What of the total is asked for; 0 or less where the whole prefix is. */
typedef struct {
    int64_t count;
    double share;
} amount;

static int64_t wanted(amount asked, const int64_t *bins) {
    int64_t total = 0;
    for (int bin = 0; bin < BINS; bin++) total += bins[bin];
    if (asked.count > 0) return asked.count <= total ? asked.count : 0;
    double exact = asked.share * (double)total;
    int64_t least = (int64_t)exact;
    least += (double)least < exact;
    least = least < 1 ? 1 : least;
    return least < total ? least : total;
}

static last_member shortest_prefix(const weighing *w, amount asked) {
    int64_t bins[BINS];
    uint32_t head = 0;
    int64_t missing = 0;
    for (int pass = 0; pass < 3; pass++) {
        fill_bins(w, head, pass, bins);
        if (pass == 0) missing = wanted(asked, bins);
        if (missing <= 0) return w->outer;
        int bin = (1 << WIDTHS[pass]) - 1;
        for (; bin > 0 && bins[bin] < missing; bin--) missing -= bins[bin];
        head = (head << WIDTHS[pass]) | (uint32_t)bin;
    }
    int32_t rank = (int32_t)(head ^ UINT32_C(0x80000000));
    return (last_member){rank, last_of_rank(w, rank, missing)};
}

last_member every_member(int64_t vocab) {
    return (last_member){RANK_OF_MINUS_INFINITY + 1, vocab};
}

/* Return a rank that `count` ids reach: the count-th of the blocks' largest. With few asked for,
 * it spares nearly every block the three passes. */
static int32_t rank_reached(const float *row, int64_t vocab, int64_t count) {
    int32_t ranks[MOST_RANKED]; /* descending */
    if (count > MOST_RANKED) return INT32_MIN;
    for (int64_t i = 0; i < count; i++) ranks[i] = INT32_MIN;
    for (int64_t start = 0; start < vocab; start += BLOCK) {
        int64_t size = vocab - start < BLOCK ? vocab - start : BLOCK;
        int32_t rank = largest_rank(row + start, size);
        if (rank <= ranks[count - 1]) continue;
        int64_t place = count - 1;
        for (; place > 0 && ranks[place - 1] < rank; place--) ranks[place] = ranks[place - 1];
        ranks[place] = rank;
    }
    return ranks[count - 1];
}

last_member prefix_of_count(const float *row, int64_t vocab, int64_t count) {
    weighing w = {row, vocab, every_member(vocab), rank_reached(row, vocab, count), 0.0, 0.0};
    return shortest_prefix(&w, (amount){count, 0.0});
}

last_member prefix_of_mass(const float *row, int64_t vocab, last_member outer, float largest,
                           double temperature, double share) {
    weighing w = {row, vocab, outer, outer.rank, largest, temperature};
    return shortest_prefix(&w, (amount){0, share});
}
