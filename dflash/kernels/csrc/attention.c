/* Paged causal attention, exact: a query's result depends on that query and its own pages only.
 *
 * Scores and weighted sums run page by page in page order with a running maximum (online softmax,
 * arXiv:1805.02867), float32 throughout. Query heads that share a key/value head are computed side
 * by side, so that each key and value is widened once for all of them; each keeps its own chain of
 * operations, so how many are computed together changes no bit. */
#include "attention.h"

#define TOKENS_PER_TASK 8

int64_t page_offset(const Op *op, int64_t page, int64_t kv_head) {
  int64_t bytes = (int64_t)op->head_dim * PAGE * (op->dtype == DTYPE_BF16 ? 2 : 4);
  return (page * op->num_kv_heads + kv_head) * bytes;
}

/* Page i of a sequence whose positions lowest to highest are seen. */
static Page page_at(const Op *op, const int32_t *table, int64_t i, int64_t lowest, int64_t highest,
                    int64_t kv_head) {
  int64_t last = highest / PAGE, next = i < last ? i + 1 : i;
  int64_t at = page_offset(op, table[i], kv_head);
  int64_t next_at = page_offset(op, table[next], kv_head);
  return (Page){
      .keys = (const char *)op->keys + at,
      .values = (const char *)op->values + at,
      .next_keys = (const char *)op->keys + next_at,
      .next_values = (const char *)op->values + next_at,
      .seen = {i * PAGE < lowest ? (int32_t)(lowest - i * PAGE) : 0,
               i < last ? PAGE : (int32_t)(highest - last * PAGE + 1)},
  };
}

/* Turn a page's scores into weights, rescaling what was summed before if the maximum rose. What the
 * head does not see weighs nothing: where it sees nothing at all, its maximum and sums stay. */
static inline void weigh(Head *head, f32x16 scores, int64_t width) {
  static const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  i32x16 is_seen = (lane >= head->seen.begin) & (lane < head->seen.end);
  scores = choose_f32(is_seen, scores, splat(-__builtin_inff()));
  float page_maximum = max_lanes(scores);
  if (page_maximum > head->maximum) {
    /* Before the first page the maximum is -inf: the factor is 0 and scales zeros. */
    f32x16 factor = exp_f32x16(splat(head->maximum - page_maximum));
    head->total *= factor[0];
    for (int64_t i = 0; i < width; i += LANES) *(f32x16 *)(head->sum + i) *= factor;
    head->maximum = page_maximum;
  }
  f32x16 weights = choose_f32(is_seen, exp_f32x16(scores - head->maximum), splat(0.0f));
  head->total += sum_lanes(weights);
  *(f32x16 *)head->weight = weights;
}

/* Four chains over the head dimension for each head, joined in one order. */
static inline __attribute__((always_inline)) void score(Head *heads, const int num_heads, Page page,
                                                        const int dtype, const int64_t width) {
  f32x16 chain[MAX_HEADS][4] = {0};
  const int64_t bytes = dtype == DTYPE_BF16 ? 2 : 4;
  for (int64_t i = 0; i < width; i += 4) {
    fetch(page.next_keys, i * PAGE * bytes, 4 * PAGE * bytes);
    for (int j = 0; j < 4; j++) {
      f32x16 keys = load_f32x16(page.keys, (i + j) * PAGE, dtype);
      for (int h = 0; h < num_heads; h++) chain[h][j] += heads[h].query[i + j] * keys;
    }
  }
  for (int h = 0; h < num_heads; h++)
    weigh(&heads[h], (chain[h][0] + chain[h][1]) + (chain[h][2] + chain[h][3]), width);
}

/* Only tokens that a head sees are read: what a reused page holds beyond them may be anything. */
static inline __attribute__((always_inline)) void add_values(Head *heads, const int num_heads,
                                                             Page page, const int dtype,
                                                             const int64_t width,
                                                             const int64_t at, const int vectors) {
  f32x16 sum[MAX_HEADS][4];
  for (int h = 0; h < num_heads; h++)
    for (int v = 0; v < vectors; v++) sum[h][v] = *(f32x16 *)(heads[h].sum + at + v * LANES);
  const int64_t bytes = dtype == DTYPE_BF16 ? 2 : 4;
  for (int64_t token = page.seen.begin; token < page.seen.end; token++) {
    fetch(page.next_values, (token * width + at) * bytes, vectors * LANES * bytes);
    for (int v = 0; v < vectors; v++) {
      f32x16 values = load_f32x16(page.values, token * width + at + v * LANES, dtype);
      for (int h = 0; h < num_heads; h++) sum[h][v] += heads[h].weight[token] * values;
    }
  }
  for (int h = 0; h < num_heads; h++)
    for (int v = 0; v < vectors; v++) *(f32x16 *)(heads[h].sum + at + v * LANES) = sum[h][v];
}

