"""What travels, and the two doors it passes: the gateway out of a party, the inbox into one.

Envelopes and the layer's own messages, who takes part, and where in a run a message belongs.
Nothing here opens a connection; transports are in `secure_fgl`.
"""
