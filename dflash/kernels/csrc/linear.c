/* Products of rows with packed weight matrices.
 *
 * A packed matrix is [column block of 16][entry][16 columns], an entry being 64 bytes: one input
 * of each column in float32, a pair of inputs in bfloat16. Each output element is one chain over
 * the entries in order, in every form below and for any number of rows. With the SILU_MUL
 * epilogue, blocks alternate between the gate's and the up-projection's columns. */
#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "tape.h"

#define BLOCKS_PER_TASK 4
#define ROWS_PER_TASK 128
/* Rows whose sums stay in registers together, two blocks each: a draft block of the usual eight
 * slots is one pass, and sixteen chains keep both multipliers of a core busy. */
#define ROWS_PER_PASS 8

static inline void finish_block(const Op *op, int64_t row, int64_t block, f32x16 sum) {
  int64_t at = row * op->dst_stride + block * LANES;
  if (op->epilogue == EPILOGUE_F32) {
    *(f32x16_u *)((float *)op->dst + at) = sum;
    return;
  }
  if (op->epilogue == EPILOGUE_ADD)
    sum = load_f32x16(op->dst, at, op->dtype) + rounded_to(sum, op->dtype);
  store_f32x16(op->dst, at, op->dtype, sum);
}

/* silu(gate) * up, rounded where three separate operations would round. */
static inline void finish_gated(const Op *op, int64_t row, int64_t block, f32x16 gate, f32x16 up) {
  gate = rounded_to(gate, op->dtype);
  f32x16 activated = rounded_to(gate / (1.0f + exp_f32x16(-gate)), op->dtype);
  store_f32x16(op->dst, row * op->dst_stride + block / 2 * LANES, op->dtype,
               activated * rounded_to(up, op->dtype));
}

static inline void finish_pair(const Op *op, int64_t row, int64_t block, f32x16 a, f32x16 b) {
  if (op->epilogue == EPILOGUE_SILU_MUL) {
    finish_gated(op, row, block, a, b);
  } else {
    finish_block(op, row, block, a);
    finish_block(op, row, block + 1, b);
  }
}

static inline int64_t entries_of(const Op *op) {
  return op->dtype == DTYPE_BF16 ? (op->in_width + 31) / 32 * 16 : op->in_width;
}

static inline const char *input_row(const Op *op, int64_t row) {
  return (const char *)op->src + row * op->src_stride * (op->dtype == DTYPE_BF16 ? 2 : 4);
}

/* ---- vectors: float32 anywhere; bfloat16 with its dot instruction or by widening ---- */

static inline f32x16 add_entry(f32x16 sum, const char *input, const char *weight, int dtype) {
  uint32_t word;
  memcpy(&word, input, 4);
  if (dtype == DTYPE_F32) {
    float x;
    memcpy(&x, &word, 4);
    return sum + x * *(const f32x16 *)weight;
  }
#if defined(__AVX512BF16__)
  return (f32x16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)word),
                                  (__m512bh)_mm512_load_si512(weight));
#else
  uint32_t even_bits = word << 16, odd_bits = word & 0xffff0000u;
  float even, odd;
  memcpy(&even, &even_bits, 4);
  memcpy(&odd, &odd_bits, 4);
  u32x16 pairs = *(const u32x16 *)weight;
  sum += even * (f32x16)(pairs << 16);
  return sum + odd * (f32x16)(pairs & 0xffff0000u);
#endif
}

static inline __attribute__((always_inline)) void pass(const Op *op, int64_t row, int64_t block,
                                                       const int rows, const int dtype) {
  int64_t entries = entries_of(op);
  const char *weight = (const char *)op->weight + block * entries * 64;
  const char *next_weight = weight + entries * 64;
  const char *input[ROWS_PER_PASS];
  f32x16 a[ROWS_PER_PASS], b[ROWS_PER_PASS];
  for (int r = 0; r < rows; r++) {
    input[r] = input_row(op, row + r);
    a[r] = b[r] = splat(0.0f);
  }
  for (int64_t i = 0; i < entries; i++) {
    for (int r = 0; r < rows; r++) {
      a[r] = add_entry(a[r], input[r] + 4 * i, weight + 64 * i, dtype);
      b[r] = add_entry(b[r], input[r] + 4 * i, next_weight + 64 * i, dtype);
    }
  }
  for (int r = 0; r < rows; r++) finish_pair(op, row + r, block, a[r], b[r]);
}

