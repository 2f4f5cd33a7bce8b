"""What was asked, who answered, what it cost, what is left.

`purchases` and `rows` hold the words, `labelers` those who know, and `ledger` the book itself.
Only `ledger` and what lies below it (`accounts`, `chain`, `register`, `schema`,
`store`) need a database; nothing is imported here, so that asking for a word loads no SQLAlchemy.
"""
