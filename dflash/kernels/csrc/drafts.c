/* What only draft blocks have: attention over a context and the block itself, and a convolution
 * inside the block.
 *
 * All runs of the step are blocks of step->block_size slots. A block is computed by its own numbers
 * alone; its slots are computed side by side, each in a chain of its own. */
#include "attention.h"

#define HEADS_PER_TASK 32 /* query heads that share a page once it is widened */

/* A page of one key/value head in float32. */
typedef struct {
  float keys[MAX_HEAD_DIM * PAGE] __attribute__((aligned(64)));
  float values[PAGE * MAX_HEAD_DIM] __attribute__((aligned(64)));
} WidePage;

static int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }

static int32_t within(int64_t x, int64_t low, int64_t high) {
  return (int32_t)(x < low ? low : x > high ? high : x);
}

/* Widen a page once for all the heads that will visit it. What no head sees stays unread, but for
 * keys, which lie crosswise: the scores of those are never used. */
static Page widened(const Op *op, Page page, WidePage *wide) {
  if (op->dtype == DTYPE_F32) return page;
  int64_t width = op->head_dim;
  for (int64_t i = 0; i < width * PAGE; i += 2 * LANES) {
    fetch(page.next_keys, i * 2, 4 * LANES);
    for (int64_t at = i; at < i + 2 * LANES; at += LANES)
      *(f32x16 *)(wide->keys + at) = load_f32x16(page.keys, at, DTYPE_BF16);
  }
  for (int64_t i = page.seen.begin * width; i < page.seen.end * width; i += 2 * LANES) {
    fetch(page.next_values, i * 2, 4 * LANES);
    for (int64_t at = i; at < i + 2 * LANES; at += LANES)
      *(f32x16 *)(wide->values + at) = load_f32x16(page.values, at, DTYPE_BF16);
  }
  return (Page){.keys = wide->keys, .values = wide->values, .seen = page.seen};
}

/* The query heads `begin` to `end - 1` of a block that share one key/value head, counted slot by
 * slot, and where they lie. */
typedef struct {
  int64_t run, kv_head, begin, end;
  int64_t start; /* position of the block's first slot: the length of its context */
  const int32_t *table;
} Share;

static int64_t group_of(const Op *op) { return op->num_heads / op->num_kv_heads; }

static int64_t slot_of(const Op *op, const Share *share, int64_t h) {
  return (share->begin + h) / group_of(op);
}

/* Elements from the block's first row to the query, or the result, of head h of the share. */
static int64_t head_at(const Op *op, const Step *step, const Share *share, int64_t h,
                       int64_t stride) {
  int64_t group = group_of(op), row = share->run * step->block_size + slot_of(op, share, h);
  return row * stride + (share->kv_head * group + (share->begin + h) % group) * op->head_dim;
}

static void visit_all(const Op *op, Head *heads, int64_t num_heads, Page page, WidePage *wide) {
  Page once = widened(op, page, wide);
  for (int64_t h = 0; h < num_heads; h += MAX_HEADS)
    visit_page(heads + h, (int)smaller_of(MAX_HEADS, num_heads - h), once, DTYPE_F32, op->head_dim);
}

static Page page_of(const Op *op, int64_t number, int64_t next, int64_t kv_head, Tokens seen) {
  int64_t at = page_offset(op, number, kv_head), next_at = page_offset(op, next, kv_head);
  return (Page){
      .keys = (const char *)op->keys + at,
      .values = (const char *)op->values + at,
      .next_keys = (const char *)op->keys + next_at,
      .next_values = (const char *)op->values + next_at,
      .seen = seen,
  };
}

/* Every position before the block that is nearer to the slot than the window. Later slots see no
 * further back, so the pages begin with those of the first. */
static void visit_context(const Op *op, const Share *share, Head *heads, int64_t scratch,
                          WidePage *wide) {
  int64_t num_heads = share->end - share->begin;
  int64_t lowest = share->start + slot_of(op, share, 0) - op->window + 1;
  for (int64_t i = lowest > 0 ? lowest / PAGE : 0; i * PAGE < share->start; i++) {
    int64_t page_start = i * PAGE;
    Tokens seen = {within(lowest - page_start, 0, PAGE),
                   within(share->start - page_start, 0, PAGE)};
    for (int64_t h = 0; h < num_heads; h++) {
      int64_t nearest = share->start + slot_of(op, share, h) - op->window + 1;
      heads[h].seen = (Tokens){within(nearest - page_start, 0, PAGE), seen.end};
    }
    int64_t next = page_start + PAGE < share->start ? share->table[i + 1] : scratch;
    visit_all(op, heads, num_heads, page_of(op, share->table[i], next, share->kv_head, seen), wide);
  }
}

