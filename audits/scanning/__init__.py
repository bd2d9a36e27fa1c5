"""Looking through what is handed on for what must not be in it.

Here is what is sought, as a keyed filter in memory, and how bytes are searched. Which tables and
keys a site has is found in `secure_fgl`; nothing here opens a file.
"""