#define PASS_CASE(rows, dtype) \
  case rows: pass(op, row, block, rows, dtype); break;
#define PASS_SWITCH(dtype)                                                           \
  switch (rows) {                                                                    \
    PASS_CASE(1, dtype) PASS_CASE(2, dtype) PASS_CASE(3, dtype) PASS_CASE(4, dtype)  \
    PASS_CASE(5, dtype) PASS_CASE(6, dtype) PASS_CASE(7, dtype) PASS_CASE(8, dtype)  \
  }

static void pass_of_rows(const Op *op, int64_t row, int64_t block, int rows) {
  if (op->dtype == DTYPE_F32) {
    PASS_SWITCH(DTYPE_F32)
  } else {
    PASS_SWITCH(DTYPE_BF16)
  }
}

static void vector_task(const Op *op, int64_t begin, int64_t end, int64_t block, int64_t blocks) {
  for (; blocks > 0; block += 2, blocks -= 2) {
    for (int64_t row = begin; row < end; row += ROWS_PER_PASS)
      pass_of_rows(op, row, block, end - row < ROWS_PER_PASS ? (int)(end - row) : ROWS_PER_PASS);
  }
}

/* ---- matrix tiles: bfloat16 on processors with AMX ---- */

#if defined(__AMX_BF16__)

#define TILE_ROWS 16
#define TILE_ENTRIES 16 /* entries of a weight tile: 32 inputs */

int tiles_allowed(void) {
  static int answer = -1;
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  if (answer < 0) answer = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
  return answer;
}

void begin_tiles(void) {
  if (!tiles_allowed()) return;
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
  } config __attribute__((aligned(64))) = {.palette = 1};
  for (int tile = 0; tile < 8; tile++) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = TILE_ROWS;
  }
  /* The intrinsic tells the compiler of the first eight bytes it reads only; this, of all. */
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

void end_tiles(void) {
  if (tiles_allowed()) _tile_release();
}

typedef float TileSums[TILE_ROWS][LANES];

/* Tiles 0 to 3 hold sums; 4 and up, inputs and weights. */
static void clear_sums(void) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

static void store_sums(TileSums sums[4]) {
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
}

static void finish_tiles(const Op *op, int64_t row, int64_t end, int64_t block, TileSums a,
                         TileSums b) {
  for (int r = 0; r < TILE_ROWS && row + r < end; r++)
    finish_pair(op, row + r, block, *(f32x16 *)a[r], *(f32x16 *)b[r]);
}

/* The logits of many rows are more than the caches hold. Written past them, their memory need not
 * be read first: that takes half as long again as the product. */
static void stream_tiles(const Op *op, int64_t row, int64_t end, int64_t block, TileSums a,
                         TileSums b) {
  for (int r = 0; r < TILE_ROWS && row + r < end; r++) {
    float *at = (float *)op->dst + (row + r) * op->dst_stride + block * LANES;
    _mm512_stream_ps(at, *(__m512 *)a[r]);
    _mm512_stream_ps(at + LANES, *(__m512 *)b[r]);
  }
}

/* Up to 16 rows, four column blocks: the decode shape, bound by reading weights. */
static void tiles_16_by_64(const Op *op, int64_t row, int64_t end, int64_t block) {
  int64_t entries = entries_of(op), stride = entries * 64;
  const char *weight = (const char *)op->weight + block * stride, *input = input_row(op, row);
  clear_sums();
  for (int64_t i = 0; i < entries; i += TILE_ENTRIES) {
    const char *at = weight + 64 * i;
    _tile_loadd(4, input + 4 * i, op->src_stride * 2);
    _tile_loadd(5, at, 64);
    _tile_loadd(6, at + stride, 64);
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(5, at + 2 * stride, 64);
    _tile_loadd(6, at + 3 * stride, 64);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 6);
  }
  TileSums sums[4] __attribute__((aligned(64)));
  store_sums(sums);
  finish_tiles(op, row, end, block, sums[0], sums[1]);
  finish_tiles(op, row, end, block + 2, sums[2], sums[3]);
}

