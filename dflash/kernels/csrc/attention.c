/* Paged causal attention, exact: a query's result depends on that query and its own pages only.
 *
 * Scores and weighted sums run page by page in page order with a running maximum (online softmax,
 * arXiv:1805.02867), float32 throughout. Queries of one run that share a key/value head share the
 * widening of each page; each keeps its own order of operations, so grouping changes no bit. */
#include "tape.h"

#define TOKENS_PER_TASK 16
#define QUERIES_PER_GROUP 64 /* query vectors that walk the pages together */

typedef struct {
  float query[MAX_HEAD_DIM] __attribute__((aligned(64)));
  float sum[MAX_HEAD_DIM] __attribute__((aligned(64)));
  float maximum, total;
  int64_t position, row, head;
} Query;

typedef struct {
  float keys[MAX_HEAD_DIM * PAGE] __attribute__((aligned(64)));
  float values[PAGE * MAX_HEAD_DIM] __attribute__((aligned(64)));
  Query queries[QUERIES_PER_GROUP];
} Scratch;

_Static_assert(sizeof(Scratch) <= SCRATCH_BYTES, "attention scratch does not fit");

static void widen_page(const Op *op, int64_t page, int64_t kv_head, Scratch *scratch) {
  int64_t size = (int64_t)op->head_dim * PAGE, base = (page * op->num_kv_heads + kv_head) * size;
  for (int64_t i = 0; i < size; i += LANES) {
    *(f32x16 *)(scratch->keys + i) = load_f32x16(op->keys, base + i, op->dtype);
    *(f32x16 *)(scratch->values + i) = load_f32x16(op->values, base + i, op->dtype);
  }
}

/* Scores of one query against the 16 keys of a page: four chains over the head dimension. */
static inline f32x16 page_scores(const Query *query, const float *keys, int64_t width) {
  f32x16 a = splat(0.0f), b = a, c = a, d = a;
  for (int64_t i = 0; i < width; i += 4) {
    a += query->query[i] * *(const f32x16 *)(keys + i * PAGE);
    b += query->query[i + 1] * *(const f32x16 *)(keys + (i + 1) * PAGE);
    c += query->query[i + 2] * *(const f32x16 *)(keys + (i + 2) * PAGE);
    d += query->query[i + 3] * *(const f32x16 *)(keys + (i + 3) * PAGE);
  }
  return (a + b) + (c + d);
}

static void add_page(Query *query, const Scratch *scratch, int64_t width, int64_t num_visible) {
  static const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  f32x16 scores = page_scores(query, scratch->keys, width);
  i32x16 visible = lane < (int32_t)num_visible;
  scores = choose_f32(visible, scores, splat(-__builtin_inff()));
  float page_maximum = max_lanes(scores);
  if (page_maximum > query->maximum) {
    /* The first page has nothing to rescale: its old maximum is -inf and its sums are zero. */
    f32x16 factor = exp_f32x16(splat(query->maximum - page_maximum));
    query->total *= factor[0];
    for (int64_t i = 0; i < width; i += LANES) *(f32x16 *)(query->sum + i) *= factor;
    query->maximum = page_maximum;
  }
  f32x16 weights = exp_f32x16(scores - query->maximum);
  query->total += sum_lanes(weights);
  float weight[PAGE];
  memcpy(weight, &weights, sizeof weight);
  /* Only tokens that exist are read: what a reused page holds beyond them may be anything. */
  for (int64_t i = 0; i < width; i += LANES) {
    f32x16 sum = *(f32x16 *)(query->sum + i);
    for (int64_t token = 0; token < num_visible; token++)
      sum += weight[token] * *(const f32x16 *)(scratch->values + token * width + i);
    *(f32x16 *)(query->sum + i) = sum;
  }
}

static void start_query(const Op *op, const Step *step, Query *query) {
  int64_t at = query->row * op->src_stride + query->head * op->head_dim;
  for (int64_t i = 0; i < op->head_dim; i += LANES) {
    *(f32x16 *)(query->query + i) = load_f32x16(op->src, at + i, op->dtype) * op->scale;
    *(f32x16 *)(query->sum + i) = splat(0.0f);
  }
  query->maximum = -__builtin_inff();
  query->total = 0.0f;
  query->position = step->positions[query->row];
}

static void finish_query(const Op *op, const Query *query) {
  int64_t at = query->row * op->dst_stride + query->head * op->head_dim;
  for (int64_t i = 0; i < op->head_dim; i += LANES)
    store_f32x16(op->dst, at + i, op->dtype, *(f32x16 *)(query->sum + i) / query->total);
}

/* Walk the pages once for a group of queries that share run and key/value head. */
static void attend_group(const Op *op, const Step *step, int64_t run, int64_t kv_head,
                         Scratch *scratch, int num_queries) {
  const int32_t *table = step->page_tables + run * step->max_pages;
  int64_t last = 0;
  for (int q = 0; q < num_queries; q++) {
    start_query(op, step, &scratch->queries[q]);
    if (scratch->queries[q].position > last) last = scratch->queries[q].position;
  }
  for (int64_t page = 0; page <= last / PAGE; page++) {
    widen_page(op, table[page], kv_head, scratch);
    for (int q = 0; q < num_queries; q++) {
      Query *query = &scratch->queries[q];
      int64_t num_visible = query->position + 1 - page * PAGE;
      if (num_visible > 0)
        add_page(query, scratch, op->head_dim, num_visible < PAGE ? num_visible : PAGE);
    }
  }
  for (int q = 0; q < num_queries; q++) finish_query(op, &scratch->queries[q]);
}

static void attend_tokens(const Op *op, const Step *step, int64_t run, int64_t kv_head,
                          int64_t begin, int64_t end, Scratch *scratch) {
  int64_t group = op->num_heads / op->num_kv_heads;
  int num_queries = 0;
  for (int64_t row = begin; row < end; row++) {
    for (int64_t i = 0; i < group; i++) {
      Query *query = &scratch->queries[num_queries++];
      query->row = row;
      query->head = kv_head * group + i;
      if (num_queries == QUERIES_PER_GROUP) {
        attend_group(op, step, run, kv_head, scratch, num_queries);
        num_queries = 0;
      }
    }
  }
  if (num_queries) attend_group(op, step, run, kv_head, scratch, num_queries);
}

/* Tasks are (run, block of its tokens, key/value head), counted off in that order. */
void run_attend(const Op *op, const Step *step, Worker *worker) {
  int64_t first_block = 0, run = 0;
  for (int64_t task; (task = take_task(worker)) >= 0;) {
    int64_t block = task / op->num_kv_heads;
    for (; run < step->num_runs; run++) {
      int64_t tokens = step->run_offsets[run + 1] - step->run_offsets[run];
      int64_t blocks = (tokens + TOKENS_PER_TASK - 1) / TOKENS_PER_TASK;
      if (block < first_block + blocks) break;
      first_block += blocks;
    }
    if (run == step->num_runs) return;
    int64_t begin = step->run_offsets[run] + (block - first_block) * TOKENS_PER_TASK;
    int64_t end = step->run_offsets[run + 1];
    if (end > begin + TOKENS_PER_TASK) end = begin + TOKENS_PER_TASK;
    attend_tokens(op, step, run, task % op->num_kv_heads, begin, end, worker->scratch);
  }
}
