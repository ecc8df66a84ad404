"""Time evaluation: what a model costs on a device."""
