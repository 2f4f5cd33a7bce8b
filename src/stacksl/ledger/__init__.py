"""What was asked, who answered, what it cost, what is left.

`purchases` and `events` hold the plain types, `ledger` the ledger itself. Only `ledger` and the
modules that it uses need a database; nothing is imported here, so that importing a type loads no
SQLAlchemy.
"""
