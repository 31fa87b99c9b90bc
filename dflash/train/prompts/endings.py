"""How problems end: the wish for worked steps and a boxed result, or for nothing."""

WORD_PROBLEM_ENDINGS = (
    "\nThink it through one step at a time and give the result in \\boxed{}.",
    "\nShow each step of your working, then write the answer inside \\boxed{}.",
    "\nWork step by step. Put the final number in \\boxed{}.",
    "\nExplain your reasoning in steps and end with \\boxed{answer}.",
    "\nReason carefully, step by step, and box the final answer with \\boxed{}.",
    "\nLay out the calculation line by line; the last line should be the answer in \\boxed{}.",
    " Please go through it in small steps and finish with the result in \\boxed{}.",
    "\n\nSolve this in clear steps. State the answer as \\boxed{...}.",
    "\nWhat is the answer? Give your reasoning first, then \\boxed{} with the number.",
    " Show how you get there.",
    "",
)

FORMAL_ENDINGS = (
    "\nShow the main steps and give the answer in \\boxed{}.",
    "\nReason in steps, and close with the result inside \\boxed{}.",
    "\nDerive the answer carefully; write it as \\boxed{...} at the end.",
    "\nGive a full solution. The final result belongs in \\boxed{}.",
    "\nWork this out step by step and box the result using \\boxed{}.",
    "\nExplain each step, then put the final expression in \\boxed{}.",
    " Justify your answer.",
    "\n\nThink step by step. End with \\boxed{} around your answer.",
    "",
)
