"""Techniques, one file a family; `TECHNIQUES` is the public list."""
