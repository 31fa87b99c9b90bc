"""Training a drafter for a target: prompts, what the target makes of them, and the learning."""
