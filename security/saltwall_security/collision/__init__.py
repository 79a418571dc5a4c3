"""Block hashes attacked without a server: their encoding, their digest, and weaker choices."""