/* 32 rows, two column blocks: each loaded tile is used twice. */
static void tiles_32_by_32(const Op *op, int64_t row, int64_t end, int64_t block) {
  int64_t entries = entries_of(op), stride = entries * 64, input_stride = op->src_stride * 2;
  const char *weight = (const char *)op->weight + block * stride, *input = input_row(op, row);
  clear_sums();
  for (int64_t i = 0; i < entries; i += TILE_ENTRIES) {
    _tile_loadd(4, input + 4 * i, input_stride);
    _tile_loadd(6, weight + 64 * i, 64);
    _tile_loadd(7, weight + stride + 64 * i, 64);
    _tile_loadd(5, input + TILE_ROWS * input_stride + 4 * i, input_stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  TileSums sums[4] __attribute__((aligned(64)));
  store_sums(sums);
  if (op->epilogue == EPILOGUE_F32 && end - row > TILE_ROWS) {
    stream_tiles(op, row, end, block, sums[0], sums[1]);
    stream_tiles(op, row + TILE_ROWS, end, block, sums[2], sums[3]);
  } else {
    finish_tiles(op, row, end, block, sums[0], sums[1]);
    finish_tiles(op, row + TILE_ROWS, end, block, sums[2], sums[3]);
  }
}

/* Input buffers hold whole groups of 32 rows, so a tile may read past the last row: rows of a tile
 * never mix, and what is computed from such a row is never stored. */
static void tile_task(const Op *op, int64_t begin, int64_t end, int64_t block, int64_t blocks) {
  if (end - begin <= TILE_ROWS && blocks == BLOCKS_PER_TASK) {
    tiles_16_by_64(op, begin, end, block);
    return;
  }
  for (; blocks > 0; block += 2, blocks -= 2)
    for (int64_t row = begin; row < end; row += 2 * TILE_ROWS) tiles_32_by_32(op, row, end, block);
  _mm_sfence(); /* what was streamed is there before the task counts as done */
}

#else

int tiles_allowed(void) { return 0; }
void begin_tiles(void) {}
void end_tiles(void) {}
static void tile_task(const Op *op, int64_t begin, int64_t end, int64_t block, int64_t blocks) {
  vector_task(op, begin, end, block, blocks);
}

#endif

/* The form that computes bfloat16 products here: its sums may round otherwise than another's. */
const char *dflash_linear_form(void) {
  if (tiles_allowed()) return "amx";
#if defined(__AVX512BF16__)
  return "avx512_bf16";
#else
  return "widened";
#endif
}

/* Tasks are (group of column blocks, chunk of rows). */
static int64_t count_blocks(const Op *op) { return (op->out_width + 31) / 32 * 2; }

static int64_t count_chunks(const Op *op, const Step *step) {
  return (num_rows(op, step) + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
}

int64_t count_linear_tasks(const Op *op, const Step *step) {
  return (count_blocks(op) + BLOCKS_PER_TASK - 1) / BLOCKS_PER_TASK * count_chunks(op, step);
}

void run_linear_task(const Op *op, const Step *step, int64_t task) {
  int64_t rows = num_rows(op, step), chunks = count_chunks(op, step);
  int64_t begin = task % chunks * ROWS_PER_TASK, block = task / chunks * BLOCKS_PER_TASK;
  int64_t end = begin + ROWS_PER_TASK < rows ? begin + ROWS_PER_TASK : rows;
  int64_t left = count_blocks(op) - block, width = left < BLOCKS_PER_TASK ? left : BLOCKS_PER_TASK;
  if (op->dtype == DTYPE_BF16 && tiles_allowed())
    tile_task(op, begin, end, block, width);
  else
    vector_task(op, begin, end, block, width);
}
