"""Sessions: one state machine per role, without IO. Bytes in, bytes out.

``engine`` is what all roles share, ``table`` holds every transition as data, ``part`` says what a
part is, ``phases`` the order of one Ask; one file per role, each a list of parts. Parts that serve
several disclosures lie in ``services``, kept state in ``store``; a disclosure's own parts lie in
its folder and name no other disclosure's.
"""
