"""The leakage report as data, one file a section. Formats and plots show it; none of it is text."""
