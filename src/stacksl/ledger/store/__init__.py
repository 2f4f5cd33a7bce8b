"""The database below the ledger: tables, the chain of hashes, items and private texts."""
