"""The auditor: attacks a running platform from outside."""
