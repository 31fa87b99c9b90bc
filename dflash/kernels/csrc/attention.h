/* One page of attention: what a sequence's own tokens and a draft block have in common. */
#ifndef DFLASH_ATTENTION_H
#define DFLASH_ATTENTION_H

#include "tape.h"

#define MAX_HEADS 4 /* query heads computed side by side: 16 vectors of sums */

/* Tokens of a page, begin to end - 1. */
typedef struct {
  int32_t begin, end;
} Tokens;

/* One query of one head on its way over the pages. */
typedef struct {
  float query[MAX_HEAD_DIM] __attribute__((aligned(64)));
  float sum[MAX_HEAD_DIM] __attribute__((aligned(64)));
  float weight[PAGE] __attribute__((aligned(64)));
  float maximum, total;
  Tokens seen; /* of the page to visit; a page of which it sees nothing changes no bit of it */
} Head;

/* One page's keys, [width, 16 tokens], and values, [16 tokens, width], of one key/value head. */
typedef struct {
  const void *keys, *values;
  const char *next_keys, *next_values; /* of the page after it, to be fetched meanwhile, or NULL */
  Tokens seen;                         /* by any of the heads that visit it */
} Page;

/* Bytes from the start of a layer's keys, or values, to those of a page's key/value head. */
int64_t page_offset(const Op *op, int64_t page, int64_t kv_head);

/* Begin with the query that lies `at` elements into op->src. */
void start_head(const Op *op, Head *head, int64_t at);

/* Take up to MAX_HEADS heads over a page whose elements are of this type. */
void visit_page(Head *heads, int num_heads, Page page, int dtype, int64_t width);

/* Write the attended values `at` elements into op->dst. */
void finish_head(const Op *op, const Head *head, int64_t at);

/* Pages lie anywhere in memory: without a hint each would start with a wait. Spread over the work
 * on the page before, the hints do not fill the queue of outstanding reads. */
static inline void fetch(const char *next, int64_t bytes, int64_t width) {
  if (!next) return;
  for (int64_t i = 0; i < width; i += 64) __builtin_prefetch(next + bytes + i);
}

#endif