static void visit_block(const Op *op, const Step *step, const Share *share, Head *heads,
                        int64_t scratch, WidePage *wide) {
  int64_t num_heads = share->end - share->begin, size = step->block_size;
  for (int64_t h = 0; h < num_heads; h++) {
    int64_t slot = slot_of(op, share, h);
    heads[h].seen = (Tokens){within(slot - op->window + 1, 0, size),
                             within(slot + (op->is_causal ? 1 : op->window), 0, size)};
  }
  Tokens seen = {0, (int32_t)size};
  visit_all(op, heads, num_heads, page_of(op, scratch, scratch, share->kv_head, seen), wide);
}

/* Tasks are (block, key/value head, share of the block's query heads). */
static int64_t count_shares(const Op *op, const Step *step) {
  return (step->block_size * group_of(op) + HEADS_PER_TASK - 1) / HEADS_PER_TASK;
}

int64_t count_attend_block_tasks(const Op *op, const Step *step) {
  return step->num_runs * op->num_kv_heads * count_shares(op, step);
}

void run_attend_block_task(const Op *op, const Step *step, int64_t task) {
  int64_t shares = count_shares(op, step), begin = task % shares * HEADS_PER_TASK;
  int64_t run = task / shares / op->num_kv_heads;
  Share share = {
      .run = run,
      .kv_head = task / shares % op->num_kv_heads,
      .begin = begin,
      .end = smaller_of(begin + HEADS_PER_TASK, step->block_size * group_of(op)),
      .start = step->positions[run * step->block_size],
      .table = step->page_tables + run * step->max_pages,
  };
  int64_t num_heads = share.end - share.begin, scratch = op->num_pages - 1 - run;
  Head heads[HEADS_PER_TASK];
  WidePage wide;
  for (int64_t h = 0; h < num_heads; h++)
    start_head(op, &heads[h], head_at(op, step, &share, h, op->src_stride));
  visit_context(op, &share, heads, scratch, &wide);
  visit_block(op, step, &share, heads, scratch, &wide);
  for (int64_t h = 0; h < num_heads; h++)
    finish_head(op, &heads[h], head_at(op, step, &share, h, op->dst_stride));
}

/* ---- the two-tap convolution ---- */

/* One slot: what it takes of itself and, past the first slot, of the one before. A group of
 * channels that shares its dynamic part is one vector. Width % 16 == 0. */
static void convolve_slot(const Op *op, int64_t row, int has_earlier) {
  int64_t src = row * op->src_stride, dst = row * op->dst_stride, kernel = row * op->kernel_stride;
  int64_t groups = op->in_width / LANES;
  for (int64_t g = 0; g < groups; g++) {
    int64_t channel = g * LANES;
    f32x16 now = load_f32x16(op->weight, channel, op->dtype) +
                 load_f32(op->kernel, kernel + g, op->dtype);
    f32x16 sum = now * load_f32x16(op->src, src + channel, op->dtype);
    if (has_earlier) {
      f32x16 before = load_f32x16(op->weight, op->in_width + channel, op->dtype) +
                      load_f32(op->kernel, kernel + groups + g, op->dtype);
      sum += before * load_f32x16(op->src, src - op->src_stride + channel, op->dtype);
    }
    if (op->epilogue == EPILOGUE_ADD) sum += load_f32x16(op->dst, dst + channel, op->dtype);
    store_f32x16(op->dst, dst + channel, op->dtype, sum);
  }
}

int64_t count_convolve_tasks(const Op *op, const Step *step) { return step->num_runs; }

/* The last slot first: then rows can be convolved in place. */
void run_convolve_task(const Op *op, const Step *step, int64_t run) {
  for (int64_t slot = step->block_size - 1; slot >= 0; slot--)
    convolve_slot(op, run * step->block_size + slot, slot > 0);
}
