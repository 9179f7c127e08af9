"""What a run leaves for people and tools: ledger, signals, drop report, manifest, verification."""
