/* Operations that touch one row at a time: embedding, norm, rotary positions, selection. */
#include <math.h>

#include "tape.h"

#define ROWS_PER_TASK 4

int64_t count_row_tasks(const Op *op, const Step *step) {
  return (num_rows(op, step) + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
}

static int64_t end_of_task(const Op *op, const Step *step, int64_t task) {
  int64_t rows = num_rows(op, step), end = (task + 1) * ROWS_PER_TASK;
  return end < rows ? end : rows;
}

#define FOR_EACH_ROW(row)                                                            \
  for (int64_t row = task * ROWS_PER_TASK, end_ = end_of_task(op, step, task); row < end_; row++)

static size_t element_bytes(const Op *op) { return op->dtype == DTYPE_BF16 ? 2 : 4; }

static void copy_row(const Op *op, int64_t from, int64_t to) {
  size_t bytes = element_bytes(op);
  memcpy((char *)op->dst + to * op->dst_stride * bytes,
         (const char *)op->src + from * op->src_stride * bytes, op->in_width * bytes);
}

void run_embed_task(const Op *op, const Step *step, int64_t task) {
  FOR_EACH_ROW(row) copy_row(op, step->token_ids[row], row);
}

void run_select_task(const Op *op, const Step *step, int64_t task) {
  FOR_EACH_ROW(row) copy_row(op, step->logit_rows[row], row);
}

void run_copy_task(const Op *op, const Step *step, int64_t task) {
  FOR_EACH_ROW(row) copy_row(op, row, row);
}

/* The caller's rows: a tile may read past the last one, so they are copied to a buffer of ours. */
void run_features_task(const Op *op, const Step *step, int64_t task) {
  size_t bytes = element_bytes(op);
  FOR_EACH_ROW(row)
    memcpy((char *)op->dst + row * op->dst_stride * bytes,
           (const char *)step->features + row * step->features_stride * bytes,
           op->in_width * bytes);
}

/* x / sqrt(mean(x**2) + eps), rounded to the row's type, times the weight. Width % 16 == 0. */
static void norm_span(const Op *op, int64_t src, int64_t dst, int64_t width) {
  f32x16 squares = splat(0.0f);
  for (int64_t i = 0; i < width; i += LANES) {
    f32x16 x = load_f32x16(op->src, src + i, op->dtype);
    squares += x * x;
  }
  float scale = 1.0f / sqrtf(sum_lanes(squares) / (float)width + op->eps);
  for (int64_t i = 0; i < width; i += LANES) {
    f32x16 x = load_f32x16(op->src, src + i, op->dtype) * scale;
    f32x16 w = load_f32x16(op->weight, i, op->dtype);
    store_f32x16(op->dst, dst + i, op->dtype, rounded_to(x, op->dtype) * w);
  }
}

void run_rms_norm_task(const Op *op, const Step *step, int64_t task) {
  FOR_EACH_ROW(row) norm_span(op, row * op->src_stride, row * op->dst_stride, op->in_width);
}

/* In place, head by head: src and dst are the first of the heads to norm. */
void run_head_norm_task(const Op *op, const Step *step, int64_t task) {
  FOR_EACH_ROW(row) {
    for (int64_t head = 0; head < op->num_heads; head++) {
      int64_t at = row * op->dst_stride + head * op->head_dim;
      norm_span(op, at, at, op->head_dim);
    }
  }
}

/* Rotate the pairs (i, i + head_dim / 2) of one head in place. head_dim % 32 == 0. */
static void rotate_head(const Op *op, int64_t at, const float *cosine, const float *sine) {
  int64_t half = op->head_dim / 2;
  for (int64_t i = 0; i < half; i += LANES) {
    f32x16 a = load_f32x16(op->dst, at + i, op->dtype);
    f32x16 b = load_f32x16(op->dst, at + half + i, op->dtype);
    f32x16 c = *(const f32x16_u *)(cosine + i), s = *(const f32x16_u *)(sine + i);
    store_f32x16(op->dst, at + i, op->dtype, a * c - b * s);
    store_f32x16(op->dst, at + half + i, op->dtype, b * c + a * s);
  }
}

/* Write one token's keys (transposed: a page is [head_dim, 16 tokens]) and values to its page. */
static void store_token(const Op *op, int64_t keys_at, int64_t page, int64_t slot) {
  int64_t width = op->head_dim, kv_width = op->num_kv_heads * width;
  for (int64_t head = 0; head < op->num_kv_heads; head++) {
    int64_t base = (page * op->num_kv_heads + head) * width * PAGE;
    int64_t key = keys_at + head * width, value = key + kv_width;
    for (int64_t i = 0; i < width; i++) {
      if (op->dtype == DTYPE_BF16) {
        const uint16_t *row = op->dst;
        ((uint16_t *)op->keys)[base + i * PAGE + slot] = row[key + i];
        ((uint16_t *)op->values)[base + slot * width + i] = row[value + i];
      } else {
        const float *row = op->dst;
        ((float *)op->keys)[base + i * PAGE + slot] = row[key + i];
        ((float *)op->values)[base + slot * width + i] = row[value + i];
      }
    }
  }
}

/* dst holds [queries | keys | values] of each token: rotate queries and keys, fill the pages. */
static void rotate_and_store(const Op *op, const Step *step, int64_t row, int64_t page,
                             int64_t slot) {
  int64_t half = op->head_dim / 2, at = row * op->dst_stride;
  const float *cosine = op->cosine + step->positions[row] * half;
  const float *sine = op->sine + step->positions[row] * half;
  for (int64_t head = 0; head < op->num_heads + op->num_kv_heads; head++)
    rotate_head(op, at + head * op->head_dim, cosine, sine);
  store_token(op, at + (int64_t)op->num_heads * op->head_dim, page, slot);
}

void run_rotate_store_task(const Op *op, const Step *step, int64_t task) {
  FOR_EACH_ROW(row) {
    const int32_t *table = step->page_tables + step->run_of_token[row] * step->max_pages;
    int64_t position = step->positions[row];
    rotate_and_store(op, step, row, table[position / PAGE], position % PAGE);
  }
}

/* Scratch pages are counted from the last: run r has page num_pages - 1 - r. */
void run_rotate_store_block_task(const Op *op, const Step *step, int64_t task) {
  FOR_EACH_ROW(row)
    rotate_and_store(op, step, row, op->num_pages - 1 - row / step->block_size,
                     row % step->block_size);
}
