"""Statistics of timing attacks: scipy's tests, so combined that they hold on busy machines."""
