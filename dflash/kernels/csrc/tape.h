/* A tape is a list of operations recorded once and replayed every step, as a CUDA graph is.
 *
 * Exactness by construction: every element of every output is one chain of float32 operations
 * whose order depends only on the shape of the weights and on the element's own sequence, never on
 * how many rows the step has, where a row lies, or which thread computes it. Loops below are
 * blocked over rows and columns for speed; no loop over a reduced dimension is ever split. */
#ifndef DFLASH_TAPE_H
#define DFLASH_TAPE_H

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PAGE 16  /* tokens of a KV page: one vector of scores */
#define LANES 16 /* float32 numbers of a vector, columns of a packed weight block */
#define MAX_HEAD_DIM 256

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
/* The same vectors at any address. */
typedef f32x16 f32x16_u __attribute__((aligned(4)));
typedef u16x16 u16x16_u __attribute__((aligned(2)));

enum { DTYPE_F32 = 0, DTYPE_BF16 = 1 };
enum { ROWS_TOKENS = 0, ROWS_LOGITS = 1 };
enum { EPILOGUE_STORE = 0, EPILOGUE_ADD = 1, EPILOGUE_SILU_MUL = 2, EPILOGUE_F32 = 3 };
enum {
  OP_EMBED,
  OP_RMS_NORM,
  OP_LINEAR,
  OP_ROTATE_STORE,
  OP_ATTEND,
  OP_SELECT,
  OP_COPY,
  OP_FEATURES,
  OP_HEAD_NORM,
  OP_ROTATE_STORE_BLOCK,
  OP_ATTEND_BLOCK,
  OP_CONVOLVE,
};

/* One recorded operation. Strides count elements, not bytes. Mirrors tape.py. */
typedef struct {
  int32_t kind, rows, dtype, epilogue;
  const void *src;    /* input rows */
  const void *kernel; /* rows of dynamic kernels, [tap][group] from where this points */
  const void *weight; /* packed matrix, norm weight, table, or base kernel [tap][channel] */
  void *dst;
  void *keys, *values; /* KV pages of this layer */
  const float *cosine, *sine;
  int64_t src_stride, kernel_stride, dst_stride;
  int64_t in_width, out_width;
  int64_t num_pages;
  int64_t first, window; /* first position that has keys; positions within which keys are seen */
  int32_t num_heads, num_kv_heads, head_dim, is_causal, enabled;
  float eps, scale;
} Op;

/* What changes from step to step. */
typedef struct {
  const int64_t *token_ids;     /* [num_tokens] */
  const int32_t *positions;     /* [num_tokens] */
  const int32_t *run_of_token;  /* [num_tokens] */
  const int32_t *page_tables;   /* [num_runs, max_pages] */
  const int32_t *logit_rows;    /* [num_logits] */
  const void *features;         /* [num_tokens, features_stride] in the tape's type */
  int64_t num_tokens, num_runs, max_pages, num_logits, features_stride;
  int64_t block_size; /* slots of each run where runs are draft blocks, 1 to PAGE */
} Step;

static inline int64_t num_rows(const Op *op, const Step *step) {
  return op->rows == ROWS_TOKENS ? step->num_tokens : step->num_logits;
}

static inline f32x16 widen(u16x16 bits) {
  return (f32x16)(__builtin_convertvector(bits, u32x16) << 16);
}

/* Round to bfloat16, nearest even; a NaN stays a NaN. */
static inline u16x16 narrow(f32x16 x) {
#if defined(__AVX512BF16__)
  /* The instruction takes numbers under 2**-126 for zero, as its dot product does. */
  return (u16x16)_mm512_cvtneps_pbh((__m512)x);
#else
  u32x16 bits = (u32x16)x;
  u32x16 rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  i32x16 is_nan = x != x;
  u32x16 quiet = (bits >> 16 << 16) | 0x00400000u;
  rounded = ((u32x16)is_nan & quiet) | (~(u32x16)is_nan & rounded);
  return __builtin_convertvector(rounded >> 16, u16x16);
#endif
}

static inline f32x16 load_f32x16(const void *base, int64_t index, int dtype) {
  if (dtype == DTYPE_BF16) return widen(*(const u16x16_u *)((const uint16_t *)base + index));
  return *(const f32x16_u *)((const float *)base + index);
}

