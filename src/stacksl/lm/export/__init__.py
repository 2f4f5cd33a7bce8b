"""What leaves a run of a language model: the PEFT folder, its card, a task of lm-eval."""
