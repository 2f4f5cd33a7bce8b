"""From an item to the text and the tokens that a language model reads."""
