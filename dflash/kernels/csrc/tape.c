/* Replays a tape: one team of threads for the whole step. */
#include <sched.h>
#include <stdlib.h>

#include "tape.h"

#define SPINS_BEFORE_YIELD 1000

typedef struct {
  int64_t (*count)(const Op *op, const Step *step);
  void (*run)(const Op *op, const Step *step, int64_t task);
} Kind;

static const Kind KINDS[] = {
    [OP_EMBED] = {count_row_tasks, run_embed_task},
    [OP_RMS_NORM] = {count_row_tasks, run_rms_norm_task},
    [OP_LINEAR] = {count_linear_tasks, run_linear_task},
    [OP_ROTATE_STORE] = {count_row_tasks, run_rotate_store_task},
    [OP_ATTEND] = {count_attend_tasks, run_attend_task},
    [OP_SELECT] = {count_row_tasks, run_select_task},
    [OP_COPY] = {count_row_tasks, run_copy_task},
    [OP_FEATURES] = {count_row_tasks, run_features_task},
    [OP_HEAD_NORM] = {count_row_tasks, run_head_norm_task},
    [OP_ROTATE_STORE_BLOCK] = {count_row_tasks, run_rotate_store_block_task},
    [OP_ATTEND_BLOCK] = {count_attend_block_tasks, run_attend_block_task},
    [OP_CONVOLVE] = {count_convolve_tasks, run_convolve_task},
};

/* How far an operation is. On a cache line of its own: every thread writes here. */
typedef struct {
  int64_t next __attribute__((aligned(64))); /* the next task that nobody took */
  int64_t done;                              /* tasks that have ended */
} Progress;

/* Spin briefly, since operations last microseconds; then yield, since cores may be shared. */
static void wait_until_done(const Progress *progress, int64_t num_tasks) {
  for (int spins = 0; __atomic_load_n(&progress->done, __ATOMIC_ACQUIRE) < num_tasks; spins++) {
    if (spins >= SPINS_BEFORE_YIELD) sched_yield();
#if defined(__x86_64__)
    else __builtin_ia32_pause();
#endif
  }
}

/* Run tasks of one operation until none is left, then wait for those that others took.
 *
 * The wait is for tasks, not for threads: one that has lost its core to another process holds
 * nobody up, and catches up over finished operations when it is back. */
static void run_op(const Op *op, const Step *step, Progress *progress) {
  const Kind *kind = &KINDS[op->kind];
  int64_t num_tasks = op->enabled ? kind->count(op, step) : 0;
  for (int64_t task; num_tasks > 0;) {
    task = __atomic_fetch_add(&progress->next, 1, __ATOMIC_RELAXED);
    if (task >= num_tasks) break;
    kind->run(op, step, task);
    __atomic_fetch_add(&progress->done, 1, __ATOMIC_RELEASE);
  }
  wait_until_done(progress, num_tasks);
}

/* Run every enabled operation of the tape. Returns 0, or -1 where memory is missing. */
int dflash_run_tape(const Op *ops, int num_ops, const Step *step, int num_threads) {
  size_t bytes = (size_t)num_ops * sizeof(Progress);
  Progress *progress = aligned_alloc(64, bytes);
  if (!progress) return -1;
  memset(progress, 0, bytes);
  tiles_allowed(); /* asked once, before there are threads to ask at the same time */
#pragma omp parallel num_threads(num_threads)
  {
    begin_tiles();
    for (int i = 0; i < num_ops; i++) run_op(&ops[i], step, &progress[i]);
    end_tiles();
  }
  free(progress);
  return 0;
}

int dflash_op_size(void) { return (int)sizeof(Op); }
int dflash_step_size(void) { return (int)sizeof(Step); }
