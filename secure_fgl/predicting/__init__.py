"""What a trained model makes of a site's own data: predictions, and how good they are there.

Everything is computed and written where it is called; nothing leaves for it.
"""
