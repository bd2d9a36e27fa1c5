"""The protocol of matching itself (docs/adr/0018): bytes in, bytes out, no plan and no session.

Clients, tag servers and the matcher each have their steps here; what carries them between parties
lies one folder above.
"""
