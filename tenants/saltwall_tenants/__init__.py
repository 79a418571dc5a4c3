"""The domain: tenants, keys, salts, usage and audit, and what processes say to each other."""
