"""The domain: tenants, API keys, salts, usage, audit events, and what processes say to each other."""
