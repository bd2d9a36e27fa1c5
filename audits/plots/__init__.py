"""The report's pictures, one file each: inline SVG whose x is per cent and whose y is pixels.

Each has a title and a description; the table with its numbers stands right below it. Shapes,
patterns and words tell apart what colours tell apart too.
"""