static inline __attribute__((always_inline)) void visit(Head *heads, const int num_heads, Page page,
                                                        const int dtype, const int64_t width) {
  score(heads, num_heads, page, dtype, width);
  int64_t at = 0;
  for (; at + 4 * LANES <= width; at += 4 * LANES)
    add_values(heads, num_heads, page, dtype, width, at, 4);
  if (at < width) add_values(heads, num_heads, page, dtype, width, at, 2);
}

/* Constant counts, types and the common widths become loops of known length. */
#define VISIT_CASE(count)                                                  \
  case count:                                                              \
    if (dtype == DTYPE_BF16 && width == 64)                                \
      visit(heads, count, page, DTYPE_BF16, 64);                           \
    else if (dtype == DTYPE_BF16 && width == 128)                          \
      visit(heads, count, page, DTYPE_BF16, 128);                          \
    else if (dtype == DTYPE_F32 && width == 64)                            \
      visit(heads, count, page, DTYPE_F32, 64);                            \
    else                                                                   \
      visit(heads, count, page, dtype, width);                             \
    break;

void visit_page(Head *heads, int num_heads, Page page, int dtype, int64_t width) {
  switch (num_heads) {
    VISIT_CASE(1) VISIT_CASE(2) VISIT_CASE(3) VISIT_CASE(4)
  }
}

void start_head(const Op *op, Head *head, int64_t at) {
  for (int64_t i = 0; i < op->head_dim; i += LANES) {
    *(f32x16 *)(head->query + i) = load_f32x16(op->src, at + i, op->dtype) * op->scale;
    *(f32x16 *)(head->sum + i) = splat(0.0f);
  }
  head->maximum = -__builtin_inff();
  head->total = 0.0f;
}

void finish_head(const Op *op, const Head *head, int64_t at) {
  for (int64_t i = 0; i < op->head_dim; i += LANES)
    store_f32x16(op->dst, at + i, op->dtype, *(f32x16 *)(head->sum + i) / head->total);
}

/* One token's query heads first_head .. first_head + num_heads over the token's own pages. */
static void attend(const Op *op, const Step *step, int64_t row, int64_t first_head, int num_heads) {
  Head heads[MAX_HEADS];
  const int32_t *table = step->page_tables + step->run_of_token[row] * step->max_pages;
  int64_t highest = step->positions[row], lowest = highest - op->window + 1, width = op->head_dim;
  if (lowest < op->first) lowest = op->first;
  int64_t kv_head = first_head / (op->num_heads / op->num_kv_heads);
  int64_t source = row * op->src_stride + first_head * width;
  int64_t destination = row * op->dst_stride + first_head * width;
  for (int h = 0; h < num_heads; h++) start_head(op, &heads[h], source + h * width);
  for (int64_t i = lowest / PAGE; i * PAGE <= highest; i++) {
    Page page = page_at(op, table, i, lowest, highest, kv_head);
    for (int h = 0; h < num_heads; h++) heads[h].seen = page.seen;
    visit_page(heads, num_heads, page, op->dtype, width);
  }
  for (int h = 0; h < num_heads; h++) finish_head(op, &heads[h], destination + h * width);
}

/* Tasks are (block of rows, key/value head): a block of a long run finds its pages in cache. */
static int64_t rows_per_task(const Op *op, const Step *step) {
  return num_rows(op, step) > step->num_runs ? TOKENS_PER_TASK : 1;
}

int64_t count_attend_tasks(const Op *op, const Step *step) {
  int64_t block = rows_per_task(op, step);
  return (num_rows(op, step) + block - 1) / block * op->num_kv_heads;
}

void run_attend_task(const Op *op, const Step *step, int64_t task) {
  int64_t rows = num_rows(op, step), block = rows_per_task(op, step);
  int64_t group = op->num_heads / op->num_kv_heads, first = task % op->num_kv_heads * group;
  int64_t begin = task / op->num_kv_heads * block, end = begin + block < rows ? begin + block : rows;
  for (int64_t row = begin; row < end; row++)
    for (int64_t h = 0; h < group; h += MAX_HEADS)
      attend(op, step, row, first + h, group - h < MAX_HEADS ? (int)(group - h) : MAX_HEADS);
}
