"""What was asked, who answered, what it cost, what is left."""