static inline float load_f32(const void *base, int64_t index, int dtype) {
  if (dtype == DTYPE_F32) return ((const float *)base)[index];
  uint32_t bits = (uint32_t)((const uint16_t *)base)[index] << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline void store_f32x16(void *base, int64_t index, int dtype, f32x16 x) {
  if (dtype == DTYPE_BF16)
    *(u16x16_u *)((uint16_t *)base + index) = narrow(x);
  else
    *(f32x16_u *)((float *)base + index) = x;
}

static inline f32x16 rounded_to(f32x16 x, int dtype) {
  return dtype == DTYPE_BF16 ? widen(narrow(x)) : x;
}

static inline f32x16 splat(float x) { return (f32x16){} + x; }

/* Lanes of a where the comparison held, of b elsewhere. */
static inline f32x16 choose_f32(i32x16 where, f32x16 a, f32x16 b) {
  return (f32x16)(((i32x16)a & where) | ((i32x16)b & ~where));
}

/* a > b ? a : b and a < b ? a : b: where either is NaN, b. */
static inline f32x16 larger(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
  return (f32x16)_mm512_max_ps((__m512)a, (__m512)b);
#else
  return choose_f32(a > b, a, b);
#endif
}

static inline f32x16 smaller(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
  return (f32x16)_mm512_min_ps((__m512)a, (__m512)b);
#else
  return choose_f32(a < b, a, b);
#endif
}

/* Lane i takes lane i + distance (or i - distance), so that halves fold onto each other. */
static inline f32x16 swap_lanes(f32x16 x, int32_t distance) {
  static const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return __builtin_shuffle(x, lane ^ distance);
}

/* Sum and maximum of a vector in one fixed tree. */
static inline float sum_lanes(f32x16 x) {
  x += swap_lanes(x, 8);
  x += swap_lanes(x, 4);
  x += swap_lanes(x, 2);
  x += swap_lanes(x, 1);
  return x[0];
}

static inline float max_lanes(f32x16 x) {
  x = larger(x, swap_lanes(x, 8));
  x = larger(x, swap_lanes(x, 4));
  x = larger(x, swap_lanes(x, 2));
  x = larger(x, swap_lanes(x, 1));
  return x[0];
}

/* e**x to about 1 ulp: x = n ln 2 + r, a polynomial in r, then n into the exponent. Below -87 it
 * stays at e**-87, which vanishes beside the 1 that every sum of weights holds; NaN stays NaN. */
static inline f32x16 exp_f32x16(f32x16 x) {
  const float shift = 12582912.0f; /* 1.5 * 2**23: adding it rounds to an integer */
  x = smaller(splat(88.0f), larger(splat(-87.0f), x));
  f32x16 n = (x * 1.44269504088896341f + shift) - shift;
  f32x16 r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  f32x16 p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  i32x16 exponent = (__builtin_convertvector(n, i32x16) + 127) << 23;
  return p * (f32x16)exponent;
}

/* Each kind of operation says how many tasks a step gives it, and runs one. Tasks of an operation are
 * independent and each belongs to one thread, so who runs which cannot change a number. */
int64_t count_linear_tasks(const Op *op, const Step *step);
int64_t count_attend_tasks(const Op *op, const Step *step);
int64_t count_row_tasks(const Op *op, const Step *step);
int64_t count_attend_block_tasks(const Op *op, const Step *step);
int64_t count_convolve_tasks(const Op *op, const Step *step);
void run_linear_task(const Op *op, const Step *step, int64_t task);
void run_attend_task(const Op *op, const Step *step, int64_t task);
void run_rotate_store_task(const Op *op, const Step *step, int64_t task);
void run_rms_norm_task(const Op *op, const Step *step, int64_t task);
void run_embed_task(const Op *op, const Step *step, int64_t task);
void run_select_task(const Op *op, const Step *step, int64_t task);
void run_copy_task(const Op *op, const Step *step, int64_t task);
void run_features_task(const Op *op, const Step *step, int64_t task);
void run_head_norm_task(const Op *op, const Step *step, int64_t task);
void run_rotate_store_block_task(const Op *op, const Step *step, int64_t task);
void run_attend_block_task(const Op *op, const Step *step, int64_t task);
void run_convolve_task(const Op *op, const Step *step, int64_t task);

/* Matrix tiles: 1 where the system lets us use them; a thread begins and ends their use. */
int tiles_allowed(void);
void begin_tiles(void);
void end_tiles(void);

#endif
