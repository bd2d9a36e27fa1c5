"""Primitives: encryption, signatures, masks, noise, sharing. **Dangerous alone.**

Its parts can be composed into something unsafe. Nothing here decides what may leave a client;
`protocols` does. Use these modules only from there, or from an audit that checks them. Bytes and
numpy arrays only: no torch, no sockets, no clocks, no processes, nothing of ours above this floor.
Every check raises; nothing returns a boolean that could be ignored.

    errors        what can be refused, drawn as a tree
    handles       the mute base of all secret-bearing objects
    canonical     one value, one encoding (RFC 8785 subset)
    samplers      entropy, key derivation (HKDF), keyed streams (AES-256-CTR)
    signatures    Ed25519 with domain separation
    hpke          sealing to one role (RFC 9180, ML-KEM-768 with X25519)
    ristretto     the group ristretto255 (RFC 9496), with every check
    oprf          tags by an oblivious function whose key is in two parts (RFC 9497)
    merkle        append-only logs and their proofs (RFC 9162)
    checkpoint    a log's signed head (C2SP tlog-checkpoint)
    dsse          signed statements (Dead Simple Signing Envelope)
    ldp           what one client sends, private by its own draws: one file a mechanism
    quantiser     real numbers to exact integers, several per coefficient
    he            exact sums under encryption: one face, several schemes
                  (bfv_sealapi and ckks_sealapi on seal_files; bfv_parts is what they share)

Each module is imported by its own name; this file exports nothing.
"""
