"""The gateway, its telemetry and settings, and the `saltwall` command."""
