"""The study `certificates`: two confidence sets for labels over λ, S and d."""
