/* Replays a tape: one team of threads for the whole step, a barrier between operations. */
#include <omp.h>
#include <sched.h>
#include <stdlib.h>

#include "tape.h"

#define SPINS_BEFORE_YIELD 1000

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

typedef struct {
  int32_t arrived __attribute__((aligned(64)));
  int32_t round __attribute__((aligned(64)));
} Barrier;

/* Spin briefly, since operations last microseconds; then yield, since cores may be shared. */
static void wait_for_all(Barrier *barrier, int num_threads) {
  int32_t round = __atomic_load_n(&barrier->round, __ATOMIC_RELAXED);
  if (__atomic_add_fetch(&barrier->arrived, 1, __ATOMIC_ACQ_REL) == num_threads) {
    barrier->arrived = 0;
    __atomic_store_n(&barrier->round, round + 1, __ATOMIC_RELEASE);
    return;
  }
  for (int spins = 0; __atomic_load_n(&barrier->round, __ATOMIC_ACQUIRE) == round; spins++) {
    if (spins < SPINS_BEFORE_YIELD)
      relax();
    else
      sched_yield();
  }
}

static void run_op(const Op *op, const Step *step, Worker *worker) {
  switch (op->kind) {
    case OP_EMBED: run_embed(op, step, worker); return;
    case OP_RMS_NORM: run_rms_norm(op, step, worker); return;
    case OP_LINEAR: run_linear(op, step, worker); return;
    case OP_ROTATE_STORE: run_rotate_store(op, step, worker); return;
    case OP_ATTEND: run_attend(op, step, worker); return;
    case OP_SELECT: run_select(op, step, worker); return;
    case OP_COPY: run_copy(op, step, worker); return;
  }
}

static int is_skipped(const Op *op, const Step *step) {
  return !op->enabled || num_rows(op, step) == 0;
}

/* Run every enabled operation of the tape. Returns 0, or -1 where memory is missing. */
int dflash_run_tape(const Op *ops, int num_ops, const Step *step, int num_threads) {
  int32_t *next_tasks = calloc((size_t)num_ops, sizeof *next_tasks);
  if (!next_tasks) return -1;
  Barrier barrier = {0, 0};
  tiles_allowed();
#pragma omp parallel num_threads(num_threads)
  {
    /* The runtime may give fewer threads than asked for. */
    int team = omp_get_num_threads();
    for (int i = 0; i < num_ops; i++) {
      if (is_skipped(&ops[i], step)) continue;
      run_op(&ops[i], step, &(Worker){&next_tasks[i]});
      if (team > 1) wait_for_all(&barrier, team);
    }
  }
  free(next_tasks);
  return 0;
}

int dflash_op_size(void) { return (int)sizeof(Op); }
int dflash_step_size(void) { return (int)sizeof(Step); }
