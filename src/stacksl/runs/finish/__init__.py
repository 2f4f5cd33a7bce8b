"""What follows the last answer: the final model, its test, and the facts of the report."""
