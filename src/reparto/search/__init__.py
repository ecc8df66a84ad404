"""The best technique and settings for a data set, found in parallel within a budget."""
