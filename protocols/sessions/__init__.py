"""Sessions: one state machine per role, without IO. Bytes in, bytes out.

``table`` holds every transition as data; ``base`` what all roles share; one file per role.
"""
